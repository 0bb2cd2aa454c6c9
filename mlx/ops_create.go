package mlx

import (
	"math"
	"strconv"
	"unsafe"

	"github.com/godflash/godflash/internal/mlxc"
)

var (
	opZeros  = newOp("Zeros", "mlx_zeros", mlxc.Fill)
	opOnes   = newOp("Ones", "mlx_ones", mlxc.Fill)
	opFull   = newOp("Full", "mlx_full", "")
	opScalar = newOp("Scalar", "mlx_array_new_data", "")
	opArange = newOp("Arange", "mlx_arange", "")
)

// Zeros makes an array of the given shape filled with 0; no shape makes a scalar. (mlx_zeros)
func (s *Scope) Zeros(dt Dtype, shape ...int) Array { return s.fill(opZeros, dt, shape) }

// Ones makes an array of the given shape filled with 1; no shape makes a scalar. (mlx_ones)
func (s *Scope) Ones(dt Dtype, shape ...int) Array { return s.fill(opOnes, dt, shape) }

func (s *Scope) fill(o op, dt Dtype, shape []int) Array {
	if !s.begin(o) {
		return Array{}
	}
	p, ok := s.checkShape(o, dt, shape)
	if !ok {
		return Array{}
	}
	h := mlxc.CallFill(o.fn(), p, int(dt), s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(o, h, fillArgs(dt, shape))
	}
	return s.put(o, h)
}

func fillArgs(dt Dtype, shape []int) string { return dt.String() + formatInts(shape) }

func (s *Scope) checkShape(o op, dt Dtype, shape []int) (mlxc.Ints, bool) {
	p, ok := pack(shape)
	if !ok {
		s.refuse(o, limitText, fillArgs(dt, shape))
		return p, false
	}
	if !dt.valid() {
		s.refuse(o, "unknown type", fillArgs(dt, shape))
		return p, false
	}
	if n, ok := product(shape); !ok || n > math.MaxInt/dt.Size() {
		s.refuse(o, "impossible shape", fillArgs(dt, shape))
		return p, false
	}
	return p, true
}

// Full makes an array of the given shape filled with v, converted as by
// [Scope.Scalar]; no shape makes a scalar. (mlx_full)
func (s *Scope) Full(v float64, dt Dtype, shape ...int) Array {
	if !s.begin(opFull) {
		return Array{}
	}
	p, ok := s.checkShape(opFull, dt, shape)
	if !ok {
		return Array{}
	}
	value := s.Scalar(v, dt)
	if !value.Valid() {
		return Array{}
	}
	h := mlxc.Full(p, value.handle(opFull, 1), int(dt), s.stream)
	s.drop(value)
	if h <= mlxc.OffWorker {
		return s.failed(opFull, h, fillArgs(dt, shape))
	}
	return s.put(opFull, h)
}

// drop frees a helper array of a composed operation; MLX keeps the data as long as results need it.
func (s *Scope) drop(a Array) {
	c := s.lib.core
	c.scratch = append(c.scratch[:0], s.remove(a, endFree))
	c.release(c.scratch)
}

// Scalar makes an array of no dimensions. For floating-point types v is rounded
// to nearest, ties to even; for integer types it must be in range and loses its
// fraction; for Bool everything but 0 is true. (mlx_array_new_data)
func (s *Scope) Scalar(v float64, dt Dtype) Array {
	if !s.begin(opScalar) {
		return Array{}
	}
	var buf [8]byte
	if !encode(&buf, v, dt) {
		return s.refuse(opScalar, "the type cannot hold the number", strconv.FormatFloat(v, 'g', -1, 64)+" "+dt.String())
	}
	if n := int32(v); dt == Int32 && float64(n) == v {
		if a, ok := s.fromTable(n, true); ok {
			return a
		}
	}
	h := mlxc.FromData(unsafe.Pointer(&buf), mlxc.Ints{}, int(dt))
	if h <= mlxc.OffWorker {
		return s.failed(opScalar, h, strconv.FormatFloat(v, 'g', -1, 64)+" "+dt.String())
	}
	return s.put(opScalar, h)
}

// encode writes v as an element of type dt; false when it does not fit.
func encode(buf *[8]byte, v float64, dt Dtype) bool {
	p := unsafe.Pointer(buf)
	if dt.IsFloat() || dt == Complex64 || dt == Bool {
		switch dt {
		case Bool:
			*(*bool)(p) = v != 0
		case Float16:
			*(*F16)(p) = F16From(float32(v))
		case BFloat16:
			*(*BF16)(p) = BF16From(float32(v))
		case Float32:
			*(*float32)(p) = float32(v)
		case Float64:
			*(*float64)(p) = v
		case Complex64:
			*(*complex64)(p) = complex(float32(v), 0)
		}
		return true
	}
	t := math.Trunc(v)
	in := func(bits int, signed bool) bool { // false for NaN, too
		if signed {
			return t >= -math.Ldexp(1, bits-1) && t < math.Ldexp(1, bits-1)
		}
		return t >= 0 && t < math.Ldexp(1, bits)
	}
	switch dt {
	case Uint8:
		*(*uint8)(p) = uint8(t)
		return in(8, false)
	case Uint16:
		*(*uint16)(p) = uint16(t)
		return in(16, false)
	case Uint32:
		*(*uint32)(p) = uint32(t)
		return in(32, false)
	case Uint64:
		*(*uint64)(p) = uint64(t)
		return in(64, false)
	case Int8:
		*(*int8)(p) = int8(t)
		return in(8, true)
	case Int16:
		*(*int16)(p) = int16(t)
		return in(16, true)
	case Int32:
		*(*int32)(p) = int32(t)
		return in(32, true)
	case Int64:
		*(*int64)(p) = int64(t)
		return in(64, true)
	}
	return false
}

// Arange makes [start, start+step, …] up to but without stop: shape [n]. (mlx_arange)
func (s *Scope) Arange(start, stop, step float64, dt Dtype) Array {
	if !s.begin(opArange) {
		return Array{}
	}
	text := func() string {
		f := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
		return f(start) + ", " + f(stop) + ", " + f(step) + ", " + dt.String()
	}
	switch n := (stop - start) / step; {
	case !dt.valid() || dt == Complex64 || dt == Bool:
		return s.refuse(opArange, "a real number type is needed", text())
	case step == 0 || math.IsNaN(n) || n > math.MaxInt32:
		return s.refuse(opArange, "impossible range", text())
	}
	h := mlxc.Arange(start, stop, step, int(dt), s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(opArange, h, text())
	}
	return s.put(opArange, h)
}
