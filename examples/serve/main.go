// Command serve answers OpenAI's and Anthropic's APIs with a Qwen model and its
// DFlash drafter.
//
//	go run ./examples/serve                       the demo pair of a clone, on 127.0.0.1:8080
//	go run ./examples/serve -model Qwen/Qwen3-4B -download
//	curl -s localhost:8080/v1/chat/completions -H 'Content-Type: application/json' \
//	  -d '{"messages": [{"role": "user", "content": "Why is the sky blue?"}]}'
//
// The address is printed on standard output when the server listens; until the
// model is loaded every answer is 503. Logs go to standard error. SIGTERM and
// Ctrl-C let the requests under way end, for as long as -drain says; a second
// signal ends the process at once.
//
// The exit status is 0 after a shutdown, 1 on failure and 2 for wrong usage.
//
// The library's use is in serve.go and backend.go, which loads the model, and
// frees and loads it again with -idle-unload; flags.go reads the command line,
// metrics.go counts, page.go is what a browser sees at /.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
