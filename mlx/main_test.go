package mlx_test

import (
	"context"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/godflash/godflash/mlx"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		child(what)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// open gives the library and checks at the end of the test that no array is left.
func open(t testing.TB) *mlx.Library {
	t.Helper()
	lib, err := mlx.Open(nil)
	require.NoError(t, err, "these tests need the MLX library: run make native")
	t.Cleanup(func() {
		require.Zero(t, lib.LiveArrays(), "arrays left")
		require.NoError(t, lib.Close())
	})
	return lib
}

// do runs f on the worker and fails the test on an error.
func do(t testing.TB, f func(s *mlx.Scope)) {
	t.Helper()
	lib := open(t)
	require.NoError(t, lib.Do(context.Background(), func(s *mlx.Scope) error {
		f(s)
		return nil
	}))
}

// values evaluates any array as float64, NaN and infinities included.
func values(t testing.TB, s *mlx.Scope, a mlx.Array) []float64 {
	t.Helper()
	require.NoError(t, s.Err())
	v, err := mlx.ToSlice[float32](s.AsType(a, mlx.Float32))
	require.NoError(t, err)
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}

// near compares within float32 rounding; NaN equals NaN.
func near(t testing.TB, want, got []float64, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	for i := range want {
		switch {
		case math.IsNaN(want[i]):
			require.True(t, math.IsNaN(got[i]), "%s: element %d is %v, want NaN", what, i, got[i])
		case math.IsInf(want[i], 0):
			require.Equal(t, want[i], got[i], "%s: element %d", what, i)
		default:
			require.InDelta(t, want[i], got[i], 2e-6*math.Max(1, math.Abs(want[i])), "%s: element %d of %v", what, i, got)
		}
	}
}

func f32(s *mlx.Scope, shape []int, v ...float32) mlx.Array { return mlx.FromSlice(s, v, shape...) }

func ints(s *mlx.Scope, v ...int32) mlx.Array { return mlx.FromSlice(s, v) }
