package kernels

import "github.com/godflash/godflash/mlx"

// A chain is a stack of layers, in 4 bits or in bfloat16, whose norms, residual sums and
// feed-forward gates are part of the products: 7 launches a layer instead of 10,
// and less to read. It carries the residual stream with the sums of its squares,
// from which the next product makes the norm.

// Stream is the residual stream in a chain.
type Stream struct {
	X    mlx.Array // [1, T, hidden], bfloat16
	Sums mlx.Array // float32 [T, n]: a row's add up to the sum of X's squares
}

// Chained is what a map needs besides its weight to be part of a chain.
type Chained struct {
	counter mlx.Array   // int32, see chainText; for 4 bits only
	t       tiling      // of a weight in 4 bits
	dense   denseTiling // of one in bfloat16
	in, out int
}

// Valid reports whether there is a map.
func (c *Chained) Valid() bool { return c.out > 0 }

// Each visits the array that the map may have besides its weight.
func (c *Chained) Each(f func(*mlx.Array)) { f(&c.counter) }

// tiling is how a product is divided: chainText's NT, KC and U.
type tiling struct{ nt, kc, u int }

// rows is the number of outputs that a block makes.
func (t tiling) rows() int { return 32 * t.nt }

const (
	// chainRows divides the outputs of every map of a chain.
	chainRows = 64
	// wantedBlocks fill a large GPU: columns are divided until there are so many.
	wantedBlocks = 512
	// wideOutputs is the number of outputs from which a block takes twice the rows.
	wideOutputs = 12288
)

// tile chooses; ok is false where the sizes do not divide.
func tile(in, out int) (t tiling, ok bool) {
	t = tiling{nt: 2, u: 4}
	if out >= wideOutputs && out%128 == 0 {
		t = tiling{nt: 4, u: 2}
	}
	if out%t.rows() != 0 || in%512 != 0 {
		return t, false
	}
	t.kc = 512
	if in%1024 == 0 && out/t.rows()*(in/1024) >= wantedBlocks {
		t.kc = 1024
	}
	return t, true
}

// Chain prepares a map for a chain; not valid where the weight or the device does
// not suit. The counter lives in s.
func (set *Set) Chain(s *mlx.Scope, w Weight) Chained {
	q := w.Quant
	switch {
	case w.Dense.Valid() && set.fitsDense(w.Dense):
		in, out := w.Dense.Dim(1), w.Dense.Dim(0)
		t, ok := tileDense(in, out)
		if !ok {
			return Chained{}
		}
		return Chained{dense: t, in: in, out: out}
	case set == nil || set.chain == nil || !q.W.Valid() || !q.Biases.Valid():
		return Chained{}
	}
	in, out := q.W.Dim(1)*8, q.W.Dim(0)
	t, ok := tile(in, out)
	if !ok || !fitsQ4(in, q) || !set.tensorType(q.Scales.Dtype()) {
		return Chained{}
	}
	return Chained{counter: s.Zeros(mlx.Int32, out/t.rows()), t: t, in: in, out: out}
}

// Around is what a chain's product does besides multiplying.
type Around struct {
	Norm     mlx.Array // float32 [in]: x is normalised with its Sums
	Eps      float32   // of the norm
	SwiGLU   bool      // the outputs are gates and values by turns, see Interleave
	Residual mlx.Array // [1, T, out]: is added
	Sums     bool      // the result's Sums are needed
}

// inputs are the arrays that a needs beside x, none for those that it does not use.
func (a Around) inputs(none mlx.Array, x Stream) (norm, sums, residual mlx.Array) {
	norm, sums, residual = a.Norm, x.Sums, a.Residual
	if !norm.Valid() {
		norm, sums = none, none
	}
	if !residual.Valid() {
		residual = x.X
	}
	return norm, sums, residual
}

// outputs are those of a product of x with out outputs, rows of them in a block.
func (a Around) outputs(x mlx.Array, out, rows int) (y, squares mlx.Output) {
	t := x.Dim(1)
	if a.SwiGLU {
		out /= 2
	}
	y, squares = mlx.Output{Dtype: x.Dtype(), Shape: []int{1, t, out}}, mlx.Output{Dtype: mlx.Float32, Shape: []int{1}}
	if a.Sums {
		squares.Shape = []int{t, out / rows}
	}
	return y, squares
}

func (a Around) template() []mlx.TemplateArg {
	return []mlx.TemplateArg{
		{Name: "NORM", Value: a.Norm.Valid()},
		{Name: "EPS", Value: floatBits(a.Eps)},
		{Name: "RES", Value: a.Residual.Valid()},
		{Name: "SQ", Value: a.Sums},
		{Name: "SILU", Value: a.SwiGLU},
	}
}

// Product is x through the map, [1, T, out], or [1, T, out/2] with SwiGLU. ok is
// false where the kernel failed: the caller goes another way.
func (set *Set) Product(s *mlx.Scope, x Stream, w Weight, c *Chained, a Around) (y Stream, ok bool) {
	if s.Err() != nil {
		return Stream{}, true
	}
	var k *mlx.Kernel
	var out []mlx.Array
	if w.Dense.Valid() {
		k = set.denseProduct(c.dense)
		out = c.denseCall(set.none, x, w.Dense, a).run(s, k)
	} else {
		k = set.chain
		out = c.call(set.none, x, w.Quant, a).run(s, k)
	}
	if k.Backend() == "fallback" && !set.composed {
		set.unchain()
		return Stream{}, false
	}
	if len(out) == 0 {
		return Stream{}, true // the scope has the error
	}
	if a.Sums {
		y.Sums = out[len(out)-1]
	}
	y.X = out[0]
	return y, true
}

// unchain is for a kernel that failed: nothing is a chain from now on.
func (set *Set) unchain() { set.chain, set.dense, set.wide = nil, nil, nil }

// Chains reports whether blocks like x [1, T, hidden] can go through a chain.
func (set *Set) Chains(s *mlx.Scope, x mlx.Array) bool {
	return set != nil && (set.chain != nil || set.dense != nil) && s.Err() == nil && x.Dim(1) <= BlockRows && set.tensorType(x.Dtype())
}

// Begin makes a stream of x.
func (set *Set) Begin(s *mlx.Scope, x mlx.Array) Stream {
	out := squaresCall(x).run(s, set.squares)
	if len(out) != 1 {
		return Stream{}
	}
	return Stream{x, out[0]}
}

func chainSpec() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:    "godflash_chain",
		Inputs:  []string{"x", "w", "scales", "biases", "counter", "norm", "sums", "residual"},
		Outputs: []string{"y", "parts", "squares"},
		CUDA: mlx.KernelSource{
			Header: compact(cudaHeader) + compact(q4Macros) + compact(mmaHeader) + compact(mma8Header) + compact(attentionMacros) + compact(chainMacros) + compact(chainHeader),
			Source: cudaIndex + compact(chainText),
		},
		Fallback: composeChain,
	}
}

// composeChain is the product in operations.
func composeChain(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
	x := in[0]
	f := func(a mlx.Array) mlx.Array { return s.AsType(a, mlx.Float32) }
	if templateBool(l, "NORM") {
		x = normBySums(s, x, in[5], in[6], templateFloat(l, "EPS"))
	}
	w := s.Dequantize(mlx.Quantized{W: in[1], Scales: f(in[2]), Biases: f(in[3]), Options: q4Options}, mlx.Float32)
	t, out, kc := x.Dim(1), w.Dim(0), templateInt(l, "KC")
	var products []mlx.Array
	for k := 0; k < x.Dim(2); k += kc {
		products = append(products, s.MatMul(f(s.SliceAxis(x, 2, k, k+kc)), s.Transpose(s.SliceAxis(w, 1, k, k+kc))))
	}
	parts := s.Reshape(s.Concat(0, products...), -1, t, out)
	y := s.Sum(s.Reshape(parts, -1, 1, t, out), false, 0)
	y, squares := composeAround(s, y, in[7], l, 32*templateInt(l, "NT"))
	return []mlx.Array{y, parts, squares}
}

// composeAround is what a chain's kernel does with a product y [1, T, out] in float32,
// rows outputs in a block.
func composeAround(s *mlx.Scope, y, residual mlx.Array, l mlx.Launch, rows int) (around, squares mlx.Array) {
	f := func(a mlx.Array) mlx.Array { return s.AsType(a, mlx.Float32) }
	dt, t, out := l.Outputs[0].Dtype, y.Dim(1), y.Dim(2)
	if templateBool(l, "SILU") {
		tiles := s.Reshape(s.AsType(y, dt), t, -1, 2, rows/2)
		g, u := f(s.SliceAxis(tiles, 2, 0, 1)), f(s.SliceAxis(tiles, 2, 1, 2))
		y = s.Reshape(s.Mul(s.Mul(g, s.Sigmoid(g)), u), 1, t, out/2)
	}
	y = s.AsType(y, dt)
	if templateBool(l, "RES") {
		y = s.Add(y, residual)
	}
	squares = s.Zeros(mlx.Float32, 1)
	if templateBool(l, "SQ") {
		squares = s.Sum(s.Square(s.Reshape(f(y), t, -1, rows)), false, 2)
	}
	return y, squares
}

// normBySums is the norm of x [1, T, width], of whose squares the sums are known.
func normBySums(s *mlx.Scope, x, norm, sums mlx.Array, eps float32) mlx.Array {
	mean := s.Mul(s.Sum(sums, true, 1), s.Scalar(1/float64(x.Dim(2)), mlx.Float32))
	rms := s.Rsqrt(s.Add(mean, s.Scalar(float64(eps), mlx.Float32)))
	return s.AsType(s.Mul(s.Mul(s.AsType(x, mlx.Float32), rms), norm), x.Dtype())
}

func (c *Chained) call(none mlx.Array, x Stream, q mlx.Quantized, a Around) call {
	splits := c.in / c.t.kc
	norm, sums, residual := a.inputs(none, x)
	y, squares := a.outputs(x.X, c.out, c.t.rows())
	return call{
		in: []mlx.Array{x.X, q.W, q.Scales, q.Biases, c.counter, norm, sums, residual},
		launch: mlx.Launch{
			Outputs: []mlx.Output{y, {Dtype: mlx.Float32, Shape: []int{splits, x.X.Dim(1), c.out}}, squares},
			Grid:    [3]int{c.out / c.t.rows() * 128, splits}, Group: [3]int{128},
			Template: append([]mlx.TemplateArg{
				{Name: "K", Value: c.in},
				{Name: "N", Value: c.out},
				{Name: "NT", Value: c.t.nt},
				{Name: "KC", Value: c.t.kc},
				{Name: "U", Value: c.t.u},
			}, a.template()...),
		},
		writes: []int{4},
	}
}

func squaresSpec() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:    "godflash_squares",
		Inputs:  []string{"x"},
		Outputs: []string{"sums"},
		CUDA:    cuda(squaresText),
		Fallback: func(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
			return []mlx.Array{s.Reshape(s.Sum(s.Square(s.AsType(in[0], mlx.Float32)), false, -1), l.Outputs[0].Shape...)}
		},
	}
}

func squaresCall(x mlx.Array) call {
	t := rowsOf(x.Shape())
	return call{in: []mlx.Array{x}, launch: mlx.Launch{
		Outputs: []mlx.Output{{Dtype: mlx.Float32, Shape: []int{t, 1}}},
		Grid:    [3]int{t * 256}, Group: [3]int{256},
		Template: []mlx.TemplateArg{{Name: "H", Value: x.Dim(-1)}},
	}}
}

// Pad is the number of outputs that a map should have: more than out, with weights
// of 0, where the chain needs that.
func (set *Set) Pad(w Weight, out int) int {
	switch {
	case w.Dense.Valid() && set.fitsDense(w.Dense), w.Quant.W.Valid() && set != nil && set.chain != nil && fitsQ4(w.Quant.W.Dim(1)*8, w.Quant):
		return (out + chainRows - 1) / chainRows * chainRows
	}
	return out
}

// Interleave is the number of outputs of a gate map, and then of a value map, that
// lie together in a weight that holds both, width each: a tile has as many of each.
// 0 where no chain serves: the maps then lie one after the other.
func (set *Set) Interleave(w Weight, width int) int {
	var half int
	var ok bool
	switch q := w.Quant; {
	case w.Dense.Valid() && set.fitsDense(w.Dense):
		var t denseTiling
		t, ok = tileDense(w.Dense.Dim(1), 2*width)
		half = t.rows() / 2
	case set != nil && set.chain != nil && q.W.Valid() && fitsQ4(q.W.Dim(1)*8, q):
		var t tiling
		t, ok = tile(q.W.Dim(1)*8, 2*width)
		half = t.rows() / 2
	}
	if ok && width%half == 0 {
		return half
	}
	return 0
}
