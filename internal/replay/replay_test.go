package replay_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/replay"
	"github.com/godflash/godflash/mlx"
)

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

func TestSteps(t *testing.T) {
	built := map[string]int{}
	steps := replay.New(lib)
	call := func(key string) (recorded bool) {
		require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
			p := steps.Of(key, 1, func(p *replay.Step) mlx.Func {
				return func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
					built[key]++
					p.Layout = key
					return []mlx.Array{s.Add(in[0], in[1])}
				}
			})
			if p == nil {
				return s.Err()
			}
			recorded = true
			for _, x := range []int32{2, 5} {
				out := p.Run(s, []mlx.Array{mlx.FromSlice(s, []int32{x}), mlx.FromSlice(s, []int32{1})})
				require.NoError(t, s.Err())
				v, err := mlx.ToSlice[int32](out[0])
				require.NoError(t, err)
				require.Equal(t, []int32{x + 1}, v)
			}
			require.Equal(t, key, p.Layout)
			return nil
		}))
		return recorded
	}
	for i := range 10 {
		require.Equal(t, i >= 2, call("a"), "use %d", i)
	}
	require.Equal(t, map[string]int{"a": 1}, built)

	require.NoError(t, lib.Do(t.Context(), func(*mlx.Scope) error {
		again := steps.Of("a", 2, func(*replay.Step) mlx.Func { return nil })
		require.NotNil(t, again, "a kind that is known is recorded at once in another size")
		return nil
	}))
	for range 3 { // the ones used least go
		for i := range 80 {
			call(fmt.Sprint(i))
			call("a")
		}
	}
	require.Equal(t, 64, steps.Len())
	require.Equal(t, 1, built["a"])
	for i := range 2000 { // what comes up once is forgotten
		call(fmt.Sprint("once ", i))
	}
	require.Equal(t, 64, steps.Len())

	handles := lib.LiveArrays()
	steps.Close()
	require.Zero(t, steps.Len())
	require.False(t, call("a"), "nothing is recorded after Close")
	require.LessOrEqual(t, lib.LiveArrays(), handles)
	steps.Close()
	require.Nil(t, (*replay.Steps)(nil).Of("a", 0, nil))
}

// A function that fails is the scope's error, every time.
func TestStepFails(t *testing.T) {
	steps := replay.New(lib)
	defer steps.Close()
	for i := range 5 {
		err := lib.Do(t.Context(), func(s *mlx.Scope) error {
			p := steps.Of("bad", 0, func(*replay.Step) mlx.Func {
				return func(s *mlx.Scope, in []mlx.Array) []mlx.Array { return []mlx.Array{s.MatMul(in[0], in[0])} }
			})
			if p != nil {
				p.Run(s, []mlx.Array{s.Zeros(mlx.Float32, 2, 3)})
			}
			return s.Err()
		})
		if i < 2 {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "MatMul")
		}
	}
}
