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
		set := &Set{owner: s, q4: s.NewKernel(chainSpec(false), nil)}
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
