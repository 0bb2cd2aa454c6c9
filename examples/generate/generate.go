package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/examples/internal/bars"
	"github.com/godflash/godflash/qwen/chat"
)

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o, err := parse(ctx, args, stdin, stderr)
	if err == nil {
		err = generate(ctx, o, stdout, stderr)
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, syscall.EPIPE): // nobody reads any more
		return 141
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		fmt.Fprintln(stderr, "generate: interrupted")
		return 130
	case errors.Is(err, chat.ErrNoTemplate): // the model's lack, not a wrong flag
	case errors.Is(err, errUsage), errors.Is(err, dflash.ErrRequest), errors.Is(err, dflash.ErrEmptyPrompt):
		fmt.Fprintf(stderr, "generate: %v\nRun it with -h for its flags.\n", err)
		return 2
	}
	if errors.Is(err, dflash.ErrMemory) {
		err = fmt.Errorf("%w (-ignore-memory loads it all the same)", err)
	}
	if errors.Is(err, chat.ErrNoTemplate) {
		err = errors.New("the model has no chat template: give the prompt with -raw, or as -prompt-ids")
	}
	fmt.Fprintf(stderr, "generate: %v\n", err)
	return 1
}

// reply is a generation, complete or broken off.
type reply struct {
	ids    []int
	text   string
	tokens []dflash.Token // of a request with log probabilities
	stats  dflash.Stats
}

// generate opens the model, runs the request and reports.
func generate(ctx context.Context, o *options, stdout, stderr io.Writer) (err error) {
	downloads := bars.New(stderr)
	engine, err := dflash.Open(ctx, o.model, &dflash.Options{
		Draft: o.draft, NoDraft: o.noDraft, BlockSize: o.block,
		Download: o.download, IgnoreMemory: o.ignoreMemory, Hub: &dflash.HubOptions{Progress: downloads.Progress},
	})
	downloads.Close()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	session, err := engine.NewSession()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()

	if o.compare {
		o.request.NoCache = true // each of the two runs the prompt itself
		if err := warmUp(ctx, engine, session, o.request, stderr); err != nil {
			return err
		}
	}
	text := stdout
	if o.json {
		text = io.Discard
	}
	drafted, err := stream(ctx, session, o.request, text)
	if !o.json && drafted.text != "" {
		fmt.Fprintln(stderr) // the text need not end in a line end, and standard output carries nothing else
	}
	reportStats(stderr, drafted.stats)
	if err != nil {
		return err
	}
	if o.json {
		if err := writeJSON(stdout, drafted, engine.Tokenizer()); err != nil {
			return err
		}
	}
	if !o.compare {
		return nil
	}
	o.request.NoDraft, o.request.Sampling.Seed = true, drafted.stats.Seed
	plain, err := stream(ctx, session, o.request, io.Discard)
	reportStats(stderr, plain.stats)
	if err != nil {
		return err
	}
	return reportComparison(stderr, engine.Info().Device, drafted, plain)
}

// stream runs one request and writes its text to w, piece by piece.
func stream(ctx context.Context, session *dflash.Session, r dflash.Request, w io.Writer) (reply, error) {
	var ids []int
	var tokens []dflash.Token
	var text strings.Builder
	var failure error
	for token, err := range session.Generate(ctx, r) {
		if err == nil {
			ids = append(ids, token.ID)
			if r.LogProbs {
				tokens = append(tokens, token)
			}
			text.WriteString(token.Text)
			_, err = io.WriteString(w, token.Text)
		}
		if err != nil {
			failure = err
			break
		}
	}
	return reply{ids, text.String(), tokens, session.Stats()}, failure
}

// warmUp runs a short generation both ways, so that neither of the two that
// are compared pays for what happens once per process.
func warmUp(ctx context.Context, engine *dflash.Engine, session *dflash.Session, r dflash.Request, stderr io.Writer) error {
	info := engine.Info()
	if info.DraftOff != "" {
		return fmt.Errorf("-compare needs a drafter: %s", info.DraftOff)
	}
	fmt.Fprintln(stderr, "generate: warming up, for a fair comparison")
	r.MaxTokens = info.BlockSize + 1
	for _, r.NoDraft = range []bool{false, true} {
		if _, err := stream(ctx, session, r, io.Discard); err != nil {
			return err
		}
	}
	return nil
}
