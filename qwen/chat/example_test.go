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
