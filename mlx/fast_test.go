package mlx_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

func TestLinear(t *testing.T) {
	a := func(s *mlx.Scope) mlx.Array { return f32(s, []int{2, 3}, 1, 2, 3, 4, 5, 6) }
	b := func(s *mlx.Scope) mlx.Array { return f32(s, []int{3, 2}, 1, 0, 0, 1, 1, 1) }
	run(t, []opCase{
		{"matmul", func(s *mlx.Scope) mlx.Array { return s.MatMul(a(s), b(s)) }, mlx.Float32, []int{2, 2}, []float64{4, 5, 10, 11}},
		{"matmul bf16", func(s *mlx.Scope) mlx.Array {
			return s.MatMul(s.AsType(a(s), mlx.BFloat16), s.AsType(b(s), mlx.BFloat16))
		}, mlx.BFloat16, []int{2, 2}, []float64{4, 5, 10, 11}},
		{"matmul vector", func(s *mlx.Scope) mlx.Array { return s.MatMul(a(s), f32(s, []int{3}, 1, 1, 1)) }, mlx.Float32, []int{2}, []float64{6, 15}},
		{"matmul batch", func(s *mlx.Scope) mlx.Array {
			return s.MatMul(f32(s, []int{2, 1, 2}, 1, 2, 3, 4), f32(s, []int{2, 1}, 1, 10))
		}, mlx.Float32, []int{2, 1, 1}, []float64{21, 43}},
		{"matmul of nothing", func(s *mlx.Scope) mlx.Array {
			return s.MatMul(s.Zeros(mlx.Float32, 2, 0), s.Zeros(mlx.Float32, 0, 1))
		}, mlx.Float32, []int{2, 1}, []float64{0, 0}},
		{"addmm", func(s *mlx.Scope) mlx.Array { return s.AddMM(f32(s, []int{2}, 1, 2), a(s), b(s), 0.5, 10) }, mlx.Float32, []int{2, 2}, []float64{12, 22.5, 15, 25.5}},
		// The kernel is not flipped: y[t] = x[t] + 10 x[t+1].
		{"conv", func(s *mlx.Scope) mlx.Array {
			return s.Conv1d(f32(s, []int{1, 4, 1}, 1, 2, 3, 4), f32(s, []int{1, 2, 1}, 1, 10), mlx.Conv1dOptions{})
		}, mlx.Float32, []int{1, 3, 1}, []float64{21, 32, 43}},
		{"conv padded, strided, dilated", func(s *mlx.Scope) mlx.Array {
			return s.Conv1d(f32(s, []int{1, 4, 1}, 1, 2, 3, 4), f32(s, []int{1, 2, 1}, 1, 10), mlx.Conv1dOptions{Stride: 2, Padding: 1, Dilation: 2})
		}, mlx.Float32, []int{1, 2, 1}, []float64{20, 42}},
		{"conv by channel", func(s *mlx.Scope) mlx.Array {
			return s.Conv1d(f32(s, []int{1, 2, 2}, 1, 2, 3, 4), f32(s, []int{2, 2, 1}, 1, 1, 1, -1), mlx.Conv1dOptions{Groups: 2})
		}, mlx.Float32, []int{1, 1, 2}, []float64{4, -2}},
	})
}

func TestNorms(t *testing.T) {
	x := func(s *mlx.Scope) mlx.Array { return f32(s, []int{2, 2}, 3, 4, -1, 1) }
	r, u := 1/math.Sqrt(12.5+0.5), 1/math.Sqrt(1+0.5)
	v, w := 1/math.Sqrt(0.25+0.5), 1/math.Sqrt(1+0.5)
	run(t, []opCase{
		{"rms", func(s *mlx.Scope) mlx.Array { return s.RMSNorm(x(s), f32(s, []int{2}, 1, 10), 0.5) }, mlx.Float32, []int{2, 2}, []float64{3 * r, 40 * r, -u, 10 * u}},
		{"rms without weight", func(s *mlx.Scope) mlx.Array { return s.RMSNorm(x(s), mlx.Array{}, 0.5) }, mlx.Float32, []int{2, 2}, []float64{3 * r, 4 * r, -u, u}},
		{"layer", func(s *mlx.Scope) mlx.Array {
			return s.LayerNorm(x(s), f32(s, []int{2}, 1, 10), f32(s, []int{2}, 0, 1), 0.5)
		}, mlx.Float32, []int{2, 2}, []float64{-0.5 * v, 5*v + 1, -w, 10*w + 1}},
		{"layer alone", func(s *mlx.Scope) mlx.Array { return s.LayerNorm(x(s), mlx.Array{}, mlx.Array{}, 0.5) }, mlx.Float32, []int{2, 2}, []float64{-0.5 * v, 0.5 * v, -w, w}},
	})
}

// rope is the rotation by hand for x of one head, rows at positions from offset.
func rope(x [][]float64, dims int, traditional bool, freq func(i int) float64, offset float64) []float64 {
	var out []float64
	for t, row := range x {
		r := append([]float64(nil), row...)
		for i := range dims / 2 {
			p, q := i, i+dims/2
			if traditional {
				p, q = 2*i, 2*i+1
			}
			sin, cos := math.Sincos((offset + float64(t)) * freq(i))
			r[p], r[q] = row[p]*cos-row[q]*sin, row[p]*sin+row[q]*cos
		}
		out = append(out, r...)
	}
	return out
}

func TestRoPE(t *testing.T) {
	rows := [][]float64{{1, 2, 3, 4, 5}, {-1, 0.5, 2, 1, 7}}
	x := func(s *mlx.Scope) mlx.Array { return f32(s, []int{1, 1, 2, 5}, 1, 2, 3, 4, 5, -1, 0.5, 2, 1, 7) }
	base := func(b float64) func(int) float64 {
		return func(i int) float64 { return math.Pow(b, -2*float64(i)/4) }
	}
	waves := func(i int) float64 { return 1 / []float64{2, 8}[i] }
	scalar := func(s *mlx.Scope) mlx.Array { return s.Scalar(3, mlx.Int32) }
	shape := []int{1, 1, 2, 5}
	freqs := func(s *mlx.Scope) mlx.Array { return f32(s, []int{2}, 2, 8) }
	run(t, []opCase{
		{"halves", func(s *mlx.Scope) mlx.Array { return s.RoPE(x(s), mlx.RoPEOptions{Dims: 4, Base: 100}, 3) }, mlx.Float32, shape, rope(rows, 4, false, base(100), 3)},
		{"neighbours", func(s *mlx.Scope) mlx.Array {
			return s.RoPE(x(s), mlx.RoPEOptions{Dims: 4, Base: 100, Traditional: true}, 3)
		}, mlx.Float32, shape, rope(rows, 4, true, base(100), 3)},
		{"default base", func(s *mlx.Scope) mlx.Array { return s.RoPE(x(s), mlx.RoPEOptions{Dims: 4}, 3) }, mlx.Float32, shape, rope(rows, 4, false, base(10000), 3)},
		{"scale", func(s *mlx.Scope) mlx.Array { return s.RoPE(x(s), mlx.RoPEOptions{Dims: 4, Base: 100, Scale: 0.5}, 0) }, mlx.Float32, shape, rope(rows, 4, false, func(i int) float64 { return 0.5 * base(100)(i) }, 0)},
		{"wavelengths", func(s *mlx.Scope) mlx.Array { return s.RoPE(x(s), mlx.RoPEOptions{Dims: 4, Freqs: freqs(s)}, 3) }, mlx.Float32, shape, rope(rows, 4, false, waves, 3)},
		{"dynamic", func(s *mlx.Scope) mlx.Array {
			return s.RoPEDynamic(x(s), mlx.RoPEOptions{Dims: 4, Base: 100}, scalar(s))
		}, mlx.Float32, shape, rope(rows, 4, false, base(100), 3)},
		{"dynamic wavelengths", func(s *mlx.Scope) mlx.Array {
			return s.RoPEDynamic(x(s), mlx.RoPEOptions{Dims: 4, Freqs: freqs(s)}, scalar(s))
		}, mlx.Float32, shape, rope(rows, 4, false, waves, 3)},
	})
}

// attention by hand for one head of query.
func attention(q, k, v [][]float64, scale float64, seen func(i, j int) bool, sink []float64) []float64 {
	var out []float64
	for i := range q {
		sum, row := 0.0, make([]float64, len(v[0]))
		if sink != nil {
			sum = math.Exp(sink[0])
		}
		for j := range k {
			if !seen(i, j) {
				continue
			}
			dot := 0.0
			for d := range q[i] {
				dot += q[i][d] * k[j][d]
			}
			e := math.Exp(dot * scale)
			sum += e
			for d := range row {
				row[d] += e * v[j][d]
			}
		}
		for d := range row {
			out = append(out, row[d]/sum)
		}
	}
	return out
}

func TestAttention(t *testing.T) {
	q := [][]float64{{1, 0}, {0.5, -1}}
	k := [][]float64{{1, 1}, {0, 2}, {-1, 1}}
	v := [][]float64{{1, 2}, {3, 4}, {5, 7}}
	arrays := func(s *mlx.Scope) (mlx.Array, mlx.Array, mlx.Array) {
		return f32(s, []int{1, 1, 2, 2}, 1, 0, 0.5, -1), f32(s, []int{1, 1, 3, 2}, 1, 1, 0, 2, -1, 1), f32(s, []int{1, 1, 3, 2}, 1, 2, 3, 4, 5, 7)
	}
	with := func(o func(s *mlx.Scope) mlx.AttentionOptions) func(s *mlx.Scope) mlx.Array {
		return func(s *mlx.Scope) mlx.Array {
			a, b, c := arrays(s)
			return s.Attention(a, b, c, o(s))
		}
	}
	all := func(int, int) bool { return true }
	causal := func(i, j int) bool { return j <= i+1 } // aligned at the lower right
	odd := func(i, j int) bool { return (i+j)%2 == 0 }
	shape := []int{1, 1, 2, 2}
	run(t, []opCase{
		{"plain", with(func(*mlx.Scope) mlx.AttentionOptions { return mlx.AttentionOptions{Scale: 0.25} }), mlx.Float32, shape, attention(q, k, v, 0.25, all, nil)},
		{"default scale", with(func(*mlx.Scope) mlx.AttentionOptions { return mlx.AttentionOptions{} }), mlx.Float32, shape, attention(q, k, v, 1/math.Sqrt2, all, nil)},
		{"causal", with(func(*mlx.Scope) mlx.AttentionOptions { return mlx.AttentionOptions{Scale: 1, Causal: true} }), mlx.Float32, shape, attention(q, k, v, 1, causal, nil)},
		{"mask", with(func(s *mlx.Scope) mlx.AttentionOptions {
			return mlx.AttentionOptions{Scale: 1, Mask: mlx.FromSlice(s, []bool{true, false, true, false, true, false}, 2, 3)}
		}), mlx.Float32, shape, attention(q, k, v, 1, odd, nil)},
		{"added mask", with(func(s *mlx.Scope) mlx.AttentionOptions {
			n := float32(math.Inf(-1))
			return mlx.AttentionOptions{Scale: 1, Mask: f32(s, []int{2, 3}, 0, n, 0, n, 0, n)}
		}), mlx.Float32, shape, attention(q, k, v, 1, odd, nil)},
		{"sinks", with(func(s *mlx.Scope) mlx.AttentionOptions {
			return mlx.AttentionOptions{Scale: 1, Sinks: f32(s, []int{1}, 0.5)}
		}), mlx.Float32, shape, attention(q, k, v, 1, all, []float64{0.5})},
		{"two heads on one key head", func(s *mlx.Scope) mlx.Array {
			_, b, c := arrays(s)
			return s.Attention(f32(s, []int{1, 2, 1, 2}, 1, 0, 0.5, -1), b, c, mlx.AttentionOptions{Scale: 1})
		}, mlx.Float32, []int{1, 2, 1, 2}, attention(q, k, v, 1, all, nil)},
	})
}

// The rows of a block must be what single rows give, bit for bit: on the CPU in
// float32 speculative output equals plain output because of this.
func TestRowInvarianceOnCPU(t *testing.T) {
	lib := open(t)
	if lib.Device() != mlx.DeviceCPU {
		t.Skip("a property of the CPU backend; this library runs on " + lib.Device().String())
	}
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		const rows, in, out = 16, 64, 48
		x := s.Sin(s.Reshape(s.Arange(0, rows*in, 1, mlx.Float32), rows, in))
		w := s.Cos(s.Reshape(s.Arange(0, in*out, 1, mlx.Float32), in, out))
		block, err := mlx.ToSlice[float32](s.MatMul(s.RMSNorm(x, mlx.Array{}, 1e-6), w))
		require.NoError(t, err)
		for i := range rows {
			row, err := mlx.ToSlice[float32](s.MatMul(s.RMSNorm(s.SliceAxis(x, 0, i, i+1), mlx.Array{}, 1e-6), w))
			require.NoError(t, err)
			require.Equal(t, block[i*out:(i+1)*out], row, "row %d", i)
		}
		return nil
	}))
}
