package dflash

import (
	"math"

	"github.com/godflash/godflash/mlx"
)

// logProbs are, for rows of logits [..., T, vocab], the log probabilities that
// the generation asked for: of ids int32 [T], and of the most probable tokens.
// They come as int32 arrays of one dimension in the order of unpack, floats as
// their bits.
//
// They are the model's own: before bias, penalties, temperature and filters.
func (c *scorer) logProbs(s *mlx.Scope, logits, ids mlx.Array) []mlx.Array {
	top := c.top()
	if !c.asked() {
		return nil
	}
	x := s.Reshape(s.AsType(logits, mlx.Float32), -1, c.vocab)
	// The maximum stays out of the sum: a logarithm near 0 keeps its digits, and
	// none is above 0.
	x = s.Sub(x, s.Max(x, true, -1))
	others := s.PutAlong(s.Exp(x), s.Argmax(x, -1, true), s.Scalar(0, mlx.Float32), 1)
	sum := s.Log1p(sumInParts(s, others))
	of := func(ids mlx.Array) mlx.Array {
		return s.Flatten(s.View(s.Sub(s.TakeAlong(x, ids, 1), sum), mlx.Int32))
	}
	var out []mlx.Array
	if c.LogProbs {
		out = append(out, of(s.ExpandDims(s.Maximum(ids, s.Scalar(0, mlx.Int32)), 1)))
	}
	if top > 0 {
		ids := best(s, x, top)
		out = append(out, s.Flatten(ids), of(ids))
	}
	return out
}

// sumInParts sums the rows of x [T, vocab], to [T, 1]: parts first, then their
// sums. One running sum would lose what a hundred thousand improbable tokens
// add.
func sumInParts(s *mlx.Scope, x mlx.Array) mlx.Array {
	const part = 256
	rows, n := x.Dim(0), x.Dim(1)
	if rest := n % part; rest != 0 {
		x = s.Concat(1, x, s.Zeros(mlx.Float32, rows, part-rest))
	}
	return s.Sum(s.Sum(s.Reshape(x, rows, -1, part), false, -1), true, -1)
}

// top is the number of alternatives: no more than there are tokens.
func (c *scorer) top() int { return min(c.TopLogProbs, c.vocab) }

// best are the ids of the n largest of each row of x float32 [T, vocab], the
// largest first and the lower id first where two are equal: int32 [T, n].
func best(s *mlx.Scope, x mlx.Array, n int) mlx.Array {
	word := func(v float64) mlx.Array { return s.Scalar(v, mlx.Uint32) }
	// The bits of a float are in its order but for the sign; adding 0 makes the
	// two zeros one. With the id below them no two keys are equal.
	bits := s.View(s.Add(x, s.Scalar(0, mlx.Float32)), mlx.Uint32)
	negative := s.GreaterEqual(bits, word(1<<31))
	order := s.AsType(s.Where(negative, s.BitNot(bits), s.BitOr(bits, word(1<<31))), mlx.Uint64)
	last := x.Dim(1) - 1
	ids := s.Arange(float64(last), -1, -1, mlx.Uint64)
	keys := s.BitOr(s.ShiftLeft(order, s.Scalar(32, mlx.Uint64)), ids)
	keys = s.Flip(s.Sort(s.TopK(keys, n, -1), -1), -1)
	low := s.AsType(s.BitAnd(keys, s.Scalar(math.MaxUint32, mlx.Uint64)), mlx.Int32)
	return s.Sub(s.Scalar(float64(last), mlx.Int32), low)
}

// tokenProbs is what Token shows of log probabilities.
type tokenProbs struct {
	logProb float64
	top     []TokenLogProb
}

// outcome is what the host learns of a block.
type outcome struct {
	accepted int
	tokens   []int        // the target's choices up to the one after the last accepted draft
	block    []int        // the block itself: the anchor and the drafts
	probs    []tokenProbs // of tokens, nil where nobody asked
}

// asked says that the generation wants log probabilities.
func (c *scorer) asked() bool { return c.LogProbs || c.TopLogProbs > 0 }

// pack puts what the host learns of a block into one int32 array: the accepted
// count int32 [1], the choices and the block int32 [T], and log probabilities.
func (c *scorer) pack(s *mlx.Scope, count, choices, block, logits mlx.Array) mlx.Array {
	return s.Concat(0, append([]mlx.Array{count, choices, block}, c.logProbs(s, logits, choices)...)...)
}

// unpack takes apart what pack made of a block of rows.
func (c *scorer) unpack(packed []int, rows int) outcome {
	next := func(n int) []int {
		part := packed[:n]
		packed = packed[n:]
		return part
	}
	o := outcome{accepted: next(1)[0]}
	o.tokens, o.block = next(rows)[:o.accepted+1], next(rows)
	top := c.top()
	if !c.asked() {
		return o
	}
	var own []int
	if c.LogProbs {
		own = next(rows)
	}
	ids, values := next(rows*top), packed
	float := func(bits int) float64 { return float64(math.Float32frombits(uint32(int32(bits)))) }
	for i := range o.tokens {
		var p tokenProbs
		if c.LogProbs {
			p.logProb = float(own[i])
		}
		for j := i * top; j < (i+1)*top; j++ {
			p.top = append(p.top, TokenLogProb{ID: ids[j], LogProb: float(values[j])})
		}
		o.probs = append(o.probs, p)
	}
	return o
}
