package kernels

import (
	"fmt"
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
		{1024, 64, 1, denseTiling{nt: 4, d: 7}},
		{640, 96, 28, denseTiling{nt: 6, d: 5}},
		{256, 192, 200, denseTiling{nt: 8, d: 3}},
	} {
		m := newDenseLink(r, x.in, x.out, x.t)
		name := fmt.Sprintf("dense chain, %d to %d", m.in, m.out)
		out = append(out, aroundTrials(r, name, denseSpec(x.t.wide()), m.in, m.out, x.sums, func(x Stream, a Around) call { return m.call(none, x, a) })...)
	}
	return out
}

func TestTileDense(t *testing.T) {
	for _, x := range []struct {
		in, out int
		want    denseTiling
		ok      bool
	}{
		{4096, 4096, denseTiling{nt: 4, d: 7}, true},
		{5120, 5120, denseTiling{nt: 5, d: 6}, true},
		{4096, 6144, denseTiling{nt: 6, d: 5}, true},
		{4096, 2048, denseTiling{nt: 4, d: 7}, true},
		{4096, 24576, denseWide, true},
		{4096, 151936, denseWide, true},
		{4096, 6176, denseTiling{}, false},
		{4000, 6144, denseTiling{}, false},
	} {
		got, ok := tileDense(x.in, x.out)
		require.Equal(t, x.ok, ok, "%d to %d", x.in, x.out)
		require.Equal(t, x.want, got, "%d to %d", x.in, x.out)
		if ok {
			memory := denseSpec(got.wide()).SharedMemory
			require.Zero(t, x.out%got.rows())
			require.LessOrEqual(t, got.d*((got.nt+2)*2048+512), memory, "the ring")
			require.LessOrEqual(t, 4*16*(got.rows()+8)*4, got.d*((got.nt+2)*2048+512), "the warps' sums lie in the ring")
		}
	}
}
