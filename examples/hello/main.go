// Command hello is the shortest program around the library: it answers one
// question.
//
//	go run ./examples/hello MODEL-FOLDER QUESTION
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/godflash/godflash/dflash"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: hello MODEL-FOLDER QUESTION")
	}
	if err := answer(context.Background(), os.Stdout, os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func answer(ctx context.Context, w io.Writer, dir, question string) error {
	engine, err := dflash.Open(ctx, dir, nil)
	if err != nil {
		return err
	}
	defer engine.Close()
	session, err := engine.NewSession()
	if err != nil {
		return err
	}
	defer session.Close()

	for token, err := range session.Generate(ctx, dflash.Request{Prompt: question, MaxTokens: 500}) {
		if err != nil {
			return err
		}
		fmt.Fprint(w, token.Text)
	}
	stats := session.Stats()
	fmt.Fprintf(w, "\n%.1f tokens per cycle, %.0f tok/s\n", stats.TokensPerCycle(), stats.TokensPerSecond())
	return nil
}
