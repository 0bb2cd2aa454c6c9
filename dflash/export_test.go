package dflash

import (
	"context"
	"slices"
	"time"

	"github.com/godflash/godflash/mlx"
)

// SetPipelined makes the session keep cycles in flight and replay recorded passes
// as it does on a GPU, so that a CPU can test that path.
func (s *Session) SetPipelined(on bool) { s.decoder.SetPipelined(on) }

// SetPipelined is Session.SetPipelined below it.
func (d *Decoder) SetPipelined(on bool) {
	d.pipelined = on
	d.setRecorded(on)
}

// SetRecorded has passes replayed or built.
func (s *Session) SetRecorded(on bool) { s.decoder.setRecorded(on) }

func (d *Decoder) setRecorded(on bool) {
	if t, ok := d.target.(qwenTarget); ok {
		t.recorded = on
		d.target = t
	}
	if d.context != nil {
		d.context.recorded = on
	}
}

// SetRows lets f choose the rows of every cycle, 1 to limit; nil the engine.
func (s *Session) SetRows(f func(limit int) int) {
	s.chooser = func(*plan) chooser { return rowsFunc(f) }
	if f == nil {
		s.chooser = s.engine.chooser
	}
}

type rowsFunc func(limit int) int

func (f rowsFunc) Next(limit int) int             { return f(limit) }
func (f rowsFunc) Record(int, int, time.Duration) {}

// InFlight is the number of cycles that are launched and not read.
func (s *Session) InFlight() int { return len(s.decoder.flights) }

// Decoder is the session's sequence.
func (s *Session) Decoder() *Decoder { return s.decoder }

// PromptIDs are the ids that a request starts from.
func (e *Engine) PromptIDs(r *Request) ([]int, error) { return e.promptIDs(r) }

// FixesRows says whether the controller has no say in a request's blocks.
func (e *Engine) FixesRows(r Request) (bool, error) {
	p, err := e.prepare(&r, nil)
	if err != nil {
		return false, err
	}
	return p.fixed, nil
}

// Shape is what a sampler makes of logits [T, vocab].
func Shape(s *mlx.Scope, o Sampling, logits mlx.Array) mlx.Array {
	return newSampler(o).shape(s, logits)
}

// Constraint is constraint for tests outside of the package.
type Constraint interface {
	Free(n int) bool
	Masks(drafts []int) ([]uint32, error)
	Advance(tokens []int) error
}

type constraintFor struct{ c Constraint }

func (f constraintFor) free(n int) bool                      { return f.c.Free(n) }
func (f constraintFor) masks(drafts []int) ([]uint32, error) { return f.c.Masks(drafts) }
func (f constraintFor) advance(tokens []int) error           { return f.c.Advance(tokens) }

// Constrain keeps a request's tokens to those that c allows, and to those that
// it allowed before.
func Constrain(r *Request, c Constraint) {
	var p plan
	p.constrain(r.constraint)
	p.constrain(constraintFor{c})
	r.constraint = p.constraint
}

// Rows are the tokens whose state the decoder holds.
func (d *Decoder) Rows() []int { return slices.Clone(d.past.rows) }

// Points are the positions that a recurrent target can go back to.
func (d *Decoder) Points() []int {
	var at []int
	for _, p := range d.past.points {
		at = append(at, p.at)
	}
	return at
}

// DraftRows are the keys and values of the drafter's context that a block would
// see, on the host, for a drafter in float32.
func (d *Decoder) DraftRows(ctx context.Context) (out [][]float32, err error) {
	err = d.lib.Do(ctx, func(s *mlx.Scope) error {
		if err := d.flush(s); err != nil {
			return err
		}
		for i, kv := range d.context.kv {
			n := d.context.at.Bound
			k, v := kv.Rows(s, d.context.needs(i, n), n)
			for _, a := range []mlx.Array{k, v} {
				var host []float32
				if a.Valid() {
					if host, err = mlx.ToSlice[float32](a); err != nil {
						return err
					}
				}
				out = append(out, host)
			}
		}
		return nil
	})
	return out, err
}

// FailNext makes the next pass of the target fail, unless err is nil.
func (d *Decoder) FailNext(err error) {
	f, ok := d.target.(*failOnce)
	if !ok {
		f = &failOnce{Target: d.target}
		d.target = f
	}
	f.err = err
}

type failOnce struct {
	Target
	err error
}

func (f *failOnce) Forward(s *mlx.Scope, ids mlx.Array, c TargetCache, taps []int) (mlx.Array, []mlx.Array) {
	if f.err != nil {
		s.Fail(f.err)
		f.err = nil
		return mlx.Array{}, nil
	}
	return f.Target.Forward(s, ids, c, taps)
}

// CachedTexts are the texts that the engine's cache of prefixes can give back.
func (e *Engine) CachedTexts() (texts [][]int) {
	var visit func(n *prefixNode, before []int)
	visit = func(n *prefixNode, before []int) {
		text := slices.Concat(before, n.ids)
		if n.start+len(n.ids) > 0 && (n.states != nil || !e.target.Info().Recurrent) {
			texts = append(texts, text)
		}
		for _, child := range n.children {
			visit(child, text)
		}
	}
	visit(&e.prefixes.root, nil)
	return texts
}

// ContextBytes is the memory of the drafter's context.
func (d *Decoder) ContextBytes() int64 {
	var n int64
	_ = d.lib.Do(context.Background(), func(*mlx.Scope) error {
		n = sizeOf(d.context.Arrays())
		return nil
	})
	return n
}

// Usable says whether the decoder has not failed.
func (d *Decoder) Usable() bool { return d.usable() == nil }

// Drafts says whether the drafter's context has every row that it needs to
// draft at the end of the sequence.
func (d *Decoder) Drafts() bool {
	return d.context.Len() == d.cache.Len() && d.context.reaches(d.context.Len())
}

// WrapTarget replaces the target of the sessions to come.
func (e *Engine) WrapTarget(f func(Target) Target) { e.target = f(e.target) }

// Settle reads what is in flight and gives the drafter the rows that wait.
func (d *Decoder) Settle(ctx context.Context) error { return d.settle(ctx) }

// Try runs a cycle of a sampling rule after the newest token, tells how many
// drafts were taken, and gives the block back.
func (d *Decoder) Try(ctx context.Context, rows int, o Sampling) (accepted int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	own := d.scorer
	d.scorer = d.newScorer(scoring{Sampling: o})
	defer func() { d.scorer = own }()
	rows = d.room(d.draftRoom(rows))
	err = d.do(ctx, func(s *mlx.Scope) error {
		b, err := d.build(s, idArray(s, []int{d.anchor}), rows)
		if err != nil {
			return err
		}
		packed, err := readPosted(b.packed)
		if err != nil {
			return err
		}
		accepted = d.scorer.unpack(packed, rows).accepted
		return d.commitRows(s, b.taps, 0)
	})
	return accepted, err
}

// DropPrefixes empties the engine's cache of prefixes. It must be called on the
// library's thread.
func (e *Engine) DropPrefixes() {
	c := e.prefixes
	for c.root.children != nil {
		c.clock++
		leaf := c.root.oldestLeaf(c.clock)
		if leaf == nil {
			return
		}
		c.drop(leaf)
	}
}

// SetText makes ids the session's text, of which nothing is known.
func (s *Session) SetText(ids []int) { s.setTokens(ids) }

// RecordedDrafts is the number of the drafter's passes that are replayed.
func (s *Session) RecordedDrafts() int { return s.decoder.drafter.steps.Len() }

// SetEnd makes a what an append with writes in place leaves.
func (c *DraftContext) SetEnd(a mlx.Array) { c.end = c.owner.Ref(a) }

// Fork is the context once more.
func (c *DraftContext) Fork() (*DraftContext, error) { return c.fork() }

// Flush gives the drafter's context a row of taps that waited.
func (d *Decoder) Flush(s *mlx.Scope, taps []mlx.Array) error {
	if err := d.wait(s, taps); err != nil {
		return err
	}
	return d.flush(s)
}

// ForgetQuantization leaves of a configuration's quantisation its name.
func (c *DraftConfig) ForgetQuantization() { c.quantization = nil }
