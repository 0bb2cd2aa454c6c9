package grammar

import (
	"encoding/json/jsontext"
	"math"
	"strconv"
	"strings"
)

// shape is what a schema asks for in its own keywords, references and
// combinations apart.
type shape struct {
	types typeSet
	enum  []*value // nil for none
	rules []*value // keywords beside enum that narrow the value, for messages

	minLength, maxLength int // maxLength -1 for none
	patterns             []*value
	formats              []*value

	numbers numberRange

	prefix             []all
	items              *all // nil: any
	minItems, maxItems int

	names      []string // of the properties, in order
	properties map[string]all
	required   []string
	additional *all // nil: nothing is said
}

// all are schemas that must hold together; none of them is no constraint.
type all []*value

// typeSet is a set of JSON's types. A number that may be anything has both
// typeInteger and typeNumber.
type typeSet uint8

const (
	typeNull typeSet = 1 << iota
	typeBoolean
	typeInteger
	typeNumber // that is no integer
	typeString
	typeArray
	typeObject
	anyType typeSet = 1<<iota - 1
)

var typeNames = map[string]typeSet{
	"null": typeNull, "boolean": typeBoolean, "integer": typeInteger, "number": typeInteger | typeNumber,
	"string": typeString, "array": typeArray, "object": typeObject,
}

// typeOf is a value's type.
func typeOf(v *value) typeSet {
	switch v.kind {
	case jsontext.KindNull:
		return typeNull
	case jsontext.KindTrue, jsontext.KindFalse:
		return typeBoolean
	case jsontext.KindString:
		return typeString
	case jsontext.KindBeginArray:
		return typeArray
	case jsontext.KindBeginObject:
		return typeObject
	}
	if v.isWhole() {
		return typeInteger
	}
	return typeNumber
}

// annotations say something about a value that does not narrow it, or hold
// schemas for others.
var annotations = map[string]bool{
	"title": true, "description": true, "default": true, "example": true, "examples": true, "deprecated": true,
	"readOnly": true, "writeOnly": true, "$comment": true, "$schema": true, "$defs": true, "definitions": true,
}

// combinations are read by flatten.
var combinations = map[string]bool{"$ref": true, "allOf": true, "anyOf": true, "oneOf": true}

func newShape() *shape { return &shape{types: anyType, maxLength: -1, maxItems: -1} }

// readShape reads a schema's own keywords. Whatever it does not know it refuses.
func readShape(v *value) (*shape, error) {
	s := newShape()
	for i, name := range v.names {
		if annotations[name] || combinations[name] {
			continue
		}
		if err := s.keyword(v, name, v.members[i]); err != nil {
			return nil, err
		}
	}
	if n := v.get("nullable"); n != nil && n.isTrue() {
		s.types |= typeNull
	}
	return s, nil
}

func (s *shape) keyword(schema *value, name string, v *value) error {
	bad := func(want string) error { return schemaError(ErrSchema, v, "%s must be %s", name, want) }
	var err error
	switch name {
	case "$id":
		if schema.parent != nil {
			return schemaError(ErrUnsupported, v, "$id inside of a schema")
		}
		return nil
	case "nullable":
		if v.kind != jsontext.KindTrue && v.kind != jsontext.KindFalse {
			return bad("true or false")
		}
		return nil
	case "type":
		return s.readTypes(v)
	case "enum":
		if !v.isArray() || len(v.members) == 0 {
			return bad("a list that is not empty")
		}
		s.enum = v.members
		return nil
	case "const":
		s.enum = []*value{v}
		return nil
	}
	s.rules = append(s.rules, v)
	switch name {
	case "minLength":
		s.minLength, err = whole(v)
	case "maxLength":
		s.maxLength, err = whole(v)
	case "pattern", "format":
		if !v.isString() {
			return bad("a string")
		}
		if name == "pattern" {
			s.patterns = []*value{v}
			return nil
		}
		if _, ok := formats[v.text]; !ok {
			return schemaError(ErrUnsupported, v, "format %q; there are %s", v.text, strings.Join(formatNames(), ", "))
		}
		s.formats = []*value{v}
	case "minimum", "exclusiveMinimum":
		s.numbers, err = tightenBound(s.numbers, v, name == "exclusiveMinimum", true)
	case "maximum", "exclusiveMaximum":
		s.numbers, err = tightenBound(s.numbers, v, name == "exclusiveMaximum", false)
	case "items":
		if v.isArray() {
			return schemaError(ErrUnsupported, v, "items as a list; since draft 2020-12 that is prefixItems")
		}
		s.items = &all{v}
	case "prefixItems":
		if !v.isArray() || len(v.members) == 0 {
			return bad("a list that is not empty")
		}
		for _, item := range v.members {
			s.prefix = append(s.prefix, all{item})
		}
	case "minItems":
		s.minItems, err = whole(v)
	case "maxItems":
		s.maxItems, err = whole(v)
	case "uniqueItems":
		if v.kind != jsontext.KindFalse {
			return schemaError(ErrUnsupported, v, "uniqueItems")
		}
	case "properties":
		if !v.isObject() {
			return bad("an object")
		}
		s.properties = make(map[string]all, len(v.names))
		for i, name := range v.names {
			s.names = append(s.names, name)
			s.properties[name] = all{v.members[i]}
		}
	case "required":
		if !v.isArray() {
			return bad("a list of names")
		}
		for _, m := range v.members {
			if !m.isString() {
				return bad("a list of names")
			}
			s.required = append(s.required, m.text)
		}
	case "additionalProperties":
		s.additional = &all{v}
	default:
		return schemaError(ErrUnsupported, v, "the keyword %s", name)
	}
	return err
}

func (s *shape) readTypes(v *value) error {
	names := []*value{v}
	if v.isArray() {
		names = v.members
	}
	s.types = 0
	for _, name := range names {
		t, ok := typeNames[name.text]
		if !ok || !name.isString() {
			return schemaError(ErrSchema, v, "type must be null, boolean, integer, number, string, array, object or a list of these")
		}
		s.types |= t
	}
	if s.types == 0 {
		return schemaError(ErrSchema, v, "type is an empty list")
	}
	return nil
}

// whole reads a length. 1.0 is one too.
func whole(v *value) (int, error) {
	if v.kind == jsontext.KindNumber && v.isWhole() {
		d, err := parseDecimal(v.text)
		if err == nil && !d.negative {
			n, err := strconv.Atoi(d.whole)
			if err != nil || n > math.MaxInt32-1 {
				n = math.MaxInt32 - 1 // nobody reaches it
			}
			return n, nil
		}
	}
	return 0, schemaError(ErrSchema, v, "%s must be a whole number, 0 or more", v.name)
}

func tightenBound(r numberRange, v *value, exclusive, low bool) (numberRange, error) {
	if v.kind == jsontext.KindTrue || v.kind == jsontext.KindFalse {
		return r, schemaError(ErrUnsupported, v, "%s as true or false; since draft 6 it is a number", v.name)
	}
	if v.kind != jsontext.KindNumber {
		return r, schemaError(ErrSchema, v, "%s must be a number", v.name)
	}
	d, err := parseDecimal(v.text)
	if err != nil {
		return r, schemaError(ErrUnsupported, v, "%s: %w", v.name, err)
	}
	b := &bound{d, exclusive}
	if low {
		return r.tighten(numberRange{low: b}), nil
	}
	return r.tighten(numberRange{high: b}), nil
}

// merge is what holds where both shapes do.
func (s *shape) merge(o *shape) *shape {
	out := newShape()
	out.types = s.types & o.types
	out.enum = intersect(s.enum, o.enum)
	out.rules = append(append(out.rules, s.rules...), o.rules...)
	out.minLength, out.maxLength = max(s.minLength, o.minLength), least(s.maxLength, o.maxLength)
	out.patterns = append(append(out.patterns, s.patterns...), o.patterns...)
	out.formats = append(append(out.formats, s.formats...), o.formats...)
	out.numbers = s.numbers.tighten(o.numbers)
	out.minItems, out.maxItems = max(s.minItems, o.minItems), least(s.maxItems, o.maxItems)
	for i := range max(len(s.prefix), len(o.prefix)) {
		out.prefix = append(out.prefix, join(s.item(i), o.item(i)))
	}
	if s.items != nil || o.items != nil {
		items := join(s.item(math.MaxInt), o.item(math.MaxInt))
		out.items = &items
	}
	out.properties = map[string]all{}
	for _, shape := range []*shape{s, o} {
		for _, name := range shape.names {
			if _, ok := out.properties[name]; !ok {
				out.names = append(out.names, name)
				out.properties[name] = join(s.property(name), o.property(name))
			}
		}
		out.required = append(out.required, shape.required...)
	}
	switch {
	case s.additional == nil:
		out.additional = o.additional
	case o.additional == nil:
		out.additional = s.additional
	default:
		additional := join(*s.additional, *o.additional)
		out.additional = &additional
	}
	return out
}

// item is what the i-th item must satisfy.
func (s *shape) item(i int) all {
	if i < len(s.prefix) {
		return s.prefix[i]
	}
	if s.items != nil {
		return *s.items
	}
	return nil
}

// property is what a property must satisfy.
func (s *shape) property(name string) all {
	if p, ok := s.properties[name]; ok {
		return p
	}
	if s.additional != nil {
		return *s.additional
	}
	return nil
}

func join(a, b all) all { return append(append(all(nil), a...), b...) }

// least is the lesser of two upper bounds, -1 for none.
func least(a, b int) int {
	switch {
	case a < 0:
		return b
	case b < 0:
		return a
	}
	return min(a, b)
}

// intersect are the values of both lists; nil is no list.
func intersect(a, b []*value) []*value {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	keys := map[string]bool{}
	for _, v := range b {
		keys[v.equalKey()] = true
	}
	out := []*value{}
	for _, v := range a {
		if keys[v.equalKey()] {
			out = append(out, v)
		}
	}
	return out
}
