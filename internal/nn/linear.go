package nn

import (
	"fmt"
	"math"

	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/mlx"
)

// Linear is y = x·Wᵀ (+ bias), the map that checkpoints store as a weight of
// shape [out, in], or the same weight quantised.
//
// On the CPU a dense weight is kept as a contiguous [in, out]: the inner loop
// of MLX's CPU product then runs along the output and vectorises, about twice
// as fast as the dot products of the other order. Both orders add the terms of
// one output in the same sequence whatever the number of rows, which is what
// makes a block bit-equal to single rows.
type Linear struct {
	weight mlx.Array // [in, out] when inOut, else [out, in]; the zero Array when quantised
	bias   mlx.Array // [out], or the zero Array
	inOut  bool
	quant  mlx.Quantized

	kernels *kernels.Set // nil where MLX's operations serve
	chain   kernels.Chained
	alone   bool // Forward of a block goes through chain
}

// With is the map by the kernels of a set.
func (l Linear) With(set *kernels.Set) Linear {
	l.kernels = set
	return l
}

// NewLinear takes a weight [out, in] and an optional bias [out] (the zero
// Array for none). The prepared weight lives in s and is not evaluated yet.
func NewLinear(s *mlx.Scope, weight, bias mlx.Array) Linear {
	if s.Library().Device() == mlx.DeviceCPU {
		return Linear{weight: s.Contiguous(s.Transpose(weight)), bias: bias, inOut: true}
	}
	return Linear{weight: weight, bias: bias}
}

// NewKernelLinear takes a weight [out, in] that stays as it is, for the kernels of a
// set, which is nil where there are none.
func NewKernelLinear(s *mlx.Scope, weight mlx.Array, set *kernels.Set) Linear {
	if set == nil {
		return NewLinear(s, weight, mlx.Array{})
	}
	return Linear{weight: weight, kernels: set}
}

// NewQuantizedLinear takes a quantised weight that stands for [out, in].
func NewQuantizedLinear(q mlx.Quantized) Linear { return Linear{quant: q} }

// Forward maps x [..., in] to [..., out].
func (l Linear) Forward(s *mlx.Scope, x mlx.Array) mlx.Array {
	var y mlx.Array
	switch {
	case l.quant.W.Valid():
		y = l.kernels.QuantizedMatMul(s, x, l.quant)
	case l.alone && x.NDim() == 3 && x.Dim(0) == 1 && l.kernels.Chains(s, x):
		if y, ok := l.Chain(s, kernels.Stream{X: x}, kernels.Around{}); ok {
			return y.X
		}
		y = s.MatMul(x, s.Transpose(l.weight))
	case l.inOut:
		y = s.MatMul(x, l.weight)
	default:
		y = s.MatMul(x, s.Transpose(l.weight))
	}
	if l.bias.Valid() {
		y = s.Add(y, l.bias)
	}
	return y
}

// Rows gives the rows ids [T] of the [out, in] weight as [T, in] in dt: what an
// embedding table does when the head is tied to it.
func (l Linear) Rows(s *mlx.Scope, ids mlx.Array, dt mlx.Dtype) mlx.Array {
	switch {
	case l.quant.W.Valid():
		return quantizedRows(s, l.quant, ids, dt)
	case l.inOut:
		return s.Transpose(s.Take(l.weight, ids, 1))
	}
	return s.Take(l.weight, ids, 0)
}

// Each lets f replace every array of the layer: to list what must be
// evaluated, or to move it to the scope that keeps it.
func (l *Linear) Each(f func(*mlx.Array)) {
	f(&l.weight)
	f(&l.bias)
	eachQuantized(&l.quant, f)
	l.chain.Each(f)
}

// Embedding is a table [vocab, hidden] of which rows are taken, dense or
// quantised.
type Embedding struct {
	table mlx.Array
	quant mlx.Quantized
}

// NewEmbedding takes a dense table.
func NewEmbedding(table mlx.Array) Embedding { return Embedding{table: table} }

// NewQuantizedEmbedding takes a quantised one.
func NewQuantizedEmbedding(q mlx.Quantized) Embedding { return Embedding{quant: q} }

// Valid reports whether there is a table.
func (e Embedding) Valid() bool { return e.table.Valid() || e.quant.W.Valid() }

// Rows gives the rows ids [T] as [T, hidden] in dt.
func (e Embedding) Rows(s *mlx.Scope, ids mlx.Array, dt mlx.Dtype) mlx.Array {
	if e.quant.W.Valid() {
		return quantizedRows(s, e.quant, ids, dt)
	}
	return s.Take(e.table, ids, 0)
}

// Each is Linear.Each for a table.
func (e *Embedding) Each(f func(*mlx.Array)) {
	f(&e.table)
	eachQuantized(&e.quant, f)
}

func quantizedRows(s *mlx.Scope, q mlx.Quantized, ids mlx.Array, dt mlx.Dtype) mlx.Array {
	rows := mlx.Quantized{W: s.Take(q.W, ids, 0), Scales: s.Take(q.Scales, ids, 0), Options: q.Options}
	if q.Biases.Valid() { // in dt, or every value would be rounded to the scales' dtype
		rows.Scales, rows.Biases = s.AsType(rows.Scales, dt), s.AsType(s.Take(q.Biases, ids, 0), dt)
	}
	return s.Dequantize(rows, dt)
}

func eachQuantized(q *mlx.Quantized, f func(*mlx.Array)) {
	f(&q.W)
	f(&q.Scales)
	f(&q.Biases)
}

// RMSNorm is x / rms(x) · weight over the last axis.
type RMSNorm struct {
	Weight mlx.Array // [size], float32, or the zero Array for none
	Eps    float32

	Kernels *kernels.Set // nil where MLX's operations serve
}

// Forward keeps the dtype of x: the weight is float32 (Qwen3.5's stored
// weight plus one must not be rounded to bfloat16), so the product is cast back.
func (n RMSNorm) Forward(s *mlx.Scope, x mlx.Array) mlx.Array {
	_, y := n.Kernels.AddNorm(s, x, mlx.Array{}, n.Weight, n.Eps)
	return y
}

// Add is x+y, the residual stream after a layer's part, and the norm of that.
// With the zero Array for y it is x and its norm.
func (n RMSNorm) Add(s *mlx.Scope, x, y mlx.Array) (sum, normed mlx.Array) {
	return n.Kernels.AddNorm(s, x, y, n.Weight, n.Eps)
}

// Each is Linear.Each for a norm.
func (n *RMSNorm) Each(f func(*mlx.Array)) { f(&n.Weight) }

// AttentionScale is dim^−½.
func AttentionScale(dim int) float32 { return float32(1 / math.Sqrt(float64(dim))) }

// SwiGLU is down(silu(gate(x)) · up(x)), the feed-forward of Qwen's dense
// layers and of the drafter.
type SwiGLU struct {
	GateUp Packed
	Down   Linear

	half    int          // outputs of gate and of up that lie together by turns; 0: all gates first
	Kernels *kernels.Set // nil where MLX's operations serve
}

// NewSwiGLU puts the maps together; gate and up have width outputs each.
func NewSwiGLU(s *mlx.Scope, gate, up, down Linear, width int) SwiGLU {
	f := SwiGLU{GateUp: Pack(s, Part{gate, width}, Part{up, width}), Down: down, Kernels: gate.kernels}
	if f.GateUp.Whole() {
		if f.half = gate.kernels.Interleave(gate.stored(), width); f.half > 0 {
			f.GateUp.interleave(s, f.half)
		}
	}
	return f
}

// Forward maps x [..., hidden] to the same shape.
func (f SwiGLU) Forward(s *mlx.Scope, x mlx.Array) mlx.Array {
	p := f.GateUp.Forward(s, x)
	if len(p) != 2 {
		s.Fail(fmt.Errorf("%w: a feed-forward without weights", mlx.ErrZeroArray))
	}
	if s.Err() != nil {
		return mlx.Array{}
	}
	if f.half > 0 {
		return f.Down.Forward(s, f.Kernels.SwiGLUTiles(s, p[0].Array, f.half))
	}
	return f.Down.Forward(s, f.Kernels.SwiGLU(s, p[0], p[1]))
}

// Each is Linear.Each for a feed-forward.
func (f *SwiGLU) Each(g func(*mlx.Array)) {
	f.GateUp.Each(g)
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
