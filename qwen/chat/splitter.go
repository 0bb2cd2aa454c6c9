package chat

import (
	"encoding/json"
	"strings"
)

// The tags of Qwen's replies.
const (
	tagThink       = "<think>"
	tagThinkEnd    = "</think>"
	tagCall        = "<tool_call>"
	tagCallEnd     = "</tool_call>"
	tagFunction    = "<function="
	tagFunctionEnd = "</function>"
	tagParam       = "<parameter="
	tagParamEnd    = "</parameter>"
)

// SplitterOptions are the choices of NewSplitter; nil is no thought and no tools.
type SplitterOptions struct {
	// Thinking says that the prompt ends inside a thought, see OpensThinking.
	Thinking bool
	// Tools are the tools that the prompt offered, as in Options. Without any,
	// there are no calls: text that looks like one is content.
	Tools []json.RawMessage
}

// Splitter splits a reply, while it is written, into reasoning, content and
// tool calls. What it gives does not depend on how the text is cut into pieces,
// and time and memory are linear in it.
//
// The thought is what the prompt opened, or a <think> block at the very
// beginning of the reply, up to the first </think>. Tags of calls inside it are
// its text, and a <think> or </think> anywhere else is content. A reply that ends
// with calls inside an unclosed thought has forgotten to close it: the calls
// are given too, at the end, though their text was reasoning.
//
// A call is <tool_call>, white space, and then either form that the family
// writes, whatever the template shows:
//
//	{"name": "f", "arguments": {"x": 1}}
//
//	<function=f>
//	<parameter=x>
//	1
//	</parameter>
//	</function>
//
// It is one wherever it stands in the content, in a block of code too. In the
// first form arguments may be missing or null, which is {}, or a string that
// holds an object; other members are ignored, repeated ones are not allowed. In
// the second a value is the text between the tags without the line ends next to
// them; it reaches to the first </parameter> that <parameter=, </function> or
// </tool_call> follows, so that it may hold such tags itself. The type of a value
// is that of the tool's schema ("type", "anyOf", "oneOf", "allOf", "enum",
// "const", references inside the schema): numbers, booleans, null, objects and
// arrays are taken as JSON, True, False and None as Python's. A value that the
// schema gives no type is a string, and so is one that is not of its type.
//
// Tags that models are known to forget may be missing: </tool_call>, in the
// second form also <tool_call>, </function> before </tool_call>, and </parameter>
// before a line that is </function> and </tool_call> (or the end of the reply) or
// that begins another parameter of the schema.
//
// A call begins when the name of an offered tool is known and, in the first
// form, its arguments' object opens, in the second, the next tag follows; the
// arguments come as they are written. What is not well formed, calls another
// tool, or ends too early is content, tags included. Where the call had begun
// already, it ends with CallBroken.
//
// Line ends next to the tags that are left out are left out too, as the
// templates write them.
type Splitter struct {
	tools map[string]tool
	mode  mode
	// held is what may still become a tag, with the line ends before it.
	held []byte
	tag  int  // bytes of a tag at the end of held
	skip bool // line ends belong to the tag before

	call  call
	calls int

	// unclosed reads the thought as if it were content, and unclosedCalls are the
	// calls that it has ended with so far. Nil without tools or thought.
	unclosed      *Splitter
	unclosedCalls []Delta

	out   []Delta
	kind  DeltaKind // of piece
	piece []byte
}

// mode is what a Splitter reads at present.
type mode int

const (
	modeStart        mode = iota // white space that a <think> may follow
	modeThoughtStart             // the same where the prompt opened the thought
	modeThought
	modeContent
	modeCall
	modeAfterCall // white space that a </tool_call> may follow
)

// NewSplitter begins a reply. The error says which of the tools has no name.
func NewSplitter(o *SplitterOptions) (*Splitter, error) {
	if o == nil {
		o = &SplitterOptions{}
	}
	s := &Splitter{}
	if o.Thinking {
		s.mode, s.skip = modeThoughtStart, true
	}
	var err error
	if s.tools, err = parseTools(o.Tools); len(s.tools) > 0 {
		s.unclosed = &Splitter{tools: s.tools, mode: modeContent}
	}
	return s, err
}

// Push takes the next piece of text and gives what is certain now. Pieces of
// whole characters give pieces of whole characters.
func (s *Splitter) Push(text string) []Delta {
	for i := range len(text) {
		s.step(text[i])
	}
	return s.take()
}

// Flush ends the reply and gives what was held back.
func (s *Splitter) Flush() []Delta {
	switch s.mode {
	case modeCall:
		if !s.xmlFlush() {
			s.fail()
		}
	case modeStart, modeThoughtStart, modeAfterCall:
		s.fallBack()
	}
	s.release()
	if s.Thinking() && s.unclosed != nil {
		s.note(s.unclosed.Flush())
		s.close()
		for _, d := range s.unclosedCalls {
			d.Call -= s.unclosedCalls[0].Call // the ones before were none
			s.out = append(s.out, d)
		}
		s.unclosed = nil
	}
	return s.take()
}

// note keeps the calls at the end of what an unclosed thought has given.
func (s *Splitter) note(deltas []Delta) {
	for _, d := range deltas {
		switch {
		case d.Kind == DeltaToolCall && d.End != CallBroken:
			s.unclosedCalls = append(s.unclosedCalls, d)
		case d.Kind == DeltaToolCall || strings.TrimSpace(d.Text) != "":
			s.unclosedCalls = nil
		}
	}
}

// Thinking says whether the reply is inside the thought.
func (s *Splitter) Thinking() bool { return s.mode == modeThought || s.mode == modeThoughtStart }

// MayThink says whether the reply is inside the thought or may still begin one.
func (s *Splitter) MayThink() bool { return s.Thinking() || s.mode == modeStart }

func (s *Splitter) step(b byte) {
	switch s.mode {
	case modeStart, modeThoughtStart:
		if !s.lead(tagThink, b) {
			return
		}
		s.mode, s.skip = modeThought, true
	case modeThought:
		if !s.text(tagThinkEnd, b) {
			return
		}
		s.mode, s.skip = modeContent, true
		s.unclosed, s.unclosedCalls = nil, nil
	case modeContent:
		if len(s.tools) == 0 {
			s.text("", b)
			return
		}
		tag := tagCall
		if s.tag > 1 && s.held[len(s.held)-s.tag+1] == tagFunction[1] || s.tag == 1 && b == tagFunction[1] {
			tag = tagFunction
		}
		if !s.text(tag, b) {
			return
		}
		s.mode, s.call = modeCall, call{raw: s.held}
		if tag == tagFunction {
			s.call.form, s.call.xml.state = formXML, xmlName
		}
		s.held, s.tag = nil, 0
		return
	case modeAfterCall:
		if !s.lead(tagCallEnd, b) {
			return
		}
		s.mode, s.skip = modeContent, true
	case modeCall:
		s.callStep(b)
		return
	}
	s.held, s.tag = s.held[:0], 0
}

// lead takes a byte of white space and a tag after it, and reports that the tag
// is whole. Anything else is read again in the mode that follows.
func (s *Splitter) lead(tag string, b byte) bool {
	switch {
	case s.tag < len(tag) && b == tag[s.tag]:
		s.held = append(s.held, b)
		s.tag++
		return s.tag == len(tag)
	case s.tag == 0 && isSpace(b):
		s.held = append(s.held, b)
		return false
	}
	s.fallBack()
	s.step(b)
	return false
}

// fallBack leaves a mode that waited for a tag, and reads what it held again.
func (s *Splitter) fallBack() {
	held := s.held
	s.held, s.tag = nil, 0
	switch s.mode {
	case modeThoughtStart:
		s.mode = modeThought
	case modeStart:
		s.mode = modeContent
	case modeAfterCall:
		s.mode, s.skip = modeContent, true
	}
	for _, b := range held {
		s.step(b)
	}
}

// text takes a byte of content or reasoning and reports that the tag which ends
// it is whole: held has it then, with the line ends before. The tags' only <
// is their first byte, so a mismatch can only begin anew at b.
func (s *Splitter) text(tag string, b byte) bool {
	if s.tag > 0 {
		if b == tag[s.tag] {
			s.held = append(s.held, b)
			s.tag++
			return s.tag == len(tag)
		}
		s.release()
	}
	switch {
	case b == '\n' && s.skip:
	case b == '\n' && tag != "":
		s.held = append(s.held, b)
	case tag != "" && b == tag[0]:
		s.held = append(s.held, b)
		s.tag = 1
	default:
		s.release()
		s.skip = false
		s.emit(s.textKind(), b)
	}
	return false
}

func (s *Splitter) textKind() DeltaKind {
	if s.Thinking() {
		return DeltaReasoning
	}
	return DeltaContent
}

// release gives what was held back: it is no tag.
func (s *Splitter) release() {
	if len(s.held) > 0 {
		s.skip = false
		s.emit(s.textKind(), s.held...)
	}
	s.held, s.tag = s.held[:0], 0
}

func (s *Splitter) emit(kind DeltaKind, text ...byte) {
	if kind != s.kind {
		s.close()
		s.kind = kind
	}
	s.piece = append(s.piece, text...)
	if kind == DeltaReasoning && s.unclosed != nil {
		for _, b := range text {
			s.unclosed.step(b)
		}
	}
}

// close ends the current piece.
func (s *Splitter) close() {
	if len(s.piece) == 0 {
		return
	}
	d := Delta{Kind: s.kind, Text: string(s.piece)}
	if d.Kind == DeltaToolCall {
		d.Call = s.calls
	}
	s.out = append(s.out, d)
	s.piece = s.piece[:0]
}

func (s *Splitter) take() []Delta {
	s.close()
	if s.Thinking() && s.unclosed != nil {
		s.note(s.unclosed.take())
	}
	out := s.out
	s.out = nil
	return out
}

func isSpace(b byte) bool { return strings.IndexByte(" \t\r\n", b) >= 0 }
