package grammar

import "fmt"

// Form is a compiled form of texts.
type Form struct {
	net *network
}

// Reply describes a model's reply.
type Reply struct {
	// Thought says whether a thought comes before the content.
	Thought Thought
	// JSON and Schema are the content: an object, or what a schema allows. With
	// neither it is free text.
	JSON   bool
	Schema []byte
	// Tools may be called: instead of JSON, anywhere in free text.
	Tools []Tool
	// ToolForm is how they are called; AnyCall does not look into calls.
	ToolForm ToolForm
}

// Thought says whether a reply begins with a thought.
type Thought uint8

const (
	NoThought   Thought = iota
	MayThink            // it may begin with <think>
	OpenThought         // it begins inside of the thought
)

// Tool is a function that may be called.
type Tool struct {
	Name string
	// Parameters is the schema of the arguments; nil for any object.
	Parameters []byte
}

// ToolForm is how a call is written.
type ToolForm uint8

const (
	// CallJSON: <tool_call>{"name": …, "arguments": …}</tool_call>
	CallJSON ToolForm = iota
	// CallXML: <tool_call><function=…><parameter=…>…</parameter></function></tool_call>
	CallXML
	// AnyCall: <tool_call> and any text up to </tool_call>
	AnyCall
)

// Compile compiles a reply's form. Errors wrap ErrUnsupported or ErrSchema and
// name the place in the schema.
func Compile(r Reply) (*Form, error) {
	b := newBuilder()
	var content int32
	var err error
	switch {
	case r.Schema != nil:
		if content, err = b.schema(r.Schema); err != nil {
			return nil, err
		}
	case r.JSON:
		if content, err = newCompiler(b, nil).objectRule(newShape()); err != nil {
			return nil, err
		}
	}
	json := r.Schema != nil || r.JSON
	var calls []int32
	if len(r.Tools) > 0 {
		calls, err = b.calls(r)
		if err != nil {
			return nil, err
		}
		call := b.space(b.either(calls...))
		if json {
			content = b.either(content, b.callsOnly(call))
		} else {
			content = b.callsInText(call)
		}
	} else if !json {
		return nil, fmt.Errorf("%w: nothing is asked of the reply", ErrSchema)
	}
	start := content
	if r.Thought != NoThought {
		// After a thought the templates have an empty line.
		after := b.either(content, b.literal("\n", b.either(content, b.literal("\n", content))))
		thought := b.until("</think>", inText, false, after)
		if start = thought; r.Thought == MayThink {
			start = b.either(content, b.tag("<think>", thought))
		}
	}
	if b.err != nil {
		return nil, b.err
	}
	live := b.trim()
	if !live[content] {
		return nil, fmt.Errorf("%w: no finite value satisfies it", ErrSchema)
	}
	for i, call := range calls {
		if !live[call] {
			return nil, fmt.Errorf("%w: tool %q: no finite value satisfies the schema of its arguments", ErrSchema, r.Tools[i].Name)
		}
	}
	return &Form{net: newNetwork(b.nodes, start)}, nil
}

func newCompiler(b *builder, root *value) *compiler {
	return &compiler{
		builder: b, root: root,
		shapes: map[*value]*shape{}, rules: map[string]int32{}, made: map[string]int32{}, checked: map[*value]bool{},
	}
}

// schema is the node of a schema's values.
func (b *builder) schema(text []byte) (int32, error) {
	root, err := parseValue(text)
	if err != nil {
		return 0, err
	}
	return newCompiler(b, root).rule(all{root})
}

// Tags of a call.
const (
	callBegin = "<tool_call>"
	callEnd   = "</tool_call>"
)

// calls read a call of each tool after the opening tag, up to and including the
// closing one.
func (b *builder) calls(r Reply) ([]int32, error) {
	if r.ToolForm == AnyCall {
		return []int32{b.until(callEnd, inText, false, b.end)}, nil
	}
	closing := b.space(b.tag(callEnd, b.end))
	var to []int32
	for _, tool := range r.Tools {
		var at int32
		var err error
		if r.ToolForm == CallXML {
			at, err = b.callXML(tool, closing)
		} else {
			at, err = b.callJSON(tool, closing)
		}
		if err != nil {
			return nil, fmt.Errorf("tool %q: %w", tool.Name, err)
		}
		to = append(to, at)
	}
	return to, nil
}

func (b *builder) callJSON(t Tool, next int32) (int32, error) {
	arguments, err := b.arguments(t)
	if err != nil {
		return 0, err
	}
	at := b.literal(`"arguments":`, b.space(b.then(arguments, b.space(b.literal("}", next)))))
	at = b.literal(quote(t.Name)+",", b.space(at))
	return b.literal("{", b.space(b.literal(`"name":`, b.space(at)))), nil
}

func (b *builder) arguments(t Tool) (int32, error) {
	if t.Parameters == nil {
		return newCompiler(b, nil).objectRule(newShape())
	}
	root, err := parseValue(t.Parameters)
	if err != nil {
		return 0, err
	}
	return newCompiler(b, root).rule(all{root, objectsOnly})
}

// callsOnly is one call or several and nothing else.
func (b *builder) callsOnly(call int32) int32 {
	after := b.add(node{final: true})
	begin := b.tag(callBegin, b.then(call, after))
	again := b.either(begin, b.literal("\n", begin))
	if b.err == nil {
		b.nodes[after].hops = []hop{always(again)}
	}
	return begin
}

// callsInText is free text with calls.
func (b *builder) callsInText(call int32) int32 {
	after := b.add(node{})
	text := b.until(callBegin, inText, true, b.then(call, after))
	if b.err == nil {
		b.nodes[after].hops = []hop{always(text)}
	}
	return text
}
