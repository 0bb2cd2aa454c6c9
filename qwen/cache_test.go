package qwen_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen"
)

// sequence drives one cache of a model.
type sequence struct {
	t testing.TB
	m *qwen.Model
	c *qwen.Cache
}

func newSequence(t testing.TB, m *qwen.Model) *sequence {
	c := m.NewCache()
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return &sequence{t, m, c}
}

// run forwards ids and commits n of them; it returns the hidden rows.
func (q *sequence) run(ids []int32, n int) (hidden []float32) {
	q.t.Helper()
	do(q.t, func(s *mlx.Scope) error {
		out := q.m.Forward(s, mlx.FromSlice(s, ids), q.c, nil)
		if err := s.Err(); err != nil {
			return err
		}
		if err := q.c.Commit(s, n); err != nil {
			return err
		}
		if err := s.Eval(append(q.c.Arrays(), out.Hidden)...); err != nil {
			return err
		}
		var err error
		hidden, err = mlx.ToSlice[float32](out.Hidden)
		return err
	})
	return hidden
}

func (q *sequence) state() [][]float32 { return stateOf(q.t, q.m, q.c) }

// models are one of each kind.
func models(t *testing.T, run func(t *testing.T, m *qwen.Model)) {
	t.Run("dense", func(t *testing.T) {
		run(t, load(t, fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 3, MaxPositions: 20}).Dir))
	})
	t.Run("gated delta", func(t *testing.T) {
		run(t, load(t, fixture.GDN(t, t.TempDir(), fixture.Options{Seed: 3, MaxPositions: 20}).Dir))
	})
}

func TestCacheStates(t *testing.T) {
	models(t, func(t *testing.T, m *qwen.Model) {
		layers := m.Config().NumHiddenLayers
		q := newSequence(t, m)
		empty := q.state()
		for _, v := range empty {
			require.Nil(t, v, "an empty sequence has no state")
		}
		q.run(prompt, 0)
		require.Zero(t, q.c.Len())
		require.Equal(t, empty, q.state(), "nothing was kept")
		q.run(prompt, 5)
		require.Equal(t, 5, q.c.Len())
		only := newSequence(t, m)
		only.run(prompt[:5], 5)
		require.Equal(t, only.state(), q.state())
		require.Equal(t, only.run(prompt[5:], 2), q.run(prompt[5:], 2))
		require.Equal(t, only.state(), q.state())

		do(t, func(s *mlx.Scope) error {
			for _, layer := range []int{-1, layers} {
				_, err := q.c.Layer(s, layer)
				require.ErrorContains(t, err, "layer")
			}
			for i, kind := range m.Config().LayerTypes {
				st, err := q.c.Layer(s, i)
				require.NoError(t, err)
				c := m.Config()
				if kind == qwen.FullAttention {
					want := []int{1, c.NumKeyValueHeads, 7, c.HeadDim}
					require.Equal(t, want, st.Keys.Shape())
					require.Equal(t, want, st.Values.Shape())
					require.False(t, st.Conv.Valid() || st.Recurrent.Valid())
				} else {
					require.Equal(t, []int{1, 3, 128}, st.Conv.Shape())
					require.Equal(t, []int{1, 4, 16, 16}, st.Recurrent.Shape())
					require.Equal(t, mlx.Float32, st.Recurrent.Dtype())
					require.False(t, st.Keys.Valid() || st.Values.Valid())
				}
			}
			return nil
		})

		do(t, func(*mlx.Scope) error { q.c.Reset(); return nil })
		require.Zero(t, q.c.Len())
		require.Equal(t, empty, q.state())
		q.run(prompt[:5], 5)
		fresh := newSequence(t, m)
		fresh.run(prompt[:5], 5)
		require.Equal(t, fresh.state(), q.state(), "after Reset as after NewCache")
		require.NoError(t, q.c.Close())
		require.NoError(t, q.c.Close())
	})
}

// Every mistake is an error, and the cache stays as it was, to the bit.
func TestCacheMistakes(t *testing.T) {
	models(t, func(t *testing.T, m *qwen.Model) {
		q := newSequence(t, m)
		twin := newSequence(t, m)
		for _, x := range []*sequence{q, twin} {
			x.run(prompt, 6)
		}
		before := q.state()
		arrays := lib.LiveArrays()
		fails := func(f func(s *mlx.Scope) error) error {
			t.Helper()
			err := lib.Do(t.Context(), f)
			require.Error(t, err)
			require.Equal(t, arrays, lib.LiveArrays())
			return err
		}
		forward := func(ids func(s *mlx.Scope) mlx.Array) error {
			return fails(func(s *mlx.Scope) error {
				out := m.Forward(s, ids(s), q.c, nil)
				require.False(t, out.Hidden.Valid())
				require.Error(t, s.Err())
				return nil
			})
		}
		for name, ids := range map[string]func(s *mlx.Scope) mlx.Array{
			"floats":         func(s *mlx.Scope) mlx.Array { return mlx.FromSlice(s, []float32{1, 2}) },
			"two dimensions": func(s *mlx.Scope) mlx.Array { return mlx.FromSlice(s, []int32{1, 2, 3, 4}, 2, 2) },
			"a scalar":       func(s *mlx.Scope) mlx.Array { return s.Scalar(1, mlx.Int32) },
			"none":           func(s *mlx.Scope) mlx.Array { return mlx.FromSlice(s, []int32{}) },
			"zero Array":     func(*mlx.Scope) mlx.Array { return mlx.Array{} },
		} {
			require.Error(t, forward(ids), name)
			require.Zero(t, q.c.Pending(), name)
		}
		err := forward(func(s *mlx.Scope) mlx.Array { return s.Zeros(mlx.Int32, 15) })
		require.ErrorIs(t, err, qwen.ErrContextLength)
		require.ErrorContains(t, err, "6 to 20")
		require.Equal(t, before, q.state())

		err = fails(func(s *mlx.Scope) error { // an error that the scope had before
			s.Fail(qwen.ErrPending)
			require.False(t, m.Forward(s, mlx.Array{}, q.c, nil).Hidden.Valid())
			return q.c.Commit(s, 0)
		})
		require.ErrorIs(t, err, qwen.ErrPending)

		require.ErrorContains(t, fails(func(s *mlx.Scope) error { return q.c.Commit(s, 1) }), "commit")
		require.ErrorContains(t, fails(func(s *mlx.Scope) error { return q.c.Commit(s, -1) }), "commit")
		require.ErrorContains(t, fails(func(s *mlx.Scope) error { return q.c.CommitArray(s, mlx.FromSlice(s, []int32{1})) }), "without a pending block")
		do(t, func(s *mlx.Scope) error { return q.c.Commit(s, 0) })
		require.Equal(t, before, q.state())

		// The same with a block that waits.
		do(t, func(s *mlx.Scope) error {
			out := m.Forward(s, mlx.FromSlice(s, []int32{9, 8, 7}), q.c, nil)
			return s.Eval(append(q.c.Arrays(), out.Hidden)...)
		})
		require.Equal(t, 3, q.c.Pending())
		arrays = lib.LiveArrays()
		require.ErrorIs(t, forward(func(s *mlx.Scope) mlx.Array { return mlx.FromSlice(s, []int32{1}) }), qwen.ErrPending)
		require.ErrorIs(t, fails(func(s *mlx.Scope) error { _, err := q.c.Layer(s, 0); return err }), qwen.ErrPending)
		require.ErrorContains(t, fails(func(s *mlx.Scope) error { return q.c.Commit(s, 4) }), "commit 4 rows of a block of 3")
		require.ErrorContains(t, fails(func(s *mlx.Scope) error { return q.c.Commit(s, -1) }), "commit -1 rows")
		fails(func(s *mlx.Scope) error {
			s.Fail(qwen.ErrConfig)
			return q.c.Commit(s, 2)
		})
		require.Equal(t, 3, q.c.Pending())
		do(t, func(s *mlx.Scope) error { return q.c.Commit(s, 2) })
		twin.run([]int32{9, 8, 7}, 2)
		require.Equal(t, twin.state(), q.state())

		// The last position is usable, nothing after it.
		require.Equal(t, twin.run(make([]int32, 12), 12), q.run(make([]int32, 12), 12))
		require.Equal(t, 20, q.c.Len())
		arrays = lib.LiveArrays()
		require.ErrorIs(t, forward(func(s *mlx.Scope) mlx.Array { return mlx.FromSlice(s, []int32{1}) }), qwen.ErrContextLength)
		require.Equal(t, twin.state(), q.state())
	})
}

// A first pass that fails leaves an empty sequence.
func TestCacheFirstPassFails(t *testing.T) {
	models(t, func(t *testing.T, m *qwen.Model) {
		q := newSequence(t, m)
		require.Error(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
			m.Forward(s, mlx.FromSlice(s, []float32{1}), q.c, nil)
			return nil
		}))
		fresh := newSequence(t, m)
		require.Equal(t, fresh.run(prompt, 3), q.run(prompt, 3))
		require.Equal(t, fresh.state(), q.state())
	})
}

// A count that only the device knows gives the bits of one that the host knows.
func TestCommitArray(t *testing.T) {
	models(t, func(t *testing.T, m *qwen.Model) {
		for n := 1; n <= 3; n++ {
			q, twin := newSequence(t, m), newSequence(t, m)
			for _, x := range []*sequence{q, twin} {
				x.run(prompt, 7)
			}
			do(t, func(s *mlx.Scope) error {
				m.Forward(s, mlx.FromSlice(s, []int32{9, 8, 7}), q.c, nil)
				if err := q.c.CommitArray(s, mlx.FromSlice(s, []int32{int32(n)})); err != nil {
					return err
				}
				return s.Eval(q.c.Arrays()...)
			})
			require.Equal(t, 10, q.c.Len(), "an upper bound")
			require.Error(t, lib.Do(t.Context(), func(s *mlx.Scope) error { _, err := q.c.Layer(s, 0); return err }))
			do(t, func(*mlx.Scope) error { q.c.Settle(7+n, 0); return nil })
			twin.run([]int32{9, 8, 7}, n)
			require.Equal(t, twin.state(), q.state(), "%d", n)
			require.Equal(t, twin.run([]int32{4, 5}, 2), q.run([]int32{4, 5}, 2))
		}
	})
}

// A pass that fails in any of its layers, when those before have written
// already, leaves the cache as it was.
func TestForwardFailsMidway(t *testing.T) {
	models(t, func(t *testing.T, m *qwen.Model) {
		for i := range m.Config().NumHiddenLayers {
			q, twin := newSequence(t, m), newSequence(t, m)
			breaks := func() {
				t.Helper()
				before, arrays := q.state(), lib.LiveArrays()
				restore := m.BreakLayer(i)
				defer restore()
				err := lib.Do(t.Context(), func(s *mlx.Scope) error {
					require.False(t, m.Forward(s, mlx.FromSlice(s, []int32{9, 8, 7}), q.c, nil).Hidden.Valid())
					return nil
				})
				require.ErrorIs(t, err, mlx.ErrZeroArray)
				require.Zero(t, q.c.Pending())
				require.Equal(t, arrays, lib.LiveArrays())
				require.Equal(t, before, q.state())
			}
			breaks()
			require.Equal(t, twin.run(prompt, 6), q.run(prompt, 6), "layer %d", i)
			breaks()
			require.Equal(t, twin.run(prompt, 3), q.run(prompt, 3), "layer %d", i)
			require.Equal(t, twin.state(), q.state())
		}
	})
}
