// Small C functions that Go calls; cgo cannot call function pointers.
//
// Handles travel as integers, so that cgo has no pointer to check. A shim returns the new handle,
// 0 when MLX reported an error (gf_error then has the text, on the same thread), or GF_OFF_WORKER
// when the calling thread does not own MLX.
#ifndef GODFLASH_SHIM_H
#define GODFLASH_SHIM_H

#include <stddef.h>
#include <stdint.h>

typedef uintptr_t gf_h;
#define GF_OFF_WORKER ((gf_h)1)

typedef struct { int n; int v[8]; } gf_ints;

// Process-wide: 0 loaded, 1 dlopen failed, 2 symbol missing; msg tells which.
int gf_load(const char *path, char *msg, size_t cap);
const char *gf_signature(const char *name, gf_h *fn);
const char *gf_error(void);

// The worker mark of the calling thread.
void gf_set_worker(int on);
int gf_on_worker(void);

int gf_version(char *out, size_t cap);
int gf_has_gpu(void);
int gf_is_cuda(void);
int gf_disable_compile(void);
gf_h gf_stream(int gpu);
int gf_stream_free(gf_h st);  // waits for the stream, then frees the handle

// what: 0 active, 1 peak, 2 cache, 3 reset peak, 4 clear cache, 5 set cache limit,
// 6 set memory limit, 7 set wired limit, 8 memory limit.
int gf_memory(int what, size_t arg, size_t *out);

gf_h gf_unary(gf_h fn, gf_h a, gf_h st);
gf_h gf_binary(gf_h fn, gf_h a, gf_h b, gf_h st);
gf_h gf_ternary(gf_h fn, gf_h a, gf_h b, gf_h c, gf_h st);
gf_h gf_int(gf_h fn, gf_h a, int i, gf_h st);
gf_h gf_int2(gf_h fn, gf_h a, int i, int j, gf_h st);
gf_h gf_bool(gf_h fn, gf_h a, int b, gf_h st);
gf_h gf_int_bool(gf_h fn, gf_h a, int i, int b, gf_h st);
gf_h gf_ints_op(gf_h fn, gf_h a, gf_ints v, gf_h st);
gf_h gf_ints_bool(gf_h fn, gf_h a, gf_ints v, int b, gf_h st);
gf_h gf_dtype(gf_h fn, gf_h a, int dt, gf_h st);
gf_h gf_binary_int(gf_h fn, gf_h a, gf_h b, int i, gf_h st);
gf_h gf_binary_bool(gf_h fn, gf_h a, gf_h b, int i, gf_h st);
gf_h gf_fill(gf_h fn, gf_ints shape, int dt, gf_h st);
gf_h gf_vector_int(gf_h fn, const gf_h *in, size_t n, int i, gf_h st);

gf_h gf_full(gf_ints shape, gf_h val, int dt, gf_h st);
gf_h gf_arange(double start, double stop, double step, int dt, gf_h st);
gf_h gf_from_data(const void *data, gf_ints shape, int dt);
gf_h gf_slice(gf_h a, gf_ints start, gf_ints stop, gf_h st);
gf_h gf_slice_axis(gf_h a, int axis, int start, int stop, gf_h st);
gf_h gf_slice_dynamic(gf_h a, gf_h start, gf_ints axes, gf_ints size, gf_h st);
gf_h gf_slice_update(gf_h dst, gf_h src, gf_ints start, gf_ints stop, gf_h st);
gf_h gf_slice_update_dynamic(gf_h dst, gf_h src, gf_h start, gf_ints axes, gf_h st);
gf_h gf_addmm(gf_h c, gf_h a, gf_h b, float alpha, float beta, gf_h st);
gf_h gf_conv1d(gf_h x, gf_h w, int stride, int padding, int dilation, int groups, gf_h st);
gf_h gf_rms_norm(gf_h x, gf_h w, float eps, gf_h st);
gf_h gf_layer_norm(gf_h x, gf_h w, gf_h b, float eps, gf_h st);
gf_h gf_rope(gf_h x, int dims, int traditional, int has_base, float base, float scale, int offset, gf_h freqs, gf_h st);
gf_h gf_rope_dynamic(gf_h x, int dims, int traditional, int has_base, float base, float scale, gf_h offset, gf_h freqs, gf_h st);
gf_h gf_attention(gf_h q, gf_h k, gf_h v, float scale, int causal, gf_h mask, gf_h sinks, gf_h st);

// Several results: the return value is their number, written to out; -1 error, -2 off the worker.
long gf_split(gf_h a, int n, int axis, gf_h *out, size_t cap, gf_h st);
long gf_split_at(gf_h a, const int *at, size_t n, int axis, gf_h *out, size_t cap, gf_h st);

// 0 done, -1 error, -2 off the worker.
int gf_eval(const gf_h *in, size_t n, int async);
int gf_free(const gf_h *in, size_t n);
gf_h gf_ref(gf_h a);

typedef struct { size_t ndim, size, nbytes; const int *shape; int dtype; int status; } gf_info_t;
gf_info_t gf_info(gf_h a);

// Evaluates a and gives the address of its row-contiguous values. When a copy was needed, *copy is
// its handle, which the caller frees after reading; else 0. NULL on error; *status as gf_eval.
const void *gf_read(gf_h a, gf_h st, gf_h *copy, int *status);
// A malloc'ed text that the caller frees.
char *gf_tostring(gf_h a, int *status);

typedef struct gf_loader gf_loader;
gf_loader *gf_loader_open(const char *path, gf_h st, int *status);
// 1 an entry, 0 the end, -1 error. *key is valid until the next call.
int gf_loader_next(gf_loader *l, const char **key, gf_h *out);
void gf_loader_close(gf_loader *l);

#endif
