//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

#include "record.h"
#include "table.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFINE(result, name, params) result(*p_##name) params;
MLXC_FUNCTIONS(DEFINE)

typedef void (*anyfn)(void);
static const struct entry { const char *name, *sig; anyfn *slot; } entries[] = {
#define ENTRY(result, name, params) {#name, #params, (anyfn *)&p_##name},
    MLXC_FUNCTIONS(ENTRY)
};
#define NENTRIES (sizeof entries / sizeof entries[0])

static _Thread_local int tls_worker;
static _Thread_local char tls_error[4096];

// The default handler ends the process.
static void on_error(const char *msg, void *data) {
  (void)data;
  snprintf(tls_error, sizeof tls_error, "%s", msg ? msg : "");
}

int gf_load(const char *path, char *msg, size_t cap) {
  void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!lib) {
    const char *e = dlerror();
    snprintf(msg, cap, "%s", e ? e : "dlopen failed");
    return 1;
  }
  for (size_t i = 0; i < NENTRIES; i++) {
    void *sym = dlsym(lib, entries[i].name);
    if (!sym) {
      snprintf(msg, cap, "%s", entries[i].name);
      dlclose(lib);
      return 2;
    }
    memcpy((void *)entries[i].slot, &sym, sizeof sym);
  }
  p_mlx_set_error_handler(on_error, NULL, NULL);
  gf_record_load(lib);
  return 0;
}

const char *gf_signature(const char *name, gf_h *fn) {
  for (size_t i = 0; i < NENTRIES; i++) {
    if (strcmp(entries[i].name, name) == 0) {
      memcpy(fn, (const void *)entries[i].slot, sizeof *fn);
      return entries[i].sig;
    }
  }
  return NULL;
}

const char *gf_error(void) { return tls_error; }
void gf_set_worker(int on) { tls_worker = on; }
int gf_on_worker(void) { return tls_worker; }

static inline mlx_array A(gf_h h) { return (mlx_array){(void *)h}; }
static inline mlx_stream S(gf_h h) { return (mlx_stream){(void *)h}; }

static gf_h done(int rc, mlx_array r) {
  if (rc != 0) {
    if (r.ctx) p_mlx_array_free(r);
    return 0;
  }
  if (!r.ctx) snprintf(tls_error, sizeof tls_error, "no result");
  return (gf_h)r.ctx;
}

#define ENTER(off) \
  if (!tls_worker) return off; \
  tls_error[0] = 0
// RESULT(call) runs a call that writes its array to &r.
#define RESULT(call) \
  do { \
    ENTER(GF_OFF_WORKER); \
    mlx_array r = {NULL}; \
    int rc = (call); \
    return done(rc, r); \
  } while (0)
#define CLASS(fn, params) ((int(*) params)(fn))

int gf_version(char *out, size_t cap) {
  ENTER(-2);
  mlx_string s = p_mlx_string_new();
  int rc = p_mlx_version(&s);
  if (rc == 0) snprintf(out, cap, "%s", p_mlx_string_data(s));
  p_mlx_string_free(s);
  return rc ? -1 : 0;
}

int gf_has_gpu(void) {
  ENTER(0);
  mlx_device d = p_mlx_device_new_type(MLX_GPU, 0);
  bool ok = false;
  int rc = d.ctx ? p_mlx_device_is_available(&ok, d) : 1;
  if (d.ctx) p_mlx_device_free(d);
  return rc == 0 && ok;
}

int gf_is_cuda(void) {
  ENTER(0);
  bool ok = false;
  return p_mlx_cuda_is_available(&ok) == 0 && ok;
}

int gf_disable_compile(void) {
  ENTER(-2);
  return p_mlx_disable_compile() ? -1 : 0;
}

gf_h gf_stream(int gpu) {
  ENTER(GF_OFF_WORKER);
  return (gf_h)(gpu ? p_mlx_default_gpu_stream_new() : p_mlx_default_cpu_stream_new()).ctx;
}

int gf_stream_free(gf_h st) {
  ENTER(-2);
  int rc = p_mlx_synchronize(S(st));
  return (p_mlx_stream_free(S(st)) | rc) ? -1 : 0;
}

int gf_memory(int what, size_t arg, size_t *out) {
  ENTER(-2);
  int rc = 1;
  switch (what) {
    case 0: rc = p_mlx_get_active_memory(out); break;
    case 1: rc = p_mlx_get_peak_memory(out); break;
    case 2: rc = p_mlx_get_cache_memory(out); break;
    case 3: rc = p_mlx_reset_peak_memory(); break;
    case 4: rc = p_mlx_clear_cache(); break;
    case 5: rc = p_mlx_set_cache_limit(out, arg); break;
    case 6: rc = p_mlx_set_memory_limit(out, arg); break;
    case 7: rc = p_mlx_set_wired_limit(out, arg); break;
    case 8: rc = p_mlx_get_memory_limit(out); break;
  }
  return rc ? -1 : 0;
}

gf_h gf_unary(gf_h fn, gf_h a, gf_h st) { RESULT(CLASS(fn, MLXC_UNARY)(&r, A(a), S(st))); }
gf_h gf_binary(gf_h fn, gf_h a, gf_h b, gf_h st) { RESULT(CLASS(fn, MLXC_BINARY)(&r, A(a), A(b), S(st))); }
gf_h gf_ternary(gf_h fn, gf_h a, gf_h b, gf_h c, gf_h st) {
  RESULT(CLASS(fn, MLXC_TERNARY)(&r, A(a), A(b), A(c), S(st)));
}

// Sorting and running sums divide by the size on the CPU, which ends the process when it is 0.
static int empty(gf_h a) {
  if (p_mlx_array_size(A(a)) != 0) return 0;
  snprintf(tls_error, sizeof tls_error, "the array is empty");
  return 1;
}

gf_h gf_int(gf_h fn, gf_h a, int i, gf_h st) {
  RESULT(empty(a) ? 1 : CLASS(fn, MLXC_INT)(&r, A(a), i, S(st)));
}
gf_h gf_int2(gf_h fn, gf_h a, int i, int j, gf_h st) { RESULT(CLASS(fn, MLXC_INT2)(&r, A(a), i, j, S(st))); }
gf_h gf_bool(gf_h fn, gf_h a, int b, gf_h st) { RESULT(CLASS(fn, MLXC_BOOL)(&r, A(a), b != 0, S(st))); }
gf_h gf_int_bool(gf_h fn, gf_h a, int i, int b, gf_h st) {
  RESULT(CLASS(fn, MLXC_INT_BOOL)(&r, A(a), i, b != 0, S(st)));
}
gf_h gf_ints_op(gf_h fn, gf_h a, gf_ints v, gf_h st) {
  RESULT(CLASS(fn, MLXC_INTS)(&r, A(a), v.v, (size_t)v.n, S(st)));
}
gf_h gf_ints_bool(gf_h fn, gf_h a, gf_ints v, int b, gf_h st) {
  RESULT(CLASS(fn, MLXC_INTS_BOOL)(&r, A(a), v.v, (size_t)v.n, b != 0, S(st)));
}
gf_h gf_dtype(gf_h fn, gf_h a, int dt, gf_h st) { RESULT(CLASS(fn, MLXC_DTYPE)(&r, A(a), (mlx_dtype)dt, S(st))); }
gf_h gf_binary_int(gf_h fn, gf_h a, gf_h b, int i, gf_h st) {
  RESULT(CLASS(fn, MLXC_BINARY_INT)(&r, A(a), A(b), i, S(st)));
}
gf_h gf_binary_bool(gf_h fn, gf_h a, gf_h b, int i, gf_h st) {
  RESULT(CLASS(fn, MLXC_BINARY_BOOL)(&r, A(a), A(b), i != 0, S(st)));
}
gf_h gf_fill(gf_h fn, gf_ints shape, int dt, gf_h st) {
  RESULT(CLASS(fn, MLXC_FILL)(&r, shape.v, (size_t)shape.n, (mlx_dtype)dt, S(st)));
}

static mlx_vector_array vector(const gf_h *in, size_t n) {
  // mlx_array is a struct of one pointer: the same bytes as a handle.
  return p_mlx_vector_array_new_data((const mlx_array *)in, n);
}

gf_h gf_vector_int(gf_h fn, const gf_h *in, size_t n, int i, gf_h st) {
  ENTER(GF_OFF_WORKER);
  mlx_vector_array v = vector(in, n);
  if (!v.ctx) return 0;
  mlx_array r = {NULL};
  int rc = CLASS(fn, MLXC_VECTOR_INT)(&r, v, i, S(st));
  p_mlx_vector_array_free(v);
  return done(rc, r);
}

gf_h gf_full(gf_ints shape, gf_h val, int dt, gf_h st) {
  RESULT(p_mlx_full(&r, shape.v, (size_t)shape.n, A(val), (mlx_dtype)dt, S(st)));
}
gf_h gf_arange(double start, double stop, double step, int dt, gf_h st) {
  RESULT(p_mlx_arange(&r, start, stop, step, (mlx_dtype)dt, S(st)));
}
gf_h gf_from_data(const void *data, gf_ints shape, int dt) {
  ENTER(GF_OFF_WORKER);
  static const uint64_t none[2];
  return (gf_h)p_mlx_array_new_data(data ? data : none, shape.v, shape.n, (mlx_dtype)dt).ctx;
}

static const int ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};

gf_h gf_slice(gf_h a, gf_ints start, gf_ints stop, gf_h st) {
  RESULT(p_mlx_slice(&r, A(a), start.v, (size_t)start.n, stop.v, (size_t)stop.n, ones, (size_t)start.n, S(st)));
}

gf_h gf_slice_axis(gf_h a, int axis, int start, int stop, gf_h st) {
  ENTER(GF_OFF_WORKER);
  int n = (int)p_mlx_array_ndim(A(a));
  if (n > 8) {
    snprintf(tls_error, sizeof tls_error, "arrays of more than 8 dimensions are not supported here");
    return 0;
  }
  if (axis < -n || axis >= n) {
    snprintf(tls_error, sizeof tls_error, "axis %d is out of bounds for an array with %d dimensions", axis, n);
    return 0;
  }
  if (axis < 0) axis += n;
  const int *shape = p_mlx_array_shape(A(a));
  int lo[8] = {0}, hi[8] = {0};
  for (int i = 0; i < n; i++) hi[i] = shape[i];
  lo[axis] = start;
  hi[axis] = stop;
  mlx_array r = {NULL};
  int rc = p_mlx_slice(&r, A(a), lo, (size_t)n, hi, (size_t)n, ones, (size_t)n, S(st));
  return done(rc, r);
}

gf_h gf_slice_dynamic(gf_h a, gf_h start, gf_ints axes, gf_ints size, gf_h st) {
  RESULT(p_mlx_slice_dynamic(&r, A(a), A(start), axes.v, (size_t)axes.n, size.v, (size_t)size.n, S(st)));
}
gf_h gf_slice_update(gf_h dst, gf_h src, gf_ints start, gf_ints stop, gf_h st) {
  RESULT(p_mlx_slice_update(&r, A(dst), A(src), start.v, (size_t)start.n, stop.v, (size_t)stop.n, ones,
                            (size_t)start.n, S(st)));
}
gf_h gf_slice_update_dynamic(gf_h dst, gf_h src, gf_h start, gf_ints axes, gf_h st) {
  RESULT(p_mlx_slice_update_dynamic(&r, A(dst), A(src), A(start), axes.v, (size_t)axes.n, S(st)));
}
gf_h gf_addmm(gf_h c, gf_h a, gf_h b, float alpha, float beta, gf_h st) {
  RESULT(p_mlx_addmm(&r, A(c), A(a), A(b), alpha, beta, S(st)));
}
gf_h gf_conv1d(gf_h x, gf_h w, int stride, int padding, int dilation, int groups, gf_h st) {
  // A kernel of length 0 reaches BLAS as an illegal size, and BLAS ends the process.
  RESULT(empty(w) ? 1 : p_mlx_conv1d(&r, A(x), A(w), stride, padding, dilation, groups, S(st)));
}
gf_h gf_rms_norm(gf_h x, gf_h w, float eps, gf_h st) { RESULT(p_mlx_fast_rms_norm(&r, A(x), A(w), eps, S(st))); }
gf_h gf_layer_norm(gf_h x, gf_h w, gf_h b, float eps, gf_h st) {
  RESULT(p_mlx_fast_layer_norm(&r, A(x), A(w), A(b), eps, S(st)));
}
gf_h gf_rope(gf_h x, int dims, int traditional, int has_base, float base, float scale, int offset, gf_h freqs, gf_h st) {
  mlx_optional_float b = {base, has_base != 0};
  RESULT(p_mlx_fast_rope(&r, A(x), dims, traditional != 0, b, scale, offset, A(freqs), S(st)));
}
gf_h gf_rope_dynamic(gf_h x, int dims, int traditional, int has_base, float base, float scale, gf_h offset, gf_h freqs, gf_h st) {
  mlx_optional_float b = {base, has_base != 0};
  RESULT(p_mlx_fast_rope_dynamic(&r, A(x), dims, traditional != 0, b, scale, A(offset), A(freqs), S(st)));
}
gf_h gf_attention(gf_h q, gf_h k, gf_h v, float scale, int causal, gf_h mask, gf_h sinks, gf_h st) {
  const char *mode = causal ? "causal" : mask ? "array" : "";
  RESULT(p_mlx_fast_scaled_dot_product_attention(&r, A(q), A(k), A(v), scale, mode, A(mask), A(sinks), false, S(st)));
}

static long spread(int rc, mlx_vector_array v, gf_h *out, size_t cap) {
  long n = -1;
  if (rc == 0) {
    size_t size = p_mlx_vector_array_size(v);
    if (size > cap) {
      snprintf(tls_error, sizeof tls_error, "%zu results, room for %zu", size, cap);
    } else {
      n = (long)size;
      for (size_t i = 0; i < size; i++) {
        mlx_array r = {NULL};
        if (p_mlx_vector_array_get(&r, v, i) != 0) {
          while (i > 0) p_mlx_array_free(A(out[--i]));
          n = -1;
          break;
        }
        out[i] = (gf_h)r.ctx;
      }
    }
  }
  if (v.ctx) p_mlx_vector_array_free(v);
  return n;
}

long gf_split(gf_h a, int n, int axis, gf_h *out, size_t cap, gf_h st) {
  ENTER(-2);
  mlx_vector_array v = p_mlx_vector_array_new();
  int rc = p_mlx_split(&v, A(a), n, axis, S(st));
  return spread(rc, v, out, cap);
}

long gf_split_at(gf_h a, const int *at, size_t n, int axis, gf_h *out, size_t cap, gf_h st) {
  ENTER(-2);
  mlx_vector_array v = p_mlx_vector_array_new();
  int rc = p_mlx_split_sections(&v, A(a), at, n, axis, S(st));
  return spread(rc, v, out, cap);
}

int gf_eval(const gf_h *in, size_t n, int async) {
  ENTER(-2);
  mlx_vector_array v = vector(in, n);
  if (!v.ctx) return -1;
  int rc = async ? p_mlx_async_eval(v) : p_mlx_eval(v);
  p_mlx_vector_array_free(v);
  return rc ? -1 : 0;
}

int gf_free(const gf_h *in, size_t n) {
  ENTER(-2);
  int rc = 0;
  for (size_t i = 0; i < n; i++) rc |= p_mlx_array_free(A(in[i]));
  return rc ? -1 : 0;
}

gf_h gf_ref(gf_h a) { RESULT(p_mlx_array_set(&r, A(a))); }

gf_info_t gf_info(gf_h a) {
  gf_info_t i = {0};
  if (!tls_worker) {
    i.status = -2;
    return i;
  }
  i.ndim = p_mlx_array_ndim(A(a));
  i.size = p_mlx_array_size(A(a));
  i.nbytes = p_mlx_array_nbytes(A(a));
  i.shape = p_mlx_array_shape(A(a));
  i.dtype = (int)p_mlx_array_dtype(A(a));
  return i;
}

const void *gf_read(gf_h a, gf_h st, gf_h *copy, int *status) {
  *copy = 0;
  *status = -2;
  ENTER(NULL);
  *status = -1;
  if (p_mlx_array_eval(A(a)) != 0) return NULL;
  if (p_mlx_array_size(A(a)) == 0) {
    // On CUDA some empty arrays have no buffer, and asking for its address ends the process.
    static const uint64_t none[2];
    *status = 0;
    return none;
  }
  bool row = false;
  if (p__mlx_array_is_row_contiguous(&row, A(a)) != 0) return NULL;
  mlx_array src = A(a);
  if (!row) {
    mlx_array r = {NULL};
    if (p_mlx_contiguous(&r, A(a), false, S(st)) != 0) return NULL;
    if (p_mlx_array_eval(r) != 0) {
      p_mlx_array_free(r);
      return NULL;
    }
    *copy = (gf_h)r.ctx;
    src = r;
  }
  *status = 0;
  return p_mlx_array_data_uint8(src);
}

char *gf_tostring(gf_h a, int *status) {
  *status = -2;
  ENTER(NULL);
  *status = -1;
  mlx_string s = p_mlx_string_new();
  char *text = NULL;
  if (p_mlx_array_tostring(&s, A(a)) == 0) text = strdup(p_mlx_string_data(s));
  p_mlx_string_free(s);
  if (text) *status = 0;
  return text;
}

struct gf_loader {
  mlx_map_string_to_array arrays;
  mlx_map_string_to_array_iterator it;
};

gf_loader *gf_loader_open(const char *path, gf_h st, int *status) {
  *status = -2;
  ENTER(NULL);
  *status = -1;
  gf_loader *l = calloc(1, sizeof *l);
  if (!l) return NULL;
  l->arrays = p_mlx_map_string_to_array_new();
  mlx_map_string_to_string meta = p_mlx_map_string_to_string_new();
  int rc = p_mlx_load_safetensors(&l->arrays, &meta, path, S(st));
  p_mlx_map_string_to_string_free(meta);
  if (rc != 0) {
    p_mlx_map_string_to_array_free(l->arrays);
    free(l);
    return NULL;
  }
  l->it = p_mlx_map_string_to_array_iterator_new(l->arrays);
  *status = 0;
  return l;
}

// gf_loader_new takes arrays over.
gf_loader *gf_loader_new(void *arrays, int *status) {
  gf_loader *l = calloc(1, sizeof *l);
  if (!l) return NULL;
  l->arrays.ctx = arrays;
  l->it = p_mlx_map_string_to_array_iterator_new(l->arrays);
  *status = 0;
  return l;
}

int gf_loader_next(gf_loader *l, const char **key, gf_h *out) {
  ENTER(-1);
  mlx_array r = {NULL};
  int rc = p_mlx_map_string_to_array_iterator_next(key, &r, l->it);
  if (rc == 2) return 0;
  if (rc != 0) return -1;
  *out = (gf_h)r.ctx;
  return 1;
}

void gf_loader_close(gf_loader *l) {
  p_mlx_map_string_to_array_iterator_free(l->it);
  p_mlx_map_string_to_array_free(l->arrays);
  free(l);
}

// What ops.c needs of this file.
int gf_enter(void) {
  tls_error[0] = 0;
  return tls_worker;
}
void gf_say(const char *msg) { snprintf(tls_error, sizeof tls_error, "%s", msg); }
gf_h gf_done(int rc, mlx_array r) { return done(rc, r); }
mlx_vector_array gf_vector(const gf_h *in, size_t n) { return vector(in, n); }
mlx_vector_array gf_vector_empty(void) { return p_mlx_vector_array_new(); }
void gf_vector_free(mlx_vector_array v) {
  if (v.ctx) p_mlx_vector_array_free(v);
}
void gf_array_free(mlx_array a) {
  if (a.ctx) p_mlx_array_free(a);
}
long gf_spread(int rc, mlx_vector_array v, gf_h *out, size_t cap) { return spread(rc, v, out, cap); }
