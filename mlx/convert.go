package mlx

import (
	"fmt"
	"strconv"
	"unsafe"

	"github.com/godflash/godflash/internal/mlxc"
)

// Element is a Go type that array elements can have. int is an [Int64].
type Element interface {
	bool | int | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64 | F16 | BF16 | complex64
}

// DtypeOf is the array type of a Go type.
func DtypeOf[T Element]() Dtype {
	var zero T
	switch any(zero).(type) {
	case bool:
		return Bool
	case uint8:
		return Uint8
	case uint16:
		return Uint16
	case uint32:
		return Uint32
	case uint64:
		return Uint64
	case int8:
		return Int8
	case int16:
		return Int16
	case int32:
		return Int32
	case int, int64:
		return Int64
	case F16:
		return Float16
	case float32:
		return Float32
	case float64:
		return Float64
	case BF16:
		return BFloat16
	default:
		return Complex64
	}
}

var opFromSlice = newOp("FromSlice", "mlx_array_new_data", "")

// FromSlice copies data into a new array of the given shape, row by row. Without
// a shape the array has one dimension; a scalar is made by [Scope.Scalar]. The
// product of the shape must be the length of data. (mlx_array_new_data)
func FromSlice[T Element](s *Scope, data []T, shape ...int) Array {
	if !s.begin(opFromSlice) {
		return Array{}
	}
	var p mlxc.Ints
	if len(shape) == 0 {
		if !fits(len(data)) {
			return s.refuse(opFromSlice, "MLX takes at most 2147483647 elements along one axis", args1("length", len(data)))
		}
		p.N, p.V[0] = 1, int32(len(data))
	} else {
		var ok bool
		if p, ok = pack(shape); !ok {
			return s.refuse(opFromSlice, limitText, "shape "+formatInts(shape))
		}
		if n, ok := product(shape); !ok || n != len(data) {
			return s.refuse(opFromSlice, "shape and length do not agree", "shape "+formatInts(shape)+", length "+strconv.Itoa(len(data)))
		}
	}
	if list, ok := any(data).([]int32); ok && len(list) == 1 && p.N == 1 {
		if a, ok := s.fromTable(list[0], false); ok {
			return a
		}
	}
	h := mlxc.FromData(unsafe.Pointer(unsafe.SliceData(data)), p, int(DtypeOf[T]()))
	if h <= mlxc.OffWorker {
		return s.failed(opFromSlice, h, "shape "+formatInts(shape))
	}
	return s.put(opFromSlice, h)
}

// product is the number of elements; false for a negative length or an overflow.
func product(shape []int) (int, bool) {
	n := 1
	for _, d := range shape {
		if d < 0 || d > 0 && n > int(^uint(0)>>1)/d {
			return 0, false
		}
		n *= d
	}
	return n, true
}

var (
	opToSlice = newOp("ToSlice", "mlx_array_data_uint8", "")
	opItem    = newOp("Item", "mlx_array_data_uint8", "")
)

// ToSlice evaluates the array and copies its elements out, row by row. T must be
// the Go type of the array's type exactly; convert with [Scope.AsType] before.
// (mlx_array_eval, mlx_contiguous where needed, mlx_array_data_uint8)
func ToSlice[T Element](a Array) ([]T, error) {
	var out []T
	err := a.read(opToSlice, DtypeOf[T](), func(data unsafe.Pointer, n int) error {
		if n == 0 {
			out = []T{}
			return nil
		}
		out = append([]T(nil), unsafe.Slice((*T)(data), n)...) // append does not clear the memory first, as make would
		return nil
	})
	return out, err
}

// Item evaluates an array of one element, of any number of dimensions, and
// gives that element. T as in [ToSlice].
func Item[T Element](a Array) (T, error) {
	var out T
	err := a.read(opItem, DtypeOf[T](), func(data unsafe.Pointer, n int) error {
		if n != 1 {
			return fmt.Errorf("the array has %d elements, not one", n)
		}
		out = *(*T)(data)
		return nil
	})
	return out, err
}

// read lends f the evaluated values of a.
func (a Array) read(o op, want Dtype, f func(data unsafe.Pointer, n int) error) error {
	if a.s == nil {
		return &OpError{Op: ops[o].name, Inputs: []ArrayInfo{{}}, Msg: "an earlier operation failed, or the array was never set", Err: ErrZeroArray}
	}
	if err := a.s.Err(); err != nil {
		return err
	}
	h := a.handle(o, 1)
	i := mlxc.Describe(h)
	if i.Status != mlxc.OK {
		return &OpError{Op: ops[o].name, Err: ErrOutsideDo}
	}
	fail := func(msg string, err error) error {
		return &OpError{Op: ops[o].name, Inputs: []ArrayInfo{a.describe()}, Msg: msg, Err: err}
	}
	if got := Dtype(i.Dtype); got != want {
		return fail(fmt.Sprintf("the elements are %v, asked for were %v; convert with AsType", got, want), nil)
	}
	data, extra, status := mlxc.Read(h, a.s.stream)
	if extra != 0 {
		defer func() { mlxc.Free([]mlxc.Handle{extra}) }()
	}
	if status != mlxc.OK {
		return fail(cleanMessage(mlxc.LastError()), nil)
	}
	if err := f(data, i.Size); err != nil {
		return fail("", err)
	}
	return nil
}
