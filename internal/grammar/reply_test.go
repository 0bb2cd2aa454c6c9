package grammar

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// read feeds pieces, each a whole token where the vocabulary has it as a tag,
// and byte by byte where not. It gives the number of bytes that were taken, and
// whether the text may end there.
func read(m *Machine, text string) (taken int, ends bool) {
	s := m.Start()
	for taken < len(text) {
		next, ok := (*State)(nil), false
		size := 1
		for id, token := range m.vocab.tokens {
			if token.Kind == Tag && strings.HasPrefix(text[taken:], token.Bytes) && has(m.Mask(s), id) {
				next, ok = m.Advance(s, id)
				size = len(token.Bytes)
			}
		}
		if !ok && has(m.Mask(s), int(text[taken])) {
			next, ok = m.Advance(s, int(text[taken]))
		}
		if !ok {
			return taken, false
		}
		s = next
		taken += size
	}
	return taken, s.Accepts()
}

func TestReplies(t *testing.T) {
	object := []byte(`{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}`)
	tools := []Tool{
		{Name: "get", Parameters: []byte(`{"type":"object","properties":{"city":{"type":"string"},"n":{"type":"integer","maximum":99},"unit":{"type":"string","enum":["C","F"]},"list":{"type":"array","items":{"type":"string"}},"maybe":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["city"]}`)},
		{Name: "time"},
	}
	inJSON := `<tool_call>` + "\n" + `{"name": "get", "arguments": {"city": "Ulm", "n": 3}}` + "\n</tool_call>"
	inXML := "<tool_call>\n<function=get>\n<parameter=city>\nUlm </b>\n</parameter>\n<parameter=n>\n3\n</parameter>\n<parameter=unit>\nC\n</parameter>\n</function>\n</tool_call>"
	for _, c := range []struct {
		name  string
		reply Reply
		yes   []string
		// no are texts of which only what stands before the ¦ is taken, or which
		// may not end where they do.
		no []string
	}{
		{
			"no thought",
			Reply{Schema: object},
			[]string{`{"a":1}`},
			[]string{"¦\n{\"a\":1}", "¦<think>", `{"a":1}¦ `, `{"a":1`, ``, `{"¦<think>":1}`},
		},
		{
			"open thought",
			Reply{Schema: object, Thought: OpenThought},
			[]string{"hm <b></think>{\"a\":1}", "</think>\n\n{\"a\":1}", "a</</think>\n{\"a\":1}", "<think></think>{\"a\":1}"},
			[]string{`{"a":1}`, "x</think>\n\n¦\n", "x</think>", "x</think>¦y"},
		},
		{
			"perhaps a thought",
			Reply{JSON: true, Thought: MayThink},
			[]string{"<think>\nhm\n</think>\n\n{}", "{}"},
			[]string{"¦hm</think>{}", "<think>hm", "\n¦"[:0] + "¦\n{}"},
		},
		{
			"calls in JSON",
			Reply{Tools: tools},
			[]string{"Hello <b>", inJSON, "Look:\n" + inJSON + "\n" + inJSON + "\nDone.", `<tool_call>{"name":"time","arguments":{"x":[1]}}</tool_call>`, "<tool", ""},
			[]string{`<tool_call>¦x`, `<tool_call>{"name": "¦rm"`, `<tool_call>{"name": "get", "arguments": {¦}}`, `<tool_call>{"name": "get", "arguments": {"city": "a"}}`, `<tool_call>¦` + "<function"},
		},
		{
			"calls in XML",
			Reply{Tools: tools, ToolForm: CallXML},
			[]string{
				inXML, "ok\n" + inXML + "\n" + inXML, "<tool_call>\n<function=time>\n</function>\n</tool_call>",
				"<tool_call><function=get>\n<parameter=city>\na\n</parameter>\n<parameter=list>\n[\"x\"]\n</parameter>\n<parameter=maybe>\nnull\n</parameter>\n</function></tool_call>",
			},
			[]string{"<tool_call>\n<function=¦x", "<tool_call>\n<function=get>\n<¦/function>", "<tool_call>\n<function=get>\n<parameter=¦n", "<tool_call><function=get>\n<parameter=city>\na\n</parameter>\n<parameter=n>\n¦x", "<tool_call><function=get>\n<parameter=city>\na\n</parameter>\n<parameter=unit>\n¦K", "<tool_call><function=time>\n<¦parameter", inXML[:len(inXML)-1]},
		},
		{
			"JSON or calls",
			Reply{Schema: object, Tools: tools},
			[]string{`{"a":1}`, inJSON, inJSON + "\n" + inJSON, inJSON + inJSON},
			[]string{`¦Hello`, inJSON + "\n", inJSON + "¦x", `{"a":1}¦` + inJSON},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := machine(t, c.reply)
			for _, text := range c.yes {
				taken, ends := read(m, text)
				require.True(t, ends && taken == len(text), "%q: %d taken of %d, ends %v", text, taken, len(text), ends)
				if !strings.Contains(text, "<think>") && !strings.Contains(text, "</b>") {
					rng := rand.New(rand.NewPCG(1, 2))
					require.True(t, accepts(t, m, rng, text), "%q spelled in ordinary tokens", text)
				}
			}
			for _, text := range c.no {
				before, _, cut := strings.Cut(text, "¦")
				taken, ends := read(m, strings.ReplaceAll(text, "¦", ""))
				require.False(t, ends, "%q", text)
				if cut {
					require.Equal(t, len(before), taken, "%q", text)
				}
			}
		})
	}
}

// Control tokens come in free text only, and the end only where it may.
func TestControlTokens(t *testing.T) {
	m := machine(t, Reply{JSON: true, Thought: OpenThought})
	control, end := len(testVocab.tokens)-3, len(testVocab.tokens)-2
	nothing := len(testVocab.tokens) - 1
	thought := m.Mask(m.Start())
	require.True(t, has(thought, control) && has(thought, nothing) && !has(thought, end))
	s := m.Start()
	for _, b := range []byte("</think>{") {
		s, _ = m.Advance(s, int(b))
	}
	inside := m.Mask(s)
	require.False(t, has(inside, control) || has(inside, nothing) || has(inside, end))
	s, _ = m.Advance(s, '}')
	for id := range testVocab.tokens {
		require.Equal(t, id == end, has(m.Mask(s), id))
	}
	for _, id := range []int{-1, len(testVocab.tokens)} {
		_, ok := m.Advance(s, id)
		require.False(t, ok)
	}

	// Free text with tools needs no mask until a tag begins.
	m = machine(t, Reply{Tools: []Tool{{Name: "f"}}})
	require.Nil(t, m.Mask(m.Start()))
}

// The text that must come is known, up to the first choice, in the longest token.
func TestForced(t *testing.T) {
	m := machine(t, Reply{Schema: []byte(`{"type":"object","properties":{"name":{"const":true}},"required":["name"]}`)})
	s := m.Start()
	for _, c := range []struct{ read, forced string }{{"", "{"}, {"{", ""}, {`"`, `name`}, {"na", "m"}, {`me"`, ":"}, {":", ""}, {" ", "true"}, {"t", "r"}, {"r", "ue"}, {"ue", ""}, {"}", ""}} {
		for _, b := range []byte(c.read) {
			var ok bool
			s, ok = m.Advance(s, int(b))
			require.True(t, ok)
		}
		id, ok := m.Forced(s)
		require.Equal(t, c.forced != "", ok, "after %q", c.read)
		if ok {
			require.Equal(t, c.forced, testVocab.tokens[id].Bytes, "after %q", c.read)
			require.True(t, has(m.Mask(s), id))
		}
	}
}

// Arguments that an XML-like call cannot be held to are refused by name.
func TestToolsRefused(t *testing.T) {
	for _, c := range []struct{ schema, say string }{
		{`{"properties":{"a":{"type":"string","maxLength":3}}}`, `maxLength for the argument "a"`},
		{`{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"integer","minimum":1}]}}}`, `minimum for the argument "a"`},
		{`{"properties":{"a":{"enum":["x\n"]}}}`, `"x\n" as an argument`},
		{`{"properties":{"a<b":{}}}`, "an argument \"a<b\""},
		{`{"anyOf":[{"required":["a"]},{"required":["b"]}]}`, "anyOf"},
		{`{"properties":{"a":{"not":{}}}}`, "keyword not"},
	} {
		_, err := Compile(Reply{Tools: []Tool{{Name: "f", Parameters: []byte(c.schema)}}, ToolForm: CallXML})
		require.ErrorIs(t, err, ErrUnsupported, c.schema)
		require.ErrorContains(t, err, c.say)
		require.ErrorContains(t, err, `tool "f"`)
	}
	_, err := Compile(Reply{Tools: []Tool{{Name: "a>b"}}, ToolForm: CallXML})
	require.ErrorIs(t, err, ErrSchema)
	_, err = Compile(Reply{Tools: []Tool{{Name: "f", Parameters: []byte(`{"type":"array"}`)}}})
	require.ErrorIs(t, err, ErrSchema)
}
