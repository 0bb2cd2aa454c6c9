package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/godflash/godflash/qwen/chat"
)

// screen writes answers. On a terminal the thought is dim; elsewhere it is left
// out, so that a pipe gets the answer alone.
type screen struct {
	w        io.Writer
	terminal bool
	colour   bool
	dim      bool // the terminal is in the thought's colour
	wrote    bool // something of this answer
	err      error
}

func newScreen(w io.Writer, terminal bool) *screen {
	return &screen{w: w, terminal: terminal, colour: terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (s *screen) print(text string) {
	if text == "" || s.err != nil {
		return
	}
	if s.terminal {
		text = printable(text)
	}
	_, s.err = io.WriteString(s.w, text)
	s.wrote = true
}

func (s *screen) shade(dim bool) {
	if s.dim == dim || !s.colour {
		return
	}
	s.dim = dim
	code := "\x1b[0m"
	if dim {
		code = "\x1b[2m"
	}
	if s.err == nil {
		_, s.err = io.WriteString(s.w, code)
	}
}

// delta writes the next piece of an answer.
func (s *screen) delta(d chat.Delta) {
	switch d.Kind {
	case chat.DeltaReasoning:
		if s.terminal {
			s.shade(true)
			s.print(d.Text)
		}
	case chat.DeltaToolCall:
		if d.Name != "" {
			s.print(fmt.Sprintf("[calls %s] ", d.Name))
		}
		s.print(d.Text)
	default:
		if s.dim {
			s.shade(false)
			s.print("\n")
		}
		s.print(d.Text)
	}
}

// end closes an answer's last line.
func (s *screen) end() error {
	s.shade(false)
	if s.wrote || !s.terminal {
		s.print("\n")
	}
	s.wrote = false
	return s.err
}

// printable shows control characters instead of obeying them: what a model writes
// must not move the cursor or rename the window.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return '\uFFFD'
		}
		return r
	}, text)
}
