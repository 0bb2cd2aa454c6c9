package qwen

import (
	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/mlx"
)

// chain is pass for a model whose layers are all linked: norms, residual sums and
// the feed-forward's gate are parts of the products. ok is false where a kernel
// failed; what the layers wrote is to be discarded then.
func (m *Model) chain(s *mlx.Scope, x mlx.Array, c *Cache, taps []int) (out Output, ok bool) {
	out.Taps = make([]mlx.Array, len(taps))
	at := c.at.Data(s)
	r := m.set.Begin(s, x)
	for i := range m.layers {
		if r, ok = m.layers[i].chain(s, r, c, i, at); !ok {
			return Output{}, false
		}
		for j, t := range taps {
			if t == i {
				out.Taps[j] = r.X
			}
		}
	}
	out.Hidden = r.X
	return out, true
}

// link prepares the layer's maps for a chain and says whether they suit.
func (l *layer) link(s *mlx.Scope) bool {
	switch {
	case l.moe != nil && !l.moe.Linked(), l.moe == nil && !l.mlp.Link(s):
		return false
	case l.delta != nil:
		return l.delta.in.Link(s) && l.delta.out.Link(s)
	}
	return l.attention.split != nil && l.attention.in.Link(s) && l.attention.o.Link(s)
}

func (l *layer) chain(s *mlx.Scope, r kernels.Stream, c *Cache, i int, at mlx.Array) (kernels.Stream, bool) {
	var maps *nn.Packed
	var back *nn.Linear
	if l.delta != nil {
		maps, back = &l.delta.in, &l.delta.out
	} else {
		maps, back = &l.attention.in, &l.attention.o
	}
	in, ok := maps.Chain(s, r, l.inputNorm)
	if !ok {
		return kernels.Stream{}, false
	}
	var y mlx.Array
	if l.delta != nil {
		y = l.delta.mix(s, in, c.rec[i])
	} else {
		y = l.attention.mix(s, in, c.kv[i], c.at, at)
	}
	r, ok = back.Chain(s, kernels.Stream{X: y}, kernels.Around{Residual: r.X, Sums: true})
	if !ok {
		return kernels.Stream{}, false
	}
	if l.moe != nil {
		return l.moe.Chain(s, r, l.postNorm)
	}
	return l.mlp.Chain(s, r, l.postNorm)
}
