package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrTool says that a tool is not described as OpenAI's API has it: an object
// with a name, by itself or in "function".
var ErrTool = errors.New("not a tool's description")

// tool is what a Splitter knows of a tool.
type tool struct {
	properties map[string]types
}

// types are the JSON types that a schema allows, as a set. None is known where
// it is 0.
type types uint8

const (
	typeString types = 1 << iota
	typeNumber
	typeBoolean
	typeObject
	typeArray
	typeNull
)

var typeNames = map[string]types{
	"string": typeString, "number": typeNumber, "integer": typeNumber, "boolean": typeBoolean,
	"object": typeObject, "array": typeArray, "null": typeNull,
}

// text says that a value is nothing but a string.
func (t types) text() bool { return t&^typeString == 0 }

// typeOf is the type of valid JSON.
func typeOf(value string) types {
	switch value[0] {
	case '"':
		return typeString
	case '{':
		return typeObject
	case '[':
		return typeArray
	case 't', 'f':
		return typeBoolean
	case 'n':
		return typeNull
	}
	return typeNumber
}

// ToolNames are the names of tools, in their order. The error wraps ErrTool.
func ToolNames(tools []json.RawMessage) ([]string, error) {
	var names []string
	for i, raw := range tools {
		name, _, err := describe(raw)
		if err != nil {
			return nil, fmt.Errorf("chat: tool %d: %w", i, err)
		}
		names = append(names, name)
	}
	return names, nil
}

// ToolParameters are the schemas of the tools' arguments, in their order; nil for
// a tool that has none. The error wraps ErrTool.
func ToolParameters(tools []json.RawMessage) ([]json.RawMessage, error) {
	var all []json.RawMessage
	for i, raw := range tools {
		_, parameters, err := describe(raw)
		if err != nil {
			return nil, fmt.Errorf("chat: tool %d: %w", i, err)
		}
		if string(parameters) == "null" {
			parameters = nil
		}
		all = append(all, parameters)
	}
	return all, nil
}

// describe takes a tool's description apart.
func describe(raw json.RawMessage) (name string, parameters json.RawMessage, err error) {
	type function struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	}
	var d struct {
		function
		Function *function `json:"function"`
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrTool, err)
	}
	if d.Function != nil {
		d.function = *d.Function
	}
	if d.Name == "" {
		return "", nil, fmt.Errorf("%w: it has no name: %.60q", ErrTool, raw)
	}
	return d.Name, d.Parameters, nil
}

func parseTools(tools []json.RawMessage) (map[string]tool, error) {
	known := map[string]tool{}
	for i, raw := range tools {
		name, parameters, err := describe(raw)
		if err != nil {
			return nil, fmt.Errorf("chat: tool %d: %w", i, err)
		}
		known[name] = tool{properties: propertyTypes(parameters)}
	}
	return known, nil
}

// propertyTypes are the types of an object's members, as far as its schema says
// them.
func propertyTypes(schema json.RawMessage) map[string]types {
	s := schemaTypes{root: decoded(schema), budget: maxSchemaSteps}
	found := map[string]types{}
	properties, _ := member(s.resolve(s.root), "properties").(map[string]any)
	for name, property := range properties {
		s.budget = maxSchemaSteps
		found[name] = s.of(property)
	}
	return found
}

// maxSchemaSteps bounds the work for one property, whose references may multiply
// or go round in a circle.
const maxSchemaSteps = 200

// unescape reads a step of a JSON pointer (RFC 6901).
var unescape = strings.NewReplacer("~1", "/", "~0", "~")

type schemaTypes struct {
	root   any
	budget int
}

func decoded(text json.RawMessage) any {
	var value any
	if json.Unmarshal(text, &value) != nil {
		return nil // no types are known then
	}
	return value
}

func member(value any, name string) any {
	object, _ := value.(map[string]any)
	return object[name]
}

// of is the set of types that a schema allows.
func (s *schemaTypes) of(schema any) types {
	if s.budget--; s.budget < 0 {
		return 0
	}
	schema = s.resolve(schema)
	var t types
	switch named := member(schema, "type").(type) {
	case string:
		t = typeNames[named]
	case []any:
		for _, name := range named {
			text, _ := name.(string)
			t |= typeNames[text]
		}
	}
	if t != 0 {
		return t
	}
	values, _ := member(schema, "enum").([]any)
	if object, ok := schema.(map[string]any); ok {
		if value, ok := object["const"]; ok {
			values = append(slices.Clone(values), value)
		}
	}
	for _, value := range values {
		if text, err := json.Marshal(value); err == nil {
			t |= typeOf(string(text))
		}
	}
	for _, name := range []string{"anyOf", "oneOf", "allOf"} {
		list, _ := member(schema, name).([]any)
		for _, one := range list {
			t |= s.of(one)
		}
	}
	return t
}

// resolve follows references inside the schema.
func (s *schemaTypes) resolve(schema any) any {
	for {
		ref, _ := member(schema, "$ref").(string)
		path, ok := strings.CutPrefix(ref, "#")
		if s.budget--; !ok || s.budget < 0 {
			return schema
		}
		schema = s.root
		for name := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
			if path != "" {
				schema = member(schema, unescape.Replace(name))
			}
		}
	}
}
