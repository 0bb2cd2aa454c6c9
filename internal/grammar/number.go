package grammar

import (
	"cmp"
	"slices"
)

// Numbers without bounds have few enough digits to be finite as float64 and,
// where they are integers, to fit int64: models can go on with digits for ever,
// and what a program cannot read is of no use.
const (
	integerPattern = `^(?:0|-?[1-9][0-9]{0,17})$`
	numberPattern  = `^-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,16})?(?:[eE][+-]?[0-9]{1,2})?$`
	wholeDigits    = 18
	fractionDigits = 16
)

// bound is one end of a range of numbers.
type bound struct {
	decimal
	exclusive bool
}

// numberRange are the bounds of a number, nil for none.
type numberRange struct {
	low, high *bound
}

// tighten keeps the narrower of both ranges.
func (r numberRange) tighten(o numberRange) numberRange {
	narrower := func(a, b *bound, sign int) *bound {
		switch {
		case a == nil:
			return b
		case b == nil:
			return a
		}
		if c := sign * a.compare(b.decimal); c < 0 || c == 0 && b.exclusive {
			return b
		}
		return a
	}
	return numberRange{narrower(r.low, o.low, 1), narrower(r.high, o.high, -1)}
}

// numberState is how far a number has been read, compared with both bounds'
// sizes.
type numberState struct {
	part     numberPart
	negative bool
	zero     bool // no digit but 0 so far
	digits   int8 // of the part
	whole    int8 // digits of the whole part, once it is over
	low      int8 // how the digits so far compare with the lower bound's
	high     int8
}

type numberPart uint8

const (
	numberStart numberPart = iota
	numberSign
	numberZero
	numberWhole
	numberPoint
	numberFraction
)

// dfa is the automaton of the range's numbers, without exponents: each of their
// digits is compared with the bounds' as it is read.
func (r numberRange) dfa(integer bool) *dfa {
	whole, fraction := wholeDigits, fractionDigits
	for _, b := range []*bound{r.low, r.high} {
		if b != nil {
			whole, fraction = max(whole, len(b.whole)), max(fraction, len(b.fraction))
		}
	}
	d := &dfa{}
	known := map[numberState]int32{}
	var states []numberState
	add := func(s numberState) int32 {
		id, ok := known[s]
		if !ok {
			id = int32(len(states))
			known[s] = id
			states = append(states, s)
			d.states = append(d.states, dstate{final: r.accepts(s)})
		}
		return id
	}
	add(numberState{zero: true})
	for i := 0; i < len(states); i++ {
		for _, c := range []byte("-.0123456789") {
			if t, ok := r.read(states[i], c, integer, whole, fraction); ok {
				d.states[i].edges = append(d.states[i].edges, edge{c, c, add(t)})
			}
		}
	}
	return d.trim()
}

func (r numberRange) read(s numberState, c byte, integer bool, whole, fraction int) (numberState, bool) {
	switch {
	case c == '-':
		s.negative = true
		ok := s.part == numberStart
		s.part = numberSign
		return s, ok
	case c == '.':
		ok := !integer && (s.part == numberZero || s.part == numberWhole)
		s.part, s.whole, s.digits = numberPoint, s.digits, 0
		return s, ok
	}
	switch s.part {
	case numberStart, numberSign:
		s.part = numberWhole
		if c == '0' {
			s.part = numberZero
		}
	case numberZero:
		return s, false
	case numberPoint:
		s.part = numberFraction
	}
	if s.part == numberWhole && int(s.digits) >= whole || s.part == numberFraction && int(s.digits) >= fraction {
		return s, false
	}
	compare := func(b *bound, so int8) int8 {
		if b == nil || so != 0 {
			return so
		}
		digits, missing := b.whole, c
		if s.part == numberFraction {
			digits, missing = b.fraction, '0'
		}
		if int(s.digits) < len(digits) {
			missing = digits[s.digits]
		}
		return int8(cmp.Compare(c, missing))
	}
	// The whole part's digits only compare like that where there are equally
	// many; once it is over, their number decides first.
	if s.part == numberFraction && s.digits == 0 {
		s.low, s.high = r.low.settle(s.whole, s.low), r.high.settle(s.whole, s.high)
		s.whole = 0
	}
	s.low, s.high = compare(r.low, s.low), compare(r.high, s.high)
	s.zero = s.zero && c == '0'
	s.digits++
	return s, true
}

// settle compares a whole part of so many digits, whose digits compare like so.
func (b *bound) settle(digits, so int8) int8 {
	if b == nil {
		return 0
	}
	if c := cmp.Compare(int(digits), len(b.whole)); c != 0 {
		return int8(c)
	}
	return so
}

// accepts says whether a number may end at s.
func (r numberRange) accepts(s numberState) bool {
	switch s.part {
	case numberZero, numberWhole:
		s.low, s.high = r.low.settle(s.digits, s.low), r.high.settle(s.digits, s.high)
		s.digits = 0
	case numberFraction:
	default:
		return false
	}
	if s.negative && s.zero {
		return false
	}
	compare := func(b *bound, so int8) int {
		if so == 0 && int(s.digits) < len(b.fraction) {
			so = -1 // the bound has more digits, and not only zeros
		}
		switch {
		case s.negative != b.negative && s.negative:
			return -1
		case s.negative != b.negative:
			return 1
		case s.negative:
			return -int(so)
		}
		return int(so)
	}
	if r.low != nil {
		if c := compare(r.low, s.low); c < 0 || c == 0 && r.low.exclusive {
			return false
		}
	}
	if r.high != nil {
		if c := compare(r.high, s.high); c > 0 || c == 0 && r.high.exclusive {
			return false
		}
	}
	return true
}

// Formats of strings that are kept to. Some are narrower than their definitions:
// every text is one of the format, not every text of the format can come.
var formats = map[string]string{
	"date":      `^(?:` + datePattern + `)$`,
	"time":      `^(?:` + timePattern + `)$`,
	"date-time": `^(?:` + datePattern + `)T(?:` + timePattern + `)$`,
	"uuid":      `^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`,
	"ipv4":      `^(?:` + bytePattern + `\.){3}` + bytePattern + `$`,
	"email":     `^[A-Za-z0-9_+-]{1,16}(?:\.[A-Za-z0-9_+-]{1,16}){0,2}@(?:` + labelPattern + `\.){1,4}[A-Za-z]{2,16}$`,
	"hostname":  `^(?:` + labelPattern + `\.){0,4}[A-Za-z]{2,16}$`,
}

const (
	bytePattern  = `(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
	labelPattern = `[A-Za-z0-9]{1,15}(?:-[A-Za-z0-9]{1,15}){0,2}`
	leapPattern  = `(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)`
	datePattern  = `[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|` + leapPattern + `-02-29`
	timePattern  = `(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])`
)

// formatNames lists the formats, for messages.
func formatNames() []string {
	var names []string
	for name := range formats {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
