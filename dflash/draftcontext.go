package dflash

import (
	"errors"
	"fmt"
	"slices"

	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/mlx"
)

// DraftContext is a drafter's state of one sequence: keys and values of one
// row per committed token. A block's own rows are never part of it.
type DraftContext struct {
	owner *mlx.Scope
	kv    []*nn.KV
	at    nn.Position
	low   int // rows that are committed for sure while at is an upper bound
	// window is each layer's, 0 for full attention.
	window []int
	// end is the position as data after rows that kernels wrote in place, where the
	// host knows it, too: whoever reads them depends on it.
	end mlx.Array
	// recorded has the passes replayed, see qwen.ForwardOptions.Recorded.
	recorded bool
}

// NewContext makes the state of an empty sequence, from any goroutine.
func (d *Drafter) NewContext() *DraftContext {
	c := &DraftContext{owner: d.lib.NewScope("draft context"), kv: make([]*nn.KV, len(d.layers)), recorded: d.lib.Device() == mlx.DeviceGPU}
	for i := range c.kv {
		c.kv[i] = d.newKV()
		c.window = append(c.window, d.layers[i].window.Size)
	}
	return c
}

func (d *Drafter) newKV() *nn.KV {
	return nn.NewKV(d.cfg.NumKeyValueHeads, d.cfg.HeadDim, d.dtype)
}

// Len is the number of context rows, or an upper bound until Settle.
func (c *DraftContext) Len() int { return c.at.Bound }

// Close frees the state, from any goroutine.
func (c *DraftContext) Close() error { return c.owner.Close() }

// Reset empties the context.
func (c *DraftContext) Reset() {
	for _, kv := range c.kv {
		kv.Clear(c.owner)
	}
	c.owner.Free(c.at.Array)
	c.dropEnd()
	c.at, c.low = nn.At(0), 0
}

func (c *DraftContext) dropEnd() {
	c.owner.Free(c.end)
	c.end = mlx.Array{}
}

// position is at as data.
func (c *DraftContext) position(s *mlx.Scope) mlx.Array {
	if c.end.Valid() {
		return c.end
	}
	return c.at.Data(s)
}

// settleFor is settle before a draft of rows whose buffers MLX copies or writes to.
func (c *DraftContext) settleFor(s *mlx.Scope, rows int) {
	fits := rows <= kernels.BlockRows
	for _, kv := range c.kv {
		fits = fits && kv.Fits(c.at, rows)
	}
	if !fits {
		c.settle(s)
	}
}

// settle is qwen.Cache's.
func (c *DraftContext) settle(s *mlx.Scope) {
	for _, a := range []mlx.Array{c.end, c.at.Array} {
		if a.Valid() && s.Err() == nil {
			s.Fail(s.AsyncEval(a))
		}
	}
}

// Settle is TargetCache.Settle for the context.
func (c *DraftContext) Settle(length, inFlight int) {
	c.at.Bound, c.low = length+inFlight, length
	if inFlight == 0 {
		c.owner.Free(c.at.Array)
		c.at.Array = mlx.Array{}
	}
}

// Arrays lists every array of the state, for evaluation.
func (c *DraftContext) Arrays() []mlx.Array {
	var out []mlx.Array
	for _, kv := range c.kv {
		out = append(out, kv.Arrays()...)
	}
	if c.at.Array.Valid() {
		out = append(out, c.at.Array)
	}
	if c.end.Valid() {
		out = append(out, c.end)
	}
	return out
}

// reaches says whether the context can be cut to n rows: layers with a window
// drop what no later query needs, so far back there may be nothing left.
func (c *DraftContext) reaches(n int) bool {
	if n > c.at.Bound {
		return false
	}
	for i, kv := range c.kv {
		if kv.Base() > c.needs(i, n) {
			return false
		}
	}
	return true
}

// needs is the lowest position that layer i looks at from n on.
func (c *DraftContext) needs(i, n int) int {
	if c.window[i] == 0 {
		return 0
	}
	return max(0, n-(c.window[i]-1))
}

// widest is the number of rows before a position that the layers with a window
// look at.
func (c *DraftContext) widest() int {
	widest := 0
	for _, w := range c.window {
		widest = max(widest, w-1)
	}
	return widest
}

// trim cuts the context to n rows, at most Len. Layers that do not reach so far
// back begin anew: their rows below n are missing until widest rows follow.
func (c *DraftContext) trim(n int) {
	for i, kv := range c.kv {
		if kv.Base() > c.needs(i, n) {
			kv.Restart(c.owner, n)
		}
	}
	c.dropEnd()
	c.at, c.low = nn.At(n), n
}

// fork is qwen.Cache.Fork for the context.
func (c *DraftContext) fork() (*DraftContext, error) {
	if !c.at.Exact() {
		return nil, errors.New("the drafter's context is not settled")
	}
	f := &DraftContext{owner: c.owner.Library().NewScope("draft context"), at: c.at, low: c.low, window: c.window, recorded: c.recorded}
	for _, kv := range c.kv {
		f.kv = append(f.kv, kv.Fork(f.owner))
	}
	if c.end.Valid() {
		f.end = f.owner.Ref(c.end)
	}
	if err := f.owner.Err(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// rows copies the rows of positions from to to: keys and values of each layer.
// Layers with a window have lost the lower ones, perhaps all.
func (c *DraftContext) rows(s *mlx.Scope, from, to int) []mlx.Array {
	c.settle(s)
	var out []mlx.Array
	for _, kv := range c.kv {
		k, v := kv.Rows(s, from, to)
		out = append(out, k, v)
	}
	return out
}

// restore makes the context n rows long from consecutive results of rows. Each
// layer takes what it needs from n on; what is too little or of another shape is
// refused, and the context is then empty.
func (c *DraftContext) restore(s *mlx.Scope, n int, parts [][]mlx.Array) error {
	c.Reset()
	err := c.load(s, n, parts)
	if err == nil {
		err = errors.Join(s.Err(), c.owner.Err())
	}
	if err != nil {
		c.Reset()
		return err
	}
	c.at, c.low = nn.At(n), n
	return nil
}

func (c *DraftContext) load(s *mlx.Scope, n int, parts [][]mlx.Array) error {
	for i, kv := range c.kv {
		var keys, values []mlx.Array // from the last part back
		missing := n - c.needs(i, n)
		for p := len(parts) - 1; p >= 0 && missing > 0; p-- {
			if len(parts[p]) != 2*len(c.kv) {
				return fmt.Errorf("a part of the drafter's rows has %d arrays, expected %d", len(parts[p]), 2*len(c.kv))
			}
			k, v := parts[p][2*i], parts[p][2*i+1]
			rows, err := kv.CheckRows(k, v)
			if err != nil {
				return fmt.Errorf("layer %d of the drafter: %w", i, err)
			}
			if rows == 0 {
				break
			}
			if over := rows - missing; over > 0 {
				k, v = s.SliceAxis(k, 2, over, rows), s.SliceAxis(v, 2, over, rows)
				rows = missing
			}
			keys, values = append(keys, k), append(values, v)
			missing -= rows
		}
		if missing > 0 {
			return fmt.Errorf("layer %d of the drafter lacks %d rows before position %d", i, missing, n)
		}
		slices.Reverse(keys)
		slices.Reverse(values)
		kv.Load(s, c.owner, keys, values, n)
	}
	return nil
}
