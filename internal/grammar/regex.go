package grammar

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Patterns are those of ECMA-262 with the flag u, as JSON schema has them, as
// far as they are regular: no look-around, no back references, no word borders.
// The anchors ^ and $ stand at the ends of the whole pattern or of one of its
// outermost alternatives.

type runeRange struct{ lo, hi rune }

// regexp is a parsed pattern.
type regexp struct {
	op       regexpOp
	set      []runeRange // of one character
	sub      []*regexp
	min, max int // of a repetition, max -1 for none
}

type regexpOp uint8

const (
	opSet regexpOp = iota
	opSequence
	opEither
	opRepeat
	opStart
	opEnd
)

type regexpParser struct {
	text  []rune
	at    int
	depth int
	named map[string]bool
}

// patternDFA is the automaton of the insides of JSON strings whose values match
// a pattern somewhere, in the shortest form of their characters.
func patternDFA(pattern string) (*dfa, error) {
	if !utf8.ValidString(pattern) {
		return nil, errors.New("it is no UTF-8")
	}
	p := &regexpParser{text: []rune(pattern), named: map[string]bool{}}
	root, err := p.either()
	if err == nil && p.at < len(p.text) {
		err = errors.New(") without (")
	}
	if err != nil {
		return nil, err
	}
	a := &nfa{}
	end := a.add(nil) // node 0
	var starts []int32
	alternatives := root.sub
	for _, alternative := range alternatives {
		items := alternative.sub
		begun, ended := false, false
		if len(items) > 0 && items[0].op == opStart {
			items, begun = items[1:], true
		}
		if n := len(items); n > 0 && items[n-1].op == opEnd {
			items, ended = items[:n-1], true
		}
		next := end
		if !ended {
			next = a.loop(next)
		}
		next, err = a.build(&regexp{op: opSequence, sub: items}, next)
		if err != nil {
			return nil, err
		}
		if !begun {
			next = a.loop(next)
		}
		starts = append(starts, next)
	}
	return a.determine(a.add(nil, starts...))
}

var everything = []runeRange{{0, utf8.MaxRune}}

// loop reads any text before next.
func (a *nfa) loop(next int32) int32 {
	at := a.add(nil)
	body := a.runes(everything, at)
	if a.err == nil {
		a.hops[at] = []int32{body, next}
	}
	return at
}

func (a *nfa) build(r *regexp, next int32) (int32, error) {
	if a.err != nil {
		return 0, a.err
	}
	var err error
	switch r.op {
	case opSet:
		return a.runes(r.set, next), a.err
	case opSequence:
		for _, sub := range slices.Backward(r.sub) {
			if next, err = a.build(sub, next); err != nil {
				return 0, err
			}
		}
		return next, nil
	case opEither:
		var hops []int32
		for _, sub := range r.sub {
			at, err := a.build(sub, next)
			if err != nil {
				return 0, err
			}
			hops = append(hops, at)
		}
		return a.add(nil, hops...), a.err
	case opRepeat:
		sub := r.sub[0]
		if r.max < 0 {
			at := a.add(nil)
			body, err := a.build(sub, at)
			if err != nil {
				return 0, err
			}
			a.hops[at] = []int32{body, next}
			next = at
		}
		end := next // where a repetition that is not needed leads
		for i := max(r.min, r.max); i > 0; i-- {
			if next, err = a.build(sub, next); err != nil {
				return 0, err
			}
			if i > r.min {
				next = a.add(nil, next, end)
			}
		}
		return next, a.err
	}
	return 0, errors.New("^ and $ are only taken at the ends of the pattern or of an outermost alternative")
}

func (p *regexpParser) peek() rune {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return -1
}

func (p *regexpParser) take(s string) bool {
	if strings.HasPrefix(string(p.text[p.at:min(len(p.text), p.at+len(s))]), s) {
		p.at += len(s)
		return true
	}
	return false
}

const maxPatternDepth = 100

func (p *regexpParser) either() (*regexp, error) {
	if p.depth++; p.depth > maxPatternDepth {
		return nil, fmt.Errorf("groups are nested more than %d deep", maxPatternDepth)
	}
	defer func() { p.depth-- }()
	r := &regexp{op: opEither}
	for {
		sub, err := p.sequence()
		if err != nil {
			return nil, err
		}
		r.sub = append(r.sub, sub)
		if !p.take("|") {
			return r, nil
		}
	}
}

func (p *regexpParser) sequence() (*regexp, error) {
	r := &regexp{op: opSequence}
	for {
		switch p.peek() {
		case -1, '|', ')':
			return r, nil
		}
		item, err := p.item()
		if err != nil {
			return nil, err
		}
		if item, err = p.quantified(item); err != nil {
			return nil, err
		}
		r.sub = append(r.sub, item)
	}
}

func (p *regexpParser) quantified(item *regexp) (*regexp, error) {
	low, high := 0, -1
	switch {
	case p.take("*"):
	case p.take("+"):
		low = 1
	case p.take("?"):
		high = 1
	case p.peek() == '{':
		from := p.at
		var ok bool
		if low, high, ok = p.braces(); !ok {
			return nil, fmt.Errorf("%q is no repetition; a brace is written \\{", string(p.text[from:min(len(p.text), from+8)]))
		}
	default:
		return item, nil
	}
	p.take("?") // the lazy form matches the same texts
	switch {
	case item.op == opStart || item.op == opEnd:
		return nil, errors.New("an anchor is repeated")
	case low > maxRepeat || high > maxRepeat:
		return nil, fmt.Errorf("a repetition of more than %d times", maxRepeat)
	case high >= 0 && high < low:
		return nil, fmt.Errorf("a repetition from %d to %d times", low, high)
	case strings.ContainsRune("*+?{", p.peek()) && p.peek() >= 0:
		return nil, fmt.Errorf("a repetition %q of a repetition", string(p.peek()))
	}
	return &regexp{op: opRepeat, sub: []*regexp{item}, min: low, max: high}, nil
}

// braces reads {n}, {n,} or {n,m}.
func (p *regexpParser) braces() (low, high int, ok bool) {
	end := slices.Index(p.text[p.at:], '}')
	if end < 0 {
		return 0, 0, false
	}
	inside := string(p.text[p.at+1 : p.at+end])
	p.at += end + 1
	first, second, comma := strings.Cut(inside, ",")
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil || s[0] == '+' || s[0] == '-' {
			ok = false
		}
		return min(n, maxRepeat+1)
	}
	ok = true
	low = number(first)
	switch {
	case !comma:
		high = low
	case second == "":
		high = -1
	default:
		high = number(second)
	}
	return low, high, ok
}

func (p *regexpParser) item() (*regexp, error) {
	c := p.peek()
	p.at++
	switch c {
	case '^':
		return &regexp{op: opStart}, nil
	case '$':
		return &regexp{op: opEnd}, nil
	case '.':
		return &regexp{op: opSet, set: invert([]runeRange{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}})}, nil
	case '(':
		return p.group()
	case '[':
		set, err := p.class()
		return &regexp{op: opSet, set: set}, err
	case '\\':
		set, err := p.escape(false)
		return &regexp{op: opSet, set: set}, err
	case '*', '+', '?', '{':
		return nil, fmt.Errorf("%q repeats nothing", string(c))
	}
	return &regexp{op: opSet, set: []runeRange{{c, c}}}, nil
}

func (p *regexpParser) group() (*regexp, error) {
	for _, look := range []string{"?=", "?!", "?<=", "?<!"} {
		if p.take(look) {
			return nil, fmt.Errorf("(%s…): look-around", look)
		}
	}
	switch {
	case p.take("?:"):
	case p.take("?<"):
		end := slices.Index(p.text[p.at:], '>')
		if end < 1 {
			return nil, errors.New("a group without a name")
		}
		p.at += end + 1
	case p.peek() == '?':
		return nil, fmt.Errorf("(%s…): flags", string(p.text[p.at:min(len(p.text), p.at+2)]))
	}
	r, err := p.either()
	if err == nil && !p.take(")") {
		err = errors.New("( without )")
	}
	return r, err
}

var (
	digits = []runeRange{{'0', '9'}}
	words  = []runeRange{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}
	spaces = []runeRange{
		{'\t', '\r'},
		{' ', ' '},
		{0xa0, 0xa0},
		{0x1680, 0x1680},
		{0x2000, 0x200a},
		{0x2028, 0x2029},
		{0x202f, 0x202f},
		{0x205f, 0x205f},
		{0x3000, 0x3000},
		{0xfeff, 0xfeff},
	}
)

// escape reads what follows a backslash.
func (p *regexpParser) escape(inClass bool) ([]runeRange, error) {
	c := p.peek()
	p.at++
	one := func(r rune) ([]runeRange, error) { return []runeRange{{r, r}}, nil }
	switch c {
	case -1:
		return nil, errors.New(`\ at the end`)
	case 'd':
		return digits, nil
	case 'D':
		return invert(digits), nil
	case 'w':
		return words, nil
	case 'W':
		return invert(words), nil
	case 's':
		return spaces, nil
	case 'S':
		return invert(spaces), nil
	case 't':
		return one('\t')
	case 'n':
		return one('\n')
	case 'v':
		return one('\v')
	case 'f':
		return one('\f')
	case 'r':
		return one('\r')
	case 'b':
		if inClass {
			return one('\b')
		}
		return nil, errors.New(`\b: word borders`)
	case 'B':
		return nil, errors.New(`\B: word borders`)
	case '0':
		if next := p.peek(); next < '0' || next > '9' {
			return one(0)
		}
		return nil, errors.New(`\0 before a digit`)
	case 'x':
		r, err := p.hex(2)
		return []runeRange{{r, r}}, err
	case 'u':
		r, err := p.unicodeEscape()
		return []runeRange{{r, r}}, err
	case 'p', 'P':
		set, err := p.property()
		if c == 'P' {
			set = invert(set)
		}
		return set, err
	case 'k':
		return nil, errors.New(`\k: back references`)
	}
	switch {
	case c >= '1' && c <= '9':
		return nil, fmt.Errorf(`\%c: back references`, c)
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		return nil, fmt.Errorf(`\%c`, c)
	}
	return one(c)
}

func (p *regexpParser) hex(n int) (rune, error) {
	if p.at+n > len(p.text) {
		return 0, errors.New("an escape is cut off")
	}
	v, err := strconv.ParseUint(string(p.text[p.at:p.at+n]), 16, 32)
	p.at += n
	if err != nil || v > utf8.MaxRune {
		return 0, errors.New("an escape is no hexadecimal number")
	}
	return rune(v), nil
}

func (p *regexpParser) unicodeEscape() (rune, error) {
	if p.take("{") {
		end := slices.Index(p.text[p.at:], '}')
		if end < 1 || end > 6 {
			return 0, errors.New(`\u{ without a number`)
		}
		r, err := p.hex(end)
		p.at++
		return r, err
	}
	r, err := p.hex(4)
	if err == nil && r >= 0xd800 && r < 0xdc00 && p.take(`\u`) {
		low, err := p.hex(4)
		if err != nil || low < 0xdc00 || low > 0xdfff {
			return 0, errors.New("half of a surrogate pair")
		}
		return 0x10000 + (r-0xd800)<<10 + (low - 0xdc00), nil
	}
	if r >= 0xd800 && r <= 0xdfff {
		return 0, errors.New("half of a surrogate pair")
	}
	return r, err
}

// property reads {L}, {Lu}, {Script=Greek} and the like.
func (p *regexpParser) property() ([]runeRange, error) {
	end := slices.Index(p.text[p.at:], '}')
	if !p.take("{") || end < 0 {
		return nil, errors.New(`\p without a name in braces`)
	}
	name := string(p.text[p.at : p.at+end-1])
	p.at += end
	table := unicode.Categories[name]
	for _, prefix := range []string{"Script=", "sc="} {
		if script, ok := strings.CutPrefix(name, prefix); ok {
			table = unicode.Scripts[script]
		}
	}
	if table == nil {
		return nil, fmt.Errorf(`\p{%s}`, name)
	}
	var set []runeRange
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			set = append(set, runeRange{lo, hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			set = append(set, runeRange{r, r})
		}
	}
	for _, r := range table.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range table.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return union(set), nil
}

// class reads what follows [.
func (p *regexpParser) class() ([]runeRange, error) {
	negative := p.take("^")
	var set []runeRange
	for !p.take("]") {
		low, err := p.classItem()
		if err != nil {
			return nil, err
		}
		if p.peek() == '-' && p.at+1 < len(p.text) && p.text[p.at+1] != ']' {
			p.at++
			high, err := p.classItem()
			if err != nil {
				return nil, err
			}
			if len(low) != 1 || len(high) != 1 || low[0].lo != low[0].hi || high[0].lo != high[0].hi || low[0].lo > high[0].lo {
				return nil, errors.New("a range in [] without ends in order")
			}
			low = []runeRange{{low[0].lo, high[0].lo}}
		}
		set = append(set, low...)
	}
	if set = union(set); negative {
		set = invert(set)
	}
	return set, nil
}

func (p *regexpParser) classItem() ([]runeRange, error) {
	c := p.peek()
	p.at++
	switch c {
	case -1:
		return nil, errors.New("[ without ]")
	case '\\':
		return p.escape(true)
	}
	return []runeRange{{c, c}}, nil
}

// union puts ranges in order and joins those that touch.
func union(set []runeRange) []runeRange {
	set = slices.Clone(set)
	slices.SortFunc(set, func(a, b runeRange) int { return int(a.lo - b.lo) })
	var out []runeRange
	for _, r := range set {
		if k := len(out) - 1; k >= 0 && r.lo <= out[k].hi+1 {
			out[k].hi = max(out[k].hi, r.hi)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// invert is every character that an ordered set has not.
func invert(set []runeRange) []runeRange {
	var out []runeRange
	from := rune(0)
	for _, r := range set {
		if r.lo > from {
			out = append(out, runeRange{from, r.lo - 1})
		}
		from = r.hi + 1
	}
	if from <= utf8.MaxRune {
		out = append(out, runeRange{from, utf8.MaxRune})
	}
	return out
}
