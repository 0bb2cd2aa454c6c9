package qwen

import (
	"fmt"

	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/internal/replay"
	"github.com/godflash/godflash/mlx"
)

// A recorded pass is the graph of Forward, or of Commit, as a function of the
// embedded tokens, the position and the cache's arrays. It is recorded with a stand-in for
// the cache, which has the function's inputs for its arrays; what the stand-in
// then holds are the results.

// passLayout is what a recorded pass found out about its results.
type passLayout struct{ blocks []blockLayout }

// blockLayout tells which arrays of a deltaBlock are valid.
type blockLayout []bool

func layoutOf(b *deltaBlock) blockLayout {
	var l blockLayout
	b.each(func(a *mlx.Array) { l = append(l, a.Valid()) })
	return l
}

// fill takes the block's arrays from the front of arrays.
func (l blockLayout) fill(b *deltaBlock, arrays []mlx.Array) (rest []mlx.Array) {
	i := 0
	b.each(func(a *mlx.Array) {
		if *a = (mlx.Array{}); l[i] {
			*a, arrays = arrays[0], arrays[1:]
		}
		i++
	})
	return arrays
}

// list is the valid arrays of a block.
func (b *deltaBlock) list(to []mlx.Array) []mlx.Array {
	b.each(func(a *mlx.Array) {
		if a.Valid() {
			to = append(to, *a)
		}
	})
	return to
}

// recorded runs a pass from a recorded graph; false when there is none, and the
// caller builds the pass.
func (m *Model) recorded(s *mlx.Scope, ids mlx.Array, c *Cache, taps []int) (Output, bool) {
	rows := ids.Size()
	if rows > kernels.BlockRows {
		return Output{}, false
	}
	if c.at.Exact() && m.lib.Device() == mlx.DeviceGPU && !m.heads.InPlace(m.dtype) {
		return Output{}, false // as data the position needs a mask, which slows MLX's attention down
	}
	size := 0 // of the buffers, the same for all layers
	for i := range c.kv {
		switch {
		case c.kv[i] == nil && !c.rec[i].conv.Valid():
			return Output{}, false // the first pass makes the states
		case c.kv[i] != nil:
			keys, _ := c.kv[i].Open(s, c.at, rows, 0)
			if s.Err() != nil {
				return Output{}, false
			}
			size = keys.Dim(2)
		}
	}
	bound := size - rows
	kind := fmt.Sprint("pass ", rows, taps)
	if !m.heads.InPlace(m.dtype) { // the graph depends on how many keys take part
		bound = c.at.Bucket(rows)
		kind += fmt.Sprint(" ", bound)
	}
	step := m.steps.Of(kind, size, func(p *replay.Step) mlx.Func {
		return func(s *mlx.Scope, in []mlx.Array) []mlx.Array { return m.record(s, in, p, bound, taps) }
	})
	if step == nil {
		c.discard()
		return Output{}, false
	}
	in := make([]mlx.Array, 0, 2+2*len(c.kv))
	in = append(in, m.embed(s, ids), c.at.Data(s))
	for i, kv := range c.kv {
		if kv != nil {
			keys, values := kv.Written()
			in = append(in, keys, values)
		} else {
			in = append(in, c.rec[i].conv, c.rec[i].state)
		}
	}
	res := step.Run(s, in)
	if s.Err() != nil {
		c.discard()
		return Output{}, true
	}
	out := Output{Hidden: res[0], Taps: res[1 : 1+len(taps)]}
	res = res[1+len(taps):]
	blocks := step.Layout.(passLayout).blocks
	for i, kv := range c.kv {
		if kv != nil {
			kv.Wrote(res[0], res[1])
			res = res[2:]
			continue
		}
		b := deltaBlock{rows: rows, rule: m.layers[i].delta.rule}
		res = blocks[i].fill(&b, res)
		c.rec[i].block = b
	}
	c.adopt(rows, m.written(s, out.Hidden))
	return out, true
}

// record is the pass on a stand-in.
func (m *Model) record(s *mlx.Scope, in []mlx.Array, p *replay.Step, bound int, taps []int) []mlx.Array {
	x, at, arrays := in[0], in[1], in[2:]
	c := &Cache{kv: make([]*nn.KV, len(m.layers)), rec: make([]*recurrent, len(m.layers)), at: nn.Position{Bound: bound, Array: at}, max: m.cfg.MaxPositionEmbeddings}
	for i := range m.layers {
		if m.layers[i].attention != nil {
			c.kv[i] = m.newKV().StandIn(arrays[2*i], arrays[2*i+1], 0, mlx.Array{})
		} else {
			c.rec[i] = &recurrent{conv: arrays[2*i], state: arrays[2*i+1]}
		}
	}
	made := m.pass(s, x, c, taps)
	if s.Err() != nil {
		return nil
	}
	out := append([]mlx.Array{made.Hidden}, made.Taps...)
	layout := passLayout{make([]blockLayout, len(m.layers))}
	for i, kv := range c.kv {
		if kv != nil {
			keys, values := kv.Written()
			out = append(out, keys, values)
		} else {
			layout.blocks[i] = layoutOf(&c.rec[i].block)
			out = c.rec[i].block.list(out)
		}
	}
	p.Layout = layout
	return out
}

// commitRecorded is what commit has the recurrent layers compute, from a recorded
// graph; false when there is none. Only whole blocks and counts that are arrays
// come up often.
func (c *Cache) commitRecorded(s *mlx.Scope, n nn.Rows) bool {
	if c.steps == nil || n.Exact() && n.N != c.pending {
		return false
	}
	var in []mlx.Array
	if !n.Exact() {
		in = append(in, n.Array)
	}
	first := len(in)
	for _, r := range c.rec {
		if r != nil {
			if n.Exact() && r.block.tail.Valid() {
				return false // there is nothing to compute
			}
			in = append(r.block.list(in), r.state)
		}
	}
	if len(in) == first {
		return false // nothing recurrent
	}
	// The layers are of one kind: their number of arrays tells their layout.
	step := c.steps.Of(fmt.Sprint("commit ", c.pending, " ", n.Exact()), len(in), func(*replay.Step) mlx.Func {
		return recordCommit(c.rec, c.pending, first > 0)
	})
	if step == nil {
		return false
	}
	out := step.Run(s, in)
	if s.Err() != nil {
		return true
	}
	for _, r := range c.rec {
		if r == nil {
			continue
		}
		r.next.conv, r.next.state, out = out[0], r.block.after, out[1:]
		if first > 0 {
			r.next.state, out = out[0], out[1:]
		}
	}
	return true
}

// recordCommit is commitRecorded's function for layers with blocks like those of
// rec: of the count, where it is counted, and each layer's block and state.
func recordCommit(rec []*recurrent, rows int, counted bool) mlx.Func {
	var layouts []blockLayout
	var rules []*kernels.Delta
	for _, r := range rec {
		if r != nil {
			layouts, rules = append(layouts, layoutOf(&r.block)), append(rules, r.block.rule)
		}
	}
	return func(s *mlx.Scope, in []mlx.Array) (out []mlx.Array) {
		count := nn.Rows{N: rows}
		if counted {
			count.Array, in = in[0], in[1:]
		}
		layers := make([]*recurrent, len(layouts))
		for i, l := range layouts {
			r := &recurrent{block: deltaBlock{rows: rows, rule: rules[i]}}
			in = l.fill(&r.block, in)
			r.state, in = in[0], in[1:]
			layers[i] = r
		}
		commitRows(s, layers, count)
		for _, r := range layers {
			out = append(out, r.next.conv)
			if counted {
				out = append(out, r.next.state)
			}
		}
		return out
	}
}
