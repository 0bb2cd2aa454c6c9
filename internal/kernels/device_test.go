package kernels

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// TestDeviceFigures times kernels against the operations that they replace, in
// the shapes of published models, on a GPU: GODFLASH_GPU=1 asks for it. It logs;
// docs/gpu.md has recorded runs. That the results agree is TestKernels' matter.
func TestDeviceFigures(t *testing.T) {
	if os.Getenv("GODFLASH_GPU") == "" {
		t.Skip("GODFLASH_GPU=1 runs it, on a machine with a GPU")
	}
	t.Run("gated delta", deltaFigures)
	t.Run("prompts through the gated delta rule", promptFigures)
	t.Run("4-bit products", q4Figures)
	t.Run("norms", rowFigures)
	t.Run("heads", headFigures)
	t.Run("mixtures", mixFigures)
}

// pace is the time of one step of a chain: f takes the step's result before it.
// Chains of n steps are evaluated at once; the fastest of five counts.
func pace(t *testing.T, s *mlx.Scope, n int, x mlx.Array, f func(s *mlx.Scope, x mlx.Array) mlx.Array) time.Duration {
	t.Helper()
	best := time.Duration(1<<62 - 1)
	for range 6 {
		start := time.Now()
		chain := s.Library().NewScope("chain")
		y := x
		for range n {
			y = f(chain, y)
		}
		require.NoError(t, chain.Eval(y))
		chain.Close()
		best = min(best, time.Since(start)/time.Duration(n))
	}
	return best
}

func micro(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// stock is a Set without kernels.
var stock *Set

func deltaFigures(t *testing.T) {
	for _, d := range []DeltaShape{
		{KeyHeads: 16, ValueHeads: 48, KeyDim: 128, ValueDim: 128, Taps: 4, Eps: 1e-6},
		{KeyHeads: 16, ValueHeads: 32, KeyDim: 128, ValueDim: 128, Taps: 4, Eps: 1e-6},
	} {
		do(t, func(s *mlx.Scope) {
			r := newSource(s, 5)
			set := New(t.Context(), s, nil)
			for _, rows := range []int{1, 8, 16} {
				q, in := deltaRows(r, d, rows)
				src := deltaInputs(r, d, mlx.BFloat16, rows, 0)
				src.Taps = s.Split(src.Conv, d.Taps, 0)
				z, w := All(r.normal(mlx.BFloat16, 0, 1, 1, rows, d.ValueHeads*d.ValueDim)), s.Ones(mlx.Float32, d.ValueDim)
				state := s.Zeros(mlx.Float32, 1, d.ValueHeads, d.KeyDim, d.ValueDim)
				require.NoError(t, s.Eval(q, in.K, in.V, in.G, in.Beta, state, src.Tail, src.QKV.Array, src.Conv, src.NegA, src.DtBias, z.Array, w))
				require.NoError(t, s.Eval(src.Taps...))
				scan := func(k *Delta) time.Duration {
					return pace(t, s, 50, state, func(s *mlx.Scope, x mlx.Array) mlx.Array {
						rows := in
						_, after := k.Scan(s, q, &rows, x)
						return after
					})
				}
				layer := func(k *Delta) time.Duration {
					return pace(t, s, 50, state, func(s *mlx.Scope, x mlx.Array) mlx.Array {
						q, rows, _, _ := k.In(s, src)
						y, after := k.Scan(s, q, &rows, x)
						k.Out(s, y, z, w)
						return after
					})
				}
				k := set.Delta(d)
				require.True(t, k.OnDevice())
				ops := stock.Delta(d)
				t.Logf("%d value heads, %d rows: scan %.1f µs, operations %.1f; with what is before %.1f, operations %.1f",
					d.ValueHeads, rows, micro(scan(k)), micro(scan(ops)), micro(layer(k)), micro(layer(ops)))
			}
		})
	}
}

// promptFigures are of runs that go by chunks, beside the same row by row.
func promptFigures(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		k := New(t.Context(), s, nil).Delta(DeltaShape{KeyHeads: 16, ValueHeads: 48, KeyDim: 128, ValueDim: 128, Taps: 4, Eps: 1e-6})
		all := newRuleInput(newSource(s, 5), k.shape, 4096, 0, -1, 1)
		for _, rows := range []int{128, 512, 2048, 4096} {
			cut := func(a mlx.Array) mlx.Array { return s.Contiguous(s.SliceAxis(a, 0, 0, rows)) }
			q, in := cut(all.q), DeltaRows{K: cut(all.in.K), V: cut(all.in.V), G: cut(all.in.G), Beta: cut(all.in.Beta)}
			require.NoError(t, s.Eval(q, in.K, in.V, in.G, in.Beta, all.state))
			figure := func(scan func(s *mlx.Scope, state mlx.Array) (y, after mlx.Array)) float64 {
				return micro(pace(t, s, 8, all.state, func(s *mlx.Scope, state mlx.Array) mlx.Array {
					_, after := scan(s, state)
					return after
				}))
			}
			chunks := figure(func(s *mlx.Scope, state mlx.Array) (y, after mlx.Array) { return k.Scan(s, q, &in, state) })
			require.True(t, k.chunks.serve(rows), "a kernel failed")
			t.Logf("%d value heads, %d rows: by chunks %.1f µs, row by row %.1f", k.shape.ValueHeads, rows, chunks,
				figure(func(s *mlx.Scope, state mlx.Array) (y, after mlx.Array) { return k.launch(s, q, &in, state, k.all) }))
		}
	})
}

// q4Figures go through pairs of weights, to and fro, more than the second cache holds.
func q4Figures(t *testing.T) {
	for _, shape := range [][2]int{{4096, 12288}, {4096, 4096}, {4096, 24576}, {5120, 17408}, {5120, 34816}, {5120, 16640}, {2048, 12288}, {2048, 512}} {
		do(t, func(s *mlx.Scope) {
			in, wide := shape[0], shape[1]
			set := New(t.Context(), s, nil)
			var weights []link
			key := s.Key(1)
			random := func(n, k int) link {
				q := s.Quantize(s.Normal(key, 0, 0.02, mlx.BFloat16, n, k), q4Options)
				c := set.Chain(s, Weight{Quant: q})
				require.True(t, c.Valid())
				require.NoError(t, s.Eval(q.W, q.Scales, q.Biases, c.counter))
				return link{c, q}
			}
			for range max(2, 200_000_000/(in*wide)) {
				weights = append(weights, random(wide, in), random(in, wide))
			}
			for _, rows := range []int{1, 8, 16} {
				x := newSource(s, 6).normal(mlx.BFloat16, 0, 1, 1, rows, in)
				require.NoError(t, s.Eval(x))
				through := func(product func(s *mlx.Scope, x mlx.Array, m *link) mlx.Array) float64 {
					d := pace(t, s, 4, x, func(s *mlx.Scope, x mlx.Array) mlx.Array {
						for i := range weights {
							x = product(s, x, &weights[i])
						}
						return x
					})
					return micro(d) * 2 / float64(len(weights))
				}
				kernel := func(s *mlx.Scope, x mlx.Array, m *link) mlx.Array {
					return m.call(set.none, Stream{X: x}, Around{}).run(s, set.product(m.t))[0]
				}
				operation := func(s *mlx.Scope, x mlx.Array, m *link) mlx.Array { return stock.QuantizedMatMul(s, x, m.q) }
				t.Logf("%d → %d → %d, %d rows: kernel %.1f µs, operation %.1f", in, wide, in, rows, through(kernel), through(operation))
				require.Equal(t, []string{"cuda", "cuda"}, []string{set.q4.Backend(), set.q4Wide.Backend()})
			}
			x := newSource(s, 6).normal(mlx.BFloat16, 0, 1, 1, 1024, in)
			require.NoError(t, s.Eval(x))
			many := func(set *Set) float64 {
				return micro(pace(t, s, 2, x, func(s *mlx.Scope, x mlx.Array) mlx.Array {
					return set.QuantizedMatMul(s, set.QuantizedMatMul(s, x, weights[0].q), weights[1].q)
				}))
			}
			t.Logf("%d → %d → %d, 1024 rows: written out %.0f µs, operation %.0f", in, wide, in, many(set), many(stock))
		})
	}
}

func rowFigures(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		set, r := New(t.Context(), s, nil), newSource(s, 7)
		for _, rows := range []int{1, 16} {
			x, y, w := r.normal(mlx.BFloat16, 0, 1, 1, rows, 4096), r.normal(mlx.BFloat16, 0, 1, 1, rows, 4096), s.Ones(mlx.Float32, 4096)
			require.NoError(t, s.Eval(x, y, w))
			norm := func(set *Set) float64 {
				return micro(pace(t, s, 100, x, func(s *mlx.Scope, x mlx.Array) mlx.Array { _, n := set.AddNorm(s, x, y, w, 1e-6); return n }))
			}
			wide := r.normal(mlx.BFloat16, 0, 1, 1, rows, 24576)
			require.NoError(t, s.Eval(wide))
			glu := func(set *Set) float64 {
				return micro(pace(t, s, 100, wide, func(s *mlx.Scope, x mlx.Array) mlx.Array {
					o := set.SwiGLU(s, Cols{x, 0, 12288}, Cols{x, 12288, 12288})
					return s.Concat(2, o, o)
				}))
			}
			t.Logf("%d rows of 4096: residual and norm %.1f µs, operations %.1f; swiglu to 12288 and a copy %.1f, operations %.1f", rows, norm(set), norm(stock), glu(set), glu(stock))
		}
	})
}

func headFigures(t *testing.T) {
	for _, d := range []HeadsShape{
		{Queries: 32, Keys: 8, Dim: 128, Rotated: 128, Eps: 1e-6},
		{Queries: 24, Keys: 4, Dim: 256, Rotated: 64, Gated: true, Eps: 1e-6},
	} {
		do(t, func(s *mlx.Scope) {
			set, r := New(t.Context(), s, nil), newSource(s, 8)
			k := set.Heads(d)
			for _, rows := range []int{1, 16} {
				nq, nk := d.Queries*d.queryWidth(), d.Keys*d.Dim
				x := r.normal(mlx.BFloat16, 0, 1, 1, rows, nq+2*nk)
				qn, kn, inv := s.Ones(mlx.Float32, d.Dim), s.Ones(mlx.Float32, d.Dim), InvFreq(s, mlx.RoPEOptions{Dims: d.Rotated, Base: 1e6})
				at := mlx.FromSlice(s, []int32{700})
				require.NoError(t, s.Eval(x, qn, kn, inv, at))
				run := func(f func(c call) []mlx.Array) float64 {
					return micro(pace(t, s, 50, x, func(s *mlx.Scope, x mlx.Array) mlx.Array {
						out := f(d.splitCall(Cols{x, 0, nq}, Cols{x, nq, nk}, Cols{x, nq + nk, nk}, qn, kn, at, inv))
						flat := []mlx.Array{s.Reshape(out[0], 1, rows, -1), s.Reshape(out[1], 1, rows, -1), s.Reshape(out[2], 1, rows, -1)}
						if d.Gated {
							flat = append(flat, s.Reshape(out[0], 1, rows, -1))
						}
						return s.Concat(2, flat...)
					}))
				}
				t.Logf("%d heads of %d, %d rows: %.1f µs, operations %.1f, both with a copy", d.Queries, d.Dim, rows,
					run(func(c call) []mlx.Array { return c.run(s, k.split) }),
					run(func(c call) []mlx.Array { return d.splitSpec().Fallback(s, c.in, c.launch) }))
			}
		})
	}
}

// mixFigures go through the layers of a mixture, whose experts are more than the
// second cache holds. The rate counts each weight that a layer's rows need once.
func mixFigures(t *testing.T) {
	for _, d := range []MixShape{
		{Experts: 256, TopK: 8, Hidden: 2048, Width: 512, Norm: true, Shared: true, Half: 32, Router: 8},
		{Experts: 128, TopK: 8, Hidden: 2048, Width: 768, Norm: true, Router: 8},
	} {
		do(t, func(s *mlx.Scope) {
			set := New(t.Context(), s, nil)
			key := uint64(0)
			random := func(bits int, shape ...int) mlx.Quantized {
				key++
				q := s.Quantize(s.Normal(s.Key(key), 0, 0.02, mlx.BFloat16, shape...), mlx.QuantizeOptions{Mode: mlx.Affine, GroupSize: 64, Bits: bits})
				require.NoError(t, s.Eval(q.W, q.Scales, q.Biases))
				return q
			}
			layers := make([]MixMaps, 3)
			for i := range layers {
				layers[i] = MixMaps{
					Router: Weight{Quant: random(8, d.Experts, d.Hidden)}, SharedGate: Weight{Quant: random(8, 1, d.Hidden)},
					Gate: random(4, d.Experts, d.Width, d.Hidden), Up: random(4, d.Experts, d.Width, d.Hidden), Down: random(4, d.Experts, d.Hidden, d.Width),
					SharedUp: random(4, 2*d.Width, d.Hidden), SharedDown: random(4, d.Hidden, d.Width),
				}
			}
			for _, tokens := range []int{128, 700, 2048} {
				rows := tokens * d.TopK
				x, order := newSource(s, 9).normal(mlx.BFloat16, 0, 1, rows, 1, d.Hidden), make([]int32, rows)
				for i := range order {
					order[i] = int32(i * d.Experts / rows)
				}
				ix := mlx.GatherOptions{RHS: mlx.FromSlice(s, order), Sorted: true}
				require.NoError(t, s.Eval(x, ix.RHS))
				products := func(f func(s *mlx.Scope, x mlx.Array, q mlx.Quantized) mlx.Array) float64 {
					return micro(pace(t, s, 2, x, func(s *mlx.Scope, x mlx.Array) mlx.Array {
						for _, m := range layers {
							x = f(s, s.Add(f(s, x, m.Gate), f(s, x, m.Up)), m.Down)
						}
						return x
					})) / float64(len(layers))
				}
				prompt, scores := s.Reshape(s.SliceAxis(x, 0, 0, tokens), 1, tokens, d.Hidden), newSource(s, 10).normal(mlx.Float32, 0, 1, tokens, d.Experts)
				require.NoError(t, s.Eval(prompt, scores))
				grouped := micro(pace(t, s, 2, prompt, func(s *mlx.Scope, x mlx.Array) mlx.Array {
					for _, m := range layers {
						var ok bool
						x, ok = set.Grouped(s, x, scores, d, m)
						require.True(t, ok)
					}
					return x
				})) / float64(len(layers))
				place := d.orderCall(prompt, s.Reshape(s.Remainder(s.Arange(0, float64(rows), 1, mlx.Int32), s.Scalar(float64(d.Experts), mlx.Int32)), tokens, d.TopK)).run(s, set.group.order)
				require.NoError(t, s.Eval(place...))
				alone := micro(pace(t, s, 2, place[2], func(s *mlx.Scope, x mlx.Array) mlx.Array {
					for _, m := range layers {
						h := d.groupUpCall(set.gpu, []mlx.Array{place[0], place[1], x}, m).run(s, set.group.product)
						x = d.groupDownCall(set.gpu, h[0], place, m).run(s, set.group.product)[0]
					}
					return x
				})) / float64(len(layers))
				t.Logf("%d experts of %d, %d tokens of a prompt: grouped %.0f µs a layer with choice, order and sum, its products alone %.0f, of rows divided evenly", d.Experts, d.Width, tokens, grouped, alone)
				t.Logf("%d experts of %d, %d tokens of a prompt: %.0f µs a layer packed, %.0f with weights written out", d.Experts, d.Width, tokens,
					products(func(s *mlx.Scope, x mlx.Array, q mlx.Quantized) mlx.Array { return s.GatherQMM(x, q, true, ix) }),
					products(func(s *mlx.Scope, x mlx.Array, q mlx.Quantized) mlx.Array {
						return s.GatherMM(x, s.SwapAxes(s.Dequantize(q, x.Dtype()), 1, 2), ix)
					}))
			}
			for _, rows := range []int{1, 8, 16} {
				x := newSource(s, 9).normal(mlx.BFloat16, 0, 1, 1, rows, d.Hidden)
				hit := map[[2]int32]bool{}
				for i, m := range layers {
					scores := d.scoresCall(set.none, Stream{X: x}, m, Around{}).run(s, set.mix.scores)
					chosen, err := mlx.ToSlice[int32](d.chooseCall(scores[0]).run(s, set.mix.choose)[0])
					require.NoError(t, err)
					for _, e := range chosen {
						hit[[2]int32{int32(i), e}] = true
					}
				}
				took := micro(pace(t, s, 4, x, func(s *mlx.Scope, y mlx.Array) mlx.Array {
					for _, m := range layers {
						out, ok := set.Mixture(s, Stream{X: s.Add(x, y)}, mlx.Array{}, d, m, Around{})
						require.True(t, ok)
						y = out.X
					}
					return y
				})) / float64(len(layers))
				experts := float64(len(hit))/float64(len(layers)) + float64(d.paired()-d.TopK)
				bytes := experts * float64(3*d.Hidden*d.Width) * 0.5625
				t.Logf("%d experts of %d, %d rows: %.1f µs a layer with a sum, %.0f experts, %.0f GB/s", d.Experts, d.Width, rows, took, experts, bytes/took/1e3)
			}
		})
	}
}
