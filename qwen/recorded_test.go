package qwen_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen"
)

// pass is one forward pass and its commit; counted has the count as data.
func pass(t testing.TB, m *qwen.Model, c *qwen.Cache, ids []int32, keep int, counted, recorded bool) (out [][]float32) {
	t.Helper()
	do(t, func(s *mlx.Scope) error {
		length := c.Len()
		made := m.Forward(s, mlx.FromSlice(s, ids), c, &qwen.ForwardOptions{Taps: []int{1, 0}, Recorded: recorded})
		if err := s.Err(); err != nil {
			return err
		}
		var err error
		if counted {
			err = c.CommitArray(s, mlx.FromSlice(s, []int32{int32(keep)}))
		} else {
			err = c.Commit(s, keep)
		}
		if err != nil {
			return err
		}
		arrays := append([]mlx.Array{made.Hidden}, made.Taps...)
		if err := s.Eval(append(c.Arrays(), arrays...)...); err != nil {
			return err
		}
		if counted {
			c.Settle(length+keep, 0)
		}
		for _, a := range arrays {
			v, err := mlx.ToSlice[float32](a)
			if err != nil {
				return err
			}
			out = append(out, v)
		}
		return nil
	})
	return out
}

// Recorded passes and commits have the bits of those that are built, on sequences
// that change in turn, over the growth of their buffers, after Trim, Reset and
// Fork, whatever the rows and the counts.
func TestRecorded(t *testing.T) {
	for name, dir := range map[string]string{
		"dense":       fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 3, MaxPositions: 700}).Dir,
		"gated delta": fixture.GDN(t, t.TempDir(), fixture.Options{Seed: 3, MaxPositions: 700}).Dir,
	} {
		t.Run(name, func(t *testing.T) {
			m := load(t, dir)
			rng := rand.New(rand.NewPCG(4, 2))
			const sequences = 2
			var built, replayed [sequences]*qwen.Cache
			for i := range sequences {
				built[i], replayed[i] = m.NewCache(), m.NewCache()
			}
			same := func(i int) { require.Equal(t, stateOf(t, m, built[i]), stateOf(t, m, replayed[i])) }
			longest := 0
			for round := range 160 {
				i := rng.IntN(sequences)
				rows := []int{1, 4, 16, 16, 16, 1, 5}[rng.IntN(7)]
				if built[i].Len() == 0 {
					rows = 7
				}
				ids := make([]int32, rows)
				for k := range ids {
					ids[k] = int32(rng.IntN(m.Config().VocabSize))
				}
				keep, counted := 1+rng.IntN(rows), rng.IntN(2) == 0
				if !counted && rng.IntN(3) > 0 {
					keep = rows
				}
				what := fmt.Sprintf("round %d: %d of %d rows, counted %v, at %d", round, keep, rows, counted, built[i].Len())
				require.Equal(t, pass(t, m, built[i], ids, keep, counted, false), pass(t, m, replayed[i], ids, keep, counted, true), what)
				longest = max(longest, built[i].Len())
				switch {
				case round%40 == 39:
					do(t, func(*mlx.Scope) error { built[i].Reset(); replayed[i].Reset(); return nil })
				case round%13 == 12:
					do(t, func(*mlx.Scope) error {
						for _, c := range []*[sequences]*qwen.Cache{&built, &replayed} {
							f, err := c[i].Fork()
							if err != nil {
								return err
							}
							old := c[i]
							c[i] = f
							t.Cleanup(func() { require.NoError(t, old.Close()) })
						}
						return nil
					})
				case round%10 == 9:
					same(i)
				}
			}
			for i := range sequences {
				same(i)
				require.NoError(t, built[i].Close())
				require.NoError(t, replayed[i].Close())
			}
			require.Greater(t, longest, 256, "buffers grew")
			require.Greater(t, m.Steps(), 5)
			require.LessOrEqual(t, m.Steps(), 64, "recordings are bounded")
		})
	}
}

// A pass that cannot be built is not recorded, and leaves the cache as it was.
func TestRecordedFails(t *testing.T) {
	models(t, func(t *testing.T, m *qwen.Model) {
		c, want := m.NewCache(), m.NewCache()
		defer c.Close()
		defer want.Close()
		for range 2 {
			pass(t, m, c, prompt[:2], 2, false, true)
			pass(t, m, want, prompt[:2], 2, false, false)
		}
		restore := m.BreakLayer(1)
		for range 3 {
			err := lib.Do(t.Context(), func(s *mlx.Scope) error {
				m.Forward(s, mlx.FromSlice(s, prompt[:2]), c, &qwen.ForwardOptions{Recorded: true})
				return s.Err()
			})
			require.ErrorContains(t, err, "feed-forward without weights")
			require.Zero(t, c.Pending())
		}
		restore()
		for range 3 {
			require.Equal(t, pass(t, m, want, prompt[:2], 2, false, false), pass(t, m, c, prompt[:2], 2, false, true))
		}
		require.Equal(t, stateOf(t, m, want), stateOf(t, m, c))
	})
}

// What a pass wrote in place is on its way before another pass begins, of the same
// sequence or of a fork: no data need lead from one to the other.
func TestLastPassFirst(t *testing.T) {
	models(t, func(t *testing.T, m *qwen.Model) {
		const size = 32 << 20
		for _, forked := range []bool{false, true} {
			c := m.NewCache()
			defer c.Close()
			pass(t, m, c, prompt[:2], 2, false, false)
			require.NoError(t, lib.ResetPeak(t.Context()))
			before, err := lib.Memory(t.Context())
			require.NoError(t, err)
			do(t, func(s *mlx.Scope) error {
				c.SetLast(s.Add(s.Zeros(mlx.Float32, size/4), s.Scalar(1, mlx.Float32)))
				of := c
				if forked {
					var err error
					if of, err = c.Fork(); err != nil {
						return err
					}
					defer of.Close()
				}
				return s.Eval(m.Forward(s, mlx.FromSlice(s, prompt[:2]), of, nil).Hidden)
			})
			after, err := lib.Memory(t.Context())
			require.NoError(t, err)
			require.GreaterOrEqual(t, after.Peak-before.Active, int64(size), "forked %v", forked)
		}
	})
}
