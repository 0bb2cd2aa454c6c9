package chat_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/godflash/godflash/qwen/chat"
	"github.com/stretchr/testify/require"
)

func TestMessageJSON(t *testing.T) {
	empty := ""
	for text, want := range map[string]chat.Message{
		`{"role":"user","content":"<b>"}`:                                        {Role: "user", Content: "<b>"},
		`{"role":"user","content":""}`:                                           {Role: "user"},
		`{"role":"user","content":[]}`:                                           {Role: "user", Parts: []chat.Part{}},
		`{"role":"tool","content":"[{\"a\":1}]","tool_call_id":"c1","name":"f"}`: {Role: "tool", Content: `[{"a":1}]`, ToolCallID: "c1", Name: "f"},
		`{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}}]}`: {
			Role: "user", Parts: []chat.Part{chat.TextPart("a"), {Type: "image_url", Fields: map[string]json.RawMessage{"image_url": json.RawMessage(`{"url":"x"}`)}}},
		},
		`{"role":"assistant","content":null,"reasoning_content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"z\":1,\"a\":2}"}}],"refusal":null}`: {
			Role: "assistant", ReasoningContent: &empty,
			ToolCalls: []chat.ToolCall{{ID: "c1", Name: "f", Arguments: json.RawMessage(`"{\"z\":1,\"a\":2}"`)}},
			Fields:    map[string]json.RawMessage{"refusal": json.RawMessage("null")},
		},
	} {
		var got chat.Message
		require.NoError(t, json.Unmarshal([]byte(text), &got), text)
		require.Equal(t, want, got)
		var back strings.Builder
		encoder := json.NewEncoder(&back)
		encoder.SetEscapeHTML(false)
		require.NoError(t, encoder.Encode(got))
		require.Equal(t, text+"\n", back.String())
	}
}

func TestMessageJSONForms(t *testing.T) {
	// Other spellings of the same messages.
	for text, want := range map[string]string{
		`{"role":"user"}`:                `{"role":"user","content":""}`,
		`{"content":null,"role":"user"}`: `{"role":"user","content":""}`,
		`{"role":"assistant","tool_calls":[{"name":"f","arguments":{"z": 1, "a": 2}}]}`: `{"role":"assistant","content":null,"tool_calls":[{"type":"function","function":{"name":"f","arguments":"{\"z\": 1, \"a\": 2}"}}]}`,
		`{"role":"assistant","tool_calls":[{"function":{"name":"f"}}]}`:                 `{"role":"assistant","content":null,"tool_calls":[{"type":"function","function":{"name":"f","arguments":"{}"}}]}`,
		`{"role":"assistant","content":"x","tool_calls":null,"name":null}`:              `{"role":"assistant","content":"x"}`,
	} {
		var m chat.Message
		require.NoError(t, json.Unmarshal([]byte(text), &m), text)
		back, err := json.Marshal(m)
		require.NoError(t, err)
		require.Equal(t, want, string(back))
	}
	for text, says := range map[string]string{
		`5`:                               "want a JSON object",
		`{"role":5}`:                      "role",
		`{"role":"user","content":5}`:     "content must be",
		`{"role":"user","content":{}}`:    "content must be",
		`{"role":"user","content":["x"]}`: "content part",
		`{"role":"user","content":[{"type":"text","text":5}]}`:         "text",
		`{"role":"assistant","tool_calls":[{"function":5}]}`:           "function",
		`{"role":"assistant","tool_calls":"x"}`:                        "tool_calls",
		`{"role":"assistant","reasoning_content":["x"]}`:               "reasoning_content",
		`{"role":"assistant","tool_calls":[{"function":{"name":[]}}]}`: "name",
	} {
		var m chat.Message
		require.ErrorContains(t, json.Unmarshal([]byte(text), &m), says, text)
	}
}
