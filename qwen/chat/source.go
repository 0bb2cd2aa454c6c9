package chat

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The engine is given a rewritten source. Its own white-space control reaches
// over neighbouring tags: in "{% if a %}{{ b }}\n" it drops a newline that
// Jinja2 keeps. So prepare settles white space itself, by the rules of Jinja2's
// lexer with trim_blocks and lstrip_blocks on, and writes each tag in the form
// that leaves its surroundings alone. In the same pass it puts a call of the
// guard at the head of every body that can run more than once.

const (
	maxSource = 1 << 20  // bytes of a template
	maxTag    = 16 << 10 // bytes between a tag's delimiters; bounds the parser's recursion
)

// guardTag is put at the head of a body that can run more than once.
func guardTag(name string) string { return "{%+ set " + voidName + " = " + name + "() +%}" }

// piece is a stretch of template text or a tag.
type piece struct {
	kind  byte   // 0 text, '{' expression, '%' statement, '#' comment
	text  string // between the delimiters and without signs
	left  byte   // sign after the opening delimiter: '-', '+' or 0
	right byte   // sign before the closing delimiter
}

// prepare returns the source for the engine and the pieces it consists of.
func prepare(source string) (string, []piece, error) {
	if len(source) > maxSource {
		return "", nil, fmt.Errorf("template of %d bytes, at most %d are allowed", len(source), maxSource)
	}
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	source = strings.TrimSuffix(source, "\n") // keep_trailing_newline is off
	pieces, err := split(source)
	if err != nil {
		return "", nil, err
	}
	settle(pieces)
	var b strings.Builder
	for _, p := range pieces {
		switch p.kind {
		case 0:
			writeText(&b, p.text)
		case '{':
			b.WriteString("{{ " + p.text + " }}")
		case '%':
			b.WriteString("{%+ " + p.text + " +%}")
			switch keyword(p.text) {
			case "for":
				if slices.Contains(words(p.text), "recursive") {
					b.WriteString(guardTag(callName))
				} else {
					b.WriteString(guardTag(stepName))
				}
			case "macro", "call":
				b.WriteString(guardTag(callName))
			}
		}
	}
	return b.String(), pieces, nil
}

// writeText writes text so that the engine cannot take it for a tag.
func writeText(b *strings.Builder, text string) {
	// A brace at the end would join with the tag that follows.
	if !strings.Contains(text, "{{") && !strings.Contains(text, "{%") && !strings.Contains(text, "{#") && !strings.HasSuffix(text, "{") {
		b.WriteString(text)
		return
	}
	b.WriteString(`{{ "`)
	b.WriteString(strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text))
	b.WriteString(`" }}`)
}

// split cuts a source into text and tags; raw blocks become text.
func split(source string) ([]piece, error) {
	var pieces []piece
	rest := source
	line := func() int { return strings.Count(source[:len(source)-len(rest)], "\n") + 1 }
	for {
		start := nextTag(rest)
		if start < 0 {
			return append(pieces, piece{text: rest}), nil
		}
		pieces = append(pieces, piece{text: rest[:start]})
		rest = rest[start:]
		tag, length, err := readTag(rest)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line(), err)
		}
		if tag.kind == '%' && tag.text == "raw" {
			end, close, endLength := endRaw(rest[length:])
			if end < 0 {
				return nil, fmt.Errorf("line %d: raw block without endraw", line())
			}
			// The marks keep the signs of both tags for settle.
			open := piece{kind: '#', left: tag.left, right: tag.right}
			if open.right == 0 {
				open.right = '+' // trim_blocks leaves the newline after {% raw %}
			}
			pieces = append(pieces, open, piece{text: rest[length : length+end]}, close)
			rest = rest[length+end+endLength:]
			continue
		}
		pieces = append(pieces, tag)
		rest = rest[length:]
	}
}

// nextTag finds the next opening delimiter.
func nextTag(s string) int {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '{' && (s[i+1] == '{' || s[i+1] == '%' || s[i+1] == '#') {
			return i
		}
	}
	return -1
}

// readTag reads the tag at the start of s and tells its length.
func readTag(s string) (piece, int, error) {
	p := piece{kind: s[1]}
	closer := map[byte]string{'{': "}}", '%': "%}", '#': "#}"}[p.kind]
	i := 2
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		p.left = s[i]
		i++
	}
	start, depth := i, 0
	for i < len(s) {
		if depth == 0 && strings.HasPrefix(s[i:], closer) {
			end := i
			if last := s[i-1]; i > start && (last == '-' || last == '+' && p.kind != '{') {
				p.right = last
				end--
			}
			p.text = strings.TrimSpace(s[start:end])
			if p.kind != '#' && len(p.text) > maxTag {
				return p, 0, fmt.Errorf("a tag of %d bytes, at most %d are allowed", len(p.text), maxTag)
			}
			return p, i + 2, nil
		}
		c := s[i]
		i++
		if p.kind == '#' {
			continue
		}
		switch c {
		case '\'', '"':
			for i < len(s) && s[i] != c {
				if s[i] == '\\' {
					i++
				}
				i++
			}
			i++
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
	}
	return p, 0, fmt.Errorf("tag %.30q is not closed", s)
}

// endRaw finds {% endraw %}: where it starts, its signs as a mark, its length.
func endRaw(s string) (int, piece, int) {
	for from := 0; ; {
		i := strings.Index(s[from:], "{%")
		if i < 0 {
			return -1, piece{}, 0
		}
		i += from
		from = i + 2
		if end := strings.Index(s[i:], "%}"); end >= 0 {
			inner := s[i+2 : i+end]
			mark := piece{kind: '#'}
			if strings.HasPrefix(inner, "-") || strings.HasPrefix(inner, "+") {
				mark.left, inner = inner[0], inner[1:]
			}
			if strings.HasSuffix(inner, "-") || strings.HasSuffix(inner, "+") {
				mark.right, inner = inner[len(inner)-1], inner[:len(inner)-1]
			}
			if strings.TrimSpace(inner) == "endraw" {
				return i, mark, end + 2
			}
		}
	}
}

// settle applies the signs and trim_blocks and lstrip_blocks to the text pieces,
// which stand before, between and after all tags.
func settle(pieces []piece) {
	lineStart := true // what stands before the text ended a line
	for i := range pieces {
		if pieces[i].kind != 0 {
			continue
		}
		text := pieces[i].text
		if i > 0 {
			lineStart = false
			tag := pieces[i-1]
			trimmed := text
			switch {
			case tag.right == '-':
				trimmed = strings.TrimLeftFunc(text, space)
			case tag.right == 0 && tag.kind != '{':
				trimmed = strings.TrimPrefix(text, "\n")
			}
			lineStart = strings.HasSuffix(text[:len(text)-len(trimmed)], "\n")
			text = trimmed
		}
		if i+1 < len(pieces) {
			tag := pieces[i+1]
			switch {
			case tag.left == '-':
				text = strings.TrimRightFunc(text, space)
			case tag.left == 0 && tag.kind != '{':
				line := strings.LastIndexByte(text, '\n') + 1
				if (line > 0 || lineStart) && strings.TrimFunc(text[line:], space) == "" {
					text = text[:line]
				}
			}
		}
		pieces[i].text = text
	}
}

// space is what Python's \s and str.rstrip take for white space.
func space(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// keyword is the first word of a statement.
func keyword(text string) string {
	for i, r := range text {
		if !unicode.IsLetter(r) && r != '_' {
			return text[:i]
		}
	}
	return text
}

// names lists the filters and tests that the tags of a template use.
func names(pieces []piece) (filters, tests []string) {
	for _, p := range pieces {
		if p.kind != '{' && p.kind != '%' {
			continue
		}
		words := words(p.text)
		for i, word := range words {
			switch {
			case i+1 == len(words):
			case word == "|", i == 0 && p.kind == '%' && word == "filter":
				filters = append(filters, words[i+1])
			case word == "is" && i > 0 && words[i-1] != ".":
				name := words[i+1]
				if name == "not" && i+2 < len(words) {
					name = words[i+2]
				}
				tests = append(tests, name)
			}
		}
	}
	return filters, tests
}

// words cuts an expression into identifiers and single characters, without its
// string literals.
func words(text string) []string {
	var words []string
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == '\'' || r == '"':
			i++
			for i < len(text) && text[i] != byte(r) {
				if text[i] == '\\' {
					i++
				}
				i++
			}
			i++
			words = append(words, `""`)
		case identifier(r):
			start := i
			for i < len(text) && identifier(rune(text[i])) {
				i++
			}
			words = append(words, text[start:i])
		default:
			if !space(r) {
				words = append(words, text[i:i+size])
			}
			i += size
		}
	}
	return words
}

func identifier(r rune) bool {
	return r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}
