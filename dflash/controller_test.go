package dflash_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
)

// Whatever the rows of each cycle, the ids are those of plain decoding, and so
// is the state that they leave: after stretches of plain cycles too, longer and
// shorter than what waits for the drafter.
func TestRandomRows(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair, func(t *testing.T) {
			e := open(t, pair, dflash.Options{})
			plain, s := newSession(t, e), newSession(t, e)
			refs := references(t, pair)
			for seed, i := range []int{0, 9} {
				for _, pipelined := range []bool{false, true} {
					rng := rand.New(rand.NewPCG(uint64(seed), 5))
					left, rows := 0, 0
					s.SetRows(func(limit int) int {
						if left--; left < 0 {
							rows = []int{1, 1, 2, 3, 16}[rng.IntN(5)]
							left = rng.IntN(4)
							if rows == 1 {
								left = rng.IntN(70)
							}
						}
						return min(rows, limit)
					})
					s.SetPipelined(pipelined)
					r := dflash.Request{IDs: refs[i].Prompt, MaxTokens: 100, IgnoreEOS: true, Sampling: dflash.Sampling{Temperature: 0.7 * float64(seed%2), Seed: 3}}
					ids, _ := run(t, s, r)
					st := s.Stats()
					require.Positive(t, st.Drafted)
					require.Positive(t, st.BlockLengths[1])
					require.Equal(t, s.Decoder().Len(), s.Decoder().ContextLen())
					r.NoDraft = true
					want, _ := run(t, plain, r)
					require.Equal(t, want, ids, fmt.Sprintf("prompt %d, pipelined %v", i, pipelined))
					layers := e.Info().Layers
					requireSameState(t, stateOf(t, plain.Decoder(), layers), stateOf(t, s.Decoder(), layers), "after the last token")
				}
			}
		})
	}
}

// Taps that waited give the drafter the context that appending each at once
// gives: the drafts are the same.
func TestWaitingTaps(t *testing.T) {
	for _, pair := range allPairs {
		t.Run(pair, func(t *testing.T) {
			e := open(t, pair, dflash.Options{})
			s := newSession(t, e)
			prompt := references(t, pair)[9].Prompt
			for _, n := range []int{1, 5, 64, 65} {
				s.SetRows(func(int) int { return 1 })
				ids, _ := run(t, s, dflash.Request{IDs: prompt, MaxTokens: n + 1, IgnoreEOS: true})
				require.Zero(t, s.Stats().Drafted)
				got, err := s.Decoder().Propose(t.Context(), 15)
				require.NoError(t, err)

				d, err := e.NewDecoder()
				require.NoError(t, err)
				_, err = d.Prefill(t.Context(), append(append([]int{}, prompt...), ids[:n]...))
				require.NoError(t, err)
				want, err := d.Propose(t.Context(), 15)
				require.NoError(t, err)
				require.Len(t, want, e.Info().BlockSize-1)
				require.Equal(t, want, got, "%d plain tokens", n)
				require.Equal(t, d.ContextLen(), s.Decoder().ContextLen())
				require.NoError(t, d.Close())
			}
		})
	}
}

// A drafter of noise is given up, and Stats say so; one that is always right is
// used.
func TestControllerChooses(t *testing.T) {
	e := open(t, "tiny-qwen3", dflash.Options{})
	refs := references(t, "tiny-qwen3")
	for name, i := range map[string]int{"known": 0, "unknown": 9} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, e)
			ids, _ := run(t, s, dflash.Request{IDs: refs[i].Prompt, MaxTokens: 96})
			require.Equal(t, refs[i].Greedy, ids)
			st := s.Stats()
			checkStats(t, st, ids, e.Info().BlockSize)
			sum, rows := 0, 0
			for length, n := range st.BlockLengths {
				sum += n
				rows += n * (length - 1)
			}
			require.Equal(t, st.Cycles, sum)
			require.Equal(t, st.Drafted, rows)
			accepted := 0
			for k, n := range st.AcceptedByPosition {
				accepted += n
				if k > 0 {
					require.LessOrEqual(t, n, st.AcceptedByPosition[k-1])
				}
			}
			require.Equal(t, st.Accepted, accepted)
			if st.DraftPaused != "" {
				require.True(t, strings.HasPrefix(st.DraftPaused, fmt.Sprintf("%d of %d cycles", st.BlockLengths[1], st.Cycles)), st.DraftPaused)
			}
			require.Empty(t, st.DraftOff)
			require.Positive(t, st.Host)
			require.Positive(t, st.Verify)
			require.Positive(t, st.Commit)
			require.LessOrEqual(t, st.Host+st.Verify+st.Commit, st.Decode)
		})
	}
}

// A length that the request names stays, and is not explained.
func TestFixedRows(t *testing.T) {
	e := open(t, "tiny-qwen3", dflash.Options{})
	s := newSession(t, e)
	ref := references(t, "tiny-qwen3")[9]
	run(t, s, dflash.Request{IDs: ref.Prompt, MaxTokens: 40, IgnoreEOS: true, BlockSize: 2})
	st := s.Stats()
	require.Equal(t, st.Cycles-st.BlockLengths[1], st.BlockLengths[2])
	require.LessOrEqual(t, st.BlockLengths[1], 1) // the last token of the budget
	require.Empty(t, st.DraftPaused)
}
