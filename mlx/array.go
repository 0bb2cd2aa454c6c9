package mlx

import (
	"fmt"
	"strings"

	"github.com/godflash/godflash/internal/mlxc"
)

// Array refers to an array that a [Scope] owns. It is a small value: copy it
// freely, compare it with Array{}. Copies are the same reference; when the
// owner closes, frees or moves the array, all of them become invalid.
//
// The zero Array stands for "none": operations that fail return it, and
// optional inputs take it.
type Array struct {
	s    *Scope
	slot int32
	gen  uint32
	made op
}

// Valid is false for the zero Array only. It does not say whether the array still lives.
func (a Array) Valid() bool { return a.s != nil }

// Scope is the owner, nil for the zero Array.
func (a Array) Scope() *Scope { return a.s }

// use gives the handle, or 0 for the zero Array; it panics when the array has
// ended or belongs to another library.
func (a Array) use(s *Scope, o op, input int) mlxc.Handle {
	if a.s == nil {
		return 0
	}
	if a.s.lib.core != s.lib.core {
		panic(fmt.Errorf("mlx: input %d of %s belongs to another Library", input, ops[o].name))
	}
	return a.handle(o, input)
}

func (a Array) handle(o op, input int) mlxc.Handle {
	if a.s == nil {
		return 0
	}
	if slots := a.s.slots; int(a.slot) < len(slots) {
		if sl := &slots[a.slot]; sl.gen == a.gen && sl.h != 0 {
			return sl.h
		}
	}
	panic(a.ended(ops[o].name, input))
}

// ended describes why the array cannot be used.
func (a Array) ended(op string, input int) *UseError {
	e := &UseError{Op: op, Input: input, Made: ops[a.made].name, Scope: a.s.name, Ending: "an earlier Scope.Free or Scope.Move"}
	switch why := a.s.closedBy.Load(); {
	case why != nil:
		e.Ending = *why
	case int(a.slot) < len(a.s.slots) && a.s.slots[a.slot].gen == a.gen+1 && a.s.slots[a.slot].h == 0:
		e.Ending = a.s.slots[a.slot].end.String()
	}
	return e
}

var (
	opShape    = newOp("Array.Shape", "mlx_array_shape", "")
	opDim      = newOp("Array.Dim", "mlx_array_shape", "")
	opNDim     = newOp("Array.NDim", "mlx_array_ndim", "")
	opSize     = newOp("Array.Size", "mlx_array_size", "")
	opNBytes   = newOp("Array.NBytes", "mlx_array_nbytes", "")
	opDtype    = newOp("Array.Dtype", "mlx_array_dtype", "")
	opString   = newOp("Array.String", "mlx_array_tostring", "")
	opDescribe = newOp("error text", "mlx_array_shape", "")
)

// info is the zero Info for the zero Array; outside Do it panics, for the
// methods that use it have no error to return.
func (a Array) info(o op) mlxc.Info {
	if a.s == nil {
		return mlxc.Info{}
	}
	i := mlxc.Describe(a.handle(o, 1))
	if i.Status != mlxc.OK {
		panic(fmt.Errorf("mlx: %s: %w", ops[o].name, ErrOutsideDo))
	}
	return i
}

// Shape is a copy of the lengths of all axes, outermost first; nil for the zero
// Array. Like the other queries it works inside Library.Do only. (mlx_array_shape)
func (a Array) Shape() []int {
	if a.s == nil {
		return nil
	}
	return lengths(a.info(opShape))
}

// Dim is the length of one axis; negative axes count from the end. It is 0 for
// the zero Array and panics on an axis that the array does not have. (mlx_array_shape)
func (a Array) Dim(axis int) int {
	if a.s == nil {
		return 0
	}
	shape := a.info(opDim).Shape
	i := axis
	if i < 0 {
		i += len(shape)
	}
	if i < 0 || i >= len(shape) {
		panic(fmt.Errorf("mlx: Array.Dim(%d) of an array with %d dimensions, made by %s", axis, len(shape), ops[a.made].name))
	}
	return int(shape[i])
}

// NDim is the number of axes, 0 for a scalar. (mlx_array_ndim)
func (a Array) NDim() int { return len(a.info(opNDim).Shape) }

// Size is the number of elements. (mlx_array_size)
func (a Array) Size() int { return a.info(opSize).Size }

// NBytes is Size times the bytes of an element, also where a view shares memory. (mlx_array_nbytes)
func (a Array) NBytes() int { return a.info(opNBytes).NBytes }

// Dtype is the type of the elements; Bool for the zero Array. (mlx_array_dtype)
func (a Array) Dtype() Dtype { return Dtype(a.info(opDtype).Dtype) }

// String evaluates the array and gives MLX's text of its values with shape and
// type, such as "array([1, 2], shape=[2], dtype=int32)". It never panics:
// outside Library.Do, or when the array has ended, the text says so. (mlx_array_tostring)
func (a Array) String() string {
	if a.s == nil {
		return "array(none)"
	}
	if !mlxc.OnWorker() {
		return "array(outside Library.Do)"
	}
	if slots := a.s.slots; int(a.slot) >= len(slots) || slots[a.slot].gen != a.gen || slots[a.slot].h == 0 {
		return "array(ended by " + a.ended("String", 1).Ending + ")"
	}
	shape := formatInts(a.Shape())
	text, status := mlxc.Text(a.handle(opString, 1))
	if status != mlxc.OK {
		return "array(error: " + cleanMessage(mlxc.LastError()) + ")"
	}
	if i := strings.LastIndex(text, "dtype="); i >= 0 {
		return text[:i] + "shape=" + shape + ", " + text[i:]
	}
	return text
}

// describe is for error texts: shape and type of an array that lives.
func (a Array) describe() ArrayInfo {
	if a.s == nil {
		return ArrayInfo{}
	}
	i := mlxc.Describe(a.handle(opDescribe, 1))
	if i.Status != mlxc.OK {
		return ArrayInfo{}
	}
	return ArrayInfo{Valid: true, Shape: a.Shape(), Dtype: Dtype(i.Dtype)}
}
