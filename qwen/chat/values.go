package chat

import (
	"bytes"
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
	// hidden holds what must not or cannot go through the engine: control tokens
	// inside messages, and whole numbers outside int64. See hide and finish.
	hidden   []hidden
	marks    map[hidden]rune
	controls *strings.Replacer // control tokens to their marks, or nil
	err      error             // the first that text could not return
}

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
		return v.text(token.String()), nil
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
			// Before the next token takes its place.
			key := v.text(name.String()).AsString()
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
	mark, err := v.hide(hidden{text, number})
	return jinja.NewString(mark), err
}

// goValue converts a template variable that the caller gave.
func (v *values) goValue(x any) (jinja.Value, error) {
	switch x := x.(type) {
	case nil:
		return jinja.None(), nil
	case bool:
		return jinja.NewBool(x), nil
	case string:
		return v.text(x), nil
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
	dict.Set("role", v.text(m.Role))
	if !verbatim || m.Parts == nil {
		text, err := m.Text()
		if err != nil {
			return value, err
		}
		dict.Set("content", v.text(text))
	} else {
		parts := make([]jinja.Value, len(m.Parts))
		for i, p := range m.Parts {
			parts[i] = jinja.NewDict()
			part := parts[i].AsDict()
			part.Set("type", v.text(p.Type))
			if p.Type == "text" {
				part.Set("text", v.text(p.Text))
			}
			if err := v.fields(part, p.Fields); err != nil {
				return value, fmt.Errorf("part %d: %w", i, err)
			}
		}
		dict.Set("content", jinja.NewList(parts))
	}
	if m.ReasoningContent != nil {
		dict.Set("reasoning_content", v.text(*m.ReasoningContent))
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
		dict.Set("tool_call_id", v.text(m.ToolCallID))
	}
	if m.Name != "" {
		dict.Set("name", v.text(m.Name))
	}
	return value, v.fields(dict, m.Fields)
}

func (v *values) toolCall(c ToolCall, verbatim bool) (jinja.Value, error) {
	call, function := jinja.NewDict(), jinja.NewDict()
	if c.ID != "" {
		call.AsDict().Set("id", v.text(c.ID))
	}
	call.AsDict().Set("type", jinja.NewString("function"))
	call.AsDict().Set("function", function)
	function.AsDict().Set("name", v.text(c.Name))
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
