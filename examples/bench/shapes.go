package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/probe"
	"github.com/godflash/godflash/internal/synthetic"
	"github.com/godflash/godflash/internal/weights"
	"github.com/godflash/godflash/mlx"
)

// defaultContexts are the lengths at which a shape is measured.
var defaultContexts = []int{700, 1024, 4096, 16384, 32768}

// skipped is the number of steps and cycles of a run that do not count: the
// first ones compile kernels and fill the device's queue.
const skipped = 3

// shapes makes the pair and measures it at every context length. With an error
// comes what was measured before it.
func shapes(ctx context.Context, o *options, stderr io.Writer) (r *shapeReport, err error) {
	pair, err := synthetic.Find(o.shape, o.bits, o.layers)
	if err != nil {
		return nil, usagef("-synthetic: %w", err)
	}
	contexts := o.context
	if contexts == nil {
		contexts = defaultContexts
	}
	dir, err := os.MkdirTemp("", "godflash-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := pair.Write(dir); err != nil {
		return nil, err
	}
	say := since(stderr)
	say("making the weights of %s", pair.Target.Name)
	engine, err := dflash.Open(weights.WithMaker(ctx, pair.Maker(o.seed)), dir, &dflash.Options{DraftBits: o.draftBits, BlockSize: o.block})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	info := engine.Info()
	lib := engine.Target().Library()
	m := &shapeBench{o: o, pair: pair, engine: engine, say: say, accepted: pattern(o.accept, info.BlockSize-1, o.cycles, o.seed)}
	m.accepted = append(pattern(o.accept, info.BlockSize-1, skipped, o.seed), m.accepted...)
	for _, n := range contexts {
		if most := min(info.ContextLength, info.DraftContextLen) - (o.cycles+skipped+4)*info.BlockSize; n > most {
			if o.context == nil {
				continue
			}
			return nil, usagef("-context: %d tokens and %d cycles are more than %s has positions; up to %d are possible", n, o.cycles, pair.Target.Name, most)
		}
	}
	r = &shapeReport{Seed: o.seed, Cycles: o.cycles, Repeats: o.repeats, Asked: o.accept, TokensPerCycle: 1 + mean(m.accepted[skipped:])}
	if r.Machine, err = describeMachine(ctx, lib); err != nil {
		return nil, err
	}
	if r.Shape, err = m.describe(ctx); err != nil {
		return nil, err
	}
	bytes := 64 << 20
	if lib.Device() == mlx.DeviceGPU {
		bytes = 2 << 30
	}
	if r.Bandwidth, err = measureBandwidth(ctx, lib, bytes); err != nil {
		return nil, err
	}
	say("memory reads %.0f GB/s, copies %.0f GB/s", r.Bandwidth.Sum/1e9, r.Bandwidth.Copy/1e9)
	if o.peer != "" {
		say("the peer makes its weights")
		if m.peer, err = startPeer(ctx, o.peer, peerModel{Config: pair.Config(), Bits: o.bits, Float32: lib.Device() == mlx.DeviceCPU}, stderr); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, m.peer.close()) }()
		r.Peer = m.peer.versions
	}
	for _, n := range contexts {
		c, err := m.at(ctx, n, r.Bandwidth)
		if err != nil {
			r.Machine.LoadAfter = unknown
			return r, fmt.Errorf("context of %d: %w", n, err)
		}
		say("%s", c.line())
		r.Contexts = append(r.Contexts, c)
	}
	r.Machine.LoadAfter = loadAverage(ctx)
	if o.trace != "" {
		if err := writeTrace(o.trace, m.last); err != nil {
			return r, err
		}
	}
	return r, nil
}

// since gives a log whose lines begin with the time since now.
func since(w io.Writer) func(format string, args ...any) {
	began := time.Now()
	return func(format string, args ...any) {
		fmt.Fprintf(w, "bench: %.1f s: %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
}

// shapeBench is one pair under measurement.
type shapeBench struct {
	o        *options
	pair     *synthetic.Pair
	engine   *dflash.Engine
	peer     *peer // nil without
	accepted []int
	last     timed  // the newest run of cycles as the library runs them
	prompts  uint64 // prompts made so far: no two are the same
	say      func(format string, args ...any)
}

// dense is the width of a weight that is not quantised, in bytes.
func (m *shapeBench) dense() int {
	if m.engine.Target().Library().Device() == mlx.DeviceCPU {
		return 4
	}
	return 2
}

func (m *shapeBench) describe(ctx context.Context) (shape, error) {
	info := m.engine.Info()
	lib := m.engine.Target().Library()
	if err := lib.Synchronize(ctx); err != nil {
		return shape{}, err
	}
	memory, err := lib.Memory(ctx)
	w := m.pair.Work(0, info.BlockSize, m.dense(), info.DraftBits)
	return shape{
		Name: m.pair.Target.Name, Guess: m.pair.Target.Guess, DraftGuess: m.pair.Draft.Guess,
		Layers: m.pair.Target.Layers, Bits: m.pair.Bits, DraftBits: info.DraftBits, BlockSize: info.BlockSize,
		TargetBytes: int64(w.Target), DraftBytes: int64(w.Drafter), ActiveBytes: memory.Active,
	}, err
}

// prompt is a prompt of n random ids.
func (m *shapeBench) prompt(n int) []int {
	m.prompts++
	r := rand.New(rand.NewPCG(m.o.seed, m.prompts))
	ids := make([]int, n)
	for i := range ids {
		ids[i] = r.IntN(m.pair.Target.Vocab)
	}
	return ids
}

// at measures one context length.
func (m *shapeBench) at(ctx context.Context, n int, b bandwidth) (atContext, error) {
	info := m.engine.Info()
	w := m.pair.Work(n, info.BlockSize, m.dense(), info.DraftBits)
	c := atContext{Context: n, StepBound: w.Step / b.best() * 1e3, CycleBound: w.Cycle / b.best() * 1e3}
	var draft, verify, commit, prefill, draftedPrefill []float64
	var step, piped, read, build, dispatch []float64
	for range m.o.repeats {
		// The parts first: whatever the prompt's pass costs once, it costs here.
		drafted := dflash.Request{BlockSize: info.BlockSize}
		parts, err := m.run(ctx, n, drafted, mode{split: true})
		if err != nil {
			return c, err
		}
		for _, t := range parts.cycles {
			draft, verify, commit = append(draft, milliseconds(t.Draft)), append(verify, milliseconds(t.Verify)), append(commit, milliseconds(t.Commit))
		}
		plain, err := m.run(ctx, n, dflash.Request{NoDraft: true}, mode{})
		if err != nil {
			return c, err
		}
		step, prefill = append(step, plain.intervals...), append(prefill, plain.prefill)
		c.PlainPeak = max(c.PlainPeak, plain.peak)
		each, err := m.run(ctx, n, drafted, mode{wait: true})
		if err != nil {
			return c, err
		}
		read, draftedPrefill = append(read, each.intervals...), append(draftedPrefill, each.prefill)
		for _, t := range each.cycles {
			build = append(build, milliseconds(t.Build))
		}
		c.Peak = max(c.Peak, each.peak)
		m.last = each
		if info.Device != mlx.DeviceGPU {
			continue // the library waits for every cycle there
		}
		ahead, err := m.run(ctx, n, drafted, mode{})
		if err != nil {
			return c, err
		}
		m.last = ahead
		piped = append(piped, ahead.intervals...)
		for _, t := range ahead.cycles {
			dispatch = append(dispatch, milliseconds(t.Dispatch))
		}
	}
	c.Prefill, c.DraftedPrefill = spreadOf(prefill), spreadOf(draftedPrefill)
	c.Step, c.ReadCycle, c.Build = spreadOf(step), spreadOf(read), spreadOf(build)
	c.Draft, c.Verify, c.Commit = spreadOf(draft), spreadOf(verify), spreadOf(commit)
	c.Cycle = c.ReadCycle
	if piped != nil {
		c.Cycle = spreadOf(piped)
		spread := spreadOf(dispatch)
		c.Dispatch = &spread
	}
	c.TokensPerCycle = 1 + mean(m.accepted[skipped:])
	if m.peer != nil && (m.o.peerContext == nil || slices.Contains(m.o.peerContext, n)) {
		// What the peer cannot do costs the peer's figures, not ours.
		if err := m.measurePeer(ctx, &c); err != nil && ctx.Err() == nil {
			c.PeerError = err.Error()
		}
	}
	return c, ctx.Err()
}

// mode is how a run is measured.
type mode struct {
	wait  bool // the host reads every cycle before it builds the next
	split bool // each part of a cycle is waited for
}

// timed is one generation.
type timed struct {
	intervals []float64 // ms from cycle to cycle
	cycles    []probe.Times
	reads     []probe.Read
	prefill   float64 // ms
	peak      int64
}

// run generates the timed cycles after a prompt of n tokens, under a probe with
// the pattern.
func (m *shapeBench) run(ctx context.Context, n int, r dflash.Request, how mode) (timed, error) {
	session, err := m.engine.NewSession()
	if err != nil {
		return timed{}, err
	}
	defer session.Close()
	p := &probe.Probe{Accepted: m.accepted, ReadEach: how.wait, Split: how.split}
	want := 1 // the first token is the prompt's
	for _, accepted := range m.accepted {
		if r.NoDraft {
			accepted = 0
		}
		want += 1 + accepted
	}
	r.IDs, r.IgnoreEOS, r.NoCache = m.prompt(n), true, true
	r.MaxTokens = want + 4*m.engine.Info().BlockSize // blocks in flight need room
	var at []time.Time
	for _, err := range session.Generate(probe.With(ctx, p), r) {
		if err != nil {
			return timed{}, err
		}
		if at = append(at, time.Now()); len(at) == want {
			break
		}
	}
	stats := session.Stats()
	memory, err := m.engine.Target().Library().Memory(ctx)
	if err != nil {
		return timed{}, err
	}
	t := timed{prefill: milliseconds(stats.Prefill), peak: memory.Peak, intervals: intervals(at, stats.AcceptedPerCycle)}
	t.intervals = t.intervals[min(skipped, len(t.intervals)):]
	t.cycles = p.Times()
	t.cycles = t.cycles[min(skipped, len(t.cycles)):]
	t.reads = p.Reads()
	t.reads = t.reads[min(skipped, len(t.reads)):]
	m.say("%s, context %d: prefill %.0f ms, then %.2f s", name(r, how), n, t.prefill, at[len(at)-1].Sub(at[0]).Seconds())
	return t, nil
}

// name says what a run is, for the log.
func name(r dflash.Request, how mode) string {
	switch {
	case r.NoDraft:
		return "plain"
	case how.split:
		return "in parts"
	case how.wait:
		return "waited for"
	}
	return "cycles"
}

// intervals turns the times of tokens into those between cycles, whose tokens
// come together. The first token is the prompt's.
func intervals(at []time.Time, acceptedPerCycle []int) []float64 {
	var out []float64
	last := 0
	for next := 1; next < len(at) && len(out) < len(acceptedPerCycle); {
		out = append(out, milliseconds(at[next].Sub(at[last])))
		last = next
		next += acceptedPerCycle[len(out)-1] + 1
	}
	return out
}

// measurePeer decodes plainly with the other software, once to warm up.
func (m *shapeBench) measurePeer(ctx context.Context, c *atContext) error {
	var steps, prefill []float64
	for round := -1; round < m.o.repeats; round++ {
		tokens := m.o.cycles + 1
		if round < 0 {
			tokens = 1 + skipped
		}
		s, err := m.peer.generate(ctx, m.prompt(c.Context), tokens, nil)
		if err != nil {
			return fmt.Errorf("peer: %w", err)
		}
		if round >= 0 {
			steps, prefill = append(steps, s.decode/float64(len(s.ids)-1)), append(prefill, s.prefill)
		}
	}
	c.Peer = &peerAt{Step: spreadOf(steps), Prefill: spreadOf(prefill)}
	return nil
}
