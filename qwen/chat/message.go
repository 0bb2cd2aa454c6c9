package chat

import (
	"encoding/json"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Roles that Qwen's templates know.
const (
	RoleSystem    = "system"
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool"
)

// ErrNotText says that a message has a part, such as an image, that is not text.
var ErrNotText = errors.New("content is not only text")

// Message is one turn of a conversation, in the shape of OpenAI's API, from and
// to whose JSON it is converted.
type Message struct {
	Role    string
	Content string // ignored when Parts is not nil
	// Parts is content given as a list; nil for plain text. Templates tell a
	// list from a string.
	Parts []Part
	// ReasoningContent is what the model thought before this answer. Nil is not
	// the same as empty: without it, templates look for <think> in the content.
	ReasoningContent *string
	ToolCalls        []ToolCall
	ToolCallID       string // of a tool message: the call that it answers
	Name             string
	// Fields are further fields as JSON, for templates that read others. They
	// come after the fields above, sorted by name, and replace those of the same
	// name.
	Fields map[string]json.RawMessage
}

// Part is one part of a message's content.
type Part struct {
	Type   string                     // "text" for text
	Text   string                     // of a text part
	Fields map[string]json.RawMessage // further fields, such as image_url
}

// ToolCall is a call that the model made.
type ToolCall struct {
	ID   string
	Name string // of the function
	// Arguments is a JSON object, or a JSON string that holds an object, as
	// OpenAI's API sends it; nil when there are none.
	Arguments json.RawMessage
}

// TextPart is a part that holds text.
func TextPart(text string) Part { return Part{Type: "text", Text: text} }

// Text returns the message's content with the text of its parts joined. The
// error wraps ErrNotText when a part is something else.
func (m Message) Text() (string, error) {
	if m.Parts == nil {
		return m.Content, nil
	}
	var b strings.Builder
	for i, p := range m.Parts {
		if p.Type != "text" {
			return "", fmt.Errorf("part %d has type %q: %w", i, p.Type, ErrNotText)
		}
		b.WriteString(p.Text)
	}
	return b.String(), nil
}

// UnmarshalJSON reads OpenAI's form of a message. Content may be a string, null,
// which is the empty string, or a list of parts; a tool call may lie in
// "function" or directly in the call; arguments may be a string or an object.
// Fields that it does not know go into Fields.
func (m *Message) UnmarshalJSON(data []byte) error {
	fields, err := object(data)
	if err != nil {
		return fmt.Errorf("chat: message: %w", err)
	}
	*m = Message{}
	err = errors.Join(
		take(fields, "role", &m.Role),
		take(fields, "reasoning_content", &m.ReasoningContent),
		take(fields, "tool_calls", &m.ToolCalls),
		take(fields, "tool_call_id", &m.ToolCallID),
		take(fields, "name", &m.Name),
	)
	if err != nil {
		return fmt.Errorf("chat: message: %w", err)
	}
	content := jsontext.Value(fields["content"])
	switch content.Kind() {
	case jsontext.KindBeginArray:
		m.Parts = []Part{}
		err = take(fields, "content", &m.Parts)
	case jsontext.KindString, jsontext.KindNull, jsontext.KindInvalid:
		err = take(fields, "content", &m.Content)
	default:
		err = fmt.Errorf("content must be a string, null or a list of parts, not %.40s", content)
	}
	if err != nil {
		return fmt.Errorf("chat: message: %w", err)
	}
	if len(fields) > 0 {
		m.Fields = fields
	}
	return nil
}

// MarshalJSON writes OpenAI's form of a message: arguments as a string, content
// null where there are only tool calls.
func (m Message) MarshalJSON() ([]byte, error) {
	var e members
	e.add("role", m.Role)
	switch {
	case m.Parts != nil:
		e.add("content", m.Parts)
	case m.Content == "" && len(m.ToolCalls) > 0:
		e.add("content", nil)
	default:
		e.add("content", m.Content)
	}
	if m.ReasoningContent != nil {
		e.add("reasoning_content", *m.ReasoningContent)
	}
	if len(m.ToolCalls) > 0 {
		e.add("tool_calls", m.ToolCalls)
	}
	if m.ToolCallID != "" {
		e.add("tool_call_id", m.ToolCallID)
	}
	if m.Name != "" {
		e.add("name", m.Name)
	}
	return e.object(m.Fields)
}

// UnmarshalJSON reads OpenAI's form of a content part.
func (p *Part) UnmarshalJSON(data []byte) error {
	fields, err := object(data)
	if err != nil {
		return fmt.Errorf("content part: %w", err)
	}
	*p = Part{}
	if err := take(fields, "type", &p.Type); err != nil {
		return err
	}
	if p.Type == "text" {
		if err := take(fields, "text", &p.Text); err != nil {
			return err
		}
	}
	if len(fields) > 0 {
		p.Fields = fields
	}
	return nil
}

// MarshalJSON writes OpenAI's form of a content part.
func (p Part) MarshalJSON() ([]byte, error) {
	var e members
	e.add("type", p.Type)
	if p.Type == "text" {
		e.add("text", p.Text)
	}
	return e.object(p.Fields)
}

// UnmarshalJSON reads OpenAI's form of a tool call.
func (c *ToolCall) UnmarshalJSON(data []byte) error {
	fields, err := object(data)
	if err != nil {
		return fmt.Errorf("tool call: %w", err)
	}
	*c = ToolCall{}
	if err := take(fields, "id", &c.ID); err != nil {
		return err
	}
	if inner, ok := fields["function"]; ok {
		if fields, err = object(inner); err != nil {
			return fmt.Errorf("tool call: function: %w", err)
		}
	}
	if err := take(fields, "name", &c.Name); err != nil {
		return err
	}
	if arguments := jsontext.Value(fields["arguments"]); len(arguments) > 0 && arguments.Kind() != jsontext.KindNull {
		c.Arguments = slices.Clone(arguments)
	}
	return nil
}

// MarshalJSON writes OpenAI's form of a tool call.
func (c ToolCall) MarshalJSON() ([]byte, error) {
	arguments := "{}"
	switch c.Arguments.Kind() {
	case jsontext.KindInvalid:
		if len(c.Arguments) > 0 {
			return nil, fmt.Errorf("chat: tool call %q: arguments are not JSON", c.Name)
		}
	case jsontext.KindString:
		if err := json.Unmarshal(c.Arguments, &arguments); err != nil {
			return nil, err
		}
	default:
		arguments = string(c.Arguments)
	}
	var function, e members
	function.add("name", c.Name)
	function.add("arguments", arguments)
	text, err := function.object(nil)
	if err != nil {
		return nil, err
	}
	if c.ID != "" {
		e.add("id", c.ID)
	}
	e.add("type", "function")
	e.add("function", json.RawMessage(text))
	return e.object(nil)
}

// object splits a JSON object into its members.
func object(data []byte) (map[string]json.RawMessage, error) {
	if jsontext.Value(data).Kind() != jsontext.KindBeginObject {
		return nil, fmt.Errorf("want a JSON object, not %.40q", data)
	}
	var fields map[string]json.RawMessage
	err := json.Unmarshal(data, &fields)
	return fields, err
}

// take moves one member into target. Null leaves target as it is.
func take(fields map[string]json.RawMessage, name string, target any) error {
	value, ok := fields[name]
	if !ok {
		return nil
	}
	delete(fields, name)
	if err := json.Unmarshal(value, target); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// members collects the members of an object in order.
type members struct {
	names  []string
	values []any
}

func (e *members) add(name string, value any) {
	e.names = append(e.names, name)
	e.values = append(e.values, value)
}

// object writes the members, then further ones sorted by name, which replace
// those of the same name.
func (e *members) object(further map[string]json.RawMessage) ([]byte, error) {
	for _, name := range slices.Sorted(maps.Keys(further)) {
		if i := slices.Index(e.names, name); i >= 0 {
			e.values[i] = further[name]
		} else {
			e.add(name, further[name])
		}
	}
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, name := range e.names {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := encoder.Encode(name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := encoder.Encode(e.values[i]); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return []byte(b.String()), nil
}
