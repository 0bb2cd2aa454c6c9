package kernels

import "github.com/godflash/godflash/mlx"

// BlockRows is the most rows that the kernels for blocks take: an anchor and 15
// drafts. More rows go to MLX's own operations.
const BlockRows = 16

func q4Spec() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:    "godflash_q4",
		Inputs:  []string{"x", "w", "scales", "biases"},
		Outputs: []string{"y"},
		// Metal's own product of few rows reads each weight once; CUDA's does not.
		CUDA: mlx.KernelSource{Header: compact(cudaHeader) + compact(q4Macros) + compact(mmaHeader) + compact(q4Header), Source: cudaIndex + compact(q4Text)},
		Fallback: func(s *mlx.Scope, in []mlx.Array, _ mlx.Launch) []mlx.Array {
			return []mlx.Array{s.QuantizedMatMul(in[0], mlx.Quantized{W: in[1], Scales: in[2], Biases: in[3], Options: q4Options}, true)}
		},
	}
}

var q4Options = mlx.QuantizeOptions{Mode: mlx.Affine, GroupSize: 64, Bits: 4}

// manyRows is the number of rows from which a CUDA device multiplies by the
// weights as bfloat16, written out for the occasion: its product of many rows by
// packed weights is several times as slow.
const manyRows = 128

// WritesOut reports whether products of so many rows write weights out: memory
// that the caller bounds, by evaluating a few layers at a time.
func (set *Set) WritesOut(rows int) bool { return set != nil && set.q4 != nil && rows >= manyRows }

// QuantizedMatMul is x·Wᵀ for x [..., in]: for a block of rows by the kernel for
// 4 bits where it is made for the case, else by MLX's operations.
func (set *Set) QuantizedMatMul(s *mlx.Scope, x mlx.Array, q mlx.Quantized) mlx.Array {
	if set == nil || set.q4 == nil || s.Err() != nil {
		return s.QuantizedMatMul(x, q, true)
	}
	shape, dt := x.Shape(), x.Dtype()
	rows := rowsOf(shape)
	switch {
	case set.WritesOut(rows) && q.Options.Mode == mlx.Affine:
		w := s.Dequantize(q, dt)
		t := s.Transpose(w)
		y := s.MatMul(x, t)
		s.Free(w, t) // or the scope would keep the weight until it closes
		return y
	case rows <= BlockRows && len(shape) == 3 && shape[0] == 1 && set.tensorType(dt) && fitsQ4(shape[2], q) && set.tensorType(q.Scales.Dtype()):
		out := q4Call(x, q).run(s, set.q4)
		if len(out) != 1 {
			return mlx.Array{}
		}
		return out[0]
	}
	return s.QuantizedMatMul(x, q, true)
}

// fitsQ4: affine 4 bits in groups of 64, whose rows divide into the groups that a
// warp takes at a time. For one row MLX's operation is as fast, but has other bits
// than a row of a block has.
func fitsQ4(in int, q mlx.Quantized) bool {
	o := q.Options
	return o.Mode == mlx.Affine && (o.Bits == 0 || o.Bits == 4) && (o.GroupSize == 0 || o.GroupSize == 64) && in%128 == 0
}

// tilesQ4 is the number of tiles of 8 outputs in a block.
const tilesQ4 = 2

func q4Call(x mlx.Array, q mlx.Quantized) call {
	n, rows := q.W.Dim(0), x.Dim(1)
	return call{in: []mlx.Array{x, q.W, q.Scales, q.Biases}, launch: mlx.Launch{
		Outputs: []mlx.Output{{Dtype: x.Dtype(), Shape: []int{1, rows, n}}},
		Grid:    [3]int{(n + 8*tilesQ4 - 1) / (8 * tilesQ4) * 256}, Group: [3]int{256},
		Template: q4Template,
	}}
}

var q4Template = []mlx.TemplateArg{{Name: "T", Value: mlx.BFloat16}, {Name: "NT", Value: tilesQ4}, {Name: "CG", Value: 2}}
