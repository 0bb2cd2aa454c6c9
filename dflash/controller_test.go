package dflash_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
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

// With the controller the ids are those of the reference, and Stats say what it
// did. Two sessions may use it at a time.
func TestController(t *testing.T) {
	e := open(t, "tiny-qwen3", dflash.Options{})
	refs := references(t, "tiny-qwen3")
	var group sync.WaitGroup
	for _, pipelined := range []bool{false, true} {
		s := newSession(t, e)
		s.SetPipelined(pipelined)
		group.Go(func() {
			for _, i := range []int{0, 9} {
				ids, err := collect(s.Generate(t.Context(), dflash.Request{IDs: refs[i].Prompt, MaxTokens: 96}))
				if !assert.NoError(t, err) || !assert.Equal(t, refs[i].Greedy, ids) {
					return
				}
				st := s.Stats()
				sum, drafted, accepted := 0, 0, 0
				for length, n := range st.BlockLengths {
					sum += n
					drafted += n * (length - 1)
				}
				for k, n := range st.AcceptedByPosition {
					accepted += n
					assert.LessOrEqual(t, n, st.AcceptedByPosition[max(k-1, 0)])
				}
				assert.Equal(t, []int{st.Cycles, st.Drafted, st.Accepted}, []int{sum, drafted, accepted})
				assert.Empty(t, st.DraftOff)
				if st.DraftPaused != "" {
					assert.Contains(t, st.DraftPaused, fmt.Sprintf("%d of %d cycles plain", st.BlockLengths[1], st.Cycles))
				}
				assert.Positive(t, st.Host)
				assert.Positive(t, st.Verify)
				assert.LessOrEqual(t, st.Host+st.Verify+st.Commit, st.Decode)
			}
		})
	}
	group.Wait()
}

// A new engine begins with the checkpoint's block, twice because the first may be cold,
// and also after a request too short for one. The next session knows what those before
// it have seen.
func TestControllerBegins(t *testing.T) {
	for _, short := range []bool{false, true} {
		e := open(t, "tiny-qwen3", dflash.Options{BlockSize: 8})
		ref := references(t, "tiny-qwen3")[0]
		if short {
			run(t, newSession(t, e), dflash.Request{IDs: ref.Prompt, MaxTokens: 2, NoCache: true})
		}
		begin := func() map[int]int {
			s := newSession(t, e)
			n := 0
			for _, err := range s.Generate(t.Context(), dflash.Request{IDs: ref.Prompt, MaxTokens: 96, NoCache: true}) {
				require.NoError(t, err)
				if n++; n == 2 {
					break // after the first cycle
				}
			}
			return s.Stats().BlockLengths
		}
		require.Equal(t, map[int]int{8: 1}, begin())
		require.Equal(t, map[int]int{8: 1}, begin())
		if !short {
			require.Equal(t, map[int]int{1: 1}, begin(), "what a plain step costs is not known yet")
		}
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

func collect(tokens iter.Seq2[dflash.Token, error]) (ids []int, err error) {
	for token, err := range tokens {
		if err != nil {
			return ids, err
		}
		ids = append(ids, token.ID)
	}
	return ids, nil
}
