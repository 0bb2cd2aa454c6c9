package nn

import "github.com/godflash/godflash/mlx"

// A recorded pass (package replay) reads and writes buffers that change from
// call to call. It is recorded with a stand-in for each cache, whose buffers are
// the function's inputs, and afterwards the real cache takes the function's
// results for what it wrote.

// Open makes room for a block of rows at p, as Write does, in buffers that nobody
// else holds, and gives them: for a recorded pass, or for [kernels.Heads.Into],
// which write the rows themselves. Adopt or Discard ends it as after Write.
func (c *KV) Open(s *mlx.Scope, p Position, rows, keep int) (keys, values mlx.Array) {
	if c.Fits(p, rows) {
		keys, values, base := c.keys, c.values, c.base
		c.next.keys, c.next.values, c.next.base = keys, values, base
		return keys, values
	}
	keys, values, base := c.renew(s, c.keys, c.values, c.base, p.Bound+rows, p.Bound, keep)
	c.next.keys, c.next.values, c.next.base = keys, values, base
	return keys, values
}

// Fits reports whether Open has nothing to copy: there is room, and nobody shares
// it.
func (c *KV) Fits(p Position, rows int) bool {
	return c.keys.Valid() && !c.shared && p.Bound+rows-c.base <= c.keys.Dim(2)
}

// StandIn makes an empty cache one for a recording, with buffers whose row 0 is
// position base, or origin where that is valid.
func (c *KV) StandIn(keys, values mlx.Array, base int, origin mlx.Array) *KV {
	c.keys, c.values, c.base, c.origin = keys, values, base, origin
	return c
}

// Written are the buffers that Write left.
func (c *KV) Written() (keys, values mlx.Array) { return c.next.keys, c.next.values }

// Wrote makes the results of a recorded pass what Write left.
func (c *KV) Wrote(keys, values mlx.Array) { c.next.keys, c.next.values = keys, values }

// Bucket is a bound, the same for many, that recorded passes over rows from p can
// share: they look at keys up to the next whole step.
func (p Position) Bucket(rows int) int { return wholeSteps(p.Bound+rows) - rows }
