package dflash

import (
	"context"
	"fmt"

	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/mlx"
)

// Prefill runs the tokens ids from the end of the sequence, in chunks, and
// returns the target's choice after them, which becomes the anchor. An
// anchor from before is not run: include it in ids where it belongs.
//
// Context cancellation is seen between chunks; the tokens of finished chunks
// stay, and the sequence needs Reset.
func (d *Decoder) Prefill(ctx context.Context, ids []int) (anchor int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return 0, err
	}
	return d.prefill(ctx, ids)
}

func (d *Decoder) prefill(ctx context.Context, ids []int) (int, error) {
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
	// A drafter that has no room for a block after the prompt is of no use.
	if d.drafting && d.cache.Len()+len(ids)+2 > d.drafter.cfg.MaxPositionEmbeddings {
		d.stopDrafting(DraftContextExceeded)
	}
	for start := 0; start < len(ids); start += d.chunk {
		end := min(start+d.chunk, len(ids))
		err := d.do(ctx, func(s *mlx.Scope) error { return d.prefillChunk(s, ids[start:end], end == len(ids)) })
		if err != nil {
			if start > 0 && d.failed == nil {
				d.failed = err // part of the prompt is in the caches
			}
			return 0, err
		}
	}
	d.started = true
	return d.anchor, nil
}

func (d *Decoder) prefillChunk(s *mlx.Scope, ids []int, last bool) error {
	hidden, taps := d.target.Forward(s, idArray(s, ids), d.cache, d.taps())
	if err := s.Err(); err != nil {
		return err
	}
	d.scorer.see(s, ids)
	var first mlx.Array
	if last {
		var err error
		if first, err = d.first(s, s.SliceAxis(hidden, 1, len(ids)-1, len(ids)), nn.At(d.cache.Len()+len(ids))); err != nil {
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
	if !last || len(ids) >= DefaultPrefillChunk {
		return d.lib.ClearCache(context.Background())
	}
	return nil
}

// first is the choice for hidden [1, 1, hidden], the last row before position
// at, packed like a block's.
func (d *Decoder) first(s *mlx.Scope, hidden mlx.Array, at nn.Position) (mlx.Array, error) {
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
	return s.Concat(0, append([]mlx.Array{none, choice, none}, d.scorer.logProbs(s, logits, choice)...)...), nil
}
