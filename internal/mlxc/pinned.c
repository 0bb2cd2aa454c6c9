//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

#include "pinned.h"

#include <dlfcn.h>
#include <string.h>

typedef int alloc_fn(void **, size_t, unsigned);
typedef int address_fn(uintptr_t *, void *, unsigned);
typedef int free_fn(void *);
typedef int device_fn(int *);
typedef int attribute_fn(int *, int, int);

// For all contexts of the process, and mapped for the device.
enum { PORTABLE = 1, MAPPED = 2 };

// The driver is never loaded here: a process whose MLX has no CUDA has no use for it.
static void *driver(const char *name) {
#ifdef __linux__
  void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return lib ? dlsym(lib, name) : NULL;
#else
  (void)name;
  return NULL;
#endif
}

uintptr_t gf_pinned(size_t bytes, uintptr_t *device) {
  void *found[2] = {driver("cuMemHostAlloc"), driver("cuMemHostGetDevicePointer_v2")};
  alloc_fn *alloc;
  address_fn *address;
  memcpy(&alloc, &found[0], sizeof alloc);
  memcpy(&address, &found[1], sizeof address);
  void *host = NULL;
  if (!gf_on_worker() || !alloc || !address || alloc(&host, bytes, PORTABLE | MAPPED) != 0) return 0;
  if (address(device, host, 0) != 0) {
    gf_pinned_free((uintptr_t)host);
    return 0;
  }
  memset(host, 0, bytes);
  return (uintptr_t)host;
}

void gf_pinned_free(uintptr_t host) {
  void *found = driver("cuMemFreeHost");
  free_fn *release;
  memcpy(&release, &found, sizeof release);
  if (release) release((void *)host);
}

void gf_pinned_read(uintptr_t host, size_t n, int32_t *out) { memcpy(out, (const void *)host, n * sizeof *out); }

int gf_device_attribute(int attribute) {
  void *found[2] = {driver("cuCtxGetDevice"), driver("cuDeviceGetAttribute")};
  device_fn *current;
  attribute_fn *get;
  memcpy(&current, &found[0], sizeof current);
  memcpy(&get, &found[1], sizeof get);
  int device, value;
  if (!gf_on_worker() || !current || !get || current(&device) != 0 || get(&value, attribute, device) != 0) return 0;
  return value;
}
