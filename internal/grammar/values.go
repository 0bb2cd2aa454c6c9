package grammar

import (
	"fmt"
	"slices"
)

// stringRule reads a string.
func (c *compiler) stringRule(s *shape) (int32, error) {
	if s.maxLength >= 0 && s.minLength > s.maxLength {
		return c.nothing(), nil
	}
	key := fmt.Sprintf("string %d %d", s.minLength, s.maxLength)
	for _, v := range slices.Concat(s.patterns, s.formats) {
		key += " " + v.name + quote(v.text)
	}
	return c.shared(key, func() (int32, error) {
		if len(s.patterns)+len(s.formats) > 0 {
			return c.pattern(s)
		}
		return c.literal(`"`, c.counted(s.minLength, s.maxLength, c.literal(`"`, c.end))), c.err
	})
}

// counted reads so many characters of a string, in any of JSON's forms, and goes
// on at next.
func (c *compiler) counted(least, most int, next int32) int32 {
	low, high := int32(least), unbounded
	limit := low
	if most >= 0 {
		high = int32(most)
		limit = high
	}
	begin := int32(len(c.nodes))
	body := c.add(node{})
	done := c.add(node{hops: []hop{{to: body, hi: unbounded, step: limit}}})
	char := c.character(done)
	if c.err != nil {
		return body
	}
	c.nodes[body].hops = []hop{{to: next, lo: low, hi: unbounded}}
	if high > 0 {
		c.nodes[body].hops = append(c.nodes[body].hops, hop{to: char, hi: high - 1})
	}
	for i := begin; i < int32(len(c.nodes)); i++ {
		c.nodes[i].min, c.nodes[i].max = low, high
	}
	c.nodes[next].min, c.nodes[next].max = low, high
	return body
}

// character reads one character of a string: as it is, in UTF-8, or escaped.
// Halves of surrogate pairs come in pairs only.
func (b *builder) character(next int32) int32 {
	tail1 := b.add(node{edges: []edge{{0x80, 0xbf, next}}})
	tail2 := b.add(node{edges: []edge{{0x80, 0xbf, tail1}}})
	tail3 := b.add(node{edges: []edge{{0x80, 0xbf, tail2}}})
	narrow := func(lo, hi byte, to int32) int32 { return b.add(node{edges: []edge{{lo, hi, to}}}) }
	hex := func(to int32) int32 {
		return b.add(node{edges: []edge{{'0', '9', to}, {'A', 'F', to}, {'a', 'f', to}}})
	}
	hex1 := hex(next)
	hex2 := hex(hex1)
	hex3 := hex(hex2)
	low := b.add(node{edges: []edge{{'C', 'F', hex2}, {'c', 'f', hex2}}})
	low = b.add(node{edges: []edge{{'D', 'D', low}, {'d', 'd', low}}})
	high := hex(hex(b.literal(`\u`, low)))
	surrogate := b.add(node{edges: []edge{{'0', '7', hex2}, {'8', '9', high}, {'A', 'B', high}, {'a', 'b', high}}})
	unicode := b.add(node{edges: []edge{
		{'0', '9', hex3},
		{'A', 'C', hex3},
		{'D', 'D', surrogate},
		{'E', 'F', hex3},
		{'a', 'c', hex3},
		{'d', 'd', surrogate},
		{'e', 'f', hex3},
	}})
	var escapes []edge
	for _, c := range []byte(`"/\bfnrt`) {
		escapes = append(escapes, edge{c, c, next})
	}
	escaped := b.add(node{edges: append(escapes, edge{'u', 'u', unicode})})
	return b.add(node{edges: []edge{
		{' ', '!', next},
		{'#', '[', next},
		{'\\', '\\', escaped},
		{']', 0x7f, next},
		{0xc2, 0xdf, tail1},
		{0xe0, 0xe0, narrow(0xa0, 0xbf, tail1)},
		{0xe1, 0xec, tail2},
		{0xed, 0xed, narrow(0x80, 0x9f, tail1)},
		{0xee, 0xef, tail2},
		{0xf0, 0xf0, narrow(0x90, 0xbf, tail2)},
		{0xf1, 0xf3, tail3},
		{0xf4, 0xf4, narrow(0x80, 0x8f, tail2)},
	}})
}

// pattern reads a string that its patterns, format and length allow.
func (c *compiler) pattern(s *shape) (int32, error) {
	if n := len(s.patterns) + len(s.formats); n > maxPatterns {
		return 0, schemaError(ErrUnsupported, s.rules[0], "more than %d patterns together", maxPatterns)
	}
	var found *dfa
	narrow := func(v *value, pattern string) error {
		d, err := patternDFA(pattern)
		if err == nil && found != nil {
			d, err = found.both(d)
		}
		if err != nil {
			return schemaError(ErrUnsupported, v, "%s %q: %w", v.name, v.text, err)
		}
		found = d
		return nil
	}
	for _, v := range s.patterns {
		if err := narrow(v, v.text); err != nil {
			return 0, err
		}
	}
	for _, v := range s.formats {
		if err := narrow(v, formats[v.text]); err != nil {
			return 0, err
		}
	}
	if s.minLength > 0 || s.maxLength >= 0 {
		length := fmt.Sprintf(`^[\s\S]{%d,`, s.minLength)
		if s.maxLength >= 0 {
			length += fmt.Sprint(s.maxLength)
		}
		if err := narrow(s.rules[0], length+`}$`); err != nil {
			return 0, fmt.Errorf("with minLength and maxLength: %w", err)
		}
	}
	return c.literal(`"`, c.dfa(found, c.literal(`"`, c.end))), nil
}

// array reads a list. The rule's counter counts the items beyond prefixItems.
func (c *compiler) array(s *shape) (int32, error) {
	prefix := s.prefix
	low, high := int32(max(0, s.minItems-len(prefix))), unbounded
	if s.maxItems >= 0 {
		if s.minItems > s.maxItems {
			return c.nothing(), nil
		}
		prefix = prefix[:min(len(prefix), s.maxItems)]
		high = int32(s.maxItems - len(prefix))
	}
	limit := high
	if high == unbounded {
		limit = low
	}
	item, err := c.rule(s.item(len(s.prefix)))
	if err != nil {
		return 0, err
	}
	closing := c.literal("]", c.end)
	spaced := c.space(closing)
	// after follows an item beyond the prefix, which count has counted; at the
	// last one of the prefix, first the opening bracket.
	after := c.add(node{hops: []hop{{to: spaced, lo: low, hi: unbounded}}})
	count := c.add(node{hops: []hop{{to: after, hi: unbounded, step: limit}}})
	more := c.then(item, count)
	comma := c.literal(",", c.space(more))
	var first, last []hop
	if low == 0 {
		first, last = []hop{always(closing)}, []hop{always(spaced)}
	}
	if high > 0 && c.err == nil {
		c.nodes[after].hops = append(c.nodes[after].hops, hop{to: comma, hi: high - 1})
		first, last = append(first, always(more)), append(last, always(comma))
	}
	at := c.add(node{hops: last})
	for i, p := range slices.Backward(prefix) {
		value, err := c.rule(p)
		if err != nil {
			return 0, err
		}
		here := c.then(value, at)
		first = []hop{always(here)}
		hops := []hop{always(c.literal(",", c.space(here)))}
		if i >= s.minItems {
			first = append(first, always(closing))
			hops = append(hops, always(spaced))
		}
		at = c.add(node{hops: hops})
	}
	return c.literal("[", c.space(c.add(node{hops: first}))), c.err
}

// objectRule reads an object: its properties in the schema's order, those that
// are not required may be left out, then others where they are allowed.
//
// Where properties are listed and nothing is said of others, there are none.
func (c *compiler) objectRule(s *shape) (int32, error) {
	names := slices.Clone(s.names)
	required := map[string]bool{}
	for _, name := range s.required {
		if _, ok := s.properties[name]; !ok && !required[name] {
			names = append(names, name)
		}
		required[name] = true
	}
	size := 0
	for _, name := range names {
		size += len(name)
	}
	if len(names) > maxProperties || size > maxEnumBytes {
		return 0, fmt.Errorf("%w: an object with more than %d properties, or more than %d bytes of names", ErrUnsupported, maxProperties, maxEnumBytes)
	}
	closing := c.literal("}", c.end)
	spaced := c.space(closing)

	// more is where a further property is read, after the comma; last where the
	// object may go on or end after one. Both go from the last to the first.
	more, last := c.nothing(), c.add(node{hops: []hop{always(spaced)}})
	optional := true // all from here on
	var others int32
	if s.additional != nil || len(names) == 0 {
		key, err := c.otherName(names)
		if err != nil {
			return 0, err
		}
		value, err := c.rule(s.property("")) // replaced below where "" is declared
		if _, ok := s.properties[""]; ok {
			value, err = c.rule(*s.additional)
		}
		if err != nil {
			return 0, err
		}
		others = c.then(key, c.literal(":", c.space(c.then(value, last))))
		more = others
		comma := c.literal(",", c.space(more))
		if c.err == nil {
			c.nodes[last].hops = append(c.nodes[last].hops, always(comma))
		}
	}
	for _, name := range slices.Backward(names) {
		value, err := c.rule(s.property(name))
		if err != nil {
			return 0, err
		}
		property := c.literal(quote(name)+":", c.space(c.then(value, last)))
		optional = optional && !required[name]
		to := []int32{property}
		if !required[name] {
			to = append(to, more)
		}
		more = c.either(to...)
		to = []int32{c.literal(",", c.space(more))}
		if optional {
			to = append(to, spaced)
		}
		last = c.either(to...)
	}
	first := more
	if optional {
		first = c.either(more, closing)
	}
	return c.literal("{", c.space(first)), c.err
}

// otherName reads a property's name that is none of the given ones.
func (c *compiler) otherName(names []string) (int32, error) {
	if len(names) == 0 {
		return c.stringRule(newShape())
	}
	d, err := patternDFA(`^[\s\S]*$`)
	if err != nil {
		return 0, err
	}
	var texts []string
	for _, name := range names {
		text := quote(name)
		texts = append(texts, text[1:len(text)-1])
	}
	return c.literal(`"`, c.dfa(d.without(texts), c.literal(`"`, c.end))), nil
}

// without is the automaton of what d accepts but for the texts.
func (d *dfa) without(texts []string) *dfa {
	slices.Sort(texts)
	type pair struct {
		state    int32
		from, to int // the texts that begin with what was read
		read     int
	}
	out := &dfa{}
	known := map[pair]int32{}
	var pairs []pair
	add := func(p pair) int32 {
		if p.from == p.to {
			p = pair{state: p.state}
		}
		id, ok := known[p]
		if !ok {
			id = int32(len(pairs))
			known[p] = id
			pairs = append(pairs, p)
			is := p.from < p.to && len(texts[p.from]) == p.read
			out.states = append(out.states, dstate{final: d.states[p.state].final && !is})
		}
		return id
	}
	add(pair{to: len(texts)})
	for i := 0; i < len(pairs); i++ {
		p := pairs[i]
		for _, e := range d.states[p.state].edges {
			for b := int(e.lo); b <= int(e.hi); b++ {
				begins := func(s string) int {
					if len(s) <= p.read {
						return -1
					}
					return int(s[p.read]) - b
				}
				q := pair{state: e.to, from: p.from, to: p.from, read: p.read + 1}
				for q.from < p.to && begins(texts[q.from]) < 0 {
					q.from++
				}
				for q.to = q.from; q.to < p.to && begins(texts[q.to]) == 0; {
					q.to++
				}
				out.states[i].edges = addEdge(out.states[i].edges, edge{byte(b), byte(b), add(q)})
			}
		}
	}
	return out.trim()
}

// checkOneOf refuses alternatives of which a value could satisfy two.
func (c *compiler) checkOneOf(list *value) error {
	if c.checked[list] {
		return nil
	}
	c.checked[list] = true
	if n := len(list.members); n > maxOneOf {
		return schemaError(ErrUnsupported, list, "oneOf with %d alternatives, each of which is compared with all others; there may be %d", n, maxOneOf)
	}
	for i, a := range list.members {
		for j, b := range list.members[:i] {
			apart, err := c.apart(all{a}, all{b}, 0)
			if err != nil {
				return err
			}
			if !apart {
				return schemaError(ErrUnsupported, list, "oneOf whose alternatives %d and %d cannot be told apart by type, by a constant or by a required property; anyOf is supported", j, i)
			}
		}
	}
	return nil
}

// apart says whether it is plain that no value satisfies both.
func (c *compiler) apart(a, b all, depth int) (bool, error) {
	p, q := &parts{}, &parts{}
	if err := c.flatten(p, a); err != nil {
		return false, err
	}
	if err := c.flatten(q, b); err != nil {
		return false, err
	}
	if p.never || q.never {
		return true, nil
	}
	if depth > 6 {
		return false, nil
	}
	if ok, err := c.shapesApart(c.shape(p), c.shape(q), depth); ok || err != nil {
		return ok, err
	}
	for range 2 {
		for _, list := range p.choices {
			apart := true
			for _, alternative := range list.members {
				ok, err := c.apart(all{alternative}, b, depth+1)
				if err != nil {
					return false, err
				}
				if apart = apart && ok; !apart {
					break
				}
			}
			if apart {
				return true, nil
			}
		}
		p, b = q, a
	}
	return false, nil
}

func (c *compiler) shapesApart(s, o *shape, depth int) (bool, error) {
	common := s.reduced() & o.reduced()
	if common == 0 || s.enum != nil && o.enum != nil && len(intersect(s.enum, o.enum)) == 0 {
		return true, nil
	}
	if common != typeObject {
		return false, nil
	}
	for _, name := range slices.Concat(s.required, o.required) {
		ok, err := c.apart(s.property(name), o.property(name), depth+1)
		if ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// reduced are the types that a shape's values can have.
func (s *shape) reduced() typeSet {
	if s.enum == nil {
		return s.types
	}
	var t typeSet
	for _, v := range s.enum {
		t |= typeOf(v)
	}
	return t & s.types
}
