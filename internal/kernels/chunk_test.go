package kernels

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

var chunkShapes = []DeltaShape{
	{KeyHeads: 2, ValueHeads: 6, KeyDim: 128, ValueDim: 64, Taps: 4, Eps: 1e-6},
	{KeyHeads: 1, ValueHeads: 1, KeyDim: 128, ValueDim: 32, Taps: 4, Eps: 1e-6},
}

// chunkTrials have grouped heads and single ones, whole chunks and a part of one.
func chunkTrials(s *mlx.Scope) []trial {
	var out []trial
	for i, d := range chunkShapes {
		for _, rows := range []int{1, 64, 75} {
			r := newSource(s, uint64(100*i+rows))
			q, in := deltaRows(r, d, rows)
			prepare := d.chunkPrepareCall(q, &in)
			name := fmt.Sprintf("chunks, shape %d, %d rows", i, rows)
			prepared := d.chunkPrepareSpec().Fallback(s, prepare.in, prepare.launch)
			state := r.normal(mlx.Float32, 0, 1, 1, d.ValueHeads, d.KeyDim, d.ValueDim)
			out = append(out,
				trial{name + ", prepared", d.chunkPrepareSpec(), prepare, 3e-6},
				trial{name + ", scanned", d.chunkScanSpec(), d.chunkScanCall(q, &in, prepared, state), 1e-5})
		}
	}
	return out
}

// ruleInput is a run of rows and the state before it.
type ruleInput struct {
	d        DeltaShape
	q, state mlx.Array
	in       DeltaRows
}

// newRuleInput has unit keys that share a part of themselves (0: nothing, 1: all),
// decays exp(x) with x from weakest to 0, and β nearer to 0 or 1 the larger spread is.
func newRuleInput(r source, d DeltaShape, rows int, share, weakest, spread float64) ruleInput {
	s := r.s
	q, in := deltaRows(r, d, rows)
	if share > 0 {
		same := r.normal(mlx.Float32, 0, share, 1, d.KeyHeads, d.KeyDim)
		in.K = d.unit(s, s.Add(r.normal(mlx.Float32, 0, 1-share, rows, d.KeyHeads, d.KeyDim), same), 1/math.Sqrt(float64(d.KeyDim)))
	}
	g := make([]float32, rows*d.ValueHeads)
	for i := range g {
		g[i] = float32(math.Exp(weakest * r.r.Float64()))
	}
	in.G, in.Beta = mlx.FromSlice(s, g, rows, d.ValueHeads), s.Sigmoid(r.normal(mlx.Float32, 0, spread, rows, d.ValueHeads))
	return ruleInput{d: d, q: q, in: in, state: r.normal(mlx.Float32, 0, 1, d.State()...)}
}

// exact runs the rule row by row in float64.
func (x *ruleInput) exact(t testing.TB, s *mlx.Scope) (y, after []float64) {
	d, rows := x.d, x.q.Dim(0)
	q, k, v, g, beta := floats(t, s, x.q), floats(t, s, x.in.K), floats(t, s, x.in.V), floats(t, s, x.in.G), floats(t, s, x.in.Beta)
	after = make([]float64, d.ValueHeads*d.KeyDim*d.ValueDim)
	for i, f := range floats(t, s, x.state) {
		after[i] = float64(f)
	}
	y = make([]float64, rows*d.ValueHeads*d.ValueDim)
	delta := make([]float64, d.ValueDim)
	for h := range d.ValueHeads {
		state := after[h*d.KeyDim*d.ValueDim:][:d.KeyDim*d.ValueDim]
		for r := range rows {
			at := r*d.ValueHeads + h
			of := (r*d.KeyHeads + h/(d.ValueHeads/d.KeyHeads)) * d.KeyDim
			for c := range delta {
				delta[c] = float64(v[at*d.ValueDim+c])
			}
			for i := range d.KeyDim {
				for c := range delta {
					state[i*d.ValueDim+c] *= float64(g[at])
					delta[c] -= float64(k[of+i]) * state[i*d.ValueDim+c]
				}
			}
			for i := range d.KeyDim {
				for c := range delta {
					state[i*d.ValueDim+c] += float64(k[of+i]) * float64(beta[at]) * delta[c]
					y[at*d.ValueDim+c] += float64(q[of+i]) * state[i*d.ValueDim+c]
				}
			}
		}
	}
	return y, after
}

// off is the largest deviation of got, relative to the largest value of want.
func off(t testing.TB, s *mlx.Scope, want []float64, got mlx.Array) float64 {
	g := floats(t, s, got)
	require.Len(t, g, len(want))
	var worst, most float64
	for i, w := range want {
		if !(math.Abs(float64(g[i])-w) <= worst) { // a NaN stays
			worst = math.Abs(float64(g[i]) - w)
		}
		most = max(most, math.Abs(w))
	}
	return worst / most
}

// ruleCases are decays strong and weak, β near 0 and 1, keys unlike and all the same.
var ruleCases = []struct{ share, weakest, spread float64 }{
	{0, -20, 1},
	{0, -0.01, 1},
	{0, -1, 30},
	{0, -200, 1}, // decays that are 0 in float32
	{0.9, -0.1, 30},
	{1, 0, 1},
	{1, -0.001, 30},
}

// ruleTolerance bounds deviations from float64; those of the sequential form in
// float32 come to 1.5e-6.
const ruleTolerance = 3e-6

// The chunked form in operations is the rule.
func TestChunks(t *testing.T) {
	for _, d := range []DeltaShape{
		{KeyHeads: 2, ValueHeads: 6, KeyDim: 64, ValueDim: 32},
		{KeyHeads: 1, ValueHeads: 1, KeyDim: 128, ValueDim: 128},
	} {
		for _, rows := range []int{64, 65, 200, 512} {
			for _, c := range ruleCases {
				do(t, func(s *mlx.Scope) {
					x := newRuleInput(newSource(s, uint64(rows)), d, rows, c.share, c.weakest, c.spread)
					y, after := x.exact(t, s)
					p := d.prepareChunks(s, x.q, x.in.K, x.in.G, x.in.Beta)
					out := d.scanChunks(s, x.q, x.in.K, x.in.V, p[0], p[1], p[2], x.state)
					require.NoError(t, s.Err())
					require.Less(t, off(t, s, y, out[0]), ruleTolerance, "%d rows, %+v", rows, c)
					require.Less(t, off(t, s, after, out[1]), ruleTolerance, "%d rows, %+v", rows, c)
				})
			}
		}
	}
}

// Both kernels' results are those of their operations.
func TestChunkKernels(t *testing.T) { checkAll(t, chunkTrials) }

// On CUDA a long run goes by chunks, and is the rule; elsewhere never.
func TestLongRun(t *testing.T) {
	ctx := WithComposed(t.Context())
	do(t, func(s *mlx.Scope) {
		k := New(ctx, s, nil).Delta(chunkShapes[0])
		cuda := k.scan.Backend() == "cuda"
		require.False(t, k.chunks.serve(chunksFrom-1))
		require.Equal(t, cuda, k.chunks.serve(chunksFrom))
		if !cuda {
			return
		}
		for _, rows := range []int{128, 129, 700} {
			for _, c := range ruleCases {
				x := newRuleInput(newSource(s, uint64(rows)), k.shape, rows, c.share, c.weakest, c.spread)
				y, after := x.exact(t, s)
				gotY, gotAfter := k.Scan(s, x.q, &x.in, x.state)
				rowY, rowAfter := k.launch(s, x.q, &x.in, x.state, k.all)
				t.Logf("%d rows, %+v: chunks off by %.1e and %.1e, row by row %.1e and %.1e", rows, c,
					off(t, s, y, gotY), off(t, s, after, gotAfter), off(t, s, y, rowY), off(t, s, after, rowAfter))
				require.Less(t, off(t, s, y, gotY), ruleTolerance)
				require.Less(t, off(t, s, after, gotAfter), ruleTolerance)
			}
		}
		require.True(t, k.chunks.serve(chunksFrom), "a kernel failed")
	})
}
