package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"
)

//go:embed peer/mlxlm.py
var peerScript string

// peerModel says what the peer loads: a folder, or random weights for a
// configuration.
type peerModel struct {
	Dir     string         `json:"dir,omitempty"`
	Config  map[string]any `json:"config,omitempty"`
	Bits    int            `json:"bits,omitempty"`
	Float32 bool           `json:"float32,omitempty"`
}

// peer is a process of mlx-lm that holds the model and answers requests, one
// line of JSON each.
type peer struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	out      *bufio.Reader
	versions string
}

func startPeer(ctx context.Context, python string, m peerModel, stderr io.Writer) (*peer, error) {
	p := &peer{cmd: exec.CommandContext(ctx, python, "-c", peerScript)}
	p.cmd.Stderr = stderr
	p.cmd.WaitDelay = 5 * time.Second
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, usagef("-peer: %w", err)
	}
	var answer struct{ Versions string }
	if err := p.ask(ctx, m, &answer); err != nil {
		p.in.Close()
		p.cmd.Wait()
		return nil, fmt.Errorf("%s with mlx-lm (pip install mlx-lm, on Linux with mlx[cpu] or mlx[cuda13]): %w", python, err)
	}
	p.versions = answer.Versions
	return p, nil
}

// ask sends one request and waits for its answer.
func (p *peer) ask(ctx context.Context, request, answer any) error {
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil && ctx.Err() == nil {
		return fmt.Errorf("it ended: %w", err)
	}
	reply, err := p.out.ReadBytes('\n')
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("it ended without an answer; what it said is above: %w", err)
	}
	var failure struct{ Error string }
	if err := errors.Join(json.Unmarshal(reply, &failure), json.Unmarshal(reply, answer)); err != nil {
		return fmt.Errorf("its answer %.100q: %w", reply, err)
	}
	if failure.Error != "" {
		return errors.New(failure.Error)
	}
	return nil
}

// generate decodes a prompt greedily, without drafts.
func (p *peer) generate(ctx context.Context, ids []int, maxTokens int, eos []int) (sample, error) {
	var answer struct {
		IDs     []int   `json:"ids"`
		Prefill float64 `json:"prefill_ms"`
		Decode  float64 `json:"decode_ms"`
		Peak    int64   `json:"peak_bytes"`
	}
	err := p.ask(ctx, map[string]any{"ids": ids, "max_tokens": maxTokens, "eos": eos}, &answer)
	return sample{ids: answer.IDs, prefill: answer.Prefill, decode: answer.Decode, peak: answer.Peak}, err
}

// close ends the process.
func (p *peer) close() error {
	p.in.Close()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("peer: %w", err)
	}
	return nil
}
