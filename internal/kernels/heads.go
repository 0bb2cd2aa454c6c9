package kernels

import (
	"math"

	"github.com/godflash/godflash/mlx"
)

// headsText cuts the projections of a block into heads, normalises queries and
// keys and rotates them. A warp does one head of one row; a lane holds the
// features lane + 32i, so that both of a rotated pair lie in one lane.
const headsText = `
constexpr int HEADS = HQ + 2 * HK, E = D / 32, HALF = RD / 64;
const int lane = tid & 31, unit = bid * 4 + (tid >> 5);
const int row = unit / HEADS, head = unit - row * HEADS, rows = q_shape[1];
if (row < rows) {
  const bool query = head < HQ, value = head >= HQ + HK;
  const int h = query ? head : value ? head - HQ - HK : head - HQ;
  float u[E];
  float squares = 0;
  for (int i = 0; i < E; i++) {
    const int c = h * D + lane + 32 * i;
    const T x = query ? q[(size_t)row * QROW + QAT + h * QSTEP + lane + 32 * i]
      : value ? v[(size_t)row * VROW + VAT + c] : k[(size_t)row * KROW + KAT + c];
    u[i] = (float)x;
    squares += u[i] * u[i];
  }
  if (!value) {
    for (int o = 16; o > 0; o >>= 1) squares += GF_XOR(squares, o);
    const float scale = GF_RSQRT(squares / D + GF_FLOAT(EPS));
    for (int i = 0; i < E; i++) u[i] = u[i] * scale * (query ? q_norm[lane + 32 * i] : k_norm[lane + 32 * i]);
    for (int i = 0; i < HALF; i++) {
      const float angle = (float)(position[0] + row) * inv_freq[lane + 32 * i], sine = GF_SIN(angle), cosine = GF_COS(angle);
      const float x = u[i], y = u[i + HALF];
      u[i] = x * cosine - y * sine;
      u[i + HALF] = x * sine + y * cosine;
    }
  }
`

// headsOutText leaves all of them in arrays of their own.
const headsOutText = `
  for (int i = 0; i < E; i++) {
    const size_t to = ((size_t)h * rows + row) * D + lane + 32 * i;
    if (query) queries[to] = (T)u[i]; else if (value) values[to] = (T)u[i]; else keys[to] = (T)u[i];
  }
}
`

// gateText is y·σ(gate) with y's heads put side by side: y [1, HQ, T, D].
const gateText = `
const int row = bid / BLOCKS, c = (bid - row * BLOCKS) * 256 + tid, rows = y_shape[2];
if (c < HQ * D) {
  const int h = c / D, d = c - h * D;
  const float x = (float)y[((size_t)h * rows + row) * D + d];
  const float g = (float)q[(size_t)row * QROW + QAT + h * 2 * D + D + d];
  o[(size_t)row * HQ * D + c] = (T)(x / (1.0f + GF_EXP(-g)));
}
`

// HeadsShape is an attention layer's sizes.
type HeadsShape struct {
	Queries, Keys, Dim int
	Rotated            int  // features of a head that rotate
	Gated              bool // a gate lies behind each head's query
	Eps                float32
}

// Heads runs one model's attention layers around the attention itself.
type Heads struct {
	shape           HeadsShape
	split, gate     *mlx.Kernel
	attention, join *mlx.Kernel // nil where MLX's attention serves
	into            *mlx.Kernel // see Into, nil where there is none
	set             *Set
}

// Heads makes the kernels for layers of a shape; nil without a Set, and for
// shapes that the texts do not cover.
func (set *Set) Heads(d HeadsShape) *Heads {
	if set == nil || d.Dim%32 != 0 || d.Dim > 512 || d.Rotated%64 != 0 || d.Rotated > d.Dim || d.Rotated == 0 {
		return nil
	}
	k := &Heads{shape: d, set: set, split: set.kernel(d.splitSpec())}
	if d.Gated {
		k.gate = set.kernel(d.gateSpec())
	}
	if k.split == nil || d.Gated && k.gate == nil {
		return nil
	}
	if d.attends() && d.attentionMemory() <= set.gpu.SharedMemory {
		k.attention, k.join = set.kernel(d.attentionSpec()), set.kernel(d.joinSpec())
		if !set.composed { // operations do not write in place
			k.into = set.kernel(d.intoSpec())
		}
	}
	return k
}

// InvFreq are the radians per position of each rotated pair, float32
// [Rotated/2], from MLX's description of a rotation.
func InvFreq(s *mlx.Scope, o mlx.RoPEOptions) mlx.Array {
	if o.Freqs.Valid() {
		return s.Reciprocal(o.Freqs)
	}
	f := make([]float32, o.Dims/2)
	for i := range f {
		f[i] = float32(math.Pow(float64(o.Base), -2*float64(i)/float64(o.Dims)))
	}
	return mlx.FromSlice(s, f)
}

func (d HeadsShape) queryWidth() int {
	if d.Gated {
		return 2 * d.Dim
	}
	return d.Dim
}

func (d HeadsShape) splitSpec() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:    "godflash_heads",
		Inputs:  []string{"q", "k", "v", "q_norm", "k_norm", "position", "inv_freq"},
		Outputs: []string{"queries", "keys", "values"},
		Metal:   metal(headsText + headsOutText), CUDA: cuda(headsText + headsOutText),
		Fallback: func(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
			q, k, v := d.compose(s, in, l)
			return []mlx.Array{q, k, v}
		},
	}
}

// compose is the split in operations, of inputs that begin as splitSpec's do.
func (d HeadsShape) compose(s *mlx.Scope, in []mlx.Array, l mlx.Launch) (q, k, v mlx.Array) {
	t := in[1].Dim(1)
	cut := func(a mlx.Array, at string, heads, width int) mlx.Array {
		return s.Reshape(Cols{a, templateInt(l, at), heads * width}.Take(s), 1, t, heads, width)
	}
	o := mlx.RoPEOptions{Dims: d.Rotated, Freqs: s.Reciprocal(in[6])}
	rotate := func(x, weight mlx.Array) mlx.Array {
		x = s.AsType(s.RMSNorm(x, weight, d.Eps), x.Dtype())
		return s.RoPEDynamic(s.SwapAxes(x, 1, 2), o, in[5])
	}
	if templateInt(l, "HQ") > 0 {
		q = cut(in[0], "QAT", d.Queries, d.queryWidth())
		if d.Gated {
			q = s.SliceAxis(q, 3, 0, d.Dim)
		}
		q = rotate(q, in[3])
	}
	return q, rotate(cut(in[1], "KAT", d.Keys, d.Dim), in[4]), s.SwapAxes(cut(in[2], "VAT", d.Keys, d.Dim), 1, 2)
}

// Split gives queries [1, heads, T, dim], and keys and values [1, key heads, T,
// dim], of the block whose first row is at position, int32 [1].
func (k *Heads) Split(s *mlx.Scope, q, key, v Cols, qNorm, kNorm, position, invFreq mlx.Array) (queries, keys, values mlx.Array) {
	out := k.shape.splitCall(q, key, v, qNorm, kNorm, position, invFreq).run(s, k.split)
	if len(out) != 3 {
		return mlx.Array{}, mlx.Array{}, mlx.Array{}
	}
	return out[0], out[1], out[2]
}

func (d HeadsShape) splitCall(q, k, v Cols, qNorm, kNorm, position, invFreq mlx.Array) call {
	t, dt := q.Array.Dim(1), q.Array.Dtype()
	heads := func(n int) mlx.Output { return mlx.Output{Dtype: dt, Shape: []int{1, n, t, d.Dim}} }
	return call{in: []mlx.Array{q.Array, k.Array, v.Array, qNorm, kNorm, position, invFreq}, launch: mlx.Launch{
		Outputs: []mlx.Output{heads(d.Queries), heads(d.Keys), heads(d.Keys)},
		Grid:    warps(t * (d.Queries + 2*d.Keys)), Group: [3]int{128},
		Template: d.splitTemplate(d.Queries, q, k, v),
	}}
}

func (d HeadsShape) splitTemplate(queries int, q, k, v Cols, more ...mlx.TemplateArg) []mlx.TemplateArg {
	return append([]mlx.TemplateArg{
		{Name: "T", Value: k.Array.Dtype()},
		{Name: "HQ", Value: queries},
		{Name: "HK", Value: d.Keys},
		{Name: "D", Value: d.Dim},
		{Name: "RD", Value: d.Rotated},
		{Name: "EPS", Value: floatBits(d.Eps)},
		{Name: "QSTEP", Value: d.queryWidth()},
		{Name: "QROW", Value: q.Array.Dim(2)},
		{Name: "QAT", Value: q.At},
		{Name: "KROW", Value: k.Array.Dim(2)},
		{Name: "KAT", Value: k.At},
		{Name: "VROW", Value: v.Array.Dim(2)},
		{Name: "VAT", Value: v.At},
	}, more...)
}

func (d HeadsShape) gateSpec() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:    "godflash_attention_gate",
		Inputs:  []string{"y", "q"},
		Outputs: []string{"o"},
		Metal:   metal(gateText), CUDA: cuda(gateText),
		Fallback: func(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
			t := in[1].Dim(1)
			q := s.Reshape(Cols{in[1], templateInt(l, "QAT"), 2 * d.Queries * d.Dim}.Take(s), 1, t, d.Queries, 2*d.Dim)
			y := s.Mul(s.SwapAxes(in[0], 1, 2), s.Sigmoid(s.SliceAxis(q, 3, d.Dim, 2*d.Dim)))
			return []mlx.Array{s.Reshape(y, 1, t, d.Queries*d.Dim)}
		},
	}
}

// Join puts the heads of y [1, heads, T, dim] side by side, [1, T, heads · dim],
// through the gates of q where the layers have them.
func (k *Heads) Join(s *mlx.Scope, y mlx.Array, q Cols) mlx.Array {
	if k.gate == nil {
		return s.Reshape(s.SwapAxes(y, 1, 2), 1, y.Dim(2), k.shape.Queries*k.shape.Dim)
	}
	out := k.shape.gateCall(y, q).run(s, k.gate)
	if len(out) != 1 {
		return mlx.Array{}
	}
	return out[0]
}

func (d HeadsShape) gateCall(y mlx.Array, q Cols) call {
	t, width := y.Dim(2), d.Queries*d.Dim
	blocks := (width + 255) / 256
	return call{in: []mlx.Array{y, q.Array}, launch: mlx.Launch{
		Outputs: []mlx.Output{{Dtype: y.Dtype(), Shape: []int{1, t, width}}},
		Grid:    [3]int{t * blocks * 256}, Group: [3]int{256},
		Template: []mlx.TemplateArg{
			{Name: "T", Value: y.Dtype()},
			{Name: "HQ", Value: d.Queries},
			{Name: "D", Value: d.Dim},
			{Name: "BLOCKS", Value: blocks},
			{Name: "QROW", Value: q.Array.Dim(2)},
			{Name: "QAT", Value: q.At},
		},
	}}
}
