package qwen

import (
	"errors"
	"fmt"
	"slices"

	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/mlx"
)

// A sequence has a past that can be shared and gone back to. Rows of attention
// layers can be cut anywhere; a recurrent state cannot, so States hands it out
// wherever a caller may want to return, as references.

// settled says why the past cannot be looked at.
func (c *Cache) settled() error {
	switch {
	case c.pending > 0:
		return ErrPending
	case !c.at.Exact():
		return errors.New("the cache's length is not settled")
	}
	return nil
}

// Fork makes a cache with the same committed rows. Buffers are shared until one
// of the two writes to them. It needs a cache with no pending rows whose length
// the host knows.
func (c *Cache) Fork() (*Cache, error) {
	if err := c.settled(); err != nil {
		return nil, err
	}
	f := &Cache{
		owner: c.owner.Library().NewScope("cache"),
		kv:    make([]*nn.KV, len(c.kv)), rec: make([]*recurrent, len(c.rec)),
		at: c.at, max: c.max, state: c.state,
	}
	for i := range c.kv {
		if c.kv[i] != nil {
			f.kv[i] = c.kv[i].Fork(f.owner)
			continue
		}
		f.rec[i] = &recurrent{}
		if r := c.rec[i]; r.conv.Valid() {
			f.rec[i].conv, f.rec[i].state = f.owner.Ref(r.conv), f.owner.Ref(r.state)
		}
	}
	if c.last.Valid() {
		f.last = f.owner.Ref(c.last)
	}
	if err := f.owner.Err(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// States gives references to the recurrent layers' state after the committed
// rows, to be owned by s: for each such layer in order, Conv and Recurrent as
// LayerState has them. It is empty for an empty sequence and for a model
// without recurrent layers. Rows may be in flight; the state is then that after
// all of them.
func (c *Cache) States(s *mlx.Scope) []mlx.Array {
	var out []mlx.Array
	for _, r := range c.rec {
		if r != nil && r.conv.Valid() {
			out = append(out, s.Ref(r.conv), s.Ref(r.state))
		}
	}
	return out
}

// Trim goes back to the first n rows. A model with recurrent layers needs their
// States at n, to which the cache takes references, unless n is 0 or Len.
func (c *Cache) Trim(n int, states []mlx.Array) error {
	if err := c.settled(); err != nil {
		return err
	}
	switch {
	case n < 0 || n > c.at.Bound:
		return fmt.Errorf("trim a sequence of %d rows to %d", c.at.Bound, n)
	case n == c.at.Bound:
		return nil
	case n == 0:
		c.Reset()
		return nil
	}
	if err := c.checkStates(states); err != nil {
		return err
	}
	c.setStates(states)
	c.at = nn.At(n)
	return c.owner.Err()
}

// Rows copies the keys and values of positions from to to: for each attention
// layer in order, keys and values [1, heads, to-from, dim].
func (c *Cache) Rows(s *mlx.Scope, from, to int) []mlx.Array {
	if err := c.settled(); err != nil {
		s.Fail(err)
		return nil
	}
	if from < 0 || from >= to || to > c.at.Bound {
		s.Fail(fmt.Errorf("rows %d to %d of a sequence of %d", from, to, c.at.Bound))
		return nil
	}
	c.settle(s)
	var out []mlx.Array
	for _, kv := range c.kv {
		if kv != nil {
			k, v := kv.Rows(s, from, to)
			out = append(out, k, v)
		}
	}
	return out
}

// Restore makes the sequence n rows long: parts are consecutive results of Rows
// from position 0 on, states those of States at n. What does not have the
// model's shapes and types is refused, and the sequence is then empty.
func (c *Cache) Restore(s *mlx.Scope, n int, parts [][]mlx.Array, states []mlx.Array) error {
	if n < 1 || n > c.max {
		return fmt.Errorf("%w: %d rows, the model has %d positions", ErrContextLength, n, c.max)
	}
	c.Reset()
	if err := c.checkStates(states); err != nil {
		return err
	}
	keys, values := make([][]mlx.Array, len(c.kv)), make([][]mlx.Array, len(c.kv))
	for _, part := range parts {
		j := 0
		rows := -1
		for i, kv := range c.kv {
			if kv == nil {
				continue
			}
			if 2*j+1 >= len(part) {
				return fmt.Errorf("a part has %d arrays, too few", len(part))
			}
			k, err := kv.CheckRows(part[2*j], part[2*j+1])
			if err != nil {
				return fmt.Errorf("layer %d: %w", i, err)
			}
			if k == 0 || rows >= 0 && k != rows {
				return fmt.Errorf("layer %d: %d rows, in the layers before %d", i, k, rows)
			}
			rows = k
			keys[i], values[i] = append(keys[i], part[2*j]), append(values[i], part[2*j+1])
			j++
		}
		if 2*j != len(part) {
			return fmt.Errorf("a part has %d arrays, expected %d", len(part), 2*j)
		}
	}
	for i := range c.kv {
		have := 0
		for _, k := range keys[i] {
			have += k.Dim(2)
		}
		if c.kv[i] != nil && have != n {
			return fmt.Errorf("layer %d: %d rows, expected %d", i, have, n)
		}
	}
	for i, kv := range c.kv {
		if kv != nil {
			kv.Load(s, c.owner, keys[i], values[i], n)
		}
	}
	c.setStates(states)
	c.at = nn.At(n)
	if err := errors.Join(s.Err(), c.owner.Err()); err != nil {
		c.Reset()
		return err
	}
	return nil
}

// stateShape is what States must look like.
type stateShape struct {
	layers          int // recurrent ones
	conv, recurrent []int
	dtype           mlx.Dtype // of conv
}

func (m *Model) stateShape() stateShape {
	d := m.cfg.deltaShape()
	sh := stateShape{conv: d.Tail(), recurrent: d.State(), dtype: m.dtype}
	for _, kind := range m.cfg.LayerTypes {
		if kind != FullAttention {
			sh.layers++
		}
	}
	return sh
}

func (c *Cache) checkStates(states []mlx.Array) error {
	if len(states) != 2*c.state.layers {
		return fmt.Errorf("%d recurrent states, the model has %d", len(states), 2*c.state.layers)
	}
	for i, a := range states {
		shape, dtype := c.state.conv, c.state.dtype
		if i%2 == 1 {
			shape, dtype = c.state.recurrent, mlx.Float32
		}
		if !a.Valid() || a.Dtype() != dtype || !slices.Equal(a.Shape(), shape) {
			return fmt.Errorf("recurrent state %d is %s, expected %v %v", i, nn.Describe(a), dtype, shape)
		}
	}
	return nil
}

// setStates replaces the recurrent states by references.
func (c *Cache) setStates(states []mlx.Array) {
	for _, r := range c.rec {
		if r == nil {
			continue
		}
		conv, state := c.owner.Ref(states[0]), c.owner.Ref(states[1])
		r.clear(c.owner)
		r.conv, r.state = conv, state
		states = states[2:]
	}
}
