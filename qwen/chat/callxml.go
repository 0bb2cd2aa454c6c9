package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// xmlCall reads <function=…> and its parameters.
type xmlCall struct {
	state xmlState
	held  []byte // a tag that is not whole, or what may end a value
	tag   int    // where held's last tag begins, in a value
	name  string // of the function, until the call has begun
	tool  tool
	seen  map[string]bool
	first bool // the next byte is the value's first
	line  bool // the next byte, or the tag in held, begins a line
	types types
	value []byte // of a parameter that is kept whole
}

type xmlState int

const (
	xmlFunction xmlState = iota // <function=
	xmlName                     // the function's name
	xmlBetween                  // white space before a parameter or the end
	xmlTag                      // a tag after it
	xmlParam                    // a parameter's name
	xmlText                     // a value; held may be a line end
	xmlFirst                    // held ends with a piece of a tag that may end it
	xmlClosed                   // held ends with </parameter> and white space
	xmlNext                     // held ends with a piece of the tag after that
	xmlAnother                  // held ends with <parameter= and a piece of a name
	xmlEnded                    // held ends with </function> and white space
	xmlLast                     // held ends with a piece of </tool_call>
)

// xmlFollow are the tags that may follow the function's name or a parameter.
var xmlFollow = []string{tagParam, tagFunctionEnd, tagCallEnd}

// xmlEnds are the tags that may end a value. Models forget to close one now and
// then, so that at the beginning of a line the others count too, see xmlValue.
var (
	xmlEnds     = []string{tagParamEnd}
	xmlLineEnds = []string{tagParamEnd, tagFunctionEnd, tagParam}
)

func (s *Splitter) xmlStep(b byte) verdict {
	x := &s.call.xml
	switch x.state {
	case xmlFunction:
		if b != tagFunction[len(x.held)] {
			return bad
		}
		if x.held = append(x.held, b); len(x.held) == len(tagFunction) {
			x.state, x.held = xmlName, nil
		}
	case xmlName:
		if b != '>' {
			x.held = append(x.held, b)
			return when(isName(b))
		}
		name, ok := string(x.held), false
		if x.tool, ok = s.tools[name]; !ok {
			return bad
		}
		x.state, x.held, x.name, x.seen = xmlBetween, nil, name, map[string]bool{}
	case xmlBetween:
		if b == '<' {
			x.state = xmlTag
			x.held = append(x.held, b)
			return more
		}
		return when(isSpace(b))
	case xmlTag:
		tag, ok := follows(append(x.held, b), xmlFollow)
		if !ok {
			return bad
		}
		x.held = append(x.held, b)
		return s.xmlFollow(tag)
	case xmlParam:
		if b != '>' {
			x.held = append(x.held, b)
			return when(isName(b))
		}
		return s.xmlBegin(string(x.held))
	default:
		return s.xmlValue(b)
	}
	return more
}

// begun is the piece of a tag that the call ends with so far.
func (x *xmlCall) begun() []byte {
	if x.state == xmlFunction || x.state == xmlTag {
		return x.held
	}
	return nil
}

// isName says whether names of functions and parameters may have the byte.
func isName(b byte) bool { return b > ' ' && b != '<' }

// follows says whether text begins one of the tags, and which it is if it is
// whole.
func follows(text []byte, tags []string) (whole string, ok bool) {
	for _, tag := range tags {
		if string(text) == tag {
			return tag, true
		}
		ok = ok || strings.HasPrefix(tag, string(text))
	}
	return "", ok
}

// xmlFollow goes on after a whole tag, or waits for the rest of one.
func (s *Splitter) xmlFollow(tag string) verdict {
	x := &s.call.xml
	switch tag {
	case "":
		return more
	case tagParam:
		s.xmlCalls()
		x.state, x.held = xmlParam, nil
		return more
	case tagCallEnd:
		s.mode, s.skip = modeContent, true
	}
	s.xmlCalls()
	if len(x.seen) == 0 {
		s.argument('{')
	}
	s.argument('}')
	return done
}

// xmlCalls gives the call's first delta: a tag has followed its name.
func (s *Splitter) xmlCalls() {
	if !s.call.begun {
		s.begin(s.call.xml.name)
	}
}

// xmlBegin begins a parameter. A second one of the same name is refused: JSON
// readers differ in what it means.
func (s *Splitter) xmlBegin(name string) verdict {
	x := &s.call.xml
	if x.seen[name] {
		return bad
	}
	if len(x.seen) == 0 {
		s.argument('{')
	} else {
		s.argument(',')
	}
	x.seen[name] = true
	s.argument(quote(name)...)
	s.argument(':')
	x.state, x.held, x.first, x.value, x.types = xmlText, nil, true, nil, x.tool.properties[name]
	x.line = false
	if x.types.text() {
		s.argument('"')
	}
	return more
}

// xmlValue takes a byte of a value. It ends, with the line end before,
//
//   - at </parameter>, if a tag of xmlFollow comes next;
//   - at a line's </function>, if </tool_call> or nothing comes next;
//   - at a line's <parameter=name>, for a parameter that the schema has and the
//     call has not yet.
//
// What may become one of these is held until it is or is not.
func (s *Splitter) xmlValue(b byte) verdict {
	x := &s.call.xml
	first := x.first
	x.first = false
	switch x.state {
	case xmlText:
		switch {
		case b == '\n' && first:
			x.line = true
		case b == '\n':
			s.xmlRelease(len(x.held))
			x.held = append(x.held, b)
		case b == '<':
			x.tag = len(x.held)
			x.line = x.line || x.tag > 0
			x.held = append(x.held, b)
			x.state = xmlFirst
		default:
			s.xmlRelease(len(x.held))
			s.xmlPut(b)
			x.line = false
		}
		return more
	case xmlFirst:
		tags := xmlEnds
		if x.line {
			tags = xmlLineEnds
		}
		tag, ok := follows(append(x.held[x.tag:], b), tags)
		if !ok {
			return s.xmlReopen(b)
		}
		switch tag {
		case tagParamEnd:
			x.state = xmlClosed
		case tagFunctionEnd:
			x.state = xmlEnded
		case tagParam:
			x.state = xmlAnother
		}
	case xmlClosed, xmlEnded:
		switch {
		case b == '<':
			x.state++
			x.tag = len(x.held)
		case !isSpace(b):
			return s.xmlReopen(b)
		}
	case xmlNext, xmlLast:
		tags := xmlFollow
		if x.state == xmlLast {
			tags = []string{tagCallEnd}
		}
		tag, ok := follows(append(x.held[x.tag:], b), tags)
		if !ok {
			return s.xmlReopen(b)
		}
		if tag != "" {
			s.xmlEnd()
			return s.xmlFollow(tag)
		}
	case xmlAnother:
		if b != '>' {
			if !isName(b) {
				return s.xmlReopen(b)
			}
			break
		}
		name := string(x.held[x.tag+len(tagParam):])
		if _, ok := x.tool.properties[name]; !ok || x.seen[name] {
			return s.xmlReopen(b)
		}
		s.xmlEnd()
		return s.xmlBegin(name)
	}
	x.held = append(x.held, b)
	return more
}

// xmlReopen takes what looked like the end of a value as text. After its first <
// the end may begin all the same, so that is read again.
func (s *Splitter) xmlReopen(b byte) verdict {
	x := &s.call.xml
	at := bytes.IndexByte(x.held, '<') + 1
	tail := append([]byte(nil), x.held[at:]...)
	s.xmlRelease(at)
	x.held, x.state, x.line = nil, xmlText, false
	for _, b := range append(tail, b) {
		s.xmlValue(b)
	}
	return more
}

// xmlFlush ends a call at the end of the reply if it is whole but for the tags
// that may be missing.
func (s *Splitter) xmlFlush() bool {
	if s.call.form != formXML || s.call.xml.state != xmlEnded {
		return false
	}
	s.xmlEnd()
	s.argument('}')
	s.endCall(CallDone)
	return true
}

// xmlRelease gives the first n held bytes as text of the value.
func (s *Splitter) xmlRelease(n int) {
	x := &s.call.xml
	for _, b := range x.held[:n] {
		s.xmlPut(b)
	}
	x.held = x.held[n:]
}

func (s *Splitter) xmlPut(b byte) {
	x := &s.call.xml
	if !x.types.text() {
		x.value = append(x.value, b)
		return
	}
	s.argument(escape(b)...)
}

func (s *Splitter) xmlEnd() {
	x := &s.call.xml
	if x.types.text() {
		s.argument('"')
		return
	}
	s.argument(x.types.convert(string(x.value))...)
}

// escape is a byte of a text in a JSON string.
func escape(b byte) []byte {
	switch {
	case b == '"' || b == '\\':
		return []byte{'\\', b}
	case b == '\n':
		return []byte(`\n`)
	case b == '\t':
		return []byte(`\t`)
	case b == '\r':
		return []byte(`\r`)
	case b < ' ':
		return fmt.Appendf(nil, `\u%04x`, b)
	}
	return []byte{b}
}

// quote is a text as a JSON string.
func quote(text string) []byte {
	out := []byte{'"'}
	for i := range len(text) {
		out = append(out, escape(text[i])...)
	}
	return append(out, '"')
}

// convert is a parameter's text as JSON of one of the types, or else as a
// string.
func (t types) convert(text string) []byte {
	value := strings.TrimSpace(text)
	switch value {
	case "True", "False":
		if t&typeBoolean != 0 {
			return []byte(strings.ToLower(value))
		}
	case "None":
		if t&typeNull != 0 {
			return []byte("null")
		}
	}
	if json.Valid([]byte(value)) && t&^typeString&typeOf(value) != 0 {
		return []byte(value)
	}
	return quote(text)
}
