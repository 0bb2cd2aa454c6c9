// Command doctor says on one screen whether this machine can run models with
// their drafters, and what to do about whatever is in the way.
//
//	go run ./examples/doctor                          library, device, memory, cached models and their drafters
//	go run ./examples/doctor -model Qwen/Qwen3.5-4B   the same, and whether drafting changes that model's text
//	go run ./examples/doctor -json                    for programs
//
// A model is a folder, owner/name[@revision] as on the hub, or the last part of
// such a name; nothing is downloaded.
//
// The exit status is 0 when no check found a problem, 1 when one did, 2 for
// wrong usage and 130 after Ctrl-C.
//
// The checks are in doctor.go (the machine), cached.go (models and pairs) and
// parity.go (one model's text, with a drafter and without).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// options are what the command line asks for.
type options struct {
	model, draft string
	tokens       int
	json         bool
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("doctor", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are printed by run
	flags.StringVar(&o.model, "model", "", "`name` of a model to generate with: a folder, or owner/name of a cached one")
	flags.StringVar(&o.draft, "draft", "", "`name` of its drafter (default: looked for)")
	flags.IntVar(&o.tokens, "tokens", 128, "`number` of tokens to generate with -model")
	flags.BoolVar(&o.json, "json", false, "print one JSON object")
	err := flags.Parse(args)
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(stderr, "Says whether this machine can run models, and what is in the way.\nusage: doctor [flags]")
		flags.SetOutput(stderr)
		flags.PrintDefaults()
		return nil, err
	case err != nil:
		return nil, err
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.tokens < 1:
		return nil, fmt.Errorf("-tokens is %d; at least one is needed", o.tokens)
	case o.model == "" && given["draft"]:
		return nil, errors.New("-draft needs -model")
	case o.model == "" && given["tokens"]:
		return nil, errors.New("-tokens needs -model")
	}
	return o, nil
}

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "doctor: %v\nRun it with -h for its flags.\n", err)
		return 2
	}
	r := &report{}
	if !o.json {
		r.to = stdout // each line as soon as it is known: the last ones take a while
	}
	examine(ctx, o, r)
	if ctx.Err() != nil {
		fmt.Fprintln(stderr, "doctor: interrupted")
		return 130
	}
	if o.json {
		err = json.NewEncoder(stdout).Encode(map[string]any{"ok": r.ok(), "checks": r.checks})
	} else {
		err = r.summary()
	}
	if err != nil {
		fmt.Fprintf(stderr, "doctor: %v\n", err)
		return 1
	}
	if !r.ok() {
		return 1
	}
	return 0
}

// How a check ended.
const (
	good    = "ok"
	note    = "note"    // worth knowing, nothing is broken
	problem = "problem" // with a fix
)

// check is one line of the report.
type check struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

type report struct {
	to     io.Writer // nil: only collect
	checks []check
	failed error // of writing
}

func (r *report) add(name, status, detail, fix string) {
	c := check{name, status, detail, fix}
	r.checks = append(r.checks, c)
	if r.to == nil || r.failed != nil {
		return
	}
	indent := strings.NewReplacer("\n", "\n"+strings.Repeat(" ", 22))
	_, r.failed = fmt.Fprintf(r.to, "%-8s %-12s %s\n", c.Status, c.Name, indent.Replace(c.Detail))
	if c.Fix != "" && r.failed == nil {
		_, r.failed = fmt.Fprintf(r.to, "%21s %s\n", "fix:", indent.Replace(c.Fix))
	}
}

func (r *report) problems() (n int) {
	for _, c := range r.checks {
		if c.Status == problem {
			n++
		}
	}
	return n
}

func (r *report) ok() bool { return r.problems() == 0 }

func (r *report) summary() error {
	text := "No problem found."
	if n := r.problems(); n == 1 {
		text = "1 problem."
	} else if n > 1 {
		text = fmt.Sprintf("%d problems.", n)
	}
	if r.failed == nil {
		_, r.failed = fmt.Fprintln(r.to, text)
	}
	return r.failed
}
