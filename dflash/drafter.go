package dflash

import (
	"fmt"
	"log/slog"

	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/internal/replay"
	"github.com/godflash/godflash/mlx"
)

// Drafter is a DFlash head with its weights: a small transformer that fills a
// block of mask tokens in one pass. It has neither embedding nor output head
// and uses the target's. It is read-only; a DraftContext holds one sequence.
//
// In every layer the block's rows attend to themselves and to the context: one
// row per committed token, made from the target's tapped hidden states with
// the layer's own key and value maps (dflash sections 2.1 and 2.2 of the
// paper's code, "KV injection").
//
// Any number of contexts may be used with it, one round at a time: the results of
// one are evaluated, or on their way, before the next begins.
type Drafter struct {
	cfg     *DraftConfig
	lib     *mlx.Library
	weights *mlx.Scope
	dtype   mlx.Dtype
	bits    int // of the linear maps, 0 for the dtype's own

	fc         nn.Linear // taps side by side to one hidden vector
	hiddenNorm nn.RMSNorm
	layers     []draftLayer
	norm       nn.RMSNorm
	set        *kernels.Set // nil on the CPU
	linked     bool         // the layers can be a chain
	steps      *replay.Steps
}

type draftLayer struct {
	inputNorm, postNorm nn.RMSNorm
	in                  nn.Packed // q, k, v
	kv                  nn.Packed // k and v of it, for the context's rows, where in is whole
	o                   nn.Linear
	qNorm, kNorm        nn.RMSNorm
	mlp                 nn.SwiGLU
	rope                mlx.RoPEOptions
	invFreq             mlx.Array      // of rope, for kernels only
	split               *kernels.Heads // nil where operations serve
	window              nn.Window
}

// DraftOptions are the choices of LoadDrafter; nil and zero values are the
// defaults.
type DraftOptions struct {
	// Bits stores the drafter's linear maps in 4 or 8 bits, in groups of 64:
	// less memory to read and to keep, at some cost in right drafts. 0 keeps
	// the file's precision. Files that are quantised already stay as they are, and
	// Bits is refused for them.
	Bits int
	// IgnoreMemory loads weights that need more memory than there is.
	IgnoreMemory bool
	Logger       *slog.Logger // nil: silent
	// Progress is as in qwen.LoadOptions.
	Progress func(done, total int64)
}

// Config describes the drafter. Treat it as read-only.
func (d *Drafter) Config() *DraftConfig { return d.cfg }

// Close frees the weights. It may be called from any goroutine, more than once.
func (d *Drafter) Close() error {
	d.steps.Close()
	return d.weights.Close()
}

// Features is the context feature of tapped hidden states, each [1, S, hidden]
// in the order of target_layer_ids: hidden_norm(fc(taps)), [1, S, hidden].
func (d *Drafter) Features(s *mlx.Scope, tapped []mlx.Array) mlx.Array {
	u := s.AsType(s.Concat(2, tapped...), d.dtype)
	return d.hiddenNorm.Forward(s, d.fc.Forward(s, u))
}

// Append adds the tapped rows of n committed tokens to the context. The taps
// are turned into keys and values at once and are not kept.
func (d *Drafter) Append(s *mlx.Scope, c *DraftContext, tapped []mlx.Array, n int) error {
	if len(tapped) != len(d.cfg.TargetLayerIDs) {
		return fmt.Errorf("%d tapped layers, the drafter takes %d", len(tapped), len(d.cfg.TargetLayerIDs))
	}
	if n < 0 || n > tapped[0].Dim(1) {
		return fmt.Errorf("append %d rows of %d tapped ones", n, tapped[0].Dim(1))
	}
	if n == 0 {
		return s.Err()
	}
	if n < tapped[0].Dim(1) {
		cut := make([]mlx.Array, len(tapped))
		for i, t := range tapped {
			cut[i] = s.SliceAxis(t, 1, 0, n)
		}
		tapped = cut
	}
	if err := d.append(s, c, tapped, nn.Rows{N: n}); err != nil {
		return err
	}
	if c.at.Exact() {
		c.low = c.at.Bound
	}
	return nil
}

// append writes all tapped rows and advances by n of them: rows past the count
// are scratch, like a block's.
func (d *Drafter) append(s *mlx.Scope, c *DraftContext, tapped []mlx.Array, n nn.Rows) error {
	rows := tapped[0].Dim(1)
	c.settle(s)
	var written []mlx.Array
	done := false
	if c.recorded && rows <= kernels.BlockRows {
		written, done = d.run(s, c, "append", rows, tapped, d.project)
	}
	mark := s.Mark()
	if !done {
		written = d.project(s, c, tapped)
	}
	var after nn.Position
	var end mlx.Array
	if len(written) == 0 {
		after = c.at.Advance(s, n)
	} else {
		after, end = nn.At(c.at.Bound+n.N), kernels.Near(s, s.Add(written[0], n.Count(s)))
		if !c.at.Exact() || !n.Exact() {
			after.Array, end = end, mlx.Array{}
		}
	}
	if err := s.Err(); err != nil {
		c.discard()
		return err
	}
	for _, kv := range c.kv {
		kv.Adopt(c.owner)
	}
	defer s.FreeSince(mark)
	c.owner.Free(c.end)
	c.end = c.owner.Move(end)
	if after.Array.Valid() {
		old := c.at.Array
		after.Array = c.owner.Move(after.Array)
		c.owner.Free(old)
	}
	c.at = after
	return nil
}

// project writes keys and values of tapped rows to the end of every layer's
// buffers. Where kernels do that in place, it gives the position, int32 [1], as an
// array on which whoever reads the rows depends.
func (d *Drafter) project(s *mlx.Scope, c *DraftContext, tapped []mlx.Array) (written []mlx.Array) {
	kv := d.keysAndValues(s, tapped)
	if s.Err() != nil {
		return nil
	}
	for i := range d.layers {
		l, in := &d.layers[i], kv[i]
		if l.split.Writes(s, in[0].Array) {
			keys, values := c.kv[i].Open(s, c.at, in[0].Array.Dim(1), l.keep(c.low))
			at := c.position(s)
			if written != nil {
				at = written[0]
			}
			place := kernels.Place{Position: at, Base: c.kv[i].Origin(s)}
			if _, done, ok := l.split.Into(s, kernels.Cols{}, in[0], in[1], mlx.Array{}, l.kNorm.Weight, place, l.invFreq, keys, values); ok {
				written = []mlx.Array{done}
				continue
			}
			c.kv[i].Discard()
		}
		k, v := l.keysValues(s, d.cfg, in)
		c.kv[i].Write(s, c.at.RoPE(s, k, l.rope), v, c.at, l.keep(c.low))
	}
	return written
}

// keysAndValues are each layer's maps of tapped rows.
func (d *Drafter) keysAndValues(s *mlx.Scope, tapped []mlx.Array) [][]kernels.Cols {
	if out, ok := d.chainContext(s, tapped); ok {
		return out
	}
	f := d.Features(s, tapped)
	if s.Err() != nil {
		return nil
	}
	out := make([][]kernels.Cols, len(d.layers))
	for i := range d.layers {
		kv := d.layers[i].kv
		if !kv.Whole() {
			kv = d.layers[i].in.Range(s, 1, 3)
		}
		out[i] = kv.Forward(s, f)
	}
	return out
}

// Propose runs the block of embedded rows [1, B, hidden], the anchor's first
// and then mask rows, at the end of the context, and returns the normed hidden
// states of the mask rows [1, B-1, hidden]: row i predicts the token at its
// own position, i+1 after the anchor. The context is as before.
func (d *Drafter) Propose(s *mlx.Scope, c *DraftContext, block mlx.Array) mlx.Array {
	if s.Err() != nil {
		return mlx.Array{}
	}
	b := block.Dim(1)
	if b < 2 {
		s.Fail(fmt.Errorf("a draft block of %d rows: it needs the anchor and at least one mask row", b))
		return mlx.Array{}
	}
	c.settleFor(s, b)
	var x mlx.Array
	done := false
	if c.recorded && b <= kernels.BlockRows {
		var out []mlx.Array
		out, done = d.run(s, c, "propose", b, []mlx.Array{block}, func(s *mlx.Scope, c *DraftContext, in []mlx.Array) []mlx.Array {
			return []mlx.Array{d.pass(s, c, in[0])}
		})
		if len(out) == 1 {
			x = out[0]
		}
	}
	if !done {
		x = d.pass(s, c, block)
	}
	for _, kv := range c.kv {
		if s.Err() != nil {
			kv.Discard()
		} else {
			// The block's rows are scratch past the context's end. Taking the
			// buffers over lets the next write happen in place.
			kv.Adopt(c.owner)
		}
	}
	return x
}

// pass builds Propose's graph; what the layers write is left in c.
func (d *Drafter) pass(s *mlx.Scope, c *DraftContext, block mlx.Array) mlx.Array {
	b := block.Dim(1)
	x := s.AsType(block, d.dtype)
	if d.linked && d.set.Chains(s, x) {
		if x, ok := d.chain(s, c, x); ok {
			return x
		}
		c.discard()
	}
	var at, rest mlx.Array // x + rest is the residual stream
	if d.layers[0].split != nil {
		at = c.position(s)
	}
	for i := range d.layers {
		x, rest = d.layers[i].forward(s, d.cfg, x, rest, c.kv[i], c.at, at, c.low)
	}
	if s.Err() != nil {
		return mlx.Array{}
	}
	_, x = d.norm.Add(s, s.SliceAxis(x, 1, 1, b), s.SliceAxis(rest, 1, 1, b))
	return x
}

// keep is the lowest position that a layer still needs when low is a position
// from which on rows are written.
func (l *draftLayer) keep(low int) int {
	if l.window.Size == 0 {
		return 0
	}
	return max(0, low-(l.window.Size-1))
}

// keysValues are a layer's keys, not rotated yet, and values, from its maps' results.
func (l *draftLayer) keysValues(s *mlx.Scope, c *DraftConfig, kv []kernels.Cols) (k, v mlx.Array) {
	if s.Err() != nil {
		return mlx.Array{}, mlx.Array{}
	}
	t := kv[0].Array.Dim(1)
	k = l.kNorm.Forward(s, s.Reshape(kv[0].Take(s), 1, t, c.NumKeyValueHeads, c.HeadDim))
	v = s.Reshape(kv[1].Take(s), 1, t, c.NumKeyValueHeads, c.HeadDim)
	return s.SwapAxes(k, 1, 2), s.SwapAxes(v, 1, 2)
}

// heads are a block's queries, keys and values [1, heads, T, dim] at position p,
// which is at as data, from its maps' results.
func (l *draftLayer) heads(s *mlx.Scope, c *DraftConfig, in []kernels.Cols, p nn.Position, at mlx.Array) (q, k, v mlx.Array) {
	if l.split != nil {
		return l.split.Split(s, in[0], in[1], in[2], l.qNorm.Weight, l.kNorm.Weight, at, l.invFreq)
	}
	t := in[0].Array.Dim(1)
	q = l.qNorm.Forward(s, s.Reshape(in[0].Take(s), 1, t, c.NumAttentionHeads, c.HeadDim))
	q = p.RoPE(s, s.SwapAxes(q, 1, 2), l.rope)
	k, v = l.keysValues(s, c, in[1:])
	return q, p.RoPE(s, k, l.rope), v
}

// forward runs the layer on x + rest, rest being the zero Array before the first,
// and gives its output as a sum not yet made.
func (l *draftLayer) forward(s *mlx.Scope, c *DraftConfig, x, rest mlx.Array, kv *nn.KV, p nn.Position, at mlx.Array, low int) (out, outRest mlx.Array) {
	if s.Err() != nil {
		return mlx.Array{}, mlx.Array{}
	}
	x, h := l.inputNorm.Add(s, x, rest)
	y := l.mix(s, c, l.in.Forward(s, h), kv, p, at, low)
	x, h = l.postNorm.Add(s, x, l.o.Forward(s, y))
	return x, l.mlp.Forward(s, h)
}

// mix is what lies between the maps, of their results in.
func (l *draftLayer) mix(s *mlx.Scope, c *DraftConfig, in []kernels.Cols, kv *nn.KV, p nn.Position, at mlx.Array, low int) mlx.Array {
	if s.Err() != nil {
		return mlx.Array{}
	}
	t, scale := in[0].Array.Dim(1), nn.AttentionScale(c.HeadDim)
	none := kernels.All(in[0].Array) // these heads have no gates
	if l.split.Writes(s, in[0].Array) {
		keys, values := kv.Open(s, p, t, l.keep(low))
		place := kernels.Place{Position: at, Base: kv.Origin(s)}
		if q, _, ok := l.split.Into(s, in[0], in[1], in[2], l.qNorm.Weight, l.kNorm.Weight, place, l.invFreq, keys, values); ok {
			return l.split.Attend(s, q, keys, values, place, kernels.See(l.window), scale, none)
		}
		kv.Discard()
	}
	q, k, v := l.heads(s, c, in, p, at)
	if s.Err() != nil {
		return mlx.Array{}
	}
	keys, values := kv.Write(s, k, v, p, l.keep(low))
	if l.split.Attends(s, q, keys) {
		return l.split.Attend(s, q, keys, values, kernels.Place{Position: at, Base: kv.Origin(s)}, kernels.See(l.window), scale, none)
	}
	y := kv.Attend(s, q, keys, values, p, l.window, scale)
	return s.Reshape(s.SwapAxes(y, 1, 2), 1, t, c.NumAttentionHeads*c.HeadDim)
}
