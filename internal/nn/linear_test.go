package nn_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/mlx"
)

func TestLinear(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		weight := mlx.FromSlice(s, []float32{1, 2, 3, 4, 5, 6}, 3, 2) // 3 out, 2 in
		x := mlx.FromSlice(s, []float32{1, 10, 0, -1}, 2, 2)
		l := nn.NewLinear(s, weight, mlx.Array{})
		require.Equal(t, []float32{21, 43, 65, -2, -4, -6}, values(t, l.Forward(s, x)))
		require.Equal(t, []float32{5, 6, 1, 2, 5, 6}, values(t, s.Contiguous(l.Rows(s, mlx.FromSlice(s, []int32{2, 0, 2}), mlx.Float32))))
		l = nn.NewLinear(s, weight, mlx.FromSlice(s, []float32{100, 200, 300}))
		require.Equal(t, []float32{121, 243, 365, 98, 196, 294}, values(t, l.Forward(s, x)))
	})
}

func TestRMSNorm(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		n := nn.RMSNorm{Weight: mlx.FromSlice(s, []float32{1, 2}), Eps: 0}
		x := mlx.FromSlice(s, []float32{3, 4}, 1, 2) // root mean square 5/√2
		got := values(t, n.Forward(s, x))
		require.InDeltaSlice(t, []float32{0.848528, 2.262742}, got, 1e-5)
		require.Equal(t, mlx.BFloat16, n.Forward(s, s.AsType(x, mlx.BFloat16)).Dtype())
	})
}

func TestPosition(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		two := mlx.FromSlice(s, []int32{2})
		for _, c := range []struct {
			p     nn.Position
			n     nn.Rows
			bound int
			exact bool
		}{
			{nn.At(5), nn.Rows{N: 3}, 8, true},
			{nn.At(5), nn.Rows{N: 4, Array: two}, 9, false},
			{nn.Position{Bound: 7, Array: mlx.FromSlice(s, []int32{5})}, nn.Rows{N: 2}, 9, false},
			{nn.Position{Bound: 7, Array: mlx.FromSlice(s, []int32{5})}, nn.Rows{N: 4, Array: two}, 11, false},
		} {
			after := c.p.Advance(s, c.n)
			require.Equal(t, c.bound, after.Bound)
			require.Equal(t, c.exact, after.Exact())
			if !c.exact {
				v, err := mlx.Item[int32](s.Reshape(after.Array))
				require.NoError(t, err)
				require.EqualValues(t, 7, v)
			}
		}
		x := s.Reshape(s.Arange(0, 24, 1, mlx.Float32), 1, 1, 3, 8)
		o := mlx.RoPEOptions{Dims: 8, Base: 1e4}
		dynamic := nn.Position{Bound: 99, Array: mlx.FromSlice(s, []int32{37})}
		require.Equal(t, values(t, nn.At(37).RoPE(s, x, o)), values(t, dynamic.RoPE(s, x, o)))
	})
}
