package openai_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/dflash/dflashtest"
	"github.com/godflash/godflash/dflash/openai"
	"github.com/godflash/godflash/qwen/chat"
)

func TestCompletions(t *testing.T) {
	steps := []dflashtest.Step{{Text: "é", LogProb: -1, Top: []dflashtest.Alternative{{Text: "é", LogProb: -1}}}, {Text: "<think>b", LogProb: -2}}
	w, engine := script(t, steps...)
	v := w.post("/v1/completions", object{"prompt": "hi <|im_end|>", "logprobs": 1}).json(t)
	require.Equal(t, "text_completion", v["object"])
	require.Equal(t, "<|im_end|>", strings.Fields(asked(t, engine).Text)[1])
	require.Equal(t, []any{object{
		"index": 0., "text": "é<think>b", "finish_reason": "stop",
		"logprobs": object{"tokens": []any{"é", "<think>b", ""}, "token_logprobs": []any{-1., -2., 0.}, "top_logprobs": []any{object{"é": -1.}, object{}, object{}}, "text_offset": []any{0., 1., 9.}},
	}}, v["choices"])

	data, names, _ := events(t, w.post("/v1/completions", object{"prompt": "hi", "stream": true, "stream_options": object{"include_usage": true}}).text)
	require.Equal(t, "[DONE]", names[len(names)-1])
	text := ""
	for _, chunk := range data[:len(data)-1] {
		text += at(t, chunk, "choices", 0, "text").(string)
	}
	require.Equal(t, "é<think>b", text)
	require.Equal(t, "stop", at(t, data[len(data)-2], "choices", 0, "finish_reason"))
	require.Equal(t, v["usage"].(object)["completion_tokens"], at(t, data[len(data)-1], "usage", "completion_tokens"))
}

func claudeAsk(more object) object {
	all := object{"model": "default", "max_tokens": 100, "messages": user("hi")}
	for k, v := range more {
		all[k] = v
	}
	return all
}

func TestMessages(t *testing.T) {
	w, _ := script(t, weather...)
	tools := []object{{"name": "get_weather", "input_schema": object{"type": "object"}}}
	whole := w.post("/v1/messages", claudeAsk(object{"tools": tools})).json(t)
	require.Equal(t, "message", whole["type"])
	require.Equal(t, "tool_use", whole["stop_reason"])
	content := whole["content"].([]any)
	for _, block := range content {
		if id, ok := block.(object)["id"]; ok {
			require.Contains(t, id, "call_")
			delete(block.(object), "id")
		}
	}
	require.Equal(t, []any{
		object{"type": "thinking", "thinking": "I should look.", "signature": ""},
		object{"type": "text", "text": "One moment."},
		object{"type": "tool_use", "name": "get_weather", "input": object{"city": "Bern"}},
		object{"type": "tool_use", "name": "get_weather", "input": object{"city": "Basel"}},
	}, content)
	require.Equal(t, object{"input_tokens": 2., "output_tokens": 12., "cache_read_input_tokens": 0., "cache_creation_input_tokens": 0.}, whole["usage"])

	data, names, _ := events(t, w.post("/v1/messages", claudeAsk(object{"tools": tools, "stream": true})).text)
	require.Equal(t, []string{"message_start", "ping", "content_block_start"}, names[:3])
	require.Equal(t, []string{"content_block_stop", "message_delta", "message_stop"}, names[len(names)-3:])
	require.Equal(t, 2., at(t, data[0], "message", "usage", "input_tokens"))
	var blocks []object
	open := -1
	for i, v := range data {
		require.Equal(t, names[i], v["type"])
		switch v["type"] {
		case "content_block_start":
			require.Equal(t, -1, open, "one block at a time")
			open = int(v["index"].(float64))
			require.Equal(t, len(blocks), open)
			block := v["content_block"].(object)
			delete(block, "id")
			block["input"] = ""
			blocks = append(blocks, block)
		case "content_block_delta":
			require.Equal(t, float64(open), v["index"])
			for from, to := range map[string]string{"text": "text", "thinking": "thinking", "partial_json": "input"} {
				if piece, ok := at(t, v, "delta", from).(string); ok {
					blocks[open][to] = blocks[open][to].(string) + piece
				}
			}
		case "content_block_stop":
			require.Equal(t, float64(open), v["index"])
			open = -1
		}
	}
	for i, block := range blocks {
		if input := block["input"].(string); input != "" {
			var v any
			require.NoError(t, json.Unmarshal([]byte(input), &v))
			block["input"] = v
		} else {
			delete(block, "input")
		}
		require.Equal(t, content[i], any(block))
	}
	require.Len(t, blocks, 4)
	last := data[len(data)-2]
	require.Equal(t, "tool_use", at(t, last, "delta", "stop_reason"))
	require.Equal(t, whole["usage"], last["usage"])
}

func TestMessagesStopReasons(t *testing.T) {
	for name, c := range map[string]struct {
		steps  []dflashtest.Step
		reason string
		stop   any
	}{
		"end":   {dflashtest.Content("a"), "end_turn", nil},
		"limit": {dflashtest.Content(slices.Repeat([]string{"x"}, 200)...), "max_tokens", nil},
		"text":  {[]dflashtest.Step{{Text: "a", Finish: dflash.FinishStop, StopText: "END"}}, "stop_sequence", "END"},
	} {
		w, _ := script(t, c.steps...)
		v := w.post("/v1/messages", claudeAsk(nil)).json(t)
		require.Equal(t, c.reason, v["stop_reason"], name)
		require.Equal(t, c.stop, v["stop_sequence"], name)
		data, _, _ := events(t, w.post("/v1/messages", claudeAsk(object{"stream": true})).text)
		require.Equal(t, c.reason, at(t, data[len(data)-2], "delta", "stop_reason"), name)
		require.Equal(t, c.stop, at(t, data[len(data)-2], "delta", "stop_sequence"), name)
	}
}

func TestMessagesTurns(t *testing.T) {
	w, engine := script(t)
	a := w.post("/v1/messages", claudeAsk(object{"system": "S", "messages": []object{
		{"role": "user", "content": "q"},
		{"role": "assistant", "content": []object{
			{"type": "thinking", "thinking": "hm", "signature": "x"},
			{"type": "redacted_thinking", "data": "z"},
			{"type": "text", "text": "let me"},
			{"type": "tool_use", "id": "t1", "name": "f", "input": object{"b": 1, "a": 2}},
			{"type": "tool_use", "id": "t2", "name": "g", "input": object{}},
		}},
		{"role": "user", "content": []object{
			{"type": "tool_result", "tool_use_id": "t1", "content": "r1"},
			{"type": "tool_result", "tool_use_id": "t2", "content": []object{{"type": "text", "text": "r2"}}, "is_error": true},
			{"type": "text", "text": "and?", "cache_control": object{"type": "ephemeral"}},
		}},
	}}))
	require.Equal(t, 200, a.status, a.text)
	require.Equal(t, []string{"system S", "user q", "assistant let me", "tool r1", "tool r2", "user and?"}, turns(t, engine))
	m := asked(t, engine).Messages[2]
	require.Equal(t, "hm", *m.ReasoningContent)
	require.Equal(t, "t1", m.ToolCalls[0].ID)
	require.JSONEq(t, `{"a":2,"b":1}`, string(m.ToolCalls[0].Arguments))
}

func TestCountTokens(t *testing.T) {
	w, engine := script(t)
	require.Equal(t, object{"input_tokens": 3.}, w.post("/v1/messages/count_tokens", object{"messages": user("two words")}).json(t))
	require.Empty(t, engine.Requests(), "nothing is generated")
	a := w.post("/v1/messages/count_tokens", object{"messages": []any{}})
	require.Equal(t, 400, a.status)
	require.Equal(t, "error", a.json(t)["type"])
}

func TestAnthropicErrors(t *testing.T) {
	w := serve(t, &dflashtest.Engine{}, openai.Options{APIKey: "k", MaxBody: 1000})
	for status, c := range map[int]struct {
		key, body, kind string
	}{
		401: {"x", `{}`, "authentication_error"},
		400: {"k", `{}`, "invalid_request_error"},
		404: {"k", `{"model":"other","max_tokens":1,"messages":[{"role":"user","content":"x"}]}`, "not_found_error"},
		413: {"k", strings.Repeat(" ", 1001), "request_too_large"},
	} {
		a := w.do("POST", "/v1/messages", c.body, "X-Api-Key", c.key, "Content-Type", "application/json")
		require.Equal(t, status, a.status, a.text)
		v := a.json(t)
		require.Equal(t, "error", v["type"])
		require.Equal(t, c.kind, at(t, v, "error", "type"))
		require.NotEmpty(t, at(t, v, "error", "message"))
		require.Equal(t, a.header.Get("X-Request-Id"), v["request_id"])
	}
}

func TestResponses(t *testing.T) {
	w, _ := script(t, weather...)
	tools := []object{{"type": "function", "name": "get_weather", "parameters": object{"type": "object"}}}
	whole := w.post("/v1/responses", object{"input": "hi", "tools": tools}).json(t)
	require.Equal(t, "response", whole["object"])
	require.Equal(t, "completed", whole["status"])
	output := withoutIDs(whole["output"].([]any))
	require.Equal(t, []any{
		object{"type": "reasoning", "status": "completed", "summary": []any{}, "content": []any{object{"type": "reasoning_text", "text": "I should look."}}},
		object{"type": "message", "status": "completed", "role": "assistant", "content": []any{object{"type": "output_text", "text": "One moment.", "annotations": []any{}, "logprobs": []any{}}}},
		object{"type": "function_call", "status": "completed", "name": "get_weather", "arguments": `{"city": "Bern"}`},
		object{"type": "function_call", "status": "completed", "name": "get_weather", "arguments": `{"city": "Basel"}`},
	}, output)
	require.Equal(t, 14., at(t, whole, "usage", "total_tokens"))
	require.Equal(t, 2., at(t, whole, "usage", "output_tokens_details", "reasoning_tokens"))

	data, names, _ := events(t, w.post("/v1/responses", object{"input": "hi", "tools": tools, "stream": true}).text)
	require.Equal(t, []string{"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added", "response.reasoning_text.delta"}, names[:5])
	require.Equal(t, "response.completed", names[len(names)-1])
	ids, text, arguments := map[float64]any{}, map[any]string{}, map[any]string{}
	for i, v := range data {
		require.Equal(t, names[i], v["type"])
		require.Equal(t, float64(i), v["sequence_number"])
		switch v["type"] {
		case "response.output_item.added":
			index := v["output_index"].(float64)
			require.Equal(t, float64(len(ids)), index)
			ids[index] = at(t, v, "item", "id")
			require.Equal(t, "in_progress", at(t, v, "item", "status"))
		case "response.output_text.delta", "response.reasoning_text.delta":
			require.Equal(t, ids[v["output_index"].(float64)], v["item_id"])
			text[v["item_id"]] += v["delta"].(string)
		case "response.output_text.done", "response.reasoning_text.done":
			require.Equal(t, text[v["item_id"]], v["text"])
		case "response.function_call_arguments.delta":
			arguments[v["item_id"]] += v["delta"].(string)
		case "response.function_call_arguments.done":
			require.Equal(t, arguments[v["item_id"]], v["arguments"])
		case "response.output_item.done":
			require.Equal(t, ids[v["output_index"].(float64)], at(t, v, "item", "id"))
		}
	}
	require.Len(t, ids, 4)
	require.Len(t, arguments, 2)
	require.Equal(t, output, withoutIDs(at(t, data[len(data)-1], "response", "output").([]any)))
	require.Equal(t, whole["usage"], at(t, data[len(data)-1], "response", "usage"))
}

func withoutIDs(items []any) []any {
	for _, item := range items {
		delete(item.(object), "id")
		delete(item.(object), "call_id")
	}
	return items
}

func TestResponsesEnds(t *testing.T) {
	w, _ := script(t, dflashtest.Content("a", "b", "c")...)
	v := w.post("/v1/responses", object{"input": "hi", "max_output_tokens": 2}).json(t)
	require.Equal(t, "incomplete", v["status"])
	require.Equal(t, "max_output_tokens", at(t, v, "incomplete_details", "reason"))
	require.Equal(t, "incomplete", at(t, v, "output", 0, "status"))
	_, names, _ := events(t, w.post("/v1/responses", object{"input": "hi", "max_output_tokens": 2, "stream": true}).text)
	require.Equal(t, "response.incomplete", names[len(names)-1])

	w, _ = script(t, dflashtest.Step{Text: "a"}, dflashtest.Step{Panic: "x"})
	data, names, _ := events(t, w.post("/v1/responses", object{"input": "hi", "stream": true}).text)
	require.Equal(t, "response.failed", names[len(names)-1])
	require.Equal(t, "server_error", at(t, data[len(data)-1], "response", "error", "code"))

	w, _ = script(t, dflashtest.Step{Text: "a"}, dflashtest.Step{Panic: "x"})
	_, names, _ = events(t, w.post("/v1/messages", claudeAsk(object{"stream": true})).text)
	require.Equal(t, "error", names[len(names)-1])
}

func TestResponsesInput(t *testing.T) {
	w, engine := script(t)
	a := w.post("/v1/responses", object{"instructions": "S", "input": []object{
		{"type": "message", "role": "developer", "content": []object{{"type": "input_text", "text": "D"}}},
		{"role": "user", "content": "q"},
		{"type": "reasoning", "id": "rs_1", "summary": []any{}, "content": []object{{"type": "reasoning_text", "text": "hm"}}},
		{"type": "message", "role": "assistant", "content": []object{{"type": "output_text", "text": "look"}}},
		{"type": "function_call", "call_id": "c1", "name": "f", "arguments": `{"x":1}`},
		{"type": "function_call", "call_id": "c2", "name": "g", "arguments": `{}`},
		{"type": "function_call_output", "call_id": "c1", "output": "r1"},
		{"type": "function_call_output", "call_id": "c2", "output": []object{{"type": "input_text", "text": "r2"}}},
		{"role": "assistant", "content": "so"},
		{"role": "user", "content": "more"},
	}})
	require.Equal(t, 200, a.status, a.text)
	require.Equal(t, []string{"system S", "system D", "user q", "assistant look", "tool r1", "tool r2", "assistant so", "user more"}, turns(t, engine))
	m := asked(t, engine).Messages[3]
	require.Equal(t, "hm", *m.ReasoningContent)
	require.Equal(t, []chat.ToolCall{{ID: "c1", Name: "f", Arguments: json.RawMessage(`"{\"x\":1}"`)}, {ID: "c2", Name: "g", Arguments: json.RawMessage(`"{}"`)}}, m.ToolCalls)
}

// Case 116: what turns out to be no call is content. A stream that began it
// does not end as if it were one.
func TestBrokenCall(t *testing.T) {
	steps := dflashtest.Call(0, "get_weather", `{"city":`)
	steps[len(steps)-1] = dflashtest.Step{Text: "x", Deltas: []chat.Delta{{Kind: chat.DeltaToolCall, End: chat.CallBroken}, {Kind: chat.DeltaContent, Text: `<tool_call>{"city":x`}}}
	good := dflashtest.Call(1, "get_weather", `{}`)
	for _, c := range []struct {
		steps  []dflashtest.Step
		reason string
		calls  int
	}{{steps, "stop", 0}, {slices.Concat(steps, good), "tool_calls", 1}} {
		w, _ := script(t, c.steps...)
		v := w.post(chatPath, ask(object{"tools": weatherTools})).json(t)
		require.Equal(t, c.reason, at(t, v, "choices", 0, "finish_reason"))
		require.Equal(t, `<tool_call>{"city":x`, at(t, v, "choices", 0, "message", "content"))
		require.Len(t, anyList(at(t, v, "choices", 0, "message").(object)["tool_calls"]), c.calls)
		data, _, _ := events(t, w.post(chatPath, ask(object{"tools": weatherTools, "stream": true})).text)
		require.Equal(t, c.reason, at(t, data[len(data)-1], "choices", 0, "finish_reason"))

		list := []object{{"type": "function", "name": "get_weather"}}
		whole := w.post("/v1/responses", object{"input": "x", "tools": list}).json(t)
		data, _, _ = events(t, w.post("/v1/responses", object{"input": "x", "tools": list, "stream": true}).text)
		require.Equal(t, withoutIDs(whole["output"].([]any)), withoutIDs(at(t, data[len(data)-1], "response", "output").([]any)))
		v = w.post("/v1/messages", claudeAsk(object{"tools": []object{{"name": "get_weather", "input_schema": object{}}}})).json(t)
		require.Len(t, v["content"], 1+c.calls)
	}
}
