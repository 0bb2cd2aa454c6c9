package nn

import (
	"math/bits"

	"github.com/godflash/godflash/mlx"
)

// RowStep divides the rows of a cache, and of the keys that take part where the
// host knows only a bound of their number. A fixed step keeps the number of
// distinct shapes small, which the GPU backends' plan caches want.
const RowStep = 256

// wholeSteps is n rows, rounded up.
func wholeSteps(n int) int { return roundUp(n, RowStep) }

func roundUp(n, step int) int { return (n + step - 1) / step * step }

// capacityFor is the rows allocated for n: few sizes, because each costs a copy of
// all that is there and, on a GPU, a recording of each pass, and at most an eighth
// too many for long sequences.
func capacityFor(n int) int {
	switch {
	case n <= 1024:
		return wholeSteps(n)
	case n <= 8192:
		return roundUp(n, 2*RowStep)
	}
	return roundUp(n, 1<<(bits.Len(uint(n))-1)/8)
}

// KV holds the keys and values of one attention layer: two buffers
// [1, heads, capacity, dim] whose rows below the sequence's length are valid.
// Rows past it are scratch: rejected drafts and the drafter's own block lie
// there until the next write covers them, so giving rows back costs nothing.
//
// Row 0 holds the position base. A layer that attends to a window drops rows
// that no query can reach again; the rest stays in order of position.
type KV struct {
	keys, values mlx.Array
	base         int
	origin       mlx.Array // of a stand-in: the position of row 0 as data, int32 [1]
	shared       bool      // somebody else has the buffers too, see Fork, Rows and Load
	heads, dim   int
	dtype        mlx.Dtype
	// next are the buffers that the running round wrote, adopted by Adopt once
	// the whole forward pass is known to be built without an error.
	next struct {
		keys, values mlx.Array
		base         int
	}
}

// NewKV makes an empty cache for heads key heads of size dim.
func NewKV(heads, dim int, dtype mlx.Dtype) *KV {
	return &KV{heads: heads, dim: dim, dtype: dtype}
}

// Capacity is the number of rows allocated.
func (c *KV) Capacity() int {
	if !c.keys.Valid() {
		return 0
	}
	return c.keys.Dim(2)
}

// Base is the position of row 0.
func (c *KV) Base() int { return c.base }

// Arrays lists the buffers, for evaluation.
func (c *KV) Arrays() []mlx.Array {
	if !c.keys.Valid() {
		return nil
	}
	return []mlx.Array{c.keys, c.values}
}

// Write puts the block's keys and values [1, heads, T, dim] at position p and
// returns the buffers with the block in them. A second Write before Adopt goes
// on from the first.
//
// keep is the lowest position that must stay readable; 0 keeps everything.
func (c *KV) Write(s *mlx.Scope, k, v mlx.Array, p Position, keep int) (keys, values mlx.Array) {
	keys, values, base := c.keys, c.values, c.base
	if c.next.keys.Valid() {
		keys, values, base = c.next.keys, c.next.values, c.next.base
	}
	t := k.Dim(2)
	keys, values, base = c.reserve(s, keys, values, base, p.Bound+t, p.Bound, keep)
	if p.Exact() {
		at := p.Bound - base
		start, stop := []int{0, 0, at, 0}, []int{1, c.heads, at + t, c.dim}
		keys = s.SliceUpdate(keys, k, start, stop)
		values = s.SliceUpdate(values, v, start, stop)
	} else {
		at := p.Array
		switch {
		case c.origin.Valid():
			at = s.Sub(at, c.origin)
		case base > 0:
			at = s.Sub(at, mlx.FromSlice(s, []int32{int32(base)}))
		}
		keys = s.SliceUpdateDynamic(keys, k, at, []int{2})
		values = s.SliceUpdateDynamic(values, v, at, []int{2})
	}
	c.next.keys, c.next.values, c.next.base = keys, values, base
	return keys, values
}

// reserve makes room for rows below position end. When the buffer is full and
// rows below keep can go, the rest moves to the front; otherwise the buffer
// grows.
func (c *KV) reserve(s *mlx.Scope, keys, values mlx.Array, base, end, used, keep int) (mlx.Array, mlx.Array, int) {
	if keys.Valid() && end-base <= keys.Dim(2) {
		return keys, values, base
	}
	return c.renew(s, keys, values, base, end, used, keep)
}

// renew makes buffers with room for rows below position end, and copies those from
// keep to used.
func (c *KV) renew(s *mlx.Scope, keys, values mlx.Array, base, end, used, keep int) (mlx.Array, mlx.Array, int) {
	from := max(base, min(keep, used))
	capacity := capacityFor(end - from)
	grow := func(old mlx.Array) mlx.Array {
		fresh := s.Zeros(c.dtype, 1, c.heads, capacity, c.dim)
		if n := used - from; old.Valid() && n > 0 {
			rows := s.SliceAxis(old, 2, from-base, used-base)
			fresh = s.SliceUpdate(fresh, rows, []int{0, 0, 0, 0}, []int{1, c.heads, n, c.dim})
		}
		return fresh
	}
	return grow(keys), grow(values), from
}

// Adopt moves what Write made into owner and frees the buffers before it. They
// must be gone before evaluation: a write happens in place only when nobody
// else holds the buffer.
func (c *KV) Adopt(owner *mlx.Scope) {
	if !c.next.keys.Valid() {
		return
	}
	if c.next.keys != c.keys { // Into writes to the buffers that are here
		owner.Free(c.keys, c.values)
		c.keys, c.values = owner.Move(c.next.keys), owner.Move(c.next.values)
		c.base, c.shared = c.next.base, false
	}
	c.Discard()
}

// Discard forgets what Write made and Adopt did not take.
func (c *KV) Discard() {
	c.next.keys, c.next.values, c.next.base = mlx.Array{}, mlx.Array{}, 0
}

// Clear frees the buffers.
func (c *KV) Clear(owner *mlx.Scope) {
	c.Discard()
	owner.Free(c.keys, c.values)
	c.keys, c.values, c.base, c.shared = mlx.Array{}, mlx.Array{}, 0, false
}

// Begins is the position of row 0 of the buffers that Write returned.
func (c *KV) Begins() int {
	if c.next.keys.Valid() {
		return c.next.base
	}
	return c.base
}

// Origin is Begins as data, int32 [1], and the zero Array for 0.
func (c *KV) Origin(s *mlx.Scope) mlx.Array {
	if c.origin.Valid() || c.Begins() == 0 {
		return c.origin
	}
	return mlx.FromSlice(s, []int32{int32(c.Begins())})
}

// Window selects which keys the rows of a block may see.
type Window struct {
	// Causal hides keys after the row's own position.
	Causal bool
	// Size, when positive, hides keys Size or more positions before the row.
	Size int
}

// Attend is scaled-dot-product attention of a block's queries [1, Hq, T, dim],
// at positions p and on, over the rows that Write returned.
//
// With an exact position the keys are cut to what can be seen. Otherwise all
// rows up to the bound, rounded up to RowStep, take part and a mask made from
// the positions hides the rest; on the CPU both give the same bits, because a
// hidden key adds an exact zero at the end of each sum.
func (c *KV) Attend(s *mlx.Scope, q, keys, values mlx.Array, p Position, w Window, scale float32) mlx.Array {
	base, t := c.Begins(), q.Dim(2)
	o := mlx.AttentionOptions{Scale: scale}
	end := p.Bound + t - base
	if p.Exact() {
		from := 0
		if w.Size > 0 {
			from = max(0, p.Bound-(w.Size-1)-base)
		}
		keys, values = s.SliceAxis(keys, 2, from, end), s.SliceAxis(values, 2, from, end)
		switch {
		case w.Size > 0 && t > 1 && p.Bound+t-base-from > w.Size:
			o.Mask = w.mask(s, p, t, mlx.Array{}, base+from, end-from)
		case w.Causal && t > 1:
			o.Causal = true
		}
		return s.Attention(q, keys, values, o)
	}
	end = min(wholeSteps(end), keys.Dim(2))
	if end < keys.Dim(2) {
		keys, values = s.SliceAxis(keys, 2, 0, end), s.SliceAxis(values, 2, 0, end)
	}
	o.Mask = w.mask(s, p, t, c.origin, base, end)
	return s.Attention(q, keys, values, o)
}

// mask is true where a row of the block may see a key: [T, keys], the block at
// p, the first key at position from, counted from origin where there is one.
func (w Window) mask(s *mlx.Scope, p Position, t int, origin mlx.Array, from, keys int) mlx.Array {
	at := p.Data(s)
	key := s.Reshape(s.Arange(float64(from), float64(from+keys), 1, mlx.Int32), 1, keys)
	if origin.Valid() {
		key = s.Add(key, origin)
	}
	row := s.Reshape(s.Add(s.Arange(0, float64(t), 1, mlx.Int32), at), t, 1)
	limit := row
	if !w.Causal {
		// The whole block is visible to each of its rows, nothing past it.
		limit = s.Add(at, mlx.FromSlice(s, []int32{int32(t - 1)}))
	}
	seen := s.LessEqual(key, limit)
	if w.Size > 0 {
		first := s.Sub(row, mlx.FromSlice(s, []int32{int32(w.Size - 1)}))
		seen = s.LogicalAnd(seen, s.GreaterEqual(key, first))
	}
	return seen
}
