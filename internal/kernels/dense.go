package kernels

import "github.com/godflash/godflash/mlx"

// Chains with weights in bfloat16.

// denseTiling is how a product is divided: denseText's NT, D and PAIR.
type denseTiling struct {
	nt, d int
	kind  denseKind
}

// denseKind is what tells one kernel from another.
type denseKind int

const (
	denseAlone denseKind = iota // a block has a multiprocessor for itself
	denseWide                   // three blocks share one: there are many tiles
	densePair                   // two blocks make a tile, each has a multiprocessor
)

// tile is the number of outputs that a block makes, or a pair of blocks.
func (t denseTiling) tile() int { return 8 * t.nt }

// rows is the number of outputs that a block finishes.
func (t denseTiling) rows() int {
	if t.kind == densePair {
		return t.tile() / 2
	}
	return t.tile()
}

// ring is the bytes of shared memory that a block's weights, x and norm take.
func (t denseTiling) ring() int { return t.d * ((t.nt+2)*2048 + 512) }

// memory is all the bytes of shared memory that denseText needs.
func (t denseTiling) memory() int {
	if t.kind == densePair {
		return t.ring() + 16*t.rows()*4
	}
	return t.ring()
}

const (
	// denseColumns divides the columns of every map, and of those for pairs twice.
	denseColumns = 128
	// denseBlocks is the number of a large GPU's multiprocessors: up to so many
	// blocks each have one for themselves.
	denseBlocks = 132
)

// wideTiling is for more outputs than those blocks make.
var wideTiling = denseTiling{8, 3, denseWide}

// memory is what a launch of a kind is given: the most that its tilings take, on a
// device that has so much. Of pairs that is more than half of a multiprocessor's:
// launches overlap, and two blocks of one would else lie on the same multiprocessor,
// while others have none.
func (k denseKind) memory(gpu mlx.GPU) int {
	switch k {
	case denseWide:
		return wideTiling.memory()
	case densePair:
		return min(denseTiling{20, 3, densePair}.memory(), gpu.SharedMemory)
	}
	return denseTiling{4, 7, denseAlone}.memory()
}

// tileDense chooses; ok is false where the sizes do not divide. A block alone has at
// least 32 outputs: with fewer, reading x would be most of the work. Those of a pair
// read half of it each.
func tileDense(gpu mlx.GPU, in, out int) (t denseTiling, ok bool) {
	if in%denseColumns != 0 || out%chainRows != 0 {
		return t, false
	}
	kind, most, tiles := denseAlone, 8, denseBlocks
	if gpu.Clusters && in%(2*denseColumns) == 0 {
		kind, most, tiles = densePair, 20, denseBlocks/2
	}
	for nt := 4; nt <= most; nt++ {
		if out%(8*nt) != 0 || out/(8*nt) > tiles {
			continue
		}
		for d := 7; d >= 2; d-- {
			if t := (denseTiling{nt, d, kind}); t.memory() <= kind.memory(gpu) {
				return t, true
			}
		}
	}
	return wideTiling, true
}

// fitsDense says whether a weight [out, in] may be part of a chain.
func (set *Set) fitsDense(w mlx.Array) bool {
	return set != nil && set.dense != nil && set.tensorType(w.Dtype()) && w.Dim(1)%denseColumns == 0
}

// denseKernels are those of all kinds that the device has; nil where there is no text
// for it.
func (set *Set) denseKernels() map[denseKind]*mlx.Kernel {
	all := map[denseKind]*mlx.Kernel{}
	for _, k := range denseKinds(set.gpu) {
		if all[k] = set.kernel(denseSpec(set.gpu, k)); all[k] == nil {
			return nil
		}
	}
	return all
}

// denseKinds are those that a device has.
func denseKinds(gpu mlx.GPU) []denseKind {
	if gpu.Clusters {
		return []denseKind{denseAlone, denseWide, densePair}
	}
	return []denseKind{denseAlone, denseWide}
}

func denseSpec(gpu mlx.GPU, k denseKind) mlx.KernelSpec {
	name, header := "godflash_dense", compact(aloneHeader)+compact(denseHeader(2, 256, false))
	switch k {
	case denseWide:
		name, header = "godflash_dense_wide", compact(aloneHeader)+compact(denseHeader(3, 128, false))
	case densePair:
		name, header = "godflash_dense_pair", compact(pairHeader)+compact(denseHeader(2, 256, true))
	}
	return mlx.KernelSpec{
		Name:    name,
		Inputs:  []string{"x", "w", "norm", "sums", "residual"},
		Outputs: []string{"y", "squares"},
		CUDA: mlx.KernelSource{
			Header: compact(cudaHeader) + compact(q4Macros) + compact(mmaHeader) + compact(attentionMacros) + compact(chainMacros) + compact(copyHeader) + header,
			Source: cudaIndex + compact(denseText),
		},
		SharedMemory: k.memory(gpu),
		Overlaps:     k != denseAlone, // of which two could lie on one multiprocessor
		Fallback:     composeDense,
	}
}

// composeDense is the product in operations.
func composeDense(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
	x, w := in[0], s.AsType(in[1], mlx.Float32)
	if templateBool(l, "NORM") {
		x = normBySums(s, x, in[2], in[3], templateFloat(l, "EPS"))
	}
	y := s.MatMul(s.AsType(x, mlx.Float32), s.Transpose(w))
	half := 4 * templateInt(l, "NT") // of a tile
	rows := 2 * half
	if templateBool(l, "PAIR") {
		rows = half
	}
	y, squares := composeAround(s, y, in[4], l, rows, half)
	return []mlx.Array{y, squares}
}

func (c *Chained) denseCall(none mlx.Array, x Stream, w mlx.Array, a Around) call {
	rows := c.dense.rows()
	norm, sums, residual := a.inputs(none, x)
	y, squares := a.outputs(x.X, c.out, rows)
	return call{
		in: []mlx.Array{x.X, w, norm, sums, residual},
		launch: mlx.Launch{
			Outputs: []mlx.Output{y, squares},
			Grid:    [3]int{c.out / rows * 128}, Group: [3]int{128},
			Template: append([]mlx.TemplateArg{
				{Name: "K", Value: c.in},
				{Name: "N", Value: c.out},
				{Name: "NT", Value: c.dense.nt},
				{Name: "D", Value: c.dense.d},
				{Name: "PAIR", Value: c.dense.kind == densePair},
			}, a.template()...),
		},
	}
}
