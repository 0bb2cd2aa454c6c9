package mlx

import (
	"runtime"
	"unsafe"

	"github.com/godflash/godflash/internal/mlxc"
)

var (
	opShare     = newOp("ShareSlice", "mlx_array_new_data_managed_payload", "")
	opViewSlice = newOp("ViewSlice", "mlx_array_data_uint8", "")
)

// ShareSlice is [FromSlice] without a copy where MLX can compute on the program's
// memory, which is the case with Metal; elsewhere MLX copies at once. The slice
// must not be written to until release is called: on the worker, at the end of a
// Do, when MLX holds no array, result or view that needs the memory any longer. It
// is called exactly once, also when ShareSlice fails. Until then the memory is
// pinned, so the slice may be one that Go's garbage collector owns. release may
// be nil. (mlx_array_new_data_managed_payload)
func ShareSlice[T Element](s *Scope, data []T, release func(), shape ...int) Array {
	if release == nil {
		release = func() {}
	}
	if len(shape) == 0 {
		shape = []int{len(data)}
	}
	fail := func(a Array) Array {
		release()
		return a
	}
	if !s.begin(opShare) {
		return fail(Array{})
	}
	if !mlxc.OnWorker() {
		return fail(s.failed(opShare, mlxc.OffWorker, ""))
	}
	p, ok := pack(shape)
	if !ok {
		return fail(s.refuse(opShare, limitText, "shape "+formatInts(shape)))
	}
	if n, ok := product(shape); !ok || n != len(data) {
		return fail(s.refuse(opShare, "shape and length do not agree", "shape "+formatInts(shape)+", "+args1("length", len(data))))
	}
	if len(data) == 0 { // nothing to share
		return fail(FromSlice(s, data, shape...))
	}
	var pin runtime.Pinner
	pin.Pin(unsafe.SliceData(data))
	payload := mlxc.NewPayload(func() {
		pin.Unpin()
		release()
	})
	h := mlxc.FromShared(unsafe.Pointer(unsafe.SliceData(data)), p, int(DtypeOf[T]()), payload)
	if h <= mlxc.OffWorker {
		return s.failed(opShare, h, "shape "+formatInts(shape)) // MLX has dropped the payload
	}
	return s.put(opShare, h)
}

// ViewSlice evaluates the array and lends its elements without a copy, row by row. The
// slice is MLX's own memory: read it only, and only until the array is freed,
// moved or its scope closes; reading it later reads memory of other arrays. While
// the array lives no operation writes to the memory. Other goroutines may read it.
//
// T as in [ToSlice]. An array whose elements do not lie row by row (a transposed
// one, some slices) has no view: an error says so; use [Scope.Contiguous].
// (mlx_array_eval, mlx_array_data_uint8)
func ViewSlice[T Element](a Array) ([]T, error) {
	if a.s == nil {
		return nil, &OpError{Op: "ViewSlice", Inputs: []ArrayInfo{{}}, Msg: "an earlier operation failed, or the array was never set", Err: ErrZeroArray}
	}
	if err := a.s.Err(); err != nil {
		return nil, err
	}
	h := a.handle(opViewSlice, 1)
	if !mlxc.OnWorker() {
		return nil, &OpError{Op: "ViewSlice", Err: ErrOutsideDo}
	}
	in := []ArrayInfo{a.describe()}
	if want := DtypeOf[T](); in[0].Dtype != want {
		return nil, &OpError{Op: "ViewSlice", Inputs: in, Msg: "the elements are " + in[0].Dtype.String() + ", asked for were " + want.String() + "; convert with AsType"}
	}
	data, status := mlxc.View(h)
	if status != mlxc.OK {
		return nil, &OpError{Op: "ViewSlice", Inputs: in, Msg: cleanMessage(mlxc.LastError())}
	}
	n := a.Size()
	if n == 0 {
		return []T{}, nil
	}
	if data == nil {
		return nil, &OpError{Op: "ViewSlice", Inputs: in, Msg: "the elements do not lie row by row; use Contiguous or ToSlice"}
	}
	return unsafe.Slice((*T)(data), n), nil
}
