package kernels

import (
	"math"

	"github.com/godflash/godflash/mlx"
)

// Delta runs one model's gated-delta layers: what comes before the scan, the
// scan, and what follows. On a GPU each is one launch, and the scan of a prompt two.
type Delta struct {
	shape         DeltaShape
	set           *Set
	in, scan, out *mlx.Kernel         // nil where operations serve
	keep          map[int]*mlx.Kernel // by the number of layers in a launch
	chunks        chunks              // for prompts
	all           mlx.Array           // a count above every number of rows
}

// DeltaRows is the scan's input for a block of rows.
type DeltaRows struct {
	K       mlx.Array // [T, key heads, key dim], float32
	V       mlx.Array // [T, value heads, value dim], float32
	G, Beta mlx.Array // [T, value heads], float32: decay and β

	// in stands for the four once the operations have scanned them.
	in deltaInput
}

// Each visits every array.
func (r *DeltaRows) Each(f func(*mlx.Array)) {
	for _, a := range []*mlx.Array{&r.K, &r.V, &r.G, &r.Beta, &r.in.k, &r.in.betaK, &r.in.betaV, &r.in.g} {
		f(a)
	}
}

// DeltaSource is what a block's rows are made from.
type DeltaSource struct {
	Tail         mlx.Array   // [1, taps-1, channels]: the convolution's input before the block
	QKV, A, B    Cols        // projections of the block: channels, value heads, value heads
	Conv         mlx.Array   // [taps, channels], oldest tap first
	Taps         []mlx.Array // the same one by one, for the operations
	NegA, DtBias mlx.Array   // −exp(A_log) and dt_bias, float32 [value heads]
}

// Delta makes the kernels for layers of a shape. It is never nil: without a Set,
// or for a shape that the texts do not cover, operations serve.
func (set *Set) Delta(d DeltaShape) *Delta {
	k := &Delta{shape: d, set: set}
	if set == nil || !d.covered() {
		return k
	}
	k.in = set.kernel(d.inSpec())
	k.scan = set.kernel(d.scanSpec())
	k.keep = map[int]*mlx.Kernel{}
	k.out = set.kernel(d.outSpec())
	k.chunks = set.chunks(d)
	k.all = Near(set.owner, set.owner.Full(math.MaxInt32, mlx.Int32, 1))
	return k
}

// Shape is that of the layers.
func (k *Delta) Shape() DeltaShape { return k.shape }

// OnDevice reports whether kernels run, and want DeltaSource.Conv.
func (k *Delta) OnDevice() bool { return k.scan != nil }

// covered says that the texts fit: a warp takes whole heads, and the rows that
// a threadgroup stages fit in 32 KiB.
func (d DeltaShape) covered() bool {
	return d.KeyDim%32 == 0 && d.KeyDim <= 128 && d.ValueDim%32 == 0 && d.ValueDim <= 256 &&
		d.Taps > 1 && d.KeyHeads > 0 && d.ValueHeads%d.KeyHeads == 0
}

func (d DeltaShape) template(more ...mlx.TemplateArg) []mlx.TemplateArg {
	return append([]mlx.TemplateArg{{Name: "HK", Value: d.KeyHeads}, {Name: "HV", Value: d.ValueHeads}, {Name: "DK", Value: d.KeyDim}, {Name: "DV", Value: d.ValueDim}}, more...)
}

func floatBits(x float32) int { return int(int32(math.Float32bits(x))) }

func (d DeltaShape) inSpec() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:    "godflash_delta_in",
		Inputs:  []string{"tail", "qkv", "a", "b", "conv", "neg_a", "bias"},
		Outputs: []string{"q", "k", "v", "g", "beta", "conv_in", "next"},
		Metal:   metal(deltaInText), CUDA: cuda(deltaInText),
		Fallback: func(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
			at := func(name string) int { return templateInt(l, name) }
			qkv := Cols{in[1], at("QAT"), d.channels()}.Take(s)
			a := Cols{in[2], at("AAT"), d.ValueHeads}.Take(s)
			b := Cols{in[3], at("BAT"), d.ValueHeads}.Take(s)
			q, r, convIn := d.compose(s, in[0], qkv, a, b, s.Split(in[4], d.Taps, 0), in[5], in[6])
			t := qkv.Dim(1)
			return []mlx.Array{q, r.K, r.V, r.G, r.Beta, convIn, s.Contiguous(s.SliceAxis(convIn, 1, t, t+d.Taps-1))}
		},
	}
}

// In makes queries [T, key heads, key dim], float32, the scan's rows, and the
// convolution's whole input [1, taps-1+T, channels]. next is its end, the Tail of the
// block that follows when all rows are kept, or the zero Array where operations serve.
func (k *Delta) In(s *mlx.Scope, x DeltaSource) (q mlx.Array, r DeltaRows, convIn, next mlx.Array) {
	d := k.shape
	if k.in == nil {
		q, r, convIn = d.compose(s, x.Tail, x.QKV.Take(s), x.A.Take(s), x.B.Take(s), x.Taps, x.NegA, x.DtBias)
		return q, r, convIn, mlx.Array{}
	}
	out := d.inCall(x).run(s, k.in)
	if len(out) != 7 {
		return mlx.Array{}, DeltaRows{}, mlx.Array{}, mlx.Array{} // the scope has the error
	}
	return out[0], DeltaRows{K: out[1], V: out[2], G: out[3], Beta: out[4]}, out[5], out[6]
}

func (d DeltaShape) inCall(x DeltaSource) call {
	t := x.QKV.Array.Dim(1)
	f32 := func(shape ...int) mlx.Output { return mlx.Output{Dtype: mlx.Float32, Shape: shape} }
	return call{in: []mlx.Array{x.Tail, x.QKV.Array, x.A.Array, x.B.Array, x.Conv, x.NegA, x.DtBias}, launch: mlx.Launch{
		Outputs: []mlx.Output{
			f32(t, d.KeyHeads, d.KeyDim), f32(t, d.KeyHeads, d.KeyDim), f32(t, d.ValueHeads, d.ValueDim), f32(t, d.ValueHeads), f32(t, d.ValueHeads),
			{Dtype: x.Tail.Dtype(), Shape: []int{1, d.Taps - 1 + t, d.channels()}},
			{Dtype: x.Tail.Dtype(), Shape: d.Tail()},
		},
		Grid: warps(t * (2*d.KeyHeads + d.ValueHeads)), Group: [3]int{128},
		Template: d.template(
			mlx.TemplateArg{Name: "T", Value: x.Tail.Dtype()}, mlx.TemplateArg{Name: "KW", Value: d.Taps},
			mlx.TemplateArg{Name: "WIDTH", Value: max(d.KeyDim, d.ValueDim)}, mlx.TemplateArg{Name: "EPS", Value: floatBits(l2Eps)},
			mlx.TemplateArg{Name: "ROW", Value: x.QKV.Array.Dim(2)}, mlx.TemplateArg{Name: "QAT", Value: x.QKV.At},
			mlx.TemplateArg{Name: "AROW", Value: x.A.Array.Dim(2)}, mlx.TemplateArg{Name: "AAT", Value: x.A.At},
			mlx.TemplateArg{Name: "BROW", Value: x.B.Array.Dim(2)}, mlx.TemplateArg{Name: "BAT", Value: x.B.At},
		),
	}}
}

func (d DeltaShape) scanSpec() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:    "godflash_delta_scan",
		Inputs:  []string{"q", "k", "v", "g", "beta", "state", "count"},
		Outputs: []string{"y", "after"},
		Metal:   metal(deltaScanText), CUDA: cuda(deltaScanText),
		Fallback: func(s *mlx.Scope, in []mlx.Array, _ mlx.Launch) []mlx.Array {
			q, k, v, g, beta, state, count := in[0], in[1], in[2], in[3], in[4], in[5], in[6]
			t := k.Dim(0)
			rows := d.input(s, k, v, g, beta)
			y, _ := rows.scan(s, d.perValueHead(s, q), state)
			row := s.Reshape(s.Arange(0, float64(t), 1, mlx.Int32), t, 1, 1)
			y = s.Where(s.Less(row, count), s.Reshape(y, t, d.ValueHeads, d.ValueDim), s.Scalar(0, mlx.Float32))
			return []mlx.Array{y, rows.replay(s, state, t, count)}
		},
	}
}

// Scan runs the rule over all rows of r from state, float32 [1, value heads,
// key dim, value dim]: y is float32 [T, value heads, value dim]. Where
// operations serve, r keeps what they computed for Replay. On CUDA a long run goes
// by chunks, whose sums are in another order.
func (k *Delta) Scan(s *mlx.Scope, q mlx.Array, r *DeltaRows, state mlx.Array) (y, after mlx.Array) {
	if k.chunks.serve(q.Dim(0)) {
		return k.chunks.run(s, k.shape, q, r, state)
	}
	if k.scan != nil {
		return k.launch(s, q, r, state, k.all)
	}
	d, t := k.shape, q.Dim(0)
	*r = DeltaRows{in: d.input(s, r.K, r.V, r.G, r.Beta)}
	y, after = r.in.scan(s, d.perValueHead(s, q), state)
	return s.Reshape(y, t, d.ValueHeads, d.ValueDim), after
}

// tail is the convolution's input before the row that follows count of convIn's.
func (d DeltaShape) tail(s *mlx.Scope, convIn, count mlx.Array) mlx.Array {
	return s.SliceDynamic(convIn, count, []int{1}, []int{1, d.Taps - 1, convIn.Dim(2)})
}

func (k *Delta) launch(s *mlx.Scope, q mlx.Array, r *DeltaRows, state, count mlx.Array) (y, after mlx.Array) {
	out := k.shape.scanCall(q, r, state, count).run(s, k.scan)
	if len(out) != 2 {
		return mlx.Array{}, mlx.Array{}
	}
	return out[0], out[1]
}

func (d DeltaShape) scanCall(q mlx.Array, r *DeltaRows, state, count mlx.Array) call {
	return call{in: []mlx.Array{q, r.K, r.V, r.G, r.Beta, state, count}, launch: mlx.Launch{
		Outputs: []mlx.Output{
			{Dtype: mlx.Float32, Shape: []int{q.Dim(0), d.ValueHeads, d.ValueDim}},
			{Dtype: mlx.Float32, Shape: d.State()},
		},
		Grid: [3]int{d.ValueHeads * d.ValueDim / 16 * 64}, Group: [3]int{64},
		Template: d.template(),
	}}
}

func (d DeltaShape) outSpec() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:    "godflash_delta_out",
		Inputs:  []string{"y", "z", "weight"},
		Outputs: []string{"o"},
		Metal:   metal(deltaOutText), CUDA: cuda(deltaOutText),
		Fallback: func(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
			z := Cols{in[1], templateInt(l, "ZAT"), d.ValueHeads * d.ValueDim}.Take(s)
			return []mlx.Array{d.gate(s, in[0], z, in[2])}
		},
	}
}

// Out normalises each head's output y of Scan and gates it with z:
// [1, T, value heads · value dim] in the dtype of z.
func (k *Delta) Out(s *mlx.Scope, y mlx.Array, z Cols, weight mlx.Array) mlx.Array {
	if k.out == nil {
		return k.shape.gate(s, y, z.Take(s), weight)
	}
	out := k.shape.outCall(y, z, weight).run(s, k.out)
	if len(out) != 1 {
		return mlx.Array{}
	}
	return out[0]
}

func (d DeltaShape) outCall(y mlx.Array, z Cols, weight mlx.Array) call {
	t := y.Dim(0)
	return call{in: []mlx.Array{y, z.Array, weight}, launch: mlx.Launch{
		Outputs: []mlx.Output{{Dtype: z.Array.Dtype(), Shape: []int{1, t, d.ValueHeads * d.ValueDim}}},
		Grid:    warps(t * d.ValueHeads), Group: [3]int{128},
		Template: d.template(
			mlx.TemplateArg{Name: "T", Value: z.Array.Dtype()}, mlx.TemplateArg{Name: "EPS", Value: floatBits(d.Eps)},
			mlx.TemplateArg{Name: "ZROW", Value: z.Array.Dim(2)}, mlx.TemplateArg{Name: "ZAT", Value: z.At},
		),
	}}
}
