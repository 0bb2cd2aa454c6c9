package mlx

import "github.com/godflash/godflash/internal/mlxc"

var (
	opReshape     = newOp("Reshape", "mlx_reshape", mlxc.IntsOnly)
	opFlatten     = newOp("Flatten", "mlx_flatten", mlxc.Int2)
	opReverseAxes = newOp("Transpose", "mlx_transpose", mlxc.Unary)
	opTranspose   = newOp("Transpose", "mlx_transpose_axes", mlxc.IntsOnly)
	opSwapAxes    = newOp("SwapAxes", "mlx_swapaxes", mlxc.Int2)
	opExpandDims  = newOp("ExpandDims", "mlx_expand_dims_axes", mlxc.IntsOnly)
	opSqueezeAll  = newOp("Squeeze", "mlx_squeeze", mlxc.Unary)
	opSqueeze     = newOp("Squeeze", "mlx_squeeze_axes", mlxc.IntsOnly)
	opBroadcastTo = newOp("BroadcastTo", "mlx_broadcast_to", mlxc.IntsOnly)
	opConcat      = newOp("Concat", "mlx_concatenate_axis", mlxc.VectorInt)
	opStack       = newOp("Stack", "mlx_stack_axis", mlxc.VectorInt)
	opSplit       = newOp("Split", "mlx_split", "")
	opSplitAt     = newOp("SplitAt", "mlx_split_sections", "")
	opRepeat      = newOp("Repeat", "mlx_repeat_axis", mlxc.Int2)
	opContiguous  = newOp("Contiguous", "mlx_contiguous", mlxc.Bool)
	opCopy        = newOp("Copy", "mlx_copy", mlxc.Unary)
	opAsType      = newOp("AsType", "mlx_astype", mlxc.DtypeOnly)
)

// Reshape gives the elements, in row-major order, another shape; one length may
// be -1 and is then worked out. (mlx_reshape)
func (s *Scope) Reshape(a Array, shape ...int) Array {
	for _, d := range shape {
		if d < -1 && s.begin(opReshape) { // MLX would make an array of negative lengths
			return s.refuse(opReshape, "impossible shape", "shape "+formatInts(shape), a)
		}
	}
	return s.withInts(opReshape, a, shape, "shape")
}

// Flatten gives all elements as shape [Size]. (mlx_flatten)
func (s *Scope) Flatten(a Array) Array { return s.withInt2(opFlatten, a, 0, -1, "from", "to") }

// Transpose puts axis axes[i] of a at place i; without axes it reverses their
// order. (mlx_transpose_axes, mlx_transpose)
func (s *Scope) Transpose(a Array, axes ...int) Array {
	if len(axes) == 0 {
		return s.unary(opReverseAxes, a)
	}
	return s.withInts(opTranspose, a, axes, "axes")
}

// SwapAxes exchanges two axes. (mlx_swapaxes)
func (s *Scope) SwapAxes(a Array, i, j int) Array {
	return s.withInt2(opSwapAxes, a, i, j, "axis", "axis")
}

// ExpandDims adds axes of length 1; the numbers are places in the result. (mlx_expand_dims_axes)
func (s *Scope) ExpandDims(a Array, axes ...int) Array {
	return s.withInts(opExpandDims, a, axes, "axes")
}

// Squeeze removes axes of length 1, all of them when none is named. (mlx_squeeze_axes, mlx_squeeze)
func (s *Scope) Squeeze(a Array, axes ...int) Array {
	if len(axes) == 0 {
		return s.unary(opSqueezeAll, a)
	}
	return s.withInts(opSqueeze, a, axes, "axes")
}

// BroadcastTo repeats a, without copying, to a shape it can be broadcast to. (mlx_broadcast_to)
func (s *Scope) BroadcastTo(a Array, shape ...int) Array {
	if _, ok := product(shape); !ok && s.begin(opBroadcastTo) { // MLX would let the number of elements overflow
		return s.refuse(opBroadcastTo, "impossible shape", "shape "+formatInts(shape), a)
	}
	return s.withInts(opBroadcastTo, a, shape, "shape")
}

// Concat joins arrays along an axis; all other lengths must agree. (mlx_concatenate_axis)
func (s *Scope) Concat(axis int, arrays ...Array) Array { return s.vectorInt(opConcat, axis, arrays) }

// Stack joins arrays of one shape along a new axis. (mlx_stack_axis)
func (s *Scope) Stack(axis int, arrays ...Array) Array { return s.vectorInt(opStack, axis, arrays) }

// Split cuts a into n equal parts along an axis. It is nil on error. (mlx_split)
func (s *Scope) Split(a Array, n, axis int) []Array {
	if !s.begin(opSplit) {
		return nil
	}
	text := func() string { return args2("parts", n, "axis", axis) }
	x := a.use(s, opSplit, 1)
	switch {
	case x == 0:
		s.zeroInput(opSplit, text(), a)
		return nil
	case n < 1 || n > maxParts || !fits(axis):
		s.refuse(opSplit, "impossible number of parts", text(), a)
		return nil
	}
	out := s.room(n)
	return s.spread(opSplit, out, mlxc.Split(x, n, axis, out, s.stream), text, a)
}

const maxParts = 1 << 20

// SplitAt cuts a before each index along an axis: indices 2, 5 give [0,2), [2,5)
// and [5,end). It is nil on error. (mlx_split_sections)
func (s *Scope) SplitAt(a Array, axis int, indices ...int) []Array {
	if !s.begin(opSplitAt) {
		return nil
	}
	text := func() string { return "indices " + formatInts(indices) + ", " + args1("axis", axis) }
	x := a.use(s, opSplitAt, 1)
	if x == 0 {
		s.zeroInput(opSplitAt, text(), a)
		return nil
	}
	at := make([]int32, len(indices))
	for i, v := range indices {
		if !fits(v) || !fits(axis) || v < 0 || i > 0 && v < indices[i-1] {
			s.refuse(opSplitAt, "indices must be ascending and not negative", text(), a)
			return nil
		}
		at[i] = int32(v)
	}
	out := s.room(len(at) + 1)
	return s.spread(opSplitAt, out, mlxc.SplitAt(x, at, axis, out, s.stream), text, a)
}

// room makes the worker's list n long.
func (s *Scope) room(n int) []mlxc.Handle {
	c := s.lib.core
	if cap(c.scratch) < n {
		c.scratch = make([]mlxc.Handle, 0, n)
	}
	return c.scratch[:n]
}

func (s *Scope) spread(o op, out []mlxc.Handle, n int, text func() string, a Array) []Array {
	switch n {
	case mlxc.OffThread:
		s.failed(o, mlxc.OffWorker, text())
		return nil
	case mlxc.Failed:
		s.failed(o, 0, text(), a)
		return nil
	}
	parts := make([]Array, n)
	for i := range parts {
		parts[i] = s.put(o, out[i])
	}
	return parts
}

// Repeat repeats each element n times along an axis. (mlx_repeat_axis)
func (s *Scope) Repeat(a Array, n, axis int) Array {
	if i, ok := a.peek(s, opRepeat, 1); ok && n > 1 && fits(n) {
		shape := lengths(i)
		for k := range shape {
			if k == axis || k-len(shape) == axis {
				shape[k] *= n
			}
		}
		if msg := grows(shape...); msg != "" {
			return s.stop(opRepeat, msg, func() string { return args2("times", n, "axis", axis) }, a)
		}
	}
	return s.withInt2(opRepeat, a, n, axis, "times", "axis")
}

// Contiguous gives a in row-major order; it copies only where a is not. A view
// of part of a buffer that is in order stays a view and keeps the whole buffer
// alive: see [Scope.Copy]. (mlx_contiguous)
func (s *Scope) Contiguous(a Array) Array { return s.withBool(opContiguous, a, false) }

// Copy gives a copy of a. (mlx_copy)
func (s *Scope) Copy(a Array) Array { return s.unary(opCopy, a) }

// AsType converts the elements. (mlx_astype)
func (s *Scope) AsType(a Array, dt Dtype) Array {
	return s.withDtype(opAsType, a, dt)
}
