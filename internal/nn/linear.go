package nn

import (
	"math"

	"github.com/godflash/godflash/mlx"
)

// Linear is y = x·Wᵀ (+ bias), the map that checkpoints store as a weight of
// shape [out, in].
//
// On the CPU the weight is kept as a contiguous [in, out]: MLX's CPU build
// multiplies with reference BLAS, whose inner loop runs along the output then
// and vectorises, about twice as fast as the dot products of the other order.
// Both orders add the terms of one output in the same sequence whatever the
// number of rows, which is what makes a block bit-equal to single rows.
type Linear struct {
	weight mlx.Array // [in, out] when inOut, else [out, in]
	bias   mlx.Array // [out], or the zero Array
	inOut  bool
}

// NewLinear takes a weight [out, in] and an optional bias [out] (the zero
// Array for none). The prepared weight lives in s and is not evaluated yet.
func NewLinear(s *mlx.Scope, weight, bias mlx.Array) Linear {
	if s.Library().Device() == mlx.DeviceCPU {
		return Linear{weight: s.Contiguous(s.Transpose(weight)), bias: bias, inOut: true}
	}
	return Linear{weight: weight, bias: bias}
}

// Forward maps x [..., in] to [..., out].
func (l Linear) Forward(s *mlx.Scope, x mlx.Array) mlx.Array {
	w := l.weight
	if !l.inOut {
		w = s.Transpose(w)
	}
	y := s.MatMul(x, w)
	if l.bias.Valid() {
		y = s.Add(y, l.bias)
	}
	return y
}

// Rows gives the rows ids [T] of the stored [out, in] weight as [T, in]: what
// an embedding table does when the head is tied to it.
func (l Linear) Rows(s *mlx.Scope, ids mlx.Array) mlx.Array {
	if l.inOut {
		return s.Transpose(s.Take(l.weight, ids, 1))
	}
	return s.Take(l.weight, ids, 0)
}

// RMSNorm is x / rms(x) · weight over the last axis.
type RMSNorm struct {
	Weight mlx.Array // [size], float32, or the zero Array for none
	Eps    float32
}

// Forward keeps the dtype of x: the weight is float32 (Qwen3.5's stored
// weight plus one must not be rounded to bfloat16), so the product is cast back.
func (n RMSNorm) Forward(s *mlx.Scope, x mlx.Array) mlx.Array {
	y := s.RMSNorm(x, n.Weight, n.Eps)
	if x.Dtype() != mlx.Float32 {
		y = s.AsType(y, x.Dtype())
	}
	return y
}

// AttentionScale is dim^−½.
func AttentionScale(dim int) float32 { return float32(1 / math.Sqrt(float64(dim))) }

// SwiGLU is down(silu(gate(x)) · up(x)), the feed-forward of Qwen's dense
// layers and of the drafter.
type SwiGLU struct{ Gate, Up, Down Linear }

// Forward maps x [..., hidden] to the same shape.
func (f SwiGLU) Forward(s *mlx.Scope, x mlx.Array) mlx.Array {
	return f.Down.Forward(s, s.Mul(s.SiLU(f.Gate.Forward(s, x)), f.Up.Forward(s, x)))
}

// Each lets f replace every array of the layer: to list what must be
// evaluated, or to move it to the scope that keeps it.
func (l *Linear) Each(f func(*mlx.Array)) {
	f(&l.weight)
	f(&l.bias)
}

// Each is Linear.Each for a norm.
func (n *RMSNorm) Each(f func(*mlx.Array)) { f(&n.Weight) }

// Each is Linear.Each for a feed-forward.
func (f *SwiGLU) Each(g func(*mlx.Array)) {
	f.Gate.Each(g)
	f.Up.Each(g)
	f.Down.Each(g)
}

// Keep evaluates the arrays that each visits and moves them into owner.
func Keep(s, owner *mlx.Scope, each func(func(*mlx.Array))) error {
	var arrays []mlx.Array
	each(func(a *mlx.Array) {
		if a.Valid() {
			arrays = append(arrays, *a)
		}
	})
	if err := s.Eval(arrays...); err != nil {
		return err
	}
	each(func(a *mlx.Array) { *a = owner.Move(*a) })
	return nil
}
