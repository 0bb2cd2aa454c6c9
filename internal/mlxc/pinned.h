// Memory of the host that kernels on an NVIDIA GPU can write into.
#ifndef GODFLASH_PINNED_H
#define GODFLASH_PINNED_H

#include "shim.h"

// The address of bytes of zeros, and in *device what a kernel knows it by; 0 where MLX has not loaded
// the CUDA driver, or that refuses. The calling thread must own MLX, whose context is then current.
uintptr_t gf_pinned(size_t bytes, uintptr_t *device);
void gf_pinned_free(uintptr_t host);
// Copies n ints that a kernel wrote; the caller has waited for the kernel.
void gf_pinned_read(uintptr_t host, size_t n, int32_t *out);

// An attribute of the current CUDA device (CUdevice_attribute), 0 where there is none.
int gf_device_attribute(int attribute);

#endif
