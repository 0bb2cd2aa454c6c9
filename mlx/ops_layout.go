package mlx

import (
	"strconv"

	"github.com/godflash/godflash/internal/mlxc"
)

var (
	opMoveAxis  = newOp("MoveAxis", "mlx_moveaxis", mlxc.Int2)
	opUnflatten = newOp("Unflatten", "mlx_unflatten", mlxc.ClassIntInts)
	opAtLeast1D = newOp("AtLeast1D", "mlx_atleast_1d", mlxc.Unary)
	opAtLeast2D = newOp("AtLeast2D", "mlx_atleast_2d", mlxc.Unary)
	opAtLeast3D = newOp("AtLeast3D", "mlx_atleast_3d", mlxc.Unary)
	opTile      = newOp("Tile", "mlx_tile", mlxc.IntsOnly)
	opPad       = newOp("Pad", "mlx_pad", mlxc.ClassPad)
	opRoll      = newOp("Roll", "mlx_roll_axes", mlxc.ClassIntsInts)
	opFlip      = newOp("Flip", "mlx_flip_axes", mlxc.IntsOnly)
	opUnstack   = newOp("Unstack", "mlx_unstack_axis", mlxc.ClassManyInt)
	opViewAs    = newOp("View", "mlx_view", mlxc.DtypeOnly)
	opAsStrided = newOp("AsStrided", "mlx_as_strided", mlxc.ClassAsStrided)
	opDiagonal  = newOp("Diagonal", "mlx_diagonal", mlxc.ClassInt3)
	opTrace     = newOp("Trace", "composed", "")
	opStopGrad  = newOp("StopGradient", "mlx_stop_gradient", mlxc.Unary)
)

// MoveAxis moves one axis to another place; the others keep their order. (mlx_moveaxis)
func (s *Scope) MoveAxis(a Array, from, to int) Array {
	return s.withInt2(opMoveAxis, a, from, to, "from", "to")
}

// Unflatten replaces one axis by several whose lengths multiply to it; one length
// may be -1 and is then worked out. (mlx_unflatten)
func (s *Scope) Unflatten(a Array, axis int, shape ...int) Array {
	text := func() string { return args1("axis", axis) + ", shape " + formatInts(shape) }
	p, ok := pack(shape)
	open, zero := false, false
	for _, d := range shape {
		ok = ok && d >= -1
		open, zero = open || d == -1, zero || d == 0
	}
	if !ok || !fits(axis) || open && zero { // MLX would divide by 0
		return s.stop(opUnflatten, "impossible shape", text, a)
	}
	g := &mlxc.Args{I: [14]int32{int32(axis)}}
	g.L[0] = p
	return s.call(opUnflatten, g, 1, text, a)
}

// AtLeast1D makes a scalar [1]. (mlx_atleast_1d)
func (s *Scope) AtLeast1D(a Array) Array { return s.unary(opAtLeast1D, a) }

// AtLeast2D makes a scalar [1, 1] and a vector [1, N]. (mlx_atleast_2d)
func (s *Scope) AtLeast2D(a Array) Array { return s.unary(opAtLeast2D, a) }

// AtLeast3D makes a scalar [1, 1, 1], a vector [1, N, 1] and a matrix [N, M, 1]. (mlx_atleast_3d)
func (s *Scope) AtLeast3D(a Array) Array { return s.unary(opAtLeast3D, a) }

// Tile repeats the whole array times[i] times along axis i; axes are added in
// front when there are more numbers. (mlx_tile)
func (s *Scope) Tile(a Array, times ...int) Array {
	for _, n := range times {
		if n < 0 {
			return s.stop(opTile, "times must not be negative", func() string { return "times " + formatInts(times) }, a)
		}
	}
	if i, ok := a.peek(s, opTile, 1); ok {
		shape := lengths(i)
		for k := range times {
			at, by := len(shape)-1-k, times[len(times)-1-k]
			switch {
			case !fits(by):
				shape = append(shape, by)
			case at < 0:
				shape = append([]int{by}, shape...)
			default:
				shape[at] *= by
			}
		}
		if msg := grows(shape...); msg != "" {
			return s.stop(opTile, msg, func() string { return "times " + formatInts(times) }, a)
		}
	}
	return s.withInts(opTile, a, times, "times")
}

// PadOptions of [Scope.Pad].
type PadOptions struct {
	Axes  []int   // nil = all axes in order
	Low   []int   // elements added before, one number per axis
	High  []int   // elements added after, one number per axis; nil = as Low
	Value float64 // of the added elements
	Edge  bool    // repeat the outermost elements instead
}

// Pad adds elements around a. (mlx_pad)
func (s *Scope) Pad(a Array, o PadOptions) Array {
	text := func() string {
		return "axes " + formatInts(o.Axes) + ", low " + formatInts(o.Low) + ", high " + formatInts(o.High)
	}
	i, ok := a.peek(s, opPad, 1)
	if !ok {
		return s.call(opPad, &mlxc.Args{}, 2, text, a, Array{})
	}
	if o.Axes == nil {
		for k := range i.Shape {
			o.Axes = append(o.Axes, k)
		}
	}
	if o.High == nil {
		o.High = o.Low
	}
	g := &mlxc.Args{}
	g.SetBool(0, o.Edge)
	for k, list := range [][]int{o.Axes, o.Low, o.High} {
		p, fit := pack(list)
		if !fit || len(list) != len(o.Axes) {
			return s.stop(opPad, "Axes, Low and High need as many numbers, at most 8", text, a)
		}
		for _, v := range list {
			if k > 0 && v < 0 {
				return s.stop(opPad, "Low and High must not be negative", text, a)
			}
		}
		g.L[k] = p
	}
	if msg := padEveryAxis(g, len(i.Shape)); msg != "" {
		return s.stop(opPad, msg, text, a)
	}
	shape := lengths(i)
	for k := range shape {
		shape[k] += int(g.L[1].V[k]) + int(g.L[2].V[k])
	}
	if msg := grows(shape...); msg != "" {
		return s.stop(opPad, msg, text, a)
	}
	value := s.Scalar(o.Value, Dtype(i.Dtype))
	if !value.Valid() {
		return Array{}
	}
	r := s.call(opPad, g, 2, text, a, value)
	s.drop(value)
	return r
}

// padEveryAxis fills in axes that are not padded; MLX repeats edges right only if all are there.
func padEveryAxis(g *mlxc.Args, n int) string {
	var low, high mlxc.Ints
	var seen [mlxc.MaxDims]bool
	if n > mlxc.MaxDims {
		return limitText
	}
	for k := range g.L[0].N {
		axis := int(g.L[0].V[k])
		if axis < 0 {
			axis += n
		}
		if axis < 0 || axis >= n || seen[axis] {
			return "no such axis, or one axis twice"
		}
		seen[axis] = true
		low.V[axis], high.V[axis] = g.L[1].V[k], g.L[2].V[k]
	}
	for k := range n {
		g.L[0].V[k] = int32(k)
	}
	g.L[0].N, low.N, high.N = int32(n), int32(n), int32(n)
	g.L[1], g.L[2] = low, high
	return ""
}

// Roll shifts elements towards higher indices along axes; those that leave come in
// at the other end. Without axes the array is rolled as if flat. (mlx_roll_axes)
func (s *Scope) Roll(a Array, shift int, axes ...int) Array {
	text := func() string { return args1("shift", shift) + ", axes " + formatInts(axes) }
	if len(axes) == 0 {
		return s.compose(opRoll, func(t *Scope) Array { return t.Reshape(t.Roll(t.Flatten(a), shift, 0), a.Shape()...) }, a)
	}
	p, ok := pack(axes)
	if !ok || !fits(shift) {
		return s.stop(opRoll, limitText, text, a)
	}
	g := &mlxc.Args{}
	for i := range axes {
		g.L[0].V[i] = int32(shift)
	}
	g.L[0].N, g.L[1] = p.N, p
	return s.call(opRoll, g, 1, text, a)
}

// Flip reverses the order along axes, along all without axes. (mlx_flip_axes)
func (s *Scope) Flip(a Array, axes ...int) Array {
	return s.withInts(opFlip, a, s.allAxes(opFlip, a, axes), "axes")
}

// allAxes is axes, or every axis of a when there are none.
func (s *Scope) allAxes(o op, a Array, axes []int) []int {
	if len(axes) > 0 {
		return axes
	}
	i, _ := a.peek(s, o, 1)
	all := make([]int, len(i.Shape))
	for k := range all {
		all[k] = k
	}
	return all
}

// Unstack gives the slices along an axis, which disappears. It is nil on error. (mlx_unstack_axis)
func (s *Scope) Unstack(a Array, axis int) []Array {
	text := func() string { return args1("axis", axis) }
	limit := 0
	if i, ok := a.peek(s, opUnstack, 1); ok {
		k := axis
		if k < 0 {
			k += len(i.Shape)
		}
		if k < 0 || k >= len(i.Shape) {
			s.stop(opUnstack, "no such axis", text, a)
			return nil
		}
		axis, limit = k, int(i.Shape[k])
	}
	return s.callMany(opUnstack, &mlxc.Args{I: [14]int32{int32(axis)}}, 1, limit, text, a)
}

// View reads the same bytes as another type; the last axis grows or shrinks
// with the size of an element. (mlx_view)
func (s *Scope) View(a Array, dt Dtype) Array {
	i, ok := a.peek(s, opViewAs, 1)
	if n := len(i.Shape); ok && n > 0 && i.Shape[n-1] == 1 && dt.valid() && dt.Size() < Dtype(i.Dtype).Size() && s.begin(opViewAs) {
		// MLX would read the first bytes again and again where the stride of the one element is 0,
		// as it is after broadcasting; an axis of two elements has none of 0 after Concat.
		size := Dtype(i.Dtype).Size() / dt.Size()
		return s.compose(opViewAs, func(t *Scope) Array {
			return t.SliceAxis(t.withDtype(opViewAs, t.Concat(n-1, a, a), dt), n-1, 0, size)
		}, a)
	}
	return s.withDtype(opViewAs, a, dt)
}

// AsStrided reads the elements of a, in row-major order, with a shape and steps
// of its own: element [i, j, …] is a's element offset + i*strides[0] + j*strides[1]
// + …, all of which must exist. (mlx_as_strided)
func (s *Scope) AsStrided(a Array, shape, strides []int, offset int) Array {
	text := func() string {
		return "shape " + formatInts(shape) + ", strides " + formatInts(strides) + ", offset " + strconv.Itoa(offset)
	}
	p, ok := pack(shape)
	total, possible := product(shape)
	if !ok || !possible || len(shape) != len(strides) || offset < 0 {
		return s.stop(opAsStrided, "shape and strides need as many numbers, at most 8", text, a)
	}
	g := &mlxc.Args{U: uint64(offset), N: p.N}
	g.L[0] = p
	low, high := offset, offset
	for i, d := range shape {
		g.Strides[i] = int64(strides[i])
		if !fits(strides[i]) {
			return s.stop(opAsStrided, limitText, text, a)
		}
		if reach := (d - 1) * strides[i]; reach < 0 {
			low += reach
		} else {
			high += reach
		}
	}
	if i, known := a.peek(s, opAsStrided, 1); known && (total > 0 && (low < 0 || high >= i.Size) || offset > i.Size) {
		return s.stop(opAsStrided, "the array has not so many elements", text, a)
	}
	return s.call(opAsStrided, g, 1, text, a)
}

// Diagonal is the diagonal k of the planes of two axes, which disappear and give
// way to a last axis. (mlx_diagonal)
func (s *Scope) Diagonal(a Array, k, axis1, axis2 int) Array {
	text := func() string { return args1("k", k) + ", " + args2("axis", axis1, "axis", axis2) }
	if !fits(k) || !fits(axis1) || !fits(axis2) {
		return s.stop(opDiagonal, limitText, text, a)
	}
	return s.call(opDiagonal, &mlxc.Args{I: [14]int32{int32(k), int32(axis1), int32(axis2)}}, 1, text, a)
}

// Trace is the sum along diagonal k of the planes of two axes, which disappear, in
// type dt. (mlx_diagonal, mlx_sum_axes; mlx_trace_axes does not end for a diagonal outside)
func (s *Scope) Trace(a Array, k, axis1, axis2 int, dt Dtype) Array {
	if !dt.valid() {
		return s.stop(opTrace, "unknown type", dt.String, a)
	}
	return s.compose(opTrace, func(t *Scope) Array {
		return t.AsType(t.Sum(t.AsType(t.Diagonal(a, k, axis1, axis2), dt), false, -1), dt)
	}, a)
}

// StopGradient is a, through which no gradient flows. (mlx_stop_gradient)
func (s *Scope) StopGradient(a Array) Array { return s.unary(opStopGrad, a) }

// compose makes one operation of several: f's steps belong to a scope that ends with it.
func (s *Scope) compose(o op, f func(t *Scope) Array, in ...Array) Array {
	if !s.begin(o) {
		return Array{}
	}
	for i, a := range in {
		if a.use(s, o, i+1) == 0 {
			return s.zeroInput(o, "", in...)
		}
	}
	if !mlxc.OnWorker() {
		return s.failed(o, mlxc.OffWorker, "")
	}
	t := s.steps()
	defer t.close(closedByClose)
	r := f(t)
	if err := t.Err(); err != nil {
		s.Fail(&OpError{Op: ops[o].name, Inputs: describe(in), Err: err})
		return Array{}
	}
	r.made = o
	return s.Move(r)
}

// steps is a scope for what an operation makes on its way.
func (s *Scope) steps() *Scope {
	return &Scope{lib: s.lib, stream: s.stream, device: s.device, name: s.name}
}
