package dflash

import (
	"context"
	"fmt"

	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/internal/probe"
	"github.com/godflash/godflash/mlx"
)

// Prefill runs the tokens ids from the end of the sequence, in chunks, and
// returns the target's choice after them, which becomes the anchor. An
// anchor from before is not run: include it in ids where it belongs.
//
// Context cancellation is seen between chunks. The tokens of finished chunks
// stay, so that the rest, ids from Len on, may follow in another Prefill.
func (d *Decoder) Prefill(ctx context.Context, ids []int) (anchor int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return 0, err
	}
	return d.prefill(ctx, ids, prefillOptions{})
}

// prefillOptions are what a session asks of a prefill.
type prefillOptions struct {
	// border is a position where a chunk ends, so that a point is kept there, if
	// it lies inside the prompt.
	border int
	cache  *prefixCache // that learns the prompt, or nil
	// quiet makes no choice after the last token: there is no anchor.
	quiet bool
	// instead holds a token that takes the place of the choice, or nothing.
	instead []int
	done    func(tokens int) // called after each chunk, or nil
}

func (d *Decoder) prefill(ctx context.Context, ids []int, o prefillOptions) (int, error) {
	d.probe = probe.From(ctx)
	switch at := d.cache.Len(); {
	case len(ids) == 0:
		return 0, ErrEmptyPrompt
	case d.pending != nil:
		return 0, fmt.Errorf("%w: a verified block waits for Commit", ErrRequest)
	case at+len(ids) > d.info.ContextLength:
		return 0, fmt.Errorf("%w: %d tokens, the model has %d positions", ErrContextLength, at+len(ids), d.info.ContextLength)
	}
	if err := d.checkIDs("token", ids); err != nil {
		return 0, err
	}
	d.limitDraft(d.cache.Len() + len(ids) + 2)
	d.started = false
	border := o.border - d.cache.Len() // in ids
	for start, end := 0, 0; start < len(ids); start = end {
		end = min(start+d.chunk, len(ids))
		if d.remembers() && start < border && border < end {
			end = border
		}
		err := d.do(ctx, func(s *mlx.Scope) error {
			if err := d.prefillChunk(s, ids[start:end], end == len(ids) && !o.quiet, o.instead); err != nil {
				return err
			}
			if d.info.Recurrent && end == len(ids) && !o.quiet {
				return nil // the border is near
			}
			d.addPoint()
			if err := d.flush(s); err != nil {
				return err
			}
			return o.cache.learn(s, d, point{at: len(d.past.rows)})
		})
		if err != nil {
			return 0, err
		}
		if o.done != nil {
			o.done(end)
		}
	}
	d.started = !o.quiet
	return d.anchor, nil
}

func (d *Decoder) prefillChunk(s *mlx.Scope, ids []int, last bool, instead []int) error {
	if c, ok := d.cache.(interface{ Whole() }); ok {
		c.Whole()
	}
	hidden, taps := d.target.Forward(s, idArray(s, ids), d.cache, d.taps())
	if err := s.Err(); err != nil {
		return err
	}
	d.scorer.see(s, ids)
	var first mlx.Array
	if last {
		var err error
		if first, err = d.first(s, s.SliceAxis(hidden, 1, len(ids)-1, len(ids)), nn.At(d.cache.Len()+len(ids)), instead); err != nil {
			return err
		}
	}
	if err := d.commitRows(s, taps, len(ids)); err != nil {
		return err
	}
	results := d.state()
	if last {
		results = append(results, first)
	}
	if err := s.Eval(results...); err != nil {
		return err
	}
	if last {
		packed, err := readIDs(first)
		if err != nil {
			return err
		}
		o := d.scorer.unpack(packed, 1)
		o.block = ids
		if err := d.sound(s, o, d.cache.Len()); err != nil {
			return err
		}
		d.anchor, d.anchorProbs = o.tokens[0], o.probs
	}
	d.past.rows = append(d.past.rows, ids...)
	if !last || len(ids) >= DefaultPrefillChunk {
		return d.lib.ClearCache(context.Background())
	}
	return nil
}

// first is the choice for hidden [1, 1, hidden], the last row before position
// at, packed like a block's, or what is given in its place.
func (d *Decoder) first(s *mlx.Scope, hidden mlx.Array, at nn.Position, instead []int) (mlx.Array, error) {
	var allowed mlx.Array
	if d.bound(1) {
		var err error
		if allowed, _, err = d.mask(s, mlx.Array{}); err != nil {
			return mlx.Array{}, err
		}
	}
	logits := d.target.Logits(s, hidden)
	choice := d.scorer.choose(s, logits, mlx.Array{}, proposal{}, d.scorer.sampler.draws(s, at, 1, d.info.VocabSize), allowed)
	none := s.Zeros(mlx.Int32, 1)
	if len(instead) > 0 {
		choice = s.Where(s.Equal(choice, s.Scalar(nonFinite, mlx.Int32)), choice, idArray(s, instead[:1]))
	}
	return d.scorer.pack(s, none, choice, none, logits), nil
}
