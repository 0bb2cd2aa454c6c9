package dflash_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/qwen/chat"
)

// eachTarget opens one engine of each kind of target, with a drafter that guesses at
// random, and prefill in small chunks.
func eachTarget(t *testing.T, o dflash.Options, f func(t *testing.T, e *dflash.Engine)) {
	eachTargetWindow(t, 0, o, f)
}

// eachTargetWindow is eachTarget with a drafter whose first layer has a window.
func eachTargetWindow(t *testing.T, window int, o dflash.Options, f func(t *testing.T, e *dflash.Engine)) {
	o.PrefillChunk = 8
	for name, write := range map[string]func(testing.TB, string, fixture.Options) fixture.Spec{"dense": fixture.Rand, "gated delta": fixture.GDN} {
		t.Run(name, func(t *testing.T) {
			spec := write(t, t.TempDir(), fixture.Options{Seed: 3})
			o := o
			o.Draft = t.TempDir()
			fixture.Draft(t, o.Draft, spec, fixture.DraftOptions{Seed: 4, Window: window})
			f(t, openDir(t, spec.Dir, o))
		})
	}
}

// requireFreshState compares everything that a session's decoder holds with a
// decoder that has seen nothing but the same tokens, bit for bit.
func requireFreshState(t testing.TB, e *dflash.Engine, d *dflash.Decoder, what string) {
	t.Helper()
	require.NoError(t, d.Settle(t.Context()))
	rows := d.Rows()
	require.Len(t, rows, d.Len(), what)
	if len(rows) == 0 {
		return
	}
	fresh, err := dflash.NewDecoder(e.Target(), e.Drafter(), nil) // in one chunk
	require.NoError(t, err)
	defer fresh.Close()
	_, err = fresh.Prefill(t.Context(), rows)
	require.NoError(t, err)
	require.NoError(t, fresh.Settle(t.Context()))
	layers := e.Info().Layers
	requireSameState(t, stateOf(t, fresh, layers), stateOf(t, d, layers), what)
	if e.Drafter() != nil && d.Drafts() && fresh.Drafts() { // a long prompt leaves the drafter no room
		want, err := fresh.DraftRows(t.Context())
		require.NoError(t, err)
		got, err := d.DraftRows(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, got, what)
	}
}

// span is n ids that depend on seed.
func span(seed, n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = (seed*31 + i*i*7 + i*3) % 250
	}
	return ids
}

// fresh generates from ids, plainly, with a sequence of its own.
func fresh(t testing.TB, e *dflash.Engine, ids []int, n int) []int {
	t.Helper()
	d, err := dflash.NewDecoder(e.Target(), nil, nil)
	require.NoError(t, err)
	defer d.Close()
	first, err := d.Prefill(t.Context(), ids)
	require.NoError(t, err)
	out := []int{first}
	for len(out) < n {
		v, err := d.Verify(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, d.Commit(t.Context(), 1))
		out = append(out, v.Choices[0])
	}
	return out
}

// ends are the ways in which a generation of at most 12 tokens ends; each
// returns how many tokens were handed out.
var ends = map[string]func(t *testing.T, e *dflash.Engine, s *dflash.Session, r dflash.Request) (handed int){
	"budget": func(t *testing.T, e *dflash.Engine, s *dflash.Session, r dflash.Request) int {
		ids, _ := run(t, s, r)
		require.Equal(t, dflash.FinishLength, s.Stats().Finish)
		return len(ids)
	},
	"stop id": func(t *testing.T, e *dflash.Engine, s *dflash.Session, r dflash.Request) int {
		text := fresh(t, e, r.IDs, 12)
		for i, id := range text[:len(text)-2] {
			if i > 4 && !slices.Contains(text[:i], id) {
				r.StopIDs = []int{id}
			}
		}
		ids, _ := run(t, s, r)
		require.Equal(t, dflash.FinishStop, s.Stats().Finish)
		return len(ids)
	},
	"break": func(t *testing.T, e *dflash.Engine, s *dflash.Session, r dflash.Request) int {
		n := 0
		for _, err := range s.Generate(t.Context(), r) {
			require.NoError(t, err)
			if n++; n == 7 {
				break
			}
		}
		return n
	},
	"cancelled": func(t *testing.T, e *dflash.Engine, s *dflash.Session, r dflash.Request) int {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := 0
		var last error
		for _, err := range s.Generate(ctx, r) {
			if last = err; err == nil {
				if n++; n == 6 {
					cancel()
				}
			}
		}
		require.ErrorIs(t, last, context.Canceled)
		return n
	},
	"cancelled in the prompt": func(t *testing.T, e *dflash.Engine, s *dflash.Session, r dflash.Request) int {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		before := s.Tokens()
		r.Progress = func(int, int) { cancel() }
		for _, err := range s.Generate(ctx, r) {
			require.ErrorIs(t, err, context.Canceled)
		}
		require.Equal(t, before, s.Tokens())
		return 0
	},
	"failed": func(t *testing.T, e *dflash.Engine, s *dflash.Session, r dflash.Request) int {
		n := 0
		var last error
		for _, err := range s.Generate(t.Context(), r) {
			if last = err; err == nil {
				if n++; n == 5 {
					s.Decoder().FailNext(errPlanted)
				}
			}
		}
		require.ErrorIs(t, last, errPlanted)
		return n
	},
}

// After every kind of end a session goes on as if the whole text were new, to
// the bit, whether cycles are read at once or late.
func TestContinue(t *testing.T) {
	eachTarget(t, dflash.Options{PrefixCacheBytes: -1}, func(t *testing.T, e *dflash.Engine) {
		beginning := fresh(t, e, span(1, 21), 12)
		for name, end := range ends {
			for _, pipelined := range []bool{false, true} {
				what := fmt.Sprintf("%s, pipelined %v", name, pipelined)
				s := newSession(t, e)
				s.SetPipelined(pipelined)
				first := span(1, 21)
				handed := end(t, e, s, dflash.Request{IDs: first, MaxTokens: 12, IgnoreEOS: true, BlockSize: 4})
				text := s.Tokens()
				if handed > 0 {
					require.Equal(t, slices.Concat(first, beginning[:handed]), text, what)
				}
				second := span(2, 10)
				if handed == 0 { // the prompt was not taken
					second = slices.Concat(first, second)
				}
				got, _ := run(t, s, dflash.Request{IDs: second, Continue: true, MaxTokens: 9, IgnoreEOS: true, BlockSize: 4})
				require.Equal(t, fresh(t, e, slices.Concat(text, second), 9), got, what)
				require.Equal(t, slices.Concat(text, second, got), s.Tokens(), what)
				st := s.Stats()
				require.Equal(t, len(text)+len(second), st.PromptTokens, what)
				switch name {
				case "budget":
					require.Equal(t, len(text)-1, st.CachedTokens, what)
				case "stop id", "break", "cancelled":
					require.GreaterOrEqual(t, st.CachedTokens, len(text)-1-2*4, what)
				case "cancelled in the prompt":
					require.Equal(t, 8, st.CachedTokens, what)
				}
				s.SetPipelined(false)
				got, _ = run(t, s, dflash.Request{Continue: true, MaxTokens: 5, IgnoreEOS: true})
				require.Len(t, got, 5)
				requireFreshState(t, e, s.Decoder(), what)
				require.NoError(t, s.Close())
			}
		}
	})
}

// Penalties, noise and log probabilities do not depend on how much of the prompt
// was known.
func TestReuseScores(t *testing.T) {
	eachTarget(t, dflash.Options{}, func(t *testing.T, e *dflash.Engine) {
		collect := func(r dflash.Request) (tokens []dflash.Token, cached int) {
			s := newSession(t, e)
			defer s.Close()
			for token, err := range s.Generate(t.Context(), r) {
				require.NoError(t, err)
				token.Drafted, token.Drafts = false, 0
				tokens = append(tokens, token)
			}
			return tokens, s.Stats().CachedTokens
		}
		r := dflash.Request{
			IDs: span(1, 30), MaxTokens: 10, IgnoreEOS: true, LogProbs: true, TopLogProbs: 3, NoCache: true,
			Sampling:  dflash.Sampling{Temperature: 0.9, Seed: 5},
			Penalties: dflash.Penalties{Repetition: 1.5, Presence: 0.5},
		}
		want, cached := collect(r)
		require.Zero(t, cached)
		r.NoCache = false
		for _, known := range []int{0, 29} {
			got, cached := collect(r)
			require.Equal(t, known, cached)
			require.Equal(t, want, got)
		}
	})
}

// A conversation of turns is the text that the template makes of all of them,
// and each turn takes up the one before.
func TestContinueChat(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair, func(t *testing.T) {
			e := open(t, pair, dflash.Options{})
			s := newSession(t, e)
			no := false
			var messages []chat.Message
			for turn, prompt := range []string{"func Abs(", "for i := range", "return"} {
				before := len(s.Tokens())
				_, text := run(t, s, dflash.Request{Prompt: prompt, Continue: true, MaxTokens: 8, Thinking: &no})
				if turn > 0 {
					require.GreaterOrEqual(t, s.Stats().CachedTokens, before-1)
				}
				whole, err := e.Tokenizer().Decode(s.Tokens())
				require.NoError(t, err)
				messages = append(messages, chat.Message{Role: "user", Content: prompt})
				want, err := e.Template().Render(messages, &chat.Options{AddGenerationPrompt: true, EnableThinking: &no})
				require.NoError(t, err)
				// Templates take the empty thought out of replies that are no longer the last.
				empty := "<think>\n\n</think>\n\n"
				require.Equal(t, strings.ReplaceAll(want, empty, "")+text, strings.TrimSuffix(strings.ReplaceAll(whole, empty, ""), "<|im_end|>"))
				messages = append(messages, chat.Message{Role: "assistant", Content: text})
			}
		})
	}
}

// Case 133: a consumer stops in the middle of an accepted block. The session goes
// on from the token that it saw, to the ids of transformers, and runs no more
// again than the blocks that were not read.
func TestContinueInsideBlock(t *testing.T) {
	for _, pair := range allPairs {
		t.Run(pair, func(t *testing.T) {
			e := open(t, pair, dflash.Options{PrefixCacheBytes: -1})
			ref := references(t, pair)[0]
			for _, pipelined := range []bool{false, true} {
				for _, after := range []int{4, 11} {
					s := newSession(t, e)
					s.SetPipelined(pipelined)
					n := 0
					for _, err := range s.Generate(t.Context(), dflash.Request{IDs: ref.Prompt, BlockSize: 8}) {
						require.NoError(t, err)
						if n++; n == after {
							break
						}
					}
					require.Equal(t, slices.Concat(ref.Prompt, ref.Greedy[:after]), s.Tokens())
					got, _ := run(t, s, dflash.Request{Continue: true, MaxTokens: 20})
					require.Equal(t, ref.Greedy[after:after+20], got, "after %d, pipelined %v", after, pipelined)
					blocks := 8
					if pipelined {
						blocks = 3 * 8
					}
					require.GreaterOrEqual(t, s.Stats().CachedTokens, max(len(ref.Prompt), len(ref.Prompt)+after-blocks), "after %d, pipelined %v", after, pipelined)
					require.Less(t, s.Stats().CachedTokens, len(ref.Prompt)+after)
					requireFreshState(t, e, s.Decoder(), "gone on")
					require.NoError(t, s.Close())
				}
			}
		})
	}
}
