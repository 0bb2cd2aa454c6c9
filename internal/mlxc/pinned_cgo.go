//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

package mlxc

// #include "pinned.h"
import "C"

// Pinned gives bytes of the host's memory that kernels on an NVIDIA GPU can write
// into, and the address by which they know it; 0 where there is none.
func Pinned(bytes int) (host, device uintptr) {
	var d C.uintptr_t
	h := C.gf_pinned(C.size_t(bytes), &d)
	return uintptr(h), uintptr(d)
}

// FreePinned gives it back; no kernel may be about to write.
func FreePinned(host uintptr) { C.gf_pinned_free(C.uintptr_t(host)) }

// ReadPinned copies what a kernel that has ended wrote at host.
func ReadPinned(host uintptr, out []int32) {
	if len(out) > 0 {
		C.gf_pinned_read(C.uintptr_t(host), C.size_t(len(out)), (*C.int32_t)(&out[0]))
	}
}

// DeviceAttribute is an attribute of the worker's CUDA device, 0 where there is none.
func DeviceAttribute(a int) int { return int(C.gf_device_attribute(C.int(a))) }
