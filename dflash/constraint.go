package dflash

import (
	"errors"
	"fmt"
	"slices"

	"github.com/godflash/godflash/internal/probe"
	"github.com/godflash/godflash/mlx"
)

// constraint says which tokens may come next in a generation. The decoder asks
// it while it builds a block, the session tells it the tokens that were chosen.
// Its methods are called one at a time and must not use the decoder.
//
// A block of a constrained cycle is read twice: its drafts, so that the masks
// can be made, and the target's choices. Where free says that no mask is needed
// the cycle is like any other, with blocks in flight on a GPU.
type constraint interface {
	// free reports that the next n tokens may be any, whatever they turn out to
	// be.
	free(n int) bool
	// masks says which tokens may follow the newest token and each of the drafts
	// after it. It returns rows of ceil(vocabulary/32) words; bit id%32 of word
	// id/32 is set where id may come. The rows end before the first draft that
	// the row before it does not allow, so there are 1 to len(drafts)+1 of them:
	// the block is cut there, which costs nothing but the drafts. A row without
	// any bit is an error of the generation if it is reached. masks is called
	// where another constraint is not free, too.
	masks(drafts []int) ([]uint32, error)
	// advance takes tokens that were chosen, the first one, which follows the
	// prompt, included. The one that ends the generation is the last.
	advance(tokens []int) error
}

// guide is a constraint that has a say in the drafts too, which are otherwise
// cut where it does not allow them.
type guide interface {
	// pick makes a block's drafts from the drafter's candidates for each row, the
	// best first: one for each row, or fewer.
	pick(candidates [][]int) []int
}

// maxCandidates is how many candidates each row of a guided block has.
const maxCandidates = 8

// guide is the one that picks the drafts of a block of rows; nil where the
// drafter does. Rejection sampling takes what was drawn from the drafter.
func (d *Decoder) guide(rows int) guide {
	if !d.bound(rows) || d.scorer.sampler != nil && d.scorer.sampler.Rejection {
		return nil
	}
	g, _ := d.constraint.(guide)
	return g
}

// guided drafts a block, and says how many rows it has.
func (d *Decoder) guided(s *mlx.Scope, g guide, anchor mlx.Array, r draws, rows int) (proposal, int, error) {
	n := min(maxCandidates, d.info.VocabSize)
	candidates := s.Flatten(d.scorer.candidates(s, d.draftLogits(s, anchor, rows), anchor, r, n))
	if err := d.probe.End(probe.Draft, s, candidates); err != nil {
		return proposal{}, 0, err
	}
	ids, err := readIDs(candidates)
	if err != nil || s.Err() != nil {
		return proposal{}, 0, errors.Join(err, s.Err())
	}
	drafts := g.pick(slices.Collect(slices.Chunk(ids, n)))
	if len(drafts) == 0 {
		return proposal{}, 1, nil
	}
	return proposal{ids: idArray(s, drafts)}, len(drafts) + 1, nil
}

// constrain adds a constraint to a plan, nil none.
func (p *plan) constrain(c constraint) {
	switch {
	case c == nil:
	case p.constraint == nil:
		p.constraint = c
	default:
		p.constraint = both{p.constraint, c}
	}
}

// both allows what two constraints allow.
type both struct{ a, b constraint }

func (c both) free(n int) bool { return c.a.free(n) && c.b.free(n) }

func (c both) masks(drafts []int) ([]uint32, error) {
	a, err := c.a.masks(drafts)
	if err != nil {
		return nil, err
	}
	b, err := c.b.masks(drafts)
	if err != nil {
		return nil, err
	}
	if len(a) > len(b) {
		a, b = b, a
	}
	out := make([]uint32, len(a))
	for i := range out {
		out[i] = a[i] & b[i]
	}
	return out, nil
}

func (c both) advance(tokens []int) error {
	if err := c.a.advance(tokens); err != nil {
		return err
	}
	return c.b.advance(tokens)
}

// bound reports that the next n tokens need masks.
func (d *Decoder) bound(n int) bool { return d.constraint != nil && !d.constraint.free(n) }

// mask asks the constraint for the rows of a block with these drafts, int32
// [T-1] or the zero Array for none: bool [rows, vocab].
func (d *Decoder) mask(s *mlx.Scope, drafts mlx.Array) (allowed mlx.Array, rows int, err error) {
	ids, err := readIDs(drafts)
	if err == nil {
		err = s.Err()
	}
	if err != nil {
		return mlx.Array{}, 0, err
	}
	bits, err := d.constraint.masks(ids)
	if err != nil {
		return mlx.Array{}, 0, err
	}
	words := (d.info.VocabSize + 31) / 32
	rows = len(bits) / words
	if len(bits)%words != 0 || rows < 1 || rows > len(ids)+1 {
		return mlx.Array{}, 0, fmt.Errorf("masks of %d words for %d drafts, %d words each", len(bits), len(ids), words)
	}
	return allowedTokens(s, mlx.FromSlice(s, bits, rows, words), d.info.VocabSize), rows, s.Err()
}

// allowedTokens spreads bits uint32 [T, ceil(vocab/32)] to bool [T, vocab].
func allowedTokens(s *mlx.Scope, bits mlx.Array, vocab int) mlx.Array {
	each := s.ShiftRight(s.ExpandDims(bits, 2), s.Arange(0, 32, 1, mlx.Uint32))
	each = s.Reshape(s.BitAnd(each, s.Scalar(1, mlx.Uint32)), bits.Dim(0), -1)
	return s.AsType(s.SliceAxis(each, 1, 0, vocab), mlx.Bool)
}
