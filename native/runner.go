package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// runner starts external programs. What they print goes to a log.
type runner struct {
	env []string

	mu  *sync.Mutex // guards log
	log io.Writer
}

// with returns a runner that writes to the same log and has more environment.
func (r *runner) with(env ...string) *runner {
	more := *r
	more.env = slices.Concat(r.env, env)
	return &more
}

// commandError is a program that could not be started or did not succeed.
type commandError struct {
	command string
	output  []byte // standard output and standard error as they came
	err     error
}

func (e *commandError) Error() string { return fmt.Sprintf("%s: %v", e.command, e.err) }
func (e *commandError) Unwrap() error { return e.err }

// lines returns the last n lines that the program printed.
func (e *commandError) lines(n int) []string {
	all := strings.Split(strings.TrimSpace(string(e.output)), "\n")
	return all[max(0, len(all)-n):]
}

// execute starts a program in dir with stdin closed and returns what it printed.
// When ctx ends the program and everything it started are ended too.
func (r *runner) execute(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	return r.executeInput(ctx, dir, "", name, args...)
}

func (r *runner) executeInput(ctx context.Context, dir, input, name string, args ...string) ([]byte, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = r.env
	cmd.Stdin = strings.NewReader(input)
	cmd.Stdout = &out
	cmd.Stderr = &out
	cmd.WaitDelay = 5 * time.Second
	ownGroup(cmd)
	err := cmd.Run()
	r.record(cmd.String(), out.Bytes(), err)
	if ctx.Err() != nil {
		return nil, errInterrupted
	}
	if err != nil {
		return nil, &commandError{command: name, output: out.Bytes(), err: err}
	}
	return out.Bytes(), nil
}

func (r *runner) record(command string, output []byte, err error) {
	if r.log == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.log, "$ %s\n%s", command, output)
	if err != nil {
		fmt.Fprintf(r.log, "(%v)\n", err)
	}
}

// commandEnv is the environment of every program: the user's, with messages in
// English so that they can be recognised, and temporary files below tmp.
func commandEnv(tmp string) []string {
	env := append(os.Environ(), "LC_ALL=C", "PIP_REQUIRE_VIRTUALENV=false", "CARGO_TERM_COLOR=never", "CARGO_TERM_PROGRESS_WHEN=never")
	if tmp != "" {
		env = append(env, "TMPDIR="+tmp)
	}
	return env
}
