package qwen

import (
	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/mlx"
)

// attention is grouped-query attention with normalised queries and keys.
// Qwen3.5 also gates the output: q_proj then makes a query and a gate for each
// head, and only the first part of a head rotates.
type attention struct {
	q, k, v, o   nn.Linear
	qNorm, kNorm nn.RMSNorm
	rope         mlx.RoPEOptions
	gated        bool

	heads, kvHeads, dim int
	scale               float32
}

// forward runs x [1, T, hidden] at position p.
func (l *attention) forward(s *mlx.Scope, x mlx.Array, cache *nn.KV, p nn.Position) mlx.Array {
	t := x.Dim(1)
	q := l.q.Forward(s, x)
	var gate mlx.Array
	if l.gated {
		parts := s.Split(s.Reshape(q, 1, t, l.heads, 2*l.dim), 2, 3)
		if len(parts) != 2 {
			return mlx.Array{} // the scope has the error
		}
		q, gate = parts[0], s.Reshape(parts[1], 1, t, l.heads*l.dim)
	}
	q = l.byHead(s, l.qNorm.Forward(s, s.Reshape(q, 1, t, l.heads, l.dim)))
	k := l.byHead(s, l.kNorm.Forward(s, s.Reshape(l.k.Forward(s, x), 1, t, l.kvHeads, l.dim)))
	v := l.byHead(s, s.Reshape(l.v.Forward(s, x), 1, t, l.kvHeads, l.dim))
	q, k = p.RoPE(s, q, l.rope), p.RoPE(s, k, l.rope)

	keys, values := cache.Write(s, k, v, p, 0)
	y := cache.Attend(s, q, keys, values, p, nn.Window{Causal: true}, l.scale)
	y = s.Reshape(s.SwapAxes(y, 1, 2), 1, t, l.heads*l.dim)
	if l.gated {
		y = s.Mul(y, s.Sigmoid(gate))
	}
	return l.o.Forward(s, y)
}

// byHead is [1, T, heads, dim] as [1, heads, T, dim].
func (l *attention) byHead(s *mlx.Scope, x mlx.Array) mlx.Array { return s.SwapAxes(x, 1, 2) }
