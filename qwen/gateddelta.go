package qwen

import (
	"math"

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
	inQKV, inZ, inB, inA, out nn.Linear

	conv   []mlx.Array // one per tap of the kernel, oldest first, [channels]
	negA   mlx.Array   // −exp(A_log), float32 [value heads]
	dtBias mlx.Array   // float32 [value heads]
	norm   nn.RMSNorm  // over the value dim

	keyHeads, valueHeads, keyDim, valueDim int
}

// l2Eps is the epsilon under the root of the queries' and keys' norm.
const l2Eps = 1e-6

// recurrent is the state of one gated-delta layer in one sequence.
type recurrent struct {
	conv  mlx.Array // [1, kernel-1, channels]: last inputs of the convolution
	state mlx.Array // [1, value heads, key dim, value dim], float32
	block deltaBlock
	next  struct{ conv, state mlx.Array }
}

// deltaBlock is what a pending block leaves: the state after all its rows, and
// the inputs from which the state after fewer rows is computed again.
type deltaBlock struct {
	rows   int
	convIn mlx.Array // [1, kernel-1+rows, channels]
	after  mlx.Array
	in     deltaInput
}

// deltaInput is the scan's input, one entry per row on axis 0, all float32.
type deltaInput struct {
	k     mlx.Array // [rows, value heads, 1, key dim]
	betaK mlx.Array // k times β, of the same shape
	betaV mlx.Array // v times β, [rows, value heads, 1, value dim]
	g     mlx.Array // [rows, value heads, 1, 1]
}

func (b *deltaBlock) each(f func(*mlx.Array)) {
	for _, a := range []*mlx.Array{&b.convIn, &b.after, &b.in.k, &b.in.betaK, &b.in.betaV, &b.in.g} {
		f(a)
	}
}

// forward runs x [1, T, hidden] from the state before the block and leaves the
// block pending in r.
func (l *gatedDelta) forward(s *mlx.Scope, x mlx.Array, r *recurrent) mlx.Array {
	t := x.Dim(1)
	qkv, z := l.inQKV.Forward(s, x), l.inZ.Forward(s, x)
	convIn := s.Concat(1, l.tail(s, r, qkv), qkv)
	u := s.SiLU(l.convolve(s, convIn, t))

	keys := l.keyHeads * l.keyDim
	parts := s.SplitAt(u, 2, keys, 2*keys)
	if len(parts) != 3 {
		return mlx.Array{} // the scope has the error
	}
	invSqrt := 1 / math.Sqrt(float64(l.keyDim))
	q := l.unit(s, s.Reshape(parts[0], t, l.keyHeads, 1, l.keyDim), invSqrt*invSqrt)
	k := l.unit(s, s.Reshape(parts[1], t, l.keyHeads, 1, l.keyDim), invSqrt)
	q, k = l.perValueHead(s, q), l.perValueHead(s, k)

	a := s.Add(s.AsType(l.inA.Forward(s, x), mlx.Float32), l.dtBias)
	beta := s.Reshape(s.AsType(s.Sigmoid(l.inB.Forward(s, x)), mlx.Float32), t, l.valueHeads, 1, 1)
	in := deltaInput{
		k:     k,
		betaK: s.Mul(k, beta),
		betaV: s.Mul(s.Reshape(s.AsType(parts[2], mlx.Float32), t, l.valueHeads, 1, l.valueDim), beta),
		g:     s.Reshape(s.Exp(s.Mul(l.negA, s.Softplus(a))), t, l.valueHeads, 1, 1),
	}
	state := r.state
	if !state.Valid() {
		state = s.Zeros(mlx.Float32, 1, l.valueHeads, l.keyDim, l.valueDim)
		r.next.state = state
	}
	y, after := l.scan(s, q, in, state)
	r.block = deltaBlock{rows: t, convIn: convIn, after: after, in: in}

	y = s.Reshape(y, 1, t, l.valueHeads, l.valueDim)
	z = s.Reshape(s.AsType(z, mlx.Float32), 1, t, l.valueHeads, l.valueDim)
	o := s.AsType(s.Mul(l.norm.Forward(s, y), s.SiLU(z)), x.Dtype())
	return l.out.Forward(s, s.Reshape(o, 1, t, l.valueHeads*l.valueDim))
}

// tail is the convolution's input before the block, zeros at the start.
func (l *gatedDelta) tail(s *mlx.Scope, r *recurrent, qkv mlx.Array) mlx.Array {
	if r.conv.Valid() {
		return r.conv
	}
	r.next.conv = s.Zeros(qkv.Dtype(), 1, len(l.conv)-1, qkv.Dim(2))
	return r.next.conv
}

// convolve is the causal depthwise convolution of t rows, written as shifted
// products so that each row adds its terms in the same order whatever t is.
func (l *gatedDelta) convolve(s *mlx.Scope, in mlx.Array, t int) mlx.Array {
	u := s.Mul(s.SliceAxis(in, 1, 0, t), l.conv[0])
	for i := 1; i < len(l.conv); i++ {
		u = s.Add(u, s.Mul(s.SliceAxis(in, 1, i, i+t), l.conv[i]))
	}
	return u
}

// unit divides each head's vector by its length and multiplies by scale·√dim,
// in float32: x·rsqrt(Σx² + ε) is the norm of mean squares with ε/dim.
func (l *gatedDelta) unit(s *mlx.Scope, x mlx.Array, scale float64) mlx.Array {
	x = s.AsType(x, mlx.Float32)
	n := s.RMSNorm(x, mlx.Array{}, l2Eps/float32(l.keyDim))
	return s.Mul(n, s.Scalar(scale, mlx.Float32))
}

// perValueHead gives each value head its key head's vector:
// [T, key heads, 1, dim] to [T, value heads, 1, dim].
func (l *gatedDelta) perValueHead(s *mlx.Scope, x mlx.Array) mlx.Array {
	if l.keyHeads == l.valueHeads {
		return x
	}
	t, n := x.Dim(0), l.valueHeads/l.keyHeads
	return s.Reshape(s.BroadcastTo(x, t, l.keyHeads, n, l.keyDim), t, l.valueHeads, 1, l.keyDim)
}

// scan runs the rule over all rows. q is [T, value heads, 1, key dim]; y comes
// back as [T, value heads, 1, value dim].
func (l *gatedDelta) scan(s *mlx.Scope, q mlx.Array, in deltaInput, state mlx.Array) (y, after mlx.Array) {
	t := q.Dim(0)
	qs, rows := s.Split(q, t, 0), in.split(s, t)
	if len(qs) != t || len(rows) != t {
		return mlx.Array{}, mlx.Array{}
	}
	ys := make([]mlx.Array, t)
	for i := range t {
		state = rows[i].step(s, state)
		ys[i] = s.MatMul(qs[i], state)
	}
	return s.Concat(0, ys...), state
}

// split cuts the first t rows apart.
func (in deltaInput) split(s *mlx.Scope, t int) []deltaInput {
	rows := make([]deltaInput, t)
	for _, part := range []struct {
		from mlx.Array
		to   func(i int) *mlx.Array
	}{
		{in.k, func(i int) *mlx.Array { return &rows[i].k }},
		{in.betaK, func(i int) *mlx.Array { return &rows[i].betaK }},
		{in.betaV, func(i int) *mlx.Array { return &rows[i].betaV }},
		{in.g, func(i int) *mlx.Array { return &rows[i].g }},
	} {
		pieces := s.Split(part.from, t, 0)
		if len(pieces) != t {
			return nil
		}
		for i, p := range pieces {
			*part.to(i) = p
		}
	}
	return rows
}

// step is one row of the rule, with β multiplied in beforehand for all rows.
// Forward and replay share it, so a state computed again has the same bits.
func (in deltaInput) step(s *mlx.Scope, state mlx.Array) mlx.Array {
	state = s.Mul(state, in.g)
	delta := s.AddMM(in.betaV, in.betaK, state, -1, 1) // βv − βk·S
	return s.AddMM(state, s.SwapAxes(in.k, -1, -2), delta, 1, 1)
}

// commit computes the state after the first n rows of the pending block.
func (r *recurrent) commit(s *mlx.Scope, n nn.Rows) {
	b := &r.block
	kernel := b.convIn.Dim(1) - b.rows
	if !n.Exact() {
		r.next.conv = s.SliceDynamic(b.convIn, n.Array, []int{1}, []int{1, kernel, b.convIn.Dim(2)})
		r.next.state = r.replay(s, n)
		return
	}
	if n.N == 0 {
		r.next.conv, r.next.state = mlx.Array{}, mlx.Array{}
		return
	}
	r.next.conv = s.Contiguous(s.SliceAxis(b.convIn, 1, n.N, n.N+kernel))
	if n.N == b.rows {
		r.next.state = b.after
		return
	}
	r.next.state = r.replay(s, n)
}

// replay scans the kept rows from the state before the block. With a count
// that only the device knows every row is scanned and those past the count
// leave the state as it is.
func (r *recurrent) replay(s *mlx.Scope, n nn.Rows) mlx.Array {
	in, state := r.block.in, r.state
	if n.N < r.block.rows {
		in = deltaInput{
			k: s.SliceAxis(in.k, 0, 0, n.N), betaK: s.SliceAxis(in.betaK, 0, 0, n.N),
			betaV: s.SliceAxis(in.betaV, 0, 0, n.N), g: s.SliceAxis(in.g, 0, 0, n.N),
		}
	}
	for i, row := range in.split(s, n.N) {
		next := row.step(s, state)
		if !n.Exact() && i > 0 {
			next = s.Where(s.Less(s.Scalar(float64(i), mlx.Int32), n.Array), next, state)
		}
		state = next
	}
	return state
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
	if r.next.state == r.block.after {
		r.block.after = mlx.Array{} // it lives on as the state
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
