package dflash_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
)

// plainIDs is n tokens of plain greedy decoding, through every end of sequence.
func plainIDs(t testing.TB, s *dflash.Session, prompt []int, n int) []int {
	t.Helper()
	ids, _ := run(t, s, dflash.Request{IDs: prompt, MaxTokens: n, IgnoreEOS: true, NoDraft: true})
	require.Len(t, ids, n)
	return ids
}

// Case 13, 14: exactly as many tokens as asked for, whatever the block; the
// cache holds the prompt and all of them but the newest.
func TestMaxTokens(t *testing.T) {
	e := open(t, "tiny-qwen3", dflash.Options{})
	s := newSession(t, e)
	for _, i := range []int{0, 11} { // nearly all accepted, nearly none
		ref := references(t, "tiny-qwen3")[i]
		for limit := 1; limit <= 20; limit++ {
			for _, block := range []int{2, 8, 16} {
				ids, _ := run(t, s, dflash.Request{IDs: ref.Prompt, MaxTokens: limit, BlockSize: block})
				require.Equal(t, ref.Greedy[:limit], ids)
				st := s.Stats()
				require.Equal(t, dflash.FinishLength, st.Finish)
				require.Equal(t, len(ref.Prompt)+limit-1, s.Decoder().Len())
				require.Equal(t, s.Decoder().Len(), s.Decoder().ContextLen())
				checkStats(t, st, ids, block)
			}
		}
	}
}

// Case 12: an end-of-sequence anywhere in an accepted run cuts text, ids,
// counts and cache.
func TestStopInsideBlock(t *testing.T) {
	e := open(t, "tiny-qwen3", dflash.Options{})
	s := newSession(t, e)
	ref := references(t, "tiny-qwen3")[0]
	for p, id := range ref.Greedy[:40] {
		if slices.Contains(ref.Greedy[:p], id) {
			continue
		}
		for _, block := range []int{8, 16} {
			ids, text := run(t, s, dflash.Request{IDs: ref.Prompt, StopIDs: []int{id}, BlockSize: block})
			require.Equal(t, ref.Greedy[:p+1], ids)
			want, err := e.Tokenizer().Decode(ids[:p])
			require.NoError(t, err)
			require.Equal(t, want, text)
			st := s.Stats()
			require.Equal(t, dflash.FinishStop, st.Finish)
			require.Equal(t, len(ref.Prompt)+p, s.Decoder().Len())
			checkStats(t, st, ids, block)
		}
	}
}

// Case 17: a reply of one token has sane numbers.
func TestOneToken(t *testing.T) {
	e := open(t, "tiny-qwen3", dflash.Options{})
	s := newSession(t, e)
	ref := references(t, "tiny-qwen3")[0]
	ids, _ := run(t, s, dflash.Request{IDs: ref.Prompt, StopIDs: ref.Greedy[:1]})
	require.Equal(t, ref.Greedy[:1], ids)
	st := s.Stats()
	require.Zero(t, st.Cycles)
	require.Zero(t, st.TokensPerCycle())
	require.Zero(t, st.TokensPerSecond())
	require.Equal(t, dflash.FinishStop, st.Finish)
	require.Positive(t, st.PeakBytes)
}

// Case 1 and 8: prompts of every length, in one chunk or many, give the same
// state bit for bit and the same text.
func TestPrefillChunks(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair, func(t *testing.T) {
			text := slices.Concat(references(t, pair)[7].Prompt, references(t, pair)[9].Prompt)
			whole := open(t, pair, dflash.Options{})
			s := newSession(t, whole)
			for chunk, lengths := range map[int][]int{1: {1, 2, 5}, 16: {3, 16, 17, 65}, 64: {63, 64, 65}} {
				e := open(t, pair, dflash.Options{PrefillChunk: chunk})
				for _, n := range lengths {
					a, err := whole.NewDecoder()
					require.NoError(t, err)
					b, err := e.NewDecoder()
					require.NoError(t, err)
					x, err := a.Prefill(t.Context(), text[:n])
					require.NoError(t, err)
					y, err := b.Prefill(t.Context(), text[:n])
					require.NoError(t, err)
					require.Equal(t, x, y)
					require.Equal(t, n, b.ContextLen())
					layers := e.Info().Layers
					requireSameState(t, stateOf(t, a, layers), stateOf(t, b, layers), fmt.Sprintf("chunk %d, %d tokens", chunk, n))
					require.NoError(t, errors.Join(a.Close(), b.Close()))

					r := dflash.Request{IDs: text[:n], MaxTokens: 12, IgnoreEOS: true}
					got, _ := run(t, newSession(t, e), r)
					require.Equal(t, plainIDs(t, s, text[:n], 12), got)
				}
			}
		})
	}
}

// Case 24, 133: a caller may stop after any token, by breaking off or by its
// context; the session is ready at once and nothing of it leaks into the next.
func TestBreakOff(t *testing.T) {
	e := open(t, "tiny-qwen3", dflash.Options{})
	s := newSession(t, e)
	refs := references(t, "tiny-qwen3")
	for after := 1; after <= 12; after++ {
		n := 0
		for _, err := range s.Generate(t.Context(), dflash.Request{IDs: refs[0].Prompt, MaxTokens: 40, BlockSize: 5}) {
			require.NoError(t, err)
			if n++; n == after {
				break
			}
		}
		st := s.Stats()
		require.Equal(t, after, st.CompletionTokens)
		require.Empty(t, st.Finish)

		ctx, cancel := context.WithCancel(t.Context())
		var last error
		n = 0
		for _, err := range s.Generate(ctx, dflash.Request{IDs: refs[1].Prompt, MaxTokens: 40, BlockSize: 5}) {
			if err != nil {
				last = err
				continue
			}
			if n++; n == after {
				cancel()
			}
		}
		cancel()
		require.ErrorIs(t, last, context.Canceled)
		require.LessOrEqual(t, n, after+4) // the tokens of the cycle that was done

		ids, _ := run(t, s, dflash.Request{IDs: refs[2].Prompt, MaxTokens: 96})
		require.Equal(t, refs[2].Greedy, ids)
	}
}

// Case 46: a shorter request after a longer one, and back.
func TestRequestsInTurn(t *testing.T) {
	e := open(t, "tiny-qwen3.5", dflash.Options{})
	s := newSession(t, e)
	text := references(t, "tiny-qwen3.5")[0].Prompt
	first := map[int][]int{}
	for range 2 {
		for _, n := range []int{50, 5, 50, 1} {
			ids, _ := run(t, s, dflash.Request{IDs: text[:n], MaxTokens: 10, IgnoreEOS: true})
			require.Equal(t, n+9, s.Decoder().ContextLen())
			if want, ok := first[n]; ok {
				require.Equal(t, want, ids)
			}
			first[n] = ids
		}
	}
	ids, _ := run(t, newSession(t, e), dflash.Request{IDs: text[:50], MaxTokens: 10, IgnoreEOS: true})
	require.Equal(t, first[50], ids)
}

// What a request may not say.
func TestRequestErrors(t *testing.T) {
	e := open(t, "tiny-qwen3", dflash.Options{})
	s := newSession(t, e)
	yes := true
	long := make([]int, e.Info().ContextLength)
	for name, c := range map[string]struct {
		r    dflash.Request
		want error
		text string
	}{
		"nothing":          {dflash.Request{}, dflash.ErrEmptyPrompt, ""},
		"no ids":           {dflash.Request{IDs: []int{}}, dflash.ErrEmptyPrompt, ""},
		"two prompts":      {dflash.Request{Prompt: "a", Text: "b"}, dflash.ErrRequest, "more than one"},
		"system alone":     {dflash.Request{Text: "a", System: "b"}, dflash.ErrRequest, "System"},
		"thinking raw":     {dflash.Request{Text: "a", Thinking: &yes}, dflash.ErrRequest, "Thinking"},
		"negative id":      {dflash.Request{IDs: []int{1, -1}}, dflash.ErrRequest, "-1"},
		"id too large":     {dflash.Request{IDs: []int{4096}}, dflash.ErrRequest, "4096"},
		"stop id":          {dflash.Request{Text: "a", StopIDs: []int{5000}}, dflash.ErrRequest, "5000"},
		"negative budget":  {dflash.Request{Text: "a", MaxTokens: -1}, dflash.ErrRequest, "-1"},
		"block 1":          {dflash.Request{Text: "a", BlockSize: 1}, dflash.ErrRequest, "block size 1"},
		"block 17":         {dflash.Request{Text: "a", BlockSize: 17}, dflash.ErrRequest, "block size 17"},
		"prompt fills up":  {dflash.Request{IDs: long}, dflash.ErrContextLength, "4096"},
		"prompt overflows": {dflash.Request{IDs: append(long, 1)}, dflash.ErrContextLength, "4097"},
		"block undrafted":  {dflash.Request{Text: "a", BlockSize: 8, NoDraft: true}, dflash.ErrRequest, "together with NoDraft"},
		"negative block":   {dflash.Request{Text: "a", BlockSize: -3}, dflash.ErrRequest, "-3"},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			for _, err := range s.Generate(t.Context(), c.r) {
				n++
				require.ErrorIs(t, err, c.want)
				require.ErrorContains(t, err, c.text)
			}
			require.Equal(t, 1, n)
		})
	}
	ids, _ := run(t, s, dflash.Request{Text: "func", MaxTokens: 3, IgnoreEOS: true})
	require.Len(t, ids, 3)
}

// A session runs one generation at a time and ends when closed; so does the
// engine.
func TestBusyAndClosed(t *testing.T) {
	e := open(t, "tiny-qwen3", dflash.Options{})
	s := newSession(t, e)
	r := dflash.Request{Text: "func", MaxTokens: 8, IgnoreEOS: true}
	for _, err := range s.Generate(t.Context(), r) {
		require.NoError(t, err)
		for _, err := range s.Generate(t.Context(), r) {
			require.ErrorIs(t, err, dflash.ErrBusy)
		}
	}
	n := 0
	for _, err := range s.Generate(t.Context(), r) {
		if n++; n == 1 {
			require.NoError(t, err)
			require.NoError(t, s.Close())
		}
		if err != nil {
			require.ErrorIs(t, err, dflash.ErrClosed)
		}
	}
	require.LessOrEqual(t, n, 9)
	for _, err := range s.Generate(t.Context(), r) {
		require.ErrorIs(t, err, dflash.ErrClosed)
	}
	require.NoError(t, s.Close())

	left, err := e.NewSession()
	require.NoError(t, err)
	require.NoError(t, e.Close())
	require.NoError(t, e.Close())
	_, err = e.NewSession()
	require.ErrorIs(t, err, dflash.ErrClosed)
	for _, err := range left.Generate(t.Context(), r) {
		require.ErrorIs(t, err, dflash.ErrClosed)
	}
}
