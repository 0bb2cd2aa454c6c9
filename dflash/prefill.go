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
	var first mlx.Array
	if last {
		noise := d.sampler.noise(s, nn.At(d.cache.Len()+len(ids)), 1, d.info.VocabSize)
		first = d.choose(s, d.target.Logits(s, s.SliceAxis(hidden, 1, len(ids)-1, len(ids))), noise)
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
		choice, err := readIDs(first)
		if err != nil {
			return err
		}
		if d.anchor = choice[0]; d.anchor == nonFinite {
			return d.findNonFinite(s, ids)
		}
	}
	if !last || len(ids) >= DefaultPrefillChunk {
		return d.lib.ClearCache(context.Background())
	}
	return nil
}
