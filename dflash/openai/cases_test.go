package openai_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/dflash/dflashtest"
	"github.com/godflash/godflash/dflash/openai"
)

// Case 100: no answer names a folder of the machine, also where an engine's
// error does, before the first token and after it.
func TestNoFolders(t *testing.T) {
	about := dflash.Info{Dir: "/secret/pair/target", DraftDir: "/secret/pair/target/draft"}
	failure := fmt.Errorf("%w: the template in %s and the head in %s", dflash.ErrUnsupported, about.Dir, about.DraftDir)
	for name, engine := range map[string]*dflashtest.Engine{
		"before":      {About: about, Check: func(dflash.Request) error { return failure }},
		"first token": {About: about, Script: dflashtest.Always(dflashtest.Step{Err: failure})},
		"later":       {About: about, Script: dflashtest.Always(dflashtest.Step{Text: "a"}, dflashtest.Step{Err: failure})},
	} {
		w := serve(t, engine, openai.Options{Model: "m"})
		for _, stream := range []bool{false, true} {
			a := w.post(chatPath, ask(object{"stream": stream}))
			require.NotContains(t, a.text, "secret", name)
			require.Contains(t, a.text, "the template in m and the head in the drafter", name)
		}
		require.NotContains(t, w.do("GET", "/health", "").text+w.do("GET", "/v1/models", "").text, "secret", name)
	}
}

// Case 97: usage comes in a stream only where it was asked for, and then once,
// on a chunk without choices before the end.
func TestStreamUsage(t *testing.T) {
	w, _ := script(t, dflashtest.Content("a", "b")...)
	for _, options := range []any{nil, object{}, object{"include_usage": false}, object{"include_usage": true}} {
		a := w.post(chatPath, ask(object{"stream": true, "stream_options": options}))
		require.Equal(t, 200, a.status, a.text)
		data, names, _ := events(t, a.text)
		require.Equal(t, "[DONE]", names[len(names)-1])
		usages := 0
		for i, chunk := range data {
			last := i == len(data)-1 && strings.Contains(fmt.Sprint(options), "true")
			require.Equal(t, last, len(anyList(chunk["choices"])) == 0, "%v: %v", options, chunk)
			require.Equal(t, last, chunk["usage"] != nil, "%v: %v", options, chunk)
			if chunk["usage"] != nil {
				usages++
			}
		}
		require.Equal(t, strings.Count(fmt.Sprint(options), "true"), usages)
	}
}

// Cases 16 and 25: a reply that ends inside its thought says so: no content, no
// call, reason stop; and no more reasoning tokens than tokens.
func TestReplyOfThought(t *testing.T) {
	w, _ := script(t, dflashtest.Reasoning("a", "b")...)
	a := w.post(chatPath, ask(nil))
	v := a.json(t)
	require.Equal(t, "ab", at(t, v, "choices", 0, "message", "reasoning_content"))
	require.Equal(t, "", at(t, v, "choices", 0, "message", "content"))
	require.Equal(t, "stop", at(t, v, "choices", 0, "finish_reason"))
	require.Equal(t, 2., at(t, v, "usage", "completion_tokens_details", "reasoning_tokens"))
	require.Equal(t, 3., at(t, v, "usage", "completion_tokens"))
	data, _, _ := events(t, w.post(chatPath, ask(object{"stream": true})).text)
	content := ""
	for _, chunk := range data {
		if text, ok := at(t, chunk, "choices", 0, "delta").(object)["content"].(string); ok {
			content += text
		}
	}
	require.Empty(t, content)
	require.Equal(t, "stop", at(t, data[len(data)-1], "choices", 0, "finish_reason"))
}

// Case 117: an answer to a call that was never made, in each form of the API.
func TestOrphanResults(t *testing.T) {
	w, engine := script(t)
	call := object{"role": "assistant", "content": nil, "tool_calls": []object{{"id": "a", "type": "function", "function": object{"name": "f", "arguments": "{}"}}}}
	result := func(id any) object { return object{"role": "tool", "tool_call_id": id, "content": "x"} }
	for _, messages := range [][]object{
		{result("b")}, {call, result("b")}, {call, result("")}, {call, result(nil)}, {call, {"role": "tool", "content": "x"}}, {result("a"), call},
	} {
		a := w.post(chatPath, object{"messages": slices.Concat(user("u"), messages)})
		require.Equal(t, 400, a.status, "%v: %s", messages, a.text)
		require.Contains(t, at(t, a.json(t), "error", "param"), "tool_call_id")
	}
	a := w.post("/v1/responses", object{"input": []object{{"role": "user", "content": "u"}, {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}, {"type": "function_call_output", "call_id": "b", "output": "x"}}})
	require.Equal(t, 400, a.status, a.text)
	a = w.post("/v1/messages", claudeAsk(object{"messages": []object{
		{"role": "user", "content": "u"},
		{"role": "assistant", "content": []object{{"type": "tool_use", "id": "a", "name": "f", "input": object{}}}},
		{"role": "user", "content": []object{{"type": "tool_result", "tool_use_id": "b", "content": "x"}}},
	}}))
	require.Equal(t, 400, a.status, a.text)
	require.Empty(t, engine.Requests())
	require.Equal(t, 200, w.post(chatPath, object{"messages": slices.Concat(user("u"), []object{call, result("a")})}).status)
}
