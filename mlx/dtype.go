package mlx

import "fmt"

// Dtype is the type of an array's elements, numbered as mlx_dtype is.
type Dtype uint8

// The types of MLX.
const (
	Bool Dtype = iota
	Uint8
	Uint16
	Uint32
	Uint64
	Int8
	Int16
	Int32
	Int64
	Float16
	Float32
	Float64 // CPU only
	BFloat16
	Complex64
)

var dtypes = [...]struct {
	name string
	size int
}{
	Bool: {"bool", 1}, Uint8: {"uint8", 1}, Uint16: {"uint16", 2}, Uint32: {"uint32", 4}, Uint64: {"uint64", 8},
	Int8: {"int8", 1}, Int16: {"int16", 2}, Int32: {"int32", 4}, Int64: {"int64", 8},
	Float16: {"float16", 2}, Float32: {"float32", 4}, Float64: {"float64", 8}, BFloat16: {"bfloat16", 2}, Complex64: {"complex64", 8},
}

func (d Dtype) valid() bool { return int(d) < len(dtypes) }

// String gives the name MLX prints, such as "float32".
func (d Dtype) String() string {
	if !d.valid() {
		return fmt.Sprintf("Dtype(%d)", uint8(d))
	}
	return dtypes[d].name
}

// Size is the number of bytes of one element, 0 for a value that is no type.
func (d Dtype) Size() int {
	if !d.valid() {
		return 0
	}
	return dtypes[d].size
}

// IsFloat says whether d is one of the four real floating-point types.
func (d Dtype) IsFloat() bool {
	return d == Float16 || d == Float32 || d == Float64 || d == BFloat16
}

// isWhole says whether arithmetic with d is done by the processor's integer instructions.
func (d Dtype) isWhole() bool { return d <= Int64 }

func (d Dtype) isSigned() bool { return d >= Int8 && d <= Int64 }
