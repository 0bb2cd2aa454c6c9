package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/dflash/openai"
)

// A fault of the GPU ends its process, and nothing in the process can prevent it.
// A program that must outlive that runs the engine in a child: the same executable,
// started again, which serves the API of package openai on a socket that only
// this user can open. When it dies, the question that it was answering fails and a
// new one is started.

// childSocket is the variable that makes this executable the child; its value is
// the socket.
const childSocket = "GODFLASH_EMBED_CHILD"

// errChild: the child died.
var errChild = errors.New("the engine's process died")

// maxDeaths is how often in a row a child may die before it is ready.
const maxDeaths = 3

// report is a line that the child writes on its standard output.
type report struct {
	Loading *Loading
	Ready   *Ready
	Failed  string
}

// childMain is the child. It ends with its parent, whose end of standard input
// closes then.
func childMain(socket, model string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	out := json.NewEncoder(os.Stdout)
	fail := func(err error) int {
		_ = out.Encode(report{Failed: err.Error()})
		return 1
	}
	engine, lib, err := openEngine(ctx, model, nil, func(l Loading) { _ = out.Encode(report{Loading: &l}) })
	if err != nil {
		return fail(err)
	}
	defer lib.Close()
	defer engine.Close()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fail(err)
	}
	server := &http.Server{Handler: openai.NewHandler(engine, nil), ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	_ = out.Encode(report{Ready: &Ready{engine.Info(), lib.Path()}})
	<-ctx.Done()
	server.Close()
	<-served
	return 0
}

// child is a running engine's process.
type child struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	client *http.Client
	dir    string
	ended  chan struct{} // closed when the process has ended
	why    error         // set then
}

// startChild starts the process and waits until it can answer. tell hears its
// progress.
func startChild(ctx context.Context, model string, tell func(Event) bool) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "embed-") // for this user alone
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "api")
	c := &child{dir: dir, ended: make(chan struct{})}
	c.cmd = exec.Command(exe, "-model", model, "-prompt", "-")
	c.cmd.Env = append(os.Environ(), childSocket+"="+socket)
	var stderr head
	c.cmd.Stderr = &stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := c.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	reports, deaf := make(chan report), make(chan struct{})
	defer close(deaf)
	leave := func(err error) (*child, error) {
		go func() { // stop waits for the goroutine that sends
			for range reports {
			}
		}()
		c.stop()
		return nil, err
	}
	go func() {
		defer close(c.ended)
		defer close(reports)
		lines := json.NewDecoder(stdout)
		for {
			var r report
			if lines.Decode(&r) != nil {
				break
			}
			select {
			case reports <- r:
			case <-deaf:
			}
		}
		err := c.cmd.Wait()
		c.why = fmt.Errorf("%w: %v%s", errChild, err, stderr.text())
	}()
	for {
		select {
		case r, open := <-reports:
			switch {
			case !open:
				<-c.ended
				return leave(c.why)
			case r.Failed != "":
				return leave(errors.New(r.Failed))
			case r.Loading != nil:
				tell(*r.Loading)
			case r.Ready != nil:
				tell(*r.Ready)
				return c, nil
			}
		case <-ctx.Done():
			return leave(ctx.Err())
		}
	}
}

// stop ends the process and waits for its end.
func (c *child) stop() {
	c.stdin.Close()
	select {
	case <-c.ended:
	case <-time.After(5 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.ended
	}
	c.client.CloseIdleConnections()
	os.RemoveAll(c.dir)
}

// alive reports whether the process runs, as far as is known.
func (c *child) alive() bool {
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// generate asks the child and hands out the pieces of its answer. The error is
// c.why where the process died.
func (c *child) generate(ctx context.Context, r dflash.Request, text func(string) bool) (stats dflash.Stats, err error) {
	ask := map[string]any{
		"messages": []map[string]string{{"role": "user", "content": r.Prompt}}, "temperature": r.Sampling.Temperature,
		"stream": true, "stream_options": map[string]bool{"include_usage": true}, "godflash": map[string]bool{"tokens": true},
	}
	if r.MaxTokens > 0 {
		ask["max_tokens"] = r.MaxTokens
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return stats, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://engine/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return stats, err
	}
	defer func() {
		if err == nil || ctx.Err() != nil {
			return
		}
		select { // a broken connection is known a moment before the process's end is
		case <-c.ended:
			err = c.why
		case <-time.After(2 * time.Second):
		}
	}()
	response, err := c.client.Do(request)
	if err != nil {
		return stats, err
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 16<<20)
	complete := false
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			if response.StatusCode != http.StatusOK {
				return stats, fmt.Errorf("the engine answered %s: %s", response.Status, lines.Text())
			}
			continue
		}
		if complete = data == "[DONE]"; complete {
			break
		}
		var chunk struct {
			Choices []struct {
				Delta struct {
					Content   string
					Reasoning string `json:"reasoning_content"`
				}
			}
			Usage *struct {
				Prompt     int `json:"prompt_tokens"`
				Completion int `json:"completion_tokens"`
			}
			Godflash struct{ Tokens []json.RawMessage }
			Error    *struct{ Message string }
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return stats, fmt.Errorf("the engine answered %q: %w", data, err)
		}
		if chunk.Error != nil {
			return stats, errors.New(chunk.Error.Message)
		}
		stats.CompletionTokens += len(chunk.Godflash.Tokens) // of an answer that is stopped before its usage is told
		if chunk.Usage != nil {
			stats.PromptTokens, stats.CompletionTokens = chunk.Usage.Prompt, chunk.Usage.Completion
		}
		for _, choice := range chunk.Choices {
			piece := choice.Delta.Reasoning + choice.Delta.Content
			if piece != "" && !text(piece) {
				return stats, context.Canceled
			}
		}
	}
	if err := lines.Err(); err != nil {
		return stats, err
	}
	if !complete {
		return stats, io.ErrUnexpectedEOF
	}
	return stats, nil
}

// head keeps the beginning of what a process wrote: Go's and MLX's last words
// begin with the reason, and stacks follow.
type head struct{ b []byte }

func (h *head) Write(p []byte) (int, error) {
	h.b = append(h.b, p[:min(len(p), 2000-len(h.b))]...)
	return len(p), nil
}

func (h *head) text() string {
	s, _, _ := strings.Cut(strings.TrimSpace(string(h.b)), "\n\n")
	if s != "" {
		s = "\n" + s
	}
	return s
}
