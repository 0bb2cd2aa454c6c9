package kernels

import (
	"math"

	"github.com/godflash/godflash/mlx"
)

// l2Eps is the epsilon under the root of the queries' and keys' norm.
const l2Eps = 1e-6

// DeltaShape is a gated-delta layer's sizes.
type DeltaShape struct {
	KeyHeads, ValueHeads, KeyDim, ValueDim int
	Taps                                   int     // length of the convolution's kernel
	Eps                                    float32 // of the output's norm
}

// channels is the width of the convolution.
func (d DeltaShape) channels() int { return 2*d.KeyHeads*d.KeyDim + d.ValueHeads*d.ValueDim }

// Tail is the shape of the convolution's input before a block.
func (d DeltaShape) Tail() []int { return []int{1, d.Taps - 1, d.channels()} }

// State is the shape of what the rule carries from row to row.
func (d DeltaShape) State() []int { return []int{1, d.ValueHeads, d.KeyDim, d.ValueDim} }

// Cols are N columns, from At on, of the rows of an array [1, T, width].
type Cols struct {
	Array mlx.Array
	At, N int
}

// All is an array's whole rows.
func All(a mlx.Array) Cols { return Cols{Array: a, N: a.Dim(-1)} }

// Take cuts the columns out.
func (c Cols) Take(s *mlx.Scope) mlx.Array {
	if c.At == 0 && c.N == c.Array.Dim(-1) {
		return c.Array
	}
	return s.SliceAxis(c.Array, -1, c.At, c.At+c.N)
}

// compose is what comes before the scan in operations. taps are the
// convolution's kernel, oldest first, one [channels] each or [1, channels].
func (d DeltaShape) compose(s *mlx.Scope, tail, qkv, a, b mlx.Array, taps []mlx.Array, negA, bias mlx.Array) (q mlx.Array, r DeltaRows, convIn mlx.Array) {
	t := qkv.Dim(1)
	convIn = s.Concat(1, tail, qkv)
	u := s.SiLU(convolve(s, convIn, taps, t))
	keys := d.KeyHeads * d.KeyDim
	parts := s.SplitAt(u, 2, keys, 2*keys)
	if len(parts) != 3 {
		return mlx.Array{}, DeltaRows{}, mlx.Array{} // the scope has the error
	}
	invSqrt := 1 / math.Sqrt(float64(d.KeyDim))
	q = d.unit(s, s.Reshape(parts[0], t, d.KeyHeads, d.KeyDim), invSqrt*invSqrt)
	return q, DeltaRows{
		K:    d.unit(s, s.Reshape(parts[1], t, d.KeyHeads, d.KeyDim), invSqrt),
		V:    s.Reshape(s.AsType(parts[2], mlx.Float32), t, d.ValueHeads, d.ValueDim),
		G:    s.Reshape(s.Exp(s.Mul(negA, s.Softplus(s.Add(s.AsType(a, mlx.Float32), bias)))), t, d.ValueHeads),
		Beta: s.Reshape(s.AsType(s.Sigmoid(b), mlx.Float32), t, d.ValueHeads),
	}, convIn
}

// convolve is the causal depthwise convolution of t rows, written as shifted
// products so that each row adds its terms in the same order whatever t is.
func convolve(s *mlx.Scope, in mlx.Array, taps []mlx.Array, t int) mlx.Array {
	u := s.Mul(s.SliceAxis(in, 1, 0, t), taps[0])
	for i := 1; i < len(taps); i++ {
		u = s.Add(u, s.Mul(s.SliceAxis(in, 1, i, i+t), taps[i]))
	}
	return u
}

// unit divides each head's vector by its length and multiplies by scale·√dim,
// in float32: x·rsqrt(Σx² + ε) is the norm of mean squares with ε/dim.
func (d DeltaShape) unit(s *mlx.Scope, x mlx.Array, scale float64) mlx.Array {
	x = s.AsType(x, mlx.Float32)
	n := s.RMSNorm(x, mlx.Array{}, l2Eps/float32(d.KeyDim))
	return s.Mul(n, s.Scalar(scale, mlx.Float32))
}

// perValueHead gives each value head its key head's vector:
// [T, key heads, dim] to [T, value heads, 1, dim].
func (d DeltaShape) perValueHead(s *mlx.Scope, x mlx.Array) mlx.Array {
	t := x.Dim(0)
	if n := d.ValueHeads / d.KeyHeads; n > 1 {
		x = s.BroadcastTo(s.Reshape(x, t, d.KeyHeads, 1, d.KeyDim), t, d.KeyHeads, n, d.KeyDim)
	}
	return s.Reshape(x, t, d.ValueHeads, 1, d.KeyDim)
}

// deltaInput is the composed scan's input, one entry per row on axis 0, all
// float32: what does not depend on the state, computed for all rows at once.
type deltaInput struct {
	k     mlx.Array // [rows, value heads, 1, key dim]
	betaK mlx.Array // k times β, of the same shape
	betaV mlx.Array // v times β, [rows, value heads, 1, value dim]
	g     mlx.Array // [rows, value heads, 1, 1]
}

func (d DeltaShape) input(s *mlx.Scope, k, v, g, beta mlx.Array) deltaInput {
	t := k.Dim(0)
	k = d.perValueHead(s, k)
	beta = s.Reshape(beta, t, d.ValueHeads, 1, 1)
	return deltaInput{
		k:     k,
		betaK: s.Mul(k, beta),
		betaV: s.Mul(s.Reshape(v, t, d.ValueHeads, 1, d.ValueDim), beta),
		g:     s.Reshape(g, t, d.ValueHeads, 1, 1),
	}
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
		from := part.from
		if from.Dim(0) > t {
			from = s.SliceAxis(from, 0, 0, t)
		}
		pieces := s.Split(from, t, 0)
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
// scan and replay share it, so a state computed again has the same bits.
func (in deltaInput) step(s *mlx.Scope, state mlx.Array) mlx.Array {
	state = s.Mul(state, in.g)
	delta := s.AddMM(in.betaV, in.betaK, state, -1, 1) // βv − βk·S
	return s.AddMM(state, s.SwapAxes(in.k, -1, -2), delta, 1, 1)
}

// scan runs the rule over all rows. q is [T, value heads, 1, key dim]; y comes
// back as [T, value heads, 1, value dim].
func (in deltaInput) scan(s *mlx.Scope, q, state mlx.Array) (y, after mlx.Array) {
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

// replay is the state after the first n rows. With a count, int32 [1], that
// only the device knows n rows are scanned and those past the count leave the
// state as it is.
func (in deltaInput) replay(s *mlx.Scope, state mlx.Array, n int, count mlx.Array) mlx.Array {
	for i, row := range in.split(s, n) {
		next := row.step(s, state)
		if count.Valid() {
			next = s.Where(s.Less(s.Scalar(float64(i), mlx.Int32), count), next, state)
		}
		state = next
	}
	return state
}

// gate is the norm over each head's output y [T, value heads, value dim], times
// SiLU(z), in the dtype of z: [1, T, value heads · value dim].
func (d DeltaShape) gate(s *mlx.Scope, y, z, weight mlx.Array) mlx.Array {
	t, dt := y.Dim(0), z.Dtype()
	z = s.Reshape(s.AsType(z, mlx.Float32), t, d.ValueHeads, d.ValueDim)
	o := s.Mul(s.RMSNorm(y, weight, d.Eps), s.SiLU(z))
	return s.Reshape(s.AsType(o, dt), 1, t, d.ValueHeads*d.ValueDim)
}
