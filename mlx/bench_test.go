package mlx_test

import (
	"testing"

	"github.com/godflash/godflash/mlx"

	"github.com/stretchr/testify/require"
)

// One operation with its Free: handles, checks, two cgo calls, MLX's own node.
func BenchmarkAddFree(b *testing.B) {
	benchmark(b, func(s *mlx.Scope, n int) {
		x := s.Scalar(1, mlx.Float32)
		for range n {
			s.Free(s.Add(x, x))
		}
	})
}

// Operations freed in bulk with their scope, as in a decode step.
func BenchmarkAddScope(b *testing.B) {
	lib, err := mlx.Open(nil)
	require.NoError(b, err)
	defer lib.Close()
	b.ReportAllocs()
	b.ResetTimer()
	for n := b.N; n > 0; n -= 1000 {
		err := lib.Do(b.Context(), func(s *mlx.Scope) error {
			x := s.Scalar(1, mlx.Float32)
			for range min(n, 1000) {
				s.Add(x, x)
			}
			return nil
		})
		require.NoError(b, err)
	}
}

// A hop to the worker and back.
func BenchmarkDo(b *testing.B) {
	lib, err := mlx.Open(nil)
	require.NoError(b, err)
	defer lib.Close()
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, lib.Do(b.Context(), func(*mlx.Scope) error { return nil }))
	}
}

func BenchmarkDim(b *testing.B) {
	benchmark(b, func(s *mlx.Scope, n int) {
		x := s.Zeros(mlx.Float32, 2, 3)
		for range n {
			x.Dim(-1)
		}
	})
}

func BenchmarkReshape(b *testing.B) {
	benchmark(b, func(s *mlx.Scope, n int) {
		x := s.Zeros(mlx.Float32, 2, 3, 4)
		for range n {
			s.Free(s.Reshape(x, 6, 4))
		}
	})
}

func benchmark(b *testing.B, f func(s *mlx.Scope, n int)) {
	lib, err := mlx.Open(nil)
	require.NoError(b, err)
	defer lib.Close()
	b.ReportAllocs()
	err = lib.Do(b.Context(), func(s *mlx.Scope) error {
		b.ResetTimer()
		f(s, b.N)
		return nil
	})
	require.NoError(b, err)
}
