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

// QuantizedMatMul is x·Wᵀ for x [..., in]: by the kernel for 4 bits where it is
// made for the case, else by MLX's operation.
func (set *Set) QuantizedMatMul(s *mlx.Scope, x mlx.Array, q mlx.Quantized) mlx.Array {
	if set == nil || set.q4 == nil || !fitsQ4(x, q) {
		return s.QuantizedMatMul(x, q, true)
	}
	out := q4Call(x, q).run(s, set.q4)
	if len(out) != 1 {
		return mlx.Array{}
	}
	return out[0]
}

// fitsQ4: a block of bfloat16 rows [1, T, in], and weights in affine 4 bits whose
// rows divide into the groups that a warp takes at a time.
func fitsQ4(x mlx.Array, q mlx.Quantized) bool {
	o := q.Options
	return x.NDim() == 3 && x.Dim(0) == 1 && x.Dim(1) <= BlockRows && x.Dtype() == mlx.BFloat16 && q.Scales.Dtype() == mlx.BFloat16 &&
		o.Mode == mlx.Affine && (o.Bits == 0 || o.Bits == 4) && (o.GroupSize == 0 || o.GroupSize == 64) &&
		x.Dim(2)%256 == 0 && q.W.NDim() == 2
}

func q4Call(x mlx.Array, q mlx.Quantized) call {
	n := q.W.Dim(0)
	tiles := 4
	if n >= wideQ4 {
		tiles = 8
	}
	return call{[]mlx.Array{x, q.W, q.Scales, q.Biases}, mlx.Launch{
		Outputs: []mlx.Output{{Dtype: x.Dtype(), Shape: []int{1, x.Dim(1), n}}},
		Grid:    [3]int{(n + 8*tiles - 1) / (8 * tiles) * 256}, Group: [3]int{256},
		Template: []mlx.TemplateArg{{Name: "T", Value: x.Dtype()}, {Name: "NT", Value: tiles}, {Name: "CG", Value: 16 / tiles}},
	}}
}

// wideQ4 is the number of outputs from which a block takes 64 rows of W and not
// 32: there are enough blocks then, and x is read half as often.
const wideQ4 = 16384
