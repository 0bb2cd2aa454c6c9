package kernels

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

func TestNear(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		for _, x := range []mlx.Array{mlx.FromSlice(s, []int32{7}), s.Scalar(7, mlx.Int32)} {
			for _, y := range []mlx.Array{Near(s, x), widen(s, x)} {
				got, err := mlx.ToSlice[int32](y)
				require.NoError(t, err)
				require.Equal(t, []int32{7}, got)
			}
			require.Equal(t, []int{1}, widen(s, x).Shape())
		}
	})
}
