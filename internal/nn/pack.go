package nn

import (
	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/mlx"
)

// Part is one of the maps that Pack puts together, and its number of outputs.
type Part struct {
	Linear Linear
	Out    int
}

// Packed are several maps of the same input. On a GPU they are one product
// where their weights allow it: one launch instead of several, and each output
// is the same sum as before. Without kernels they stay apart, for then the outputs
// would have to be cut out of the rows by copies.
type Packed struct {
	parts []Part
	whole Linear // all of them, one after the other; not valid where they are apart
}

// Pack puts maps together. Weights lie next to each other along the output
// axis, which keeps the groups of quantised rows as they are.
func Pack(s *mlx.Scope, parts ...Part) Packed {
	p := Packed{parts: parts}
	first := parts[0].Linear
	if first.kernels == nil {
		return p
	}
	weights, scales, biases := make([]mlx.Array, len(parts)), make([]mlx.Array, len(parts)), make([]mlx.Array, len(parts))
	for i, part := range parts {
		l := part.Linear
		if !l.like(first) {
			return p
		}
		weights[i], scales[i], biases[i] = l.weight, l.quant.Scales, l.quant.Biases
		if l.quant.W.Valid() {
			weights[i] = l.quant.W
		}
	}
	outs := 0
	for _, part := range parts {
		outs += part.Out
	}
	more := first.kernels.Pad(first.stored(), outs) - outs // outputs that are always 0
	join := func(a []mlx.Array) mlx.Array {
		if !a[0].Valid() {
			return mlx.Array{}
		}
		if more > 0 {
			a = append(a, s.Zeros(a[0].Dtype(), more, a[0].Dim(1)))
		}
		return s.Concat(0, a...)
	}
	if first.quant.W.Valid() {
		p.whole.quant = mlx.Quantized{W: join(weights), Scales: join(scales), Biases: join(biases), Options: first.quant.Options}
	} else {
		p.whole.weight = join(weights)
	}
	p.whole.kernels = first.kernels
	for i := range p.parts {
		p.parts[i].Linear = Linear{} // the whole has it
	}
	return p
}

// Range is the maps from i to j alone, for use in s: of weights that lie
// together a view.
func (p Packed) Range(s *mlx.Scope, i, j int) Packed {
	out := Packed{parts: p.parts[i:j]}
	if !p.Whole() {
		return out
	}
	from, to := 0, 0
	for n, part := range p.parts[:j] {
		if n < i {
			from += part.Out
		}
		to += part.Out
	}
	out.whole.kernels, out.whole.quant.Options = p.whole.kernels, p.whole.quant.Options
	for _, a := range []struct{ from, to *mlx.Array }{
		{&p.whole.weight, &out.whole.weight},
		{&p.whole.quant.W, &out.whole.quant.W},
		{&p.whole.quant.Scales, &out.whole.quant.Scales},
		{&p.whole.quant.Biases, &out.whole.quant.Biases},
	} {
		if a.from.Valid() {
			*a.to = s.SliceAxis(*a.from, 0, from, to)
		}
	}
	return out
}

// interleave puts the outputs of two maps of one size by turns, half of each.
func (p *Packed) interleave(s *mlx.Scope, half int) {
	q := &p.whole.quant
	for _, a := range []*mlx.Array{&p.whole.weight, &q.W, &q.Scales, &q.Biases} {
		if a.Valid() {
			rows, width := a.Dim(0), a.Dim(1)
			turns := s.SwapAxes(s.Reshape(*a, 2, rows/2/half, half, width), 0, 1)
			*a = s.Reshape(s.Contiguous(turns), rows, width)
		}
	}
}

// like says that two maps can be parts of one product.
func (l Linear) like(o Linear) bool {
	if l.inOut || o.inOut || l.bias.Valid() || o.bias.Valid() || l.quant.W.Valid() != o.quant.W.Valid() {
		return false
	}
	if l.quant.W.Valid() {
		return l.quant.Options == o.quant.Options && l.quant.Biases.Valid() == o.quant.Biases.Valid() && l.quant.Scales.Dtype() == o.quant.Scales.Dtype()
	}
	return l.weight.Valid() && l.weight.Dtype() == o.weight.Dtype()
}

// Whole reports whether the maps are one product.
func (p Packed) Whole() bool { return p.whole.weight.Valid() || p.whole.quant.W.Valid() }

// Forward maps x [1, T, in] by every map: columns of one array, or an array each.
func (p Packed) Forward(s *mlx.Scope, x mlx.Array) []kernels.Cols {
	if !p.Whole() {
		out := make([]kernels.Cols, len(p.parts))
		for i, part := range p.parts {
			out[i] = kernels.Cols{Array: part.Linear.Forward(s, x), N: part.Out}
		}
		return out
	}
	return p.columns(p.whole.Forward(s, x))
}

// columns are the maps' outputs in those of all.
func (p Packed) columns(y mlx.Array) []kernels.Cols {
	out, at := make([]kernels.Cols, len(p.parts)), 0
	for i, part := range p.parts {
		out[i] = kernels.Cols{Array: y, At: at, N: part.Out}
		at += part.Out
	}
	return out
}

// Each is Linear.Each for all maps.
func (p *Packed) Each(f func(*mlx.Array)) {
	p.whole.Each(f)
	for i := range p.parts {
		p.parts[i].Linear.Each(f)
	}
}
