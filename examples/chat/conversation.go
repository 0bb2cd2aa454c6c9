package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/examples/internal/bars"
	"github.com/godflash/godflash/qwen/chat"
)

// conversation is the turns so far and how the next is answered. The session
// holds the state of the turns, so that an answer costs its own tokens and those
// of the question.
type conversation struct {
	engine  *dflash.Engine
	session *dflash.Session
	request dflash.Request
	system  string
	turns   []chat.Message
	last    dflash.Stats
}

// talk opens the model and answers until the input ends.
func talk(ctx context.Context, o *options, c console) (err error) {
	engine, err := open(ctx, o, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	if engine.Template() == nil {
		return fmt.Errorf("%s: the model has no chat template, so it cannot hold a conversation", engine.Info().Dir)
	}
	try := o.request
	try.Prompt = "?"
	if _, err := engine.PromptTokens(try); errors.Is(err, dflash.ErrRequest) { // a flag out of range, before anybody has typed a question
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	session, err := engine.NewSession()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()

	in, terminal := newLines(c)
	defer in.close()
	out := newScreen(c.out, terminal)
	talk := &conversation{engine: engine, session: session, request: o.request, system: o.system}
	if terminal {
		fmt.Fprintf(c.err, "%s\nCtrl-C stops an answer, Ctrl-D ends, /help lists the commands.\n", describe(engine.Info()))
	}
	for {
		line, err := in.next("> ")
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errInterrupted) && terminal:
			fmt.Fprintln(c.err, "Ctrl-D or /quit ends.")
			continue
		case err != nil:
			return err
		case strings.TrimSpace(line) == "":
			continue
		}
		if strings.HasPrefix(line, "/") {
			quit, err := talk.command(line, c.err)
			if err != nil {
				fmt.Fprintf(c.err, "chat: %v\n", err)
			}
			if quit {
				return nil
			}
			continue
		}
		stopped, cut, err := talk.answer(ctx, line, out, c.interrupts)
		if errEnd := out.end(); errEnd != nil {
			return errEnd
		}
		switch {
		case stopped && !terminal:
			return errInterrupted
		case stopped:
			fmt.Fprintln(c.err, "(stopped)")
		case err != nil && !terminal:
			return err
		case err != nil:
			fmt.Fprintf(c.err, "chat: %v\n", err)
		case cut:
			fmt.Fprintln(c.err, "(cut off: -max-tokens or the model's context does not hold more)")
		}
	}
}

func open(ctx context.Context, o *options, c console) (*dflash.Engine, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-c.interrupts:
			cancel(errInterrupted)
		case <-done:
		}
	}()
	downloads := bars.New(c.err)
	engine, err := dflash.Open(ctx, o.model, &dflash.Options{
		Draft: o.draft, NoDraft: o.noDraft, Download: o.download, IgnoreMemory: o.ignoreMemory, Hub: &dflash.HubOptions{Progress: downloads.Progress},
	})
	downloads.Close()
	if err != nil && context.Cause(ctx) != nil {
		return nil, context.Cause(ctx)
	}
	return engine, err
}

func describe(info dflash.Info) string {
	name := info.Repo
	if name == "" {
		name = info.Dir
	}
	if info.DraftOff != "" {
		return fmt.Sprintf("%s on the %s, without a drafter: %s.", name, info.Device, info.DraftOff)
	}
	return fmt.Sprintf("%s on the %s, with a drafter.", name, info.Device)
}

// answer asks the model and writes what it says. A stopped answer stays in the
// conversation as far as it went; a question that failed does not. cut says that
// the answer has no end because there was no room for more.
func (t *conversation) answer(ctx context.Context, question string, out *screen, interrupts <-chan os.Signal) (stopped, cut bool, err error) {
	r := t.request
	if t.system != "" {
		r.Messages = append(r.Messages, chat.Message{Role: chat.RoleSystem, Content: t.system})
	}
	turns := append(t.turns, chat.Message{Role: chat.RoleUser, Content: question})
	r.Messages = append(r.Messages, turns...)

	select {
	case <-interrupts: // one that came too late for the answer before
	default:
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		select {
		case <-interrupts:
			stopped = true // read after listening is closed
			cancel()
		case <-ctx.Done():
		}
	}()
	var reply chat.Reply
	for token, tokenErr := range t.session.Generate(ctx, r) {
		if tokenErr != nil {
			err = tokenErr
			break
		}
		reply.Add(token.Deltas...)
		cut = token.Finish == dflash.FinishLength
		for _, d := range token.Deltas {
			out.delta(d)
		}
		if out.err != nil {
			err = out.err
			break
		}
	}
	cancel()
	<-listening
	t.last = t.session.Stats()
	if err != nil && !stopped {
		return false, false, err
	}
	if t.last.CompletionTokens > 0 {
		t.turns = append(turns, reply.Message())
	}
	return stopped, cut, nil
}
