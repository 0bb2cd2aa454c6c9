package dflash

import (
	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/mlx"
)

// The drafter's passes as a chain, see qwen's.

// chain is pass for linked layers; ok is false where a kernel failed.
func (d *Drafter) chain(s *mlx.Scope, c *DraftContext, x mlx.Array) (y mlx.Array, ok bool) {
	at := c.position(s)
	r := d.set.Begin(s, x)
	for i := range d.layers {
		l := &d.layers[i]
		in, ok := l.in.Chain(s, r, l.inputNorm)
		if !ok {
			return mlx.Array{}, false
		}
		y := l.mix(s, d.cfg, in, c.kv[i], c.at, at, c.low)
		if r, ok = l.o.Chain(s, kernels.Stream{X: y}, kernels.Around{Residual: r.X, Sums: true}); !ok {
			return mlx.Array{}, false
		}
		if r, ok = l.mlp.Chain(s, r, l.postNorm); !ok {
			return mlx.Array{}, false
		}
	}
	if s.Err() != nil {
		return mlx.Array{}, true
	}
	return d.norm.Forward(s, s.SliceAxis(r.X, 1, 1, x.Dim(1))), true
}

// chainContext is keysAndValues as a chain: the norm of the context feature is a
// part of the layers' maps. ok is false where it cannot be.
func (d *Drafter) chainContext(s *mlx.Scope, tapped []mlx.Array) (out [][]kernels.Cols, ok bool) {
	if !d.linked || !d.set.Chains(s, tapped[0]) {
		return nil, false
	}
	f, ok := d.fc.Chain(s, kernels.Stream{X: s.AsType(s.Concat(2, tapped...), d.dtype)}, kernels.Around{Sums: true})
	for i := range d.layers {
		if !ok || s.Err() != nil {
			return nil, ok
		}
		var kv []kernels.Cols
		kv, ok = d.layers[i].kv.Chain(s, f, d.hiddenNorm)
		out = append(out, kv)
	}
	return out, ok
}

// link prepares the layer's maps for a chain and says whether they suit.
func (l *draftLayer) link(s *mlx.Scope) bool {
	return l.split != nil && l.in.Link(s) && l.kv.Link(s) && l.o.Link(s) && l.mlp.Link(s)
}
