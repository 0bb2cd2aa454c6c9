package qwen

import (
	"errors"
	"fmt"
	"slices"

	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/internal/replay"
	"github.com/godflash/godflash/mlx"
)

// Model is a target with its weights. It is read-only: any number of caches
// may be used with it, one round at a time on the library's worker: the results of
// one are evaluated, or on their way, before the next begins.
type Model struct {
	cfg     *Config
	lib     *mlx.Library
	weights *mlx.Scope
	dtype   mlx.Dtype // of activations

	table  nn.Embedding // [vocab, hidden]; not valid when the head serves for it
	layers []layer
	norm   nn.RMSNorm
	head   nn.Linear
	heads  *kernels.Heads // of all attention layers, nil where operations serve
	set    *kernels.Set   // nil on the CPU
	choice *kernels.Choice
	steps  *replay.Steps
	linked bool // all layers can be a chain
}

// layer is one decoder block: x + mixer(norm(x)), then x + mlp(norm(x)).
type layer struct {
	inputNorm, postNorm nn.RMSNorm
	attention           *attention  // one of the two mixers
	delta               *gatedDelta // is set
	mlp                 nn.SwiGLU   // the feed-forward,
	moe                 *nn.MoE     // unless this is set
}

// Config describes the model. Treat it as read-only.
func (m *Model) Config() *Config { return m.cfg }

// Library is where the model runs.
func (m *Model) Library() *mlx.Library { return m.lib }

// Choice takes tokens from the model's scores in package dflash; nil where
// operations do.
func (m *Model) Choice() *kernels.Choice { return m.choice }

// Close frees the weights. It may be called from any goroutine, more than once.
func (m *Model) Close() error {
	m.steps.Close()
	return m.weights.Close()
}

// ForwardOptions are the choices of a forward pass; nil means none.
type ForwardOptions struct {
	// Taps are decoder layers, counted from 0, whose outputs the pass hands
	// out, before the model's final norm. The last layer is allowed.
	Taps []int
	// Recorded replays the graph of an earlier pass with as many rows (up to 16),
	// where there is one, instead of building it: on a GPU the host then has much
	// less to do for each token. The position is data then; where that would slow
	// attention down, the pass is built all the same. The tokens are the same up to
	// the order of a GPU's sums, on the CPU always.
	Recorded bool
}

// Output is what a forward pass gives; its arrays live in the pass's scope.
type Output struct {
	// Hidden is the last layer's output [1, T, hidden], before the final norm.
	Hidden mlx.Array
	// Taps are the outputs [1, T, hidden] of the layers asked for, in that order.
	Taps []mlx.Array
}

// Forward runs a block of tokens, ids int32 [T], from the end of the cache and
// leaves its T rows pending in the cache. Errors are the scope's: after one the
// cache is as it was before. That ids lie in the vocabulary is up to the
// caller: MLX does not look, and the values may be known to the device only.
func (m *Model) Forward(s *mlx.Scope, ids mlx.Array, c *Cache, o *ForwardOptions) Output {
	if o == nil {
		o = &ForwardOptions{}
	}
	whole := c.announce()
	if s.Err() != nil {
		return Output{}
	}
	if ids.NDim() != 1 {
		s.Fail(fmt.Errorf("token ids of shape %v, expected one dimension", ids.Shape()))
		return Output{}
	}
	rows := ids.Size()
	if err := c.begin(rows); err != nil {
		s.Fail(err)
		return Output{}
	}
	for _, t := range o.Taps {
		if t < 0 || t >= len(m.layers) {
			s.Fail(fmt.Errorf("tap of layer %d in a model with %d layers", t, len(m.layers)))
			return Output{}
		}
	}
	c.settle(s)
	c.steps = nil
	if o.Recorded {
		c.steps = m.steps
		if out, ok := m.recorded(s, ids, c, o.Taps); ok {
			return out
		}
	}
	mark := s.Mark()
	out := m.pass(s, m.embed(s, ids), c, o.Taps)
	if s.Err() != nil {
		c.discard()
		return Output{}
	}
	c.adopt(rows, m.written(s, out.Hidden))
	c.whole = whole
	s.FreeSince(mark, append([]mlx.Array{out.Hidden}, out.Taps...)...)
	return out
}

// written is Cache.last after a pass.
func (m *Model) written(s *mlx.Scope, hidden mlx.Array) mlx.Array {
	if m.heads.Writes(s, hidden) {
		return hidden
	}
	return mlx.Array{}
}

// embed is the layers' input [1, T, hidden] for ids int32 [T].
func (m *Model) embed(s *mlx.Scope, ids mlx.Array) mlx.Array {
	return s.Reshape(m.Embed(s, ids), 1, ids.Size(), m.cfg.HiddenSize)
}

// pass builds the graph of a pass of x through the layers. What they write is left in c.
func (m *Model) pass(s *mlx.Scope, x mlx.Array, c *Cache, taps []int) Output {
	if s.Err() != nil {
		return Output{}
	}
	rows := x.Dim(1)
	if m.linked && m.set.Chains(s, x) {
		if out, ok := m.chain(s, x, c, taps); ok {
			return out
		}
		c.discard()
	}
	out := Output{Taps: make([]mlx.Array, len(taps))}
	var at, rest mlx.Array // x + rest is the residual stream
	var running []mlx.Array
	mark := s.Mark()
	if m.heads != nil {
		at = c.at.Data(s)
	}
	tap := func(layer int, x mlx.Array) {
		for j, t := range taps {
			if t == layer {
				out.Taps[j] = x
			}
		}
	}
	for i := range m.layers {
		var in mlx.Array
		in, x, rest = m.layers[i].forward(s, x, rest, c, i, at)
		tap(i-1, in)
		if m.cfg.Quantization != "" && i%layersAtOnce == layersAtOnce-1 && m.set.WritesOut(rows) && s.Err() == nil {
			// The device works on these layers while the host builds the next ones.
			next := []mlx.Array{x, rest}
			s.Fail(errors.Join(s.AsyncEval(next...), s.Eval(running...)))
			s.Free(running...)
			running = next
			s.FreeSince(mark, slices.Concat(next, out.Taps, c.written(), []mlx.Array{at})...)
			mark = s.Mark()
		}
	}
	out.Hidden = s.Add(x, rest)
	tap(len(m.layers)-1, out.Hidden)
	return out
}

// layersAtOnce is half the number of layers whose weights may lie in memory
// written out at the same time, while a prompt runs through a quantised model.
const layersAtOnce = 2

// forward runs the layer on x + rest (rest is the zero Array before the first
// layer) and gives that sum, which is the output of the layer before, and its own
// output as a sum not yet made: the next norm adds on its way.
func (l *layer) forward(s *mlx.Scope, x, rest mlx.Array, c *Cache, i int, at mlx.Array) (in, out, outRest mlx.Array) {
	if s.Err() != nil {
		return mlx.Array{}, mlx.Array{}, mlx.Array{}
	}
	in, h := l.inputNorm.Add(s, x, rest)
	if l.delta != nil {
		h = l.delta.forward(s, h, c.rec[i])
	} else {
		h = l.attention.forward(s, h, c.kv[i], c.at, at)
	}
	out, h = l.postNorm.Add(s, in, h)
	if l.moe != nil {
		return in, out, l.moe.Forward(s, h)
	}
	return in, out, l.mlp.Forward(s, h)
}

// Embed gives the embedding rows of ids int32 [T] as [T, hidden].
func (m *Model) Embed(s *mlx.Scope, ids mlx.Array) mlx.Array {
	if m.table.Valid() {
		return m.table.Rows(s, ids, m.dtype)
	}
	return m.head.Rows(s, ids, m.dtype)
}

// Logits is Unembed after the final norm: the next-token scores [..., vocab]
// of a Hidden [..., hidden].
func (m *Model) Logits(s *mlx.Scope, hidden mlx.Array) mlx.Array {
	return m.Unembed(s, m.norm.Forward(s, hidden))
}

// Unembed is the head alone, x [..., hidden] to [..., vocab]; a drafter that
// has its own norm uses it.
func (m *Model) Unembed(s *mlx.Scope, x mlx.Array) mlx.Array { return m.head.Forward(s, x) }
