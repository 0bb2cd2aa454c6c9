package nn_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// lib is the CPU library: the tests assert bits.
var lib *mlx.Library

func TestMain(m *testing.M) {
	var err error
	if lib, err = mlx.Open(&mlx.Options{Device: mlx.DeviceCPU}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	lib.Close()
	os.Exit(code)
}

func do(t testing.TB, f func(s *mlx.Scope)) {
	t.Helper()
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error { f(s); return nil }))
}

func values(t testing.TB, a mlx.Array) []float32 {
	t.Helper()
	v, err := mlx.ToSlice[float32](a)
	require.NoError(t, err)
	return v
}
