package nn_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/mlx"
)

// mixture is a mixture of experts in plain float64.
type mixture struct {
	experts, topK, hidden, inner int
	router, gate, up, down       []float32
}

func (m mixture) row(x []float32) []float64 {
	dot := func(w []float32, row int, x []float64) float64 {
		sum := 0.0
		for i := range x {
			sum += float64(w[row*len(x)+i]) * x[i]
		}
		return sum
	}
	in := make([]float64, len(x))
	for i := range x {
		in[i] = float64(x[i])
	}
	p := make([]float64, m.experts)
	total := 0.0
	for e := range p {
		p[e] = math.Exp(dot(m.router, e, in))
		total += p[e]
	}
	order := make([]int, m.experts)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(math.Copysign(1, p[b]-p[a])) })
	chosen, norm := order[:m.topK], 0.0
	for _, e := range chosen {
		norm += p[e]
	}
	out := make([]float64, m.hidden)
	for _, e := range chosen {
		h := make([]float64, m.inner)
		for j := range h {
			g := dot(m.gate, e*m.inner+j, in)
			h[j] = g / (1 + math.Exp(-g)) * dot(m.up, e*m.inner+j, in)
		}
		for i := range out {
			out[i] += p[e] / norm * dot(m.down, e*m.hidden+i, h)
		}
	}
	return out
}

// A mixture equals its definition, in the experts' order and in the rows', and
// a block's rows have the bits of single rows.
func TestMoE(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = float32(rng.NormFloat64()) / 3
		}
		return out
	}
	m := mixture{experts: 8, topK: 2, hidden: 16, inner: 12}
	m.router, m.gate = random(m.experts*m.hidden), random(m.experts*m.inner*m.hidden)
	m.up, m.down = random(m.experts*m.inner*m.hidden), random(m.experts*m.hidden*m.inner)
	do(t, func(s *mlx.Scope) {
		layer := nn.MoE{
			Router: nn.NewLinear(s, mlx.FromSlice(s, m.router, m.experts, m.hidden), mlx.Array{}),
			Gate:   nn.NewExperts(s, mlx.FromSlice(s, m.gate, m.experts, m.inner, m.hidden)),
			Up:     nn.NewExperts(s, mlx.FromSlice(s, m.up, m.experts, m.inner, m.hidden)),
			Down:   nn.NewExperts(s, mlx.FromSlice(s, m.down, m.experts, m.hidden, m.inner)),
			TopK:   m.topK, NormTopK: true,
		}
		// 40 rows of 2 experts are sorted, 16 and 1 are not.
		const rows = 40
		x := random(rows * m.hidden)
		all := values(t, layer.Forward(s, mlx.FromSlice(s, x, 1, rows, m.hidden)))
		some := values(t, layer.Forward(s, mlx.FromSlice(s, x[:16*m.hidden], 1, 16, m.hidden)))
		require.Equal(t, all[:16*m.hidden], some)
		for r := range rows {
			in := x[r*m.hidden : (r+1)*m.hidden]
			one := values(t, layer.Forward(s, mlx.FromSlice(s, in, 1, 1, m.hidden)))
			require.Equal(t, all[r*m.hidden:(r+1)*m.hidden], one)
			for i, want := range m.row(in) {
				require.InDelta(t, want, one[i], 1e-4)
			}
		}
	})
}
