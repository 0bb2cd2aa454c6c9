package dflash_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
)

// With the state on the device and a cycle in flight the ids are the same, and
// so is the acceptance, up to the blocks that the end of the budget cuts.
func TestPipelined(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair, func(t *testing.T) {
			e := open(t, pair, dflash.Options{})
			s := newSession(t, e)
			s.SetPipelined(true)
			waiting := newSession(t, e)
			refs := references(t, pair)
			for _, i := range []int{7, 9} {
				for _, block := range []int{1, 3, 16} {
					r := dflash.Request{IDs: refs[i].Prompt, MaxTokens: 96, BlockSize: block}
					if block == 1 {
						r.BlockSize, r.NoDraft = 0, true
					}
					ids, _ := run(t, s, r)
					require.Equalf(t, refs[i].Greedy, ids, "prompt %d, block %d", i, block)
					checkStats(t, s.Stats(), ids, block)
					if block == 16 {
						run(t, waiting, r)
						require.InDelta(t, waiting.Stats().Cycles, s.Stats().Cycles, 1.01)
					}
				}
			}
			require.Positive(t, s.RecordedDrafts())
		})
	}
}

// Budgets end exactly while cycles are in flight.
func TestPipelinedBudget(t *testing.T) {
	e := open(t, "tiny-qwen3", dflash.Options{})
	ref := references(t, "tiny-qwen3")[0]
	s := newSession(t, e)
	s.SetPipelined(true)
	for limit := 1; limit <= 40; limit += 3 {
		for _, block := range []int{2, 4, 16} {
			ids, _ := run(t, s, dflash.Request{IDs: ref.Prompt, MaxTokens: limit, BlockSize: block})
			require.Equal(t, ref.Greedy[:limit], ids, fmt.Sprintf("limit %d, block %d", limit, block))
			require.Equal(t, dflash.FinishLength, s.Stats().Finish)
		}
	}
}

// A consumer that breaks off leaves cycles in flight; the next generation does
// not see them.
func TestPipelinedBreak(t *testing.T) {
	e := open(t, "tiny-qwen3.5", dflash.Options{})
	refs := references(t, "tiny-qwen3.5")
	s := newSession(t, e)
	s.SetPipelined(true)
	for after := 1; after < 24; after += 7 {
		n := 0
		for _, err := range s.Generate(t.Context(), dflash.Request{IDs: refs[11].Prompt, BlockSize: 4}) {
			require.NoError(t, err)
			if n++; n == after {
				break
			}
		}
		if after > 1 {
			require.NotZero(t, s.InFlight())
		}
		ids, _ := run(t, s, dflash.Request{IDs: refs[2].Prompt, MaxTokens: 96})
		require.Equal(t, refs[2].Greedy, ids)
	}
}
