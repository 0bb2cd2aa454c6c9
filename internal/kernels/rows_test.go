package kernels

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// pointwiseTrials: rows shorter than a threadgroup, longer, and not a multiple of it.
func pointwiseTrials(s *mlx.Scope) []trial {
	var out []trial
	r := newSource(s, 1)
	for _, dt := range []mlx.Dtype{mlx.Float32, mlx.BFloat16} {
		tolerance := map[mlx.Dtype]float64{mlx.Float32: 3e-6, mlx.BFloat16: 0.02}[dt]
		for _, h := range []int{96, 1000} {
			x, y, w := r.normal(dt, 0, 1, 1, 3, h), r.normal(dt, 0, 2, 1, 3, h), r.normal(mlx.Float32, 1, 0.3, h)
			out = append(out,
				trial{fmt.Sprintf("add and norm of %d, %v", h, dt), addNormSpec(), addNormCall(x, y, w, 1e-6), tolerance},
				trial{fmt.Sprintf("norm of %d, %v", h, dt), addNormSpec(), addNormCall(x, mlx.Array{}, w, 1e-6), tolerance},
				trial{fmt.Sprintf("swiglu of %d, %v", h, dt), swigluSpec(), swigluCall(x, h/2), tolerance},
				trial{fmt.Sprintf("swiglu of %d by turns, %v", h, dt), swigluSpec(), swigluCall(x, h/4), tolerance})
		}
	}
	return out
}

// q4Trials compare with a float32 product of the weights that the numbers stand
// for: one row and a full block, columns that do not divide into the warps' groups,
// in one part and in two, outputs that end inside a tile, and inside a pair.
func q4Trials(s *mlx.Scope) []trial {
	var out []trial
	r := newSource(s, 2)
	for _, m := range []link{
		newLink(r, 128, 40, tiling{2, 1, 1, 2, 3, true}),
		newLink(r, 896, 40, tiling{4, 4, 1, 1, 3, false}),
		newLink(r, 1408, 24, tiling{4, 3, 2, 2, 3, true}),
		newLink(r, 128, 37, tiling{2, 1, 1, 2, 3, false}),
		newLink(r, 1408, 23, tiling{4, 3, 2, 2, 3, true}),
	} {
		spec := chainSpec(gpuOf(lib), m.t.wide())
		spec.Fallback = exactQ4
		for _, t := range []int{1, 7, 16} {
			call := m.call(s.Zeros(mlx.Float32, 1), Stream{X: r.normal(mlx.BFloat16, 0, 1, 1, t, m.in)}, Around{})
			out = append(out, trial{fmt.Sprintf("4-bit product, %d rows, %d to %d", t, m.in, m.out), spec, call, 0.01})
		}
	}
	return out
}

func exactQ4(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
	f := func(a mlx.Array) mlx.Array { return s.AsType(a, mlx.Float32) }
	w := s.Dequantize(mlx.Quantized{W: in[1], Scales: f(in[2]), Biases: f(in[3]), Options: q4Options}, mlx.Float32)
	y := s.AsType(s.MatMul(f(in[0]), s.Transpose(w)), mlx.BFloat16)
	return []mlx.Array{y, composeChain(s, in, l)[1], s.Zeros(mlx.Float32, nearSize)}
}

// A row of a block's product has the bits of the row alone.
func TestQ4RowByRow(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		r := newSource(s, 3)
		m := newLink(r, 896, 40, tiling{4, 2, 2, 3, 3, true})
		none := s.Zeros(mlx.Float32, 1)
		x := r.normal(mlx.BFloat16, 0, 1, 1, 16, m.in)
		whole := m.call(none, Stream{X: x}, Around{})
		run := runner(t, s, chainSpec(gpuOf(lib), false), whole)
		block := run(whole)[0]
		for i := range 16 {
			row := run(m.call(none, Stream{X: s.Contiguous(s.SliceAxis(x, 1, i, i+1))}, Around{}))[0]
			require.Equal(t, block[i*len(row):(i+1)*len(row)], row, "row %d", i)
		}
	})
}
