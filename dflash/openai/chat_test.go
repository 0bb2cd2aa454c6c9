package openai_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/dflash/dflashtest"
	"github.com/godflash/godflash/dflash/openai"
	"github.com/godflash/godflash/qwen/chat"
)

// weather is a reply with a thought, text and two calls.
var weather = slices.Concat(
	dflashtest.Reasoning("I should ", "look."),
	dflashtest.Content("One ", "moment."),
	dflashtest.Call(0, "get_weather", `{"city":`, ` "Bern"}`),
	dflashtest.Call(1, "get_weather", `{"city": "Basel"}`),
)

var weatherTools = []object{{"type": "function", "function": object{"name": "get_weather", "parameters": object{"type": "object"}}}}

func TestChatWhole(t *testing.T) {
	steps := dflashtest.Content("Hel", "lo")
	steps[1].Drafted = true
	w, engine := script(t, steps...)
	a := w.post(chatPath, ask(object{"max_tokens": 9, "temperature": 0}))
	require.Equal(t, 200, a.status, a.text)
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	v := a.json(t)
	require.Equal(t, "chat.completion", v["object"])
	require.Equal(t, "default", v["model"])
	require.Contains(t, v["id"], "chatcmpl-")
	require.Equal(t, []any{object{
		"index": 0., "finish_reason": "stop", "logprobs": nil,
		"message": object{"role": "assistant", "content": "Hello", "refusal": nil},
	}}, v["choices"])
	require.Equal(t, object{
		"prompt_tokens": 2., "completion_tokens": 3., "total_tokens": 5.,
		"prompt_tokens_details": object{"cached_tokens": 0.}, "completion_tokens_details": object{"reasoning_tokens": 0.},
	}, v["usage"])
	require.Equal(t, 2., at(t, v, "timings", "draft_n"))
	require.Equal(t, 1., at(t, v, "timings", "draft_n_accepted"))
	require.Equal(t, 1., at(t, v, "godflash", "cycles"))
	require.Equal(t, []any{1.}, at(t, v, "godflash", "accepted_per_cycle"))
	require.Equal(t, dflash.Request{Messages: []chat.Message{{Role: "user", Content: "hi"}}, MaxTokens: 9}, asked(t, engine))
}

func TestChatStream(t *testing.T) {
	w, _ := script(t, weather...)
	whole := w.post(chatPath, ask(object{"tools": weatherTools})).json(t)
	a := w.post(chatPath, ask(object{"tools": weatherTools, "stream": true, "stream_options": object{"include_usage": true}}))
	require.Equal(t, 200, a.status, a.text)
	require.Equal(t, "text/event-stream", a.header.Get("Content-Type"))
	data, names, _ := events(t, a.text)
	require.Equal(t, "[DONE]", names[len(names)-1])

	var reasoning, content, finish string
	var calls []object
	for i, chunk := range data[:len(data)-1] {
		require.Equal(t, "chat.completion.chunk", chunk["object"])
		require.Equal(t, data[0]["id"], chunk["id"])
		require.Equal(t, data[0]["created"], chunk["created"])
		require.Contains(t, chunk, "usage")
		require.Nil(t, chunk["usage"])
		require.Len(t, chunk["choices"], 1)
		choice := at(t, chunk, "choices", 0).(object)
		require.Contains(t, choice, "finish_reason")
		delta := choice["delta"].(object)
		if i == 0 {
			require.Equal(t, object{"role": "assistant", "content": ""}, delta)
		} else {
			require.NotContains(t, delta, "role")
		}
		if text, ok := delta["reasoning_content"].(string); ok {
			reasoning += text
		}
		if text, ok := delta["content"].(string); ok {
			content += text
		}
		for _, call := range anyList(delta["tool_calls"]) {
			call := call.(object)
			function := call["function"].(object)
			if int(call["index"].(float64)) == len(calls) {
				require.Contains(t, call["id"], "call_")
				require.Equal(t, "function", call["type"])
				require.Equal(t, "", function["arguments"])
				calls = append(calls, object{"name": function["name"], "arguments": ""})
				continue
			}
			require.NotContains(t, call, "id")
			last := calls[len(calls)-1]
			last["arguments"] = last["arguments"].(string) + function["arguments"].(string)
		}
		if reason, ok := choice["finish_reason"].(string); ok {
			finish = reason
			require.Empty(t, delta)
			require.Equal(t, len(data)-2, i, "the reason is on the last chunk with a choice")
		}
	}
	require.Equal(t, "I should look.", reasoning)
	require.Equal(t, "One moment.", content)
	require.Equal(t, "tool_calls", finish)
	require.Equal(t, []object{{"name": "get_weather", "arguments": `{"city": "Bern"}`}, {"name": "get_weather", "arguments": `{"city": "Basel"}`}}, calls)

	last := data[len(data)-1]
	require.Empty(t, last["choices"])
	require.Equal(t, whole["usage"], last["usage"])
	require.Equal(t, 2., at(t, last, "usage", "completion_tokens_details", "reasoning_tokens"))
	// The same reply, whole.
	message := at(t, whole, "choices", 0, "message")
	require.Equal(t, reasoning, at(t, message, "reasoning_content"))
	require.Equal(t, content, at(t, message, "content"))
	for i, call := range calls {
		require.Equal(t, call["arguments"], at(t, message, "tool_calls", i, "function", "arguments"))
	}
}

// asked is the last request that the engine got.
func asked(t testing.TB, engine *dflashtest.Engine) dflash.Request {
	t.Helper()
	requests := engine.Requests()
	require.NotEmpty(t, requests)
	r := requests[len(requests)-1]
	require.NotNil(t, r.Progress, "a long prompt is no standstill")
	r.Progress = nil
	return r
}

func anyList(v any) []any {
	l, _ := v.([]any)
	return l
}

// Case 113: a thought and a call, no content.
func TestChatCallWithoutContent(t *testing.T) {
	w, _ := script(t, slices.Concat(dflashtest.Reasoning("hm"), dflashtest.Call(0, "get_weather", "{}"))...)
	v := w.post(chatPath, ask(object{"tools": weatherTools})).json(t)
	require.Equal(t, "tool_calls", at(t, v, "choices", 0, "finish_reason"))
	require.Nil(t, at(t, v, "choices", 0, "message", "content"))
	require.Equal(t, "hm", at(t, v, "choices", 0, "message", "reasoning_content"))
}

func TestOneCallOnly(t *testing.T) {
	w, engine := script(t, append(slices.Clone(weather), dflashtest.Step{Err: errors.New("never reached")})...)
	for _, stream := range []bool{false, true} {
		a := w.post(chatPath, ask(object{"tools": weatherTools, "parallel_tool_calls": false, "stream": stream}))
		require.Equal(t, 200, a.status)
		require.Equal(t, 1, strings.Count(a.text, `"call_`), a.text)
		require.Contains(t, a.text, `"finish_reason":"tool_calls"`)
		require.NotContains(t, a.text, "Basel")
		require.NotContains(t, a.text, `"error"`)
	}
	require.Zero(t, engine.Running())
}

// A call that the limit cuts is no call to make.
func TestCallCut(t *testing.T) {
	w, _ := script(t, dflashtest.Call(0, "get_weather", `{"a"`, `:1}`)...)
	v := w.post(chatPath, ask(object{"tools": weatherTools, "max_tokens": 2})).json(t)
	require.Equal(t, "length", at(t, v, "choices", 0, "finish_reason"))
	require.NotContains(t, at(t, v, "choices", 0, "message"), "tool_calls")
}

// Case 14: as many log probabilities as tokens, in streams too, where a token
// without text waits for the next chunk.
func TestLogprobs(t *testing.T) {
	steps := []dflashtest.Step{
		{Text: "Hel", LogProb: -0.5, Top: []dflashtest.Alternative{{Text: "Hel", LogProb: -0.5}, {Text: "By", LogProb: -1.5}, {Text: "x", LogProb: -9}}},
		{Text: "\xc3", Deltas: []chat.Delta{}, LogProb: -0.25},
		{Text: "\xa9", Deltas: []chat.Delta{{Text: "é"}}, LogProb: -0.125},
	}
	w, _ := script(t, steps...)
	whole := w.post(chatPath, ask(object{"logprobs": true, "top_logprobs": 2})).json(t)
	list := at(t, whole, "choices", 0, "logprobs", "content").([]any)
	require.Len(t, list, 4)
	require.Equal(t, object{
		"token": "Hel", "logprob": -0.5, "bytes": []any{72., 101., 108.},
		"top_logprobs": []any{
			object{"token": "Hel", "logprob": -0.5, "bytes": []any{72., 101., 108.}},
			object{"token": "By", "logprob": -1.5, "bytes": []any{66., 121.}},
		},
	}, list[0])
	require.Equal(t, []any{195.}, at(t, list[1], "bytes"))
	require.Equal(t, "\uFFFD", at(t, list[1], "token"))
	require.Equal(t, 4., at(t, whole, "usage", "completion_tokens"))

	data, _, _ := events(t, w.post(chatPath, ask(object{"logprobs": true, "top_logprobs": 2, "stream": true})).text)
	var streamed []any
	for _, chunk := range data {
		if l, ok := at(t, chunk, "choices", 0, "logprobs").(object); ok {
			streamed = append(streamed, l["content"].([]any)...)
		}
	}
	require.Equal(t, list, streamed)
}

func TestTokensBehindChunks(t *testing.T) {
	steps := dflashtest.Content("a", "b", "c")
	steps[2].Drafted = true
	w, _ := script(t, steps...)
	data, _, _ := events(t, w.post(chatPath, ask(object{"stream": true, "godflash": object{"tokens": true, "no_draft": true}})).text)
	var drafted []any
	for _, chunk := range data {
		if g, ok := chunk["godflash"].(object); ok {
			for _, token := range anyList(g["tokens"]) {
				drafted = append(drafted, at(t, token, "drafted"))
			}
		}
	}
	require.Equal(t, []any{false, false, true, false}, drafted)
	require.Equal(t, 2., at(t, data[len(data)-1], "godflash", "stats", "cycles"))
}

// Case 108: system messages anywhere. A template that refuses them behind others
// gets them as one, at the front.
func TestSystemAnywhere(t *testing.T) {
	messages := []object{
		{"role": "developer", "content": "A"},
		{"role": "user", "content": "u"},
		{"role": "assistant", "content": "v"},
		{"role": "system", "content": []object{{"type": "text", "text": "B"}}},
		{"role": "user", "content": "w"},
	}
	w, engine := script(t)
	require.Equal(t, 200, w.post(chatPath, object{"messages": messages}).status)
	require.Equal(t, []string{"system A", "user u", "assistant v", "system B", "user w"}, turns(t, engine))

	strict := &dflashtest.Engine{Check: func(r dflash.Request) error {
		if len(r.Messages) > 1 && slices.ContainsFunc(r.Messages[1:], func(m chat.Message) bool { return m.Role == "system" }) {
			return &chat.TemplateError{Message: "System message must be at the beginning."}
		}
		return nil
	}}
	w = serve(t, strict, openai.Options{})
	require.Equal(t, 200, w.post(chatPath, object{"messages": messages}).status)
	require.Equal(t, []string{"system A\n\nB", "user u", "assistant v", "user w"}, turns(t, strict))
}

func turns(t testing.TB, engine *dflashtest.Engine) (list []string) {
	t.Helper()
	for _, m := range asked(t, engine).Messages {
		text, err := m.Text()
		require.NoError(t, err)
		list = append(list, m.Role+" "+text)
	}
	return list
}

// Cases 105 and 106: null, parts, and a tool result that is JSON text.
func TestContentForms(t *testing.T) {
	w, engine := script(t)
	a := w.post(chatPath, object{"messages": []object{
		{"role": "user", "content": []object{{"type": "text", "text": "a "}, {"type": "text", "text": "b", "cache_control": object{}}}, "extra": 1},
		{"role": "assistant", "content": nil, "reasoning": "why", "tool_calls": []object{{"id": "c1", "type": "function", "function": object{"name": "f", "arguments": `{"x":1}`}}}},
		{"role": "tool", "tool_call_id": "c1", "content": `[{"a":1}]`},
		{"role": "assistant", "content": "", "refusal": nil},
		{"role": "user", "content": ""},
	}})
	require.Equal(t, 200, a.status, a.text)
	require.Equal(t, []string{"user a b", "assistant ", `tool [{"a":1}]`, "assistant ", "user "}, turns(t, engine))
	m := engine.Requests()[0].Messages
	require.Equal(t, "why", *m[1].ReasoningContent)
	require.Nil(t, m[0].Fields)
	require.Nil(t, m[0].Parts[1].Fields)
	require.Equal(t, []chat.ToolCall{{ID: "c1", Name: "f", Arguments: []byte(`"{\"x\":1}"`)}}, m[1].ToolCalls)
}
