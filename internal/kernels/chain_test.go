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
	return link{Chained{counter: r.s.Zeros(mlx.Int32, out/t.rows()), t: t, in: in, out: out}, r.s.Quantize(r.normal(mlx.BFloat16, 0, 0.05, out, in), q4Options)}
}

func (l *link) call(none mlx.Array, x Stream, a Around) call { return l.Chained.call(none, x, l.q, a) }

// chainTrials are all that a product of a chain does, in both tilings, of one part
// of the columns and of several.
func chainTrials(s *mlx.Scope) []trial {
	var out []trial
	r := newSource(s, 21)
	none := s.Zeros(mlx.Float32, 1)
	for _, m := range []link{
		newLink(r, 1024, 192, tiling{nt: 2, kc: 512, u: 4}),
		newLink(r, 2048, 256, tiling{nt: 4, kc: 1024, u: 2}),
		newLink(r, 512, 64, tiling{nt: 2, kc: 512, u: 4}),
	} {
		for _, rows := range []int{1, 7, 16} {
			x := Stream{X: r.normal(mlx.BFloat16, 0, 1, 1, rows, m.in), Sums: s.Abs(r.normal(mlx.Float32, float64(m.in)/3, 1, rows, 3))}
			norm, residual := r.normal(mlx.Float32, 1, 0.3, m.in), r.normal(mlx.BFloat16, 0, 1, 1, rows, m.out)
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
				name := fmt.Sprintf("chain, %d to %d, %d rows, case %d", m.in, m.out, rows, i)
				out = append(out, trial{name, chainSpec(), m.call(none, x, a), 0.03})
			}
			out = append(out, trial{fmt.Sprintf("squares, %d rows of %d", rows, m.in), squaresSpec(), squaresCall(x.X), 1e-4})
		}
	}
	return out
}

// A row has the same bits whatever block it stands in, the counters are 0 again,
// and the sums are those of what came out.
func TestChainRowByRow(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		r := newSource(s, 22)
		const rows = 13
		m := newLink(r, 1024, 192, tiling{nt: 2, kc: 512, u: 4})
		none := s.Zeros(mlx.Float32, 1)
		x := r.normal(mlx.BFloat16, 0, 1, 1, rows, m.in)
		sums := s.Abs(r.normal(mlx.Float32, float64(m.in)/2, 1, rows, 2))
		a := Around{Norm: r.normal(mlx.Float32, 1, 0.3, m.in), Eps: 1e-6, Sums: true}
		residual := r.normal(mlx.BFloat16, 0, 1, 1, rows, m.out)
		at := func(from, to int) call {
			b := a
			b.Residual = s.SliceAxis(residual, 1, from, to)
			return m.call(none, Stream{s.SliceAxis(x, 1, from, to), s.SliceAxis(sums, 0, from, to)}, b)
		}
		run := runner(t, s, chainSpec(), at(0, rows))
		whole := run(at(0, rows))
		require.Equal(t, make([]byte, 4*3), whole[3], "counters")
		for i := range rows {
			one := run(at(i, i+1))
			for _, k := range []int{0, 2} {
				size := len(whole[k]) / rows
				require.Equal(t, whole[k][i*size:(i+1)*size], one[k], "row %d, output %d", i, k)
			}
			for part, size := 0, 4*m.out; part < m.in/m.t.kc; part++ { // not rounded yet
				require.Equal(t, whole[1][(part*rows+i)*size:][:size], one[1][part*size:][:size], "row %d, part %d", i, part)
			}
		}
	})
}

func TestTile(t *testing.T) {
	for _, x := range []struct {
		in, out int
		want    tiling
		ok      bool
	}{
		{4096, 6144, tiling{nt: 2, kc: 512, u: 4}, true},
		{4096, 24576, tiling{nt: 4, kc: 1024, u: 2}, true},
		{4096, 151936, tiling{nt: 4, kc: 1024, u: 2}, true},
		{12288, 4096, tiling{nt: 2, kc: 1024, u: 4}, true},
		{5120, 16512, tiling{nt: 4, kc: 1024, u: 2}, true},
		{4096, 6100, tiling{}, false},
		{4000, 6144, tiling{}, false},
		{768, 64, tiling{}, false},
	} {
		got, ok := tile(x.in, x.out)
		require.Equal(t, x.ok, ok, "%d to %d", x.in, x.out)
		if ok {
			require.Equal(t, x.want, got, "%d to %d", x.in, x.out)
			require.Zero(t, x.out%got.rows())
			require.Zero(t, x.in%got.kc)
		}
	}
}
