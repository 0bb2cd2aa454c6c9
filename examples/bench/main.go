// Command bench measures a model with its DFlash drafter against plain decoding
// of the same prompts by the same library, in one run.
//
//	go run ./examples/bench                              the demo pair's 12 prompts
//	go run ./examples/bench -model DIR                   code, chat, maths and a long prompt
//	go run ./examples/bench -model DIR -prompt-file q.txt -markdown -plot rates.svg
//
// Each prompt runs plain and drafted in turn, -repeats times, who begins
// alternating, after rounds that do not count. The rate is that from the first
// token to the last; the prompt's pass is told apart. Greedy texts of both must
// be equal: the SHA-256 of their ids says whether they are, and where they are
// not, the gap between the two scores of the first difference says why.
//
// With -peer PYTHON the plain decoding of mlx-lm takes its turn in the same
// rounds, with the same ids.
//
// With -synthetic NAME a pair of that shape is made with random weights on the
// device, and the number of drafts taken is replayed from a pattern, so that the
// cost of steps and cycles can be told without the checkpoints:
//
//	go run ./examples/bench -synthetic qwen3-8b -bits 4 -accept 6.5 -context 1024,16384
//
// Ctrl-C then writes the report of the context lengths that are done.
//
// Standard output carries the report: a table, or one of -json, -markdown and
// -benchstat. What happens meanwhile is on standard error.
//
// The exit status is 0 when all is measured, 1 on failure, and also where the
// texts differ on a CPU, where that is a bug, 2 for wrong usage and 130 after
// Ctrl-C. (go run has its own status, 1, for all of these.)
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

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if err == nil {
		err = measure(ctx, o, stdout, stderr)
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		fmt.Fprintln(stderr, "bench: interrupted")
		return 130
	case errors.Is(err, errUsage), errors.Is(err, dflash.ErrRequest):
		fmt.Fprintf(stderr, "bench: %v\nRun it with -h for its flags.\n", err)
		return 2
	}
	fmt.Fprintf(stderr, "bench: %v\n", err)
	return 1
}

// measure runs what the command line asks for and writes the report.
func measure(ctx context.Context, o *options, stdout, stderr io.Writer) error {
	var r reporter
	var wrong error // beside what was measured
	var err error
	switch {
	case o.read != "":
		r, err = readReport(o.read)
	case o.shape != "":
		var s *shapeReport
		s, err = shapes(ctx, o, stderr)
		if s != nil && len(s.Contexts) > 0 { // after Ctrl-C, the lengths that are done
			r, wrong, err = s, err, nil
		}
	default:
		var p *report
		if p, err = pairs(ctx, o, stderr); err == nil {
			r, wrong = p, p.wrong()
		}
	}
	if err != nil {
		return err
	}
	if err := write(stdout, o.form, r); err != nil {
		return err
	}
	if o.plot != "" {
		if err := r.plot(o.plot); err != nil {
			return err
		}
	}
	return wrong
}
