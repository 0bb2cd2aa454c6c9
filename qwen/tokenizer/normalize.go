package tokenizer

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// shortSegment is a number of characters whose canonical decompositions cannot
// hold 30 combining marks in a row (one character decomposes into at most three
// marks and a base). From 30 on, x/text inserts U+034F as the stream-safe text
// format asks, which plain NFC and the reference do not.
const shortSegment = 8

// nfc gives s, valid UTF-8, in Unicode normalization form C as the reference
// knows it: see newerThanNormalizer.
func nfc(s string) string {
	if norm.NFC.IsNormalString(s) {
		return s
	}
	var out strings.Builder
	out.Grow(len(s))
	done := 0 // s[:done] is in out
	flush := func(to int) {
		out.WriteString(norm.NFC.String(s[done:to]))
		done = to
	}
	for at := 0; at < len(s); {
		size, runes, inert := segment(s[at:])
		switch {
		case inert:
			flush(at)
			out.WriteString(s[at : at+size])
			done = at + size
		case runes > shortSegment:
			flush(at)
			out.WriteString(composeSegment(s[at : at+size]))
			done = at + size
		}
		at += size
	}
	flush(len(s))
	return out.String()
}

// segment gives the length in bytes and characters of the first part of s that
// can be normalized by itself. A character that the reference leaves alone is
// such a part.
func segment(s string) (size, runes int, inert bool) {
	for size < len(s) {
		if s[size] < utf8.RuneSelf {
			if runes > 0 {
				return size, runes, false
			}
			size++
			runes++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[size:])
		inert := newerThanNormalizer.contains(r)
		switch {
		case inert && runes == 0:
			return n, 1, true
		case inert, runes > 0 && norm.NFC.PropertiesString(s[size:]).BoundaryBefore():
			return size, runes, false
		}
		size += n
		runes++
	}
	return size, runes, false
}

type character struct {
	r   rune
	ccc uint8 // canonical combining class
}

// composeSegment normalizes a segment of any length by the algorithm of the
// Unicode standard (section 3.11): decompose, order, compose. It is linear.
func composeSegment(s string) string {
	var characters []character
	var decomposed []byte
	for i := 0; i < len(s); {
		_, size := utf8.DecodeRuneInString(s[i:])
		decomposed = norm.NFD.AppendString(decomposed[:0], s[i:i+size])
		i += size
		for d := decomposed; len(d) > 0; {
			r, size := utf8.DecodeRune(d)
			characters = append(characters, character{r, norm.NFD.Properties(d).CCC()})
			d = d[size:]
		}
	}
	orderMarks(characters)

	out := characters[:0]
	starter, lastClass := -1, -1 // lastClass -1: nothing between starter and here
	for _, c := range characters {
		if starter >= 0 && lastClass < int(c.ccc) {
			if composed, ok := composePair(out[starter].r, c.r); ok {
				out[starter].r = composed
				continue
			}
		}
		if c.ccc == 0 {
			starter, lastClass = len(out), -1
		} else {
			lastClass = int(c.ccc)
		}
		out = append(out, c)
	}
	var text strings.Builder
	text.Grow(len(s))
	for _, c := range out {
		text.WriteRune(c.r)
	}
	return text.String()
}

// orderMarks sorts each run of combining marks by class and keeps the order
// within a class: a counting sort, so that a megabyte of marks stays linear.
func orderMarks(characters []character) {
	var sorted []character
	for start := 0; start < len(characters); {
		if characters[start].ccc == 0 {
			start++
			continue
		}
		end := start
		var counts [256]int
		for end < len(characters) && characters[end].ccc != 0 {
			counts[characters[end].ccc]++
			end++
		}
		at := 0
		for class, n := range counts {
			counts[class] = at
			at += n
		}
		sorted = append(sorted[:0], characters[start:end]...)
		for _, c := range sorted {
			characters[start+counts[c.ccc]] = c
			counts[c.ccc]++
		}
		start = end
	}
}

// composePair gives the primary composite of two characters, if there is one.
// The comparison of decompositions keeps out results that norm reached by
// changing the order of marks.
func composePair(a, b rune) (rune, bool) {
	composed := norm.NFC.String(string(a) + string(b))
	r, size := utf8.DecodeRuneInString(composed)
	if size != len(composed) || norm.NFD.String(composed) != norm.NFD.String(string(a))+norm.NFD.String(string(b)) {
		return 0, false
	}
	return r, true
}
