// Shims for what is no operation: functions of arrays, kernels, streams, devices, files, groups.
// Conventions as in shim.h.
#ifndef GODFLASH_OBJECTS_H
#define GODFLASH_OBJECTS_H

#include "shim.h"

// A list of handles that the receiver owns; v is malloc'ed. status as gf_eval's result.
typedef struct { gf_h *v; size_t n; int status; } gf_list;
typedef struct { gf_list a, b; } gf_lists;

// Payloads: a number that stands for a Go value. MLX may drop the last user of one on any thread and
// inside any call, so dropped ones wait in a list, from which gf_dropped takes one (0: none).
uintptr_t gf_dropped(void);

// Functions of arrays that call the Go function behind id. A result of 0 means that MLX reported an
// error; the payload then was dropped or is about to be.
gf_h gf_closure(uintptr_t id);
void gf_closure_free(gf_h c);
gf_h gf_checkpoint(gf_h c);
gf_h gf_custom(gf_h c, uintptr_t vjp, uintptr_t jvp);  // 0: no rule
gf_h gf_compile(gf_h c, int shapeless);
int gf_compile_mode(int mode);
gf_list gf_apply(gf_h c, const gf_h *in, size_t n);
gf_lists gf_vjp(gf_h c, const gf_h *in, size_t n, const gf_h *cot, size_t m);
gf_lists gf_jvp(gf_h c, const gf_h *in, size_t n, const gf_h *tan, size_t m);
gf_lists gf_value_and_grad(gf_h c, const int *argnums, size_t nargs, const gf_h *in, size_t n);

// Kernels, cuda or metal. Names are separated by zero bytes, the list ends with an empty one.
gf_h gf_kernel(int cuda, const char *name, const char *inputs, const char *outputs, const char *source,
               const char *header, int row, int atomic_outputs, int shared_memory);
void gf_kernel_free(int cuda, gf_h k);
gf_h gf_config(int cuda, gf_ints grid, gf_ints group);
int gf_config_output(int cuda, gf_h c, gf_ints shape, int dt);
int gf_config_init(int cuda, gf_h c, float v);
int gf_config_arg(int cuda, gf_h c, const char *name, int kind, int v);  // kind: 0 int, 1 bool, 2 dtype
void gf_config_free(int cuda, gf_h c);
gf_list gf_kernel_apply(int cuda, gf_h k, const gf_h *in, size_t n, gf_h config, gf_h st);

// Memory that Go pinned; the payload is dropped when MLX is done with it.
gf_h gf_from_shared(void *data, gf_ints shape, int dt, uintptr_t id);
// The values of an evaluated, row-contiguous array; NULL with *status 0: not row-contiguous.
const void *gf_view(gf_h a, int *status);

gf_h gf_stream_on(int gpu, int device, int *index);
int gf_synchronize(gf_h st);
int gf_device_count(int gpu, int *count);
gf_h gf_device_keys(int gpu, int device, gf_h *info);  // a vector of strings
void gf_device_info_free(gf_h info);
// 1 a text in *text, 0 a number in *size, -1 error.
int gf_device_value(gf_h info, const char *key, const char **text, size_t *size);

gf_h gf_strings(void);
int gf_strings_add(gf_h v, const char *s);
size_t gf_strings_len(gf_h v);
const char *gf_strings_get(gf_h v, size_t i);
void gf_strings_free(gf_h v);

gf_h gf_load_npy(const char *path, gf_h st);
// data is copied.
gf_h gf_load_npy_bytes(const void *data, size_t n, gf_h st);
gf_loader *gf_loader_new(void *arrays, int *status);
gf_loader *gf_loader_bytes(const void *data, size_t n, gf_h st, int *status);
// malloc'ed bytes of a file
void *gf_save_npy(gf_h a, size_t *n, int *status);

gf_h gf_gguf_new(void);
gf_h gf_gguf_load(const char *path, gf_h st);
void gf_gguf_free(gf_h g);
gf_h gf_gguf_keys(gf_h g);
gf_h gf_gguf_array(gf_h g, const char *key);
// 0 none, 1 an array in *a, 2 a malloc'ed text in *text, 3 a vector of strings in *list, -1 error
int gf_gguf_metadata(gf_h g, const char *key, gf_h *a, char **text, gf_h *list);
int gf_gguf_set_array(gf_h g, const char *key, gf_h a);
int gf_gguf_set_metadata(gf_h g, const char *key, gf_h a, const char *text, gf_h list);
int gf_gguf_save(const char *path, gf_h g);

gf_h gf_group(int strict, const char *backend);
void gf_group_free(gf_h g);
int gf_group_rank(gf_h g);
int gf_group_size(gf_h g);
gf_h gf_group_split(gf_h g, int color, int key);
int gf_group_available(const char *backend);
gf_h gf_group_op(gf_h fn, gf_h a, gf_h g, gf_h st);
gf_h gf_group_int(gf_h fn, gf_h a, int i, gf_h g, gf_h st);
gf_h gf_recv(gf_ints shape, int dt, int src, gf_h g, gf_h st);

#endif
