package dflash

import (
	"context"
	"fmt"

	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/mlx"
)

// Propose has the drafter fill a block after the anchor and returns n drafts
// or fewer: at most the checkpoint's block size less one, and never past the
// last position. No drafts and no error mean that there is no room, or that
// the sequence has outgrown the drafter. The sequence is as before.
func (d *Decoder) Propose(ctx context.Context, n int) ([]int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch err := d.usable(); {
	case err != nil:
		return nil, err
	case d.drafter == nil:
		return nil, fmt.Errorf("%w: Propose without a drafter", ErrRequest)
	case !d.started || d.pending != nil:
		return nil, fmt.Errorf("%w: Propose follows Prefill or Commit", ErrRequest)
	case n < 0:
		return nil, fmt.Errorf("%w: %d drafts", ErrRequest, n)
	}
	if !d.drafting {
		return nil, nil
	}
	rows := d.room(d.draftRoom(n + 1))
	if rows < 2 {
		return nil, nil
	}
	var drafts []int
	err := d.do(ctx, func(s *mlx.Scope) error {
		if err := d.flush(s); err != nil {
			return err
		}
		var err error
		drafts, err = readIDs(d.propose(s, idArray(s, []int{d.anchor}), d.draws(s, rows-1), rows).ids)
		return err
	})
	return drafts, err
}

// propose is the drafter's block of rows after anchor int32 [1]: rows-1 drafts.
func (d *Decoder) propose(s *mlx.Scope, anchor mlx.Array, r draws, rows int) proposal {
	return d.scorer.propose(s, d.draftLogits(s, anchor, rows), anchor, r)
}

// draftLogits are the drafter's scores [1, rows-1, vocab] of a block after
// anchor.
func (d *Decoder) draftLogits(s *mlx.Scope, anchor mlx.Array, rows int) mlx.Array {
	masks := s.Full(float64(d.drafter.cfg.MaskTokenID), mlx.Int32, rows-1)
	block := s.Reshape(d.target.Embed(s, s.Concat(0, anchor, masks)), 1, rows, d.info.HiddenSize)
	return d.target.Unembed(s, d.drafter.Propose(s, d.context, block))
}

// Verify runs the anchor and the drafts through the target in one pass and
// says how far the drafts are right. The block is pending until Commit. No
// drafts make a plain decoding step.
func (d *Decoder) Verify(ctx context.Context, drafts []int) (Verdict, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch err := d.usable(); {
	case err != nil:
		return Verdict{}, err
	case !d.started || d.pending != nil:
		return Verdict{}, fmt.Errorf("%w: Verify follows Prefill or Commit", ErrRequest)
	case d.room(len(drafts)+1) <= len(drafts):
		return Verdict{}, fmt.Errorf("%w: a block of %d rows at position %d, the model has %d", ErrContextLength, len(drafts)+1, d.cache.Len(), d.info.ContextLength)
	}
	if err := d.checkIDs("draft", drafts); err != nil {
		return Verdict{}, err
	}
	d.limitDraft(d.cache.Len() + len(drafts) + 1)
	var p *pendingBlock
	err := d.do(ctx, func(s *mlx.Scope) error {
		block := append([]int{d.anchor}, drafts...)
		var given proposal
		if len(drafts) > 0 {
			given.ids = idArray(s, drafts)
		}
		v := d.verify(s, idArray(s, block[:1]), given, len(block), d.draws(s, len(block)), mlx.Array{})
		if err := s.Eval(append([]mlx.Array{v.choices}, v.taps...)...); err != nil {
			return err
		}
		tokens, err := readIDs(v.choices)
		if err != nil {
			return err
		}
		if err := d.sound(s, outcome{tokens: tokens, block: block}, d.cache.Len()+1); err != nil {
			return err
		}
		p = &pendingBlock{Verdict: Verdict{Choices: tokens, Accepted: d.probe.Last(leading(drafts, tokens), len(drafts))}, ids: block}
		for _, t := range v.taps {
			p.taps = append(p.taps, d.owner.Move(t))
		}
		return nil
	})
	if err != nil {
		return Verdict{}, err
	}
	d.pending = p
	return p.Verdict, nil
}

// leading counts the drafts that equal the target's choice, from the first on.
func leading(drafts, choices []int) int {
	for i, id := range drafts {
		if id != choices[i] {
			return i
		}
	}
	return len(drafts)
}

// Commit keeps the first n rows of the verified block: the anchor and n-1
// drafts, 0 <= n <= Accepted+1. Choices[n-1] becomes the anchor. 0 gives the
// whole block back and leaves the sequence as before Verify.
func (d *Decoder) Commit(ctx context.Context, n int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return err
	}
	p := d.pending
	switch {
	case p == nil:
		return fmt.Errorf("%w: Commit follows Verify", ErrRequest)
	case n < 0 || n > p.Accepted+1:
		return fmt.Errorf("%w: commit of %d rows where %d drafts are right", ErrRequest, n, p.Accepted)
	}
	err := d.do(ctx, func(s *mlx.Scope) error {
		if err := d.commitRows(s, p.taps, n); err != nil {
			return err
		}
		d.scorer.commit(s, idArray(s, p.ids), nn.Rows{N: n})
		d.release()
		return s.Eval(d.state()...)
	})
	if err != nil {
		return err
	}
	if n > 0 {
		d.past.rows = append(d.past.rows, p.ids[:n]...)
		d.anchor = p.Choices[n-1]
	}
	return nil
}
