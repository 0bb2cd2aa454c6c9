package kernels

import "github.com/godflash/godflash/mlx"

// Chains with weights in bfloat16.

// denseTiling is how a product is divided: denseText's NT and D.
type denseTiling struct{ nt, d int }

// rows is the number of outputs that a block makes.
func (t denseTiling) rows() int { return 8 * t.nt }

// wide says that three blocks share a multiprocessor, because there are so many.
func (t denseTiling) wide() bool { return t == denseWide }

const (
	// denseColumns divides the columns of every map.
	denseColumns = 128
	// denseBlocks is the number of a large GPU's multiprocessors: up to so many
	// blocks each have one for themselves.
	denseBlocks = 132
	// denseMemory is what a block's ring may take, in bytes, and denseWideMemory
	// what it may take where three share a multiprocessor.
	denseMemory, denseWideMemory = 7 * (6*2048 + 512), 3 * (10*2048 + 512)
)

// denseWide is the tiling for more outputs than blocks with a multiprocessor each make.
var denseWide = denseTiling{nt: 8, d: 3}

// tileDense chooses; ok is false where the sizes do not divide. A block has at least
// 32 outputs: with fewer, reading x would be most of the work.
func tileDense(in, out int) (t denseTiling, ok bool) {
	if in%denseColumns != 0 || out%chainRows != 0 {
		return t, false
	}
	for nt := 4; nt <= 8; nt++ {
		if out%(8*nt) == 0 && out/(8*nt) <= denseBlocks {
			return denseTiling{nt: nt, d: denseMemory / ((nt+2)*2048 + 512)}, true
		}
	}
	return denseWide, true
}

// fitsDense says whether a weight [out, in] may be part of a chain.
func (set *Set) fitsDense(w mlx.Array) bool {
	return set != nil && set.dense != nil && set.tensorType(w.Dtype()) && w.Dim(1)%denseColumns == 0
}

// denseProduct is the kernel for a tiling.
func (set *Set) denseProduct(t denseTiling) *mlx.Kernel {
	if t.wide() {
		return set.wide
	}
	return set.dense
}

func denseSpec(wide bool) mlx.KernelSpec {
	name, memory, header := "godflash_dense", denseMemory, denseHeader(2, 256)
	if wide {
		name, memory, header = "godflash_dense_wide", denseWideMemory, denseHeader(3, 128)
	}
	return mlx.KernelSpec{
		Name:    name,
		Inputs:  []string{"x", "w", "norm", "sums", "residual"},
		Outputs: []string{"y", "squares"},
		CUDA: mlx.KernelSource{
			Header: compact(cudaHeader) + compact(q4Macros) + compact(mmaHeader) + compact(attentionMacros) + compact(chainMacros) + compact(copyHeader) + compact(header),
			Source: cudaIndex + compact(denseText),
		},
		SharedMemory: memory,
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
	y, squares := composeAround(s, y, in[4], l, 8*templateInt(l, "NT"), 4*templateInt(l, "NT"))
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
			}, a.template()...),
		},
	}
}
