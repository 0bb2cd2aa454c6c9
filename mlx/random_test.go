package mlx_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// Numbers have the right range and mean, and the same key gives the same ones.
func TestRandom(t *testing.T) {
	const n = 4096
	for name, c := range map[string]struct {
		f            func(s *mlx.Scope, key mlx.Array) mlx.Array
		mean, lo, hi float64
	}{
		"uniform": {func(s *mlx.Scope, k mlx.Array) mlx.Array {
			return s.Uniform(k, s.Scalar(-1, mlx.Float32), s.Scalar(3, mlx.Float32), mlx.Float32, n)
		}, 1, -1, 3},
		"normal":  {func(s *mlx.Scope, k mlx.Array) mlx.Array { return s.Normal(k, 2, 0.5, mlx.Float32, n) }, 2, -2, 6},
		"laplace": {func(s *mlx.Scope, k mlx.Array) mlx.Array { return s.Laplace(k, 2, 0.5, mlx.Float32, n) }, 2, -10, 14},
		"gumbel":  {func(s *mlx.Scope, k mlx.Array) mlx.Array { return s.Gumbel(k, mlx.Float32, n) }, 0.5772, -4, 20},
		"integers": {func(s *mlx.Scope, k mlx.Array) mlx.Array {
			return s.RandInt(k, s.Scalar(-2, mlx.Int32), s.Scalar(3, mlx.Int32), mlx.Int32, n)
		}, 0, -2, 2},
		"bernoulli": {func(s *mlx.Scope, k mlx.Array) mlx.Array { return s.Bernoulli(k, s.Scalar(0.25, mlx.Float32), n) }, 0.25, 0, 1},
		"truncated": {func(s *mlx.Scope, k mlx.Array) mlx.Array {
			return s.TruncatedNormal(k, s.Scalar(-1, mlx.Float32), s.Scalar(1, mlx.Float32), mlx.Float32, n)
		}, 0, -1, 1},
		"bits":        {func(s *mlx.Scope, k mlx.Array) mlx.Array { return s.RandomBits(k, mlx.Uint8, n) }, 127.5, 0, 255},
		"permutation": {func(s *mlx.Scope, k mlx.Array) mlx.Array { return s.PermutationN(k, n) }, (n - 1) / 2.0, 0, n - 1},
		"shuffle": {func(s *mlx.Scope, k mlx.Array) mlx.Array {
			return s.Permutation(k, s.Arange(0, n, 1, mlx.Int32), 0)
		}, (n - 1) / 2.0, 0, n - 1},
		"categorical": {func(s *mlx.Scope, k mlx.Array) mlx.Array {
			p := s.Log(f32(s, []int{3}, 0.25, 0.5, 0.25))
			return s.Categorical(k, s.BroadcastTo(p, n, 3), -1)
		}, 1, 0, 2},
		"categorical of a shape": {func(s *mlx.Scope, k mlx.Array) mlx.Array {
			return s.CategoricalShape(k, s.Log(f32(s, []int{3}, 0.25, 0.5, 0.25)), 0, n)
		}, 1, 0, 2},
		"multivariate": {func(s *mlx.Scope, k mlx.Array) mlx.Array {
			return s.SliceAxis(s.MultivariateNormal(k, f32(s, []int{2}, 5, 1), f32(s, []int{2, 2}, 1, 0.5, 0.5, 1), n), 1, 0, 1)
		}, 5, 0, 10},
	} {
		t.Run(name, func(t *testing.T) {
			do(t, func(s *mlx.Scope) {
				if name == "multivariate" && s.Library().Device() != mlx.DeviceCPU {
					t.Skip("it takes a decomposition, which runs on CPUs only")
				}
				keys := s.SplitKey(s.Key(42), 2)
				require.Equal(t, []int{2, 2}, keys.Shape())
				key := func(i int) mlx.Array { return s.Squeeze(s.SliceAxis(keys, 0, i, i+1), 0) }
				one := values(t, s, c.f(s, key(0)))
				require.Len(t, one, n)
				sum := 0.0
				for _, v := range one {
					require.GreaterOrEqual(t, v, c.lo)
					require.LessOrEqual(t, v, c.hi)
					sum += v
				}
				require.InDelta(t, c.mean, sum/n, 0.03*(c.hi-c.lo))
				require.Equal(t, one, values(t, s, c.f(s, key(0))), "the same key")
				require.NotEqual(t, one, values(t, s, c.f(s, key(1))), "another key")
			})
		})
	}
}
