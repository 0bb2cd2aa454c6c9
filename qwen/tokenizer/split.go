package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// The regular expressions of the pre-tokenizer, as tokenizer.json spells them.
// Qwen3.5 counts combining marks as parts of words.
const (
	patternQwen3  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen35 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// A class is a set of the character classes that the patterns tell apart. Every
// character is in exactly one of them.
type class uint8

const (
	letter class = 1 << iota // \p{L}
	mark                     // \p{M}
	number                   // \p{N}
	space                    // \s
	other
)

var asciiClass = func() (classes [utf8.RuneSelf]class) {
	for r := range classes {
		classes[r] = unicodeClass(rune(r))
	}
	return classes
}()

func classOf(r rune) class {
	if r < utf8.RuneSelf {
		return asciiClass[r]
	}
	return unicodeClass(r)
}

func unicodeClass(r rune) class {
	switch {
	case r >= 0x4E00 && r <= 0x9FFF: // Han, the one large script
		return letter
	case newerThanPattern.contains(r):
		return other
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	case unicode.IsMark(r):
		return mark
	}
	return other
}

// A splitter finds the matches of one of the patterns without a regular
// expression engine: Go's has no look-ahead, and one scan is faster.
type splitter struct {
	word  class // the classes of the pattern's word alternative
	punct class // the classes of its punctuation alternative
}

// newSplitter gives the splitter of a pattern, and false for a pattern that is
// not one of the two.
func newSplitter(pattern string) (splitter, bool) {
	switch pattern {
	case patternQwen3:
		return splitter{word: letter, punct: other | mark}, true
	case patternQwen35:
		return splitter{word: letter | mark, punct: other}, true
	}
	return splitter{}, false
}

// next gives the length of the pattern's match at the start of s, which is valid
// UTF-8 and not empty. The alternatives cover every character, so matches lie
// side by side and there is always one.
func (p splitter) next(s string) int {
	first, size := utf8.DecodeRuneInString(s)
	if n := contraction(s); n > 0 {
		return n
	}
	c := classOf(first)

	// [^\r\n\p{L}\p{N}]?\p{L}+ : one character that is no letter may lead.
	// A mark that is a word character itself needs no other after it.
	if c&p.word != 0 {
		return size + span(s[size:], p.word)
	}
	if c != number && first != '\r' && first != '\n' {
		if n := span(s[size:], p.word); n > 0 {
			return size + n
		}
	}
	if c == number {
		return size
	}

	//  ?[^\s\p{L}\p{N}]+[\r\n]*
	lead := 0
	if first == ' ' {
		lead = 1
	}
	if n := span(s[lead:], p.punct); n > 0 {
		n += lead
		for n < len(s) && (s[n] == '\r' || s[n] == '\n') {
			n++
		}
		return n
	}
	return spaces(s)
}

// contraction gives the length of (?i:'s|'t|'re|'ve|'m|'ll|'d) at the start of
// s, or 0. Case folding lets U+017F, the long s, stand for s.
func contraction(s string) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	switch s[1] | 0x20 {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if len(s) > 2 && s[2]|0x20 == 'e' {
			return 3
		}
	case 'l':
		if len(s) > 2 && s[2]|0x20 == 'l' {
			return 3
		}
	}
	if len(s) > 2 && s[1:3] == "\u017f" {
		return 3
	}
	return 0
}

// span gives the length of the longest start of s whose characters are all in
// the classes.
func span(s string, classes class) int {
	for i, r := range s {
		if classOf(r)&classes == 0 {
			return i
		}
	}
	return len(s)
}

// spaces matches \s*[\r\n]+|\s+(?!\S)|\s+ at the start of s, which begins with
// white space: up to the last line break of the run if it has one; else the run
// without its last character, which is left to the word that follows; the whole
// run at the end of the text and if it is one character.
func spaces(s string) int {
	end, last, lineEnd := len(s), 0, 0
	for i, r := range s {
		if classOf(r) != space {
			end = i
			break
		}
		last = i
		if r == '\r' || r == '\n' {
			lineEnd = i + 1
		}
	}
	switch {
	case lineEnd > 0:
		return lineEnd
	case end == len(s) || last == 0:
		return end
	}
	return last
}
