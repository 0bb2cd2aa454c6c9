package qwen_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen"
)

// A pass announced as a whole leaves the same state, is kept or given back whole,
// and the announcement counts for one pass that was built.
func TestWhole(t *testing.T) {
	models(t, func(t *testing.T, m *qwen.Model) {
		want, q := newSequence(t, m), newSequence(t, m)
		want.run(prompt[:7], 7)
		q.c.Whole()
		q.run(prompt[:7], 7)
		require.Equal(t, want.state(), q.state())

		q.c.Whole()
		do(t, func(s *mlx.Scope) error {
			q.m.Forward(s, mlx.FromSlice(s, prompt[:4]), q.c, nil)
			require.NoError(t, s.Err())
			require.ErrorContains(t, q.c.Commit(s, 3), "as a whole")
			require.ErrorContains(t, q.c.CommitArray(s, mlx.FromSlice(s, []int32{4})), "as a whole")
			return q.c.Commit(s, 0)
		})
		require.Equal(t, want.state(), q.state(), "given back")

		q.c.Whole()
		err := lib.Do(t.Context(), func(s *mlx.Scope) error {
			q.m.Forward(s, mlx.FromSlice(s, make([]int32, 100)), q.c, nil)
			return s.Err()
		})
		require.ErrorIs(t, err, qwen.ErrContextLength)
		want.run(prompt[:6], 2)
		q.run(prompt[:6], 2) // a part: nothing is announced any more
		require.Equal(t, want.state(), q.state())
		require.Equal(t, want.run(prompt[:3], 3), q.run(prompt[:3], 3))
	})
}
