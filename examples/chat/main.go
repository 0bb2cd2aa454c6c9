// Command chat talks with a Qwen model in a terminal.
//
//	go run ./examples/chat -model DIR
//	echo "Why is the sky blue?" | go run ./examples/chat -model DIR
//
// On a terminal there is a line editor with a history; a line that ends in \ goes
// on in the next. Ctrl-C stops the answer and keeps the conversation, Ctrl-D at an
// empty line ends the program, /help lists the commands. Off a terminal every line
// of standard input is a question, and standard output carries the answers alone.
//
// The exit status is 0 at the end of the input, 1 on failure, 2 for wrong usage,
// 130 after Ctrl-C off a terminal and 141 when nobody reads its output any more.
//
// The library's use is in conversation.go; commands.go has the commands, lines.go
// the input, screen.go the output and saved.go the file format.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/godflash/godflash/dflash"
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // a broken pipe is an error of the write
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	os.Exit(run(context.Background(), os.Args[1:], console{in: os.Stdin, out: os.Stdout, err: os.Stderr, interrupts: interrupts}))
}

// console is what a run is connected to.
type console struct {
	in         io.Reader
	out, err   io.Writer
	interrupts <-chan os.Signal
}

var errUsage = errors.New("wrong usage")

// options are what the command line asks for.
type options struct {
	model, draft, system string
	noDraft, download    bool
	ignoreMemory         bool
	request              dflash.Request // without a prompt
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("chat", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are printed by run
	flags.StringVar(&o.model, "model", "", "`folder` of the model, or of a pair: target and draft, or owner/name[@revision] on the hub")
	flags.StringVar(&o.draft, "draft", "", "`folder` of the drafter, or its owner/name on the hub (default: draft inside the model's folder, else the one known for the model's name)")
	flags.BoolVar(&o.download, "download", false, "fetch the model and its drafter from the hub where they are not cached")
	flags.BoolVar(&o.ignoreMemory, "ignore-memory", false, "load a model that needs more memory than there is: the machine then swaps, or ends the program")
	flags.BoolVar(&o.noDraft, "no-draft", false, "load no drafter")
	flags.StringVar(&o.system, "system", "", "the system turn, as `text`")
	think := flags.String("think", "", "reasoning `on` or off (default: as the chat template has it)")
	flags.IntVar(&o.request.MaxTokens, "max-tokens", 0, "`number` of tokens of an answer at most, 0 for what the model's context holds")
	sampling := &o.request.Sampling
	flags.Float64Var(&sampling.Temperature, "temperature", 0, "draw tokens at this `temperature`, 0 takes the most probable one")
	flags.IntVar(&sampling.TopK, "top-k", 0, "draw from the `number` of most probable tokens, 0 from all")
	flags.Float64Var(&sampling.TopP, "top-p", 0, "draw from the most probable tokens that make up this `share`, 0 from all")
	flags.Float64Var(&sampling.MinP, "min-p", 0, "draw from tokens that are this `share` as probable as the first, 0 from all")
	flags.Uint64Var(&sampling.Seed, "seed", 0, "`number` that the draws depend on, 0 for a new one each time")
	err := flags.Parse(args)
	needless := "" // a flag of sampling, without sampling
	flags.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "top-k", "top-p", "min-p", "seed":
			needless = f.Name
		}
	})
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(stderr, "Talks with a Qwen model in a terminal.\nusage: chat -model DIR [flags]")
		flags.SetOutput(stderr)
		flags.PrintDefaults()
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	case flags.NArg() > 0:
		return nil, fmt.Errorf("%w: unexpected argument %q; questions go to standard input", errUsage, flags.Arg(0))
	case o.model == "":
		return nil, fmt.Errorf("%w: name a model with -model", errUsage)
	case o.noDraft && o.draft != "":
		return nil, fmt.Errorf("%w: -no-draft and -draft exclude each other", errUsage)
	case o.request.MaxTokens < 0:
		return nil, fmt.Errorf("%w: -max-tokens is %d", errUsage, o.request.MaxTokens)
	case needless != "" && sampling.Greedy():
		return nil, fmt.Errorf("%w: -%s needs -temperature, of 0.0001 at least: without one the most probable token is taken", errUsage, needless)
	}
	if o.request.Thinking, err = parseSwitch(*think); err != nil {
		return nil, fmt.Errorf("%w: -think: %w", errUsage, err)
	}
	return o, nil
}

// parseSwitch reads on, off, or nothing and auto for a default.
func parseSwitch(s string) (*bool, error) {
	on := s == "on"
	switch s {
	case "on", "off":
		return &on, nil
	case "", "auto":
		return nil, nil
	}
	return nil, fmt.Errorf("%q is neither on, off nor auto", s)
}

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, c console) int {
	o, err := parse(args, c.err)
	if err == nil {
		err = talk(ctx, o, c)
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, syscall.EPIPE): // nobody reads any more
		return 141
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(c.err, "chat: interrupted")
		return 130
	case errors.Is(err, errUsage):
		fmt.Fprintf(c.err, "chat: %v\nRun it with -h for its flags.\n", err)
		return 2
	}
	fmt.Fprintf(c.err, "chat: %v\n", err)
	return 1
}
