package nn

import (
	"fmt"

	"github.com/godflash/godflash/mlx"
)

// Fork is the same rows in a cache of its own: both hold one pair of buffers
// until either writes, and the writer then gets a copy, because MLX writes in
// place only where nobody else holds the buffer.
func (c *KV) Fork(owner *mlx.Scope) *KV {
	f := &KV{base: c.base, heads: c.heads, dim: c.dim, dtype: c.dtype}
	if c.keys.Valid() {
		f.keys, f.values = owner.Ref(c.keys), owner.Ref(c.values)
		f.shared, c.shared = true, true
	}
	return f
}

// Restart forgets the rows and goes on at position base, before which no query
// will look.
func (c *KV) Restart(owner *mlx.Scope, base int) {
	c.Clear(owner)
	c.base = base
}

// Rows copies the rows of positions from to to, less those below Base, as keys
// and values [1, heads, rows, dim]. The zero Arrays stand for no rows.
func (c *KV) Rows(s *mlx.Scope, from, to int) (keys, values mlx.Array) {
	from = max(from, c.base)
	if from >= to || !c.keys.Valid() {
		return mlx.Array{}, mlx.Array{}
	}
	// What lies row by row already MLX hands on as it is, without a copy.
	c.shared = c.shared || c.heads == 1 || to-from == c.keys.Dim(2)
	cut := func(a mlx.Array) mlx.Array {
		return s.Contiguous(s.SliceAxis(a, 2, from-c.base, to-c.base))
	}
	return cut(c.keys), cut(c.values)
}

// CheckRows says why keys and values cannot be rows of this cache. It returns
// their number.
func (c *KV) CheckRows(keys, values mlx.Array) (int, error) {
	if !keys.Valid() && !values.Valid() {
		return 0, nil
	}
	for _, a := range []mlx.Array{keys, values} {
		if !keys.Valid() || !a.Valid() || a.NDim() != 4 || keys.NDim() != 4 || a.Dim(0) != 1 || a.Dim(1) != c.heads || a.Dim(3) != c.dim || a.Dim(2) != keys.Dim(2) || a.Dtype() != c.dtype {
			return 0, fmt.Errorf("keys %s and values %s, expected %v [1 %d rows %d]", Describe(keys), Describe(values), c.dtype, c.heads, c.dim)
		}
	}
	return keys.Dim(2), nil
}

// Describe is an array's type and shape, without its values.
func Describe(a mlx.Array) string {
	if !a.Valid() {
		return "none"
	}
	return fmt.Sprint(a.Dtype(), a.Shape())
}

// Load puts rows that CheckRows accepts into an empty cache: keys[i] and
// values[i] in order of position, the last row at position end-1.
func (c *KV) Load(s, owner *mlx.Scope, keys, values []mlx.Array, end int) {
	n := 0
	for _, k := range keys {
		n += k.Dim(2)
	}
	c.base = end - n
	if n == 0 {
		return
	}
	capacity := capacityFor(n)
	fill := func(parts []mlx.Array) mlx.Array {
		fresh := s.Zeros(c.dtype, 1, c.heads, capacity, c.dim)
		rows := parts[0]
		if len(parts) > 1 {
			rows = s.Concat(2, parts...)
		}
		return owner.Move(s.SliceUpdate(fresh, rows, []int{0, 0, 0, 0}, []int{1, c.heads, n, c.dim}))
	}
	c.keys, c.values = fill(keys), fill(values)
	c.shared = n == capacity // MLX's update of a whole buffer is the rows themselves
}
