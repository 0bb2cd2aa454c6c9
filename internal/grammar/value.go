package grammar

import (
	"bytes"
	"encoding/json/jsontext"
	"fmt"
	"io"
	"math/big"
	"sort"
	"strings"
)

// Limits of a schema's text.
const (
	maxSchemaBytes = 1 << 20
	maxSchemaDepth = 128
)

// value is a JSON value that keeps the order of its members and knows where it
// stands.
type value struct {
	id      int // by position in the text
	kind    jsontext.Kind
	text    string // of a string; of a number, as it is written
	names   []string
	members []*value // by name, or the items of an array

	parent *value
	name   string // in parent
}

// parseValue reads one JSON text.
func parseValue(text []byte) (*value, error) {
	if len(text) > maxSchemaBytes {
		return nil, fmt.Errorf("%w: it has %d bytes, at most %d are taken", ErrSchema, len(text), maxSchemaBytes)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrSchema)
	}
	p := parser{dec: jsontext.NewDecoder(bytes.NewReader(text))}
	v, err := p.value(nil, "", 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSchema, err)
	}
	if _, err := p.dec.ReadToken(); err != io.EOF {
		return nil, fmt.Errorf("%w: there is more after the value", ErrSchema)
	}
	return v, nil
}

type parser struct {
	dec   *jsontext.Decoder
	count int
}

func (p *parser) value(parent *value, name string, depth int) (*value, error) {
	if depth > maxSchemaDepth {
		return nil, fmt.Errorf("it is nested more than %d levels deep", maxSchemaDepth)
	}
	token, err := p.dec.ReadToken()
	if err != nil {
		return nil, err
	}
	v := &value{id: p.count, kind: token.Kind(), parent: parent, name: name}
	p.count++
	switch v.kind {
	case jsontext.KindString, jsontext.KindNumber:
		v.text = token.String()
	case jsontext.KindBeginObject:
		for p.dec.PeekKind() != jsontext.KindEndObject {
			key, err := p.dec.ReadToken()
			if err != nil {
				return nil, err
			}
			name := key.String()
			member, err := p.value(v, name, depth+1)
			if err != nil {
				return nil, err
			}
			v.names, v.members = append(v.names, name), append(v.members, member)
		}
		_, err = p.dec.ReadToken()
	case jsontext.KindBeginArray:
		for p.dec.PeekKind() != jsontext.KindEndArray {
			item, err := p.value(v, fmt.Sprint(len(v.members)), depth+1)
			if err != nil {
				return nil, err
			}
			v.members = append(v.members, item)
		}
		_, err = p.dec.ReadToken()
	}
	return v, err
}

// pointer is the value's place as a JSON pointer (RFC 6901) in a URI fragment.
func (v *value) pointer() string {
	var parts []string
	for ; v.parent != nil; v = v.parent {
		parts = append(parts, strings.NewReplacer("~", "~0", "/", "~1").Replace(v.name))
	}
	var b strings.Builder
	b.WriteByte('#')
	for i := len(parts) - 1; i >= 0; i-- {
		b.WriteByte('/')
		b.WriteString(parts[i])
	}
	return b.String()
}

// get is a member of an object, nil if it has none of that name.
func (v *value) get(name string) *value {
	if v.kind != jsontext.KindBeginObject {
		return nil
	}
	for i, n := range v.names {
		if n == name {
			return v.members[i]
		}
	}
	return nil
}

// child is a member of an object or an item of an array.
func (v *value) child(name string) *value {
	if v.kind == jsontext.KindBeginArray {
		for _, item := range v.members {
			if item.name == name {
				return item
			}
		}
		return nil
	}
	return v.get(name)
}

func (v *value) isTrue() bool { return v.kind == jsontext.KindTrue }

func (v *value) isObject() bool { return v.kind == jsontext.KindBeginObject }

func (v *value) isString() bool { return v.kind == jsontext.KindString }

func (v *value) isArray() bool { return v.kind == jsontext.KindBeginArray }

// literal writes a value without white space, in the order of its members.
func (v *value) literal(b *strings.Builder) {
	switch v.kind {
	case jsontext.KindString:
		b.WriteString(quote(v.text))
	case jsontext.KindNumber:
		b.WriteString(v.text)
	case jsontext.KindBeginObject, jsontext.KindBeginArray:
		open, end := byte('['), byte(']')
		if v.isObject() {
			open, end = '{', '}'
		}
		b.WriteByte(open)
		for i, m := range v.members {
			if i > 0 {
				b.WriteByte(',')
			}
			if v.isObject() {
				b.WriteString(quote(v.names[i]))
				b.WriteByte(':')
			}
			m.literal(b)
		}
		b.WriteByte(end)
	case jsontext.KindTrue:
		b.WriteString("true")
	case jsontext.KindFalse:
		b.WriteString("false")
	default:
		b.WriteString("null")
	}
}

// equalKey is the same text for values that are equal as JSON: members in the
// order of their names, numbers by their value.
func (v *value) equalKey() string {
	switch v.kind {
	case jsontext.KindNumber:
		// An exponent of many digits would take memory without end.
		if d, err := parseDecimal(v.text); err == nil {
			return d.String()
		}
		return v.text
	case jsontext.KindBeginObject:
		order := make([]int, len(v.names))
		for i := range order {
			order[i] = i
		}
		sort.Slice(order, func(a, b int) bool { return v.names[order[a]] < v.names[order[b]] })
		var b strings.Builder
		b.WriteByte('{')
		for _, i := range order {
			b.WriteString(quote(v.names[i]) + ":" + v.members[i].equalKey() + ",")
		}
		return b.String() + "}"
	case jsontext.KindBeginArray:
		var b strings.Builder
		b.WriteByte('[')
		for _, m := range v.members {
			b.WriteString(m.equalKey() + ",")
		}
		return b.String() + "]"
	}
	var b strings.Builder
	v.literal(&b)
	return b.String()
}

// isWhole says whether a number is an integer, as JSON schema counts: 1.0 is.
func (v *value) isWhole() bool {
	d, err := parseDecimal(v.text)
	return err == nil && d.fraction == ""
}

// quote writes a string in JSON's shortest form: only what must be escaped is.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		b.WriteString(escape(r))
	}
	b.WriteByte('"')
	return b.String()
}

// escape is a character inside a JSON string, in the shortest form.
func escape(r rune) string {
	switch r {
	case '"':
		return `\"`
	case '\\':
		return `\\`
	case '\b':
		return `\b`
	case '\f':
		return `\f`
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	}
	if r < 0x20 {
		return fmt.Sprintf(`\u%04x`, r)
	}
	return string(r)
}

// decimal is a number of finite digits without an exponent. whole has no
// leading zeros but for a single "0", fraction no zeros at its end.
type decimal struct {
	negative        bool
	whole, fraction string
}

// maxDigits bounds a number's digits on each side of the point.
const maxDigits = 40

// parseDecimal reads a JSON number.
func parseDecimal(text string) (decimal, error) {
	var d decimal
	text, d.negative = strings.CutPrefix(text, "-")
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	shift := 0
	if exponent != "" {
		n, ok := new(big.Int).SetString(exponent, 10)
		if !ok || !n.IsInt64() || n.Int64() > maxDigits || n.Int64() < -maxDigits {
			return d, fmt.Errorf("the number has more than %d digits", maxDigits)
		}
		shift = int(n.Int64())
	}
	for ; shift > 0; shift-- {
		if fraction == "" {
			fraction = "0"
		}
		whole, fraction = whole+fraction[:1], fraction[1:]
	}
	for ; shift < 0; shift++ {
		if whole == "" {
			whole = "0"
		}
		whole, fraction = whole[:len(whole)-1], whole[len(whole)-1:]+fraction
	}
	d.whole, d.fraction = strings.TrimLeft(whole, "0"), strings.TrimRight(fraction, "0")
	if d.whole == "" {
		d.whole = "0"
	}
	if len(d.whole) > maxDigits || len(d.fraction) > maxDigits {
		return d, fmt.Errorf("the number has more than %d digits", maxDigits)
	}
	if d.whole == "0" && d.fraction == "" {
		d.negative = false
	}
	return d, nil
}

func (d decimal) String() string {
	s := d.whole
	if d.negative {
		s = "-" + s
	}
	if d.fraction != "" {
		s += "." + d.fraction
	}
	return s
}

// compare is -1, 0 or 1 as d is less than, equal to or greater than e.
func (d decimal) compare(e decimal) int {
	sign := 1
	if d.negative != e.negative {
		if d.negative {
			return -1
		}
		return 1
	}
	if d.negative {
		sign = -1
	}
	if len(d.whole) != len(e.whole) {
		if len(d.whole) < len(e.whole) {
			return -sign
		}
		return sign
	}
	return sign * strings.Compare(d.whole+"."+d.fraction, e.whole+"."+e.fraction)
}
