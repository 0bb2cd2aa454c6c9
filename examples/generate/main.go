// Command generate writes text with a Qwen model and its DFlash drafter.
//
//	go run ./examples/generate                                     the demo pair
//	go run ./examples/generate -model DIR -prompt "Why is the sky blue?"
//	go run ./examples/generate -model DIR -prompt-file - < question.txt
//	go run ./examples/generate -compare                            against plain decoding
//
// Standard output carries the generated text as it is made, byte for byte, or
// with -json one object when it is complete. Everything else is on standard
// error, the line of statistics too.
//
// The exit status is 0 when the text is complete, 1 on failure, 2 for wrong
// usage and 130 after Ctrl-C, when what was generated so far has been written.
// A reader of standard output that goes away ends the program with 141, as it
// ends other programs in a pipe. (go run has its own status, 1, for all of these.)
//
// The library's use is in generate.go; flags.go turns the command line into
// what the library is asked for, and report.go writes the results.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// A broken pipe is an error of the write, not the end of the process.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
