package kernels

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// Products of many rows by weights written out give the operation's result, and
// leave nothing in the scope but their result.
func TestManyRows(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		set := &Set{owner: s, gpu: largeGPU, q4: s.NewKernel(chainSpec(gpuOf(lib), false), nil)}
		r := newSource(s, 11)
		q := s.Quantize(r.normal(mlx.Float32, 0, 0.05, 40, 256), q4Options)
		x := r.normal(mlx.Float32, 0, 1, 1, manyRows, 256)
		require.True(t, set.WritesOut(manyRows))
		require.False(t, set.WritesOut(manyRows-1))
		before := s.Len()
		y := set.QuantizedMatMul(s, x, q)
		require.Equal(t, before+1, s.Len())
		near(t, s, s.QuantizedMatMul(x, q, true), y, 1e-3, "128 rows")
	})
}

// So do products of many rows sorted by their experts, in any affine scheme; few rows
// for each expert, and rows that are not sorted, go by the operation.
func TestManyRowsOfExperts(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		set := &Set{owner: s, gpu: largeGPU, q4: s.NewKernel(chainSpec(gpuOf(lib), false), nil)}
		const experts = 6
		r := newSource(s, 13)
		q := s.Quantize(r.normal(mlx.Float32, 0, 0.05, experts, 40, 256), mlx.QuantizeOptions{Mode: mlx.Affine, GroupSize: 32, Bits: 8})
		for _, c := range []struct {
			rows        int
			sorted, out bool
		}{{manyEach * experts, true, true}, {manyEach*experts - 1, true, false}, {manyEach * experts, false, false}} {
			ids := make([]int32, c.rows)
			for i := range ids {
				ids[i] = int32(i * i * experts / (c.rows * c.rows)) // of the last expert the fewest
			}
			x, ix := r.normal(mlx.Float32, 0, 1, c.rows, 1, 256), mlx.GatherOptions{RHS: mlx.FromSlice(s, ids), Sorted: c.sorted}
			require.Equal(t, c.out, set.writesExperts(q, ix), c)
			before := s.Len()
			y := set.GatherQMM(s, x, q, ix)
			require.Equal(t, before+1, s.Len())
			near(t, s, s.GatherQMM(x, q, true, mlx.GatherOptions{RHS: ix.RHS}), y, 1e-3, "%v", c)
		}
		other := q
		other.Options.Mode = mlx.MXFP8
		ix := mlx.GatherOptions{RHS: s.Zeros(mlx.Int32, manyEach*experts), Sorted: true}
		require.False(t, set.writesExperts(other, ix))
		require.False(t, stock.writesExperts(q, ix))
	})
}

// Products outside of chains divide long rows as well, with a counter of their own.
func TestLongRows(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		set, r := &Set{owner: s, gpu: largeGPU, q4: s.NewKernel(chainSpec(gpuOf(lib), false), nil), none: s.Zeros(mlx.Float32, 1), composed: true}, newSource(s, 12)
		q := s.Quantize(r.normal(mlx.BFloat16, 0, 0.02, 64, 16384), q4Options)
		c, ok := set.single(s, q)
		require.True(t, ok)
		require.Greater(t, c.t.splits, 1)
		require.Equal(t, c.t.blocks, c.counter.Size())
		require.Zero(t, floats(t, s, s.Max(c.counter, false))[0])
		x := r.normal(mlx.BFloat16, 0, 1, 1, 3, 16384)
		call := c.call(set.none, Stream{X: x}, q, Around{})
		near(t, s, exactQ4(s, call.in, call.launch)[0], set.QuantizedMatMul(s, x, q), 0.02, "3 rows of 16384")
	})
}
