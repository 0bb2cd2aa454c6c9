package nn

import (
	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/mlx"
)

// Experts are the linear maps of a layer's experts, one weight [out, in] each,
// stacked, dense or quantised. Dense weights are kept [experts, in, out] on the
// CPU, for Linear's reason; there they must be float32, for MLX ends the
// process on any other type.
type Experts struct {
	weight mlx.Array // [experts, in, out] when inOut, else [experts, out, in]
	inOut  bool
	quant  mlx.Quantized

	kernels *kernels.Set // nil where MLX's operations serve
}

// NewExperts takes weights [experts, out, in].
func NewExperts(s *mlx.Scope, weight mlx.Array) Experts {
	if s.Library().Device() == mlx.DeviceCPU {
		return Experts{weight: s.Contiguous(s.SwapAxes(s.AsType(weight, mlx.Float32), 1, 2)), inOut: true}
	}
	return Experts{weight: weight}
}

// NewQuantizedExperts takes quantised weights that stand for [experts, out, in].
func NewQuantizedExperts(q mlx.Quantized) Experts { return Experts{quant: q} }

// Forward maps row i of x by expert chosen[i]: x is [..., 1, in] with batch axes
// that broadcast to those of chosen, int32 [...]; the result is [..., 1, out].
// sorted says that chosen is ascending.
func (e Experts) Forward(s *mlx.Scope, x, chosen mlx.Array, sorted bool) mlx.Array {
	ix := mlx.GatherOptions{RHS: chosen, Sorted: sorted}
	switch {
	case e.quant.W.Valid():
		return e.kernels.GatherQMM(s, x, e.quant, ix)
	case e.inOut:
		return s.GatherMM(x, e.weight, ix)
	}
	return s.GatherMM(x, s.SwapAxes(e.weight, 1, 2), ix)
}

// Each is Linear.Each for experts.
func (e *Experts) Each(f func(*mlx.Array)) {
	f(&e.weight)
	eachQuantized(&e.quant, f)
}

// sortFrom is the number of rows times experts from which rows are put in the
// experts' order first: each weight is then read once for all of its rows.
const sortFrom = 64

// MoE is a mixture of experts: the router picks TopK experts for each row, whose
// results are added by the router's probabilities, and, where there is one, a
// shared expert behind its own gate is added.
type MoE struct {
	Router         Linear // [experts, hidden]
	Gate, Up, Down Experts
	TopK           int
	// NormTopK divides the chosen probabilities by their sum.
	NormTopK bool
	// Shared is nil where the family has no shared expert.
	Shared     *SwiGLU
	SharedGate Linear // [1, hidden]

	kernels *kernels.Set // nil where MLX's operations serve
	shape   kernels.MixShape
}

// Link prepares the mixture for the kernels of a set, where its weights suit.
// Blocks of up to kernels.BlockRows rows then go through them, and prompts where the
// sizes divide.
func (m *MoE) Link(set *kernels.Set, shape kernels.MixShape) {
	m.Gate.kernels, m.Up.kernels, m.Down.kernels = set, set, set
	shape.TopK, shape.Norm, shape.Shared = m.TopK, m.NormTopK, m.Shared != nil
	if m.Shared != nil {
		if shape.Half = m.Shared.half; shape.Half == 0 {
			shape.Half = shape.Width
		}
	}
	var ok bool
	if m.shape, ok = set.Mix(shape, m.maps()); ok {
		m.kernels = set
	}
}

// maps are the weights as the kernels take them.
func (m *MoE) maps() kernels.MixMaps {
	out := kernels.MixMaps{Router: m.Router.stored(), Gate: m.Gate.quant, Up: m.Up.quant, Down: m.Down.quant}
	if m.Shared != nil {
		out.SharedGate = m.SharedGate.stored()
		out.SharedUp, out.SharedDown = m.Shared.GateUp.whole.quant, m.Shared.Down.quant
	}
	return out
}

// stored is the weight for kernels, none where it lies in another order or there is
// more to the map.
func (l Linear) stored() kernels.Weight {
	if l.inOut || l.bias.Valid() {
		return kernels.Weight{}
	}
	return kernels.Weight{Dense: l.weight, Quant: l.quant}
}

// Forward maps x [1, T, hidden] to the same shape.
func (m *MoE) Forward(s *mlx.Scope, x mlx.Array) mlx.Array {
	if m.kernels.Mixes(s, x) {
		if y, ok := m.block(s, x); ok {
			return y
		}
	}
	if m.kernels.Groups(s, x, m.shape) {
		scores := s.Reshape(s.AsType(m.Router.Forward(s, x), mlx.Float32), x.Dim(1), -1)
		if y, ok := m.kernels.Grouped(s, x, scores, m.shape, m.maps()); ok {
			return m.addShared(s, x, y)
		}
	}
	t, h := x.Dim(1), x.Dim(2)
	// The probabilities are float32 whatever the activations are: near-ties
	// between experts must not depend on their dtype.
	p := s.Softmax(s.AsType(m.Router.Forward(s, x), mlx.Float32), true, -1)
	experts := p.Dim(-1)
	chosen := s.SliceAxis(s.Argpartition(p, experts-m.TopK, -1), -1, experts-m.TopK, experts)
	weights := s.TakeAlong(p, chosen, -1)
	if m.NormTopK {
		weights = s.Div(weights, s.Sum(weights, true, -1))
	}
	chosen = s.Reshape(s.AsType(chosen, mlx.Int32), t, m.TopK)

	var y mlx.Array
	if t*m.TopK >= sortFrom {
		y = m.sorted(s, s.Reshape(x, t, 1, h), chosen)
	} else {
		y = m.experts(s, s.Reshape(x, t, 1, 1, h), chosen, false)
	}
	// [T, topK, 1, hidden], added in the router's order.
	weights = s.Reshape(s.AsType(weights, x.Dtype()), t, m.TopK, 1, 1)
	y = s.Reshape(s.Sum(s.Mul(y, weights), false, 1), 1, t, h)
	return m.addShared(s, x, y)
}

// addShared is y with the shared expert's part, where there is one.
func (m *MoE) addShared(s *mlx.Scope, x, y mlx.Array) mlx.Array {
	if m.Shared == nil {
		return y
	}
	gate := s.Sigmoid(m.SharedGate.Forward(s, x))
	return s.Add(y, s.Mul(gate, m.Shared.Forward(s, x)))
}

// block is Forward by kernels; ok is false where one failed.
func (m *MoE) block(s *mlx.Scope, x mlx.Array) (y mlx.Array, ok bool) {
	var scores mlx.Array
	if m.shape.Router == 0 {
		scores = m.Router.Forward(s, x)
		if m.shape.Shared {
			scores = s.Concat(2, scores, m.SharedGate.Forward(s, x))
		}
		scores = s.Reshape(s.AsType(scores, mlx.Float32), x.Dim(1), -1)
	}
	out, ok := m.kernels.Mixture(s, kernels.Stream{X: x}, scores, m.shape, m.maps(), kernels.Around{})
	if ok && !m.shape.Shared {
		return m.addShared(s, x, out.X), true
	}
	return out.X, ok
}

// Linked reports whether the mixture can be part of a chain.
func (m *MoE) Linked() bool {
	return m.kernels != nil && m.shape.Router > 0 && (m.shape.Shared || m.Shared == nil)
}

// Chain is x + Forward(n(x)) in a chain.
func (m *MoE) Chain(s *mlx.Scope, x kernels.Stream, n RMSNorm) (y kernels.Stream, ok bool) {
	if !m.kernels.Mixes(s, x.X) {
		return kernels.Stream{}, s.Err() != nil
	}
	return m.kernels.Mixture(s, x, mlx.Array{}, m.shape, m.maps(), kernels.Around{Norm: n.Weight, Eps: n.Eps, Residual: x.X, Sums: true})
}

func (m *MoE) experts(s *mlx.Scope, x, chosen mlx.Array, sorted bool) mlx.Array {
	h := s.Mul(s.SiLU(m.Gate.Forward(s, x, chosen, sorted)), m.Up.Forward(s, x, chosen, sorted))
	return m.Down.Forward(s, h, chosen, sorted)
}

// sorted runs the rows in the order of their experts and puts them back:
// x [T, 1, hidden], chosen [T, topK], to [T, topK, 1, hidden].
func (m *MoE) sorted(s *mlx.Scope, x, chosen mlx.Array) mlx.Array {
	t, h := x.Dim(0), x.Dim(2)
	flat := s.Flatten(chosen)
	order := s.Argsort(flat, 0)
	row := s.FloorDiv(order, s.Scalar(float64(m.TopK), order.Dtype()))
	y := m.experts(s, s.Take(x, row, 0), s.Take(flat, order, 0), true)
	back := s.Argsort(order, 0)
	return s.Reshape(s.Take(y, back, 0), t, m.TopK, 1, h)
}

// Each is Linear.Each for a mixture.
func (m *MoE) Each(f func(*mlx.Array)) {
	m.Router.Each(f)
	m.Gate.Each(f)
	m.Up.Each(f)
	m.Down.Each(f)
	if m.Shared != nil {
		m.Shared.Each(f)
		m.SharedGate.Each(f)
	}
}
