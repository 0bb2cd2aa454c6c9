package chat

// call is a tool call that is being read.
type call struct {
	raw   []byte // all of its text, for the case that it is none
	begun bool   // its first delta is out
	form  form
	json  jsonCall
	xml   xmlCall
}

type form int

const (
	formOpen form = iota // white space after <tool_call>
	formJSON
	formXML
)

// verdict is what a reader says of a byte.
type verdict int

const (
	more verdict = iota // the byte belongs to it, and more has to come
	done                // the byte is the last
	bad                 // the byte cannot follow
)

// callStep takes a byte of a call. One that cannot follow is read again as
// content, with the piece of a tag before it, for a call may begin there.
func (s *Splitter) callStep(b byte) {
	c := &s.call
	v := more
	switch {
	case c.form == formJSON:
		v = s.jsonStep(b)
	case c.form == formXML:
		v = s.xmlStep(b)
	case b == '{':
		c.form = formJSON
	case b == '<':
		c.form = formXML
		c.xml.held = append(c.xml.held, b)
	case !isSpace(b):
		v = bad
	}
	switch v {
	case more:
		c.raw = append(c.raw, b)
	case done:
		s.endCall(CallDone)
		if s.mode == modeCall {
			s.mode = modeAfterCall
		}
	case bad:
		again := c.xml.begun()
		c.raw = c.raw[:len(c.raw)-len(again)]
		s.fail()
		for _, b := range append(again, b) {
			s.step(b)
		}
	}
}

// begin gives the first delta of a call.
func (s *Splitter) begin(name string) {
	s.close()
	s.out = append(s.out, Delta{Kind: DeltaToolCall, Call: s.calls, Name: name})
	s.call.begun = true
}

// argument gives a piece of the arguments.
func (s *Splitter) argument(text ...byte) { s.emit(DeltaToolCall, text...) }

func (s *Splitter) endCall(end CallEnd) {
	s.close()
	s.out = append(s.out, Delta{Kind: DeltaToolCall, Call: s.calls, End: end})
	s.calls++
}

// fail gives the call's text as content.
func (s *Splitter) fail() {
	if s.call.begun {
		s.endCall(CallBroken)
	}
	s.mode, s.skip = modeContent, false
	s.emit(DeltaContent, s.call.raw...)
	s.call = call{}
}
