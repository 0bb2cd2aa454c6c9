package dflash_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/qwen/chat"
)

// reply collects a generation and holds what is true of every one: pieces of
// whole characters, a finish on the last token, deltas that carry the text.
func reply(t testing.TB, s *dflash.Session, r dflash.Request) (tokens []dflash.Token, text string) {
	t.Helper()
	for token, err := range s.Generate(t.Context(), r) {
		require.NoError(t, err)
		require.True(t, utf8.ValidString(token.Text))
		for _, d := range token.Deltas {
			require.True(t, utf8.ValidString(d.Text))
		}
		tokens = append(tokens, token)
		text += token.Text
	}
	last := tokens[len(tokens)-1]
	st := s.Stats()
	require.NotEmpty(t, last.Finish)
	require.Equal(t, last.Finish, st.Finish)
	require.Equal(t, last.StopText, st.StopText)
	require.Equal(t, len(tokens), st.CompletionTokens)
	for _, token := range tokens[:len(tokens)-1] {
		require.Empty(t, token.Finish)
	}
	return tokens, text
}

func message(tokens []dflash.Token) chat.Message {
	var r chat.Reply
	for _, token := range tokens {
		r.Add(token.Deltas...)
	}
	return r.Message()
}

func idsOf(tokens []dflash.Token) (ids []int) {
	for _, token := range tokens {
		ids = append(ids, token.ID)
	}
	return ids
}

// blocks are requests' ways of decoding: without drafts, and some lengths.
func withBlock(r dflash.Request, block int) dflash.Request {
	if r.BlockSize = block; block == 1 {
		r.BlockSize, r.NoDraft = 0, true
	}
	return r
}

// Stop texts taken from what transformers generated: the text ends before the
// first, the ids with the token that completes it, whatever the block. The
// session then holds the sequence up to there.
func TestStopTexts(t *testing.T) {
	e := open(t, "tiny-qwen3", dflash.Options{})
	s := newSession(t, e)
	rng := rand.New(rand.NewPCG(1, 2))
	for i, ref := range references(t, "tiny-qwen3")[:4] {
		// Where each token's text ends, without the end-of-sequence.
		var ends []int
		var all string
		for n := range ref.Greedy {
			var err error
			all, err = e.Tokenizer().DecodeSkipSpecial(ref.Greedy[:n+1])
			require.NoError(t, err)
			ends = append(ends, len(all))
		}
		for _, block := range []int{1, 4, 16} {
			from := rng.IntN(len(all) * 3 / 4)
			stops := []string{all[from:min(from+1+rng.IntN(12), len(all))], all[min(from+2, len(all)-1):], "nowhere"}
			at, stop := len(all), ""
			for _, text := range stops {
				if k := strings.Index(all, text); k >= 0 && k+len(text) < at+len(stop) {
					at, stop = k, text
				}
			}
			want := 0
			for ends[want] < at+len(stop) {
				want++
			}
			for _, pipelined := range []bool{false, true} {
				s.SetPipelined(pipelined)
				tokens, text := reply(t, s, withBlock(dflash.Request{IDs: ref.Prompt, MaxTokens: 96, Stop: stops}, block))
				require.Equal(t, all[:at], text, "prompt %d, block %d, %q", i, block, stops)
				require.Equal(t, ref.Greedy[:want+1], idsOf(tokens))
				require.Equal(t, stop, s.Stats().StopText)
				require.Equal(t, dflash.FinishStop, s.Stats().Finish)
				if !pipelined {
					require.Equal(t, len(ref.Prompt)+want, s.Decoder().Len())
				}
			}
		}
	}
}

// Case 26 and its neighbours with a text that is known: each byte is a token.
func TestStopPermutation(t *testing.T) {
	spec := fixture.Perm(t, t.TempDir(), fixture.Options{Seed: 1})
	e := fixturePair(t, spec, fixture.DraftOptions{Seed: 2, BlockSize: 16})
	s := newSession(t, e)
	ids := spec.Follow(0, 120)
	all := make([]byte, len(ids))
	for i, id := range ids {
		all[i] = byte(id)
	}
	// A stop text of letters that follow each other in the permutation.
	at := 20
	for !isLetters(all[at : at+3]) {
		at++
	}
	stop := string(all[at : at+3])
	for block := 1; block <= 16; block++ {
		s.SetPipelined(block%3 == 0)
		r := withBlock(dflash.Request{IDs: []int{0}, MaxTokens: 120, IgnoreEOS: true, Stop: []string{stop + "x", stop}}, block)
		tokens, _ := reply(t, s, r)
		require.Equal(t, ids[:at+3], idsOf(tokens), "block %d", block)
		require.Equal(t, stop, tokens[at+2].StopText)
		require.Empty(t, tokens[at].Text+tokens[at+1].Text+tokens[at+2].Text)
	}
	// A stop text that the budget cuts: its beginning is released, once.
	tokens, _ := reply(t, s, dflash.Request{IDs: []int{0}, MaxTokens: at + 2, IgnoreEOS: true, Stop: []string{stop}})
	require.Equal(t, stop[:2], tokens[at+1].Text)
	require.Equal(t, dflash.FinishLength, tokens[at+1].Finish)
}

func isLetters(b []byte) bool {
	for _, c := range b {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

var scriptTools = []json.RawMessage{json.RawMessage(`{"name":"f","parameters":{"properties":{"n":{"type":"integer"}}}}`)}

// scripted is a model that answers with these pieces.
func scripted(t *testing.T, template string, pieces ...string) *dflash.Engine {
	return fixturePair(t, fixture.Script(t, t.TempDir(), pieces, template, fixture.Options{Seed: 1}), fixture.DraftOptions{Seed: 2, BlockSize: 16})
}

// every runs a request at every block length, plain first, with cycles in
// flight and without: all tokens must be those of the first.
func every(t *testing.T, e *dflash.Engine, r dflash.Request, blocks ...int) (tokens []dflash.Token, st dflash.Stats) {
	t.Helper()
	s := newSession(t, e)
	for _, block := range append([]int{1}, blocks...) {
		for _, pipelined := range []bool{false, true} {
			s.SetPipelined(pipelined)
			got, _ := reply(t, s, withBlock(r, block))
			for i := range got {
				got[i].Drafted, got[i].Drafts = false, 0
			}
			if tokens == nil {
				tokens, st = got, s.Stats()
				continue
			}
			require.Equal(t, tokens, got, "block %d, pipelined %t", block, pipelined)
			require.Equal(t, st.ReasoningTokens, s.Stats().ReasoningTokens)
			require.Equal(t, st.ForcedTokens, s.Stats().ForcedTokens)
		}
	}
	return tokens, st
}

var someBlocks = []int{2, 5, 16}

// Thought, text and calls in both forms, with a stop text that is held back and
// one that ends it all.
func TestDeltas(t *testing.T) {
	e := scripted(t, "", "Let", " me", "\n ", "see", "</think>", "\n\n", "Wait", "</t", "...", "\n<tool", "_call>", "\n{\"name\": \"f\",", " \"arguments\": {\"n\":", " 1}}\n</", "tool_call>\n",
		"<tool_call>", "<function=f>\n<para", "meter=n>\n", "2\n</parameter>\n</function>", "\n</tool_call>", "end", " of all")
	r := dflash.Request{Prompt: "a", Tools: scriptTools}
	tokens, st := every(t, e, r, someBlocks...)
	m := message(tokens)
	require.Equal(t, "Let me\n see", *m.ReasoningContent)
	require.Equal(t, "Wait</t...end of all", m.Content)
	require.Equal(t, []chat.ToolCall{{Name: "f", Arguments: json.RawMessage(`{"n": 1}`)}, {Name: "f", Arguments: json.RawMessage(`{"n":2}`)}}, m.ToolCalls)
	require.Equal(t, 5, st.ReasoningTokens)
	require.Equal(t, fixture.ImEnd, tokens[len(tokens)-1].ID)
	require.Zero(t, st.ForcedTokens)

	// What a stop text holds back is in neither; the thought's tokens count all
	// the same.
	r.Stop = []string{"see</think>\n\n\n", "end of"}
	tokens, st = every(t, e, r, someBlocks...)
	require.Equal(t, "Wait</t...", message(tokens).Content)
	require.Len(t, message(tokens).ToolCalls, 2)
	require.Equal(t, "end of", st.StopText)
	require.Equal(t, 5, st.ReasoningTokens)

	// A stop text counts in the thought too, case 30.
	r.Stop = []string{"me\n s"}
	tokens, st = every(t, e, r, someBlocks...)
	require.Equal(t, "Let ", *message(tokens).ReasoningContent)
	require.Equal(t, 4, st.ReasoningTokens)
	require.Equal(t, dflash.FinishStop, st.Finish)

	// Without a template, or without tools, there are no calls.
	r = dflash.Request{Prompt: "a", Tools: scriptTools, ToolChoice: dflash.ToolChoice{None: true}}
	tokens, _ = every(t, e, r, 16)
	require.Empty(t, message(tokens).ToolCalls)
	require.Contains(t, message(tokens).Content, "<tool_call>")
	tokens, _ = every(t, e, dflash.Request{Text: "\n"}, 16)
	for _, token := range tokens {
		require.Nil(t, token.Deltas)
	}
	// A call that the budget cuts is content, case 116.
	tokens, st = every(t, e, dflash.Request{Prompt: "a", Tools: scriptTools, MaxTokens: 13}, 16)
	require.Equal(t, "Wait</t...\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\":", message(tokens).Content)
	require.Empty(t, message(tokens).ToolCalls)
	require.Equal(t, dflash.FinishLength, st.Finish)
}

// Case 25: a reply that ends inside its thought has no answer, and says so.
func TestEndInsideThought(t *testing.T) {
	e := scripted(t, "", "a", "b")
	tokens, st := every(t, e, dflash.Request{Prompt: "a"}, 16)
	require.Equal(t, "ab", *message(tokens).ReasoningContent)
	require.Empty(t, message(tokens).Content)
	require.Equal(t, dflash.FinishStop, st.Finish)
	require.Equal(t, 2, st.ReasoningTokens)
}

// The thought is closed at its budget, at the token, in every way of decoding,
// and the answer begins, here with the first piece again.
func TestThinkingBudget(t *testing.T) {
	e := scripted(t, "", "a", "b", "c", "d", "e", "f", "g", "h", "</think>", "x")
	ids := func(text string) []int { return e.Tokenizer().Encode(text) }
	thought := "abcdefgh"
	for _, budget := range []int{1, 2, 5, 8, 9} {
		tokens, st := every(t, e, dflash.Request{Prompt: "a", ThinkingBudget: budget, Stop: []string{"\n"}}, 2, 3, 16)
		want := ids("abcdefgh</think>x")
		if budget <= 8 {
			want = append(append(ids(thought[:budget]), ids("\n</think>\n\n")...), want...)
			require.Equal(t, thought[:budget], *message(tokens).ReasoningContent)
			require.Equal(t, "abcdefgh</think>x", message(tokens).Content)
			require.Equal(t, 4, st.ForcedTokens)
			require.Equal(t, budget+2, st.ReasoningTokens)
			for i, token := range tokens {
				require.Equal(t, len(mustPrompt(t, e))+i, token.Position)
			}
		} else {
			require.Equal(t, thought, *message(tokens).ReasoningContent)
			require.Equal(t, "x", message(tokens).Content)
			require.Zero(t, st.ForcedTokens)
			require.Equal(t, 9, st.ReasoningTokens)
		}
		require.Equal(t, append(want, fixture.ImEnd), idsOf(tokens), "budget %d", budget)
	}
	// MaxTokens counts them, and may end between them.
	for limit := 2; limit <= 7; limit++ {
		tokens, st := every(t, e, dflash.Request{Prompt: "a", ThinkingBudget: 2, MaxTokens: limit}, 3)
		require.Equal(t, append(append(ids("ab"), ids("\n</think>\n\n")...), ids("ab")...)[:limit], idsOf(tokens))
		require.Equal(t, dflash.FinishLength, st.Finish)
		require.Equal(t, min(4, limit-2), st.ForcedTokens)
	}
	// Where the prompt closed the thought there is nothing to do.
	tokens, st := every(t, e, dflash.Request{Prompt: "a", ThinkingBudget: 2, Thinking: new(false)}, 16)
	require.Equal(t, "abcdefgh</think>x", message(tokens).Content)
	require.Zero(t, st.ForcedTokens+st.ReasoningTokens)
}

func mustPrompt(t *testing.T, e *dflash.Engine) []int {
	ids, err := e.PromptIDs(&dflash.Request{Prompt: "a"})
	require.NoError(t, err)
	return ids
}

// A thought that the model opens itself has the same budget.
func TestThinkingBudgetOfTheModel(t *testing.T) {
	e := scripted(t, "{{- messages[0].content ~ '\\n' -}}", " ", "<think>", "a", "b", "c", "</think>", "x")
	tokens, st := every(t, e, dflash.Request{Prompt: "p", ThinkingBudget: 3}, 2, 3, 16)
	require.Equal(t, "ab", *message(tokens).ReasoningContent)
	require.Equal(t, 4, st.ForcedTokens)
	require.Equal(t, " <think>abc</think>x", message(tokens).Content)
}

// On a real pair: a closed thought goes on as the same ids in a prompt do.
func TestThinkingBudgetOfAPair(t *testing.T) {
	for _, pair := range pairs {
		e := open(t, pair, dflash.Options{})
		s := newSession(t, e)
		r := dflash.Request{Prompt: "Write F.", Thinking: new(true), MaxTokens: 24, IgnoreEOS: true}
		prompt, err := e.PromptIDs(&r)
		require.NoError(t, err)
		free, _ := run(t, s, dflash.Request{IDs: prompt, MaxTokens: 24, IgnoreEOS: true})
		r.ThinkingBudget = 3
		require.NotContains(t, free[:3], e.Tokenizer().Encode("</think>")[0])
		given := append(append([]int(nil), free[:3]...), e.Tokenizer().Encode("\n</think>\n\n")...)
		after, _ := run(t, s, dflash.Request{IDs: append(append([]int(nil), prompt...), given...), MaxTokens: 24 - len(given), IgnoreEOS: true})
		tokens, _ := every(t, e, r, 16)
		require.Equal(t, append(given, after...), idsOf(tokens))
	}
}

const (
	jsonCalls = "{{- messages[0].content ~ '\\n' -}}{#- <tool_call> -#}"
	xmlCalls  = jsonCalls + "{#- <function= -#}"
)

// The reply begins with the call that was asked for; the model goes on, here
// after its line end or, in JSON, with the colon's successor: itself.
func TestToolChoice(t *testing.T) {
	e := scripted(t, xmlCalls, "<parameter=n>", "7", "</parameter>", "</function>", "</tool_call>")
	two := append(scriptTools[:1:1], json.RawMessage(`{"name":"g"}`))
	for _, choice := range []dflash.ToolChoice{{Name: "f"}, {Required: true}} {
		r := dflash.Request{Prompt: "a", Tools: scriptTools, ToolChoice: choice}
		tokens, st := every(t, e, r, someBlocks...)
		require.Equal(t, []chat.ToolCall{{Name: "f", Arguments: json.RawMessage(`{"n":7}`)}}, message(tokens).ToolCalls)
		require.Empty(t, message(tokens).Content)
		begin := e.Tokenizer().Encode("<tool_call>\n<function=f>\n")
		require.Equal(t, begin, idsOf(tokens)[:len(begin)])
		require.Equal(t, len(begin), st.ForcedTokens)
		require.Equal(t, 2, st.PromptTokens)
		require.Equal(t, len(tokens)-len(begin), st.Cycles)
		require.InDelta(t, 1, st.TokensPerCycle(), 0)
		for limit := 1; limit <= len(begin)+1; limit++ {
			r.MaxTokens = limit
			cut, _ := every(t, e, r, 3)
			require.Equal(t, idsOf(tokens)[:limit], idsOf(cut))
		}
	}
	s := newSession(t, e)
	_, text := reply(t, s, dflash.Request{Prompt: "a", Tools: two, ToolChoice: dflash.ToolChoice{Required: true}, MaxTokens: 20})
	require.True(t, strings.HasPrefix(text, "<tool_call>\n<function"+"nnn"), text)

	e = scripted(t, jsonCalls, "x")
	for name, want := range map[string]string{"f": "<tool_call>\n{\"name\": \"f\", \"arguments\"::", "": "<tool_call>\n{\"name\": \"\""} {
		_, text = reply(t, newSession(t, e), dflash.Request{Prompt: "a", Tools: two, ToolChoice: dflash.ToolChoice{Required: true, Name: name}, MaxTokens: len(want) - len("tool_call>")})
		require.Equal(t, want, text)
	}

	// A prompt that leaves the thought open all the same has it closed first.
	e = scripted(t, jsonCalls+"{{- '<think>\\n' -}}", "x")
	_, text = reply(t, newSession(t, e), dflash.Request{Prompt: "a", Tools: scriptTools, ToolChoice: dflash.ToolChoice{Name: "f"}, MaxTokens: 20})
	require.True(t, strings.HasPrefix(text, "\n</think>\n\n<tool_call>\n{\"name"), text)
}

// The tiny pair's template switches the thought off for a call.
func TestToolChoiceOfAPair(t *testing.T) {
	e := open(t, "tiny-qwen3.5", dflash.Options{})
	r := dflash.Request{Prompt: "Write F.", Tools: scriptTools, ToolChoice: dflash.ToolChoice{Name: "f"}, MaxTokens: 16}
	prompt, err := e.PromptIDs(&r)
	require.NoError(t, err)
	text, err := e.Tokenizer().Decode(prompt)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(text, "<think>\n\n</think>\n\n"))
	begin := e.Tokenizer().Encode("<tool_call>\n<function=f>\n")
	tokens, _ := every(t, e, r, 16)
	after, _ := run(t, newSession(t, e), dflash.Request{IDs: append(prompt, begin...), MaxTokens: 16 - len(begin)})
	require.Equal(t, append(begin, after...), idsOf(tokens))
}

func TestTextRequests(t *testing.T) {
	e := scripted(t, xmlCalls, "x")
	for want, r := range map[string]dflash.Request{
		"stop text 1 is empty":      {Prompt: "a", Stop: []string{"a", ""}},
		"not UTF-8":                 {Prompt: "a", Stop: []string{"\xff"}},
		"ThinkingBudget is -1":      {Prompt: "a", ThinkingBudget: -1},
		"ThinkingBudget needs":      {Text: "a", ThinkingBudget: 1},
		"no Tools":                  {Prompt: "a", ToolChoice: dflash.ToolChoice{Required: true}},
		`names "g"`:                 {Prompt: "a", Tools: scriptTools, ToolChoice: dflash.ToolChoice{Name: "g"}},
		"says None":                 {Prompt: "a", Tools: scriptTools, ToolChoice: dflash.ToolChoice{None: true, Required: true}},
		"needs Prompt":              {IDs: []int{1}, ToolChoice: dflash.ToolChoice{None: true}},
		"no room for Thinking":      {Prompt: "a", Tools: scriptTools, ToolChoice: dflash.ToolChoice{Name: "f"}, Thinking: new(true)},
		"tool 0":                    {Prompt: "a", Tools: []json.RawMessage{json.RawMessage(`{}`)}},
		"whose name is no text for": {Prompt: "a", Tools: []json.RawMessage{json.RawMessage(`{"name":"a>b"}`)}, ToolChoice: dflash.ToolChoice{Name: "a>b"}},
	} {
		_, err := e.PromptTokens(r)
		require.ErrorIs(t, err, dflash.ErrRequest, want)
		require.ErrorContains(t, err, want)
	}
	e = scripted(t, "{{- 'a' -}}", "x")
	_, err := e.PromptTokens(dflash.Request{Prompt: "a", Tools: scriptTools, ToolChoice: dflash.ToolChoice{Name: "f"}})
	require.ErrorIs(t, err, dflash.ErrUnsupported)
	require.ErrorContains(t, err, "no form of a call")
}

// A session goes on from a stop text, a closed thought or the middle of forced
// tokens like one that has seen nothing but its tokens.
func TestContinueAfterText(t *testing.T) {
	eachTarget(t, dflash.Options{}, func(t *testing.T, e *dflash.Engine) {
		s := newSession(t, e)
		free, _ := reply(t, s, dflash.Request{Prompt: "a", MaxTokens: 30, IgnoreEOS: true})
		stop := ""
		for _, token := range free[10:20] {
			stop += token.Text
		}
		require.NotEmpty(t, stop)
		for i, r := range []dflash.Request{
			{Prompt: "a", MaxTokens: 30, IgnoreEOS: true, Stop: []string{stop}},
			{Prompt: "a", MaxTokens: 14, IgnoreEOS: true, ThinkingBudget: 5},
			{Prompt: "a", MaxTokens: 7, IgnoreEOS: true, ThinkingBudget: 5},
		} {
			for _, pipelined := range []bool{false, true}[:1+(i+1)%2] {
				s.SetPipelined(pipelined)
				tokens, _ := reply(t, s, r)
				require.Equal(t, i == 0, s.Stats().StopText == stop)
				require.Equal(t, idsOf(tokens), s.Tokens()[s.Stats().PromptTokens:])
				text := append(s.Tokens(), 7, 8, 9)
				want, _ := run(t, newSession(t, e), dflash.Request{IDs: text, MaxTokens: 9, IgnoreEOS: true, NoCache: true})
				got, _ := run(t, s, dflash.Request{Continue: true, IDs: []int{7, 8, 9}, MaxTokens: 9, IgnoreEOS: true})
				require.Equal(t, want, got)
				if !pipelined {
					requireFreshState(t, e, s.Decoder(), "after a continuation")
				}
			}
		}
	})
}

// Cases 133 and 136: a consumer stops between forced tokens, of which the state
// holds all.
func TestBreakInsideForced(t *testing.T) {
	eachTarget(t, dflash.Options{PrefixCacheBytes: -1}, func(t *testing.T, e *dflash.Engine) {
		s := newSession(t, e)
		for after := 5; after <= 10; after++ {
			s.SetPipelined(after%2 == 0)
			n := 0
			for _, err := range s.Generate(t.Context(), dflash.Request{Prompt: "a", Thinking: new(true), IgnoreEOS: true, ThinkingBudget: 5, BlockSize: 3}) {
				require.NoError(t, err)
				if n++; n == after {
					break
				}
			}
			text := append(s.Tokens(), 7)
			got, _ := run(t, s, dflash.Request{Continue: true, IDs: []int{7}, MaxTokens: 4, IgnoreEOS: true})
			require.Equal(t, fresh(t, e, text, 4), got, "after %d", after)
			s.SetPipelined(false)
			run(t, s, dflash.Request{Continue: true, MaxTokens: 2, IgnoreEOS: true})
			requireFreshState(t, e, s.Decoder(), "gone on")
			require.Greater(t, s.Stats().CachedTokens, 8)
		}
	})
}
