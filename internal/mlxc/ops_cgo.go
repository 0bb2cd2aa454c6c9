//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

package mlxc

/*
#include <stdlib.h>
#include "ops.h"

// No shim keeps a pointer or calls back into Go.
#cgo noescape gf_call
#cgo nocallback gf_call
#cgo noescape gf_call_many
#cgo nocallback gf_call_many
#cgo noescape gf_einsum
#cgo nocallback gf_einsum
#cgo noescape gf_kind
#cgo nocallback gf_kind
*/
import "C"

import "unsafe"

// The two declarations of the same struct must stay equal.
var (
	_ [unsafe.Sizeof(C.gf_args{}) - unsafe.Sizeof(Args{})]byte
	_ [unsafe.Sizeof(Args{}) - unsafe.Sizeof(C.gf_args{})]byte
	_ [unsafe.Offsetof(Args{}.N) - unsafe.Offsetof(C.gf_args{}.n)]byte
	_ [unsafe.Offsetof(Args{}.L) - unsafe.Offsetof(C.gf_args{}.l)]byte
	_ [unsafe.Offsetof(Args{}.U) - unsafe.Offsetof(C.gf_args{}.u)]byte
)

// Kind is the number of a signature class for Call and CallMany, 0 for a class
// that they do not know.
func Kind(class string) int {
	c := C.CString(class)
	defer C.free(unsafe.Pointer(c))
	return int(C.gf_kind(c))
}

// Call calls a function of one result.
func Call(fn Handle, kind int, a *Args, st Handle) Handle {
	return Handle(C.gf_call(C.gf_h(fn), C.int(kind), (*C.gf_args)(unsafe.Pointer(a)), C.gf_h(st)))
}

// CallMany calls a function of several results; it fills out and returns their
// number, or a status below 0. in are the arrays of a vector parameter.
func CallMany(fn Handle, kind int, a *Args, in, out []Handle, st Handle) int {
	return int(C.gf_call_many(C.gf_h(fn), C.int(kind), (*C.gf_args)(unsafe.Pointer(a)), first(in), C.size_t(len(in)),
		first(out), C.size_t(len(out)), C.gf_h(st)))
}

// Einsum is mlx_einsum.
func Einsum(fn Handle, subscripts string, in []Handle, st Handle) Handle {
	c := C.CString(subscripts)
	defer C.free(unsafe.Pointer(c))
	return Handle(C.gf_einsum(C.gf_h(fn), c, first(in), C.size_t(len(in)), C.gf_h(st)))
}
