package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/godflash/godflash/dflash"
)

// pairs opens the model and measures every prompt.
func pairs(ctx context.Context, o *options, stderr io.Writer) (r *report, err error) {
	dir := o.model
	if dir == "" {
		if dir, err = demoPair(); err != nil {
			return nil, err
		}
	}
	engine, err := dflash.Open(ctx, dir, &dflash.Options{Draft: o.draft, DraftBits: o.draftBits})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	if why := engine.Info().DraftOff; why != "" {
		return nil, fmt.Errorf("there is no drafter to measure: %s", why)
	}
	r = &report{Settings: settings{Repeats: o.repeats, WarmUp: o.warmUp, MaxTokens: o.maxTokens, Temperature: o.temperature, BlockSize: o.block}}
	if o.temperature > 0 {
		r.Settings.Seed = o.seed
	}
	lib := engine.Target().Library()
	if r.Machine, err = describeMachine(ctx, lib); err != nil {
		return nil, err
	}
	if r.Model, err = describeModel(ctx, engine, o.hash); err != nil {
		return nil, err
	}
	prompts, err := collect(engine, o, dir)
	if err != nil {
		return nil, err
	}
	session, err := engine.NewSession()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, session.Close()) }()

	ways := []way{
		{"plain", func(ctx context.Context, p prompt) (sample, error) { return generate(ctx, session, o, p, true) }},
		{"drafted", func(ctx context.Context, p prompt) (sample, error) { return generate(ctx, session, o, p, false) }},
	}
	if o.peer != "" {
		peer, err := startPeer(ctx, o.peer, peerModel{Dir: engine.Info().Dir, Float32: r.Machine.Device == "cpu"}, stderr)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, peer.close()) }()
		r.Settings.Peer = peer.versions
		ways = append(ways, way{"peer", func(ctx context.Context, p prompt) (sample, error) {
			return peer.generate(ctx, p.ids, o.maxTokens, engine.Info().EOSTokenIDs)
		}})
	}
	rounds, err := interleave(ctx, ways, prompts, o, stderr)
	if err != nil {
		return nil, err
	}
	for i, p := range prompts {
		res := resultOf(p, rounds[i])
		if res.First != nil && res.First.Scored {
			if res.First.Gap, err = gap(ctx, engine.Target(), p.ids, res.Plain.ids, res.First); err != nil {
				return nil, err
			}
		}
		r.Prompts = append(r.Prompts, res)
	}
	r.Kinds = sumUp(r.Prompts)
	r.Machine.LoadAfter = loadAverage(ctx)
	return r, nil
}

// way is one way of decoding.
type way struct {
	name string
	run  func(ctx context.Context, p prompt) (sample, error)
}

// interleave runs the rounds. In each round a prompt runs in every way before
// the next one does, so that all ways see the same machine; who begins changes
// from round to round and from prompt to prompt. The result has, for each
// prompt, the samples of each way.
func interleave(ctx context.Context, ways []way, prompts []prompt, o *options, stderr io.Writer) ([][][]sample, error) {
	out := make([][][]sample, len(prompts))
	for i := range out {
		out[i] = make([][]sample, len(ways))
	}
	for round := -o.warmUp; round < o.repeats; round++ {
		if round < 0 {
			fmt.Fprintf(stderr, "bench: warming up, round %d of %d\n", round+o.warmUp+1, o.warmUp)
		} else {
			fmt.Fprintf(stderr, "bench: round %d of %d\n", round+1, o.repeats)
		}
		for i, p := range prompts {
			for turn := range ways {
				w := (turn + i + round + o.warmUp) % len(ways)
				s, err := ways[w].run(ctx, p)
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", p.name, ways[w].name, err)
				}
				if round >= 0 {
					out[i][w] = append(out[i][w], s)
				}
			}
		}
	}
	return out, nil
}

// generate runs one prompt in one way.
func generate(ctx context.Context, session *dflash.Session, o *options, p prompt, plain bool) (sample, error) {
	r := dflash.Request{IDs: p.ids, MaxTokens: o.maxTokens, NoDraft: plain, NoCache: true}
	if !plain {
		r.BlockSize = o.block
	}
	if o.temperature > 0 {
		r.Sampling = dflash.Sampling{Temperature: o.temperature, Seed: o.seed}
	}
	var ids []int
	for token, err := range session.Generate(ctx, r) {
		if err != nil {
			return sample{}, err
		}
		ids = append(ids, token.ID)
	}
	return sampleOf(ids, session.Stats()), nil
}

// resultOf sums up a prompt's rounds: plain, drafted and, where there is one,
// the peer's.
func resultOf(p prompt, rounds [][]sample) result {
	res := result{
		Name: p.name, Kind: p.kind, PromptTokens: len(p.ids), PromptSHA256: idsHash(p.ids),
		Plain: sideOf(rounds[0]), Drafted: sideOf(rounds[1]),
	}
	res.Speedup = spreadOf(ratios(res.Drafted.Rate.Values, res.Plain.Rate.Values))
	at := firstDifference(res.Plain.ids, res.Drafted.ids)
	res.Equal = at < 0 && res.Plain.Steady && res.Drafted.Steady
	if at >= 0 {
		id := func(ids []int) int {
			if at < len(ids) {
				return ids[at]
			}
			return -1
		}
		d := &difference{At: at, Plain: id(res.Plain.ids), Drafted: id(res.Drafted.ids)}
		d.Scored = d.Plain >= 0 && d.Drafted >= 0
		res.First = d
	}
	if len(rounds) > 2 {
		peer := sideOf(rounds[2])
		over := spreadOf(ratios(res.Plain.Rate.Values, peer.Rate.Values))
		res.Peer, res.OverPeer = &peer, &over
	}
	return res
}

// describeModel names the pair and its files.
func describeModel(ctx context.Context, e *dflash.Engine, hash bool) (model, error) {
	info := e.Info()
	m := model{
		Name: info.Repo, ModelType: info.ModelType, Quantization: info.Quantization,
		Target:   folder{Dir: info.Dir, Repo: info.Repo, Commit: info.Commit},
		Draft:    &folder{Dir: info.DraftDir, Repo: info.DraftRepo, Commit: info.DraftCommit},
		DraftWhy: info.DraftWhy, DraftBits: info.DraftBits, BlockSize: info.BlockSize,
	}
	if m.Name == "" {
		if m.Name = filepath.Base(info.Dir); m.Name == "target" {
			m.Name = filepath.Base(filepath.Dir(info.Dir))
		}
	}
	lib := e.Target().Library()
	if err := lib.Synchronize(ctx); err != nil {
		return m, err
	}
	memory, err := lib.Memory(ctx)
	if err != nil {
		return m, err
	}
	m.WeightBytes = memory.Active
	if !hash {
		return m, nil
	}
	for _, f := range []*folder{&m.Target, m.Draft} {
		if f.Files, err = hashFolder(ctx, f.Dir); err != nil {
			return m, err
		}
	}
	return m, nil
}
