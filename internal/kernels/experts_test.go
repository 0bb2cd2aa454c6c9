package kernels

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// mixtures are shapes with all that the texts tell apart: experts beside and without
// a shared one, gates and ups of it one after the other and by turns, routers in 8
// bits and in bfloat16, columns of less than a warp's turn, of one turn and more.
func mixtures() []MixShape {
	return []MixShape{
		{Experts: 8, TopK: 4, Hidden: 256, Width: 128, Norm: true, Router: 8},
		{Experts: 40, TopK: 2, Hidden: 640, Width: 128, Norm: true, Shared: true, Half: 128, Router: 8},
		{Experts: 16, TopK: 2, Hidden: 128, Width: 640, Shared: true, Half: 32, Router: 16},
	}
}

// maps are random weights for a shape.
func (d MixShape) maps(r source) MixMaps {
	quantized := func(o mlx.QuantizeOptions, shape ...int) mlx.Quantized {
		return r.s.Quantize(r.normal(mlx.BFloat16, 0, 0.1, shape...), o)
	}
	router := func(out int) Weight {
		if d.Router == 16 {
			return Weight{Dense: r.normal(mlx.BFloat16, 0, 0.1, out, d.Hidden)}
		}
		return Weight{Quant: quantized(mlx.QuantizeOptions{Mode: mlx.Affine, GroupSize: 64, Bits: 8}, out, d.Hidden)}
	}
	return MixMaps{
		Router: router(d.Experts), SharedGate: router(1),
		Gate: quantized(q4Options, d.Experts, d.Width, d.Hidden), Up: quantized(q4Options, d.Experts, d.Width, d.Hidden),
		Down:     quantized(q4Options, d.Experts, d.Hidden, d.Width),
		SharedUp: quantized(q4Options, 2*d.Width, d.Hidden), SharedDown: quantized(q4Options, d.Hidden, d.Width),
	}
}

// mixCalls are the four launches of a block, each on results of the operations.
func mixCalls(s *mlx.Scope, d MixShape, m MixMaps, x Stream, a Around) []trial {
	out := []trial{{"scores", scoresSpec(), d.scoresCall(s.Zeros(mlx.Float32, 1), x, m, a), 0.01}}
	next := func() []mlx.Array {
		last := out[len(out)-1]
		return last.spec.Fallback(s, last.call.in, last.call.launch)
	}
	scores, in := next(), x.X
	if a.Norm.Valid() {
		in = scores[1]
	}
	out = append(out, trial{"choice", chooseSpec(), d.chooseCall(scores[0]), 1e-5})
	choice := next()
	out = append(out, trial{"up", upSpec(), d.upCall(in, choice[0], m), 0.02})
	h := next()[0]
	return append(out, trial{"down", downSpec(), d.downCall(h, choice[0], choice[1], m, a), 0.02})
}

// around is what a chain does around a mixture of some shape.
func (d MixShape) around(r source, x mlx.Array) (Stream, Around) {
	a := Around{Norm: r.normal(mlx.Float32, 1, 0.3, d.Hidden), Eps: 1e-6, Residual: x, Sums: true}
	return Stream{X: x, Sums: r.s.Abs(r.normal(mlx.Float32, float64(d.Hidden)/3, 1, x.Dim(1), 3))}, a
}

func expertsTrials(s *mlx.Scope) []trial {
	var out []trial
	r := newSource(s, 31)
	for i, d := range mixtures() {
		m := d.maps(r)
		for _, rows := range [][]int{{7}, {1, 5, 16}, {2}}[i] {
			x, a := d.around(r, r.normal(mlx.BFloat16, 0, 1, 1, rows, d.Hidden))
			if i == 0 {
				x, a = Stream{X: x.X}, Around{}
			}
			for _, tr := range mixCalls(s, d, m, x, a) {
				tr.name = fmt.Sprintf("%s of %d of %d experts, %d rows of %d", tr.name, d.TopK, d.Experts, rows, d.Hidden)
				out = append(out, tr)
			}
		}
	}
	return out
}

// A row has the same bits whatever block it stands in, through all four launches.
func TestExpertsRowByRow(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		const rows = 9
		r := newSource(s, 32)
		var blocks []trial
		var single [rows][]trial
		for _, d := range mixtures()[1:] {
			m := d.maps(r)
			x, a := d.around(r, r.normal(mlx.BFloat16, 0, 1, 1, rows, d.Hidden))
			blocks = append(blocks, mixCalls(s, d, m, x, a)...)
			for i := range rows {
				one := a
				one.Residual = s.SliceAxis(a.Residual, 1, i, i+1)
				single[i] = append(single[i], mixCalls(s, d, m, Stream{one.Residual, s.SliceAxis(x.Sums, 0, i, i+1)}, one)...)
			}
		}
		run := launcher(t, s, blocks)
		for n, block := range blocks {
			whole := run(block)
			for i := range rows {
				one := single[i][n]
				// The row's own inputs, of the block's operations.
				for j, a := range block.call.in[:min(3, len(block.call.in))] {
					switch {
					case a.NDim() == 3 && a.Dim(0) == 1:
						one.call.in[j] = s.Contiguous(s.SliceAxis(a, 1, i, i+1))
					case a.Dim(0) == rows:
						one.call.in[j] = s.Contiguous(s.SliceAxis(a, 0, i, i+1))
					}
				}
				for k, raw := range run(one) {
					require.Equal(t, whole[k][i*len(raw):(i+1)*len(raw)], raw, "%s: row %d, output %d", one.name, i, k)
				}
			}
		}
	})
}

// launcher is runner for several kernels.
func launcher(t *testing.T, s *mlx.Scope, trials []trial) func(tr trial) [][]byte {
	if lib.Device() == mlx.DeviceGPU {
		runs := map[string]func(call) [][]byte{}
		for _, tr := range trials {
			if runs[tr.spec.Name] == nil {
				runs[tr.spec.Name] = runner(t, s, tr.spec)
			}
		}
		return func(tr trial) [][]byte { return runs[tr.spec.Name](tr.call) }
	}
	sh := newShim(t, trials)
	return func(tr trial) [][]byte { return sh.run(t, tr.spec, tr.spec.CUDA, tr.call) }
}

// Of equal scores the lower expert comes first, and what is not a number chooses
// nothing that is out of range.
func TestChoice(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		d := MixShape{Experts: 40, TopK: 3, Shared: true}
		v := make([]float32, 2*41)
		v[7], v[39], v[33], v[3] = 2, 5, 2, 2
		for i := 41; i < len(v); i++ {
			v[i] = float32(math.NaN())
		}
		c := d.chooseCall(mlx.FromSlice(s, v, 2, 41))
		out := runner(t, s, chooseSpec(), c)(c)
		chosen, err := mlx.ToSlice[int32](array(t, s, out[0], c.launch.Outputs[0]))
		require.NoError(t, err)
		require.Equal(t, []int32{39, 3, 7}, chosen[:3])
		for _, e := range chosen[3:] {
			require.Less(t, e, int32(40))
			require.GreaterOrEqual(t, e, int32(0))
		}
		weights := floats(t, s, array(t, s, out[1], c.launch.Outputs[1]))
		require.Equal(t, float32(0.5), weights[3])

		// The order of keys is that of the numbers: -0 is 0, and negatives, numbers beside
		// what is none, and infinities have their places.
		inf, nan := float32(math.Inf(1)), float32(math.NaN())
		rows := []map[int]float32{{4: float32(math.Copysign(0, -1)), 5: 0, 39: -1}, {2: -3, 20: -2, 38: -1.5}, {1: 7, 31: 9}, {12: 1}}
		fill := []float32{-2, -5, nan, -inf}
		want := [][]int32{{4, 5, 39}, {38, 20, 2}, {31, 1}, {12}}
		v = nil
		for i, row := range rows {
			scores := slices.Repeat([]float32{fill[i]}, 41)
			for k, x := range row {
				scores[k] = x
			}
			v = append(v, scores...)
		}
		c = d.chooseCall(mlx.FromSlice(s, v, len(rows), 41))
		chosen, err = mlx.ToSlice[int32](array(t, s, runner(t, s, chooseSpec(), c)(c)[0], mlx.Output{Dtype: mlx.Int32, Shape: []int{len(rows), d.TopK}}))
		require.NoError(t, err)
		for i, w := range want {
			require.Equal(t, w, chosen[3*i:3*i+len(w)], "row %d", i)
		}
	})
}

// What the texts do not cover goes to the operations.
func TestMixShapes(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		set := &Set{mix: &mixture{}}
		r := newSource(s, 33)
		for _, d := range mixtures() {
			m := d.maps(r)
			got, ok := set.Mix(d, m)
			require.True(t, ok)
			require.Equal(t, d, got)
		}
		d := mixtures()[1]
		m := d.maps(r)
		other := m
		other.SharedDown = s.Quantize(r.normal(mlx.BFloat16, 0, 0.1, d.Hidden, 2*d.Width), q4Options)
		got, ok := set.Mix(d, other)
		require.True(t, ok)
		require.False(t, got.Shared, "a shared expert of another width")
		other = m
		other.SharedGate = Weight{Dense: r.normal(mlx.BFloat16, 0, 0.1, 1, d.Hidden)}
		got, ok = set.Mix(d, other)
		require.True(t, ok)
		require.Zero(t, got.Router, "a gate in another type than the router")
		other = m
		other.Up.Options.Bits = 8
		_, ok = set.Mix(d, other)
		require.False(t, ok)
		var none *Set
		_, ok = none.Mix(d, m)
		require.False(t, ok)
		require.False(t, none.Mixes(s, mlx.Array{}))
	})
}

// Where a kernel fails, here because there is no GPU, Mixture says so, and the Set
// does without from then on.
func TestMixtureFails(t *testing.T) {
	if lib.Device() == mlx.DeviceGPU {
		t.Skip("the kernels work there")
	}
	do(t, func(s *mlx.Scope) {
		set := &Set{owner: s, none: s.Zeros(mlx.Float32, 1)}
		for _, spec := range []mlx.KernelSpec{scoresSpec(), chooseSpec(), upSpec(), downSpec()} {
			require.Nil(t, set.kernel(spec), spec.Name)
		}
		require.Nil(t, set.mixture())
		k := func(spec mlx.KernelSpec) *mlx.Kernel { return s.NewKernel(spec, nil) }
		set.mix, set.chained = &mixture{k(scoresSpec()), k(chooseSpec()), k(upSpec()), k(downSpec())}, true
		r, d := newSource(s, 34), mixtures()[0]
		x := r.normal(mlx.BFloat16, 0, 1, 1, 2, d.Hidden)
		require.True(t, set.Mixes(s, x))
		_, ok := set.Mixture(s, Stream{X: x}, mlx.Array{}, d, d.maps(r), Around{})
		require.False(t, ok)
		require.NoError(t, s.Err())
		require.False(t, set.Mixes(s, x))
		require.False(t, set.Chains(s, x))
	})
}
