//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

package mlxc

/*
#cgo CFLAGS: -O2 -std=gnu11
#cgo linux LDFLAGS: -ldl
#include <stdlib.h>
#include "shim.h"

// No shim keeps a pointer or calls back into Go.
#cgo noescape gf_unary
#cgo nocallback gf_unary
#cgo noescape gf_binary
#cgo nocallback gf_binary
#cgo noescape gf_ternary
#cgo nocallback gf_ternary
#cgo noescape gf_int
#cgo nocallback gf_int
#cgo noescape gf_int2
#cgo nocallback gf_int2
#cgo noescape gf_bool
#cgo nocallback gf_bool
#cgo noescape gf_int_bool
#cgo nocallback gf_int_bool
#cgo noescape gf_ints_op
#cgo nocallback gf_ints_op
#cgo noescape gf_ints_bool
#cgo nocallback gf_ints_bool
#cgo noescape gf_dtype
#cgo nocallback gf_dtype
#cgo noescape gf_binary_int
#cgo nocallback gf_binary_int
#cgo noescape gf_binary_bool
#cgo nocallback gf_binary_bool
#cgo noescape gf_fill
#cgo nocallback gf_fill
#cgo noescape gf_vector_int
#cgo nocallback gf_vector_int
#cgo noescape gf_full
#cgo nocallback gf_full
#cgo noescape gf_arange
#cgo nocallback gf_arange
#cgo noescape gf_from_data
#cgo nocallback gf_from_data
#cgo noescape gf_slice
#cgo nocallback gf_slice
#cgo noescape gf_slice_axis
#cgo nocallback gf_slice_axis
#cgo noescape gf_slice_dynamic
#cgo nocallback gf_slice_dynamic
#cgo noescape gf_slice_update
#cgo nocallback gf_slice_update
#cgo noescape gf_slice_update_dynamic
#cgo nocallback gf_slice_update_dynamic
#cgo noescape gf_addmm
#cgo nocallback gf_addmm
#cgo noescape gf_conv1d
#cgo nocallback gf_conv1d
#cgo noescape gf_rms_norm
#cgo nocallback gf_rms_norm
#cgo noescape gf_layer_norm
#cgo nocallback gf_layer_norm
#cgo noescape gf_rope
#cgo nocallback gf_rope
#cgo noescape gf_rope_dynamic
#cgo nocallback gf_rope_dynamic
#cgo noescape gf_attention
#cgo nocallback gf_attention
#cgo noescape gf_ref
#cgo nocallback gf_ref
#cgo noescape gf_error
#cgo nocallback gf_error
#cgo noescape gf_set_worker
#cgo nocallback gf_set_worker
#cgo noescape gf_on_worker
#cgo nocallback gf_on_worker
#cgo noescape gf_version
#cgo nocallback gf_version
#cgo noescape gf_has_gpu
#cgo nocallback gf_has_gpu
#cgo noescape gf_is_cuda
#cgo nocallback gf_is_cuda
#cgo noescape gf_disable_compile
#cgo nocallback gf_disable_compile
#cgo noescape gf_stream
#cgo nocallback gf_stream
#cgo noescape gf_stream_free
#cgo nocallback gf_stream_free
#cgo noescape gf_memory
#cgo nocallback gf_memory
#cgo noescape gf_split
#cgo nocallback gf_split
#cgo noescape gf_split_at
#cgo nocallback gf_split_at
#cgo noescape gf_eval
#cgo nocallback gf_eval
#cgo noescape gf_free
#cgo nocallback gf_free
#cgo noescape gf_info
#cgo nocallback gf_info
#cgo noescape gf_read
#cgo nocallback gf_read
#cgo noescape gf_tostring
#cgo nocallback gf_tostring
#cgo noescape gf_loader_open
#cgo nocallback gf_loader_open
#cgo noescape gf_loader_next
#cgo nocallback gf_loader_next
#cgo noescape gf_loader_close
#cgo nocallback gf_loader_close
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// Supported says whether this build can call the library.
const Supported = true

func cbool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func cints(v Ints) C.gf_ints { return *(*C.gf_ints)(unsafe.Pointer(&v)) }

func first(h []Handle) *C.gf_h { return (*C.gf_h)(unsafe.Pointer(unsafe.SliceData(h))) }

// Load opens the library at path, finds every function of mlxc.h and installs
// the error handler. Once it has succeeded it must not be called again.
func Load(path string) error {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	msg := (*C.char)(C.calloc(1, 4096))
	defer C.free(unsafe.Pointer(msg))
	switch C.gf_load(p, msg, 4096) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%w: %s", ErrOpen, C.GoString(msg))
	default:
		return fmt.Errorf("%w: %s", ErrSymbol, C.GoString(msg))
	}
}

// Lookup gives the address of a loaded function and its signature class ("" when mlxc.h has none).
func Lookup(name string) (fn Handle, class string) {
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	var h C.gf_h
	sig := C.gf_signature(n, &h)
	if sig == nil {
		return 0, ""
	}
	return Handle(h), C.GoString(sig)
}

// LastError is MLX's text for the failure of the latest call on this thread.
func LastError() string { return C.GoString(C.gf_error()) }

// SetWorker marks the calling thread, to which the goroutine must be locked, as the owner of MLX.
func SetWorker(on bool) { C.gf_set_worker(cbool(on)) }

// OnWorker says whether the calling thread owns MLX.
func OnWorker() bool { return C.gf_on_worker() != 0 }

// Version is mlx_version.
func Version() (string, bool) {
	var buf [64]C.char
	if C.gf_version(&buf[0], C.size_t(len(buf))) != 0 {
		return "", false
	}
	return C.GoString(&buf[0]), true
}

// HasGPU is mlx_device_is_available for GPU 0.
func HasGPU() bool { return C.gf_has_gpu() != 0 }

// IsCUDA is mlx_cuda_is_available.
func IsCUDA() bool { return C.gf_is_cuda() != 0 }

// DisableCompile is mlx_disable_compile.
func DisableCompile() bool { return C.gf_disable_compile() == 0 }

// Stream is the calling thread's default stream.
func Stream(gpu bool) Handle { return Handle(C.gf_stream(cbool(gpu))) }

// FreeStream waits until the stream has nothing left to do and frees its handle.
func FreeStream(st Handle) bool { return C.gf_stream_free(C.gf_h(st)) == 0 }

// Memory reads or sets one of the memory figures, in bytes.
func Memory(what, arg int) (value, status int) {
	var out C.size_t
	status = int(C.gf_memory(C.int(what), C.size_t(arg), &out))
	return int(out), status
}

// Split is mlx_split; it fills out and returns the number, or a status below 0.
func Split(a Handle, n, axis int, out []Handle, st Handle) int {
	return int(C.gf_split(C.gf_h(a), C.int(n), C.int(axis), first(out), C.size_t(len(out)), C.gf_h(st)))
}

// SplitAt is mlx_split_sections; it fills out and returns the number, or a status below 0.
func SplitAt(a Handle, at []int32, axis int, out []Handle, st Handle) int {
	return int(C.gf_split_at(C.gf_h(a), (*C.int)(unsafe.Pointer(unsafe.SliceData(at))), C.size_t(len(at)), C.int(axis),
		first(out), C.size_t(len(out)), C.gf_h(st)))
}

// Eval is mlx_eval or mlx_async_eval.
func Eval(in []Handle, async bool) int {
	return int(C.gf_eval(first(in), C.size_t(len(in)), cbool(async)))
}

// Free is mlx_array_free for each handle.
func Free(in []Handle) int { return int(C.gf_free(first(in), C.size_t(len(in)))) }

// Describe gives shape, size and type.
func Describe(a Handle) Info {
	i := C.gf_info(C.gf_h(a))
	return Info{
		Shape: unsafe.Slice((*int32)(unsafe.Pointer(i.shape)), int(i.ndim)), Size: int(i.size), NBytes: int(i.nbytes),
		Dtype: int(i.dtype), Status: int(i.status),
	}
}

// Read evaluates a and gives the address of its values in row-major order;
// extra, when not 0, must be freed after reading.
func Read(a, st Handle) (data unsafe.Pointer, extra Handle, status int) {
	var e C.gf_h
	var s C.int
	data = unsafe.Pointer(C.gf_read(C.gf_h(a), C.gf_h(st), &e, &s))
	return data, Handle(e), int(s)
}

// Text is MLX's own text of an array, which it evaluates.
func Text(a Handle) (string, int) {
	var s C.int
	t := C.gf_tostring(C.gf_h(a), &s)
	defer C.free(unsafe.Pointer(t))
	return C.GoString(t), int(s)
}

// LoadSafetensors is mlx_load_safetensors; it calls each for every array.
func LoadSafetensors(path string, st Handle, each func(name string, a Handle)) int {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	var s C.int
	l := C.gf_loader_open(p, C.gf_h(st), &s)
	if l == nil {
		return int(s)
	}
	return eachLoaded(l, each)
}

func eachLoaded(l *C.gf_loader, each func(name string, a Handle)) int {
	defer C.gf_loader_close(l)
	for {
		var key *C.char
		var h C.gf_h
		switch C.gf_loader_next(l, &key, &h) {
		case 0:
			return OK
		case 1:
			each(C.GoString(key), Handle(h))
		default:
			return Failed
		}
	}
}

// CallUnary calls a function of class Unary.
func CallUnary(fn, a, st Handle) Handle {
	return Handle(C.gf_unary(C.gf_h(fn), C.gf_h(a), C.gf_h(st)))
}

// CallBinary calls a function of class Binary.
func CallBinary(fn, a, b, st Handle) Handle {
	return Handle(C.gf_binary(C.gf_h(fn), C.gf_h(a), C.gf_h(b), C.gf_h(st)))
}

// CallTernary calls a function of class Ternary.
func CallTernary(fn, a, b, c, st Handle) Handle {
	return Handle(C.gf_ternary(C.gf_h(fn), C.gf_h(a), C.gf_h(b), C.gf_h(c), C.gf_h(st)))
}

// CallInt calls a function of class Int.
func CallInt(fn, a Handle, i int, st Handle) Handle {
	return Handle(C.gf_int(C.gf_h(fn), C.gf_h(a), C.int(i), C.gf_h(st)))
}

// CallInt2 calls a function of class Int2.
func CallInt2(fn, a Handle, i, j int, st Handle) Handle {
	return Handle(C.gf_int2(C.gf_h(fn), C.gf_h(a), C.int(i), C.int(j), C.gf_h(st)))
}

// CallBool calls a function of class Bool.
func CallBool(fn, a Handle, b bool, st Handle) Handle {
	return Handle(C.gf_bool(C.gf_h(fn), C.gf_h(a), cbool(b), C.gf_h(st)))
}

// CallIntBool calls a function of class IntBool.
func CallIntBool(fn, a Handle, i int, b bool, st Handle) Handle {
	return Handle(C.gf_int_bool(C.gf_h(fn), C.gf_h(a), C.int(i), cbool(b), C.gf_h(st)))
}

// CallInts calls a function of class IntsOnly.
func CallInts(fn, a Handle, v Ints, st Handle) Handle {
	return Handle(C.gf_ints_op(C.gf_h(fn), C.gf_h(a), cints(v), C.gf_h(st)))
}

// CallIntsBool calls a function of class IntsBool.
func CallIntsBool(fn, a Handle, v Ints, b bool, st Handle) Handle {
	return Handle(C.gf_ints_bool(C.gf_h(fn), C.gf_h(a), cints(v), cbool(b), C.gf_h(st)))
}

// CallDtype calls a function of class DtypeOnly.
func CallDtype(fn, a Handle, dt int, st Handle) Handle {
	return Handle(C.gf_dtype(C.gf_h(fn), C.gf_h(a), C.int(dt), C.gf_h(st)))
}

// CallBinaryInt calls a function of class BinaryInt.
func CallBinaryInt(fn, a, b Handle, i int, st Handle) Handle {
	return Handle(C.gf_binary_int(C.gf_h(fn), C.gf_h(a), C.gf_h(b), C.int(i), C.gf_h(st)))
}

// CallBinaryBool calls a function of class BinaryBool.
func CallBinaryBool(fn, a, b Handle, c bool, st Handle) Handle {
	return Handle(C.gf_binary_bool(C.gf_h(fn), C.gf_h(a), C.gf_h(b), cbool(c), C.gf_h(st)))
}

// CallFill calls a function of class Fill.
func CallFill(fn Handle, shape Ints, dt int, st Handle) Handle {
	return Handle(C.gf_fill(C.gf_h(fn), cints(shape), C.int(dt), C.gf_h(st)))
}

// CallVectorInt calls a function of class VectorInt.
func CallVectorInt(fn Handle, in []Handle, i int, st Handle) Handle {
	return Handle(C.gf_vector_int(C.gf_h(fn), first(in), C.size_t(len(in)), C.int(i), C.gf_h(st)))
}

// Full is mlx_full.
func Full(shape Ints, val Handle, dt int, st Handle) Handle {
	return Handle(C.gf_full(cints(shape), C.gf_h(val), C.int(dt), C.gf_h(st)))
}

// Arange is mlx_arange.
func Arange(start, stop, step float64, dt int, st Handle) Handle {
	return Handle(C.gf_arange(C.double(start), C.double(stop), C.double(step), C.int(dt), C.gf_h(st)))
}

// FromData is mlx_array_new_data.
func FromData(data unsafe.Pointer, shape Ints, dt int) Handle {
	return Handle(C.gf_from_data(data, cints(shape), C.int(dt)))
}

// Slice is mlx_slice with strides of 1.
func Slice(a Handle, start, stop Ints, st Handle) Handle {
	return Handle(C.gf_slice(C.gf_h(a), cints(start), cints(stop), C.gf_h(st)))
}

// SliceAxis is mlx_slice along one axis.
func SliceAxis(a Handle, axis, start, stop int, st Handle) Handle {
	return Handle(C.gf_slice_axis(C.gf_h(a), C.int(axis), C.int(start), C.int(stop), C.gf_h(st)))
}

// SliceDynamic is mlx_slice_dynamic.
func SliceDynamic(a, start Handle, axes, size Ints, st Handle) Handle {
	return Handle(C.gf_slice_dynamic(C.gf_h(a), C.gf_h(start), cints(axes), cints(size), C.gf_h(st)))
}

// SliceUpdate is mlx_slice_update with strides of 1.
func SliceUpdate(dst, src Handle, start, stop Ints, st Handle) Handle {
	return Handle(C.gf_slice_update(C.gf_h(dst), C.gf_h(src), cints(start), cints(stop), C.gf_h(st)))
}

// SliceUpdateDynamic is mlx_slice_update_dynamic.
func SliceUpdateDynamic(dst, src, start Handle, axes Ints, st Handle) Handle {
	return Handle(C.gf_slice_update_dynamic(C.gf_h(dst), C.gf_h(src), C.gf_h(start), cints(axes), C.gf_h(st)))
}

// AddMM is mlx_addmm.
func AddMM(c, a, b Handle, alpha, beta float32, st Handle) Handle {
	return Handle(C.gf_addmm(C.gf_h(c), C.gf_h(a), C.gf_h(b), C.float(alpha), C.float(beta), C.gf_h(st)))
}

// Conv1d is mlx_conv1d.
func Conv1d(x, w Handle, stride, padding, dilation, groups int, st Handle) Handle {
	return Handle(C.gf_conv1d(C.gf_h(x), C.gf_h(w), C.int(stride), C.int(padding), C.int(dilation), C.int(groups), C.gf_h(st)))
}

// RMSNorm is mlx_fast_rms_norm.
func RMSNorm(x, w Handle, eps float32, st Handle) Handle {
	return Handle(C.gf_rms_norm(C.gf_h(x), C.gf_h(w), C.float(eps), C.gf_h(st)))
}

// LayerNorm is mlx_fast_layer_norm.
func LayerNorm(x, w, b Handle, eps float32, st Handle) Handle {
	return Handle(C.gf_layer_norm(C.gf_h(x), C.gf_h(w), C.gf_h(b), C.float(eps), C.gf_h(st)))
}

// RoPE is mlx_fast_rope.
func RoPE(x Handle, dims int, traditional, hasBase bool, base, scale float32, offset int, freqs, st Handle) Handle {
	return Handle(C.gf_rope(C.gf_h(x), C.int(dims), cbool(traditional), cbool(hasBase), C.float(base), C.float(scale), C.int(offset), C.gf_h(freqs), C.gf_h(st)))
}

// RoPEDynamic is mlx_fast_rope_dynamic.
func RoPEDynamic(x Handle, dims int, traditional, hasBase bool, base, scale float32, offset, freqs, st Handle) Handle {
	return Handle(C.gf_rope_dynamic(C.gf_h(x), C.int(dims), cbool(traditional), cbool(hasBase), C.float(base), C.float(scale), C.gf_h(offset), C.gf_h(freqs), C.gf_h(st)))
}

// Attention is mlx_fast_scaled_dot_product_attention.
func Attention(q, k, v Handle, scale float32, causal bool, mask, sinks, st Handle) Handle {
	return Handle(C.gf_attention(C.gf_h(q), C.gf_h(k), C.gf_h(v), C.float(scale), cbool(causal), C.gf_h(mask), C.gf_h(sinks), C.gf_h(st)))
}

// Ref is mlx_array_set: a second handle.
func Ref(a Handle) Handle {
	return Handle(C.gf_ref(C.gf_h(a)))
}
