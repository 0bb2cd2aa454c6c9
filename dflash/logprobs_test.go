package dflash_test

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/mlx"
)

// tokens collects a generation's tokens whole.
func tokens(t testing.TB, s *dflash.Session, r dflash.Request) []dflash.Token {
	t.Helper()
	var out []dflash.Token
	for token, err := range s.Generate(t.Context(), r) {
		require.NoError(t, err)
		out = append(out, token)
	}
	return out
}

func logSoftmax(scores []float64) []float64 {
	most, sum := slices.Max(scores), 0.0
	for _, x := range scores {
		sum += math.Exp(x - most)
	}
	out := make([]float64, len(scores))
	for i, x := range scores {
		out[i] = x - most - math.Log(sum)
	}
	return out
}

// within is the error that float32 allows a log probability.
func within(v float64) float64 { return 2e-7 + 1e-6*math.Abs(v) }

// Case 90: log probabilities of drafted tokens are those of plain decoding, bit
// for bit, and within float32 the logarithm of the softmax of the target's raw
// scores, whatever else was asked for.
func TestLogProbs(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair, func(t *testing.T) {
			e := open(t, pair, dflash.Options{})
			s := newSession(t, e)
			alone := newTargetRun(t, e)
			for i, r := range []dflash.Request{
				{LogProbs: true, TopLogProbs: 5},
				{LogProbs: true, TopLogProbs: 20, Sampling: dflash.Sampling{Temperature: 2, TopK: 10, Seed: 3}, Penalties: dflash.Penalties{Repetition: 1.2}},
				{LogProbs: true, BannedIDs: []int{10}},
				{TopLogProbs: 1},
			} {
				ref := references(t, pair)[3*i]
				r.IDs, r.MaxTokens = ref.Prompt, 24
				r.NoDraft, r.BlockSize = true, 0
				plain := tokens(t, s, r)
				r.NoDraft = false
				for _, pipelined := range []bool{false, true} {
					s.SetPipelined(pipelined)
					r.BlockSize = []int{16, 5, 8, 3}[i]
					drafted := tokens(t, s, r)
					accepted := 0
					for j := range drafted {
						if drafted[j].Drafted {
							accepted++
						}
						drafted[j].Drafted, drafted[j].Drafts = false, 0
					}
					require.Equal(t, s.Stats().Accepted, accepted)
					require.Equal(t, plain, drafted) // floats by ==
				}
				s.SetPipelined(false)
				scores := alone.from(ref.Prompt)
				for j, token := range plain {
					require.Equal(t, len(ref.Prompt)+j, token.Position)
					require.Len(t, token.Top, r.TopLogProbs)
					want := logSoftmax(scores)
					if r.LogProbs {
						require.InDelta(t, want[token.ID], token.LogProb, within(want[token.ID]))
						require.LessOrEqual(t, token.LogProb, 0.0)
					} else {
						require.Zero(t, token.LogProb)
					}
					sum := 0.0
					for k, top := range token.Top {
						require.InDelta(t, want[top.ID], top.LogProb, within(want[top.ID]))
						if k > 0 {
							require.LessOrEqual(t, top.LogProb, token.Top[k-1].LogProb)
						}
						sum += math.Exp(top.LogProb)
					}
					require.LessOrEqual(t, sum, 1+1e-5)
					// No other token is more probable than the last of them.
					slices.Sort(want)
					if n := len(token.Top); n > 0 {
						require.InDelta(t, want[len(want)-n], token.Top[n-1].LogProb, within(want[len(want)-n]))
					}
					scores = alone.after(token.ID)
				}
			}
		})
	}
}

// Tokens that nobody chose, the beginning of a call and the end of a thought,
// have their probabilities too.
func TestLogProbsForced(t *testing.T) {
	e := open(t, "tiny-qwen3.5", dflash.Options{})
	s := newSession(t, e)
	alone := newTargetRun(t, e)
	for _, r := range []dflash.Request{
		{ThinkingBudget: 3, Thinking: new(true)},
		{Tools: scriptTools, ToolChoice: dflash.ToolChoice{Name: "f"}},
	} {
		r.Prompt, r.MaxTokens, r.IgnoreEOS = "Write F.", 16, true
		r.LogProbs, r.TopLogProbs = true, 2
		prompt, err := e.PromptIDs(&r)
		require.NoError(t, err)
		list := tokens(t, s, r)
		require.Greater(t, s.Stats().ForcedTokens, 2)
		scores := alone.from(prompt)
		for _, token := range list {
			want := logSoftmax(scores)
			require.InDelta(t, want[token.ID], token.LogProb, 2e-5)
			require.Len(t, token.Top, 2)
			require.InDelta(t, slices.Max(want), token.Top[0].LogProb, 2e-5)
			scores = alone.after(token.ID)
		}
	}
}

// The goldens are independent software's: all scores after 24 tokens, and the
// margins between the two most probable tokens of a greedy text.
func TestLogProbsGolden(t *testing.T) {
	for _, pair := range allPairs {
		t.Run(pair, func(t *testing.T) {
			var ids []int
			var scores []float64
			require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
				golden, _, err := s.LoadSafetensors(filepath.Join(pairDir(pair), "golden-taps.safetensors"))
				if err != nil {
					return err
				}
				in, err := mlx.ToSlice[int32](s.AsType(golden["ids"], mlx.Int32))
				if err != nil {
					return err
				}
				for _, id := range in {
					ids = append(ids, int(id))
				}
				logits, err := mlx.ToSlice[float32](s.AsType(golden["logits_last"], mlx.Float32))
				for _, x := range logits {
					scores = append(scores, float64(x))
				}
				return err
			}))
			want := logSoftmax(scores)
			s := newSession(t, open(t, pair, dflash.Options{}))
			got := tokens(t, s, dflash.Request{IDs: ids, MaxTokens: 1, LogProbs: true, TopLogProbs: 20})[0]
			require.InDelta(t, want[got.ID], got.LogProb, 2e-4)
			order := make([]int, len(want))
			for i := range order {
				order[i] = i
			}
			slices.SortStableFunc(order, func(a, b int) int { return int(math.Copysign(1, want[b]-want[a])) })
			for i, top := range got.Top {
				require.InDelta(t, want[order[i]], top.LogProb, 2e-4)
				require.InDelta(t, want[top.ID], top.LogProb, 2e-4)
			}

			ref := references(t, pair)[0]
			drafted := 0
			for i, token := range tokens(t, s, dflash.Request{IDs: ref.Prompt, MaxTokens: 40, TopLogProbs: 2, BlockSize: 16}) {
				require.Equal(t, ref.Greedy[i], token.Top[0].ID)
				require.InDelta(t, ref.Margins[i], token.Top[0].LogProb-token.Top[1].LogProb, 1e-3)
				if token.Drafted {
					drafted++
				}
			}
			require.Positive(t, drafted)
		})
	}
}

// Of tokens with exactly the same score the lower ids come first, and are the
// ones that are listed.
func TestTopTies(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 21})
	e := openDir(t, spec.Dir, dflash.Options{})
	best := plainIDs(t, newSession(t, e), []int{72}, 1)[0]
	require.NoError(t, e.Close())
	tie := []int{best}
	for _, twin := range []int{5, 90, 91, 200, 268} {
		if twin != best {
			tie = append(tie, twin)
		}
	}
	row := spec.Hidden * 4
	rewrite(t, spec.Dir, func(name string, data []byte) []byte {
		if name == "lm_head.weight" {
			for _, twin := range tie {
				copy(data[twin*row:(twin+1)*row], data[best*row:(best+1)*row])
			}
		}
		return data
	})
	slices.Sort(tie)
	s := newSession(t, fixturePair(t, spec, fixture.DraftOptions{Seed: 1}))
	for _, n := range []int{1, 3, len(tie), 20} {
		list := tokens(t, s, dflash.Request{IDs: []int{72}, MaxTokens: 8, IgnoreEOS: true, LogProbs: true, TopLogProbs: n})
		var first []int
		for _, top := range list[0].Top[:min(n, len(tie))] {
			first = append(first, top.ID)
			require.Equal(t, list[0].LogProb, top.LogProb)
		}
		require.Equal(t, tie[:len(first)], first)
		for _, token := range list {
			require.Len(t, token.Top, n)
			for i := 1; i < n; i++ {
				a, b := token.Top[i-1], token.Top[i]
				require.True(t, a.LogProb > b.LogProb || a.LogProb == b.LogProb && a.ID < b.ID)
			}
		}
	}
}
