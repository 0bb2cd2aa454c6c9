package mlx_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

func ExampleScope_Post() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		first := s.Post(mlx.FromSlice(s, []int32{1, 2, 3}))
		second := s.Post(s.Add(first.Array, s.Scalar(1, mlx.Int32)))
		if err := s.AsyncEval(first.Array, second.Array); err != nil {
			return err
		}
		got, err := first.Read() // on a GPU the second may still be at work
		fmt.Println(got)
		return err
	})
	// Output: [1 2 3]
}

// Letters come back as they were sent, however many are on their way, read in any
// order, once or twice, by another scope's array.
func TestPost(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		const n = 200 // more than have a place
		x := mlx.FromSlice(s, []int32{7, -1})
		var sent []mlx.Posted
		for range n {
			x = s.Add(x, s.Scalar(1, mlx.Int32))
			p := s.Post(x)
			require.NoError(t, s.AsyncEval(p.Array))
			sent = append(sent, p)
		}
		for _, i := range []int{n - 1, 3, 150, n - 1, 3, 0, 190, 191} {
			got, err := sent[i].Read()
			require.NoError(t, err)
			require.Equal(t, []int32{int32(8 + i), int32(i)}, got)
		}
		long := make([]int32, 2000)
		for i := range long {
			long[i] = int32(i * i)
		}
		for _, want := range [][]int32{{5}, long[:1024], long[:1025], long, {}} {
			p := s.Post(s.Copy(mlx.FromSlice(s, want, len(want))))
			got, err := p.Read()
			require.NoError(t, err)
			require.True(t, slices.Equal(want, got), "%d ints", len(want))
		}
	})
}

func TestPostRefuses(t *testing.T) {
	for name, f := range map[string]func(s *mlx.Scope) mlx.Array{
		"an int32 array": func(s *mlx.Scope) mlx.Array { return s.Zeros(mlx.Float32, 3) },
		"one dimension":  func(s *mlx.Scope) mlx.Array { return s.Zeros(mlx.Int32, 3, 1) },
		"zero Array":     func(*mlx.Scope) mlx.Array { return mlx.Array{} },
	} {
		t.Run(name, func(t *testing.T) {
			err := open(t).Do(t.Context(), func(s *mlx.Scope) error {
				p := s.Post(f(s))
				_, err := p.Read()
				require.Error(t, err)
				return s.Err()
			})
			require.Error(t, err)
		})
	}
}

// Single numbers come from a table on some devices: its ends, and what lies beyond.
func TestSingleNumbers(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		for _, n := range []int32{-1 << 31, -65, -64, -1, 0, 1, 7, 1<<18 - 1, 1 << 18, 1<<31 - 1} {
			v, err := mlx.ToSlice[int32](mlx.FromSlice(s, []int32{n}))
			require.NoError(t, err)
			require.Equal(t, []int32{n}, v)
			x := s.Scalar(float64(n), mlx.Int32)
			require.Empty(t, x.Shape())
			got, err := mlx.Item[int32](x)
			require.NoError(t, err)
			require.Equal(t, n, got)
		}
	})
}

func TestGPU(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		g, ok := s.Library().GPU()
		if s.Library().Device() == mlx.DeviceCPU {
			require.False(t, ok)
			require.Zero(t, g)
			return
		}
		t.Logf("%+v, known %v", g, ok)
		require.Equal(t, ok, g.Multiprocessors > 0 && g.SharedMemory >= 48<<10)
	})
}
