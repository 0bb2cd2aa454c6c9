package kernels

import "github.com/godflash/godflash/mlx"

// A cache's buffers are written in place here, behind MLX's back: the kernel has
// them as inputs and casts the const away. MLX's own update copies a whole buffer
// as soon as the step before is still on its way, and takes two launches for each
// of keys and values.
//
// So that nobody reads too early, every reader of the written rows must be given
// an array that the kernel made; and nobody may expect what the rows held before.
// Rows before the position are never touched.

// intoText is headsText with keys and values put into the caches' rows.
const intoText = headsText + `
  const size_t at = (size_t)(position[0] + row - (BASED ? base[0] : 0)), capacity = k_cache_shape[2];
  T* const to = query ? queries + ((size_t)h * rows + row) * D : (T*)(value ? v_cache : k_cache) + ((size_t)h * capacity + at) * D;
  for (int i = 0; i < E; i++) to[lane + 32 * i] = (T)u[i];
}
if (bid == 0 && tid < 4) done[tid] = position[0];
`

func (d HeadsShape) intoSpec() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:    "godflash_heads_into",
		Inputs:  []string{"q", "k", "v", "q_norm", "k_norm", "position", "inv_freq", "k_cache", "v_cache", "base"},
		Outputs: []string{"queries", "done"},
		// Metal's update of a slice works in place.
		CUDA: cuda(intoText),
		// It computes the outputs alone: where the kernel failed, Into says so.
		Fallback: func(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
			q, k, _ := d.compose(s, in, l)
			if !q.Valid() {
				q = s.Zeros(k.Dtype(), 1)
			}
			return []mlx.Array{q, s.Contiguous(s.BroadcastTo(in[5], nearSize))}
		},
	}
}

// InPlace reports whether blocks of a type are written in place.
func (k *Heads) InPlace(dt mlx.Dtype) bool { return k != nil && k.into != nil && dt == mlx.BFloat16 }

// Writes reports whether Into and Attend serve blocks like x [1, T, width]: on CUDA.
func (k *Heads) Writes(s *mlx.Scope, x mlx.Array) bool {
	return k != nil && s.Err() == nil && x.Dim(1) <= BlockRows && k.InPlace(x.Dtype())
}

// Place is where a block lies in a cache: Position is that of its first row, Base
// that of the cache's row 0, int32 [1] both; no Base means 0.
type Place struct{ Position, Base mlx.Array }

// based is Base for a kernel, and whether there is one.
func (p Place) based() (mlx.Array, bool) {
	if p.Base.Valid() {
		return p.Base, true
	}
	return p.Position, false
}

// Into is Split with keys and values written to a cache's rows from at on, in
// buffers [1, key heads, capacity, dim], which nobody else may hold. A q without
// an array means keys and values alone. Readers of the buffers must depend on
// queries or on done, which is position once more. It is false where the kernel
// failed, once and for all: nothing was written then.
func (k *Heads) Into(s *mlx.Scope, q, key, v Cols, qNorm, kNorm mlx.Array, at Place, invFreq, keys, values mlx.Array) (queries, done mlx.Array, ok bool) {
	out := k.shape.intoCall(q, key, v, qNorm, kNorm, at, invFreq, keys, values).run(s, k.into)
	if k.into.Backend() == "fallback" {
		k.into = nil
		return mlx.Array{}, mlx.Array{}, false
	}
	if len(out) != 2 {
		return mlx.Array{}, mlx.Array{}, true // the scope has the error
	}
	return out[0], s.SliceAxis(out[1], 0, 0, 1), true
}

func (d HeadsShape) intoCall(q, k, v Cols, qNorm, kNorm mlx.Array, at Place, invFreq, keys, values mlx.Array) call {
	t, dt, n := k.Array.Dim(1), k.Array.Dtype(), d.Queries
	queries := mlx.Output{Dtype: dt, Shape: []int{1, n, t, d.Dim}}
	if !q.Array.Valid() {
		q, qNorm, n = k, kNorm, 0
		queries.Shape = []int{1}
	}
	base, based := at.based()
	return call{
		in: []mlx.Array{q.Array, k.Array, v.Array, qNorm, kNorm, at.Position, invFreq, keys, values, base},
		launch: mlx.Launch{
			Outputs: []mlx.Output{queries, {Dtype: mlx.Int32, Shape: []int{nearSize}}},
			Grid:    warps(t * (n + 2*d.Keys)), Group: [3]int{128},
			Template: append(d.splitTemplate(n, q, k, v), mlx.TemplateArg{Name: "BASED", Value: based}),
		},
		writes: []int{7, 8},
	}
}
