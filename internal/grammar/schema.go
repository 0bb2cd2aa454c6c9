package grammar

import (
	"encoding/binary"
	"encoding/json/jsontext"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Limits of a schema.
const (
	maxRules      = 1 << 13
	maxEnumBytes  = 1 << 18
	maxLiteral    = 1 << 14
	maxProperties = 1 << 12
	maxWork       = 1 << 19
	maxOneOf      = 256
)

// compiler turns schemas into rules: nodes that end in builder.end.
type compiler struct {
	*builder
	root    *value
	shapes  map[*value]*shape
	rules   map[string]int32 // by what must hold together
	made    map[string]int32 // rules that are the same wherever they occur
	checked map[*value]bool  // lists of oneOf
	work    int
}

// parts are schemas taken apart: those whose own keywords hold, and choices
// between several, each once.
type parts struct {
	never   bool // the schema false
	atoms   []*value
	choices []*value // the lists of anyOf and oneOf
}

// rule gives the node of a value that satisfies all the schemas.
func (c *compiler) rule(schemas all) (int32, error) {
	p := &parts{}
	if err := c.flatten(p, schemas); err != nil {
		return 0, err
	}
	return c.partsRule(p)
}

// flatten adds schemas to p, following references and allOf.
func (c *compiler) flatten(p *parts, schemas all) error {
	return c.follow(p, schemas, map[*value]progress{})
}

// progress of a schema while references are followed.
type progress uint8

const (
	underway progress = iota + 1
	done
)

func (c *compiler) follow(p *parts, schemas all, seen map[*value]progress) error {
	for _, v := range schemas {
		switch {
		case v.isTrue() || p.never || seen[v] == done:
			continue
		case v.kind == jsontext.KindFalse:
			p.never = true
			continue
		case !v.isObject():
			return schemaError(ErrSchema, v, "a schema is an object, true or false")
		case seen[v] == underway:
			return schemaError(ErrSchema, v, "the schema refers to itself and to nothing else")
		}
		seen[v] = underway
		if err := c.followObject(p, v, seen); err != nil {
			return err
		}
		seen[v] = done
	}
	return nil
}

func (c *compiler) followObject(p *parts, v *value, seen map[*value]progress) error {
	if c.work++; c.work > maxWork {
		return fmt.Errorf("%w: the schema combines too many alternatives", ErrUnsupported)
	}
	if _, ok := c.shapes[v]; !ok {
		s, err := readShape(v)
		if err != nil {
			return err
		}
		c.shapes[v] = s
	}
	if !slices.Contains(p.atoms, v) {
		p.atoms = append(p.atoms, v)
	}
	if ref := v.get("$ref"); ref != nil {
		to, err := c.resolve(ref)
		if err != nil {
			return err
		}
		if err := c.follow(p, all{to}, seen); err != nil {
			return err
		}
	}
	for _, name := range []string{"allOf", "anyOf", "oneOf"} {
		list := v.get(name)
		if list == nil {
			continue
		}
		if !list.isArray() || len(list.members) == 0 {
			return schemaError(ErrSchema, list, "%s must be a list that is not empty", name)
		}
		if name == "allOf" {
			if err := c.follow(p, list.members, seen); err != nil {
				return err
			}
			continue
		}
		if name == "oneOf" {
			if err := c.checkOneOf(list); err != nil {
				return err
			}
		}
		if !slices.Contains(p.choices, list) {
			p.choices = append(p.choices, list)
		}
	}
	return nil
}

// resolve finds what a reference inside the same text points at.
func (c *compiler) resolve(ref *value) (*value, error) {
	if !ref.isString() {
		return nil, schemaError(ErrSchema, ref, "$ref must be a string")
	}
	path, ok := strings.CutPrefix(ref.text, "#")
	if !ok || path != "" && path[0] != '/' {
		return nil, schemaError(ErrUnsupported, ref, "the $ref %q: only #, #/$defs/… and other pointers into the same schema are followed", ref.text)
	}
	path, err := url.PathUnescape(path)
	if err != nil {
		return nil, schemaError(ErrSchema, ref, "the $ref %q: %w", ref.text, err)
	}
	at := c.root
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if path == "" {
			break
		}
		if at = at.child(strings.NewReplacer("~1", "/", "~0", "~").Replace(part)); at == nil {
			return nil, schemaError(ErrSchema, ref, "the $ref %q points at nothing", ref.text)
		}
	}
	return at, nil
}

// key is the same for parts that mean the same.
func (p *parts) key() string {
	ids := func(vs []*value) []byte {
		var out []uint32
		for _, v := range vs {
			out = append(out, uint32(v.id))
		}
		slices.Sort(out)
		var b []byte
		for _, id := range out {
			b = binary.LittleEndian.AppendUint32(b, id)
		}
		return b
	}
	return string(ids(p.atoms)) + "|" + string(ids(p.choices))
}

func (c *compiler) partsRule(p *parts) (int32, error) {
	if p.never {
		return c.nothing(), nil
	}
	key := p.key()
	if at, ok := c.rules[key]; ok {
		return at, nil
	}
	if len(c.rules) >= maxRules {
		return 0, fmt.Errorf("%w: the schema is too large, or combines too many alternatives: more than %d rules", ErrUnsupported, maxRules)
	}
	at := c.add(node{})
	c.rules[key] = at
	var to []int32
	var err error
	if len(p.choices) > 0 {
		to, err = c.choose(p)
	} else {
		to, err = c.values(c.shape(p))
	}
	if err != nil {
		return 0, err
	}
	if c.err != nil {
		return 0, c.err
	}
	for _, t := range to {
		c.nodes[at].hops = append(c.nodes[at].hops, always(t))
	}
	return at, nil
}

// choose resolves the first choice: one rule for each of its alternatives.
func (c *compiler) choose(p *parts) ([]int32, error) {
	var to []int32
	for _, alternative := range p.choices[0].members {
		q := &parts{atoms: slices.Clone(p.atoms), choices: slices.Clone(p.choices[1:])}
		if err := c.flatten(q, all{alternative}); err != nil {
			return nil, err
		}
		at, err := c.partsRule(q)
		if err != nil {
			return nil, err
		}
		to = append(to, at)
	}
	return to, nil
}

// shape is what all the atoms ask for.
func (c *compiler) shape(p *parts) *shape {
	s := newShape()
	for _, v := range p.atoms {
		s = s.merge(c.shapes[v])
		c.work += 1 + len(s.names)
	}
	return s
}

// values are the nodes of a shape's values, by type.
func (c *compiler) values(s *shape) ([]int32, error) {
	if s.enum != nil {
		at, err := c.enum(s)
		return []int32{at}, err
	}
	var to []int32
	if s.types&typeNull != 0 {
		to = append(to, c.literal("null", c.end))
	}
	if s.types&typeBoolean != 0 {
		to = append(to, c.literal("true", c.end), c.literal("false", c.end))
	}
	if s.types&typeInteger != 0 {
		at, err := c.number(s)
		if err != nil {
			return nil, err
		}
		to = append(to, at)
	}
	for _, part := range []struct {
		t    typeSet
		make func(*shape) (int32, error)
	}{{typeString, c.stringRule}, {typeArray, c.array}, {typeObject, c.objectRule}} {
		if s.types&part.t == 0 {
			continue
		}
		at, err := part.make(s)
		if err != nil {
			return nil, err
		}
		to = append(to, at)
	}
	return to, nil
}

// enum reads one of the listed values that have the right type.
func (c *compiler) enum(s *shape) (int32, error) {
	if len(s.rules) > 0 {
		return 0, schemaError(ErrUnsupported, s.rules[0], "%s beside enum or const", s.rules[0].name)
	}
	var texts []string
	size := 0
	for _, v := range s.enum {
		if typeOf(v)&s.types == 0 {
			continue
		}
		var b strings.Builder
		v.literal(&b)
		texts = append(texts, b.String())
		if size += b.Len(); b.Len() > maxLiteral || size > maxEnumBytes {
			return 0, schemaError(ErrUnsupported, v, "enum or const with more than %d bytes in a value or %d in all", maxLiteral, maxEnumBytes)
		}
	}
	return c.words(texts, c.end), nil
}

// number reads an integer, or any number where the shape has both.
func (c *compiler) number(s *shape) (int32, error) {
	integer := s.types&typeNumber == 0
	if s.numbers != (numberRange{}) {
		return c.dfa(s.numbers.dfa(integer), c.end), nil
	}
	key, pattern := "number", numberPattern
	if integer {
		key, pattern = "integer", integerPattern
	}
	return c.shared(key, func() (int32, error) {
		d, err := patternDFA(pattern)
		if err != nil {
			return 0, err
		}
		return c.dfa(d, c.end), nil
	})
}

// shared makes a rule once.
func (c *compiler) shared(key string, make func() (int32, error)) (int32, error) {
	if at, ok := c.made[key]; ok {
		return at, nil
	}
	at, err := make()
	if err == nil {
		c.made[key] = at
	}
	return at, err
}
