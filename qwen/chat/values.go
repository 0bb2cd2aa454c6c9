package chat

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"encoding/json/jsontext"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ardanlabs/jinja"
)

// maxDepth is how deep JSON may nest; Python's own limit is near it.
const maxDepth = 900

// maxDigits is Python's limit for whole numbers in text.
const maxDigits = 4300

// values makes the engine's values of one rendering.
type values struct {
	// big holds whole numbers outside int64, which the engine cannot carry.
	// They travel as strings, mark + index + mark, and finish puts them back.
	big  []string
	mark string // random, so that no message can hold it
}

// finish puts the big numbers back into rendered text.
func (v *values) finish(text string) string {
	if len(v.big) == 0 {
		return text
	}
	var pairs []string
	for i, digits := range v.big {
		marked := v.marked(i)
		pairs = append(pairs, `"`+marked+`"`, digits, marked, digits)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

func (v *values) marked(i int) string { return v.mark + strconv.Itoa(i) + v.mark }

// json converts JSON text, keeping the order of keys. Of equal keys the last
// value counts, in the place of the first, as in Python.
func (v *values) json(text []byte) (jinja.Value, error) {
	d := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	value, err := v.next(d)
	if err != nil {
		return jinja.Undefined(), err
	}
	if rest := bytes.TrimSpace(text[d.InputOffset():]); len(rest) > 0 {
		return jinja.Undefined(), fmt.Errorf("%.40q after the end of the JSON value", rest)
	}
	return value, nil
}

func (v *values) next(d *jsontext.Decoder) (jinja.Value, error) {
	if d.StackDepth() > maxDepth {
		return jinja.Undefined(), fmt.Errorf("JSON nests deeper than %d", maxDepth)
	}
	token, err := d.ReadToken()
	if err != nil {
		return jinja.Undefined(), err
	}
	switch token.Kind() {
	case jsontext.KindNull:
		return jinja.None(), nil
	case jsontext.KindTrue, jsontext.KindFalse:
		return jinja.NewBool(token.Bool()), nil
	case jsontext.KindString:
		return jinja.NewString(token.String()), nil
	case jsontext.KindNumber:
		return v.number(token.String())
	case jsontext.KindBeginArray:
		items := []jinja.Value{}
		for d.PeekKind() != jsontext.KindEndArray {
			item, err := v.next(d)
			if err != nil {
				return jinja.Undefined(), err
			}
			items = append(items, item)
		}
		_, err := d.ReadToken()
		return jinja.NewList(items), err
	default: // an object: the decoder lets nothing else through
		dict := jinja.NewDict()
		for d.PeekKind() != jsontext.KindEndObject {
			name, err := d.ReadToken()
			if err != nil {
				return jinja.Undefined(), err
			}
			key := name.String() // before the next token takes its place
			item, err := v.next(d)
			if err != nil {
				return jinja.Undefined(), err
			}
			dict.AsDict().Set(key, item)
		}
		_, err := d.ReadToken()
		return dict, err
	}
}

// number keeps Python's distinction: whole numbers are those without a point
// and an exponent, the rest is float64, infinite beyond its range.
func (v *values) number(text string) (jinja.Value, error) {
	if strings.ContainsAny(text, ".eE") {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil && !math.IsInf(f, 0) {
			return jinja.Undefined(), err
		}
		return jinja.NewFloat(f), nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return jinja.NewInt(n), nil
	}
	if len(text) > maxDigits {
		return jinja.Undefined(), fmt.Errorf("number of %d digits", len(text))
	}
	if v.mark == "" {
		v.mark = "-" + rand.Text() + "-"
	}
	v.big = append(v.big, text)
	return jinja.NewString(v.marked(len(v.big) - 1)), nil
}

// goValue converts a template variable that the caller gave.
func (v *values) goValue(x any) (jinja.Value, error) {
	switch x := x.(type) {
	case nil:
		return jinja.None(), nil
	case bool:
		return jinja.NewBool(x), nil
	case string:
		return jinja.NewString(x), nil
	case json.RawMessage:
		return v.json(x)
	}
	// Everything else is what its JSON says, with the keys of maps sorted.
	text, err := json.Marshal(x)
	if err != nil {
		return jinja.Undefined(), err
	}
	return v.json(text)
}

func (v *values) fields(dict *jinja.Dict, fields map[string]json.RawMessage) error {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value, err := v.json(fields[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		dict.Set(name, value)
	}
	return nil
}

func (v *values) message(m Message, verbatim bool) (jinja.Value, error) {
	value := jinja.NewDict()
	dict := value.AsDict()
	dict.Set("role", jinja.NewString(m.Role))
	if !verbatim || m.Parts == nil {
		text, err := m.Text()
		if err != nil {
			return value, err
		}
		dict.Set("content", jinja.NewString(text))
	} else {
		parts := make([]jinja.Value, len(m.Parts))
		for i, p := range m.Parts {
			parts[i] = jinja.NewDict()
			part := parts[i].AsDict()
			part.Set("type", jinja.NewString(p.Type))
			if p.Type == "text" {
				part.Set("text", jinja.NewString(p.Text))
			}
			if err := v.fields(part, p.Fields); err != nil {
				return value, fmt.Errorf("part %d: %w", i, err)
			}
		}
		dict.Set("content", jinja.NewList(parts))
	}
	if m.ReasoningContent != nil {
		dict.Set("reasoning_content", jinja.NewString(*m.ReasoningContent))
	}
	if len(m.ToolCalls) > 0 {
		calls := make([]jinja.Value, len(m.ToolCalls))
		for i, c := range m.ToolCalls {
			call, err := v.toolCall(c, verbatim)
			if err != nil {
				return value, fmt.Errorf("tool call %d (%s): %w", i, c.Name, err)
			}
			calls[i] = call
		}
		dict.Set("tool_calls", jinja.NewList(calls))
	}
	if m.ToolCallID != "" {
		dict.Set("tool_call_id", jinja.NewString(m.ToolCallID))
	}
	if m.Name != "" {
		dict.Set("name", jinja.NewString(m.Name))
	}
	return value, v.fields(dict, m.Fields)
}

func (v *values) toolCall(c ToolCall, verbatim bool) (jinja.Value, error) {
	call, function := jinja.NewDict(), jinja.NewDict()
	if c.ID != "" {
		call.AsDict().Set("id", jinja.NewString(c.ID))
	}
	call.AsDict().Set("type", jinja.NewString("function"))
	call.AsDict().Set("function", function)
	function.AsDict().Set("name", jinja.NewString(c.Name))
	if c.Arguments == nil {
		return call, nil
	}
	arguments, err := v.json(c.Arguments)
	if err != nil {
		return call, fmt.Errorf("%w: %w", ErrArguments, err)
	}
	if arguments.IsString() && c.Arguments.Kind() == jsontext.KindString && !verbatim {
		text := arguments.AsString()
		if strings.TrimSpace(text) == "" { // what clients send for a call without arguments
			text = "{}"
		}
		if arguments, err = v.json([]byte(text)); err != nil {
			return call, fmt.Errorf("%w: %w", ErrArguments, err)
		}
		if !arguments.IsDict() {
			return call, fmt.Errorf("%w: the text is %.40q", ErrArguments, text)
		}
	}
	function.AsDict().Set("arguments", arguments)
	return call, nil
}
