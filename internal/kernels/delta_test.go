package kernels

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// deltaInputs are random inputs of a layer whose projections lie in one array, with
// gaps where pad is set.
func deltaInputs(r source, d DeltaShape, dt mlx.Dtype, t, pad int) DeltaSource {
	ch, hv := d.channels(), d.ValueHeads
	all := r.normal(dt, 0, 1, 1, t, ch+2*hv+pad)
	return DeltaSource{
		Tail: r.normal(dt, 0, 1, 1, d.Taps-1, ch),
		QKV:  Cols{all, pad, ch}, B: Cols{all, pad + ch, hv}, A: Cols{all, pad + ch + hv, hv},
		Conv: r.normal(dt, 0, 0.5, d.Taps, ch), NegA: r.normal(mlx.Float32, -1, 0.2, hv), DtBias: r.normal(mlx.Float32, 0, 1, hv),
	}
}

// deltaRows are inputs of the scan as real ones are: unit keys, decay and β in (0, 1).
func deltaRows(r source, d DeltaShape, t int) (q mlx.Array, rows DeltaRows) {
	s := r.s
	return d.unit(s, r.normal(mlx.Float32, 0, 1, t, d.KeyHeads, d.KeyDim), 1/float64(d.KeyDim)), DeltaRows{
		K:    d.unit(s, r.normal(mlx.Float32, 0, 1, t, d.KeyHeads, d.KeyDim), 1/8.0),
		V:    r.normal(mlx.Float32, 0, 1, t, d.ValueHeads, d.ValueDim),
		G:    s.Sigmoid(r.normal(mlx.Float32, 2, 1, t, d.ValueHeads)),
		Beta: s.Sigmoid(r.normal(mlx.Float32, 0, 1, t, d.ValueHeads)),
	}
}

var deltaShapes = []DeltaShape{
	{KeyHeads: 2, ValueHeads: 6, KeyDim: 64, ValueDim: 64, Taps: 4, Eps: 1e-6},
	{KeyHeads: 1, ValueHeads: 1, KeyDim: 128, ValueDim: 128, Taps: 4, Eps: 1e-6},
	{KeyHeads: 2, ValueHeads: 2, KeyDim: 32, ValueDim: 96, Taps: 2, Eps: 1e-5},
}

// deltaTrials compares all three kernels with operations: sizes of real and of odd
// layers, one row and more than a threadgroup stages, all rows kept and some.
func deltaTrials(s *mlx.Scope) []trial {
	var out []trial
	for i, d := range deltaShapes {
		r := newSource(s, uint64(i))
		for _, t := range []int{1, 5, 16, 35} {
			for _, dt := range []mlx.Dtype{mlx.Float32, mlx.BFloat16} {
				if t > 5 && dt == mlx.BFloat16 {
					continue
				}
				// Operations round a bfloat16 convolution term by term.
				tolerance := map[mlx.Dtype]float64{mlx.Float32: 2e-6, mlx.BFloat16: 0.03}[dt]
				name := fmt.Sprintf("shape %d, %d rows, %v", i, t, dt)
				out = append(out,
					trial{"in, " + name, d.inSpec(), d.inCall(deltaInputs(r, d, dt, t, 3*i)), tolerance},
					trial{"out, " + name, d.outSpec(), d.outCall(r.normal(mlx.Float32, 0, 0.1, t, d.ValueHeads, d.ValueDim),
						Cols{r.normal(dt, 0, 1, 1, t, 3*i+d.ValueHeads*d.ValueDim), 3 * i, d.ValueHeads * d.ValueDim}, r.normal(mlx.Float32, 1, 0.1, d.ValueDim)), tolerance})
			}
			for _, n := range []int{t, 1, (t + 1) / 2, 1 << 30} {
				q, rows := deltaRows(r, d, t)
				state := r.normal(mlx.Float32, 0, 1, 1, d.ValueHeads, d.KeyDim, d.ValueDim)
				out = append(out, trial{
					fmt.Sprintf("scan, shape %d, %d of %d rows", i, n, t), d.scanSpec(),
					d.scanCall(q, &rows, state, mlx.FromSlice(s, []int32{int32(n)})), 3e-6,
				})
				if n <= t {
					convIn := r.normal([]mlx.Dtype{mlx.Float32, mlx.BFloat16}[t%2], 0, 1, 1, d.Taps-1+t, d.channels())
					blocks := []DeltaBlock{{rows, state, convIn}}
					if t == 5 { // in one launch with others
						for range 2 {
							_, rows := deltaRows(r, d, t)
							blocks = append(blocks, DeltaBlock{rows, r.normal(mlx.Float32, 0, 1, d.State()...), r.normal(convIn.Dtype(), 0, 1, convIn.Shape()...)})
						}
					}
					out = append(out, trial{
						fmt.Sprintf("keep, shape %d, %d of %d rows of %d layers", i, n, t, len(blocks)), d.keepSpec(len(blocks)),
						d.keepCall(blocks, mlx.FromSlice(s, []int32{int32(n)})), 3e-6,
					})
				}
			}
		}
	}
	return out
}

// A block's rows give the bits of single rows, and a replay of some of them the
// bits of having seen only these: what makes drafting exact in these layers.
func TestDeltaScanRowByRow(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		d := deltaShapes[0]
		r := newSource(s, 9)
		const rows, kept = 20, 18
		q, in := deltaRows(r, d, rows)
		state := r.normal(mlx.Float32, 0, 1, 1, d.ValueHeads, d.KeyDim, d.ValueDim)
		whole := d.scanCall(q, &in, state, mlx.FromSlice(s, []int32{rows}))
		run := runner(t, s, d.scanSpec(), whole)
		block := run(whole)
		convIn := r.normal(mlx.Float32, 0, 1, 1, d.Taps-1+rows, d.channels())
		keep := d.keepCall([]DeltaBlock{{in, state, convIn}}, mlx.FromSlice(s, []int32{kept}))
		replayed := runner(t, s, d.keepSpec(1), keep)(keep)
		row := func(a mlx.Array, i int) mlx.Array { return s.SliceAxis(a, 0, i, i+1) }
		size := len(block[0]) / rows
		for i := range rows {
			one := DeltaRows{K: row(in.K, i), V: row(in.V, i), G: row(in.G, i), Beta: row(in.Beta, i)}
			out := run(d.scanCall(row(q, i), &one, state, mlx.FromSlice(s, []int32{1})))
			require.Equal(t, block[0][i*size:(i+1)*size], out[0], "row %d", i)
			state = array(t, s, out[1], mlx.Output{Dtype: mlx.Float32, Shape: state.Shape()})
			if i+1 == kept {
				require.Equal(t, replayed[0], out[1])
			}
		}
		require.Equal(t, block[1], rawBytes(t, state))
	})
}
