package kernels

import (
	"fmt"

	"github.com/godflash/godflash/mlx"
)

// headsTrials: a plain layer that rotates whole heads, and a gated one that
// rotates a part and whose projections lie in one array, at a position far on.
func headsTrials(s *mlx.Scope) []trial {
	var out []trial
	r := newSource(s, 4)
	for i, d := range []HeadsShape{
		{Queries: 4, Keys: 2, Dim: 64, Rotated: 64, Eps: 1e-6},
		{Queries: 6, Keys: 1, Dim: 256, Rotated: 64, Gated: true, Eps: 1e-6},
	} {
		for _, dt := range []mlx.Dtype{mlx.Float32, mlx.BFloat16} {
			tolerance := map[mlx.Dtype]float64{mlx.Float32: 1e-4, mlx.BFloat16: 0.03}[dt]
			for _, t := range []int{1, 7} {
				nq, nk := d.Queries*d.queryWidth(), d.Keys*d.Dim
				q, k, v := All(r.normal(dt, 0, 1, 1, t, nq)), All(r.normal(dt, 0, 1, 1, t, nk)), All(r.normal(dt, 0, 1, 1, t, nk))
				if d.Gated {
					whole := r.normal(dt, 0, 1, 1, t, nq+2*nk)
					q, k, v = Cols{whole, 0, nq}, Cols{whole, nq, nk}, Cols{whole, nq + nk, nk}
				}
				inv := InvFreq(s, mlx.RoPEOptions{Dims: d.Rotated, Base: 1e6})
				name := fmt.Sprintf("shape %d, %d rows, %v", i, t, dt)
				out = append(out, trial{"heads, " + name, d.splitSpec(), d.splitCall(q, k, v,
					r.normal(mlx.Float32, 1, 0.3, d.Dim), r.normal(mlx.Float32, 1, 0.3, d.Dim), mlx.FromSlice(s, []int32{321}), inv), tolerance})
				if d.Gated {
					out = append(out, trial{"gate, " + name, d.gateSpec(), d.gateCall(r.normal(dt, 0, 1, 1, d.Queries, t, d.Dim), q), tolerance})
				}
			}
		}
	}
	return out
}
