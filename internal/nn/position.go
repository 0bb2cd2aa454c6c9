package nn

import (
	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/internal/rope"
	"github.com/godflash/godflash/mlx"
)

// Rotation is how the first dims features of a head's queries and keys rotate.
// With a scaling it carries wavelengths, which live in s and are not evaluated
// yet, and the scaling's magnitude goes into the weights of the norms that
// queries and keys pass just before: what is multiplied before a rotation comes
// out of it multiplied.
func Rotation(s *mlx.Scope, dims int, theta float32, y *rope.YaRN, norms ...*RMSNorm) mlx.RoPEOptions {
	if y == nil {
		return mlx.RoPEOptions{Dims: dims, Base: theta}
	}
	for _, n := range norms {
		n.Weight = s.Mul(n.Weight, mlx.FromSlice(s, y.Magnify(dims, n.Weight.Size())))
	}
	return mlx.RoPEOptions{Dims: dims, Freqs: mlx.FromSlice(s, y.Wavelengths(dims, float64(theta)))}
}

// Position says where a block of rows begins in a sequence. The host knows it
// exactly when it has read every accepted count; while a cycle is still in
// flight only the device does, and the host has an upper bound.
type Position struct {
	// Bound is the position itself, or, when Array is set, an upper bound.
	Bound int
	// Array is the position as data, int32 of shape [1]; the zero Array when
	// the host knows the position.
	Array mlx.Array
}

// At is a position that the host knows.
func At(p int) Position { return Position{Bound: p} }

// Exact reports whether the host knows the position.
func (p Position) Exact() bool { return !p.Array.Valid() }

// Data is the position as data, int32 [1].
func (p Position) Data(s *mlx.Scope) mlx.Array {
	if p.Exact() {
		return mlx.FromSlice(s, []int32{int32(p.Bound)})
	}
	return p.Array
}

// RoPE rotates x [1, heads, T, dim], whose first row is at p.
func (p Position) RoPE(s *mlx.Scope, x mlx.Array, o mlx.RoPEOptions) mlx.Array {
	if p.Exact() {
		return s.RoPE(x, o, p.Bound)
	}
	return s.RoPEDynamic(x, o, p.Array)
}

// Rows counts the rows of a block that are kept: a number that the host knows,
// or an array.
type Rows struct {
	// N is the count, or, when Array is set, an upper bound.
	N int
	// Array is the count as data, int32 of shape [1], or the zero Array.
	Array mlx.Array
}

// Exact reports whether the host knows the count.
func (r Rows) Exact() bool { return !r.Array.Valid() }

// Count is the count as data, int32 of shape [1].
func (r Rows) Count(s *mlx.Scope) mlx.Array {
	if r.Exact() {
		return mlx.FromSlice(s, []int32{int32(r.N)})
	}
	return r.Array
}

// Advance is the position n rows after p. The array of the result lives in s.
func (p Position) Advance(s *mlx.Scope, n Rows) Position {
	if p.Exact() && n.Exact() {
		return At(p.Bound + n.N)
	}
	return Position{Bound: p.Bound + n.N, Array: kernels.Near(s, s.Add(p.Data(s), n.Count(s)))}
}
