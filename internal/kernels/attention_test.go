package kernels

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

var attentionShapes = []HeadsShape{
	{Queries: 4, Keys: 2, Dim: 64, Eps: 1e-6},
	{Queries: 6, Keys: 1, Dim: 256, Gated: true, Eps: 1e-6},
}

// attentionCase is a block of rows at a position in a cache.
type attentionCase struct {
	shape                   HeadsShape
	see                     See
	at, rows, base          int       // the row of the cache, and the position of its row 0
	q, keys, values, within mlx.Array // within holds queries and gates in columns
}

func attentionCases(s *mlx.Scope) []attentionCase {
	var out []attentionCase
	r := newSource(s, 10)
	for i, d := range attentionShapes {
		for _, at := range []int{0, 3, 130, 200, 2100} { // a block has one tile, none, or three
			for _, rows := range []int{1, 5, 16} {
				for _, see := range []See{{Causal: true}, {}, {Causal: true, Size: 70}, {Causal: true, Size: 1500}} {
					if i > 0 && see != (See{Causal: true}) || rows == 5 && (at == 3 || at == 2100) || see.Size > at && see.Size > 70 {
						continue
					}
					capacity := (at + rows + 255) / 256 * 256
					bf := func(shape ...int) mlx.Array { return r.normal(mlx.BFloat16, 0, 1, shape...) }
					out = append(out, attentionCase{
						d, see, at, rows, rows / 5 % 2 * 1000, bf(1, d.Queries, rows, d.Dim), bf(1, d.Keys, capacity, d.Dim), bf(1, d.Keys, capacity, d.Dim),
						bf(1, rows, 7+d.Queries*d.queryWidth()),
					})
				}
			}
		}
	}
	return out
}

func (c attentionCase) call(s *mlx.Scope) call {
	return c.shape.attentionCall(c.q, c.keys, c.values, c.place(s), c.see, float32(1/math.Sqrt(float64(c.shape.Dim))))
}

func (c attentionCase) place(s *mlx.Scope) Place {
	number := func(n int) mlx.Array { return mlx.FromSlice(s, []int32{int32(n)}) }
	p := Place{Position: number(c.base + c.at)}
	if c.base > 0 {
		p.Base = number(c.base)
	}
	return p
}

func (c attentionCase) cols() Cols { return Cols{c.within, 7, c.shape.Queries * c.shape.queryWidth()} }

// want is MLX's own attention in float32, with a mask, gated.
func (c attentionCase) want(s *mlx.Scope) mlx.Array {
	d := c.shape
	capacity := c.keys.Dim(2)
	seen := make([]bool, c.rows*capacity)
	for r := range c.rows {
		for k := range capacity {
			last := c.at + c.rows - 1
			if c.see.Causal {
				last = c.at + r
			}
			seen[r*capacity+k] = k <= last && (c.see.Size == 0 || k > c.at+r-c.see.Size)
		}
	}
	f := func(a mlx.Array) mlx.Array { return s.AsType(a, mlx.Float32) }
	y := s.Attention(f(c.q), f(c.keys), f(c.values), mlx.AttentionOptions{Scale: float32(1 / math.Sqrt(float64(d.Dim))), Mask: mlx.FromSlice(s, seen, c.rows, capacity)})
	y = s.SwapAxes(y, 1, 2)
	if d.Gated {
		q := s.Reshape(f(c.cols().Take(s)), 1, c.rows, d.Queries, 2*d.Dim)
		y = s.Mul(y, s.Sigmoid(s.SliceAxis(q, 3, d.Dim, 2*d.Dim)))
	}
	return s.Reshape(y, 1, c.rows, d.Queries*d.Dim)
}

// attentionTrials are the second step, on the first step's result in operations.
func attentionTrials(s *mlx.Scope) []trial {
	var out []trial
	for i, c := range attentionCases(s) {
		first := trial{fmt.Sprintf("attention %d", i), c.shape.attentionSpec(), c.call(s), 0}
		parts := first.spec.Fallback(s, first.call.in, first.call.launch)
		out = append(out, first, trial{fmt.Sprintf("join %d", i), c.shape.joinSpec(), c.shape.joinCall(parts[0], parts[1], c.cols()), 0.02})
	}
	return out
}

// joinTrials are parts of which all have weight, or some.
func joinTrials(s *mlx.Scope) []trial {
	var out []trial
	r := newSource(s, 13)
	for i, d := range attentionShapes {
		for _, live := range []float64{3, 0} {
			weights := s.Concat(-1, r.normal(mlx.Float32, 0, 2, splits, 3, d.Queries, 1), s.Maximum(r.normal(mlx.Float32, live, 1, splits, 3, d.Queries, 1), s.Scalar(0, mlx.Float32)))
			q := Cols{r.normal(mlx.Float32, 0, 1, 1, 3, 7+d.Queries*d.queryWidth()), 7, d.Queries * d.queryWidth()}
			call := d.joinCall(r.normal(mlx.Float32, 0, 1, splits, 3, d.Queries, d.Dim), weights, q)
			out = append(out, trial{fmt.Sprintf("join of shape %d, weights around %v", i, live), d.joinSpec(), call, 1e-5})
		}
	}
	return out
}

// Both steps, as kernels and as operations, give MLX's attention.
func TestAttention(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		trials := attentionTrials(s)
		require.NoError(t, s.Err())
		var sh *shim
		if lib.Device() == mlx.DeviceCPU {
			sh = newShim(t, trials)
		}
		run := func(spec mlx.KernelSpec, c call) []mlx.Array {
			if sh == nil {
				k := s.NewKernel(spec, nil)
				out := c.run(s, k)
				require.NoError(t, s.Err())
				require.Equal(t, "cuda", k.Backend())
				return out
			}
			var out []mlx.Array
			for i, raw := range sh.run(t, spec, spec.CUDA, c) {
				out = append(out, array(t, s, raw, c.launch.Outputs[i]))
			}
			return out
		}
		for i, c := range attentionCases(s) {
			parts := run(c.shape.attentionSpec(), c.call(s))
			got := run(c.shape.joinSpec(), c.shape.joinCall(parts[0], parts[1], c.cols()))
			second := trials[2*i+1]
			near(t, s, c.want(s), got[0], 0.02, "case %d, kernels: %+v at %d, %d rows", i, c.see, c.at, c.rows)
			near(t, s, c.want(s), second.spec.Fallback(s, second.call.in, second.call.launch)[0], 0.02, "case %d, operations", i)
		}
	})
}

// A row has the same bits alone and in any block: the kernels' part in that drafted
// and plain decoding are the same on a GPU, too.
func TestAttentionRowByRow(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		for i, d := range attentionShapes {
			for _, see := range []See{{Causal: true}, {Causal: true, Size: 70}} {
				const rows, at, capacity = 16, 1018, 1280 // over the border of tiles
				r := newSource(s, 12)
				bf := func(shape ...int) mlx.Array { return r.normal(mlx.BFloat16, 0, 1, shape...) }
				c := attentionCase{d, see, at, rows, 0, bf(1, d.Queries, rows, d.Dim), bf(1, d.Keys, capacity, d.Dim), bf(1, d.Keys, capacity, d.Dim), r.normal(mlx.Float32, 0, 1, 1, rows, 7+d.Queries*d.queryWidth())} // float32: nothing is rounded away
				part := func(from, to int) attentionCase {
					one := c
					one.at, one.rows = at+from, to-from
					one.q, one.within = s.Contiguous(s.SliceAxis(c.q, 2, from, to)), s.Contiguous(s.SliceAxis(c.within, 1, from, to))
					return one
				}
				none := func(c attentionCase) call {
					parts := c.shape.attentionSpec().Fallback(s, c.call(s).in, c.call(s).launch)
					return c.shape.joinCall(parts[0], parts[1], c.cols())
				}
				attend, join := runner(t, s, d.attentionSpec(), c.call(s)), runner(t, s, d.joinSpec(), none(c))
				run := func(c attentionCase) []byte {
					first := c.call(s)
					raw := attend(first)
					return join(c.shape.joinCall(array(t, s, raw[0], first.launch.Outputs[0]), array(t, s, raw[1], first.launch.Outputs[1]), c.cols()))[0]
				}
				whole := run(c)
				size := len(whole) / rows
				for _, k := range []int{0, 5, 6, 15} {
					require.Equal(t, whole[k*size:(k+1)*size], run(part(k, k+1)), "shape %d, row %d", i, k)
				}
				require.Equal(t, whole[4*size:9*size], run(part(4, 9)), "shape %d", i)
			}
		}
	})
}

// Where the attention's kernel fails, its operations read the keys without waiting
// for the queries: what made these is handed to the device before, and nothing is
// written in place from then on.
func TestAttentionFails(t *testing.T) {
	if lib.Device() == mlx.DeviceGPU {
		t.Skip("there it does not fail")
	}
	do(t, func(s *mlx.Scope) {
		c := attentionCases(s)[4]
		spec := c.shape
		k := &Heads{
			shape: spec, set: &Set{},
			into: s.NewKernel(spec.intoSpec(), nil), attention: s.NewKernel(spec.attentionSpec(), nil), join: s.NewKernel(spec.joinSpec(), nil),
		}
		require.True(t, k.InPlace(mlx.BFloat16))
		require.False(t, k.InPlace(mlx.Float16), "it is written for bfloat16")
		const size = 32 << 20
		require.NoError(t, s.Eval(c.keys, c.values, c.within, c.q))
		q := s.Add(c.q, s.AsType(s.Sum(s.Sub(s.Ones(mlx.Float32, size/4), s.Scalar(1, mlx.Float32)), false), mlx.BFloat16))
		require.NoError(t, lib.ResetPeak(t.Context()))
		before, err := lib.Memory(t.Context())
		require.NoError(t, err)
		y := k.Attend(s, q, c.keys, c.values, c.place(s), c.see, float32(1/math.Sqrt(float64(c.shape.Dim))), c.cols())
		require.NoError(t, s.Eval(s.Neg(c.within))) // waits for what is on its way
		after, err := lib.Memory(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, after.Peak-before.Active, int64(size))
		require.False(t, k.InPlace(mlx.BFloat16))
		got, err := mlx.ToSlice[float32](s.AsType(y, mlx.Float32))
		require.NoError(t, err)
		want, err := mlx.ToSlice[float32](s.Contiguous(s.AsType(c.want(s), mlx.Float32)))
		require.NoError(t, err)
		for i, w := range want {
			require.InDelta(t, w, got[i], 0.02)
		}
	})
}
