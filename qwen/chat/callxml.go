package chat

import (
	"encoding/json"
	"fmt"
	"strings"
)

// xmlCall reads <function=…> and its parameters.
type xmlCall struct {
	state  xmlState
	held   []byte // a tag that is not whole, or what may end a value
	closed int    // bytes of held up to the end of </parameter>
	tool   tool
	seen   map[string]bool
	first  bool // the next byte is the value's first
	types  types
	value  []byte // of a parameter that is kept whole
}

type xmlState int

const (
	xmlFunction xmlState = iota // <function=
	xmlName                     // the function's name
	xmlBetween                  // white space before a parameter or the end
	xmlTag                      // a tag after it
	xmlParam                    // a parameter's name
	xmlText                     // a value; held may be a line end
	xmlClosing                  // a value; held ends with a piece of </parameter>
	xmlClosed                   // held ends with </parameter> and white space
	xmlNext                     // held ends with a piece of the tag after that
)

// xmlFollow are the tags that may follow the function's name or a parameter.
var xmlFollow = []string{tagParam, tagFunctionEnd, tagCallEnd}

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
		s.begin(name)
		x.state, x.held, x.seen = xmlBetween, nil, map[string]bool{}
	case xmlBetween:
		if b == '<' {
			x.state = xmlTag
			x.held = append(x.held, b)
			return more
		}
		return when(isSpace(b))
	case xmlTag:
		tag, ok := follows(append(x.held, b))
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
func isName(b byte) bool { return b >= ' ' && b != '<' }

// follows says whether text begins a tag of xmlFollow, and which it is if it is
// whole.
func follows(text []byte) (whole string, ok bool) {
	for _, tag := range xmlFollow {
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
		x.state, x.held = xmlParam, nil
		return more
	case tagCallEnd:
		s.mode, s.skip = modeContent, true
	}
	if len(x.seen) == 0 {
		s.argument('{')
	}
	s.argument('}')
	return done
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
	if x.types.text() {
		s.argument('"')
	}
	return more
}

// xmlValue takes a byte of a value. The line end and the tags that may end it
// are held until they have or have not.
func (s *Splitter) xmlValue(b byte) verdict {
	x := &s.call.xml
	first := x.first
	x.first = false
	switch x.state {
	case xmlText:
		switch {
		case b == '\n' && first:
		case b == '\n':
			s.xmlRelease(len(x.held))
			x.held = append(x.held, b)
		case b == '<':
			x.held = append(x.held, b)
			x.state = xmlClosing
		default:
			s.xmlRelease(len(x.held))
			s.xmlPut(b)
		}
	case xmlClosing:
		n := len(x.held)
		if x.held[0] == '\n' {
			n--
		}
		if b != tagParamEnd[n] {
			x.state = xmlText
			s.xmlRelease(len(x.held))
			return s.xmlValue(b)
		}
		x.held = append(x.held, b)
		if n+1 == len(tagParamEnd) {
			x.state, x.closed = xmlClosed, len(x.held)
		}
	case xmlClosed:
		switch {
		case b == '<':
			x.state = xmlNext
			fallthrough
		case isSpace(b):
			x.held = append(x.held, b)
		default:
			return s.xmlReopen(b)
		}
	case xmlNext:
		at := len(x.held) - 1
		for x.held[at] != '<' {
			at--
		}
		tag, ok := follows(append(x.held[at:], b))
		if !ok {
			return s.xmlReopen(b)
		}
		x.held = append(x.held, b)
		if tag == "" {
			return more
		}
		s.xmlEnd()
		return s.xmlFollow(tag)
	}
	return more
}

// xmlReopen takes what looked like the end of a value as text. What stood after
// its </parameter> may hold the end, so it is read again.
func (s *Splitter) xmlReopen(b byte) verdict {
	x := &s.call.xml
	tail := append([]byte(nil), x.held[x.closed:]...)
	s.xmlRelease(x.closed)
	x.held, x.state = nil, xmlText
	for _, b := range append(tail, b) {
		s.xmlValue(b)
	}
	return more
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
