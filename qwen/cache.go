package qwen

import (
	"errors"
	"fmt"

	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/internal/replay"
	"github.com/godflash/godflash/mlx"
)

// ErrPending is returned when a forward pass meets a block that was neither
// committed nor given back.
var ErrPending = errors.New("the block before is still pending: Commit comes first")

// ErrContextLength is returned when a block would pass the model's last position.
var ErrContextLength = errors.New("context length exceeded")

// Cache is the state of one sequence: keys and values of the attention layers,
// convolution tail and recurrent matrix of the gated-delta layers.
//
// A forward pass leaves its rows pending; Commit keeps the first n of them and
// gives the rest back. All methods but Close, Len and Pending must run inside
// mlx's Do, and one Cache must not be used from two goroutines at once.
type Cache struct {
	owner   *mlx.Scope
	kv      []*nn.KV     // per layer, nil where the layer is recurrent
	rec     []*recurrent // per layer, nil where the layer is attention
	at      nn.Position  // of the first row that is not committed
	pending int          // rows of the last forward pass
	whole   bool         // they, or those of the pass to come, are kept whole
	max     int          // positions that the model has
	state   stateShape
	// last is the last pass's Hidden where its kernels wrote to the buffers in
	// place: whoever needs the rows depends on it.
	last  mlx.Array
	steps *replay.Steps // for the commit of a pass with ForwardOptions.Recorded, nil after others
}

// NewCache makes the state of an empty sequence. It may be called from any
// goroutine; nothing is allocated until the first forward pass.
func (m *Model) NewCache() *Cache {
	c := &Cache{
		owner: m.lib.NewScope("cache"),
		kv:    make([]*nn.KV, m.cfg.NumHiddenLayers),
		rec:   make([]*recurrent, m.cfg.NumHiddenLayers),
		max:   m.cfg.MaxPositionEmbeddings,
		state: m.stateShape(),
	}
	for i, kind := range m.cfg.LayerTypes {
		if kind == FullAttention {
			c.kv[i] = m.newKV()
		} else {
			c.rec[i] = &recurrent{}
		}
	}
	return c
}

func (m *Model) newKV() *nn.KV {
	return nn.NewKV(m.cfg.NumKeyValueHeads, m.cfg.HeadDim, m.dtype)
}

// Close frees the state. It may be called from any goroutine, more than once.
func (c *Cache) Close() error { return c.owner.Close() }

// Len is the number of committed rows, or an upper bound after CommitArray
// until Settle.
func (c *Cache) Len() int { return c.at.Bound }

// Pending is the number of rows of the last forward pass that wait for Commit.
func (c *Cache) Pending() int { return c.pending }

// Reset empties the sequence and gives the buffers back.
func (c *Cache) Reset() {
	for i := range c.kv {
		if c.kv[i] != nil {
			c.kv[i].Clear(c.owner)
		} else {
			c.rec[i].clear(c.owner)
		}
	}
	c.owner.Free(c.at.Array, c.last)
	c.at, c.pending, c.last = nn.At(0), 0, mlx.Array{}
}

// Whole announces that all rows of the next forward pass will be committed, which
// for thousands of rows through gated-delta layers needs much less memory until
// then. Commit then takes all or none of them, and CommitArray none.
func (c *Cache) Whole() { c.whole = c.pending == 0 }

// Commit keeps the first n of the pending rows, 0 <= n <= Pending, and gives
// the others back: attention rows past the new length are scratch, recurrent
// layers scan the kept rows again from the state before the block. The result
// has the same bits as having run only the n rows.
//
// It only builds the graph; evaluate Arrays with the round's results.
func (c *Cache) Commit(s *mlx.Scope, n int) error {
	if n < 0 || n > c.pending {
		return fmt.Errorf("commit %d rows of a block of %d", n, c.pending)
	}
	if c.whole && n > 0 && n < c.pending {
		return fmt.Errorf("commit %d rows of %d that were announced as a whole", n, c.pending)
	}
	return c.commit(s, nn.Rows{N: n})
}

// CommitArray is Commit with a count that only the device knows yet: n is
// int32 [1] with a value of 1 to Pending. Len is an upper bound from here on
// until Settle.
func (c *Cache) CommitArray(s *mlx.Scope, n mlx.Array) error {
	if c.pending == 0 {
		return errors.New("commit without a pending block")
	}
	if c.whole {
		return errors.New("the pending rows were announced as a whole")
	}
	return c.commit(s, nn.Rows{N: c.pending, Array: n})
}

func (c *Cache) commit(s *mlx.Scope, n nn.Rows) error {
	if c.pending == 0 {
		if n.N == 0 {
			return nil
		}
		return errors.New("commit without a pending block")
	}
	after := c.at.Advance(s, n)
	if !c.commitRecorded(s, n) {
		commitRows(s, c.rec, n)
	}
	if err := s.Err(); err != nil {
		return err
	}
	for _, r := range c.rec {
		if r != nil {
			r.adopt(c.owner)
		}
	}
	if after.Array.Valid() {
		old := c.at.Array
		after.Array = c.owner.Move(after.Array)
		c.owner.Free(old)
	}
	c.at, c.pending, c.whole = after, 0, false
	return nil
}

// Settle tells the cache how many rows are committed once the host has read
// the counts. inFlight is the upper bound of rows whose count is still out.
func (c *Cache) Settle(length, inFlight int) {
	c.at.Bound = length + inFlight
	if inFlight == 0 {
		c.owner.Free(c.at.Array)
		c.at.Array = mlx.Array{}
	}
}

// Arrays lists every array of the state. Evaluate them with the logits of each
// round, or graphs chain up and memory grows.
func (c *Cache) Arrays() []mlx.Array {
	var out []mlx.Array
	for i := range c.kv {
		if c.kv[i] != nil {
			out = append(out, c.kv[i].Arrays()...)
		} else {
			out = append(out, c.rec[i].arrays()...)
		}
	}
	if c.at.Array.Valid() {
		out = append(out, c.at.Array)
	}
	if c.last.Valid() {
		out = append(out, c.last)
	}
	return out
}

// settle has what was written in place handed to the device before MLX reads the
// buffers, or another pass begins: MLX does not know that they change, and nothing
// else need lead from one pass to the next.
func (c *Cache) settle(s *mlx.Scope) {
	if c.last.Valid() && s.Err() == nil {
		s.Fail(s.AsyncEval(c.last))
	}
}

// LayerState is the committed state of one layer. Attention layers have Keys
// and Values [1, heads, Len, dim]; gated-delta layers have Conv, the last rows
// of the convolution's input [1, kernel-1, channels], oldest first, and
// Recurrent, float32 [1, value heads, key dim, value dim].
type LayerState struct {
	Keys, Values    mlx.Array
	Conv, Recurrent mlx.Array
}

// Layer copies the committed state of a layer into s. It needs a cache with no
// pending rows whose length the host knows; an empty sequence gives zero Arrays.
func (c *Cache) Layer(s *mlx.Scope, layer int) (LayerState, error) {
	switch {
	case layer < 0 || layer >= len(c.kv):
		return LayerState{}, fmt.Errorf("layer %d of a model with %d", layer, len(c.kv))
	case c.pending > 0:
		return LayerState{}, ErrPending
	case !c.at.Exact():
		return LayerState{}, errors.New("the cache's length is not settled")
	}
	var st LayerState
	if c.at.Bound == 0 {
		return st, s.Err()
	}
	if kv := c.kv[layer]; kv != nil {
		c.settle(s)
		st.Keys, st.Values = kv.Rows(s, 0, c.at.Bound)
	} else if r := c.rec[layer]; r.conv.Valid() {
		st.Conv, st.Recurrent = s.Copy(r.conv), s.Copy(r.state)
	}
	return st, s.Err()
}

// begin checks that a block of rows may run.
func (c *Cache) begin(rows int) error {
	switch {
	case c.pending > 0:
		return ErrPending
	case rows < 1:
		return errors.New("a forward pass needs at least one token")
	case c.at.Bound+rows > c.max:
		return fmt.Errorf("%w: positions %d to %d, the model has %d", ErrContextLength, c.at.Bound, c.at.Bound+rows-1, c.max)
	}
	return nil
}

// announce tells the recurrent layers whether the pass to come is kept whole, and
// takes the announcement back: it counts once the pass is built.
func (c *Cache) announce() bool {
	if c.pending > 0 {
		return false // the pass will be refused
	}
	whole := c.whole
	c.whole = false
	for _, r := range c.rec {
		if r != nil {
			r.whole = whole
		}
	}
	return whole
}

// written lists what the layers of the running pass have left in its scope.
func (c *Cache) written() []mlx.Array {
	var out []mlx.Array
	for i, kv := range c.kv {
		if kv != nil {
			keys, values := kv.Written()
			out = append(out, keys, values)
			continue
		}
		r := c.rec[i]
		out = append(out, r.next.conv, r.next.state)
		r.block.each(func(a *mlx.Array) { out = append(out, *a) })
	}
	return out
}

// adopt takes what the layers wrote in a forward pass that was built without
// an error. last is for Cache.last, the zero Array where nothing was written in
// place.
func (c *Cache) adopt(rows int, last mlx.Array) {
	c.owner.Free(c.last)
	c.last = mlx.Array{}
	if last.Valid() {
		c.last = c.owner.Ref(last)
	}
	for i := range c.kv {
		if c.kv[i] != nil {
			c.kv[i].Adopt(c.owner)
		} else {
			c.rec[i].hold(c.owner)
		}
	}
	c.pending = rows
}

// discard forgets a forward pass that failed while it was built: the cache is
// as before.
func (c *Cache) discard() {
	for i := range c.kv {
		if c.kv[i] != nil {
			c.kv[i].Discard()
		} else {
			c.rec[i].discard()
		}
	}
}
