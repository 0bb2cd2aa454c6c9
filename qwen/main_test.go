package qwen_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/godflash/godflash/mlx"
)

// lib is shared by the tests: opening costs nothing, but one worker is enough.
var lib *mlx.Library

func TestMain(m *testing.M) {
	var err error
	if lib, err = mlx.Open(&mlx.Options{Device: mlx.DeviceCPU}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	lib.Close()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// pairs are the embedded models that this package runs.
var pairs = []string{"tiny-qwen3.5", "tiny-qwen3", "tiny-qwen3.5-moe"}

func pairDir(pair string) string { return filepath.Join("..", "testdata", pair) }

func do(t testing.TB, f func(s *mlx.Scope) error) {
	t.Helper()
	require.NoError(t, lib.Do(t.Context(), f))
}

// golden reads a safetensors file of goldens into a scope.
func golden(s *mlx.Scope, pair string) (map[string]mlx.Array, map[string]string, error) {
	return s.LoadSafetensors(filepath.Join(pairDir(pair), "golden-taps.safetensors"))
}
