package qwen_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen"
)

// targets are one of each kind, with room for a second step of capacity.
func targets(t *testing.T, run func(t *testing.T, m *qwen.Model)) {
	for name, write := range map[string]func(testing.TB, string, fixture.Options) fixture.Spec{"dense": fixture.Rand, "gated delta": fixture.GDN} {
		t.Run(name, func(t *testing.T) {
			run(t, load(t, write(t, t.TempDir(), fixture.Options{Seed: 3, MaxPositions: 300}).Dir))
		})
	}
}

func ids(n, seed int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32((i*i*3 + seed*7 + i) % 250)
	}
	return out
}

// A fork and what it was made from write into one buffer at first, and into the
// same rows of it. Neither sees the other's: MLX writes in place only where
// nobody else holds the buffer.
func TestForkIsIndependent(t *testing.T) {
	targets(t, func(t *testing.T, m *qwen.Model) {
		arrays := lib.LiveArrays()
		a := newSequence(t, m)
		a.run(ids(40, 1), 40)
		forks := []*sequence{a}
		for range 2 {
			var c *qwen.Cache
			do(t, func(*mlx.Scope) (err error) { c, err = a.c.Fork(); return err })
			forks = append(forks, &sequence{t, m, c})
		}
		want := a.state()
		for i, f := range forks {
			require.Equal(t, want, f.state())
			f.run(ids(9, 10+i), 9)
		}
		for i, f := range forks {
			f.run(ids(5, 20+i), 3)
		}
		for i, f := range forks {
			alone := newSequence(t, m)
			alone.run(ids(40, 1), 40)
			alone.run(ids(9, 10+i), 9)
			alone.run(ids(5, 20+i), 3)
			require.Equalf(t, alone.state(), f.state(), "fork %d", i)
			require.NoError(t, alone.c.Close())
		}
		require.NoError(t, forks[0].c.Close())
		forks[1].run(ids(250-52, 3), 250-52)
		forks[1].run(ids(40, 4), 40) // the buffer grows
		alone := newSequence(t, m)
		alone.run(ids(40, 1), 40)
		alone.run(ids(9, 11), 9)
		alone.run(ids(5, 21), 3)
		alone.run(ids(250-52, 3), 250-52)
		alone.run(ids(40, 4), 40)
		require.Equal(t, alone.state(), forks[1].state())
		for _, f := range append(forks, alone) {
			require.NoError(t, f.c.Close())
		}
		require.Equal(t, arrays, lib.LiveArrays())
	})
}

// Going back, and being made from rows in parts, give what a run of those tokens
// alone gives.
func TestTrimAndRestore(t *testing.T) {
	targets(t, func(t *testing.T, m *qwen.Model) {
		recurrent := m.Config().LayerTypes[0] != qwen.FullAttention
		a := newSequence(t, m)
		keep := lib.NewScope("states")
		defer keep.Close()
		text := ids(30, 1)
		a.run(text[:12], 12)
		var states []mlx.Array
		do(t, func(*mlx.Scope) error { states = a.c.States(keep); return nil })
		at12 := a.state()
		a.run(text[12:], 18)
		at30 := a.state()
		arrays := lib.LiveArrays()
		do(t, func(s *mlx.Scope) error {
			require.Error(t, a.c.Trim(-1, nil))
			require.Error(t, a.c.Trim(31, nil))
			require.NoError(t, a.c.Trim(30, nil))
			if recurrent {
				require.ErrorContains(t, a.c.Trim(12, nil), "0 recurrent states")
				require.ErrorContains(t, a.c.Trim(12, states[:2]), "2 recurrent states")
				swapped := append([]mlx.Array{states[1], states[0]}, states[2:]...)
				require.ErrorContains(t, a.c.Trim(12, swapped), "expected")
			} else {
				require.Empty(t, states)
				require.Error(t, a.c.Trim(12, []mlx.Array{s.Zeros(mlx.Float32, 1)}))
			}
			return nil
		})
		require.Equal(t, at30, a.state())

		b := newSequence(t, m)
		do(t, func(s *mlx.Scope) error {
			parts := [][]mlx.Array{a.c.Rows(s, 0, 5), a.c.Rows(s, 5, 6), a.c.Rows(s, 6, 12)}
			require.ErrorContains(t, b.c.Restore(s, 13, parts, states), "12 rows")
			require.ErrorContains(t, b.c.Restore(s, 12, [][]mlx.Array{parts[0], parts[1][1:], parts[2]}, states), "arrays")
			require.ErrorContains(t, b.c.Restore(s, 12, [][]mlx.Array{append(parts[0][:1:1], parts[1][1:]...)}, states), "expected")
			require.ErrorIs(t, b.c.Restore(s, 301, parts, states), qwen.ErrContextLength)
			require.Zero(t, b.c.Len())
			require.NoError(t, b.c.Restore(s, 12, parts, states))
			return s.Eval(b.c.Arrays()...)
		})
		require.Equal(t, at12, b.state())
		do(t, func(*mlx.Scope) error { return a.c.Trim(12, states) })
		require.Equal(t, at12, a.state())
		for _, q := range []*sequence{a, b} {
			q.run(text[12:], 18)
			require.Equal(t, at30, q.state())
		}
		do(t, func(*mlx.Scope) error { return b.c.Trim(0, nil) })
		require.Zero(t, b.c.Len())
		require.NoError(t, b.c.Close())
		require.Equal(t, arrays, lib.LiveArrays())

		// A pending block is no past.
		do(t, func(s *mlx.Scope) error {
			m.Forward(s, mlx.FromSlice(s, text[:2]), a.c, nil)
			_, err := a.c.Fork()
			require.ErrorIs(t, err, qwen.ErrPending)
			require.ErrorIs(t, a.c.Trim(3, nil), qwen.ErrPending)
			return a.c.Commit(s, 0)
		})
		for _, r := range [][2]int{{4, 4}, {-1, 4}, {4, 31}} {
			require.ErrorContains(t, lib.Do(t.Context(), func(s *mlx.Scope) error { a.c.Rows(s, r[0], r[1]); return nil }), "rows")
		}
	})
}
