package chat

import (
	"encoding/json"
	"encoding/json/jsontext"
)

// jsonCall reads {"name": …, "arguments": …} after its opening brace.
type jsonCall struct {
	state   jsonCallState
	scanner scanner
	text    []byte // of the key or value that is kept whole
	key     string
	streams bool // the value goes out as it comes

	name      string
	named     bool
	arguments []byte // whole ones that no delta has yet
	given     bool   // arguments were there
}

type jsonCallState int

const (
	jsonFirst  jsonCallState = iota // a key or }
	jsonKey                         // a key, after a comma
	jsonInKey                       // inside a key
	jsonColon                       // the colon after it
	jsonValue                       // the first byte of its value
	jsonInside                      // inside the value
	jsonComma                       // a comma or }
)

func (s *Splitter) jsonStep(b byte) verdict {
	j := &s.call.json
	if j.state != jsonInKey && j.state != jsonInside && isSpace(b) {
		return more
	}
	switch j.state {
	case jsonFirst, jsonComma:
		if b == '}' {
			return s.jsonEnd()
		}
		if j.state == jsonComma {
			j.state = jsonKey
			return when(b == ',')
		}
		fallthrough
	case jsonKey:
		if b != '"' {
			return bad
		}
		j.state = jsonInKey
		j.begin(false)
		return j.scan(b)
	case jsonInKey:
		v := j.scan(b)
		if v != done {
			return v
		}
		if json.Unmarshal(j.text, &j.key) != nil {
			return bad
		}
		j.state = jsonColon
	case jsonColon:
		j.state = jsonValue
		return when(b == ':')
	case jsonValue:
		switch j.key {
		case "name":
			if j.named || b != '"' {
				return bad
			}
		case "arguments":
			if j.given || b != '{' && b != '"' && b != 'n' {
				return bad
			}
			j.given = true
			if j.named && b == '{' {
				s.begin(j.name)
				j.begin(true)
				break
			}
			j.begin(false)
		}
		if j.key != "arguments" {
			j.begin(false)
		}
		j.state = jsonInside
		return s.jsonInside(b)
	case jsonInside:
		return s.jsonInside(b)
	}
	return more
}

func when(ok bool) verdict {
	if ok {
		return more
	}
	return bad
}

func (j *jsonCall) begin(streams bool) {
	j.scanner, j.text, j.streams = scanner{}, nil, streams
}

// scan takes a byte of a key or a value that is kept.
func (j *jsonCall) scan(b byte) verdict {
	v := j.scanner.step(b)
	if v == more || v == done {
		j.text = append(j.text, b)
	}
	return v
}

// jsonInside takes a byte of a value, or the one after it if it is a number.
func (s *Splitter) jsonInside(b byte) verdict {
	j := &s.call.json
	var v verdict
	if j.streams {
		if v = j.scanner.step(b); v == bad {
			return bad
		}
		s.argument(b)
	} else {
		v = j.scan(b)
	}
	switch v {
	case more, bad:
		return v
	case done:
		j.state = jsonComma
		return s.jsonMember()
	default: // the end lay before b
		j.state = jsonComma
		if v := s.jsonMember(); v == bad {
			return bad
		}
		return s.jsonStep(b)
	}
}

// jsonMember takes a member whose value is whole.
func (s *Splitter) jsonMember() verdict {
	j := &s.call.json
	switch j.key {
	case "name":
		if json.Unmarshal(j.text, &j.name) != nil {
			return bad
		}
		if _, ok := s.tools[j.name]; !ok {
			return bad
		}
		j.named = true
		if j.arguments != nil {
			s.jsonBegin()
		}
	case "arguments":
		if j.streams {
			break
		}
		switch j.text[0] {
		case '{':
			j.arguments = j.text
		case 'n':
			j.arguments = []byte("{}")
		default:
			var text string
			if json.Unmarshal(j.text, &text) != nil {
				return bad
			}
			if value := jsontext.Value(text); value.Kind() != jsontext.KindBeginObject || !value.IsValid(jsontext.AllowDuplicateNames(true)) {
				return bad
			}
			j.arguments = []byte(text)
		}
		if j.named {
			s.jsonBegin()
		}
	}
	return more
}

// jsonBegin gives name and arguments, both known.
func (s *Splitter) jsonBegin() {
	j := &s.call.json
	s.begin(j.name)
	s.argument(j.arguments...)
}

func (s *Splitter) jsonEnd() verdict {
	j := &s.call.json
	if !j.named {
		return bad
	}
	if !j.given {
		j.arguments = []byte("{}")
		s.jsonBegin()
	}
	return done
}
