package chat

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ardanlabs/jinja"
)

// Segment is a stretch of a rendered prompt.
type Segment struct {
	Text string
	// Literal text came from a message and spells a control token. It has to be
	// encoded as ordinary text, or whoever wrote the message could end turns and
	// begin new ones.
	Literal bool
}

// RenderSegments is Render for messages that are not trusted: each of the
// control tokens (Qwen's "<|im_start|>", "<|im_end|>" and so on) that a message,
// a tool or a kwarg contains becomes a literal segment of its own. The texts of
// all segments together are the text that Render gives.
func (t *Template) RenderSegments(messages []Message, opts *Options, controls []string) ([]Segment, error) {
	v := &values{}
	var pairs []string
	for _, control := range controls {
		if control == "" {
			return nil, errors.New("chat: an empty control token")
		}
		mark, err := v.hide(hidden{control, literal})
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, control, mark)
	}
	v.controls = strings.NewReplacer(pairs...)
	return t.render(v, messages, opts)
}

// What is hidden from the engine travels as one character of the private plane
// 16, which no filter changes and no slice divides. Such characters of the
// messages' own are hidden as well, and a template that has them is refused, so
// one in the engine's output always stands for something hidden.
const (
	firstMark = 0x100000
	lastMark  = 0x10fffd
	markByte  = 0xf4 // the first byte of each in UTF-8
)

// kind is why a text is hidden.
type kind int

const (
	character kind = iota // one of plane 16
	literal               // a control token
	number                // a whole number outside int64; tojson puts quotes around its mark
)

type hidden struct {
	text string
	kind kind
}

func isMark(r rune) bool { return r >= firstMark && r <= utf8.MaxRune }

// hide keeps a text and returns the mark that stands for it.
func (v *values) hide(h hidden) (string, error) {
	i, ok := v.marks[h]
	if !ok {
		i = rune(len(v.hidden)) + firstMark
		if i > lastMark {
			return "", fmt.Errorf("more than %d large numbers and private characters in one prompt", lastMark-firstMark)
		}
		if v.marks == nil {
			v.marks = map[hidden]rune{}
		}
		v.marks[h] = i
		v.hidden = append(v.hidden, h)
	}
	return string(i), nil
}

// text is a string of the caller's as the engine sees it.
func (v *values) text(s string) jinja.Value {
	if strings.IndexByte(s, markByte) >= 0 {
		var b strings.Builder
		for _, r := range s {
			if !isMark(r) {
				b.WriteRune(r)
				continue
			}
			mark, err := v.hide(hidden{string(r), character})
			if err != nil && v.err == nil {
				v.err = err
			}
			b.WriteString(mark)
		}
		s = b.String()
	}
	if v.controls != nil {
		s = v.controls.Replace(s)
	}
	return jinja.NewString(s)
}

// finish puts what was hidden back into rendered text.
func (v *values) finish(text string) []Segment {
	var segments []Segment
	var plain strings.Builder
	flush := func() {
		if plain.Len() > 0 {
			segments = append(segments, Segment{Text: plain.String()})
			plain.Reset()
		}
	}
	for len(v.hidden) > 0 {
		at := strings.IndexFunc(text, isMark)
		if at < 0 {
			break
		}
		r, size := utf8.DecodeRuneInString(text[at:])
		before, after := text[:at], text[at+size:]
		h := hidden{text: string(r)} // unless it is one that an escape in the template made
		if i := int(r - firstMark); i < len(v.hidden) {
			h = v.hidden[i]
		}
		if h.kind == number && strings.HasSuffix(before, `"`) && strings.HasPrefix(after, `"`) {
			before, after = before[:len(before)-1], after[1:]
		}
		plain.WriteString(before)
		if h.kind == literal {
			flush()
			segments = append(segments, Segment{Text: h.text, Literal: true})
		} else {
			plain.WriteString(h.text)
		}
		text = after
	}
	plain.WriteString(text)
	flush()
	return segments
}

func join(segments []Segment) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteString(s.Text)
	}
	return b.String()
}
