package chat_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/godflash/godflash/qwen/chat"
)

// A template from the model's folder turns a conversation with a tool into the
// prompt for the next answer.
func Example() {
	template, err := chat.Load("../../testdata/tiny-qwen3.5/target")
	if err != nil {
		fmt.Println(err)
		return
	}
	messages := []chat.Message{
		{Role: chat.RoleUser, Content: "What does strings.Cut do?"},
		{Role: chat.RoleAssistant, ToolCalls: []chat.ToolCall{{
			Name:      "go_doc",
			Arguments: json.RawMessage(`{"package": "strings", "symbol": "Cut"}`),
		}}},
		{Role: chat.RoleTool, Content: "Cut slices s around the first instance of sep."},
	}
	thinking := false
	prompt, err := template.Render(messages, &chat.Options{
		AddGenerationPrompt: true,
		EnableThinking:      &thinking,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(strings.TrimSpace(prompt))
	fmt.Println("opens thinking:", chat.OpensThinking(prompt))
	// Output:
	// <|im_start|>user
	// What does strings.Cut do?<|im_end|>
	// <|im_start|>assistant
	// <think>
	//
	// </think>
	//
	// <tool_call>
	// <function=go_doc>
	// <parameter=package>
	// strings
	// </parameter>
	// <parameter=symbol>
	// Cut
	// </parameter>
	// </function>
	// </tool_call><|im_end|>
	// <|im_start|>user
	// <tool_response>
	// Cut slices s around the first instance of sep.
	// </tool_response><|im_end|>
	// <|im_start|>assistant
	// <think>
	//
	// </think>
	// opens thinking: false
}

func ExampleParse() {
	template, err := chat.Parse(`{% for message in messages %}
<{{ message.role }}> {{ message.content }}{{ eos_token }}
{% else %}
    {{- raise_exception('No messages.') }}
{%- endfor %}`, map[string]string{"eos_token": "</s>"})
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := template.Render([]chat.Message{{Role: "user", Content: "Hello"}}, nil)
	fmt.Printf("%q %v\n", text, err)
	_, err = template.Render(nil, nil)
	fmt.Println(err)
	// Output:
	// "<user> Hello</s>\n" <nil>
	// chat: the template refuses: No messages.
}

// A reply that comes in pieces is split into thought, content and a call.
func ExampleSplitter() {
	splitter, err := chat.NewSplitter(&chat.SplitterOptions{
		Thinking: true, // the prompt ended with <think>
		Tools:    []json.RawMessage{json.RawMessage(`{"name": "go_doc", "parameters": {"properties": {"all": {"type": "boolean"}}}}`)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	var reply chat.Reply
	for _, piece := range []string{
		"I look it up.\n</thi", "nk>\n\nOne moment.", "\n\n<tool_call>\n<func", "tion=go_doc>\n<parameter=symbol>\nCu", "t\n</parameter>\n",
		"<parameter=all>\ntrue\n</parameter>\n</function>\n", "</tool_call>",
	} {
		reply.Add(splitter.Push(piece)...)
	}
	reply.Add(splitter.Flush()...)
	m := reply.Message()
	fmt.Println(*m.ReasoningContent)
	fmt.Println(m.Content)
	fmt.Println(m.ToolCalls[0].Name, string(m.ToolCalls[0].Arguments))
	// Output:
	// I look it up.
	// One moment.
	// go_doc {"symbol":"Cut","all":true}
}
