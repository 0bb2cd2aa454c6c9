package chat

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

// Delta is the next piece of a reply that is written token by token.
type Delta struct {
	Kind DeltaKind
	// Text is the next piece of the content or the reasoning, or of a tool call's
	// arguments, which together are one JSON object.
	Text string
	// Call is the index of the tool call in the reply.
	Call int
	// Name is the tool's name, on the first delta of a call only.
	Name string
}
