package tokenizer

import (
	"strings"
	"unicode/utf8"
)

const replacement = "\uFFFD"

// sequence looks at the UTF-8 sequence at the start of s, which is not empty. It
// gives the length of the character, or with ok false the length of the longest
// part that could begin one (at least 1), which is replaced as a unit (Unicode
// standard, section 3.9). open says that s ended inside of a possible character.
func sequence(s string) (size int, ok, open bool) {
	lead := s[0]
	low, high, need := byte(0x80), byte(0xBF), 0
	switch {
	case lead < utf8.RuneSelf:
		return 1, true, false
	case lead < 0xC2 || lead > 0xF4:
		return 1, false, false
	case lead < 0xE0:
		need = 2
	case lead < 0xF0:
		need = 3
	default:
		need = 4
	}
	switch lead {
	case 0xE0:
		low = 0xA0
	case 0xED:
		high = 0x9F
	case 0xF0:
		low = 0x90
	case 0xF4:
		high = 0x8F
	}
	for size = 1; size < need; size++ {
		if size == len(s) {
			return size, false, true
		}
		if s[size] < low || s[size] > high {
			return size, false, false
		}
		low, high = 0x80, 0xBF
	}
	return size, true, false
}

// toValid replaces each maximal bad part of s by U+FFFD, except a part at the
// end that further bytes could complete: that is given back as rest, at most 3
// bytes.
func toValid(s string) (text, rest string) {
	if utf8.ValidString(s) {
		return s, ""
	}
	var out strings.Builder
	out.Grow(len(s) + len(replacement))
	good := 0 // s[good:i] is valid and not yet in out
	for i := 0; i < len(s); {
		size, ok, open := sequence(s[i:])
		if ok {
			i += size
			continue
		}
		out.WriteString(s[good:i])
		if open {
			return out.String(), s[i:]
		}
		out.WriteString(replacement)
		i += size
		good = i
	}
	out.WriteString(s[good:])
	return out.String(), ""
}

// toValidAll replaces an unfinished part at the end as well.
func toValidAll(s string) string {
	text, rest := toValid(s)
	if rest != "" {
		text += replacement
	}
	return text
}
