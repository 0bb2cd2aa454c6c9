package nn

import (
	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/mlx"
)

// Layers can run as a chain, see [kernels.Stream]. Their maps are linked
// when they are loaded; a layer is part of a chain only if all of its maps are.

// Link prepares the map for a chain, in s, and says whether it suits.
func (l *Linear) Link(s *mlx.Scope) bool {
	l.chain = l.kernels.Chain(s, l.stored())
	return l.chain.Valid()
}

// Alone has blocks of rows go through a chain's product outside of chains too, where
// it suits, so that a row has the same bits in any block; maps in 4 bits have that
// by themselves.
func (l *Linear) Alone(s *mlx.Scope) { l.alone = l.weight.Valid() && l.Link(s) }

// Chain is Forward in a chain; ok is false where the kernel failed.
func (l *Linear) Chain(s *mlx.Scope, x kernels.Stream, a kernels.Around) (y kernels.Stream, ok bool) {
	return l.kernels.Product(s, x, l.stored(), &l.chain, a)
}

// Link is Linear.Link for the maps together.
func (p *Packed) Link(s *mlx.Scope) bool { return p.Whole() && p.whole.Link(s) }

// Chain is Forward of x, normalised by n, in a chain.
func (p *Packed) Chain(s *mlx.Scope, x kernels.Stream, n RMSNorm) (out []kernels.Cols, ok bool) {
	y, ok := p.whole.Chain(s, x, kernels.Around{Norm: n.Weight, Eps: n.Eps})
	if !ok || s.Err() != nil {
		return nil, ok
	}
	return p.columns(y.X), true
}

// Link is Linear.Link for a feed-forward.
func (f *SwiGLU) Link(s *mlx.Scope) bool { return f.half > 0 && f.GateUp.Link(s) && f.Down.Link(s) }

// Chain is x + Forward(n(x)) in a chain.
func (f *SwiGLU) Chain(s *mlx.Scope, x kernels.Stream, n RMSNorm) (y kernels.Stream, ok bool) {
	h, ok := f.GateUp.whole.Chain(s, x, kernels.Around{Norm: n.Weight, Eps: n.Eps, SwiGLU: true})
	if !ok {
		return kernels.Stream{}, false
	}
	return f.Down.Chain(s, h, kernels.Around{Residual: x.X, Sums: true})
}
