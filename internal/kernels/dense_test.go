package kernels

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// denseLink is a random map in bfloat16 with a tiling of its own.
type denseLink struct {
	Chained
	w mlx.Array
}

func newDenseLink(r source, in, out int, t denseTiling) denseLink {
	return denseLink{Chained{dense: t, in: in, out: out}, r.normal(mlx.BFloat16, 0, 0.05, out, in)}
}

func (l *denseLink) call(none mlx.Array, x Stream, a Around) call {
	return l.denseCall(none, x, l.w, a)
}

// denseTrials: fewer steps than stages and more, and sums of all numbers.
func denseTrials(s *mlx.Scope) []trial {
	var out []trial
	r, none := newSource(s, 23), s.Zeros(mlx.Float32, 1)
	for _, x := range []struct {
		in, out, sums int
		t             denseTiling
	}{
		{1024, 64, 1, denseTiling{4, 7, denseAlone}},
		{640, 96, 28, denseTiling{6, 5, denseAlone}},
		{256, 192, 200, wideTiling},
		{512, 64, 1, denseTiling{4, 7, densePair}},
		{1024, 96, 28, denseTiling{6, 3, densePair}},
		{256, 128, 200, denseTiling{8, 6, densePair}},
		{512, 160, 9, denseTiling{20, 2, densePair}},
	} {
		if !slices.Contains(denseKinds(gpuOf(lib)), x.t.kind) {
			continue
		}
		m := newDenseLink(r, x.in, x.out, x.t)
		name := fmt.Sprintf("dense chain, %d to %d, %v", m.in, m.out, x.t)
		out = append(out, aroundTrials(r, name, denseSpec(gpuOf(lib), x.t.kind), m.in, m.out, x.sums, func(x Stream, a Around) call { return m.call(none, x, a) })...)
	}
	return out
}

func TestTileDense(t *testing.T) {
	small, none := mlx.GPU{Multiprocessors: 128, SharedMemory: 98 << 10, Clusters: true}, mlx.GPU{Multiprocessors: 108, SharedMemory: 162 << 10}
	for _, x := range []struct {
		gpu     mlx.GPU
		in, out int
		want    denseTiling
		ok      bool
	}{
		{none, 4096, 4096, denseTiling{4, 7, denseAlone}, true},
		{none, 5120, 5120, denseTiling{5, 6, denseAlone}, true},
		{none, 4096, 6144, denseTiling{6, 5, denseAlone}, true},
		{none, 4096, 2048, denseTiling{4, 7, denseAlone}, true},
		{none, 4096, 24576, wideTiling, true},
		{none, 4096, 151936, wideTiling, true},
		{largeGPU, 4096, 4096, denseTiling{8, 6, densePair}, true},
		{largeGPU, 5120, 5120, denseTiling{10, 5, densePair}, true},
		{largeGPU, 4096, 6144, denseTiling{12, 4, densePair}, true},
		{largeGPU, 4096, 10240, denseTiling{20, 3, densePair}, true},
		{largeGPU, 4096, 2048, denseTiling{4, 7, densePair}, true},
		{largeGPU, 896, 1152, denseTiling{4, 7, denseAlone}, true},
		{largeGPU, 4096, 24576, wideTiling, true},
		{small, 4096, 4096, denseTiling{8, 4, densePair}, true},
		{small, 4096, 6144, denseTiling{12, 3, densePair}, true},
		{small, 4096, 10240, denseTiling{20, 2, densePair}, true},
		{largeGPU, 4096, 6176, denseTiling{}, false},
		{largeGPU, 4000, 6144, denseTiling{}, false},
	} {
		got, ok := tileDense(x.gpu, x.in, x.out)
		require.Equal(t, x.ok, ok, "%d to %d", x.in, x.out)
		require.Equal(t, x.want, got, "%d to %d", x.in, x.out)
		if ok {
			require.Zero(t, x.out%got.tile())
			require.LessOrEqual(t, got.memory(), denseSpec(x.gpu, got.kind).SharedMemory)
			require.LessOrEqual(t, denseSpec(x.gpu, got.kind).SharedMemory, x.gpu.SharedMemory)
			require.LessOrEqual(t, 4*16*(got.tile()+8)*4, got.ring(), "the warps' sums lie in the ring")
		}
	}
}
