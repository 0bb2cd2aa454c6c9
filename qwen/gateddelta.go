package qwen

import (
	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/mlx"
)

// gatedDelta is the linear-attention layer of Qwen3.5: a short causal
// convolution and the gated delta rule,
//
//	S ← g·S;  S ← S + kᵀ·β(v − k·S);  y = q·S
//
// for each value head, with its state S in float32 always.
//
// The state is kept as [key dim, value dim], the transpose of what the
// checkpoint's authors write: both products then run along contiguous rows.
type gatedDelta struct {
	in  nn.Packed // qkv, z, b, a
	out nn.Linear

	conv   mlx.Array   // [taps, channels], oldest first; for kernels only
	taps   []mlx.Array // the same one by one, [channels]; for operations only
	negA   mlx.Array   // −exp(A_log), float32 [value heads]
	dtBias mlx.Array   // float32 [value heads]
	norm   nn.RMSNorm  // over the value dim
	rule   *kernels.Delta
}

// recurrent is the state of one gated-delta layer in one sequence.
type recurrent struct {
	conv  mlx.Array // [1, taps-1, channels]: last inputs of the convolution
	state mlx.Array // [1, value heads, key dim, value dim], float32
	block deltaBlock
	next  struct{ conv, state mlx.Array }
	whole bool // the running pass will be kept whole, see Cache.Whole
}

// deltaBlock is what a pending block leaves: the state after all its rows, and
// the inputs from which the state after fewer rows is computed again.
type deltaBlock struct {
	rows   int
	convIn mlx.Array // [1, taps-1+rows, channels]
	after  mlx.Array
	in     kernels.DeltaRows
	rule   *kernels.Delta
	// tail is the convolution's input after all rows, where it is computed already. A
	// block that will be kept whole has it, and neither convIn nor in.
	tail mlx.Array
}

func (b *deltaBlock) each(f func(*mlx.Array)) {
	f(&b.convIn)
	f(&b.tail)
	f(&b.after)
	b.in.Each(f)
}

// forward runs x [1, T, hidden] from the state before the block and leaves the
// block pending in r.
func (l *gatedDelta) forward(s *mlx.Scope, x mlx.Array, r *recurrent) mlx.Array {
	return l.out.Forward(s, l.mix(s, l.in.Forward(s, x), r))
}

// mix is what lies between the maps, of their results in.
func (l *gatedDelta) mix(s *mlx.Scope, in []kernels.Cols, r *recurrent) mlx.Array {
	if s.Err() != nil {
		return mlx.Array{}
	}
	qkv, z, b, a := in[0], in[1], in[2], in[3]
	q, rows, convIn, tail := l.rule.In(s, kernels.DeltaSource{
		Tail: l.tail(s, r, qkv.Array.Dtype()), QKV: qkv, A: a, B: b,
		Conv: l.conv, Taps: l.taps, NegA: l.negA, DtBias: l.dtBias,
	})
	if s.Err() != nil {
		return mlx.Array{}
	}
	state := r.state
	if !state.Valid() {
		state = s.Zeros(mlx.Float32, l.rule.Shape().State()...)
		r.next.state = state
	}
	y, after := l.rule.Scan(s, q, &rows, state)
	r.block = deltaBlock{rows: qkv.Array.Dim(1), convIn: convIn, tail: tail, after: after, in: rows, rule: l.rule}
	if r.whole {
		r.block = deltaBlock{rows: r.block.rows, after: after, tail: r.block.last(s)}
	}
	return l.rule.Out(s, y, z, l.norm.Weight)
}

// last is the convolution's input after all of the block's rows.
func (b *deltaBlock) last(s *mlx.Scope) mlx.Array {
	if b.tail.Valid() {
		return b.tail
	}
	return s.Contiguous(s.SliceAxis(b.convIn, 1, b.rows, b.convIn.Dim(1)))
}

// tail is the convolution's input before the block, zeros at the start.
func (l *gatedDelta) tail(s *mlx.Scope, r *recurrent, dt mlx.Dtype) mlx.Array {
	if !r.conv.Valid() {
		r.next.conv = s.Zeros(dt, l.rule.Shape().Tail()...)
		return r.next.conv
	}
	return r.conv
}

// commitRows computes the states of layers after the first n rows of their pending
// blocks. Layers without a state are nil.
func commitRows(s *mlx.Scope, rec []*recurrent, n nn.Rows) {
	var again []*recurrent // whose kept rows run once more, from the state before the block
	var blocks []kernels.DeltaBlock
	for _, r := range rec {
		if r == nil {
			continue
		}
		b := &r.block
		switch {
		case n.Exact() && n.N == 0:
			r.next.conv, r.next.state = mlx.Array{}, mlx.Array{}
		case n.Exact() && n.N == b.rows:
			r.next.conv, r.next.state = b.last(s), b.after
		default:
			again, blocks = append(again, r), append(blocks, kernels.DeltaBlock{Rows: b.in, State: r.state, ConvIn: b.convIn})
		}
	}
	if len(again) == 0 {
		return
	}
	tails, states := again[0].block.rule.Keep(s, blocks, n.N, n.Array)
	for i, r := range again {
		r.next.conv, r.next.state = tails[i], states[i]
	}
}

// hold takes the pending block, and the zeros that an empty state began with,
// into owner.
func (r *recurrent) hold(owner *mlx.Scope) {
	if r.next.conv.Valid() {
		r.conv = owner.Move(r.next.conv)
	}
	if r.next.state.Valid() {
		r.state = owner.Move(r.next.state)
	}
	r.next.conv, r.next.state = mlx.Array{}, mlx.Array{}
	r.block.each(func(a *mlx.Array) { *a = owner.Move(*a) })
}

// adopt takes what commit computed and drops the block.
func (r *recurrent) adopt(owner *mlx.Scope) {
	take := func(to *mlx.Array, from mlx.Array) {
		if from.Valid() {
			old := *to
			*to = owner.Move(from)
			owner.Free(old)
		}
	}
	take(&r.conv, r.next.conv)
	if r.next.conv == r.block.tail {
		r.block.tail = mlx.Array{} // it lives on as the state
	}
	if r.next.state == r.block.after {
		r.block.after = mlx.Array{} // likewise
	}
	take(&r.state, r.next.state)
	r.next.conv, r.next.state = mlx.Array{}, mlx.Array{}
	r.drop(owner)
}

func (r *recurrent) drop(owner *mlx.Scope) {
	r.block.each(func(a *mlx.Array) { owner.Free(*a) })
	r.block = deltaBlock{}
}

// discard forgets what a failed forward pass left; its arrays die with their scope.
func (r *recurrent) discard() {
	r.block = deltaBlock{}
	r.next.conv, r.next.state = mlx.Array{}, mlx.Array{}
}

func (r *recurrent) clear(owner *mlx.Scope) {
	r.drop(owner)
	owner.Free(r.conv, r.state)
	*r = recurrent{}
}

func (r *recurrent) arrays() []mlx.Array {
	if !r.conv.Valid() {
		return nil
	}
	return []mlx.Array{r.conv, r.state}
}
