// Command embed shows how a program with a window uses the library: the model
// opens in the background, text arrives as events, the user may stop at any time,
// and closing leaves nothing behind. The window is replaced by lines on standard
// output, one per event.
//
//	go run ./examples/embed -model DIR -prompt "Why is the sky blue?"
//	go run ./examples/embed -model DIR -prompt "…" -stop-after 10
//	go run ./examples/embed -model DIR -prompt "…" -isolate          the engine in a process of its own
//
// app.go is what a program would take over, with child.go if the engine's end must
// not be its own; main.go stands for its window.
// docs/embedding.md says how a bundle carries the libraries, and bundle.sh makes
// one on Linux.
//
// The exit status is 0 when the text is complete or was stopped, 1 on failure, 2
// for wrong usage and 130 after Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/godflash/godflash/dflash"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

type options struct {
	model     string
	stopAfter int
	isolate   bool
	request   dflash.Request
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("embed", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are printed by run
	flags.StringVar(&o.model, "model", "", "`folder` of the model, or of a pair: target and draft, or owner/name[@revision] on the hub")
	flags.StringVar(&o.request.Prompt, "prompt", "", "the user's turn, as `text`")
	flags.IntVar(&o.request.MaxTokens, "max-tokens", 256, "`number` of tokens to generate at most, 0 for the model's whole context")
	flags.IntVar(&o.stopAfter, "stop-after", 0, "press the stop button after this `number` of pieces of text, 0 never")
	flags.BoolVar(&o.isolate, "isolate", false, "run the engine in a process of its own, whose death this one survives")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(stderr, "Uses a model as a program with a window does.\nusage: embed -model DIR -prompt TEXT [flags]")
		flags.SetOutput(stderr)
		flags.PrintDefaults()
		return nil, err
	case err != nil:
		return nil, err
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.model == "" || o.request.Prompt == "":
		return nil, errors.New("-model and -prompt are needed")
	case o.request.MaxTokens < 0 || o.stopAfter < 0:
		return nil, errors.New("-max-tokens and -stop-after are 0 or more")
	}
	return o, nil
}

// run stands for the window: it shows events until the text has ended.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "embed: %v\nRun it with -h for its flags.\n", err)
		return 2
	}
	if socket := os.Getenv(childSocket); socket != "" {
		return childMain(socket, o.model)
	}
	var app *App
	if o.isolate {
		app = StartIsolated(o.model)
	} else {
		app = Start(o.model, nil)
	}
	defer app.Close()
	stop := context.AfterFunc(ctx, func() { app.Close() }) // the window was closed
	defer stop()
	app.Ask(o.request) // before the model is there: it waits

	pieces := 0
	for event := range app.Events() {
		switch e := event.(type) {
		case Loading:
			fmt.Fprintf(stdout, "loading the %s: %d of %d bytes\n", e.Part, e.Done, e.Total)
		case Ready:
			fmt.Fprintf(stdout, "ready: %s, drafts of up to %d tokens, MLX in %s\n", e.Info.ModelType, max(0, e.Info.BlockSize-1), e.Library)
		case Text:
			fmt.Fprintf(stdout, "text: %q\n", e.Piece)
			if pieces++; pieces == o.stopAfter {
				app.Stop()
			}
		case Finished:
			why := "complete"
			if e.Stopped {
				why = "stopped"
			}
			fmt.Fprintf(stdout, "%s after %d tokens\n", why, e.Stats.CompletionTokens)
			return 0
		case Failed:
			fmt.Fprintf(stderr, "embed: %v\n", e.Err)
			return 1
		}
	}
	fmt.Fprintln(stderr, "embed: interrupted")
	return 130
}
