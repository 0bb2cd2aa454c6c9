package dflash

import (
	"fmt"
	"math"

	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/internal/replay"
	"github.com/godflash/godflash/mlx"
)

// The drafter's two passes from recorded graphs, as qwen.ForwardOptions.Recorded
// does it for the target: functions of the rows, the position and the context's
// buffers.

// open makes room for rows in every layer and gives the buffers and what a
// recorded graph depends on besides its inputs' shapes.
func (d *Drafter) open(s *mlx.Scope, c *DraftContext, rows int) (buffers []mlx.Array, bases []int) {
	for i, kv := range c.kv {
		keys, values := kv.Open(s, c.at, rows, d.layers[i].keep(c.low))
		buffers, bases = append(buffers, keys, values), append(bases, kv.Begins())
	}
	return buffers, bases
}

// standIn is a context for the recording of a pass over rows. Its buffers begin at
// bases or, where of gives one, at origins.
func (d *Drafter) standIn(at mlx.Array, bound int, buffers []mlx.Array, bases, of []int, origins []mlx.Array) *DraftContext {
	c := &DraftContext{at: nn.Position{Bound: bound, Array: at}}
	for i := range d.layers {
		base, origin := bases[i], mlx.Array{}
		if of != nil && of[i] >= 0 {
			base, origin = 0, origins[of[i]]
		}
		c.kv = append(c.kv, d.newKV().StandIn(buffers[2*i], buffers[2*i+1], base, origin))
	}
	return c
}

// origins are the bases of the layers with a window as data, each once, and which of
// them is a layer's; -1 for the others.
func (d *Drafter) origins(s *mlx.Scope, bases []int) (origins []mlx.Array, of []int) {
	made := map[int]int{}
	for i, base := range bases {
		if d.layers[i].window.Size == 0 {
			of = append(of, -1)
			continue
		}
		if _, ok := made[base]; !ok {
			made[base] = len(origins)
			origins = append(origins, mlx.FromSlice(s, []int32{int32(base)}))
		}
		of = append(of, made[base])
	}
	return origins, of
}

func (c *DraftContext) written(to []mlx.Array) []mlx.Array {
	for _, kv := range c.kv {
		keys, values := kv.Written()
		to = append(to, keys, values)
	}
	return to
}

func (c *DraftContext) wrote(buffers []mlx.Array) {
	for i, kv := range c.kv {
		kv.Wrote(buffers[2*i], buffers[2*i+1])
	}
}

func (c *DraftContext) discard() {
	for _, kv := range c.kv {
		kv.Discard()
	}
}

// run replays the pass of that name over rows of in; false when it is not
// recorded. Afterwards the context holds what the pass wrote. f is the pass on a
// stand-in.
func (d *Drafter) run(s *mlx.Scope, c *DraftContext, name string, rows int, in []mlx.Array, f func(s *mlx.Scope, c *DraftContext, in []mlx.Array) []mlx.Array) ([]mlx.Array, bool) {
	buffers, bases := d.open(s, c, rows)
	if s.Err() != nil {
		c.discard()
		return nil, true
	}
	if c.at.Exact() && d.lib.Device() == mlx.DeviceGPU && !d.layers[0].split.InPlace(d.dtype) {
		c.discard()
		return nil, false // see qwen's
	}
	first, size, end := len(in), buffers[0].Dim(2), math.MaxInt
	inPlace := true
	sizes := ""
	for i, base := range bases {
		inPlace = inPlace && d.layers[i].split.InPlace(d.dtype)
		if n := buffers[2*i].Dim(2); n != buffers[0].Dim(2) {
			sizes += fmt.Sprint(" ", i, ":", n)
		}
		size, end = min(size, buffers[2*i].Dim(2)), min(end, base+buffers[2*i].Dim(2))
	}
	bound, kind := size-rows, fmt.Sprint(name, rows, sizes)
	var origins []mlx.Array
	var of []int
	if inPlace {
		origins, of = d.origins(s, bases)
		kind += fmt.Sprint(" ", of)
	} else { // the graph depends on which keys take part
		// Bases are not whole steps: the step's end may lie past a buffer's.
		bound = min(c.at.Bucket(rows), end-rows)
		kind += fmt.Sprint(" ", bound, bases)
	}
	step := d.steps.Of(kind, size, func(*replay.Step) mlx.Func {
		return func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
			c := d.standIn(in[first], bound, in[first+1:], bases, of, in[first+1+len(buffers):])
			out := f(s, c, in[:first])
			if s.Err() != nil {
				return nil
			}
			return c.written(out)
		}
	})
	if step == nil {
		c.discard()
		return nil, false
	}
	out := step.Run(s, append(append(append(in[:first:first], c.position(s)), buffers...), origins...))
	if s.Err() != nil {
		c.discard()
		return nil, true
	}
	n := len(out) - len(buffers)
	c.wrote(out[n:])
	return out[:n], true
}
