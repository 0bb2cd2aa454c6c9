package dflash

import (
	"github.com/godflash/godflash/mlx"
)

// reject chooses the tokens of a block by rejection sampling (arXiv 2211.17192,
// algorithm 1): a draft x that was drawn from q is taken with the probability
// min(1, p(x)/q(x)), and instead of one that is not, a token is drawn from the
// positive part of p-q. The row after the last draft is drawn from p.
//
// x are the target's scores [T, vocab], p the T-1 drafts and what they were
// drawn from. There may be T drafts: the last one's own row is then left out
// because the target's row before it cannot choose it.
//
// The result int32 [T] equals the draft exactly where it is taken.
func (g *sampler) reject(s *mlx.Scope, x mlx.Array, p proposal, d draws) mlx.Array {
	target := s.Softmax(g.shape(s, x), true, -1)
	rows, n := target.Dim(0), p.ids.Dim(0)
	own := s.SliceAxis(target, 0, 0, n)
	at := s.ExpandDims(p.ids, 1)
	asked := s.Mul(s.SliceAxis(d.accept, 0, 0, n), s.Flatten(s.TakeAlong(p.probs, at, 1)))
	taken := s.Less(asked, s.Flatten(s.TakeAlong(own, at, 1)))

	zero := s.Scalar(0, mlx.Float32)
	rest := s.Maximum(s.Sub(own, p.probs), zero)
	// Rounding can refuse a draft where both are equal and nothing is left.
	rest = s.Where(s.Greater(s.Sum(rest, true, -1), zero), rest, own)
	if n < rows {
		rest = s.Concat(0, rest, s.SliceAxis(target, 0, n, rows))
	}
	other := largest(s, s.Log(rest), d.target)
	chosen := s.Where(taken, p.ids, s.SliceAxis(other, 0, 0, n))
	if n < rows {
		chosen = s.Concat(0, chosen, s.SliceAxis(other, 0, n, rows))
	}
	return chosen
}
