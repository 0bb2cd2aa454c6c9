package qwen_test

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen"
)

// TestInPlaceOnGPU: on CUDA blocks are written into the buffers that are there,
// recorded or not; what a fork writes its original does not see, and the states are
// those of rows run one by one. GODFLASH_GPU=1 asks for it.
func TestInPlaceOnGPU(t *testing.T) {
	if os.Getenv("GODFLASH_GPU") == "" {
		t.Skip("GODFLASH_GPU=1 runs it, on a machine with a GPU")
	}
	gpu, err := mlx.Open(&mlx.Options{Device: mlx.DeviceGPU})
	require.NoError(t, err)
	defer gpu.Close()
	m, err := qwen.Load(t.Context(), gpu, filepath.Join(pairDir("tiny-qwen3"), "target"), nil)
	require.NoError(t, err)
	defer m.Close()
	run := func(c *qwen.Cache, from, rows, keep int, recorded bool) {
		t.Helper()
		ids := make([]int32, rows)
		for i := range ids {
			ids[i] = int32((from + i) * 7 % 200)
		}
		require.NoError(t, gpu.Do(t.Context(), func(s *mlx.Scope) error {
			out := m.Forward(s, mlx.FromSlice(s, ids), c, &qwen.ForwardOptions{Recorded: recorded})
			if err := s.Err(); err != nil {
				return err
			}
			if err := c.Commit(s, keep); err != nil {
				return err
			}
			return s.Eval(append(c.Arrays(), out.Hidden)...)
		}))
	}
	// look gives the buffers' addresses and the first rows of the keys of a layer.
	look := func(c *qwen.Cache, rows int) (at []unsafe.Pointer, keys []float32) {
		t.Helper()
		require.NoError(t, gpu.Do(t.Context(), func(s *mlx.Scope) error {
			for _, a := range c.Arrays() {
				if a.NDim() == 4 {
					v, err := mlx.ViewSlice[mlx.BF16](a)
					if err != nil {
						return err
					}
					at = append(at, unsafe.Pointer(unsafe.SliceData(v))) // not *BF16, which testify would look behind
				}
			}
			st, err := c.Layer(s, 1)
			if err != nil {
				return err
			}
			keys, err = mlx.ToSlice[float32](s.AsType(s.SliceAxis(st.Keys, 2, 0, rows), mlx.Float32))
			return err
		}))
		return at, keys
	}
	c, single := m.NewCache(), m.NewCache()
	defer c.Close()
	defer single.Close()
	run(c, 0, 20, 20, false)
	run(single, 0, 20, 20, false)
	before, _ := look(c, 20)
	require.NotEmpty(t, before)
	for i := range 6 {
		run(c, 20+9*i, 16, 9, i > 0)
	}
	after, got := look(c, 74)
	require.Equal(t, before, after, "in place")
	for i := range 54 {
		run(single, 20+i, 1, 1, i%2 == 0)
	}
	_, want := look(single, 74)
	for i := range want {
		require.InDelta(t, want[i], got[i], 0.1, "key %d", i)
	}
	var f *qwen.Cache
	require.NoError(t, gpu.Do(t.Context(), func(*mlx.Scope) (err error) {
		f, err = c.Fork()
		return err
	}))
	defer f.Close()
	run(f, 500, 16, 16, true)
	forked, _ := look(f, 74)
	require.NotEqual(t, after, forked, "a fork has buffers of its own once it writes")
	_, again := look(c, 74)
	require.Equal(t, got, again)
	run(c, 900, 16, 16, true)
	_, kept := look(f, 74)
	require.Equal(t, got, kept)
}
