package dflash_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
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

// Layers with a window drop rows, and their buffers then begin and end anywhere:
// passes are replayed over them up to their last row.
func TestRecordedWindow(t *testing.T) {
	const positions = 600
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 1, MaxPositions: positions})
	draft := editDraft(t, spec, fixture.DraftOptions{Seed: 2, Taps: []int{0, 1, 3}}, func(_ tensorMap, config object) {
		config["layer_types"], config["sliding_window"] = []string{sliding, full}, 100
		config["max_position_embeddings"] = positions
	})
	e := openDir(t, spec.Dir, dflash.Options{Draft: draft})
	built, replayed := newSession(t, e), newSession(t, e)
	replayed.SetPipelined(true)
	r := dflash.Request{IDs: []int{1, 2, 3}, MaxTokens: 320, IgnoreEOS: true, BlockSize: 4} // the first buffers end at 256
	want, _ := run(t, built, r)
	got, _ := run(t, replayed, r)
	require.Equal(t, want, got)
	require.Positive(t, replayed.Stats().Drafted)
	rows, err := built.Decoder().DraftRows(t.Context())
	require.NoError(t, err)
	again, err := replayed.Decoder().DraftRows(t.Context())
	require.NoError(t, err)
	require.Equal(t, rows, again)
	require.Positive(t, replayed.RecordedDrafts())
}

// A pass that fails while cycles are in flight is the whole error.
func TestPipelinedFails(t *testing.T) {
	e := open(t, "tiny-qwen3", dflash.Options{})
	ref := references(t, "tiny-qwen3")[0]
	s := newSession(t, e)
	s.SetPipelined(true)
	broken := errors.New("broken")
	n := 0
	for _, err := range s.Generate(t.Context(), dflash.Request{IDs: ref.Prompt, BlockSize: 4}) {
		if n++; err != nil {
			require.ErrorIs(t, err, broken)
			require.NotContains(t, err.Error(), "pending")
			break
		}
		if n == 6 {
			s.Decoder().FailNext(broken)
		}
		require.Less(t, n, 60)
	}
	s.Decoder().FailNext(nil)
	ids, _ := run(t, s, dflash.Request{IDs: ref.Prompt, MaxTokens: 30})
	require.Equal(t, ref.Greedy[:30], ids)
}
