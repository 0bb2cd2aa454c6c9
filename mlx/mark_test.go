package mlx_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

func TestFreeSince(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		one := s.Scalar(1, mlx.Float32)
		s.Free(s.Zeros(mlx.Float32, 3), s.Zeros(mlx.Float32, 3)) // room that is used again
		before := s.Len()
		outer := s.Mark()
		a := s.Add(one, one)
		inner := s.Mark()
		b := s.Mul(s.Add(a, one), a)
		moved := s.Library().NewScope("other")
		defer moved.Close()
		c := moved.Move(s.Add(b, one))
		s.Free(s.Add(b, b))
		s.FreeSince(inner, b)
		require.Equal(t, before+2, s.Len(), "a and b")
		d := s.Add(b, c) // takes the place of something freed
		for _, x := range []struct {
			a    mlx.Array
			want float32
		}{{a, 2}, {b, 6}, {c, 7}, {d, 13}} {
			got, err := mlx.Item[float32](x.a)
			require.NoError(t, err)
			require.Equal(t, x.want, got)
		}
		s.FreeSince(outer, d)
		require.Equal(t, before+1, s.Len())
		require.Panics(t, func() { s.Add(a, one) }, "a freed array")
		require.Panics(t, func() { s.Add(b, one) })
		got, err := mlx.Item[float32](s.Add(d, s.Zeros(mlx.Float32)))
		require.NoError(t, err)
		require.Equal(t, float32(13), got)
		for range 10 { // all the room there was, and more
			one = s.Add(one, d)
		}
		got, err = mlx.Item[float32](one)
		require.NoError(t, err)
		require.Equal(t, float32(131), got)
	})
}

// A long computation holds no more memory than some steps of it.
func TestFreeSinceMemory(t *testing.T) {
	lib := open(t)
	const n = 1 << 17
	peak := func(free bool) int64 {
		require.NoError(t, lib.ResetPeak(t.Context()))
		before, err := lib.Memory(t.Context())
		require.NoError(t, err)
		require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
			m := s.Mark()
			x := s.Ones(mlx.Float32, n)
			for range 100 {
				x = s.Add(x, s.Exp(s.Neg(x)))
			}
			if free {
				s.FreeSince(m, x)
			}
			return s.Eval(x)
		}))
		require.NoError(t, lib.Synchronize(t.Context()))
		after, err := lib.Memory(t.Context())
		require.NoError(t, err)
		return after.Peak - before.Active
	}
	require.GreaterOrEqual(t, peak(false), int64(4*n*200))
	if lib.Device() == mlx.DeviceCPU { // a GPU gives memory back when it is done with it
		require.LessOrEqual(t, peak(true), int64(4*n*50), "what is on its way")
	}
}

func TestFreeSinceRefuses(t *testing.T) {
	err := open(t).Do(t.Context(), func(s *mlx.Scope) error {
		other := s.Library().NewScope("other")
		defer other.Close()
		s.FreeSince(other.Mark())
		return s.Err()
	})
	require.ErrorContains(t, err, "another scope")
}
