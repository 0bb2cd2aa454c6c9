package dflash_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/qwen/chat"
)

// ask generates in a session that has just been made, checks the text and the
// state against a fresh computation, and returns the text and what was reused.
func ask(t testing.TB, e *dflash.Engine, r dflash.Request) (text []int, cached int) {
	t.Helper()
	s := newSession(t, e)
	defer s.Close()
	r.IgnoreEOS = true
	ids, _ := run(t, s, r)
	require.Equal(t, fresh(t, e, r.IDs, len(ids)), ids)
	requireFreshState(t, e, s.Decoder(), "after the end")
	return slices.Concat(r.IDs, ids), s.Stats().CachedTokens
}

// Cases 42, 49, 50, 52, 53, 54: what the engine's cache gives back, for texts
// that begin alike in every way.
func TestPrefixCache(t *testing.T) {
	eachTargetWindow(t, 6, dflash.Options{}, func(t *testing.T, e *dflash.Engine) {
		recurrent := e.Target().Info().Recurrent
		pick := func(dense, hybrid int) int {
			if recurrent {
				return hybrid
			}
			return dense
		}
		system := span(1, 20)
		turn1, cached := ask(t, e, dflash.Request{IDs: slices.Concat(system, span(2, 7)), MaxTokens: 10})
		require.Zero(t, cached)
		require.Len(t, turn1, 37)

		_, cached = ask(t, e, dflash.Request{IDs: turn1[:27], MaxTokens: 3})
		require.Equal(t, 26, cached, "the same prompt: one token is run")

		turn2, cached := ask(t, e, dflash.Request{IDs: slices.Concat(turn1, span(3, 9)), MaxTokens: 5})
		require.Equal(t, 36, cached, "the turn before, but for the token that was never run")

		_, cached = ask(t, e, dflash.Request{IDs: slices.Concat(turn1[:31], span(4, 9)), MaxTokens: 5})
		require.Equal(t, pick(31, 29), cached, "a reply that was changed: back to where a turn ended")

		_, cached = ask(t, e, dflash.Request{IDs: slices.Concat(system, span(5, 9)), MaxTokens: 5})
		require.Equal(t, pick(20, 16), cached, "the same system prompt, a whole number of chunks of it")

		_, cached = ask(t, e, dflash.Request{IDs: slices.Concat(turn2, []int{9}), MaxTokens: 2})
		require.Equal(t, len(turn2)-1, cached)

		_, cached = ask(t, e, dflash.Request{IDs: turn1, MaxTokens: 2, NoCache: true})
		require.Zero(t, cached)
		st := e.CacheStats()
		require.Equal(t, 5, st.Hits)
		require.Equal(t, 1, st.Misses)
		require.Zero(t, st.Evicted)
		require.Positive(t, st.Bytes)

		// A text without the drafter's rows is no use to one that drafts, and is
		// completed by it.
		plain := span(6, 25)
		_, cached = ask(t, e, dflash.Request{IDs: plain, MaxTokens: 2, NoDraft: true})
		require.Zero(t, cached)
		_, cached = ask(t, e, dflash.Request{IDs: plain, MaxTokens: 2, NoDraft: true})
		require.Equal(t, 24, cached)
		_, cached = ask(t, e, dflash.Request{IDs: plain, MaxTokens: 2})
		require.Zero(t, cached)
		_, cached = ask(t, e, dflash.Request{IDs: plain, MaxTokens: 2})
		require.Equal(t, 24, cached)

		// Every entry equals a run of its text.
		tokens := 0
		for _, text := range e.CachedTexts() {
			_, cached := ask(t, e, dflash.Request{IDs: append(text, 7), MaxTokens: 1})
			require.Equal(t, len(text), cached)
			tokens += cached
		}
		require.Greater(t, tokens, 200)
	})
}

// Cycles in flight at the end of a generation do not keep its text from being
// reused.
func TestPrefixCachePipelined(t *testing.T) {
	eachTarget(t, dflash.Options{}, func(t *testing.T, e *dflash.Engine) {
		s := newSession(t, e)
		s.SetPipelined(true)
		prompt := span(1, 20)
		text := fresh(t, e, prompt, 30)
		stop := 20
		for slices.Contains(text[:stop], text[stop]) {
			stop--
		}
		ids, _ := run(t, s, dflash.Request{IDs: prompt, StopIDs: []int{text[stop]}, IgnoreEOS: true, BlockSize: 3})
		require.Equal(t, text[:stop+1], ids)
		known := len(prompt) + len(ids)
		_, cached := ask(t, e, dflash.Request{IDs: slices.Concat(prompt, ids, span(2, 5)), MaxTokens: 4})
		require.LessOrEqual(t, cached, known)
		require.GreaterOrEqual(t, cached, known-3, "at most the last block is run again")
	})
}

// Case 129: 300 sessions with prompts of their own need no more memory than the
// cache may have, and the engine gives all of it back. GODFLASH_LONG=1 allows
// 64 MiB instead of 16, which longer prompts fill.
func TestPrefixCacheLimit(t *testing.T) {
	limit, tokens := int64(16<<20), 80
	if long() {
		limit, tokens = 64<<20, 160
	}
	before := lib.LiveArrays()
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 3, Vocab: 300})
	dir := t.TempDir()
	fixture.Draft(t, dir, spec, fixture.DraftOptions{Seed: 4})
	e := openDir(t, spec.Dir, dflash.Options{Draft: dir, PrefixCacheBytes: limit})
	// MLX may give a small array up to twice the memory that it asks for, from what
	// it keeps for reuse.
	kept, err := lib.SetCacheLimit(t.Context(), 0)
	require.NoError(t, err)
	defer func() {
		_, err := lib.SetCacheLimit(context.Background(), kept)
		require.NoError(t, err)
	}()
	m, err := lib.Memory(t.Context())
	require.NoError(t, err)
	base, arrays := m.Active, lib.LiveArrays()
	for i := range 300 {
		prompt := span(i, tokens)
		prompt[0] = i // no two begin alike
		var st dflash.Stats
		for _, err := range e.Generate(t.Context(), dflash.Request{IDs: prompt, MaxTokens: 2, IgnoreEOS: true}, &st) {
			require.NoError(t, err)
		}
		require.Zero(t, st.CachedTokens)
		if i%50 == 49 {
			m, err := lib.Memory(t.Context())
			require.NoError(t, err)
			stats := e.CacheStats()
			require.LessOrEqual(t, stats.Bytes, limit)
			require.InEpsilon(t, stats.Bytes, m.Active-base, 0.05, "what is counted is what there is")
		}
	}
	st := e.CacheStats()
	require.Positive(t, st.Evicted)
	require.Greater(t, st.Bytes, limit*9/10)
	// Each entry has keys and values of 4 layers of the target and 2 of the drafter.
	require.Equal(t, arrays+int64(12*st.Entries), lib.LiveArrays())
	require.NoError(t, e.Close())
	require.Equal(t, before, lib.LiveArrays())
}

// Cases 53 and 54: clients send the whole conversation each time, and templates
// write thoughts into the reply that is asked for and drop them from those
// before. What is the same up to there is taken up; a hybrid goes back to the
// control token before the reply at most.
func TestWholeConversations(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair, func(t *testing.T) {
			e := open(t, pair, dflash.Options{})
			cold := newSession(t, e)
			thought := "None."
			var texts [][]int // what was run
			for _, thinking := range []bool{true, false} {
				messages := []chat.Message{{Role: "system", Content: fmt.Sprintf("Write Go. Thinking is %v.", thinking)}}
				for turn := range 5 {
					messages = append(messages, chat.Message{Role: "user", Content: fmt.Sprintf("func f%d(", turn)})
					r := dflash.Request{Messages: messages, Thinking: &thinking, MaxTokens: 6, IgnoreEOS: true}
					ids, err := e.PromptIDs(&r)
					require.NoError(t, err)
					var reply []int
					var text string
					var st dflash.Stats
					for token, err := range e.Generate(t.Context(), r, &st) {
						require.NoError(t, err)
						reply, text = append(reply, token.ID), text+token.Text
					}
					shared := 0
					for _, before := range texts {
						n := 0
						for n < min(len(ids)-1, len(before)) && ids[n] == before[n] {
							n++
						}
						shared = max(shared, n)
					}
					if !e.Target().Info().Recurrent {
						require.Equal(t, shared, st.CachedTokens, "turn %d", turn)
					} else if turn > 0 {
						back := shared
						for !e.Tokenizer().IsSpecial(ids[back]) {
							back--
						}
						require.GreaterOrEqual(t, st.CachedTokens, back, "turn %d", turn)
						require.LessOrEqual(t, st.CachedTokens, shared, "turn %d", turn)
						require.Positive(t, back)
					}
					r.NoCache = true
					want, _ := run(t, cold, r)
					require.Equal(t, want, reply)
					texts = append(texts, slices.Concat(ids, reply[:len(reply)-1]))
					messages = append(messages, chat.Message{Role: "assistant", Content: text, ReasoningContent: &thought})
				}
			}
		})
	}
}

// Case 54: a template that opens a thought for the reply and leaves thoughts out
// of earlier ones. The next turn takes up all of the last prompt but its
// beginning of a reply, thinking or not.
func TestThoughtsLeftOut(t *testing.T) {
	spec := fixture.GDN(t, t.TempDir(), fixture.Options{Seed: 3})
	e := fixturePair(t, spec, fixture.DraftOptions{Seed: 4})
	for _, thinking := range []bool{true, false} {
		messages := []chat.Message{{Role: "system", Content: fmt.Sprint(thinking)}}
		before := 0 // of the last prompt, where its reply begins
		for turn := range 4 {
			messages = append(messages, chat.Message{Role: "user", Content: fmt.Sprintf("question %d", turn)})
			r := dflash.Request{Messages: messages, Thinking: &thinking, MaxTokens: 5, IgnoreEOS: true}
			ids, err := e.PromptIDs(&r)
			require.NoError(t, err)
			var reply []int
			var st dflash.Stats
			for token, err := range e.Generate(t.Context(), r, &st) {
				require.NoError(t, err)
				reply = append(reply, token.ID)
			}
			require.Equal(t, fresh(t, e, ids, len(reply)), reply)
			require.GreaterOrEqual(t, st.CachedTokens, before, "turn %d", turn)
			require.Less(t, st.CachedTokens, len(ids)-8)
			for before = len(ids) - 1; ids[before] != fixture.ImStart; before-- {
			}
			messages = append(messages, chat.Message{Role: "assistant", Content: "answer"})
		}
	}
}
