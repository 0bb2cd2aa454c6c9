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
