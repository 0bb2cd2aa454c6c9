package chat_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/qwen/chat"
)

// weather is a tool with a parameter of each type.
var weather = json.RawMessage(`{"type":"function","function":{"name":"weather","parameters":{
	"type":"object",
	"$defs":{"Unit":{"enum":["C","F"]},"Spot":{"type":"object"},"Loop":{"$ref":"#/$defs/Loop"}},
	"properties":{
		"city":{"type":"string"}, "days":{"type":"integer"}, "limit":{"type":"number"}, "now":{"type":"boolean"},
		"spot":{"$ref":"#/$defs/Spot"}, "list":{"type":"array"}, "gone":{"type":"null"},
		"unit":{"$ref":"#/$defs/Unit"}, "any":{}, "either":{"anyOf":[{"type":"string"},{"type":"null"}]},
		"count":{"type":["integer","string"]}, "one":{"const":1}, "loop":{"$ref":"#/$defs/Loop"}}}}}`)

var clock = json.RawMessage(`{"name":"clock"}`)

// shown writes a reply down: reasoning in [], calls in {}, broken ones with a !.
func shown(deltas []chat.Delta) string {
	var b strings.Builder
	kind := chat.DeltaContent
	to := func(next chat.DeltaKind) {
		if kind == chat.DeltaReasoning && next != kind {
			b.WriteString("]")
		}
		if next == chat.DeltaReasoning && next != kind {
			b.WriteString("[")
		}
		kind = next
	}
	for _, d := range deltas {
		to(d.Kind)
		if d.Name != "" {
			fmt.Fprintf(&b, "{%d %s ", d.Call, d.Name)
		}
		b.WriteString(d.Text)
		switch d.End {
		case chat.CallDone:
			b.WriteString("}")
		case chat.CallBroken:
			b.WriteString("!}")
		}
	}
	to(chat.DeltaContent)
	return b.String()
}

// split gives the text in pieces that end where cut says.
func split(tb testing.TB, o chat.SplitterOptions, text string, cut func(at int) bool) []chat.Delta {
	tb.Helper()
	s, err := chat.NewSplitter(&o)
	require.NoError(tb, err)
	var out []chat.Delta
	from := 0
	for at := range len(text) + 1 {
		if at == len(text) || at > from && cut(at) {
			out = append(out, s.Push(text[from:at])...)
			from = at
		}
	}
	return append(out, s.Flush()...)
}

func whole(int) bool { return false }

const (
	jsonCall = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}\n</tool_call>"
	xmlCall  = "<tool_call>\n<function=weather>\n<parameter=city>\nUlm\n</parameter>\n</function>\n</tool_call>"
)

func TestSplitter(t *testing.T) {
	param := func(name, value string) string {
		return "<tool_call>\n<function=weather>\n<parameter=" + name + ">\n" + value + "\n</parameter>\n</function>\n</tool_call>"
	}
	for _, c := range []struct {
		name, text, want string
		thinking         bool
	}{
		{name: "content", text: "Hello <b>\n", want: "Hello <b>\n"},
		{name: "empty"},

		// The thought.
		{name: "opened by the prompt", thinking: true, text: "why</think>\n\nhi", want: "[why]hi"},
		{name: "opened twice", thinking: true, text: "\n<think>\nwhy\n</think>\n\nhi", want: "[why]hi"},
		{name: "opened by the model", text: "<think>\nwhy\n\nnot\n</think>\n\nhi", want: "[why\n\nnot]hi"},
		{name: "white space before", text: " \n<think>why</think>hi", want: "[why]hi"},
		{name: "empty thought", text: "<think>\n\n</think>\n\nhi", want: "hi"},
		{name: "empty thought of the prompt", thinking: true, text: "\n</think>\n\nhi", want: "hi"},
		{name: "unclosed", thinking: true, text: "why\n</thin", want: "[why\n</thin]"},
		{name: "closed at the end", thinking: true, text: "why</think>", want: "[why]"},
		{name: "closed twice", thinking: true, text: "why</think>a</think>b", want: "[why]a</think>b"},
		{name: "tag in content", text: "a <think>b</think>", want: "a <think>b</think>"},
		{name: "stray end", text: "</think>b", want: "</think>b"},
		{name: "white space only", text: " \n\n", want: " \n\n"},
		{name: "call in the thought", thinking: true, text: jsonCall + "</think>a", want: "[" + jsonCall + "]a"},
		{name: "ends with a call in the thought", thinking: true, text: "why\n\n" + jsonCall + "\n" + xmlCall + "\n", want: "[why\n\n" + jsonCall + "\n" + xmlCall + "\n]" + `{0 weather {"city": "Ulm"}}{1 weather {"city":"Ulm"}}`},
		{name: "goes on after a call in the thought", thinking: true, text: xmlCall + " and " + jsonCall + " so", want: "[" + xmlCall + " and " + jsonCall + " so]"},
		{name: "ends with the last of the calls in the thought", thinking: true, text: xmlCall + " and " + jsonCall, want: "[" + xmlCall + " and " + jsonCall + "]" + `{0 weather {"city": "Ulm"}}`},
		{name: "closes the thought after a call", thinking: true, text: "a " + jsonCall + "\n</think>", want: "[a " + jsonCall + "]"},
		{name: "breaks off in a call in the thought", thinking: true, text: "a " + xmlCall[:60], want: "[a " + xmlCall[:60] + "]"},
		{name: "nearly a tag", thinking: true, text: "a</</think>b", want: "[a</]b"},
		{name: "half a tag at the start", text: "<thi<think>", want: "<thi<think>"},

		// Calls in JSON.
		{name: "json", text: jsonCall, want: `{0 weather {"city": "Ulm"}}`},
		{name: "thought and call", thinking: true, text: "why\n</think>\n\n" + jsonCall, want: `[why]{0 weather {"city": "Ulm"}}`},
		{name: "text around", text: "Look:\n\n" + jsonCall + "\nDone.", want: `Look:{0 weather {"city": "Ulm"}}Done.`},
		{name: "several", text: jsonCall + "\n" + xmlCall + "\n" + jsonCall, want: `{0 weather {"city": "Ulm"}}{1 weather {"city":"Ulm"}}{2 weather {"city": "Ulm"}}`},
		{name: "no white space", text: `<tool_call>{"name":"clock","arguments":{}}</tool_call>x`, want: `{0 clock {}}x`},
		{name: "in a block of code", text: "```\n" + jsonCall + "\n```", want: "```{0 weather {\"city\": \"Ulm\"}}```"},
		{name: "arguments first", text: `<tool_call>{"arguments": {"a": [1, -2.5e3]}, "name": "clock"}`, want: `{0 clock {"a": [1, -2.5e3]}}`},
		{name: "no arguments", text: `<tool_call>{"name": "clock"}`, want: `{0 clock {}}`},
		{name: "null arguments", text: `<tool_call>{"name": "clock", "arguments": null}`, want: `{0 clock {}}`},
		{name: "arguments in a string", text: `<tool_call>{"name": "clock", "arguments": "{\"a\":1}"}`, want: `{0 clock {"a":1}}`},
		{name: "other members", text: `<tool_call>{"id": 12, "name": "clock", "x": [{"name":"weather"}], "arguments": {}}`, want: `{0 clock {}}`},
		{name: "tags in strings", text: `<tool_call>{"name": "clock", "arguments": {"a": "</tool_call><tool_call>\"}"}}</tool_call>`, want: `{0 clock {"a": "</tool_call><tool_call>\"}"}}`},
		{name: "one brace too many", text: `<tool_call>{"name": "clock", "arguments": {}}}</tool_call>`, want: `{0 clock {}}}</tool_call>`},
		{name: "end missing before another", text: `<tool_call>{"name": "clock"}` + "\n" + jsonCall, want: `{0 clock {}}{1 weather {"city": "Ulm"}}`},

		// What is not well formed.
		{name: "unknown function", text: "a\n<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>", want: "a\n<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>"},
		{name: "unknown function in xml", text: "<tool_call>\n<function=rm>\n</function>\n</tool_call>", want: "<tool_call>\n<function=rm>\n</function>\n</tool_call>"},
		{name: "not a call", text: "<tool_call>maybe</tool_call>", want: "<tool_call>maybe</tool_call>"},
		{name: "a list", text: "<tool_call>[]</tool_call>", want: "<tool_call>[]</tool_call>"},
		{name: "no name", text: `<tool_call>{"arguments": {}}</tool_call>`, want: `<tool_call>{"arguments": {}}</tool_call>`},
		{name: "name twice", text: `<tool_call>{"name": "clock", "name": "clock"}`, want: `<tool_call>{"name": "clock", "name": "clock"}`},
		{name: "arguments twice", text: `<tool_call>{"name": "clock", "arguments": {}, "arguments": {}}`, want: `{0 clock {}!}<tool_call>{"name": "clock", "arguments": {}, "arguments": {}}`},
		{name: "arguments are a list", text: `<tool_call>{"name": "clock", "arguments": [1]}`, want: `<tool_call>{"name": "clock", "arguments": [1]}`},
		{name: "arguments are words", text: `<tool_call>{"name": "clock", "arguments": "now"}`, want: `<tool_call>{"name": "clock", "arguments": "now"}`},
		{name: "bad JSON", text: `<tool_call>{"name": "clock", "arguments": {"a": 01}}</tool_call>b`, want: `{0 clock {"a": 0!}<tool_call>{"name": "clock", "arguments": {"a": 01}}</tool_call>b`},
		{name: "single quotes", text: `<tool_call>{'name': 'clock'}`, want: `<tool_call>{'name': 'clock'}`},
		{name: "ends in the name", text: `<tool_call>{"name": "clo`, want: `<tool_call>{"name": "clo`},
		{name: "ends in the arguments", text: `<tool_call>{"name": "clock", "arguments": {"a": "b`, want: `{0 clock {"a": "b!}<tool_call>{"name": "clock", "arguments": {"a": "b`},
		{name: "ends before the last brace", text: `<tool_call>{"name": "clock", "arguments": {}`, want: `{0 clock {}!}<tool_call>{"name": "clock", "arguments": {}`},
		{name: "ends in xml", text: "<tool_call><function=weather><parameter=city>\nUlm\n</par", want: "{0 weather {\"city\":\"Ulm!}<tool_call><function=weather><parameter=city>\nUlm\n</par"},
		{name: "nested", text: "<tool_call>\n" + jsonCall, want: "<tool_call>\n" + `{0 weather {"city": "Ulm"}}`},
		{name: "nested in xml", text: "<tool_call><function=wea" + xmlCall, want: "<tool_call><function=wea" + `{0 weather {"city":"Ulm"}}`},
		{name: "parameter twice", text: "<tool_call><function=clock><parameter=a>1</parameter><parameter=a>2</parameter></function>", want: `{0 clock {"a":"1"!}<tool_call><function=clock><parameter=a>1</parameter><parameter=a>2</parameter></function>`},

		// Calls in XML.
		{name: "xml", text: xmlCall, want: `{0 weather {"city":"Ulm"}}`},
		{name: "no parameters", text: "<tool_call>\n<function=clock>\n</function>\n</tool_call>", want: `{0 clock {}}`},
		{name: "two parameters", text: "<tool_call><function=weather><parameter=days>\n3\n</parameter>\n<parameter=city>\nUlm\n</parameter>\n</function></tool_call>", want: `{0 weather {"days":3,"city":"Ulm"}}`},
		{name: "on one line", text: "<tool_call><function=weather><parameter=city>Ulm</parameter></function></tool_call>", want: `{0 weather {"city":"Ulm"}}`},
		{name: "function not closed", text: "<tool_call><function=weather><parameter=city>Ulm</parameter>\n</tool_call>\nb", want: `{0 weather {"city":"Ulm"}}b`},
		{name: "call not opened", text: "Now:\n<function=weather>\n<parameter=city>\nUlm\n</parameter>\n</function>\n</tool_call>\nb", want: `Now:{0 weather {"city":"Ulm"}}b`},
		{name: "call neither opened nor closed", text: "<function=clock>\n</function>", want: `{0 clock {}}`},
		{name: "function in prose", text: "the <function=clock> tag, <function=rm></function>", want: "the <function=clock> tag, <function=rm></function>"},
		{name: "parameter not closed", text: "<tool_call>\n<function=weather>\n<parameter=city>\nUlm\n</function>\n</tool_call>\nb", want: `{0 weather {"city":"Ulm"}}b`},
		{name: "empty parameter not closed", text: "<tool_call>\n<function=weather>\n<parameter=city>\n</function>\n</tool_call>", want: `{0 weather {"city":""}}`},
		{name: "parameter not closed at the end", text: "<tool_call>\n<function=weather>\n<parameter=city>\nUlm\n</function>\n", want: `{0 weather {"city":"Ulm"}}`},
		{name: "first parameter not closed", text: "<tool_call>\n<function=weather>\n<parameter=city>\nUlm\n<parameter=days>\n3\n<parameter=now>\ntrue\n</parameter>\n</function>\n</tool_call>", want: `{0 weather {"city":"Ulm","days":3,"now":true}}`},
		{name: "no such parameter", text: param("city", "a\n<parameter=x>\nb\n<parameter=city>\nc"), want: `{0 weather {"city":"a\n<parameter=x>\nb\n<parameter=city>\nc"}}`},
		{name: "function's end in a value", text: param("city", "a\n</function>\nb"), want: `{0 weather {"city":"a\n</function>\nb"}}`},
		{name: "a name with a space", text: "<tool_call><function=weather><parameter=city: Ulm</parameter></function>", want: "{0 weather !}<tool_call><function=weather><parameter=city: Ulm</parameter></function>"},
		{name: "nothing closed", text: "<tool_call><function=clock></tool_call>", want: `{0 clock {}}`},
		{name: "tags in a value", text: param("city", "a</parameter>b <parameter=x></function>\n</tool_call>\n</parameter>"), want: `{0 weather {"city":"a</parameter>b <parameter=x></function>\n</tool_call>\n</parameter>"}}`},
		{name: "nearly the end", text: param("city", "a\n\n</parameter>\n</p</parameter>\n</parameter"), want: `{0 weather {"city":"a\n\n</parameter>\n</p</parameter>\n</parameter"}}`},
		{name: "white space in a value", text: param("city", "\n  a\tb\r\n\"\\\x01 ä\n"), want: `{0 weather {"city":"\n  a\tb\r\n\"\\\u0001 ä\n"}}`},
		{name: "empty value", text: param("city", ""), want: `{0 weather {"city":""}}`},
		{name: "integer", text: param("days", "-3"), want: `{0 weather {"days":-3}}`},
		{name: "number", text: param("limit", " 2.5e3 "), want: `{0 weather {"limit":2.5e3}}`},
		{name: "no number", text: param("days", "three"), want: `{0 weather {"days":"three"}}`},
		{name: "no JSON number", text: param("days", "007"), want: `{0 weather {"days":"007"}}`},
		{name: "number for a list", text: param("list", "1"), want: `{0 weather {"list":"1"}}`},
		{name: "boolean", text: param("now", "true"), want: `{0 weather {"now":true}}`},
		{name: "Python's boolean", text: param("now", "False"), want: `{0 weather {"now":false}}`},
		{name: "object", text: param("spot", `{"a": [1, {}]}`), want: `{0 weather {"spot":{"a": [1, {}]}}}`},
		{name: "list", text: param("list", "[\n1\n]"), want: "{0 weather {\"list\":[\n1\n]}}"},
		{name: "broken list", text: param("list", "[1"), want: `{0 weather {"list":"[1"}}`},
		{name: "null", text: param("gone", "None"), want: `{0 weather {"gone":null}}`},
		{name: "enum", text: param("unit", "C"), want: `{0 weather {"unit":"C"}}`},
		{name: "const", text: param("one", "1"), want: `{0 weather {"one":1}}`},
		{name: "null or string", text: param("either", "null"), want: `{0 weather {"either":null}}`},
		{name: "string or null", text: param("either", `"5"`), want: `{0 weather {"either":"\"5\""}}`},
		{name: "integer or string", text: param("count", "5"), want: `{0 weather {"count":5}}`},
		{name: "string or integer", text: param("count", "five"), want: `{0 weather {"count":"five"}}`},
		{name: "any type", text: param("any", "5"), want: `{0 weather {"any":"5"}}`},
		{name: "endless reference", text: param("loop", "5"), want: `{0 weather {"loop":"5"}}`},
		{name: "unknown parameter", text: param(`ü"`, "5"), want: `{0 weather {"ü\"":"5"}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := chat.SplitterOptions{Thinking: c.thinking, Tools: []json.RawMessage{weather, clock}}
			require.Equal(t, c.want, shown(split(t, o, c.text, whole)))
			require.Equal(t, c.want, shown(split(t, o, c.text, func(int) bool { return true })), "byte by byte")
			rng := rand.New(rand.NewPCG(1, uint64(len(c.text))))
			for range 20 {
				require.Equal(t, c.want, shown(split(t, o, c.text, func(at int) bool { return utf8.RuneStart(c.text[at]) && rng.IntN(4) == 0 })))
			}
		})
	}
}

// Without tools nothing is a call.
func TestSplitterWithoutTools(t *testing.T) {
	require.Equal(t, "[a]"+jsonCall+xmlCall, shown(split(t, chat.SplitterOptions{Thinking: true}, "a</think>\n\n"+jsonCall+xmlCall, whole)))
}

func TestSplitterTools(t *testing.T) {
	for _, tool := range []string{`{}`, `[]`, `{"function":{}}`, `{"name":1}`} {
		_, err := chat.NewSplitter(&chat.SplitterOptions{Tools: []json.RawMessage{clock, json.RawMessage(tool)}})
		require.ErrorIs(t, err, chat.ErrTool)
		require.ErrorContains(t, err, "tool 1")
	}
	names, err := chat.ToolNames([]json.RawMessage{weather, clock})
	require.NoError(t, err)
	require.Equal(t, []string{"weather", "clock"}, names)
}

// What is certain is given at once: text as it comes, a call as soon as its
// name is known, its arguments piece by piece.
func TestSplitterDelay(t *testing.T) {
	s, err := chat.NewSplitter(&chat.SplitterOptions{Thinking: true, Tools: []json.RawMessage{weather}})
	require.NoError(t, err)
	for _, step := range []struct{ push, want string }{
		{"wh", "[wh]"},
		{"y\n", "[y]"},
		{"so", "[\nso]"},
		{"</", ""},
		{"think>", ""},
		{"\n\n", ""},
		{"Hi", "Hi"},
		{" <", " "},
		{"b>", "<b>"},
		{"<tool_call>", ""},
		{"\n{\"name\": \"wea", ""},
		{"ther\", \"arguments\":", ""},
		{" {\"", "{0 weather {\""},
		{"city\": \"U", "city\": \"U"},
		{"lm\"}", "lm\"}"},
		{"}", "}"},
		{"\n</tool_call>\n<tool_call>\n<function=weather", ""},
		{">", ""},
		{"\n<parameter=", "{1 weather "},
		{"city>", `{"city":"`},
		{"\n", ""},
		{"Ul", "Ul"},
		{"m\n", "m"},
		{"</parameter>\n</fun", ""},
		{"ction>", `"}}`},
	} {
		require.Equal(t, step.want, shown(s.Push(step.push)), "%q", step.push)
	}
}

func TestSplitterThinking(t *testing.T) {
	s, err := chat.NewSplitter(nil)
	require.NoError(t, err)
	for _, step := range []struct {
		push               string
		thinking, mayThink bool
	}{{"\n<thi", false, true}, {"nk>", true, true}, {"a</think", true, true}, {">", false, false}, {"<think>", false, false}} {
		s.Push(step.push)
		require.Equal(t, step.thinking, s.Thinking())
		require.Equal(t, step.mayThink, s.MayThink())
	}
}

// jsonTemplate writes assistant turns as Qwen3 does.
const jsonTemplate = `{%- for message in messages -%}{%- if message.role == 'assistant' -%}
{{- '<think>\n' ~ message.reasoning_content ~ '\n</think>\n\n' ~ message.content -}}
{%- for call in message.tool_calls or [] -%}{%- if not loop.first or message.content -%}{{- '\n' -}}{%- endif -%}
{{- '<tool_call>\n{"name": "' ~ call.function.name ~ '", "arguments": ' ~ (call.function.arguments | tojson) ~ '}\n</tool_call>' -}}
{%- endfor -%}{%- endif -%}{%- endfor -%}`

// What a template writes for a turn with calls is split into the same turn.
func TestSplitterRoundTrip(t *testing.T) {
	inXML, err := chat.Load(filepath.Join("../../testdata", pairs[0], "target"))
	require.NoError(t, err)
	inJSON, err := chat.Parse(jsonTemplate, nil)
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(3, 4))
	word := func() string {
		parts := []string{"a", "ä", "\n", " ", "\"", "\\", "<", "</parameter>-", "</function>.", "{", "}", "<tool_call>", "</tool_call>", "\t", "😀", "1", "true", "null"}
		var b strings.Builder
		b.WriteString("x")
		for range rng.IntN(6) {
			b.WriteString(parts[rng.IntN(len(parts))])
		}
		return b.String() + "."
	}
	for range 300 {
		reasoning := word()
		m := chat.Message{Role: chat.RoleAssistant, ReasoningContent: &reasoning}
		if rng.IntN(2) == 0 {
			m.Content = "Some text."
		}
		for range 1 + rng.IntN(3) {
			values := map[string]any{
				"city": word(), "days": rng.IntN(100) - 50, "limit": rng.Float64(), "now": rng.IntN(2) == 0, "gone": nil,
				"spot": map[string]any{"a": word(), "b": []any{1.5, nil}}, "list": []any{word(), 3}, "unit": "C", "either": nil,
			}
			for name := range values {
				if rng.IntN(2) == 0 {
					delete(values, name)
				}
			}
			arguments, err := json.Marshal(values)
			require.NoError(t, err)
			m.ToolCalls = append(m.ToolCalls, chat.ToolCall{Name: "weather", Arguments: arguments})
		}
		for _, template := range []*chat.Template{inXML, inJSON} {
			text, err := template.Render([]chat.Message{m}, nil)
			require.NoError(t, err)
			_, text, _ = strings.Cut(text, "<think>")
			text, _, _ = strings.Cut("<think>"+text, "<|im_end|>")
			var r chat.Reply
			r.Add(split(t, chat.SplitterOptions{Tools: []json.RawMessage{weather}}, text, func(int) bool { return rng.IntN(9) == 0 })...)
			got := r.Message()
			require.Equal(t, m.Content, got.Content, text)
			require.Equal(t, reasoning, *got.ReasoningContent, text)
			require.Len(t, got.ToolCalls, len(m.ToolCalls), text)
			for i, call := range got.ToolCalls {
				require.Equal(t, "weather", call.Name)
				require.JSONEq(t, string(m.ToolCalls[i].Arguments), string(call.Arguments), text)
			}
		}
	}
}

// checkSplit holds what is true of any text: the same deltas however it is cut,
// valid pieces, whole calls with a JSON object, and nothing lost: the content
// of a text that is no call and no thought is the text.
func checkSplit(tb testing.TB, text string, thinking bool, seed uint64) {
	tb.Helper()
	o := chat.SplitterOptions{Thinking: thinking, Tools: []json.RawMessage{weather, clock}}
	rng := rand.New(rand.NewPCG(seed, 7))
	deltas := split(tb, o, text, whole)
	cut := split(tb, o, text, func(at int) bool { return utf8.RuneStart(text[at]) && rng.IntN(3) == 0 })
	require.Equal(tb, shown(deltas), shown(cut))
	open, arguments := false, ""
	calls, thought := 0, thinking
	for i, d := range cut {
		require.True(tb, utf8.ValidString(d.Text) || !utf8.ValidString(text), "%q", d.Text)
		require.False(tb, d.Text == "" && d.Name == "" && d.End == chat.CallOpen, "an empty delta")
		thought = thought || d.Kind == chat.DeltaReasoning
		if d.Kind != chat.DeltaToolCall {
			require.False(tb, open, "%d", i)
			continue
		}
		require.Equal(tb, calls, d.Call)
		require.Equal(tb, d.Name != "", !open)
		open = d.End == chat.CallOpen
		arguments += d.Text
		if d.End == chat.CallDone {
			require.True(tb, json.Valid([]byte(arguments)), arguments)
			require.Equal(tb, byte('{'), arguments[0])
		}
		if !open {
			calls++
			arguments = ""
		}
	}
	require.False(tb, open)
	var r chat.Reply
	r.Add(cut...)
	if m := r.Message(); len(m.ToolCalls) == 0 && !thought && !strings.Contains(text, "<think>") {
		require.Equal(tb, text, m.Content)
	}
}

func TestSplitterAnyText(t *testing.T) {
	parts := []string{
		"<think>", "</think>", "<tool_call>", "</tool_call>", "<function=weather>", "<function=clock>", "</function>", "<parameter=city>", "<parameter=days>", "</parameter>",
		"\n", "\n", " ", "{", "}", `{"name": "clock"`, `, "arguments": {"a": 1}`, "}", `"`, "\\", "1", "ä", "text", "<", ">", "[", "]", ",", ":", "null", jsonCall, xmlCall,
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range 4000 {
		var b strings.Builder
		for range rng.IntN(16) {
			part := parts[rng.IntN(len(parts))]
			if rng.IntN(8) == 0 && len(part) > 1 && part != "ä" {
				part = part[:1+rng.IntN(len(part)-1)]
			}
			b.WriteString(part)
		}
		checkSplit(t, b.String(), i%2 == 0, uint64(i))
	}
}

func FuzzSplitter(f *testing.F) {
	f.Add(jsonCall, false)
	f.Add("why</think>"+xmlCall, true)
	f.Fuzz(func(t *testing.T, text string, thinking bool) { checkSplit(t, text, thinking, 1) })
}

// Long runs of what may become a tag, or of what may end a value, are held and
// read again, but not again and again: the memory that this takes in all grows
// with the text, not with its square.
func TestSplitterLong(t *testing.T) {
	const n = 1 << 18
	for _, text := range []string{
		strings.Repeat("\n", n), strings.Repeat("<", n), strings.Repeat("</think", n/8),
		"<tool_call>" + strings.Repeat(" ", n), "<tool_call>" + strings.Repeat("{\"a\":", n/5),
		"<tool_call><function=weather><parameter=city>" + strings.Repeat("\n</parameter>", n/13),
		"<tool_call><function=weather><parameter=city>" + strings.Repeat("</parameter>\n\n</p", n/17),
		"<tool_call><function=weather><parameter=city>" + strings.Repeat("\n<parameter=days\n</function>\n</", n/32),
		"<tool_call><function=weather><parameter=city>" + strings.Repeat("\n</function>", n/12) + "x",
		"<tool_call><function=weather><parameter=city></parameter>" + strings.Repeat("\n", n),
		`<tool_call>{"name":"clock","arguments":{"a":` + strings.Repeat("[", n),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		deltas := split(t, chat.SplitterOptions{Thinking: true, Tools: []json.RawMessage{weather, clock}}, "</think>x"+text, func(at int) bool { return at%7 == 0 })
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(200*n), "%.60q", text)
		got := shown(deltas)
		require.True(t, strings.HasSuffix(got, text), "%.40q", text)
	}
}
