package dflash

import (
	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/mlx"
)

// accept compares, on the device, a block int32 [T], the anchor and the drafts,
// with the target's choices int32 [T]. A valid instead, int32 [1], takes the place
// of the count that they give.
func (c *scorer) accept(s *mlx.Scope, block, choices, instead mlx.Array) kernels.Accepted {
	if s.Err() != nil {
		return kernels.Accepted{}
	}
	t := block.Dim(0)
	if c.choice.Compares(t) {
		return c.choice.Accept(s, block, choices, instead)
	}
	a := kernels.Accepted{Count: mlx.FromSlice(s, []int32{0})}
	if t > 1 {
		right := s.AsType(s.Equal(s.SliceAxis(block, 0, 1, t), s.SliceAxis(choices, 0, 0, t-1)), mlx.Int32)
		a.Count = s.Sum(s.CumProd(right, 0), true, 0)
	}
	if instead.Valid() { // the device computes what it replaces all the same
		a.Count = s.Add(s.Mul(a.Count, s.Scalar(0, mlx.Int32)), instead)
	}
	a.Kept = kernels.Near(s, s.Add(a.Count, s.Scalar(1, mlx.Int32)))
	a.Next = s.Take(choices, a.Count, 0)
	a.Packed = s.Concat(0, a.Count, choices, block)
	return a
}
