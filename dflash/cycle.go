package dflash

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/internal/probe"
	"github.com/godflash/godflash/mlx"
)

// A cycle is a draft, its verification and the commit, in one hop to the
// library's thread:
//
//	draft     anchor and mask rows through the drafter, ids
//	verify    anchor and drafts through the target, taps recorded
//	choose    the target's token for each row, see scorer
//	accept    on the device: the number of leading drafts that are right
//	read      one small int32 array: the count, the choices, the block
//	commit    caches keep n rows, the drafter gets their taps
//
// The state is committed before any token leaves, so that a caller may stop
// after each of them.
type cycle struct {
	tokens   []int        // the new tokens
	probs    []tokenProbs // of tokens, nil where nobody asked
	drafted  int
	accepted int  // drafts among tokens
	right    int  // drafts that were right, also those after the end
	forced   bool // nobody chose the tokens
	spent    spent
}

// spent says where a cycle's time went.
type spent struct {
	host, verify, commit time.Duration // see Stats
	took                 time.Duration // the whole cycle on the device, 0 where that is not known
}

// keep cuts a cycle to its first n tokens.
func (c *cycle) keep(n int) {
	c.tokens, c.accepted = c.tokens[:n], min(n, c.accepted)
	if c.probs != nil {
		c.probs = c.probs[:n]
	}
}

// cut says how many of the tokens choices[:accepted+1], all of them the
// target's, are wanted: at least 1.
type cut func(choices []int) int

// runCycle decodes up to rows tokens, rows at least 1, with a draft if the
// sequence is drafting and there is room for one.
func (d *Decoder) runCycle(ctx context.Context, rows int, want cut) (cycle, error) {
	rows = d.room(rows)
	if d.drafting {
		rows = d.draftRoom(rows)
	}
	if !d.drafting || rows < 2 {
		rows = 1
	}
	var c cycle
	err := d.do(ctx, func(s *mlx.Scope) error {
		var before point
		if at := d.cache.Len(); rows > 1 {
			before = d.mark()
			defer func() { d.clearMarks(); d.setMark(before, at) }()
		}
		start := time.Now()
		clock := d.probe.Start()
		b, err := d.build(s, idArray(s, []int{d.anchor}), rows)
		if err != nil {
			return err
		}
		clock.Built()
		built := time.Now()
		packed, err := readPosted(b.packed)
		if err != nil {
			return err
		}
		d.probe.Landed(built)
		verified := time.Now()
		if err := s.Err(); err != nil {
			return err
		}
		o := d.scorer.unpack(packed, b.rows)
		c = cycle{tokens: o.tokens, probs: o.probs, drafted: rows - 1, accepted: o.accepted, right: o.accepted}
		n := want(o.tokens)
		if i := slices.IndexFunc(o.tokens[:n], func(id int) bool { return id < 0 }); i > 0 {
			n = i // the next cycle begins with the row that has no token
		}
		o.tokens = o.tokens[:n]
		if err := d.sound(s, o, d.cache.Len()+1); err != nil {
			return err
		}
		c.keep(n)
		if err := d.commitRows(s, b.taps, n); err != nil {
			return err
		}
		d.past.rows = append(d.past.rows, o.block[:n]...)
		d.scorer.commit(s, b.ids, nn.Rows{N: n})
		state := d.state()
		if err := d.probe.End(probe.Commit, s, state...); err != nil {
			return err
		}
		clock.Done()
		prepared := time.Now()
		err = s.Eval(state...)
		end := time.Now()
		c.spent = spent{host: built.Sub(start) + prepared.Sub(verified), verify: verified.Sub(built), commit: end.Sub(prepared)}
		if !d.pipelined {
			c.spent.took = end.Sub(start)
		}
		return err
	})
	if err != nil {
		return cycle{}, err
	}
	d.anchor = c.tokens[len(c.tokens)-1]
	return c, nil
}

// sound is the error of a block whose choices, the first of them at position
// at, are no tokens.
func (d *Decoder) sound(s *mlx.Scope, o outcome, at int) error {
	if slices.Contains(o.tokens, nonFinite) {
		return d.findNonFinite(s, o.block)
	}
	if i := slices.Index(o.tokens, exhausted); i >= 0 {
		if len(d.scorer.BannedIDs) == 0 { // the masks' fault, not the caller's
			return fmt.Errorf("the constraint leaves no token at position %d", at+i)
		}
		return fmt.Errorf("%w: bans and masks leave no token at position %d", ErrRequest, at+i)
	}
	return nil
}

// verified is a block that was drafted and run through the target, as a graph.
type verified struct {
	rows    int
	ids     mlx.Array  // int32 [rows]: the anchor and the drafts
	choices mlx.Array  // int32 [rows]: the target's token after each row
	packed  mlx.Posted // what the host reads, see unpack
	taps    []mlx.Array

	accepted kernels.Accepted
}

// build makes the graph of a draft, its verification and the acceptance after
// anchor int32 [1]. The target's rows are pending. A constraint may cut the
// block to fewer rows.
func (d *Decoder) build(s *mlx.Scope, anchor mlx.Array, rows int) (verified, error) {
	r := d.draws(s, rows)
	var p proposal
	if rows > 1 {
		if err := d.flush(s); err != nil {
			return verified{}, err
		}
		var err error
		if g := d.guide(rows); g != nil {
			p, rows, err = d.guided(s, g, anchor, r, rows)
			r = r.cut(s, rows)
		} else {
			p = d.propose(s, anchor, r, rows)
			err = d.probe.End(probe.Draft, s, p.ids)
		}
		if err != nil {
			return verified{}, err
		}
	}
	var allowed mlx.Array
	if d.bound(rows) {
		var kept int
		var err error
		if allowed, kept, err = d.mask(s, p.ids); err != nil {
			return verified{}, err
		}
		if kept < rows {
			drafts := kept - 1
			if p.probs.Valid() {
				drafts = kept // the draft that is not allowed still is to be refused, see reject
			}
			rows, r, p = kept, r.cut(s, kept), p.cut(s, drafts)
		}
	}
	v := d.verify(s, anchor, p, rows, r, allowed)
	return v, d.probe.End(probe.Verify, s, append([]mlx.Array{v.packed.Array}, v.taps...)...)
}

// verify makes the graph of a block of rows through the target. p has a draft
// for each row but the anchor's, or one more (see reject).
func (d *Decoder) verify(s *mlx.Scope, anchor mlx.Array, p proposal, rows int, r draws, allowed mlx.Array) verified {
	v := verified{rows: rows, ids: anchor}
	if rows > 1 {
		v.ids = p.cut(s, rows-1).after(s, anchor)
	}
	hidden, taps := d.target.Forward(s, v.ids, d.cache, d.taps())
	logits := d.target.Logits(s, hidden)
	v.taps = taps
	v.choices = d.scorer.choose(s, logits, v.ids, p, r, allowed)
	v.accepted = d.scorer.accept(s, v.ids, v.choices, d.probe.Instead(s, rows))
	v.packed = s.Post(s.Concat(0, append([]mlx.Array{v.accepted.Packed}, d.scorer.logProbs(s, logits, v.choices)...)...))
	return v
}

// draws is the randomness of the tokens that rows block rows from the end of the
// sequence choose.
func (d *Decoder) draws(s *mlx.Scope, rows int) draws {
	if d.scorer.sampler == nil {
		return draws{} // nothing is drawn
	}
	at := nn.At(d.cache.Len())
	if d.drafting && !d.context.at.Exact() {
		at = d.contextAt(s) // the host has only an upper bound
	}
	return d.scorer.sampler.draws(s, at.Advance(s, nn.Rows{N: 1}), rows, d.info.VocabSize)
}
