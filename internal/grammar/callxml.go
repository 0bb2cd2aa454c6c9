package grammar

import (
	"encoding/json/jsontext"
	"fmt"
	"slices"
	"strings"
)

// callXML reads a call whose arguments stand between tags of their own, as text
// where they are strings and as JSON where they are not.
func (b *builder) callXML(t Tool, next int32) (int32, error) {
	if strings.ContainsAny(t.Name, "<>\n") {
		return 0, fmt.Errorf("%w: its name has one of <, > and line end", ErrSchema)
	}
	at := b.tag("</function>", next)
	if t.Parameters != nil {
		root, err := parseValue(t.Parameters)
		if err != nil {
			return 0, err
		}
		if at, err = newCompiler(b, root).parameters(at); err != nil {
			return 0, err
		}
	}
	return b.tag("<function="+t.Name+">\n", at), nil
}

// parameters reads the arguments, in the schema's order. There are none beside
// those that the schema lists.
func (c *compiler) parameters(next int32) (int32, error) {
	p := &parts{}
	if err := c.flatten(p, all{c.root, objectsOnly}); err != nil {
		return 0, err
	}
	if p.never || len(p.choices) > 0 {
		return 0, schemaError(ErrUnsupported, c.root, "anyOf, oneOf or false for all the arguments of a tool whose calls are not JSON")
	}
	s := c.shape(p)
	if s.enum != nil {
		return 0, schemaError(ErrUnsupported, c.root, "enum or const for all the arguments of a tool whose calls are not JSON")
	}
	names := slices.Clone(s.names)
	for _, name := range s.required {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	at := next
	for _, name := range slices.Backward(names) {
		if strings.ContainsAny(name, "<>\n") {
			return 0, schemaError(ErrUnsupported, c.root, "an argument %q: its name has one of <, > and line end", name)
		}
		value, err := c.argument(name, s.property(name), c.space(at))
		if err != nil {
			return 0, err
		}
		here := c.tag("<parameter="+name+">\n", value)
		if at = c.either(here, at); slices.Contains(s.required, name) {
			at = here
		}
	}
	return at, nil
}

const parameterEnd = "</parameter>"

// argument reads a value and its closing tag.
func (c *compiler) argument(name string, schemas all, next int32) (int32, error) {
	shapes, err := c.alternatives(schemas, 0)
	if err != nil {
		return 0, err
	}
	end := c.literal("\n", c.tag(parameterEnd, next))
	var texts []string // of enum
	var others, text bool
	var rule *value
	for _, s := range shapes {
		if len(s.rules) > 0 {
			rule = s.rules[0]
		}
		if s.enum == nil {
			others = true
			text = text || s.types&typeString != 0
		}
		for _, v := range s.enum {
			switch {
			case typeOf(v)&s.types == 0:
			case !v.isString():
				var b strings.Builder
				v.literal(&b)
				texts = append(texts, b.String())
			case strings.Trim(v.text, "\r\n") != v.text || strings.Contains(v.text, parameterEnd) || len(v.text) > maxLiteral:
				return 0, schemaError(ErrUnsupported, v, "%q as an argument of a tool whose calls are not JSON", v.text)
			default:
				texts = append(texts, v.text)
			}
		}
	}
	switch {
	case text && rule != nil:
		return 0, schemaError(ErrUnsupported, rule, "%s for the argument %q, which may be a string and is not written as JSON", rule.name, name)
	case text:
		return c.until(parameterEnd, atTag, false, next), nil
	case others && len(texts) > 0:
		return 0, schemaError(ErrUnsupported, c.root, "enum beside other alternatives for the argument %q of a tool whose calls are not JSON", name)
	case len(texts) > 0:
		return c.words(texts, end), nil
	}
	value, err := c.rule(schemas)
	return c.then(value, end), err
}

// alternatives are the shapes of which one must hold.
func (c *compiler) alternatives(schemas all, depth int) ([]*shape, error) {
	p := &parts{}
	if err := c.flatten(p, schemas); err != nil || p.never {
		return nil, err
	}
	return c.expand(p, depth)
}

func (c *compiler) expand(p *parts, depth int) ([]*shape, error) {
	if len(p.choices) == 0 {
		return []*shape{c.shape(p)}, nil
	}
	if depth > maxChoices {
		return nil, fmt.Errorf("%w: alternatives are nested more than %d deep", ErrUnsupported, maxChoices)
	}
	var out []*shape
	for _, alternative := range p.choices[0].members {
		q := &parts{atoms: slices.Clone(p.atoms), choices: slices.Clone(p.choices[1:])}
		if err := c.flatten(q, all{alternative}); err != nil {
			return nil, err
		}
		if q.never {
			continue
		}
		shapes, err := c.expand(q, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, shapes...)
	}
	return out, nil
}

const maxChoices = 8

// objectsOnly is the schema {"type": "object"}.
var objectsOnly = func() *value {
	object := &value{id: 1 << 30, kind: jsontext.KindBeginObject, names: []string{"type"}}
	object.members = []*value{{id: 1<<30 + 1, kind: jsontext.KindString, text: "object", parent: object, name: "type"}}
	return object
}()
