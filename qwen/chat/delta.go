package chat

import (
	"encoding/json"
	"strings"
)

// DeltaKind says what a piece of a reply belongs to.
type DeltaKind int

const (
	// DeltaContent is text for the reader.
	DeltaContent DeltaKind = iota
	// DeltaReasoning is text of the thought, its tags left out.
	DeltaReasoning
	// DeltaToolCall is a piece of a tool call.
	DeltaToolCall
)

// CallEnd says whether a tool call goes on after a delta.
type CallEnd int

const (
	// CallOpen: more of the call may come.
	CallOpen CallEnd = iota
	// CallDone: the arguments are whole, one JSON object.
	CallDone
	// CallBroken: what the model wrote is no call after all. Its text, tags
	// included, follows as content; the pieces given so far are to be dropped.
	CallBroken
)

// Delta is the next piece of a reply that is written token by token.
type Delta struct {
	Kind DeltaKind
	// Text is the next piece of the content or the reasoning, or of a tool call's
	// arguments, which together are one JSON object.
	Text string
	// Call is the index of the tool call in the reply, broken ones included.
	Call int
	// Name is the tool's name, on the first delta of a call only.
	Name string
	// End is set on the last delta of a call.
	End CallEnd
}

// Reply puts the deltas of one reply together. The zero value is empty.
type Reply struct {
	reasoning, content strings.Builder
	calls              []ToolCall
	name               string
	arguments          strings.Builder
}

// Add takes the next deltas.
func (r *Reply) Add(deltas ...Delta) {
	for _, d := range deltas {
		switch d.Kind {
		case DeltaContent:
			r.content.WriteString(d.Text)
		case DeltaReasoning:
			r.reasoning.WriteString(d.Text)
		case DeltaToolCall:
			if d.Name != "" {
				r.name = d.Name
				r.arguments.Reset()
			}
			r.arguments.WriteString(d.Text)
			if d.End == CallDone {
				r.calls = append(r.calls, ToolCall{Name: r.name, Arguments: json.RawMessage(r.arguments.String())})
			}
		}
	}
}

// Message is the assistant's message that the deltas make. Calls that are not
// done are left out; they have no ids. ReasoningContent is nil without a
// thought.
func (r *Reply) Message() Message {
	m := Message{Role: RoleAssistant, Content: r.content.String(), ToolCalls: r.calls}
	if r.reasoning.Len() > 0 {
		text := r.reasoning.String()
		m.ReasoningContent = &text
	}
	return m
}
