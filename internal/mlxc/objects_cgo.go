//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

package mlxc

/*
#include <stdlib.h>
#include "objects.h"
*/
import "C"

import (
	"runtime/cgo"
	"strings"
	"unsafe"
)

//export gfCallback
func gfCallback(id C.uintptr_t, a, b, c C.gf_list, argnums *C.int, nargs C.size_t) (out C.gf_list) {
	in := [3][]Handle{borrow(a), borrow(b), borrow(c)}
	list, ok := cgo.Handle(id).Value().(Callback)(in, append([]int32(nil), unsafe.Slice((*int32)(unsafe.Pointer(argnums)), int(nargs))...))
	if !ok {
		out.status = -1
		return out
	}
	out.n = C.size_t(len(list))
	out.v = (*C.gf_h)(C.calloc(C.size_t(len(list)+1), C.size_t(unsafe.Sizeof(Handle(0)))))
	copy(unsafe.Slice((*Handle)(unsafe.Pointer(out.v)), len(list)), list)
	return out
}

// borrow copies a list that stays C's.
func borrow(l C.gf_list) []Handle {
	if l.n == 0 {
		return nil
	}
	return append([]Handle(nil), unsafe.Slice((*Handle)(unsafe.Pointer(l.v)), int(l.n))...)
}

// take copies a list that was malloc'ed for Go.
func take(l C.gf_list) ([]Handle, int) {
	list := borrow(l)
	C.free(unsafe.Pointer(l.v))
	return list, int(l.status)
}

func takeBoth(l C.gf_lists) (a, b []Handle, status int) {
	a, sa := take(l.a)
	b, sb := take(l.b)
	return a, b, min(sa, sb)
}

// NewPayload makes the number under which C keeps v.
func NewPayload(v any) Payload { return Payload(cgo.NewHandle(v)) }

// Dropped gives the value of a payload that MLX no longer holds, and forgets it; false when there is none.
func Dropped() (any, bool) {
	id := C.gf_dropped()
	if id == 0 {
		return nil, false
	}
	v := cgo.Handle(id).Value()
	cgo.Handle(id).Delete()
	return v, true
}

// Closure makes a function of arrays that calls the Callback of the payload.
func Closure(p Payload) Handle { return Handle(C.gf_closure(C.uintptr_t(p))) }

// FreeClosure frees a function of arrays.
func FreeClosure(c Handle) { C.gf_closure_free(C.gf_h(c)) }

// Checkpoint is mlx_checkpoint.
func Checkpoint(c Handle) Handle { return Handle(C.gf_checkpoint(C.gf_h(c))) }

// Custom is mlx_custom_function; a payload of 0 is no rule.
func Custom(c Handle, vjp, jvp Payload) Handle {
	return Handle(C.gf_custom(C.gf_h(c), C.uintptr_t(vjp), C.uintptr_t(jvp)))
}

// Compile is mlx_compile.
func Compile(c Handle, shapeless bool) Handle {
	return Handle(C.gf_compile(C.gf_h(c), cbool(shapeless)))
}

// CompileMode is mlx_set_compile_mode.
func CompileMode(mode int) bool { return C.gf_compile_mode(C.int(mode)) == 0 }

// Apply is mlx_closure_apply.
func Apply(c Handle, in []Handle) ([]Handle, int) {
	return take(C.gf_apply(C.gf_h(c), first(in), C.size_t(len(in))))
}

// VJP is mlx_vjp.
func VJP(c Handle, in, cotangents []Handle) (out, grads []Handle, status int) {
	return takeBoth(C.gf_vjp(C.gf_h(c), first(in), C.size_t(len(in)), first(cotangents), C.size_t(len(cotangents))))
}

// JVP is mlx_jvp.
func JVP(c Handle, in, tangents []Handle) (out, outTangents []Handle, status int) {
	return takeBoth(C.gf_jvp(C.gf_h(c), first(in), C.size_t(len(in)), first(tangents), C.size_t(len(tangents))))
}

// ValueAndGrad is mlx_value_and_grad with its call.
func ValueAndGrad(c Handle, argnums []int32, in []Handle) (values, grads []Handle, status int) {
	return takeBoth(C.gf_value_and_grad(C.gf_h(c), (*C.int)(unsafe.Pointer(unsafe.SliceData(argnums))), C.size_t(len(argnums)), first(in), C.size_t(len(in))))
}

// cnames is the form in which lists of names cross.
func cnames(list []string) *C.char { return C.CString(strings.Join(list, "\x00") + "\x00\x00") }

// Kernel is mlx_fast_cuda_kernel_new or mlx_fast_metal_kernel_new.
func Kernel(cuda bool, name string, inputs, outputs []string, source, header string, rowContiguous, atomicOutputs bool, sharedMemory int) Handle {
	var s [5]*C.char
	s[0], s[1], s[2], s[3], s[4] = C.CString(name), cnames(inputs), cnames(outputs), C.CString(source), C.CString(header)
	defer func() {
		for _, p := range s {
			C.free(unsafe.Pointer(p))
		}
	}()
	return Handle(C.gf_kernel(cbool(cuda), s[0], s[1], s[2], s[3], s[4], cbool(rowContiguous), cbool(atomicOutputs), C.int(sharedMemory)))
}

// FreeKernel frees a kernel.
func FreeKernel(cuda bool, k Handle) { C.gf_kernel_free(cbool(cuda), C.gf_h(k)) }

// KernelConfig makes the part of a launch that is no array.
func KernelConfig(cuda bool, grid, group Ints) Handle {
	return Handle(C.gf_config(cbool(cuda), cints(grid), cints(group)))
}

// ConfigOutput adds an output.
func ConfigOutput(cuda bool, c Handle, shape Ints, dt int) bool {
	return C.gf_config_output(cbool(cuda), C.gf_h(c), cints(shape), C.int(dt)) == 0
}

// ConfigInit sets the value that outputs hold before.
func ConfigInit(cuda bool, c Handle, v float32) bool {
	return C.gf_config_init(cbool(cuda), C.gf_h(c), C.float(v)) == 0
}

// ConfigArg adds a template argument of one of the kinds Arg….
func ConfigArg(cuda bool, c Handle, name string, kind, v int) bool {
	n := C.CString(name)
	defer C.free(unsafe.Pointer(n))
	return C.gf_config_arg(cbool(cuda), C.gf_h(c), n, C.int(kind), C.int(v)) == 0
}

// FreeConfig frees a configuration.
func FreeConfig(cuda bool, c Handle) { C.gf_config_free(cbool(cuda), C.gf_h(c)) }

// KernelApply is mlx_fast_cuda_kernel_apply or mlx_fast_metal_kernel_apply.
func KernelApply(cuda bool, k Handle, in []Handle, config, st Handle) ([]Handle, int) {
	return take(C.gf_kernel_apply(cbool(cuda), C.gf_h(k), first(in), C.size_t(len(in)), C.gf_h(config), C.gf_h(st)))
}

// FromShared is mlx_array_new_data_managed_payload; data must be pinned until p is dropped.
func FromShared(data unsafe.Pointer, shape Ints, dt int, p Payload) Handle {
	return Handle(C.gf_from_shared(data, cints(shape), C.int(dt), C.uintptr_t(p)))
}

// View evaluates a and gives the address of its values, nil with OK where they are not row-contiguous.
func View(a Handle) (unsafe.Pointer, int) {
	var status C.int
	p := C.gf_view(C.gf_h(a), &status)
	return unsafe.Pointer(p), int(status)
}

// StreamOn is mlx_stream_new_device; index is the stream's number.
func StreamOn(gpu bool, device int) (st Handle, index int) {
	var i C.int
	h := C.gf_stream_on(cbool(gpu), C.int(device), &i)
	return Handle(h), int(i)
}

// Synchronize is mlx_synchronize.
func Synchronize(st Handle) int { return int(C.gf_synchronize(C.gf_h(st))) }

// DeviceCount is mlx_device_count.
func DeviceCount(gpu bool) (int, int) {
	var n C.int
	status := C.gf_device_count(cbool(gpu), &n)
	return int(n), int(status)
}

// DeviceInfo calls f for every property of a device.
func DeviceInfo(gpu bool, device int, f func(key, text string, size int, isText bool)) int {
	var info C.gf_h
	keys := C.gf_device_keys(cbool(gpu), C.int(device), &info)
	switch Handle(keys) {
	case 0:
		return Failed
	case OffWorker:
		return OffThread
	}
	defer C.gf_strings_free(keys)
	defer C.gf_device_info_free(info)
	for i := range C.gf_strings_len(keys) {
		key := C.gf_strings_get(keys, i)
		var text *C.char
		var size C.size_t
		switch C.gf_device_value(info, key, &text, &size) {
		case 1:
			f(C.GoString(key), C.GoString(text), 0, true)
		case 0:
			f(C.GoString(key), "", int(size), false)
		default:
			return Failed
		}
	}
	return OK
}

// LoadNPY is mlx_load.
func LoadNPY(path string, st Handle) Handle {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	return Handle(C.gf_load_npy(p, C.gf_h(st)))
}

// LoadNPYBytes is mlx_load_reader for a copy of data.
func LoadNPYBytes(data []byte, st Handle) Handle {
	return Handle(C.gf_load_npy_bytes(unsafe.Pointer(unsafe.SliceData(data)), C.size_t(len(data)), C.gf_h(st)))
}

// SaveNPY is mlx_save_writer.
func SaveNPY(a Handle) ([]byte, int) {
	var n C.size_t
	var status C.int
	p := C.gf_save_npy(C.gf_h(a), &n, &status)
	defer C.free(p)
	return append([]byte(nil), unsafe.Slice((*byte)(p), int(n))...), int(status)
}

// LoadSafetensorsBytes is mlx_load_safetensors_reader for a copy of data.
func LoadSafetensorsBytes(data []byte, st Handle, f func(name string, h Handle)) int {
	var status C.int
	l := C.gf_loader_bytes(unsafe.Pointer(unsafe.SliceData(data)), C.size_t(len(data)), C.gf_h(st), &status)
	if l == nil {
		return min(int(status), Failed)
	}
	return eachLoaded(l, f)
}

// GGUF is an mlx_io_gguf.
type GGUF Handle

// NewGGUF makes an empty one.
func NewGGUF() GGUF { return GGUF(C.gf_gguf_new()) }

// LoadGGUF is mlx_load_gguf.
func LoadGGUF(path string, st Handle) GGUF {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	return GGUF(C.gf_gguf_load(p, C.gf_h(st)))
}

// Free frees it.
func (g GGUF) Free() { C.gf_gguf_free(C.gf_h(g)) }

// Keys are the names of the arrays.
func (g GGUF) Keys() ([]string, bool) {
	v := C.gf_gguf_keys(C.gf_h(g))
	if Handle(v) <= OffWorker {
		return nil, false
	}
	return takeStrings(v), true
}

func takeStrings(v C.gf_h) []string {
	defer C.gf_strings_free(v)
	list := make([]string, int(C.gf_strings_len(v)))
	for i := range list {
		list[i] = C.GoString(C.gf_strings_get(v, C.size_t(i)))
	}
	return list
}

// Array is one of the arrays.
func (g GGUF) Array(key string) Handle {
	k := C.CString(key)
	defer C.free(unsafe.Pointer(k))
	return Handle(C.gf_gguf_array(C.gf_h(g), k))
}

// Metadata is a Handle of an array, a string, a []string, or nil; false on an error.
func (g GGUF) Metadata(key string) (any, bool) {
	k := C.CString(key)
	defer C.free(unsafe.Pointer(k))
	var a, list C.gf_h
	var text *C.char
	switch C.gf_gguf_metadata(C.gf_h(g), k, &a, &text, &list) {
	case 0:
		return nil, true
	case 1:
		return Handle(a), true
	case 2:
		defer C.free(unsafe.Pointer(text))
		return C.GoString(text), true
	case 3:
		return takeStrings(list), true
	default:
		return nil, false
	}
}

// SetArray adds an array.
func (g GGUF) SetArray(key string, a Handle) bool {
	k := C.CString(key)
	defer C.free(unsafe.Pointer(k))
	return C.gf_gguf_set_array(C.gf_h(g), k, C.gf_h(a)) == 0
}

// SetMetadata adds a Handle of an array, a string or a []string.
func (g GGUF) SetMetadata(key string, v any) bool {
	k := C.CString(key)
	defer C.free(unsafe.Pointer(k))
	switch v := v.(type) {
	case Handle:
		return C.gf_gguf_set_metadata(C.gf_h(g), k, C.gf_h(v), nil, 0) == 0
	case string:
		text := C.CString(v)
		defer C.free(unsafe.Pointer(text))
		return C.gf_gguf_set_metadata(C.gf_h(g), k, 0, text, 0) == 0
	case []string:
		list := C.gf_strings()
		defer C.gf_strings_free(list)
		for _, s := range v {
			text := C.CString(s)
			C.gf_strings_add(list, text)
			C.free(unsafe.Pointer(text))
		}
		return C.gf_gguf_set_metadata(C.gf_h(g), k, 0, nil, list) == 0
	}
	return false
}

// Save is mlx_save_gguf.
func (g GGUF) Save(path string) int {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	return int(C.gf_gguf_save(p, C.gf_h(g)))
}

// Group is mlx_distributed_init.
func Group(strict bool, backend string) Handle {
	b := C.CString(backend)
	defer C.free(unsafe.Pointer(b))
	return Handle(C.gf_group(cbool(strict), b))
}

// GroupAvailable is mlx_distributed_is_available.
func GroupAvailable(backend string) bool {
	b := C.CString(backend)
	defer C.free(unsafe.Pointer(b))
	return C.gf_group_available(b) != 0
}

// FreeGroup frees a group.
func FreeGroup(g Handle) { C.gf_group_free(C.gf_h(g)) }

// GroupRank is mlx_distributed_group_rank.
func GroupRank(g Handle) int { return int(C.gf_group_rank(C.gf_h(g))) }

// GroupSize is mlx_distributed_group_size.
func GroupSize(g Handle) int { return int(C.gf_group_size(C.gf_h(g))) }

// GroupSplit is mlx_distributed_group_split.
func GroupSplit(g Handle, color, key int) Handle {
	return Handle(C.gf_group_split(C.gf_h(g), C.int(color), C.int(key)))
}

// CallGroup calls a function of the class OfGroup.
func CallGroup(fn, a, g, st Handle) Handle {
	return Handle(C.gf_group_op(C.gf_h(fn), C.gf_h(a), C.gf_h(g), C.gf_h(st)))
}

// CallIntGroup calls a function of the class IntOfGroup.
func CallIntGroup(fn, a Handle, i int, g, st Handle) Handle {
	return Handle(C.gf_group_int(C.gf_h(fn), C.gf_h(a), C.int(i), C.gf_h(g), C.gf_h(st)))
}

// Recv is mlx_distributed_recv.
func Recv(shape Ints, dt, src int, g, st Handle) Handle {
	return Handle(C.gf_recv(cints(shape), C.int(dt), C.int(src), C.gf_h(g), C.gf_h(st)))
}
