package kernels

import "github.com/godflash/godflash/mlx"

// addNormText adds a residual and normalises the sum: one threadgroup of 256 a
// row. The norm sees the sum as it is stored, rounded.
const addNormText = `
constexpr int N = (H + 255) / 256;
GF_GROUP float part[8];
float u[N];
for (int i = 0; i < N; i++) u[i] = tid + 256 * i < H ? (float)x[(size_t)bid * H + tid + 256 * i] : 0.0f;
if (ADD) {
  float v[N];
  for (int i = 0; i < N; i++) v[i] = tid + 256 * i < H ? (float)y[(size_t)bid * H + tid + 256 * i] : 0.0f;
  for (int i = 0; i < N; i++) u[i] = (float)(T)(u[i] + v[i]);
}
float w[N];
for (int i = 0; i < N; i++) w[i] = tid + 256 * i < H ? weight[tid + 256 * i] : 0.0f;
float squares = 0;
for (int i = 0; i < N; i++) squares += u[i] * u[i];
for (int o = 16; o > 0; o >>= 1) squares += GF_XOR(squares, o);
if ((tid & 31) == 0) part[tid >> 5] = squares;
GF_SYNC();
float total = 0;
for (int i = 0; i < 8; i++) total += part[i];
const float scale = GF_RSQRT(total / H + GF_FLOAT(EPS));
if (!ADD && bid == 0 && tid == 0) sum[0] = (T)0.0f;
for (int i = 0; i < N; i++) {
  const int c = tid + 256 * i;
  if (c < H) {
    if (ADD) sum[(size_t)bid * H + c] = (T)u[i];
    normed[(size_t)bid * H + c] = (T)(u[i] * scale * w[i]);
  }
}
`

// swigluText is silu(gate)·up where both lie in one row by turns, HALF of each,
// gate first.
const swigluText = `
const int row = bid / BLOCKS, c = (bid - row * BLOCKS) * 256 + tid;
if (c < F) {
  const size_t at = (size_t)row * 2 * F + c / HALF * 2 * HALF + c % HALF;
  const float a = (float)x[at], b = (float)x[at + HALF];
  o[(size_t)row * F + c] = (T)(a / (1.0f + GF_EXP(-a)) * b);
}
`

func addNormSpec() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:    "godflash_add_norm",
		Inputs:  []string{"x", "y", "weight"},
		Outputs: []string{"sum", "normed"},
		Metal:   metal(addNormText), CUDA: cuda(addNormText),
		Fallback: func(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
			x := in[0]
			if templateBool(l, "ADD") {
				x = s.Add(x, in[1])
			}
			out := s.AsType(s.RMSNorm(x, in[2], templateFloat(l, "EPS")), x.Dtype())
			if !templateBool(l, "ADD") {
				return []mlx.Array{s.Zeros(x.Dtype(), 1), out}
			}
			return []mlx.Array{x, out}
		},
	}
}

// AddNorm is x+y, and its root-mean-square norm times weight, float32; with the
// zero Array for y only the norm, and x itself. All have the dtype and shape of x.
func (set *Set) AddNorm(s *mlx.Scope, x, y, weight mlx.Array, eps float32) (sum, normed mlx.Array) {
	if set == nil || set.addNorm == nil || !weight.Valid() {
		if y.Valid() {
			x = s.Add(x, y)
		}
		normed = s.RMSNorm(x, weight, eps)
		if x.Dtype() != mlx.Float32 {
			normed = s.AsType(normed, x.Dtype())
		}
		return x, normed
	}
	out := addNormCall(x, y, weight, eps).run(s, set.addNorm)
	if len(out) != 2 {
		return mlx.Array{}, mlx.Array{}
	}
	if !y.Valid() {
		return x, out[1]
	}
	return out[0], out[1]
}

func addNormCall(x, y, weight mlx.Array, eps float32) call {
	shape, dt := x.Shape(), x.Dtype()
	h, rows := shape[len(shape)-1], rowsOf(shape)
	add, sum := y.Valid(), mlx.Output{Dtype: dt, Shape: shape}
	if !add {
		y, sum.Shape = x, []int{1} // nobody reads it
	}
	return call{in: []mlx.Array{x, y, weight}, launch: mlx.Launch{
		Outputs: []mlx.Output{sum, {Dtype: dt, Shape: shape}},
		Grid:    [3]int{rows * 256}, Group: [3]int{256},
		Template: []mlx.TemplateArg{{Name: "T", Value: dt}, {Name: "H", Value: h}, {Name: "ADD", Value: add}, {Name: "EPS", Value: floatBits(eps)}},
	}}
}

func swigluSpec() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:    "godflash_swiglu",
		Inputs:  []string{"x"},
		Outputs: []string{"o"},
		Metal:   metal(swigluText), CUDA: cuda(swigluText),
		Fallback: func(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
			return []mlx.Array{glu(s, in[0], templateInt(l, "HALF"))}
		},
	}
}

// glu is swigluText in operations.
func glu(s *mlx.Scope, x mlx.Array, half int) mlx.Array {
	shape := x.Shape()
	tiles := s.Reshape(x, -1, 2, half)
	gate, up := s.SliceAxis(tiles, 1, 0, 1), s.SliceAxis(tiles, 1, 1, 2)
	shape[len(shape)-1] /= 2
	return s.Reshape(s.Mul(s.SiLU(gate), up), shape...)
}

// SwiGLU is silu(gate)·up, both of the same width.
func (set *Set) SwiGLU(s *mlx.Scope, gate, up Cols) mlx.Array {
	if set == nil || set.swiglu == nil || gate.Array != up.Array || gate.At != 0 || up.At != gate.N || gate.Array.Dim(-1) != 2*gate.N {
		return s.Mul(s.SiLU(gate.Take(s)), up.Take(s))
	}
	return set.SwiGLUTiles(s, gate.Array, gate.N)
}

// SwiGLUTiles is silu(gate)·up where half of each lie in x [..., 2·width] by turns,
// gate first.
func (set *Set) SwiGLUTiles(s *mlx.Scope, x mlx.Array, half int) mlx.Array {
	if set == nil || set.swiglu == nil {
		return glu(s, x, half)
	}
	out := swigluCall(x, half).run(s, set.swiglu)
	if len(out) != 1 {
		return mlx.Array{}
	}
	return out[0]
}

func swigluCall(x mlx.Array, half int) call {
	shape, dt := x.Shape(), x.Dtype()
	last := len(shape) - 1
	f, rows := shape[last]/2, rowsOf(shape)
	shape[last] = f
	blocks := (f + 255) / 256
	return call{in: []mlx.Array{x}, launch: mlx.Launch{
		Outputs: []mlx.Output{{Dtype: dt, Shape: shape}},
		Grid:    [3]int{rows * blocks * 256}, Group: [3]int{256},
		Template: []mlx.TemplateArg{{Name: "T", Value: dt}, {Name: "F", Value: f}, {Name: "BLOCKS", Value: blocks}, {Name: "HALF", Value: half}},
	}}
}
