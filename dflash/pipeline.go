package dflash

import (
	"context"
	"time"

	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/internal/probe"
	"github.com/godflash/godflash/mlx"
)

// On a GPU the cycle's state stays on the device: the anchor, the sequence's
// length and the accepted count are arrays, so the host builds the next cycle
// while the device runs the one before, and reads tokens one cycle late. What
// the host must know, capacity and budget, it bounds from above. An
// end-of-sequence found late costs one cycle of work, never a wrong token.
//
// Blocks in flight are as long as they were chosen. Near the budget's and the
// context's end, where a block must be cut to a number that only the read counts
// give, runCycle takes over.

// maxFlights is the number of cycles that are built and not read.
const maxFlights = 2

// flight is a cycle that the device works on.
type flight struct {
	packed mlx.Posted // see unpack
	rows   int
	before point // the states that it began with
	waits  bool  // the taps of its one row wait, see waiting.go
}

// canLaunch says whether one more full block fits, whatever the counts still
// out turn out to be. budget is the number of tokens wanted after those read.
func (d *Decoder) canLaunch(rows, budget int) bool {
	end := d.cache.Len() + rows
	if budget-d.inFlight() < rows || end > d.info.ContextLength {
		return false
	}
	if d.drafting && end > d.drafter.cfg.MaxPositionEmbeddings {
		return false // runCycle ends the drafting
	}
	if d.bound(d.inFlight() + rows) {
		return false
	}
	return rows == 1 || d.drafting && rows <= d.drafter.cfg.BlockSize
}

// inFlight is the number of tokens, at most, whose cycles are not read.
func (d *Decoder) inFlight() int {
	rows := 0
	for _, f := range d.flights {
		rows += f.rows
	}
	return rows
}

// runPipelined keeps the device busy with blocks of rows and returns the
// oldest one's tokens. ok is false when nothing is in flight and no full block
// fits: runCycle's case.
//
// next gives the rows of the next block. It is not called again before they are
// launched, or run by runCycle.
func (d *Decoder) runPipelined(ctx context.Context, next *nextRows, budget int) (c cycle, ok bool, err error) {
	if len(d.flights) == 0 {
		if !d.canLaunch(next.peek(), budget) {
			return cycle{}, false, nil
		}
		d.settled = d.cache.Len()
	}
	err = d.do(ctx, func(s *mlx.Scope) error {
		start := time.Now()
		most := maxFlights
		if d.probe.Waits() {
			most = 1
		}
		for len(d.flights) < most && d.canLaunch(next.peek(), budget) {
			if err := d.launch(s, next.take()); err != nil {
				return err
			}
		}
		built := time.Now()
		var err error
		d.clearMarks()
		c, err = d.land(s)
		c.spent = d.clock.land(start, built, time.Now(), len(d.flights) > 0)
		return err
	})
	return c, true, err
}

// launch builds a cycle, hands it to the device and does not wait.
func (d *Decoder) launch(s *mlx.Scope, rows int) error {
	anchor := d.anchorArray
	if !anchor.Valid() {
		anchor = idArray(s, []int{d.anchor})
	}
	clock := d.probe.Start()
	before := d.mark()
	launched := false
	defer func() {
		if !launched {
			d.owner.Free(before.states...)
		}
	}()
	b, err := d.build(s, anchor, rows)
	if err == nil {
		err = s.Err()
	}
	if err != nil {
		return err
	}
	held := len(d.waiting)
	if err := d.commitLaunched(s, b); err != nil {
		return err
	}
	state := d.state()
	if err := d.probe.End(probe.Commit, s, state...); err != nil {
		return err
	}
	clock.Built()
	if err := s.AsyncEval(append([]mlx.Array{b.packed.Array, b.accepted.Next}, state...)...); err != nil {
		return err
	}
	clock.Handed()
	d.owner.Free(d.anchorArray)
	d.anchorArray = d.owner.Move(b.accepted.Next)
	b.packed.Array = d.owner.Move(b.packed.Array)
	d.flights = append(d.flights, flight{packed: b.packed, rows: rows, before: before, waits: len(d.waiting) > held})
	launched = true
	return nil
}

// commitLaunched keeps the accepted rows of the block just built. A block of
// one row is kept whole, so the host goes on knowing the length.
func (d *Decoder) commitLaunched(s *mlx.Scope, b verified) error {
	if b.rows == 1 {
		d.scorer.commit(s, b.ids, nn.Rows{N: 1})
		return d.commitRows(s, b.taps, 1)
	}
	n := nn.Rows{N: b.rows, Array: b.accepted.Kept}
	d.scorer.commit(s, b.ids, n)
	if err := d.cache.CommitArray(s, n.Array); err != nil {
		return err
	}
	return d.drafter.append(s, d.context, b.taps, n)
}

// land reads the oldest cycle and lowers the bounds to what is known now.
func (d *Decoder) land(s *mlx.Scope) (cycle, error) {
	f := d.flights[0]
	began := time.Now()
	packed, err := readPosted(f.packed)
	if err != nil {
		return cycle{}, err
	}
	d.probe.Landed(began)
	d.owner.Free(f.packed.Array)
	d.flights = d.flights[1:]
	d.setMark(f.before, d.settled)
	o := d.scorer.unpack(packed, f.rows)
	at := d.settled + 1
	d.settled += o.accepted + 1
	out := d.inFlight()
	d.cache.Settle(d.settled, out)
	if d.drafting {
		d.settleContext(d.settled, out)
	}
	if err := d.sound(s, o, at); err != nil {
		return cycle{}, err
	}
	d.past.rows = append(d.past.rows, o.block[:o.accepted+1]...)
	c := cycle{tokens: o.tokens, probs: o.probs, drafted: f.rows - 1, accepted: o.accepted, right: o.accepted}
	if out == 0 {
		d.anchor = c.tokens[o.accepted]
		d.owner.Free(d.anchorArray)
		d.anchorArray = mlx.Array{}
	}
	return c, nil
}

// ground drops what is in flight: the sequence then holds rows that nobody
// read, and must be emptied.
func (d *Decoder) ground() {
	for _, f := range d.flights {
		d.owner.Free(f.packed.Array)
		d.owner.Free(f.before.states...)
	}
	d.owner.Free(d.anchorArray)
	d.flights, d.anchorArray, d.clock = nil, mlx.Array{}, landings{}
}
