//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

#include "objects.h"
#include "table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"

int gf_enter(void);  // in mlxc.c: whether this thread owns MLX; clears its error

static inline mlx_array A(gf_h h) { return (mlx_array){(void *)h}; }
static inline mlx_stream S(gf_h h) { return (mlx_stream){(void *)h}; }

#define ENTER(off) \
  if (!gf_enter()) return off
#define RESULT(call) \
  do { \
    ENTER(GF_OFF_WORKER); \
    mlx_array r = {NULL}; \
    int rc = (call); \
    if (rc != 0 && r.ctx) p_mlx_array_free(r); \
    return rc != 0 ? 0 : (gf_h)r.ctx; \
  } while (0)

// mlx_array is a struct of one pointer: the same bytes as a handle.
static mlx_vector_array vector(const gf_h *in, size_t n) {
  return p_mlx_vector_array_new_data((const mlx_array *)in, n);
}

// list takes the arrays out of a vector and frees the vector.
static gf_list list(int rc, mlx_vector_array v) {
  gf_list l = {NULL, 0, -1};
  if (rc == 0) {
    size_t n = p_mlx_vector_array_size(v);
    l.v = calloc(n ? n : 1, sizeof *l.v);
    l.status = 0;
    for (size_t i = 0; i < n; i++) {
      mlx_array r = {NULL};
      if (p_mlx_vector_array_get(&r, v, i) != 0) {
        while (l.n > 0) p_mlx_array_free(A(l.v[--l.n]));
        l.status = -1;
        break;
      }
      l.v[l.n++] = (gf_h)r.ctx;
    }
  }
  if (v.ctx) p_mlx_vector_array_free(v);
  return l;
}

// Payloads

struct dropped { uintptr_t id; struct dropped *next; };
static struct dropped *dropped_list;

static void *payload(uintptr_t id) {
  struct dropped *d = malloc(sizeof *d);
  if (d) d->id = id;
  return d;
}

static void drop(void *p) {
  struct dropped *d = p;
  d->next = __atomic_load_n(&dropped_list, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(&dropped_list, &d->next, d, 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
  }
}

uintptr_t gf_dropped(void) {
  // Only the worker takes, and it takes the whole list, so that no element can come back in between.
  static struct dropped *taken;
  if (!taken) taken = __atomic_exchange_n(&dropped_list, NULL, __ATOMIC_ACQUIRE);
  if (!taken) return 0;
  struct dropped *d = taken;
  taken = d->next;
  uintptr_t id = d->id;
  free(d);
  return id;
}

// Functions of arrays

static int call(mlx_vector_array *res, const mlx_vector_array *in, size_t nin, const int *argnums, size_t nargs, void *p) {
  gf_list l[3] = {{0}};
  gf_list out = {0};
  int rc = 0;
  for (size_t i = 0; i < nin && rc == 0; i++) {
    size_t n = p_mlx_vector_array_size(in[i]);
    l[i].v = calloc(n ? n : 1, sizeof(gf_h));
    for (size_t k = 0; k < n; k++) {
      mlx_array r = {NULL};
      if (p_mlx_vector_array_get(&r, in[i], k) != 0) {
        rc = 1;
        break;
      }
      l[i].v[l[i].n++] = (gf_h)r.ctx;
    }
  }
  if (rc == 0) {
    // From here on the inputs belong to Go.
    out = gfCallback(((struct dropped *)p)->id, l[0], l[1], l[2], (int *)argnums, nargs);
    rc = out.status;
  } else {
    for (size_t i = 0; i < nin; i++)
      for (size_t k = 0; k < l[i].n; k++) p_mlx_array_free(A(l[i].v[k]));
  }
  for (size_t i = 0; i < 3; i++) free(l[i].v);
  if (rc == 0) rc = p_mlx_vector_array_set_data(res, (const mlx_array *)out.v, out.n);
  for (size_t k = 0; k < out.n; k++) p_mlx_array_free(A(out.v[k]));
  free(out.v);
  return rc;
}

static int call_func(mlx_vector_array *res, const mlx_vector_array in, void *p) { return call(res, &in, 1, NULL, 0, p); }

static int call_vjp(mlx_vector_array *res, const mlx_vector_array primals, const mlx_vector_array cotangents,
                    const mlx_vector_array outputs, void *p) {
  mlx_vector_array in[] = {primals, cotangents, outputs};
  return call(res, in, 3, NULL, 0, p);
}

static int call_jvp(mlx_vector_array *res, const mlx_vector_array primals, const mlx_vector_array tangents,
                    const int *argnums, size_t nargs, void *p) {
  mlx_vector_array in[] = {primals, tangents};
  return call(res, in, 2, argnums, nargs, p);
}

static inline mlx_closure C(gf_h h) { return (mlx_closure){(void *)h}; }

gf_h gf_closure(uintptr_t id) {
  ENTER(GF_OFF_WORKER);
  return (gf_h)p_mlx_closure_new_func_payload(call_func, payload(id), drop).ctx;
}

void gf_closure_free(gf_h c) { p_mlx_closure_free(C(c)); }

gf_h gf_checkpoint(gf_h c) {
  ENTER(GF_OFF_WORKER);
  mlx_closure r = {NULL};
  return p_mlx_checkpoint(&r, C(c)) ? 0 : (gf_h)r.ctx;
}

gf_h gf_custom(gf_h c, uintptr_t vjp, uintptr_t jvp) {
  ENTER(GF_OFF_WORKER);
  mlx_closure r = {NULL};
  mlx_closure_custom v = {NULL};
  mlx_closure_custom_jvp j = {NULL};
  if (vjp) v = p_mlx_closure_custom_new_func_payload(call_vjp, payload(vjp), drop);
  if (jvp) j = p_mlx_closure_custom_jvp_new_func_payload(call_jvp, payload(jvp), drop);
  int rc = p_mlx_custom_function(&r, C(c), v, j, (mlx_closure_custom_vmap){NULL});
  if (v.ctx) p_mlx_closure_custom_free(v);
  if (j.ctx) p_mlx_closure_custom_jvp_free(j);
  return rc ? 0 : (gf_h)r.ctx;
}

gf_h gf_compile(gf_h c, int shapeless) {
  ENTER(GF_OFF_WORKER);
  mlx_closure r = {NULL};
  return p_mlx_compile(&r, C(c), shapeless != 0) ? 0 : (gf_h)r.ctx;
}

int gf_compile_mode(int mode) {
  ENTER(-2);
  return p_mlx_set_compile_mode((mlx_compile_mode)mode) ? -1 : 0;
}

gf_list gf_apply(gf_h c, const gf_h *in, size_t n) {
  ENTER(((gf_list){NULL, 0, -2}));
  mlx_vector_array v = vector(in, n), out = p_mlx_vector_array_new();
  int rc = p_mlx_closure_apply(&out, C(c), v);
  p_mlx_vector_array_free(v);
  return list(rc, out);
}

static gf_lists both(int rc, mlx_vector_array a, mlx_vector_array b) {
  gf_lists l;
  l.a = list(rc, a);
  l.b = list(rc, b);
  return l;
}

#define OFF ((gf_lists){{NULL, 0, -2}, {NULL, 0, -2}})

gf_lists gf_vjp(gf_h c, const gf_h *in, size_t n, const gf_h *cot, size_t m) {
  ENTER(OFF);
  mlx_vector_array p = vector(in, n), q = vector(cot, m), a = p_mlx_vector_array_new(), b = p_mlx_vector_array_new();
  int rc = p_mlx_vjp(&a, &b, C(c), p, q);
  p_mlx_vector_array_free(p);
  p_mlx_vector_array_free(q);
  return both(rc, a, b);
}

gf_lists gf_jvp(gf_h c, const gf_h *in, size_t n, const gf_h *tan, size_t m) {
  ENTER(OFF);
  mlx_vector_array p = vector(in, n), q = vector(tan, m), a = p_mlx_vector_array_new(), b = p_mlx_vector_array_new();
  int rc = p_mlx_jvp(&a, &b, C(c), p, q);
  p_mlx_vector_array_free(p);
  p_mlx_vector_array_free(q);
  return both(rc, a, b);
}

gf_lists gf_value_and_grad(gf_h c, const int *argnums, size_t nargs, const gf_h *in, size_t n) {
  ENTER(OFF);
  mlx_closure_value_and_grad vg = {NULL};
  mlx_vector_array p = vector(in, n), a = p_mlx_vector_array_new(), b = p_mlx_vector_array_new();
  int rc = p_mlx_value_and_grad(&vg, C(c), argnums, nargs);
  if (rc == 0) {
    rc = p_mlx_closure_value_and_grad_apply(&a, &b, vg, p);
    p_mlx_closure_value_and_grad_free(vg);
  }
  p_mlx_vector_array_free(p);
  return both(rc, a, b);
}

// Kernels

static mlx_vector_string names(const char *list) {
  mlx_vector_string v = p_mlx_vector_string_new();
  for (; *list; list += strlen(list) + 1) p_mlx_vector_string_append_value(v, list);
  return v;
}

gf_h gf_kernel(int cuda, const char *name, const char *inputs, const char *outputs, const char *source,
               const char *header, int row, int atomic_outputs, int shared_memory) {
  ENTER(GF_OFF_WORKER);
  mlx_vector_string in = names(inputs), out = names(outputs);
  void *k = cuda ? p_mlx_fast_cuda_kernel_new(name, in, out, source, header, row != 0, shared_memory).ctx
                 : p_mlx_fast_metal_kernel_new(name, in, out, source, header, row != 0, atomic_outputs != 0).ctx;
  p_mlx_vector_string_free(in);
  p_mlx_vector_string_free(out);
  return (gf_h)k;
}

#define CK(h) ((mlx_fast_cuda_kernel){(void *)(h)})
#define MK(h) ((mlx_fast_metal_kernel){(void *)(h)})
#define CC(h) ((mlx_fast_cuda_kernel_config){(void *)(h)})
#define MC(h) ((mlx_fast_metal_kernel_config){(void *)(h)})

void gf_kernel_free(int cuda, gf_h k) {
  if (cuda) {
    p_mlx_fast_cuda_kernel_free(CK(k));
  } else {
    p_mlx_fast_metal_kernel_free(MK(k));
  }
}

gf_h gf_config(int cuda, gf_ints g, gf_ints t) {
  ENTER(GF_OFF_WORKER);
  if (cuda) {
    mlx_fast_cuda_kernel_config c = p_mlx_fast_cuda_kernel_config_new();
    p_mlx_fast_cuda_kernel_config_set_grid(c, g.v[0], g.v[1], g.v[2]);
    p_mlx_fast_cuda_kernel_config_set_thread_group(c, t.v[0], t.v[1], t.v[2]);
    return (gf_h)c.ctx;
  }
  mlx_fast_metal_kernel_config c = p_mlx_fast_metal_kernel_config_new();
  p_mlx_fast_metal_kernel_config_set_grid(c, g.v[0], g.v[1], g.v[2]);
  p_mlx_fast_metal_kernel_config_set_thread_group(c, t.v[0], t.v[1], t.v[2]);
  return (gf_h)c.ctx;
}

int gf_config_output(int cuda, gf_h c, gf_ints shape, int dt) {
  return cuda ? p_mlx_fast_cuda_kernel_config_add_output_arg(CC(c), shape.v, (size_t)shape.n, (mlx_dtype)dt)
              : p_mlx_fast_metal_kernel_config_add_output_arg(MC(c), shape.v, (size_t)shape.n, (mlx_dtype)dt);
}

int gf_config_init(int cuda, gf_h c, float v) {
  return cuda ? p_mlx_fast_cuda_kernel_config_set_init_value(CC(c), v)
              : p_mlx_fast_metal_kernel_config_set_init_value(MC(c), v);
}

int gf_config_arg(int cuda, gf_h c, const char *name, int kind, int v) {
  switch (kind) {
    case 0:
      return cuda ? p_mlx_fast_cuda_kernel_config_add_template_arg_int(CC(c), name, v)
                  : p_mlx_fast_metal_kernel_config_add_template_arg_int(MC(c), name, v);
    case 1:
      return cuda ? p_mlx_fast_cuda_kernel_config_add_template_arg_bool(CC(c), name, v != 0)
                  : p_mlx_fast_metal_kernel_config_add_template_arg_bool(MC(c), name, v != 0);
    default:
      return cuda ? p_mlx_fast_cuda_kernel_config_add_template_arg_dtype(CC(c), name, (mlx_dtype)v)
                  : p_mlx_fast_metal_kernel_config_add_template_arg_dtype(MC(c), name, (mlx_dtype)v);
  }
}

void gf_config_free(int cuda, gf_h c) {
  if (cuda) {
    p_mlx_fast_cuda_kernel_config_free(CC(c));
  } else {
    p_mlx_fast_metal_kernel_config_free(MC(c));
  }
}

gf_list gf_kernel_apply(int cuda, gf_h k, const gf_h *in, size_t n, gf_h config, gf_h st) {
  ENTER(((gf_list){NULL, 0, -2}));
  mlx_vector_array v = vector(in, n), out = p_mlx_vector_array_new();
  int rc = cuda ? p_mlx_fast_cuda_kernel_apply(&out, CK(k), v, CC(config), S(st))
                : p_mlx_fast_metal_kernel_apply(&out, MK(k), v, MC(config), S(st));
  p_mlx_vector_array_free(v);
  return list(rc, out);
}

// Shared memory

gf_h gf_from_shared(void *data, gf_ints shape, int dt, uintptr_t id) {
  ENTER(GF_OFF_WORKER);
  return (gf_h)p_mlx_array_new_data_managed_payload(data, shape.v, shape.n, (mlx_dtype)dt, payload(id), drop).ctx;
}

const void *gf_view(gf_h a, int *status) {
  *status = -2;
  ENTER(NULL);
  *status = -1;
  bool row = false;
  if (p_mlx_array_size(A(a)) == 0) {  // as in gf_read
    *status = p_mlx_array_eval(A(a)) == 0 ? 0 : -1;
    return NULL;
  }
  if (p_mlx_array_eval(A(a)) != 0 || p__mlx_array_is_row_contiguous(&row, A(a)) != 0) return NULL;
  *status = 0;
  return row ? p_mlx_array_data_uint8(A(a)) : NULL;
}

// Streams and devices

static mlx_device device(int gpu, int i) { return p_mlx_device_new_type(gpu ? MLX_GPU : MLX_CPU, i); }

gf_h gf_stream_on(int gpu, int i, int *index) {
  ENTER(GF_OFF_WORKER);
  mlx_device d = device(gpu, i);
  if (!d.ctx) return 0;
  mlx_stream s = p_mlx_stream_new_device(d);
  p_mlx_device_free(d);
  if (s.ctx) p_mlx_stream_get_index(index, s);
  return (gf_h)s.ctx;
}

int gf_synchronize(gf_h st) {
  ENTER(-2);
  return p_mlx_synchronize(S(st)) ? -1 : 0;
}

int gf_device_count(int gpu, int *count) {
  ENTER(-2);
  return p_mlx_device_count(count, gpu ? MLX_GPU : MLX_CPU) ? -1 : 0;
}

gf_h gf_device_keys(int gpu, int i, gf_h *out) {
  ENTER(GF_OFF_WORKER);
  mlx_device d = device(gpu, i);
  if (!d.ctx) return 0;
  mlx_device_info info = p_mlx_device_info_new();
  mlx_vector_string keys = p_mlx_vector_string_new();
  int rc = p_mlx_device_info_get(&info, d) || p_mlx_device_info_get_keys(&keys, info);
  p_mlx_device_free(d);
  if (rc != 0) {
    p_mlx_device_info_free(info);
    p_mlx_vector_string_free(keys);
    return 0;
  }
  *out = (gf_h)info.ctx;
  return (gf_h)keys.ctx;
}

void gf_device_info_free(gf_h info) { p_mlx_device_info_free((mlx_device_info){(void *)info}); }

int gf_device_value(gf_h h, const char *key, const char **text, size_t *size) {
  ENTER(-2);
  mlx_device_info info = {(void *)h};
  bool is = false;
  if (p_mlx_device_info_is_string(&is, info, key) != 0) return -1;
  if (is) return p_mlx_device_info_get_string(text, info, key) ? -1 : 1;
  return p_mlx_device_info_get_size(size, info, key) ? -1 : 0;
}

// Vectors of strings

#define V(h) ((mlx_vector_string){(void *)(h)})

gf_h gf_strings(void) { return (gf_h)p_mlx_vector_string_new().ctx; }
int gf_strings_add(gf_h v, const char *s) { return p_mlx_vector_string_append_value(V(v), s); }
size_t gf_strings_len(gf_h v) { return p_mlx_vector_string_size(V(v)); }
const char *gf_strings_get(gf_h v, size_t i) {
  char *s = NULL;
  return p_mlx_vector_string_get(&s, V(v), i) ? NULL : s;
}
void gf_strings_free(gf_h v) { p_mlx_vector_string_free(V(v)); }

// Files in memory. MLX reads lazily and on threads of its own, so a reader is C alone and owns its copy.

struct memory { char *data; size_t n, cap, pos; bool bad; };

static bool m_good(void *p) { return !((struct memory *)p)->bad; }
static size_t m_tell(void *p) { return ((struct memory *)p)->pos; }
static const char *m_label(void *p) { return "memory"; }
static void m_keep(void *p) { (void)p; }

static void m_free(void *p) {
  free(((struct memory *)p)->data);
  free(p);
}

static int m_seek(void *p, int64_t off, int whence) {
  struct memory *m = p;
  int64_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? (int64_t)m->pos : (int64_t)m->n;
  if (base + off < 0) return -1;
  m->pos = (size_t)(base + off);
  return 0;
}

static size_t m_read_at(void *p, char *data, size_t n, size_t off) {
  struct memory *m = p;
  if (off > m->n) return 0;
  if (n > m->n - off) n = m->n - off;
  memcpy(data, m->data + off, n);
  return n;
}

static size_t m_read(void *p, char *data, size_t n) {
  struct memory *m = p;
  n = m_read_at(p, data, n, m->pos);
  m->pos += n;
  return n;
}

static size_t m_write(void *p, const char *data, size_t n) {
  struct memory *m = p;
  if (m->pos + n > m->cap) {
    size_t cap = (m->pos + n) * 2;
    char *d = realloc(m->data, cap);
    if (!d) {
      m->bad = true;
      return 0;
    }
    m->data = d;
    m->cap = cap;
  }
  if (m->pos > m->n) memset(m->data + m->n, 0, m->pos - m->n);
  memcpy(m->data + m->pos, data, n);
  m->pos += n;
  if (m->pos > m->n) m->n = m->pos;
  return n;
}

static mlx_io_vtable vtable(void (*end)(void *)) {
  return (mlx_io_vtable){m_good, m_good, m_tell, m_seek, m_read, m_read_at, m_write, m_label, end};
}

static mlx_io_reader reader(const void *data, size_t n) {
  mlx_io_reader r = {NULL};
  struct memory *m = calloc(1, sizeof *m);
  if (m) m->data = malloc(n ? n : 1);
  if (!m || !m->data) {
    free(m);
    return r;
  }
  memcpy(m->data, data, n);
  m->n = n;
  r = p_mlx_io_reader_new(m, vtable(m_free));
  if (!r.ctx) m_free(m);
  return r;
}

gf_h gf_load_npy(const char *path, gf_h st) { RESULT(p_mlx_load(&r, path, S(st))); }

gf_h gf_load_npy_bytes(const void *data, size_t n, gf_h st) {
  ENTER(GF_OFF_WORKER);
  mlx_io_reader in = reader(data, n);
  if (!in.ctx) return 0;
  mlx_array r = {NULL};
  int rc = p_mlx_load_reader(&r, in, S(st));
  p_mlx_io_reader_free(in);
  return rc ? 0 : (gf_h)r.ctx;
}

gf_loader *gf_loader_bytes(const void *data, size_t n, gf_h st, int *status) {
  *status = -2;
  ENTER(NULL);
  *status = -1;
  mlx_io_reader in = reader(data, n);
  if (!in.ctx) return NULL;
  mlx_map_string_to_array arrays = p_mlx_map_string_to_array_new();
  mlx_map_string_to_string meta = p_mlx_map_string_to_string_new();
  int rc = p_mlx_load_safetensors_reader(&arrays, &meta, in, S(st));
  p_mlx_io_reader_free(in);
  p_mlx_map_string_to_string_free(meta);
  if (rc != 0) {
    p_mlx_map_string_to_array_free(arrays);
    return NULL;
  }
  return gf_loader_new(arrays.ctx, status);
}

void *gf_save_npy(gf_h a, size_t *n, int *status) {
  *status = -2;
  ENTER(NULL);
  *status = -1;
  struct memory m = {0};
  mlx_io_writer w = p_mlx_io_writer_new(&m, vtable(m_keep));
  if (!w.ctx) return NULL;
  int rc = p_mlx_save_writer(w, A(a));
  p_mlx_io_writer_free(w);
  if (rc != 0 || m.bad) {
    free(m.data);
    return NULL;
  }
  *status = 0;
  *n = m.n;
  return m.data;
}

#define G(h) ((mlx_io_gguf){(void *)(h)})

gf_h gf_gguf_new(void) { return (gf_h)p_mlx_io_gguf_new().ctx; }

gf_h gf_gguf_load(const char *path, gf_h st) {
  ENTER(GF_OFF_WORKER);
  mlx_io_gguf g = p_mlx_io_gguf_new();
  if (p_mlx_load_gguf(&g, path, S(st)) != 0) {
    if (g.ctx) p_mlx_io_gguf_free(g);
    return 0;
  }
  return (gf_h)g.ctx;
}

void gf_gguf_free(gf_h g) { p_mlx_io_gguf_free(G(g)); }

gf_h gf_gguf_keys(gf_h g) {
  ENTER(GF_OFF_WORKER);
  mlx_vector_string v = p_mlx_vector_string_new();
  if (p_mlx_io_gguf_get_keys(&v, G(g)) != 0) {
    p_mlx_vector_string_free(v);
    return 0;
  }
  return (gf_h)v.ctx;
}

gf_h gf_gguf_array(gf_h g, const char *key) { RESULT(p_mlx_io_gguf_get_array(&r, G(g), key)); }

int gf_gguf_metadata(gf_h g, const char *key, gf_h *a, char **text, gf_h *strings) {
  ENTER(-2);
  bool is = false;
  if (p_mlx_io_gguf_has_metadata_array(&is, G(g), key) != 0) return -1;
  if (is) {
    mlx_array r = {NULL};
    if (p_mlx_io_gguf_get_metadata_array(&r, G(g), key) != 0) return -1;
    *a = (gf_h)r.ctx;
    return 1;
  }
  if (p_mlx_io_gguf_has_metadata_string(&is, G(g), key) != 0) return -1;
  if (is) {
    mlx_string s = p_mlx_string_new();
    int rc = p_mlx_io_gguf_get_metadata_string(&s, G(g), key);
    if (rc == 0) *text = strdup(p_mlx_string_data(s));
    p_mlx_string_free(s);
    return rc == 0 && *text ? 2 : -1;
  }
  if (p_mlx_io_gguf_has_metadata_vector_string(&is, G(g), key) != 0) return -1;
  if (!is) return 0;
  mlx_vector_string v = p_mlx_vector_string_new();
  if (p_mlx_io_gguf_get_metadata_vector_string(&v, G(g), key) != 0) {
    p_mlx_vector_string_free(v);
    return -1;
  }
  *strings = (gf_h)v.ctx;
  return 3;
}

int gf_gguf_set_array(gf_h g, const char *key, gf_h a) {
  ENTER(-2);
  return p_mlx_io_gguf_set_array(G(g), key, A(a)) ? -1 : 0;
}

int gf_gguf_set_metadata(gf_h g, const char *key, gf_h a, const char *text, gf_h strings) {
  ENTER(-2);
  int rc = a      ? p_mlx_io_gguf_set_metadata_array(G(g), key, A(a))
           : text ? p_mlx_io_gguf_set_metadata_string(G(g), key, text)
                  : p_mlx_io_gguf_set_metadata_vector_string(G(g), key, V(strings));
  return rc ? -1 : 0;
}

int gf_gguf_save(const char *path, gf_h g) {
  ENTER(-2);
  return p_mlx_save_gguf(path, G(g)) ? -1 : 0;
}

// Groups of processes

#define P(h) ((mlx_distributed_group){(void *)(h)})

gf_h gf_group(int strict, const char *backend) {
  ENTER(GF_OFF_WORKER);
  mlx_distributed_group g = {NULL};
  return p_mlx_distributed_init(&g, strict != 0, *backend ? backend : NULL) ? 0 : (gf_h)g.ctx;
}

void gf_group_free(gf_h g) { p_mlx_distributed_group_free(P(g)); }
int gf_group_rank(gf_h g) { return p_mlx_distributed_group_rank(P(g)); }
int gf_group_size(gf_h g) { return p_mlx_distributed_group_size(P(g)); }

gf_h gf_group_split(gf_h g, int color, int key) {
  ENTER(GF_OFF_WORKER);
  mlx_distributed_group r = {NULL};
  return p_mlx_distributed_group_split(&r, P(g), color, key) ? 0 : (gf_h)r.ctx;
}

int gf_group_available(const char *backend) { return p_mlx_distributed_is_available(*backend ? backend : NULL); }

gf_h gf_group_op(gf_h fn, gf_h a, gf_h g, gf_h st) { RESULT(((int(*) MLXC_GROUP)fn)(&r, A(a), P(g), S(st))); }
gf_h gf_group_int(gf_h fn, gf_h a, int i, gf_h g, gf_h st) {
  RESULT(((int(*) MLXC_INT_GROUP)fn)(&r, A(a), i, P(g), S(st)));
}
gf_h gf_recv(gf_ints shape, int dt, int src, gf_h g, gf_h st) {
  RESULT(p_mlx_distributed_recv(&r, shape.v, (size_t)shape.n, (mlx_dtype)dt, src, P(g), S(st)));
}
