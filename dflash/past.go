package dflash

import (
	"context"
	"slices"

	"github.com/godflash/godflash/mlx"
)

// The committed rows of a decoder are a sequence of tokens whose state is
// known. A new text begins with some of them, and reuse means going back to the
// longest beginning that the state can go back to:
//
//   - attention rows can be cut anywhere;
//   - recurrent states only where they were kept: at points, which are references
//     to the states after each chunk of a prompt and each turn, and at marks, the
//     states before the cycles that a caller may not have read to their end;
//   - the drafter's rows can be cut where its windows still reach.

// point is a position that a recurrent target can go back to.
type point struct {
	at     int
	states []mlx.Array // owned by the decoder
}

func (p *point) bytes() int64 {
	var n int64
	for _, a := range p.states {
		n += int64(a.NBytes())
	}
	return n
}

// past is what a decoder remembers of its sequence.
type past struct {
	rows   []int   // the committed tokens, without what is in flight
	points []point // in order of position
	marks  []point // in order of position, those of the last cycles
	// budget bounds the bytes of points. 0 keeps neither points nor marks, as for
	// a decoder that is driven by hand.
	budget int64
}

// remembers says whether states must be kept for going back.
func (d *Decoder) remembers() bool { return d.past.budget > 0 && d.info.Recurrent }

// addPoint keeps the states after the committed rows. It needs a length that
// the host knows.
func (d *Decoder) addPoint() {
	at := d.cache.Len()
	if p := &d.past; !d.remembers() || at == 0 || len(p.points) > 0 && p.points[len(p.points)-1].at >= at {
		return
	}
	d.past.points = append(d.past.points, point{at, d.cache.States(d.owner)})
	d.thin()
}

// thin drops points until they fit the budget: each time the one whose
// neighbours lie closest to each other, measured by how far back it is. What is
// left lies dense near the end and sparse near the beginning.
func (d *Decoder) thin() {
	p := &d.past
	var bytes int64
	for i := range p.points {
		bytes += p.points[i].bytes()
	}
	for bytes > p.budget {
		worst, least := 0, 0.0
		last := p.points[len(p.points)-1].at
		for i := range p.points {
			before, after := 0, last+1
			if i > 0 {
				before = p.points[i-1].at
			}
			if i+1 < len(p.points) {
				after = p.points[i+1].at
			}
			if gap := float64(after-before) / float64(last-p.points[i].at+1); i == 0 || gap < least {
				worst, least = i, gap
			}
		}
		bytes -= p.points[worst].bytes()
		d.owner.Free(p.points[worst].states...)
		p.points = slices.Delete(p.points, worst, worst+1)
	}
}

// mark is the states before the cycle that is about to be built; its position is
// not known yet.
func (d *Decoder) mark() point {
	if !d.remembers() {
		return point{}
	}
	return point{at: -1, states: d.cache.States(d.owner)}
}

// setMark makes p, taken before a cycle that began at position at, the newest
// mark.
func (d *Decoder) setMark(p point, at int) {
	if len(p.states) > 0 {
		p.at = at
		d.past.marks = append(d.past.marks, p)
	}
}

func (d *Decoder) clearMarks() {
	for _, p := range d.past.marks {
		d.owner.Free(p.states...)
	}
	d.past.marks = d.past.marks[:0]
}

// forget drops everything that is remembered.
func (d *Decoder) forget() {
	d.dropAfter(0)
	d.clearMarks()
	d.past.rows = d.past.rows[:0]
}

// dropAfter drops the points past position n.
func (d *Decoder) dropAfter(n int) {
	p := &d.past
	keep, _ := slices.BinarySearchFunc(p.points, n+1, func(p point, at int) int { return p.at - at })
	for _, p := range p.points[keep:] {
		d.owner.Free(p.states...)
	}
	p.points = slices.Delete(p.points, keep, len(p.points))
}

// settle reads what is in flight, so that the host knows the sequence, and gives
// the drafter the rows that wait.
func (d *Decoder) settle(ctx context.Context) error {
	if len(d.flights)+len(d.waiting) == 0 {
		return nil
	}
	return d.do(ctx, func(s *mlx.Scope) error {
		for len(d.flights) > 0 {
			if _, err := d.land(s); err != nil {
				return err
			}
		}
		if len(d.waiting) == 0 {
			return nil
		}
		if err := d.flush(s); err != nil {
			return err
		}
		return s.Eval(d.context.Arrays()...)
	})
}

// reach is the largest position, at most n, that the sequence can go back to,
// with the states that this needs. With drafting the drafter's rows must go back
// as far, if need be after running rows again that are there already.
func (d *Decoder) reach(n int, drafting bool) point {
	if !drafting {
		return d.reachTarget(n)
	}
	p := d.reachTarget(min(n, d.context.Len()))
	if !d.context.reaches(p.at) {
		p = d.reachTarget(max(0, p.at-d.context.widest()))
	}
	return p
}

func (d *Decoder) reachTarget(n int) point {
	switch {
	case n >= len(d.past.rows):
		return point{at: len(d.past.rows)}
	case !d.info.Recurrent:
		return point{at: n}
	}
	var best point
	for _, list := range [][]point{d.past.points, d.past.marks} {
		for _, p := range list {
			if p.at <= n && p.at > best.at {
				best = p
			}
		}
	}
	return best
}

// trim goes back to what reach found.
func (d *Decoder) trim(p point) error {
	if p.at == 0 {
		d.empty()
		return nil
	}
	if err := d.cache.Trim(p.at, p.states); err != nil {
		return err
	}
	if d.context != nil && d.context.Len() > p.at {
		d.context.trim(p.at)
	}
	d.past.rows = d.past.rows[:p.at]
	d.dropAfter(p.at)
	d.clearMarks()
	d.started = false
	return nil
}

// empty gives all rows back.
func (d *Decoder) empty() {
	d.release()
	d.ground()
	d.dropWaiting()
	d.scorer.free()
	d.forget()
	d.cache.Reset()
	if d.context != nil {
		d.context.Reset()
	}
	d.failed, d.started, d.anchor = nil, false, 0
}

// common is the number of leading ids that two texts share.
func common(a, b []int) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// resumeOptions are what a session asks of resume.
type resumeOptions struct {
	noDraft bool         // the rows that follow are not for the drafter
	fresh   bool         // nothing is known
	cache   *prefixCache // where to look too, or nil
	scorer  *scorer      // that takes over
}

// resume makes the sequence the longest beginning of ids, less at least the last
// of them, that is still known, here or in the cache, and returns its length. A
// failure before is forgotten, with everything that it may have spoiled.
func (d *Decoder) resume(ctx context.Context, ids []int, o resumeOptions) (int, error) {
	if err := d.recover(ctx); err != nil {
		return 0, err
	}
	d.startDrafting()
	if o.noDraft && d.drafting {
		d.stopDrafting("switched off")
	}
	d.limitDraft(len(ids) + 2)
	err := d.do(ctx, func(s *mlx.Scope) error {
		d.scorer.free()
		d.release()
		d.scorer = o.scorer
		if o.fresh {
			d.empty()
			return nil
		}
		wanted := ids[:len(ids)-1]
		p := d.reach(common(d.past.rows, wanted), d.drafting)
		if hit, ok := o.cache.find(d, wanted, d.drafting, p.at); ok {
			if err := o.cache.load(s, d, wanted, hit, d.drafting); err != nil {
				return err
			}
		} else {
			if p.at == len(d.past.rows) {
				d.addPoint()
			}
			if err := d.trim(p); err != nil {
				return err
			}
		}
		d.scorer.see(s, d.past.rows)
		return s.Err()
	})
	if err != nil {
		return 0, err
	}
	return len(d.past.rows), nil
}
