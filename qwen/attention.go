package qwen

import (
	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/mlx"
)

// attention is grouped-query attention with normalised queries and keys.
// Qwen3.5 also gates the output: q_proj then makes a query and a gate for each
// head, and only the first part of a head rotates.
type attention struct {
	in           nn.Packed // q, k, v
	o            nn.Linear
	qNorm, kNorm nn.RMSNorm
	rope         mlx.RoPEOptions
	invFreq      mlx.Array // of rope, for kernels only
	split        *kernels.Heads
	gated        bool

	heads, kvHeads, dim int
	scale               float32
}

// forward runs x [1, T, hidden] at position p, which is at as data.
func (l *attention) forward(s *mlx.Scope, x mlx.Array, cache *nn.KV, p nn.Position, at mlx.Array) mlx.Array {
	return l.o.Forward(s, l.mix(s, l.in.Forward(s, x), cache, p, at))
}

// mix is what lies between the maps, of their results in.
func (l *attention) mix(s *mlx.Scope, in []kernels.Cols, cache *nn.KV, p nn.Position, at mlx.Array) mlx.Array {
	if s.Err() != nil {
		return mlx.Array{}
	}
	t := in[0].Array.Dim(1)
	if l.split.Writes(s, in[0].Array) {
		keys, values := cache.Open(s, p, t, 0)
		q, _, ok := l.split.Into(s, in[0], in[1], in[2], l.qNorm.Weight, l.kNorm.Weight, kernels.Place{Position: at}, l.invFreq, keys, values)
		if ok {
			return l.split.Attend(s, q, keys, values, kernels.Place{Position: at}, kernels.See{Causal: true}, l.scale, in[0])
		}
		cache.Discard()
	}
	var q, k, v, gate mlx.Array
	if l.split != nil {
		q, k, v = l.split.Split(s, in[0], in[1], in[2], l.qNorm.Weight, l.kNorm.Weight, at, l.invFreq)
	} else {
		q, k, v, gate = l.compose(s, in, p)
	}
	if s.Err() != nil {
		return mlx.Array{}
	}
	keys, values := cache.Write(s, k, v, p, 0)
	if cache.Begins() == 0 && l.split.Attends(s, q, keys) {
		return l.split.Attend(s, q, keys, values, kernels.Place{Position: at}, kernels.See{Causal: true}, l.scale, in[0])
	}
	y := cache.Attend(s, q, keys, values, p, nn.Window{Causal: true}, l.scale)
	if l.split != nil {
		return l.split.Join(s, y, in[0])
	}
	y = s.Reshape(s.SwapAxes(y, 1, 2), 1, t, l.heads*l.dim)
	if l.gated {
		y = s.Mul(y, s.Sigmoid(gate))
	}
	return y
}

// compose makes the heads in operations.
func (l *attention) compose(s *mlx.Scope, in []kernels.Cols, p nn.Position) (q, k, v, gate mlx.Array) {
	q = in[0].Take(s)
	t := q.Dim(1)
	if l.gated {
		parts := s.Split(s.Reshape(q, 1, t, l.heads, 2*l.dim), 2, 3)
		if len(parts) != 2 {
			return mlx.Array{}, mlx.Array{}, mlx.Array{}, mlx.Array{} // the scope has the error
		}
		q, gate = parts[0], s.Reshape(parts[1], 1, t, l.heads*l.dim)
	}
	q = l.byHead(s, l.qNorm.Forward(s, s.Reshape(q, 1, t, l.heads, l.dim)))
	k = l.byHead(s, l.kNorm.Forward(s, s.Reshape(in[1].Take(s), 1, t, l.kvHeads, l.dim)))
	v = l.byHead(s, s.Reshape(in[2].Take(s), 1, t, l.kvHeads, l.dim))
	return p.RoPE(s, q, l.rope), p.RoPE(s, k, l.rope), v, gate
}

// byHead is [1, T, heads, dim] as [1, heads, T, dim].
func (l *attention) byHead(s *mlx.Scope, x mlx.Array) mlx.Array { return s.SwapAxes(x, 1, 2) }
