package dflash_test

import (
	"bytes"
	"context"
	"fmt"
	"log"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/mlx"
)

// The tiny pair that comes with the repository stands for a model's folder.
const model = "../testdata/tiny-qwen3.5"

const prompt = "Package time. Write this Go function:\n" +
	"func loadTzinfoFromDirOrZip(dir, name string) ([]byte, error)\n" +
	"loadTzinfoFromDirOrZip returns the contents of the file with the given name in dir. " +
	"dir can either be an uncompressed zip file, or a directory."

func Example() {
	ctx := context.Background()
	engine, err := dflash.Open(ctx, model, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	session, err := engine.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()

	thinking := false
	for token, err := range session.Generate(ctx, dflash.Request{Prompt: prompt, Thinking: &thinking}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.Text)
	}
	stats := session.Stats()
	fmt.Printf("\n%s after %d tokens\n", stats.Finish, stats.CompletionTokens)
	// Output:
	// func loadTzinfoFromDirOrZip(dir, name string) ([]byte, error) {
	// 	if len(dir) > 4 && dir[len(dir)-4:] == ".zip" {
	// 		return loadTzinfoFromZip(dir, name)
	// 	}
	// 	if dir != "" {
	// 		name = dir + "/" + name
	// 	}
	// 	return readFile(name)
	// }
	// stop after 80 tokens
}

// A drafter is not needed: the same engine decodes one token at a time, and
// the ids are the same.
func ExampleRequest_noDraft() {
	ctx := context.Background()
	engine, err := dflash.Open(ctx, model, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	session, err := engine.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()

	for _, noDraft := range []bool{false, true} {
		for token, err := range session.Generate(ctx, dflash.Request{Text: "package main\n\nimport", NoDraft: noDraft, MaxTokens: 12}) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Print(token.ID, " ")
		}
		fmt.Printf("%q\n", session.Stats().DraftOff)
	}
	// Output:
	// 79 850 79 850 877 79 850 375 72 451 289 299 ""
	// 79 850 79 850 877 79 850 375 72 451 289 299 "switched off"
}

// A sequence driven by hand: the drafts may come from anywhere.
func ExampleDecoder() {
	ctx := context.Background()
	engine, err := dflash.Open(ctx, model, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	decoder, err := engine.NewDecoder()
	if err != nil {
		log.Fatal(err)
	}
	defer decoder.Close()

	anchor, err := decoder.Prefill(ctx, engine.Tokenizer().Encode("func loadTzinfoFromDirOrZip(dir, name string)"))
	if err != nil {
		log.Fatal(err)
	}
	tokens := []int{anchor}
	for len(tokens) < 20 {
		drafts, err := decoder.Propose(ctx, 15)
		if err != nil {
			log.Fatal(err)
		}
		verdict, err := decoder.Verify(ctx, drafts)
		if err != nil {
			log.Fatal(err)
		}
		if err := decoder.Commit(ctx, verdict.Accepted+1); err != nil {
			log.Fatal(err)
		}
		tokens = append(tokens, verdict.Choices[:verdict.Accepted+1]...)
	}
	text, err := engine.Tokenizer().Decode(tokens)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
	// Output:
	// ([]byte, error) {
	// 		return loadTzinfoFromDirOrZip(dir, name
}

// The drafter runs without the decode cycle, too: hidden states of the target
// in, hidden states of the mask rows out.
func ExampleDrafter() {
	ctx := context.Background()
	engine, err := dflash.Open(ctx, model, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	target, drafter := engine.Target(), engine.Drafter()
	cache, context := target.NewCache(), drafter.NewContext()
	defer cache.Close()
	defer context.Close()

	err = target.Library().Do(ctx, func(s *mlx.Scope) error {
		ids := mlx.FromSlice(s, []int32{631, 3409, 13})
		_, taps := target.Forward(s, ids, cache, drafter.Config().TargetLayerIDs)
		if err := cache.Commit(s, 3); err != nil {
			return err
		}
		if err := drafter.Append(s, context, taps, 3); err != nil {
			return err
		}
		mask := int32(drafter.Config().MaskTokenID)
		block := target.Embed(s, mlx.FromSlice(s, []int32{684, mask, mask, mask}))
		hidden := drafter.Propose(s, context, s.ExpandDims(block, 0))
		fmt.Println(hidden.Shape(), target.Unembed(s, hidden).Shape(), context.Len())
		return s.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [1 3 256] [1 3 4096] 3
}

// A text goes on in two ways, and neither computes again what they share.
func ExampleSession_Branch() {
	ctx := context.Background()
	engine, err := dflash.Open(ctx, model, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	session, err := engine.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()

	if err := session.Append(ctx, engine.Tokenizer().Encode("package main\n\nimport (\n\t\"fmt\"\n")); err != nil {
		log.Fatal(err)
	}
	other, err := session.Branch(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer other.Close()
	for i, s := range []*dflash.Session{session, other} {
		text := []string{")\n\nfunc", "\t\"os\"\n"}[i]
		for _, err := range s.Generate(ctx, dflash.Request{Text: text, Continue: true, MaxTokens: 4, IgnoreEOS: true}) {
			if err != nil {
				log.Fatal(err)
			}
		}
		stats := s.Stats()
		fmt.Println(stats.PromptTokens, "tokens, known:", stats.CachedTokens)
	}
	// Output:
	// 14 tokens, known: 11
	// 16 tokens, known: 11
}

// A session outlives its process in a file.
func ExampleEngine_Restore() {
	ctx := context.Background()
	engine, err := dflash.Open(ctx, model, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	session, err := engine.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	for _, err := range session.Generate(ctx, dflash.Request{Text: "package main\n\nimport", MaxTokens: 6}) {
		if err != nil {
			log.Fatal(err)
		}
	}
	var file bytes.Buffer
	if err := session.Save(ctx, &file); err != nil {
		log.Fatal(err)
	}

	restored, err := engine.Restore(ctx, &file)
	if err != nil {
		log.Fatal(err)
	}
	defer restored.Close()
	for token, err := range restored.Generate(ctx, dflash.Request{Continue: true, MaxTokens: 6}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(token.ID, " ")
	}
	// Output:
	// 850 375 72 451 289 299
}
