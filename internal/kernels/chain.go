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

// tiling is how a product is divided: chainText's GW, W and SPLITS, the number of
// blocks of a part, STAGES and SPREAD.
type tiling struct {
	groups, warps, splits, blocks, stages int
	spread                                bool
}

const (
	// chainRows divides the outputs of every map of a chain.
	chainRows = 64
	// chainColumns divides the inputs of those in 4 bits: four groups, which lie aligned.
	chainColumns = 256
	// spreadFrom is the number of tiles of a block from which SPREAD was faster.
	spreadFrom = 7
)

// largeGPU is what kernels were made for, an H200, and what is assumed where the
// device does not say.
var largeGPU = mlx.GPU{Multiprocessors: 132, SharedMemory: 192 << 10, Clusters: true}

// gpuOf is the device, of whose shared memory a launch may be given what is left by
// the kernels' own variables, and no more than they were made for.
func gpuOf(lib *mlx.Library) mlx.GPU {
	gpu, ok := lib.GPU()
	if !ok {
		return largeGPU
	}
	return usable(gpu)
}

// usable is what of a device a launch may be given.
func usable(gpu mlx.GPU) mlx.GPU {
	gpu.SharedMemory = min(gpu.SharedMemory-1<<10, largeGPU.SharedMemory)
	return gpu
}

// memory is the bytes of shared memory that chainText needs.
func (t tiling) memory() int {
	line := 2 * (t.groups + 1)
	if t.groups > 8 {
		line += 4
	}
	return t.warps * 16 * (t.stages*line*16 + 2*36*4)
}

// wide says that a warp takes more than four groups, which wants more registers
// than 16 warps can have.
func (t tiling) wide() bool { return t.groups > 4 }

// tile chooses the tiling that takes least by a model of what an H200 was measured
// to take with 16 rows, in nanoseconds: for a tile of 16 outputs and for each group
// in it, to prepare a group of x, and to add the parts. A multiprocessor has one
// block. ok is false where the sizes do not divide.
func tile(gpu mlx.GPU, in, out int) (best tiling, ok bool) {
	const perTile, perGroup, prepare, split, add = 500, 16, 60, 2500, 30
	if in%128 != 0 || out == 0 {
		return best, false
	}
	groups, tiles, least := in/64, (out+15)/16, 0
	for _, most := range []struct{ groups, warps int }{{10, 8}, {8, 8}, {4, 16}, {2, 1}} {
		for splits := 1; splits <= 16; splits++ {
			// Of several parts 16 warps with few registers were faster than 8 with many.
			wide, whole := most.groups > 4, groups == most.groups*most.warps
			warps := ((groups+splits-1)/splits + most.groups - 1) / most.groups
			if groups < most.groups || warps > most.warps || wide && !(whole && splits == 1) || splits > gpu.Multiprocessors {
				continue
			}
			t := tiling{groups: most.groups, warps: warps, splits: splits, stages: 3}
			if t.memory() > gpu.SharedMemory {
				continue
			}
			each := (tiles + gpu.Multiprocessors/splits - 1) / (gpu.Multiprocessors / splits)
			cost := each*(perTile+perGroup*warps*most.groups) + prepare*warps*most.groups
			if splits > 1 {
				cost += split + add*each*splits
			}
			if least == 0 || cost < least {
				t.blocks = (tiles + each - 1) / each
				t.spread = each >= spreadFrom
				if t.stages = 4; !wide || t.memory() > gpu.SharedMemory {
					t.stages = 3
				}
				best, least = t, cost
			}
		}
	}
	return best, least > 0
}

// Chain prepares a map for a chain; not valid where the weight or the device does
// not suit. The counter lives in s.
func (set *Set) Chain(s *mlx.Scope, w Weight) Chained {
	q := w.Quant
	switch {
	case w.Dense.Valid() && set.fitsDense(w.Dense):
		in, out := w.Dense.Dim(1), w.Dense.Dim(0)
		t, ok := tileDense(set.gpu, in, out)
		if !ok {
			return Chained{}
		}
		return Chained{dense: t, in: in, out: out}
	case set == nil || !set.chained || !q.W.Valid() || !q.Biases.Valid():
		return Chained{}
	}
	in, out := q.W.Dim(1)*8, q.W.Dim(0)
	t, ok := tile(set.gpu, in, out)
	if !ok || in%chainColumns != 0 || out%chainRows != 0 || !fitsQ4(in, q) || !set.tensorType(q.Scales.Dtype()) {
		return Chained{}
	}
	return Chained{counter: s.Zeros(mlx.Int32, t.blocks), t: t, in: in, out: out}
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
	y, squares = mlx.Output{Dtype: x.Dtype(), Shape: []int{1, t, out}}, mlx.Output{Dtype: mlx.Float32, Shape: []int{nearSize}}
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
		k = set.dense[c.dense.kind]
		out = c.denseCall(set.none, x, w.Dense, a).run(s, k)
	} else {
		k = set.product(c.t)
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
func (set *Set) unchain() { set.chained, set.dense = false, nil }

// Chains reports whether blocks like x [1, T, hidden] can go through a chain.
func (set *Set) Chains(s *mlx.Scope, x mlx.Array) bool {
	return set != nil && (set.chained || set.dense != nil) && s.Err() == nil && x.Dim(1) <= BlockRows && set.tensorType(x.Dtype())
}

// Begin makes a stream of x.
func (set *Set) Begin(s *mlx.Scope, x mlx.Array) Stream {
	out := squaresCall(x).run(s, set.squares)
	if len(out) != 1 {
		return Stream{}
	}
	return Stream{x, out[0]}
}

// chainSpec is the product for tilings that are wide, or not.
func chainSpec(gpu mlx.GPU, wide bool) mlx.KernelSpec {
	name, bounds := "godflash_q4", q4Header
	if wide {
		name, bounds = "godflash_q4_wide", q4WideHeader
	}
	return mlx.KernelSpec{
		Name:    name,
		Inputs:  []string{"x", "w", "scales", "biases", "counter", "norm", "sums", "residual"},
		Outputs: []string{"y", "parts", "squares"},
		// Metal's own product of few rows reads each weight once; CUDA's does not.
		CUDA: mlx.KernelSource{
			Header: compact(cudaHeader) + compact(q4Macros) + compact(mmaHeader) + compact(copyHeader) + compact(onceHeader) + compact(attentionMacros) + compact(chainMacros) + compact(bounds),
			Source: cudaIndex + compact(chainText),
		},
		SharedMemory: gpu.SharedMemory,
		Overlaps:     true,
		Fallback:     composeChain,
	}
}

// product is the kernel for a tiling.
func (set *Set) product(t tiling) *mlx.Kernel {
	if t.wide() {
		return set.q4Wide
	}
	return set.q4
}

// composeChain is the product in operations.
func composeChain(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
	x, dt := in[0], in[0].Dtype()
	f := func(a mlx.Array) mlx.Array { return s.AsType(a, mlx.Float32) }
	if templateBool(l, "NORM") {
		x = s.AsType(s.Mul(f(x), in[5]), dt)
	}
	w := s.Dequantize(mlx.Quantized{W: in[1], Scales: f(in[2]), Biases: f(in[3]), Options: q4Options}, mlx.Float32)
	t, out, columns := x.Dim(1), w.Dim(0), templateInt(l, "W")*templateInt(l, "GW")*64
	var products []mlx.Array
	for k := 0; k < x.Dim(2); k += columns {
		end := min(k+columns, x.Dim(2))
		products = append(products, s.MatMul(f(s.SliceAxis(x, 2, k, end)), s.Transpose(s.SliceAxis(w, 1, k, end))))
	}
	parts := s.Reshape(s.Concat(0, products...), -1, t, out)
	y := s.Sum(s.Reshape(parts, -1, 1, t, out), false, 0)
	if len(products) == 1 {
		parts = s.Zeros(mlx.Float32, nearSize)
	}
	if templateBool(l, "NORM") {
		y = s.Mul(y, inverseRoot(s, x, in[6], templateFloat(l, "EPS")))
	}
	y, squares := composeAround(s, y, in[7], l, 16, 16)
	return []mlx.Array{y, parts, squares}
}

// composeAround is what a chain's kernel does with a product y [1, T, out] in float32,
// the sum of squares of rows outputs each; half of gates and of values lie together.
func composeAround(s *mlx.Scope, y, residual mlx.Array, l mlx.Launch, rows, half int) (around, squares mlx.Array) {
	f := func(a mlx.Array) mlx.Array { return s.AsType(a, mlx.Float32) }
	dt, t, out := l.Outputs[0].Dtype, y.Dim(1), y.Dim(2)
	if templateBool(l, "SILU") {
		tiles := s.Reshape(s.AsType(y, dt), t, -1, 2, half)
		g, u := f(s.SliceAxis(tiles, 2, 0, 1)), f(s.SliceAxis(tiles, 2, 1, 2))
		y = s.Reshape(s.Mul(s.Mul(g, s.Sigmoid(g)), u), 1, t, out/2)
	}
	y = s.AsType(y, dt)
	if templateBool(l, "RES") {
		y = s.Add(y, residual)
	}
	squares = s.Zeros(mlx.Float32, nearSize)
	if templateBool(l, "SQ") {
		squares = s.Sum(s.Square(s.Reshape(f(y), t, -1, rows)), false, 2)
	}
	return y, squares
}

// normBySums is the norm of x [1, T, width], of whose squares the sums are known.
func normBySums(s *mlx.Scope, x, norm, sums mlx.Array, eps float32) mlx.Array {
	return s.AsType(s.Mul(s.Mul(s.AsType(x, mlx.Float32), inverseRoot(s, x, sums, eps)), norm), x.Dtype())
}

// inverseRoot is 1 over the root of each row's mean square, [T, 1].
func inverseRoot(s *mlx.Scope, x, sums mlx.Array, eps float32) mlx.Array {
	mean := s.Mul(s.Sum(sums, true, 1), s.Scalar(1/float64(x.Dim(2)), mlx.Float32))
	return s.Rsqrt(s.Add(mean, s.Scalar(float64(eps), mlx.Float32)))
}

func (c *Chained) call(none mlx.Array, x Stream, q mlx.Quantized, a Around) call {
	norm, sums, residual := a.inputs(none, x)
	y, squares := a.outputs(x.X, c.out, 16)
	blocks, parts := c.t.blocks, []int{nearSize}
	if a.SwiGLU {
		blocks = min(blocks, c.out/32)
	}
	if c.t.splits > 1 {
		parts = []int{c.t.splits, x.X.Dim(1), c.out}
	}
	return call{
		in: []mlx.Array{x.X, q.W, q.Scales, q.Biases, c.counter, norm, sums, residual},
		launch: mlx.Launch{
			Outputs: []mlx.Output{y, {Dtype: mlx.Float32, Shape: parts}, squares},
			Grid:    [3]int{blocks * c.t.warps * 32, c.t.splits}, Group: [3]int{c.t.warps * 32},
			Template: append([]mlx.TemplateArg{
				{Name: "K", Value: c.in},
				{Name: "N", Value: c.out},
				{Name: "GW", Value: c.t.groups},
				{Name: "W", Value: c.t.warps},
				{Name: "SPLITS", Value: c.t.splits},
				{Name: "STAGES", Value: c.t.stages},
				{Name: "SPREAD", Value: c.t.spread},
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
	case w.Dense.Valid() && set.fitsDense(w.Dense), w.Quant.W.Valid() && set != nil && set.chained && w.Quant.W.Dim(1)*8%chainColumns == 0 && fitsQ4(w.Quant.W.Dim(1)*8, w.Quant):
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
		t, ok = tileDense(set.gpu, w.Dense.Dim(1), 2*width)
		half = t.tile() / 2
	case set != nil && set.chained && q.W.Valid() && fitsQ4(q.W.Dim(1)*8, q):
		half, ok = 16, q.W.Dim(1)*8%chainColumns == 0
	}
	if ok && width%half == 0 {
		return half
	}
	return 0
}
