package kernels

import "github.com/godflash/godflash/mlx"

// BlockRows is the most rows that the kernels for blocks take: an anchor and 15
// drafts. More rows go to MLX's own operations.
const BlockRows = 16

var q4Options = mlx.QuantizeOptions{Mode: mlx.Affine, GroupSize: 64, Bits: 4}

// manyRows is the number of rows from which a CUDA device multiplies by the
// weights as bfloat16, written out for the occasion: its product of many rows by
// packed weights is several times as slow.
const manyRows = 128

// WritesOut reports whether products of so many rows write weights out: memory
// that the caller bounds, by evaluating a few layers at a time.
func (set *Set) WritesOut(rows int) bool { return set != nil && set.q4 != nil && rows >= manyRows }

// QuantizedMatMul is x·Wᵀ for x [..., in]: for a block of rows by the kernel for
// 4 bits where it is made for the case, else by MLX's operations.
func (set *Set) QuantizedMatMul(s *mlx.Scope, x mlx.Array, q mlx.Quantized) mlx.Array {
	if set == nil || set.q4 == nil || s.Err() != nil {
		return s.QuantizedMatMul(x, q, true)
	}
	shape, dt := x.Shape(), x.Dtype()
	rows := rowsOf(shape)
	switch {
	case set.WritesOut(rows) && q.Options.Mode == mlx.Affine:
		w := s.Dequantize(q, dt)
		t := s.Transpose(w)
		y := s.MatMul(x, t)
		s.Free(w, t) // or the scope would keep the weight until it closes
		return y
	case rows <= BlockRows && len(shape) == 3 && shape[0] == 1 && set.tensorType(dt) && fitsQ4(shape[2], q) && set.tensorType(q.Scales.Dtype()):
		c, ok := set.single(s, q)
		if !ok {
			break
		}
		if k := set.product(c.t); k.Backend() != "fallback" || set.composed {
			out := c.call(set.none, Stream{X: x}, q, Around{}).run(s, k)
			if len(out) != 3 {
				return mlx.Array{}
			}
			return out[0]
		}
	}
	return s.QuantizedMatMul(x, q, true)
}

// manyEach is the mean number of rows of an expert from which a CUDA device multiplies
// by the experts' weights written out: all of them are, also those without rows.
const manyEach = 24

// writesExperts is WritesOut for rows of experts.
func (set *Set) writesExperts(q mlx.Quantized, ix mlx.GatherOptions) bool {
	rows := ix.RHS.Size()
	return ix.Sorted && set.WritesOut(rows) && rows >= manyEach*q.W.Dim(0) && q.Options.Mode == mlx.Affine
}

// GatherQMM is [mlx.Scope.GatherQMM] with transposed weights [experts, out, in], for
// many sorted rows by weights written out as in QuantizedMatMul.
func (set *Set) GatherQMM(s *mlx.Scope, x mlx.Array, q mlx.Quantized, ix mlx.GatherOptions) mlx.Array {
	if s.Err() != nil || !set.writesExperts(q, ix) {
		return s.GatherQMM(x, q, true, ix)
	}
	w := s.Dequantize(q, x.Dtype())
	t := s.SwapAxes(w, 1, 2)
	y := s.GatherMM(x, t, ix)
	s.Free(w, t)
	return y
}

// single is a map for one product outside of a chain. Its counter, where it needs
// one, is made of its own weight: two products may run at the same time, and of
// plain zeros a compiled function would make one array for both.
func (set *Set) single(s *mlx.Scope, q mlx.Quantized) (c Chained, ok bool) {
	c = Chained{counter: set.none, in: q.W.Dim(1) * 8, out: q.W.Dim(0)}
	if c.t, ok = tile(set.gpu, c.in, c.out); ok && c.t.splits > 1 {
		words := s.SliceAxis(s.SliceAxis(q.W, 0, 0, c.t.blocks), 1, 0, 1)
		c.counter = s.Sub(words, words)
	}
	return c, ok
}

// fitsQ4: affine 4 bits in groups of 64, an even number of them. For one row MLX's
// operation is as fast, but has other bits than a row of a block has.
func fitsQ4(in int, q mlx.Quantized) bool {
	o := q.Options
	return o.Mode == mlx.Affine && (o.Bits == 0 || o.Bits == 4) && (o.GroupSize == 0 || o.GroupSize == 64) && in%128 == 0
}
