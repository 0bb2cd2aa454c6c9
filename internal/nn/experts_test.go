package nn_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/kernels"
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

// By the kernels' operations a 4-bit mixture is what MLX's make of it, whatever part
// of it the kernels take: with the router's product or without, with a shared expert
// of the experts' width or of another.
func TestMoEByKernels(t *testing.T) {
	const hidden, width, experts = 256, 256, 12
	four, eight := mlx.QuantizeOptions{Mode: mlx.Affine, GroupSize: 64, Bits: 4}, mlx.QuantizeOptions{Mode: mlx.Affine, GroupSize: 64, Bits: 8}
	for name, x := range map[string]struct {
		router, gate mlx.QuantizeOptions // no bits: dense
		shared       int                 // width, 0 for none
		linked       bool
	}{
		"router in 8 bits":               {router: eight, linked: true},
		"dense router":                   {},
		"shared expert":                  {router: eight, gate: eight, shared: width, linked: true},
		"shared expert, dense router":    {shared: width},
		"gate unlike the router":         {router: eight, gate: four, shared: width},
		"shared expert of another width": {router: eight, gate: eight, shared: 128},
	} {
		do(t, func(s *mlx.Scope) {
			set := kernels.New(kernels.WithComposed(t.Context()), s, nil)
			key := uint64(0)
			random := func(shape ...int) mlx.Array {
				key++
				return s.Normal(s.Key(key), 0, 0.2, mlx.Float32, shape...)
			}
			linear := func(o mlx.QuantizeOptions, out, in int) nn.Linear {
				if o.Bits == 0 {
					return nn.NewLinear(s, random(out, in), mlx.Array{}).With(set)
				}
				return nn.NewQuantizedLinear(s.Quantize(random(out, in), o)).With(set)
			}
			stack := func(out, in int) nn.Experts {
				return nn.NewQuantizedExperts(s.Quantize(random(experts, out, in), four))
			}
			m := nn.MoE{
				Router: linear(x.router, experts, hidden), TopK: 3, NormTopK: true,
				Gate: stack(width, hidden), Up: stack(width, hidden), Down: stack(hidden, width),
			}
			if x.shared > 0 {
				f := nn.NewSwiGLU(s, linear(four, x.shared, hidden), linear(four, x.shared, hidden), linear(four, hidden, x.shared), x.shared)
				m.Shared, m.SharedGate = &f, linear(x.gate, 1, hidden)
			}
			operations := m
			m.Link(set, kernels.MixShape{Experts: experts, Hidden: hidden, Width: width})
			require.Equal(t, x.linked, m.Linked(), name)
			for _, rows := range []int{1, 16, kernels.BlockRows + 1, 90} {
				in := random(1, rows, hidden)
				require.Equal(t, rows > kernels.BlockRows, set.Groups(s, in, kernels.MixShape{Hidden: hidden, Width: width}))
				want, got := values(t, operations.Forward(s, in)), values(t, m.Forward(s, in))
				require.Len(t, got, len(want))
				for i, w := range want {
					require.InDelta(t, w, got[i], 1e-3, "%s, %d rows, element %d", name, rows, i)
				}
			}
		})
	}
}
