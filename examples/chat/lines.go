package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/peterh/liner"
	"golang.org/x/term"
)

// errInterrupted: Ctrl-C while a line is waited for.
var errInterrupted = errors.New("interrupted")

// maxLine is more than any context holds.
const maxLine = 64 << 20

// lines is where questions come from.
type lines interface {
	// next returns io.EOF at the end of the input and errInterrupted on Ctrl-C.
	next(prompt string) (string, error)
	close()
}

// newLines is a line editor on a terminal, else a reader of lines. terminal says
// which.
func newLines(c console) (l lines, terminal bool) {
	in, isFile := c.in.(*os.File)
	out, isFile2 := c.out.(*os.File)
	if isFile && isFile2 && term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd())) {
		return newEditor(), true
	}
	scanner := bufio.NewScanner(c.in)
	scanner.Buffer(nil, maxLine)
	return &piped{c: c, scanner: scanner}, false
}

// piped reads lines of a pipe or a file. Reading cannot be broken off, so a
// goroutine waits for each line; one that is still blocked when the program ends
// ends with it.
type piped struct {
	c       console
	scanner *bufio.Scanner
}

func (p *piped) next(string) (string, error) {
	type line struct {
		text string
		err  error
	}
	read := make(chan line, 1)
	go func() {
		if p.scanner.Scan() {
			read <- line{text: p.scanner.Text()}
			return
		}
		err := p.scanner.Err()
		if err == nil {
			err = io.EOF
		} else {
			err = fmt.Errorf("read standard input: %w", err)
		}
		read <- line{err: err}
	}()
	select {
	case l := <-read:
		return l.text, l.err
	case <-p.c.interrupts:
		return "", errInterrupted
	}
}

func (p *piped) close() {}

// editor edits lines on a terminal and remembers them in a file of the user's
// cache folder, as far as there is one.
type editor struct {
	state *liner.State
	file  string
}

func newEditor() *editor {
	e := &editor{state: liner.NewLiner()}
	e.state.SetCtrlCAborts(true)
	e.state.SetCompleter(complete)
	if dir, err := os.UserCacheDir(); err == nil {
		e.file = filepath.Join(dir, "godflash", "chat-history")
		if f, err := os.Open(e.file); err == nil {
			_, _ = e.state.ReadHistory(f) // a broken history is not worth a message
			f.Close()
		}
	}
	return e
}

func (e *editor) next(prompt string) (string, error) {
	var whole []string
	for {
		line, err := e.state.Prompt(prompt)
		if errors.Is(err, liner.ErrPromptAborted) {
			return "", errInterrupted
		}
		if err != nil {
			return "", err
		}
		more := strings.HasSuffix(line, `\`)
		whole = append(whole, strings.TrimSuffix(line, `\`))
		if !more {
			break
		}
		prompt = "… "
	}
	text := strings.Join(whole, "\n")
	if strings.TrimSpace(text) != "" {
		e.state.AppendHistory(strings.ReplaceAll(text, "\n", " "))
	}
	return text, nil
}

func (e *editor) close() {
	if e.file != "" && os.MkdirAll(filepath.Dir(e.file), 0o700) == nil {
		if f, err := os.OpenFile(e.file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600); err == nil {
			_, _ = e.state.WriteHistory(f)
			f.Close()
		}
	}
	e.state.Close()
}

// complete offers the commands that begin with line.
func complete(line string) (out []string) {
	for _, c := range commands() {
		if strings.HasPrefix("/"+c.name, line) {
			out = append(out, "/"+c.name)
		}
	}
	return out
}
