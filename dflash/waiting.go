package dflash

import (
	"slices"

	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/mlx"
)

// A plain cycle commits one row. Its taps wait here until the drafter is needed
// again, and then become keys and values together: one pass over the drafter's
// maps for many rows instead of one each, and none where drafting has been given
// up for good. The taps are what the target computed anyway, so keeping them
// costs memory alone, and how many rows are appended at once does not change
// the context (on the CPU bit for bit).

// maxWaiting is the number of rows after which they are appended in any case. It
// bounds the memory: a row takes the taps' hidden sizes together.
const maxWaiting = 64

// wait keeps the taps of one committed row, each [1, 1, hidden].
func (d *Decoder) wait(s *mlx.Scope, taps []mlx.Array) error {
	row := make([]mlx.Array, len(taps))
	for i, t := range taps {
		row[i] = d.owner.Move(t)
	}
	d.waiting = append(d.waiting, row)
	if len(d.waiting) < maxWaiting {
		return s.Err()
	}
	return d.flush(s)
}

// flush appends the waiting rows to the drafter's context, which then has a row
// for every committed token. They are handed to the device at once: what is appended
// next does not depend on them, and a weight must not serve two products at a time.
func (d *Decoder) flush(s *mlx.Scope) error {
	if len(d.waiting) == 0 {
		return nil
	}
	taps := make([]mlx.Array, len(d.waiting[0]))
	for i := range taps {
		rows := make([]mlx.Array, len(d.waiting))
		for k, row := range d.waiting {
			rows[k] = row[i]
		}
		taps[i] = s.Concat(1, rows...)
	}
	if err := d.drafter.Append(s, d.context, taps, len(d.waiting)); err != nil {
		return err
	}
	d.dropWaiting()
	return s.AsyncEval(d.context.Arrays()...)
}

func (d *Decoder) dropWaiting() {
	d.owner.Free(slices.Concat(d.waiting...)...)
	d.waiting = nil
	for i := range d.flights {
		d.flights[i].waits = false
	}
}

// contextAt is the position after the rows that the drafter's context will have
// once nothing waits.
func (d *Decoder) contextAt(s *mlx.Scope) nn.Position {
	return d.context.at.Advance(s, nn.Rows{N: len(d.waiting)})
}

// settleContext is settle for the drafter's context, which lacks the rows that
// wait, read or still in flight.
func (d *Decoder) settleContext(length, inFlight int) {
	flying := 0
	for _, f := range d.flights {
		if f.waits {
			flying++
		}
	}
	d.context.Settle(length-(len(d.waiting)-flying), inFlight-flying)
}
