package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/hub"
	"github.com/godflash/godflash/internal/resolve"
	"github.com/godflash/godflash/mlx"
)

const question = "Write a Go function that returns the n-th Fibonacci number, and explain it."

// text generates greedily with the drafter and without and compares the ids.
func text(ctx context.Context, lib *mlx.Library, client *hub.Client, o *options, r *report) {
	found, err := resolve.Find(ctx, o.model, &resolve.Options{Hub: client, Draft: o.draft})
	if err != nil {
		fix := "name a model's folder, or one that is listed above"
		if errors.Is(err, hub.ErrNotCached) {
			fix = "the line above ends with the command that downloads it"
		}
		r.add("text", problem, err.Error(), fix)
		return
	}
	plain := found.Draft.Dir == ""
	engine, err := dflash.Open(ctx, found.Target.Dir, &dflash.Options{Draft: found.Draft.Dir, NoDraft: plain, Library: lib})
	if err != nil {
		fix := "see what the line above names; a drafter that does not fit can be replaced with -draft"
		if plain {
			fix = "see what the line above names"
		}
		r.add("text", problem, err.Error(), fix)
		return
	}
	defer engine.Close()
	if plain {
		alone(ctx, engine, found.Why, o.tokens, r)
		return
	}
	// A short run of each kind first: neither shall pay for what happens once.
	var runs []generation
	for _, g := range []struct {
		tokens int
		plain  bool
	}{{engine.Info().BlockSize + 1, false}, {2, true}, {o.tokens, false}, {o.tokens, true}} {
		run, err := generate(ctx, engine, g.tokens, g.plain)
		if err != nil {
			r.add("text", problem, err.Error(), "report this with the model's name")
			return
		}
		runs = append(runs, run)
	}
	compare(r, lib.Device(), runs[2], runs[3])
}

// alone generates with a model that has no drafter.
func alone(ctx context.Context, engine *dflash.Engine, why string, tokens int, r *report) {
	var g generation
	for _, n := range []int{2, tokens} { // the first pays for what happens once
		var err error
		if g, err = generate(ctx, engine, n, true); err != nil {
			r.add("text", problem, err.Error(), "report this with the model's name")
			return
		}
	}
	r.add("text", note, fmt.Sprintf("%d tokens, %.1f a second; nothing to compare them with: %s", len(g.ids), g.stats.TokensPerSecond(), why), "")
}

// generation is one generation.
type generation struct {
	ids   []int
	stats dflash.Stats
}

func generate(ctx context.Context, engine *dflash.Engine, tokens int, plain bool) (generation, error) {
	session, err := engine.NewSession()
	if err != nil {
		return generation{}, err
	}
	defer session.Close()
	request := dflash.Request{Prompt: question, MaxTokens: tokens, NoDraft: plain, IgnoreEOS: true}
	if engine.Template() == nil { // a base model has no turns
		request.Prompt, request.Text = "", question
	}
	var ids []int
	for token, err := range session.Generate(ctx, request) {
		if err != nil {
			return generation{}, err
		}
		ids = append(ids, token.ID)
	}
	return generation{ids, session.Stats()}, nil
}

func compare(r *report, device mlx.DeviceType, drafted, plain generation) {
	same := 0
	for same < min(len(drafted.ids), len(plain.ids)) && drafted.ids[same] == plain.ids[same] {
		same++
	}
	switch {
	case same == len(plain.ids) && len(plain.ids) == len(drafted.ids):
		r.add("text", good, fmt.Sprintf("%d tokens with the drafter and without are the same", same), "")
	case device == mlx.DeviceCPU:
		r.add("text", problem, fmt.Sprintf("with the drafter token %d differs, which cannot be on the CPU", same+1), "report this with the model's name; decode without the drafter until then")
	default:
		r.add("text", note, fmt.Sprintf("%d tokens are the same, then they differ: a GPU adds in another order for a block of rows than for one, which decides between tokens that are nearly equally likely", same), "")
	}
	fast, slow := drafted.stats.TokensPerSecond(), plain.stats.TokensPerSecond()
	detail := fmt.Sprintf("%.1f tokens/s with the drafter (%.2f tokens per cycle), %.1f without", fast, drafted.stats.TokensPerCycle(), slow)
	if drafted.stats.DraftOff != "" {
		detail += "; drafting: " + drafted.stats.DraftOff
	}
	if fast < slow {
		r.add("speed", note, detail+": for this text the drafter does not pay", "")
		return
	}
	r.add("speed", good, detail, "")
}
