package dflash

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/mlx"
)

// scoring says how a target's scores become tokens. The zero value takes the
// largest.
type scoring struct {
	Sampling    Sampling
	Penalties   Penalties
	LogitBias   map[int]float64
	BannedIDs   []int
	LogProbs    bool
	TopLogProbs int
}

// What the fields may be.
const (
	minRepetition = 0.1
	maxRepetition = 10
	maxPenalty    = 2   // of Frequency and Presence, both signs
	maxLogitBias  = 100 // both signs
)

func between(name string, v, low, high float64) error {
	if math.IsNaN(v) || v < low || v > high {
		return fmt.Errorf("%w: %s is %g, expected %g to %g", ErrRequest, name, v, low, high)
	}
	return nil
}

func (p Penalties) check() error {
	if p.Repetition != 0 {
		if err := between("Repetition", p.Repetition, minRepetition, maxRepetition); err != nil {
			return err
		}
	}
	if err := between("Frequency", p.Frequency, -maxPenalty, maxPenalty); err != nil {
		return err
	}
	return between("Presence", p.Presence, -maxPenalty, maxPenalty)
}

func (o *scoring) check(vocab int) error {
	if err := o.Sampling.check(); err != nil {
		return err
	}
	if err := o.Penalties.check(); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(o.LogitBias)) {
		if id < 0 || id >= vocab {
			return fmt.Errorf("%w: LogitBias has id %d, the vocabulary has %d", ErrRequest, id, vocab)
		}
		if err := between(fmt.Sprintf("LogitBias of id %d", id), o.LogitBias[id], -maxLogitBias, maxLogitBias); err != nil {
			return err
		}
	}
	banned := map[int]bool{}
	for _, id := range o.BannedIDs {
		if id < 0 || id >= vocab {
			return fmt.Errorf("%w: BannedIDs has id %d, the vocabulary has %d", ErrRequest, id, vocab)
		}
		banned[id] = true
	}
	if len(banned) == vocab {
		return fmt.Errorf("%w: BannedIDs bans the whole vocabulary", ErrRequest)
	}
	if o.TopLogProbs < 0 || o.TopLogProbs > MaxTopLogProbs {
		return fmt.Errorf("%w: TopLogProbs is %d, expected 0 to %d", ErrRequest, o.TopLogProbs, MaxTopLogProbs)
	}
	return nil
}

// scorer turns scores into tokens for one generation, on the device. What it
// remembers of the sequence are counts of the committed tokens, which advance
// with the caches' rows; the anchor and the drafts of a block come on top, row
// by row.
type scorer struct {
	scoring
	sampler *sampler // nil: greedy
	vocab   int
	owner   *mlx.Scope      // of the arrays
	choice  *kernels.Choice // nil where operations choose

	begun  bool
	bias   mlx.Array // float32 [vocab], minus infinity for bans; zero for none
	seen   mlx.Array // float32 [vocab]: times in prompt and completion; zero without Repetition
	counts mlx.Array // float32 [vocab]: times in the completion; zero without Frequency and Presence
}

// newScorer makes a decoder's scorer for checked options. Its arrays come into
// being at the first use, since that must happen on the library's thread.
func (d *Decoder) newScorer(o scoring) *scorer {
	c := &scorer{scoring: o, sampler: newSampler(o.Sampling), vocab: d.info.VocabSize, owner: d.owner}
	if t, ok := d.target.(interface{ Choice() *kernels.Choice }); ok {
		c.choice = t.Choice()
	}
	return c
}

// begin makes the arrays of an empty sequence, once.
func (c *scorer) begin(s *mlx.Scope) {
	if c.begun || s.Err() != nil {
		return
	}
	c.begun = true
	if len(c.LogitBias)+len(c.BannedIDs) > 0 {
		var ids []int
		var values []float32
		for _, id := range slices.Sorted(maps.Keys(c.LogitBias)) {
			ids, values = append(ids, id), append(values, float32(c.LogitBias[id]))
		}
		for _, id := range c.BannedIDs {
			ids, values = append(ids, id), append(values, float32(math.Inf(-1)))
		}
		c.hold(&c.bias, s.ScatterAddAlong(s.Zeros(mlx.Float32, c.vocab), idArray(s, ids), mlx.FromSlice(s, values), 0))
	}
	if c.Penalties.Repetition != 0 && c.Penalties.Repetition != 1 {
		c.hold(&c.seen, s.Zeros(mlx.Float32, c.vocab))
	}
	if c.Penalties.Frequency != 0 || c.Penalties.Presence != 0 {
		c.hold(&c.counts, s.Zeros(mlx.Float32, c.vocab))
	}
}

// hold replaces an array that the scorer keeps.
func (c *scorer) hold(at *mlx.Array, a mlx.Array) {
	if !a.Valid() {
		return // the scope's error comes back from Do
	}
	a = c.owner.Move(a)
	c.owner.Free(*at)
	*at = a
}

// free gives the arrays back. The scorer is then as new.
func (c *scorer) free() {
	c.owner.Free(c.bias, c.seen, c.counts)
	c.begun, c.bias, c.seen, c.counts = false, mlx.Array{}, mlx.Array{}, mlx.Array{}
}

// arrays lists what every round must evaluate.
func (c *scorer) arrays() []mlx.Array {
	var out []mlx.Array
	for _, a := range []mlx.Array{c.bias, c.seen, c.counts} {
		if a.Valid() {
			out = append(out, a)
		}
	}
	return out
}

// see takes tokens of the prompt, those whose state is reused included. The
// completion begins after them.
func (c *scorer) see(s *mlx.Scope, ids []int) {
	c.begin(s)
	if c.seen.Valid() && len(ids) > 0 {
		c.hold(&c.seen, s.ScatterAddAlong(c.seen, idArray(s, ids), s.Ones(mlx.Float32, len(ids)), 0))
	}
	if c.counts.Valid() {
		c.hold(&c.counts, s.Zeros(mlx.Float32, c.vocab))
	}
}

// commit takes the first n of a block's ids, int32 [T], the anchor's first.
func (c *scorer) commit(s *mlx.Scope, ids mlx.Array, n nn.Rows) {
	if !c.seen.Valid() && !c.counts.Valid() || s.Err() != nil {
		return
	}
	kept := s.Less(s.Arange(0, float64(ids.Dim(0)), 1, mlx.Int32), n.Count(s))
	weights := s.AsType(kept, mlx.Float32)
	for _, a := range []*mlx.Array{&c.seen, &c.counts} {
		if a.Valid() {
			c.hold(a, s.ScatterAddAlong(*a, ids, weights, 0))
		}
	}
}

// adjust gives logits [..., T, vocab] their bias, bans and penalties: float32
// [T, vocab]. ids are tokens that are not committed: int32 [T] where row i
// follows ids[i], [1] where all rows follow it, the zero Array for none. allowed
// is bool [T, vocab] or the zero Array.
//
// Repetition comes first, then Frequency and Presence.
func (c *scorer) adjust(s *mlx.Scope, logits, ids, allowed mlx.Array) mlx.Array {
	x := s.Reshape(s.AsType(logits, mlx.Float32), -1, c.vocab)
	if c.bias.Valid() {
		x = s.Add(x, c.bias)
	}
	if c.seen.Valid() || c.counts.Valid() {
		seen, counts := c.seen, c.counts
		if ids.Valid() {
			is := s.Equal(s.ExpandDims(ids, 1), s.Arange(0, float64(c.vocab), 1, mlx.Int32))
			block := s.CumSum(s.AsType(is, mlx.Float32), 0)
			if seen.Valid() {
				seen = s.Add(seen, block)
			}
			if counts.Valid() {
				counts = s.Add(counts, block)
			}
		}
		x = c.penalise(s, x, seen, counts)
	}
	if allowed.Valid() {
		x = s.Where(allowed, x, s.Scalar(math.Inf(-1), mlx.Float32))
	}
	return x
}

func (c *scorer) penalise(s *mlx.Scope, x, seen, counts mlx.Array) mlx.Array {
	number := func(v float64) mlx.Array { return s.Scalar(v, mlx.Float32) }
	zero := number(0)
	if seen.Valid() {
		by := number(c.Penalties.Repetition)
		x = s.Where(s.Greater(seen, zero), s.Where(s.Greater(x, zero), s.Div(x, by), s.Mul(x, by)), x)
	}
	if counts.Valid() {
		x = s.Sub(x, s.Mul(counts, number(c.Penalties.Frequency)))
		x = s.Sub(x, s.Mul(s.AsType(s.Greater(counts, zero), mlx.Float32), number(c.Penalties.Presence)))
	}
	return x
}

// plain reports that the largest of the raw scores is the choice.
func (c *scorer) plain() bool {
	return c.sampler == nil && !c.bias.Valid() && !c.seen.Valid() && !c.counts.Valid()
}

// Instead of a token: the row had a NaN or an infinity, or nothing was left to
// choose. Neither is an id, so neither ever equals a draft.
const (
	nonFinite = -1
	exhausted = -2
)

// choose is the target's token for each row of logits [..., T, vocab] after ids
// int32 [T] (see adjust), int32 [T]: the largest score and the lowest id where
// several are equal, or drawn. p are the drafts of the block.
//
// What the model computed is checked before anything is added to it: taken as
// it is, a row with a NaN chooses token 0 for ever.
func (c *scorer) choose(s *mlx.Scope, logits, ids mlx.Array, p proposal, d draws, allowed mlx.Array) mlx.Array {
	var best mlx.Array
	if c.plain() && !allowed.Valid() {
		if c.choice.Takes(s, logits) {
			return c.choice.Largest(s, logits, mlx.Array{}, true)
		}
		best = s.Flatten(s.AsType(s.Argmax(logits, -1, false), mlx.Int32))
	} else {
		x := c.adjust(s, logits, ids, allowed)
		best = c.draw(s, x, p, d)
		if c.bias.Valid() || allowed.Valid() {
			open := s.Greater(s.Max(x, false, -1), s.Scalar(math.Inf(-1), mlx.Float32))
			best = s.Where(open, best, s.Scalar(exhausted, mlx.Int32))
		}
	}
	return checked(s, logits, best)
}

// checked is ids int32 [T] with nonFinite instead of those whose row of logits
// [..., T, vocab] is not finite.
func checked(s *mlx.Scope, logits, ids mlx.Array) mlx.Array {
	// The sum of a row is finite exactly when all of it is: float32 has room for
	// as many scores as there are tokens.
	sum := s.Flatten(s.Sum(s.AsType(logits, mlx.Float32), false, -1))
	return s.Where(s.IsFinite(sum), ids, s.Scalar(nonFinite, mlx.Int32))
}

// draw picks a token for each row of adjusted scores x [T, vocab].
func (c *scorer) draw(s *mlx.Scope, x mlx.Array, p proposal, d draws) mlx.Array {
	switch {
	case c.sampler == nil:
		return s.AsType(s.Argmax(x, -1, false), mlx.Int32)
	case p.probs.Valid():
		return c.sampler.reject(s, x, p, d)
	}
	return largest(s, c.sampler.shape(s, x), d.target)
}

// proposal is a block's drafts.
type proposal struct {
	ids   mlx.Array // int32 [T-1], the zero Array for none
	probs mlx.Array // float32 [T-1, vocab]: what each was drawn from, for Rejection
	block mlx.Array // int32 [T]: the anchor and ids, where a kernel made it of them
}

// cut keeps the first n drafts.
func (p proposal) cut(s *mlx.Scope, n int) proposal {
	if n == 0 {
		return proposal{}
	}
	if n < p.ids.Dim(0) {
		p.block = mlx.Array{}
	}
	p.ids = s.SliceAxis(p.ids, 0, 0, n)
	if p.probs.Valid() {
		p.probs = s.SliceAxis(p.probs, 0, 0, n)
	}
	return p
}

// after is the block of anchor and the drafts, int32 [T].
func (p proposal) after(s *mlx.Scope, anchor mlx.Array) mlx.Array {
	if p.block.Valid() {
		return p.block
	}
	return s.Concat(0, anchor, p.ids)
}

// propose picks the drafts from the drafter's scores [..., T-1, vocab]. They get
// the bias, the bans and the penalties of everything up to anchor int32 [1]: the
// likelier they are to be what the target chooses. They are not checked, since
// they cannot spoil a result, only be refused.
func (c *scorer) propose(s *mlx.Scope, logits, anchor mlx.Array, d draws) proposal {
	if c.plain() {
		if c.choice.Takes(s, logits) {
			block := c.choice.Largest(s, logits, anchor, false)
			return proposal{ids: s.SliceAxis(block, 0, 1, logits.Dim(-2)+1), block: block}
		}
		return proposal{ids: s.Flatten(s.AsType(s.Argmax(logits, -1, false), mlx.Int32))}
	}
	x := c.adjust(s, logits, anchor, mlx.Array{})
	if c.sampler == nil {
		return proposal{ids: s.AsType(s.Argmax(x, -1, false), mlx.Int32)}
	}
	x = c.sampler.shape(s, x)
	p := proposal{ids: largest(s, x, s.SliceAxis(d.draft, 0, 0, x.Dim(0)))}
	if c.sampler.Rejection {
		p.probs = s.Softmax(x, true, -1)
	}
	return p
}

// candidates are the n best drafts for each row of the drafter's scores [...,
// T-1, vocab], the best first: int32 [T-1, n].
func (c *scorer) candidates(s *mlx.Scope, logits, anchor mlx.Array, d draws, n int) mlx.Array {
	x := s.Reshape(logits, -1, c.vocab)
	if !c.plain() {
		x = c.adjust(s, logits, anchor, mlx.Array{})
	}
	if c.sampler != nil {
		x = s.Add(c.sampler.shape(s, x), s.SliceAxis(d.draft, 0, 0, x.Dim(0)))
	}
	if s.Err() != nil {
		return mlx.Array{}
	}
	every, below := s.Arange(0, float64(c.vocab), 1, mlx.Int32), s.Scalar(math.Inf(-1), x.Dtype())
	best := make([]mlx.Array, n)
	for i := range best {
		best[i] = s.AsType(s.Argmax(x, -1, true), mlx.Int32)
		x = s.Where(s.Equal(every, best[i]), below, x)
	}
	return s.Concat(1, best...)
}
