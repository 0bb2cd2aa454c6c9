package kernels

import "github.com/godflash/godflash/mlx"

// A mixture of experts in four launches: scores, choice, gate and up, down with the
// sum. Each row reads the weights of its own experts; those that several rows of a
// block chose come from the second cache, so nothing is sorted or grouped.

// MixShape is what the kernels of a mixture are compiled for.
type MixShape struct {
	Experts, TopK, Hidden, Width int

	Norm   bool // the chosen probabilities are divided by their sum
	Shared bool // a shared expert of the same width is one of each row's experts
	Half   int  // outputs of its gate and of its up that lie together by turns
	Router int  // bits of the router's weights, 8 or 16; 0: scores are given
}

// Weight is a map [out, in], dense or quantised.
type Weight struct {
	Dense mlx.Array
	Quant mlx.Quantized
}

// like says that two maps are stored alike.
func (w Weight) like(o Weight) bool {
	if w.Dense.Valid() || o.Dense.Valid() {
		return w.Dense.Valid() && o.Dense.Valid() && w.Dense.Dtype() == o.Dense.Dtype()
	}
	return w.Quant.Options == o.Quant.Options && w.Quant.Scales.Dtype() == o.Quant.Scales.Dtype()
}

// MixMaps are a mixture's weights.
type MixMaps struct {
	Router, SharedGate   Weight
	Gate, Up, Down       mlx.Quantized // [experts, out, in]
	SharedUp, SharedDown mlx.Quantized // gate and up in one; used with MixShape.Shared
}

// mixWarps is the number of warps in the largest block of downText.
const mixWarps = 16

// Mix completes a shape by what the weights allow: whether the router's product and
// the shared expert are part of the kernels. ok is false where they do not serve.
func (set *Set) Mix(d MixShape, m MixMaps) (shape MixShape, ok bool) {
	if set == nil || set.mix == nil || d.Experts > 1024 || d.TopK < 1 || d.TopK >= mixWarps || d.TopK > d.Experts {
		return d, false
	}
	for _, q := range []mlx.Quantized{m.Gate, m.Up, m.Down} {
		if !set.mixes(q, 3) {
			return d, false
		}
	}
	d.Shared = d.Shared && d.Half%16 == 0 && d.Half > 0 && d.Width%d.Half == 0 && set.mixes(m.SharedUp, 2) && set.mixes(m.SharedDown, 2) &&
		m.SharedUp.W.Dim(0) == 2*d.Width && m.SharedUp.W.Dim(1)*8 == d.Hidden && m.SharedDown.W.Dim(0) == d.Hidden && m.SharedDown.W.Dim(1)*8 == d.Width
	d.Router = set.routerBits(d, m)
	const most = 40 << 10 // bytes of shared memory
	return d, d.paired()*padded(d.Width)*mixRoom <= most && padded(d.Hidden)*mixRoom <= most
}

// mixRoom is what a group of a row takes of shared memory.
const mixRoom = 9*16 + 4

// padded is the number of groups of 64 that a warp's turns cover.
func padded(in int) int { return (in/64 + 7) / 8 * 8 }

// mixes: 4 bits in groups of 64, in tiles of 16 outputs.
func (set *Set) mixes(q mlx.Quantized, dims int) bool {
	return q.W.Valid() && q.Biases.Valid() && q.W.NDim() == dims && q.W.Dim(-2)%16 == 0 && fitsQ4(q.W.Dim(-1)*8, q) && set.tensorType(q.Scales.Dtype())
}

// routerBits is MixShape.Router for the weights that there are.
func (set *Set) routerBits(d MixShape, m MixMaps) int {
	r := m.Router
	if d.Shared && !r.like(m.SharedGate) {
		return 0
	}
	switch {
	case r.Dense.Valid():
		if d.Hidden%8 == 0 && r.Dense.Dtype() == mlx.BFloat16 {
			return 16
		}
	case r.Quant.W.Valid() && r.Quant.Biases.Valid():
		o := r.Quant.Options
		if o.Mode == mlx.Affine && o.Bits == 8 && (o.GroupSize == 0 || o.GroupSize == 64) && set.tensorType(r.Quant.Scales.Dtype()) {
			return 8
		}
	}
	return 0
}

// Mixes reports whether Mixture serves blocks like x [1, T, hidden].
func (set *Set) Mixes(s *mlx.Scope, x mlx.Array) bool {
	return set != nil && set.mix != nil && s.Err() == nil && x.Dim(1) <= BlockRows && set.tensorType(x.Dtype())
}

// Mixture is the mixture's result for x [1, T, hidden], of the same shape, with what
// stands around it in a chain; gates are not asked for by a. With d.Router 0 scores
// are those of the experts, float32 [T, experts], with the shared gate's behind them
// if d.Shared, and x must be normalised; else they are not used. ok is false where a
// kernel failed: the caller goes another way.
func (set *Set) Mixture(s *mlx.Scope, x Stream, scores mlx.Array, d MixShape, m MixMaps, a Around) (y Stream, ok bool) {
	mix, in := set.mix, x.X
	ok = true
	run := set.inTurn(s, func() {
		set.unchain() // what is linked for a chain may hold a mixture
		set.mix, ok = nil, false
	})
	if d.Router > 0 {
		if out := run(mix.scores, func() call { return d.scoresCall(set.none, x, m, a) }); len(out) == 2 {
			scores = out[0]
			if a.Norm.Valid() {
				in = out[1]
			}
		}
	}
	var h mlx.Array
	choice := run(mix.choose, func() call { return d.chooseCall(scores) })
	if out := run(mix.up, func() call { return d.upCall(in, choice[0], m) }); len(out) == 1 {
		h = out[0]
	}
	if out := run(mix.down, func() call { return d.downCall(h, choice[0], choice[1], m, a) }); len(out) == 2 {
		y.X = out[0]
		if a.Sums {
			y.Sums = out[1]
		}
	}
	return y, ok
}

// inTurn runs kernels of which each needs the results of those before. It gives nothing
// where one failed, now or before, or the scope did; failed is called for the first.
func (set *Set) inTurn(s *mlx.Scope, failed func()) func(k *mlx.Kernel, c func() call) []mlx.Array {
	ok := true
	return func(k *mlx.Kernel, c func() call) []mlx.Array {
		if !ok || s.Err() != nil {
			return nil
		}
		out := c().run(s, k)
		if k.Backend() == "fallback" && !set.composed {
			ok = false
			failed()
			return nil
		}
		return out
	}
}

// mixture is the kernels of a Set.
type mixture struct{ scores, choose, up, down *mlx.Kernel }

// mixture is nil where one of the texts is not for the device.
func (set *Set) mixture() *mixture {
	m := &mixture{set.kernel(scoresSpec()), set.kernel(chooseSpec()), set.kernel(upSpec()), set.kernel(downSpec())}
	if m.scores == nil || m.choose == nil || m.up == nil || m.down == nil {
		return nil
	}
	return m
}

// paired is the number of experts that a row goes through.
func (d MixShape) paired() int {
	if d.Shared {
		return d.TopK + 1
	}
	return d.TopK
}

// scored is the number of a row's scores.
func (d MixShape) scored() int { return d.Experts + d.paired() - d.TopK }

func (d MixShape) scoresCall(none mlx.Array, x Stream, m MixMaps, a Around) call {
	parts := func(w Weight) []mlx.Array {
		if w.Dense.Valid() {
			return []mlx.Array{w.Dense, none, none}
		}
		return []mlx.Array{w.Quant.W, w.Quant.Scales, w.Quant.Biases}
	}
	gate := m.SharedGate
	if !d.Shared {
		gate = m.Router
	}
	t := x.X.Dim(1)
	norm, sums, normed := a.Norm, x.Sums, x.X.Shape()
	if !norm.Valid() {
		norm, sums, normed = none, none, []int{1}
	}
	in := append([]mlx.Array{x.X}, parts(m.Router)...)
	return call{in: append(append(in, parts(gate)...), norm, sums), launch: mlx.Launch{
		Outputs: []mlx.Output{{Dtype: mlx.Float32, Shape: []int{t, d.scored()}}, {Dtype: x.X.Dtype(), Shape: normed}},
		Grid:    [3]int{t * 128, (d.scored() + 3) / 4}, Group: [3]int{128},
		Template: []mlx.TemplateArg{
			{Name: "E", Value: d.Experts},
			{Name: "H", Value: d.Hidden},
			{Name: "BITS", Value: d.Router},
			{Name: "GATE", Value: d.Shared},
			{Name: "NORM", Value: a.Norm.Valid()},
			{Name: "EPS", Value: floatBits(a.Eps)},
		},
	}}
}

func (d MixShape) chooseCall(scores mlx.Array) call {
	t := scores.Dim(0)
	return call{in: []mlx.Array{scores}, launch: mlx.Launch{
		Outputs: []mlx.Output{{Dtype: mlx.Int32, Shape: []int{t, d.TopK}}, {Dtype: mlx.Float32, Shape: []int{t, d.paired()}}},
		Grid:    [3]int{t * 32}, Group: [3]int{32},
		Template: []mlx.TemplateArg{{Name: "E", Value: d.Experts}, {Name: "K", Value: d.TopK}, {Name: "NORM", Value: d.Norm}, {Name: "GATE", Value: d.Shared}},
	}}
}

// shared is a map of the shared expert, or an expert's in its place.
func (d MixShape) shared(q, other mlx.Quantized) []mlx.Array {
	if !d.Shared {
		q = other
	}
	return []mlx.Array{q.W, q.Scales, q.Biases}
}

func (d MixShape) upCall(x, chosen mlx.Array, m MixMaps) call {
	t, half := x.Dim(1), d.Half
	if !d.Shared {
		half = 16
	}
	in := []mlx.Array{x, chosen, m.Gate.W, m.Gate.Scales, m.Gate.Biases, m.Up.W, m.Up.Scales, m.Up.Biases}
	return call{in: append(in, d.shared(m.SharedUp, m.Up)...), launch: mlx.Launch{
		Outputs: []mlx.Output{{Dtype: x.Dtype(), Shape: []int{t, d.paired(), d.Width}}},
		Grid:    [3]int{t * d.paired() * 128, d.Width / 16}, Group: [3]int{128},
		Template: []mlx.TemplateArg{
			{Name: "H", Value: d.Hidden},
			{Name: "F", Value: d.Width},
			{Name: "K", Value: d.TopK},
			{Name: "SHARED", Value: d.Shared},
			{Name: "HALF", Value: half},
		},
	}}
}

func (d MixShape) downCall(h, chosen, weights mlx.Array, m MixMaps, a Around) call {
	t, residual, squares := h.Dim(0), a.Residual, []int{nearSize}
	if !residual.Valid() {
		residual = h
	}
	if a.Sums {
		squares = []int{t, d.Hidden / 16}
	}
	in := []mlx.Array{h, chosen, weights, m.Down.W, m.Down.Scales, m.Down.Biases}
	return call{in: append(append(in, d.shared(m.SharedDown, m.Down)...), residual), launch: mlx.Launch{
		Outputs: []mlx.Output{{Dtype: h.Dtype(), Shape: []int{1, t, d.Hidden}}, {Dtype: mlx.Float32, Shape: squares}},
		Grid:    [3]int{t * d.paired() * 32, d.Hidden / 16}, Group: [3]int{d.paired() * 32},
		Template: []mlx.TemplateArg{
			{Name: "H", Value: d.Hidden},
			{Name: "F", Value: d.Width},
			{Name: "K", Value: d.TopK},
			{Name: "SHARED", Value: d.Shared},
			{Name: "RES", Value: a.Residual.Valid()},
			{Name: "SQ", Value: a.Sums},
		},
	}}
}
