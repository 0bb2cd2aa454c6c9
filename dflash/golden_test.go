package dflash_test

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/mlx"
)

// The ids of transformers, plain and with drafts of every block length, and as
// many tokens a cycle as the independent implementation counted: equal text
// alone cannot see a broken drafter.
func TestReference(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair, func(t *testing.T) {
			e := open(t, pair, dflash.Options{})
			s := newSession(t, e)
			golden := draftGoldens(t, pair)
			perPrompt := map[int]float64{}
			for _, p := range golden.Prompts {
				perPrompt[p.Index] = p.TokensPerCycle
			}
			for _, block := range []int{1, 2, 3, 8, 16} {
				t.Run(fmt.Sprintf("block %d", block), func(t *testing.T) {
					var tokens, cycles int
					for i, ref := range references(t, pair) {
						r := dflash.Request{IDs: ref.Prompt, MaxTokens: 96, BlockSize: block}
						if block == 1 {
							r.BlockSize, r.NoDraft = 0, true
						}
						ids, _ := run(t, s, r)
						require.Equalf(t, ref.Greedy, ids, "prompt %d, margins %v", i, ref.Margins)
						st := s.Stats()
						checkStats(t, st, ids, block)
						tokens, cycles = tokens+len(ids)-1, cycles+st.Cycles
						if want, ok := perPrompt[i]; ok && block == golden.Block {
							require.InEpsilonf(t, want, st.TokensPerCycle(), 0.03, "prompt %d, accepted %v", i, st.AcceptedPerCycle)
						}
					}
					if block == golden.Block {
						require.InEpsilon(t, golden.Mean, float64(tokens)/float64(cycles), 0.03)
					}
				})
			}
		})
	}
}

// checkStats holds for every generation.
func checkStats(t *testing.T, st dflash.Stats, ids []int, block int) {
	t.Helper()
	require.Equal(t, len(ids), st.CompletionTokens)
	require.Len(t, st.AcceptedPerCycle, st.Cycles)
	accepted := 0
	for _, a := range st.AcceptedPerCycle {
		require.GreaterOrEqual(t, a, 0)
		require.Less(t, a, max(block, 1))
		accepted += a
	}
	require.Equal(t, accepted, st.Accepted)
	require.LessOrEqual(t, st.Accepted, st.Drafted)
	require.LessOrEqual(t, st.Accepted, st.CompletionTokens)
	if block == 1 {
		require.Zero(t, st.Drafted)
		require.Equal(t, len(ids)-1, st.Cycles)
	}
}

// The drafts themselves, cycle by cycle, through the level below the session.
func TestGoldenDrafts(t *testing.T) {
	for _, pair := range allPairs {
		t.Run(pair, func(t *testing.T) {
			e := open(t, pair, dflash.Options{})
			refs := references(t, pair)
			golden := draftGoldens(t, pair)
			for _, p := range golden.Prompts {
				d, err := e.NewDecoder()
				require.NoError(t, err)
				anchor, err := d.Prefill(t.Context(), refs[p.Index].Prompt)
				require.NoError(t, err)
				tokens := []int{anchor}
				for i, c := range p.Cycles {
					require.Equal(t, d.Len(), d.ContextLen())
					require.Equal(t, len(refs[p.Index].Prompt)+len(tokens)-1, d.Len())
					drafts, err := d.Propose(t.Context(), golden.Block-1)
					require.NoError(t, err)
					if c.Margin > 1e-3 {
						require.Equalf(t, c.Draft, drafts, "prompt %d, cycle %d", p.Index, i)
					}
					v, err := d.Verify(t.Context(), drafts)
					require.NoError(t, err)
					require.Equalf(t, c.Accepted, v.Accepted, "prompt %d, cycle %d", p.Index, i)
					// The golden's emitted tokens end at an end-of-sequence.
					require.Equal(t, c.Emitted, v.Choices[:min(v.Accepted+1, len(c.Emitted))])
					require.NoError(t, d.Commit(t.Context(), v.Accepted+1))
					tokens = append(tokens, c.Emitted...)
				}
				require.Equal(t, p.Tokens, tokens[:len(p.Tokens)])
				require.NoError(t, d.Close())
			}
		})
	}
}

// The context feature of the golden taps and the drafter's output in the first
// cycle of the whole prompt.
func TestGoldenDrafter(t *testing.T) {
	for _, pair := range allPairs {
		t.Run(pair, func(t *testing.T) {
			e := open(t, pair, dflash.Options{})
			target, drafter := e.Target(), e.Drafter()
			cache, ctx := target.NewCache(), drafter.NewContext()
			defer cache.Close()
			defer ctx.Close()
			require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
				want, about, err := s.LoadSafetensors(filepath.Join(pairDir(pair), "golden-taps.safetensors"))
				require.NoError(t, err)
				index, err := strconv.Atoi(about["prompt_index"])
				require.NoError(t, err)
				ref := references(t, pair)[index]
				ids := make([]int32, len(ref.Prompt))
				for i, id := range ref.Prompt {
					ids[i] = int32(id)
				}
				k := len(drafter.Config().TargetLayerIDs)
				taps := s.Split(s.ExpandDims(want["taps"], 0), k, 2)
				requireClose(t, want["context"], drafter.Features(s, taps))

				_, taps = target.Forward(s, mlx.FromSlice(s, ids), cache, drafter.Config().TargetLayerIDs)
				require.NoError(t, cache.Commit(s, len(ids)))
				require.NoError(t, drafter.Append(s, ctx, taps, len(ids)))
				block := make([]int32, drafter.Config().BlockSize)
				for i := range block {
					block[i] = int32(drafter.Config().MaskTokenID)
				}
				block[0] = int32(ref.Greedy[0])
				x := target.Embed(s, mlx.FromSlice(s, block))
				h := drafter.Propose(s, ctx, s.ExpandDims(x, 0))
				requireClose(t, s.SliceAxis(want["draft_hidden"], 0, 1, len(block)), h)
				require.Equal(t, len(ids), ctx.Len())
				return nil
			}))
		})
	}
}

// requireClose asserts max|got − want| < 1e-4·max|want|.
func requireClose(t *testing.T, want, got mlx.Array) {
	t.Helper()
	w, err := mlx.ToSlice[float32](want)
	require.NoError(t, err)
	g, err := mlx.ToSlice[float32](got)
	require.NoError(t, err)
	require.Len(t, g, len(w))
	var diff, top float64
	for i := range w {
		diff = max(diff, math.Abs(float64(g[i])-float64(w[i])))
		top = max(top, math.Abs(float64(w[i])))
	}
	require.Less(t, diff/top, 1e-4)
}
