package kernels

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// link is a random map with a tiling of its own.
type link struct {
	Chained
	q mlx.Quantized
}

func newLink(r source, in, out int, t tiling) link {
	return link{Chained{counter: r.s.Zeros(mlx.Int32, t.blocks), t: t, in: in, out: out}, r.s.Quantize(r.normal(mlx.BFloat16, 0, 0.05, out, in), q4Options)}
}

func (l *link) call(none mlx.Array, x Stream, a Around) call { return l.Chained.call(none, x, l.q, a) }

// chainTrials are all that a product of a chain does, with one part of the columns
// and with several, which divide into the warps' groups or do not, with as many
// groups for a warp as there can be.
func chainTrials(s *mlx.Scope) []trial {
	var out []trial
	r := newSource(s, 21)
	none := s.Zeros(mlx.Float32, 1)
	for _, m := range []link{
		newLink(r, 1024, 192, tiling{4, 4, 1, 5, 3, false}),
		newLink(r, 896, 128, tiling{4, 2, 2, 3, 3, true}),
		newLink(r, 1280, 64, tiling{10, 2, 1, 2, 4, true}),
		newLink(r, 512, 32, tiling{8, 1, 1, 1, 4, false}),
		// Long enough for rings and sums to come round.
		newLink(r, 512, 352, tiling{8, 1, 1, 2, 4, true}),
		newLink(r, 1024, 320, tiling{4, 2, 2, 2, 3, true}),
		newLink(r, 512, 320, tiling{4, 2, 1, 2, 3, false}),
	} {
		name := fmt.Sprintf("chain, %d to %d", m.in, m.out)
		out = append(out, aroundTrials(r, name, chainSpec(gpuOf(lib), m.t.wide()), m.in, m.out, 3, func(x Stream, a Around) call { return m.call(none, x, a) })...)
		x := r.normal(mlx.BFloat16, 0, 1, 1, 7, m.in)
		out = append(out, trial{fmt.Sprintf("squares of %d", m.in), squaresSpec(), squaresCall(x), 1e-4})
	}
	return out
}

// aroundTrials are all that a product from in to out does, with n sums of a row.
func aroundTrials(r source, name string, spec mlx.KernelSpec, in, out, n int, product func(x Stream, a Around) call) []trial {
	var trials []trial
	for _, rows := range []int{1, 7, 16} {
		x := Stream{X: r.normal(mlx.BFloat16, 0, 1, 1, rows, in), Sums: r.s.Abs(r.normal(mlx.Float32, float64(in)/float64(n), 1, rows, n))}
		norm, residual := r.normal(mlx.Float32, 1, 0.3, in), r.normal(mlx.BFloat16, 0, 1, 1, rows, out)
		for i, a := range []Around{
			{},
			{Norm: norm, Eps: 1e-6},
			{Norm: norm, Eps: 1e-6, SwiGLU: true},
			{Residual: residual, Sums: true},
			{Norm: norm, Eps: 1e-5, Residual: residual, Sums: true},
		} {
			if rows != 7 && i == 4 {
				continue
			}
			trials = append(trials, trial{fmt.Sprintf("%s, %d rows, case %d", name, rows, i), spec, product(x, a), 0.03})
		}
	}
	return trials
}

// A row has the same bits whatever block it stands in, the counters are 0 again,
// and the sums are those of what came out.
func TestChainRowByRow(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		r, none := newSource(s, 22), s.Zeros(mlx.Float32, 1)
		q := newLink(r, 1024, 192, tiling{4, 2, 2, 3, 3, true})
		rowByRow(t, r, chainSpec(gpuOf(lib), false), q.in, q.out, func(x Stream, a Around) call { return q.call(none, x, a) })
		for _, kind := range denseKinds(gpuOf(lib)) {
			d := newDenseLink(r, 1536, 192, denseTiling{6, 3, kind})
			rowByRow(t, r, denseSpec(gpuOf(lib), kind), d.in, d.out, func(x Stream, a Around) call { return d.call(none, x, a) })
		}
	})
}

// rowByRow is TestChainRowByRow for a product.
func rowByRow(t *testing.T, r source, spec mlx.KernelSpec, in, out int, product func(x Stream, a Around) call) {
	t.Helper()
	const rows = 13
	s := r.s
	x := r.normal(mlx.BFloat16, 0, 1, 1, rows, in)
	sums := s.Abs(r.normal(mlx.Float32, float64(in)/2, 1, rows, 2))
	a := Around{Norm: r.normal(mlx.Float32, 1, 0.3, in), Eps: 1e-6, Sums: true}
	residual := r.normal(mlx.BFloat16, 0, 1, 1, rows, out)
	at := func(from, to int) call {
		b := a
		b.Residual = s.SliceAxis(residual, 1, from, to)
		return product(Stream{s.SliceAxis(x, 1, from, to), s.SliceAxis(sums, 0, from, to)}, b)
	}
	run := runner(t, s, spec, at(0, rows))
	whole := run(at(0, rows))
	outputs := len(spec.Outputs)
	for _, counter := range whole[outputs:] {
		require.Equal(t, make([]byte, len(counter)), counter, "counters")
	}
	for i := range rows {
		one := run(at(i, i+1))
		for _, k := range []int{0, outputs - 1} {
			size := len(whole[k]) / rows
			require.Equal(t, whole[k][i*size:(i+1)*size], one[k], "row %d, output %d", i, k)
		}
		if outputs == 3 {
			size := 4 * out // parts, not rounded yet
			for part := range len(one[1]) / size {
				require.Equal(t, whole[1][(part*rows+i)*size:][:size], one[1][part*size:][:size], "row %d, part %d", i, part)
			}
		}
	}
}

func TestTile(t *testing.T) {
	for _, x := range []struct {
		in, out int
		want    tiling
		ok      bool
	}{
		{4096, 6144, tiling{8, 8, 1, 128, 4, false}, true},
		{4096, 24576, tiling{8, 8, 1, 128, 4, true}, true},
		{4096, 4096, tiling{8, 8, 1, 128, 4, false}, true},
		{4096, 151936, tiling{8, 8, 1, 132, 4, true}, true},
		{12288, 4096, tiling{4, 16, 3, 43, 3, false}, true},
		{5120, 34816, tiling{10, 8, 1, 128, 3, true}, true},
		{5120, 16512, tiling{10, 8, 1, 129, 3, true}, true},
		{17408, 5120, tiling{4, 14, 5, 25, 3, true}, true},
		{6144, 5120, tiling{4, 12, 2, 64, 3, false}, true},
		{2048, 512, tiling{4, 8, 1, 32, 3, false}, true},
		{896, 40, tiling{4, 4, 1, 3, 3, false}, true},
		{128, 8, tiling{2, 1, 1, 1, 3, false}, true},
		{64, 64, tiling{}, false},
		{4000, 6144, tiling{}, false},
	} {
		got, ok := tile(largeGPU, x.in, x.out)
		require.Equal(t, x.ok, ok, "%d to %d", x.in, x.out)
		require.Equal(t, x.want, got, "%d to %d", x.in, x.out)
		if ok {
			require.GreaterOrEqual(t, got.groups*got.warps*got.splits*64, x.in)
			require.LessOrEqual(t, got.memory(), largeGPU.SharedMemory)
			require.LessOrEqual(t, got.blocks*got.splits, largeGPU.Multiprocessors)
		}
	}
}

// Devices with less shared memory, or fewer multiprocessors, have tilings of their own,
// and kernels their own variables in it.
func TestTileSmaller(t *testing.T) {
	require.Equal(t, mlx.GPU{Multiprocessors: 128, SharedMemory: 98 << 10}, usable(mlx.GPU{Multiprocessors: 128, SharedMemory: 99 << 10}))
	require.Equal(t, largeGPU, usable(mlx.GPU{Multiprocessors: 132, SharedMemory: 227 << 10, Clusters: true}))
	for _, gpu := range []mlx.GPU{{Multiprocessors: 108, SharedMemory: 162 << 10}, {Multiprocessors: 128, SharedMemory: 98 << 10}, {Multiprocessors: 24, SharedMemory: 98 << 10}} {
		for _, x := range [][2]int{{4096, 6144}, {4096, 151936}, {12288, 4096}, {5120, 34816}, {17408, 5120}, {2048, 512}, {896, 40}} {
			got, ok := tile(gpu, x[0], x[1])
			require.True(t, ok)
			require.LessOrEqual(t, got.memory(), gpu.SharedMemory, "%v", got)
			require.LessOrEqual(t, got.blocks*got.splits, gpu.Multiprocessors)
			require.GreaterOrEqual(t, got.groups*got.warps*got.splits*64, x[0])
			require.LessOrEqual(t, got.blocks, (x[1]+15)/16)
		}
	}
	_, ok := tile(mlx.GPU{Multiprocessors: 8, SharedMemory: 1000}, 4096, 4096)
	require.False(t, ok, "nothing fits")
}
