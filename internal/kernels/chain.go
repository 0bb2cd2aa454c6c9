package kernels

import "github.com/godflash/godflash/mlx"

// A chain is a stack of layers in 4 bits whose norms, residual sums and
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
	counter mlx.Array // int32, see chainText
	t       tiling
	in, out int
}

// Valid reports whether there is a map.
func (c *Chained) Valid() bool { return c.counter.Valid() }

// Each visits the array that the map has besides its weight.
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
func (set *Set) Chain(s *mlx.Scope, q mlx.Quantized) Chained {
	if set == nil || set.chain == nil || !q.W.Valid() || !q.Biases.Valid() {
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

// Product is x through the map, [1, T, out], or [1, T, out/2] with SwiGLU. ok is
// false where the kernel failed: the caller goes another way.
func (set *Set) Product(s *mlx.Scope, x Stream, q mlx.Quantized, c *Chained, a Around) (y Stream, ok bool) {
	if s.Err() != nil {
		return Stream{}, true
	}
	out := c.call(set.none, x, q, a).run(s, set.chain)
	if set.chain.Backend() == "fallback" && !set.composed {
		set.chain = nil
		return Stream{}, false
	}
	if len(out) != 3 {
		return Stream{}, true // the scope has the error
	}
	if a.Sums {
		y.Sums = out[2]
	}
	y.X = out[0]
	return y, true
}

// Chains reports whether blocks like x [1, T, hidden] can go through a chain.
func (set *Set) Chains(s *mlx.Scope, x mlx.Array) bool {
	return set != nil && set.chain != nil && s.Err() == nil && x.Dim(1) <= BlockRows && set.tensorType(x.Dtype())
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
	x, dt := in[0], in[0].Dtype()
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
	if templateBool(l, "SILU") {
		tiles := s.Reshape(s.AsType(y, dt), t, -1, 2, templateInt(l, "NT")*16)
		g, u := f(s.SliceAxis(tiles, 2, 0, 1)), f(s.SliceAxis(tiles, 2, 1, 2))
		y = s.Reshape(s.Mul(s.Mul(g, s.Sigmoid(g)), u), 1, t, out/2)
	}
	y = s.AsType(y, dt)
	if templateBool(l, "RES") {
		y = s.Add(y, in[7])
	}
	sq := s.Zeros(mlx.Float32, 1)
	if templateBool(l, "SQ") {
		sq = s.Sum(s.Square(s.Reshape(f(y), t, -1, templateInt(l, "NT")*32)), false, 2)
	}
	return []mlx.Array{y, parts, sq}
}

// normBySums is the norm of x [1, T, width], of whose squares the sums are known.
func normBySums(s *mlx.Scope, x, norm, sums mlx.Array, eps float32) mlx.Array {
	mean := s.Mul(s.Sum(sums, true, 1), s.Scalar(1/float64(x.Dim(2)), mlx.Float32))
	rms := s.Rsqrt(s.Add(mean, s.Scalar(float64(eps), mlx.Float32)))
	return s.AsType(s.Mul(s.Mul(s.AsType(x, mlx.Float32), rms), norm), x.Dtype())
}

func (c *Chained) call(none mlx.Array, x Stream, q mlx.Quantized, a Around) call {
	t, splits := x.X.Dim(1), c.in/c.t.kc
	norm, sums, residual := a.Norm, x.Sums, a.Residual
	if !norm.Valid() {
		norm, sums = none, none
	}
	if !residual.Valid() {
		residual = x.X
	}
	width, squares := c.out, []int{1}
	if a.SwiGLU {
		width /= 2
	}
	if a.Sums {
		squares = []int{t, c.out / c.t.rows()}
	}
	return call{
		in: []mlx.Array{x.X, q.W, q.Scales, q.Biases, c.counter, norm, sums, residual},
		launch: mlx.Launch{
			Outputs: []mlx.Output{
				{Dtype: x.X.Dtype(), Shape: []int{1, t, width}},
				{Dtype: mlx.Float32, Shape: []int{splits, t, c.out}},
				{Dtype: mlx.Float32, Shape: squares},
			},
			Grid: [3]int{c.out / c.t.rows() * 128, splits}, Group: [3]int{128},
			Template: []mlx.TemplateArg{
				{Name: "K", Value: c.in},
				{Name: "N", Value: c.out},
				{Name: "NT", Value: c.t.nt},
				{Name: "KC", Value: c.t.kc},
				{Name: "U", Value: c.t.u},
				{Name: "NORM", Value: a.Norm.Valid()},
				{Name: "EPS", Value: floatBits(a.Eps)},
				{Name: "RES", Value: a.Residual.Valid()},
				{Name: "SQ", Value: a.Sums},
				{Name: "SILU", Value: a.SwiGLU},
			},
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

// Pad is the number of outputs that a map in 4 bits should have: more than out,
// with weights of 0, where the chain needs that.
func (set *Set) Pad(q mlx.Quantized, out int) int {
	if set == nil || set.chain == nil || !fitsQ4(q.W.Dim(1)*8, q) {
		return out
	}
	return (out + chainRows - 1) / chainRows * chainRows
}

// Interleave is the number of outputs of a gate map, and then of a value map, that
// lie together in a weight that holds both, width each: a tile has as many of each.
// 0 where no chain serves: the maps then lie one after the other.
func (set *Set) Interleave(q mlx.Quantized, width int) int {
	if set == nil || set.chain == nil || !q.W.Valid() || !fitsQ4(q.W.Dim(1)*8, q) {
		return 0
	}
	t, ok := tile(q.W.Dim(1)*8, 2*width)
	if half := t.rows() / 2; ok && width%half == 0 {
		return half
	}
	return 0
}
