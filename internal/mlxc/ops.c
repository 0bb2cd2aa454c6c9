//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

#include "ops.h"
#include "mlxc.h"

#include <string.h>

// In mlxc.c.
int gf_enter(void);
void gf_say(const char *msg);
gf_h gf_done(int rc, mlx_array r);
mlx_vector_array gf_vector(const gf_h *in, size_t n);
mlx_vector_array gf_vector_empty(void);
void gf_vector_free(mlx_vector_array v);
void gf_array_free(mlx_array a);
long gf_spread(int rc, mlx_vector_array v, gf_h *out, size_t cap);

#define KINDS(X) \
  X(MLXC_SLICE) X(MLXC_SLICE_UPDATE) X(MLXC_AS_STRIDED) X(MLXC_TRI) X(MLXC_IDENTITY) X(MLXC_LINSPACE) X(MLXC_WINDOW) \
  X(MLXC_FREQUENCIES) X(MLXC_FULL_LIKE) X(MLXC_PAD) X(MLXC_INTS_INTS) X(MLXC_INT_INTS) X(MLXC_INT3) \
  X(MLXC_TERNARY_INT) X(MLXC_GATHER) X(MLXC_SCATTER) X(MLXC_CLOSE) X(MLXC_NAN_TO_NUM) X(MLXC_SEARCHSORTED) X(MLXC_SCAN) \
  X(MLXC_ORDERED_SCAN) X(MLXC_BOOL_INT) X(MLXC_INTS_BOOL_INT) X(MLXC_TENSORDOT) X(MLXC_HADAMARD) X(MLXC_BLOCK_MASKED_MM) \
  X(MLXC_GATHER_MM) X(MLXC_CONV2D) X(MLXC_CONV3D) X(MLXC_CONV_GENERAL) X(MLXC_CONV_TRANSPOSE1D) X(MLXC_CONV_TRANSPOSE2D) \
  X(MLXC_CONV_TRANSPOSE3D) X(MLXC_FFT) X(MLXC_FFTN) X(MLXC_TEXT) X(MLXC_NORM) X(MLXC_NORM_MATRIX) X(MLXC_RANDOM_KEY) \
  X(MLXC_RANDOM_RANGE) X(MLXC_RANDOM_SCALED) X(MLXC_RANDOM_PLAIN) X(MLXC_RANDOM_BITS) X(MLXC_RANDOM_SHAPE) \
  X(MLXC_RANDOM_AXIS) X(MLXC_RANDOM_AXIS_SHAPE) X(MLXC_RANDOM_INT) X(MLXC_DEQUANTIZE) X(MLXC_QUANTIZED_MATMUL) \
  X(MLXC_GATHER_QMM) X(MLXC_QQMM) X(MLXC_GATHER_QQMM) X(MLXC_PAIR) X(MLXC_PAIR_TEXT) X(MLXC_MANY) X(MLXC_MANY_INT) \
  X(MLXC_MANY_BOOL) X(MLXC_MANY_VECTOR) X(MLXC_MESHGRID) X(MLXC_QUANTIZE) X(MLXC_TERNARY) X(MLXC_EINSUM) \
  X(MLXC_INT) X(MLXC_INTS_BOOL) X(MLXC_BINARY_BOOL)

enum {
  K_NONE,
#define NUMBER(name) K_##name,
  KINDS(NUMBER)
};

static const char *const kinds[] = {
    "",
#define NAME(name) #name,
    KINDS(NAME)
};

int gf_kind(const char *class_name) {
  for (size_t i = 1; i < sizeof kinds / sizeof kinds[0]; i++) {
    if (strcmp(kinds[i], class_name) == 0) return (int)i;
  }
  return 0;
}

// Words that MLX takes as text; Go gives their place here.
static const char *const modes[] = {"affine", "mxfp4", "mxfp8", "nvfp4"};
static const char *const pads[] = {"constant", "edge"};
static const char *const sides[] = {"left", "right"};
static const char *const triangles[] = {"L", "U"};
static const char *const norms[] = {"fro", "nuc"};
static const char *const indexings[] = {"xy", "ij"};

static const char *word(const char *const *list, size_t n, int i) { return i >= 0 && (size_t)i < n ? list[i] : ""; }
#define WORD(list, i) word(list, sizeof list / sizeof list[0], i)

static inline mlx_array H(gf_h h) { return (mlx_array){(void *)h}; }
static inline mlx_optional_int some(int v) { return (mlx_optional_int){v, v != 0}; }

#define CASE(kind, args) \
  case K_##kind: rc = ((int(*) kind)fn) args; break
#define L(k) a->l[k].v, (size_t)a->l[k].n
#define OPTIONAL(k) a->l[k].n ? a->l[k].v : NULL, (size_t)a->l[k].n
#define A(k) H(a->h[k])
#define I(k) a->i[k]
#define B(k) (a->i[k] != 0)
#define F(k) ((float)a->d[k])
#define DT(k) ((mlx_dtype)a->i[k])

gf_h gf_call(gf_h fn, int kind, const gf_args *a, gf_h st) {
  if (!gf_enter()) return GF_OFF_WORKER;
  mlx_stream s = {(void *)st};
  mlx_array r = {NULL};
  mlx_vector_array v = {NULL};
  if (kind == K_MLXC_GATHER || kind == K_MLXC_SCATTER) {
    v = gf_vector(a->v, (size_t)a->n);
    if (!v.ctx) return 0;
  }
  int rc = 1;
  switch (kind) {
    CASE(MLXC_BINARY_BOOL, (&r, A(0), A(1), B(0), s));
    CASE(MLXC_INT, (&r, A(0), I(0), s));
    CASE(MLXC_INTS_BOOL, (&r, A(0), OPTIONAL(0), B(0), s));
    CASE(MLXC_TERNARY, (&r, A(0), A(1), A(2), s));
    CASE(MLXC_SLICE, (&r, A(0), L(0), L(1), L(2), s));
    CASE(MLXC_SLICE_UPDATE, (&r, A(0), A(1), L(0), L(1), L(2), s));
    CASE(MLXC_AS_STRIDED, (&r, A(0), L(0), a->strides, (size_t)a->n, (size_t)a->u, s));
    CASE(MLXC_TRI, (&r, I(0), I(1), I(2), DT(3), s));
    CASE(MLXC_IDENTITY, (&r, I(0), DT(1), s));
    CASE(MLXC_LINSPACE, (&r, a->d[0], a->d[1], I(0), B(1), DT(2), s));
    CASE(MLXC_WINDOW, (&r, I(0), s));
    CASE(MLXC_FREQUENCIES, (&r, I(0), a->d[0], s));
    CASE(MLXC_FULL_LIKE, (&r, A(0), A(1), DT(0), s));
    CASE(MLXC_PAD, (&r, A(0), L(0), L(1), L(2), A(1), WORD(pads, I(0)), s));
    CASE(MLXC_INTS_INTS, (&r, A(0), L(0), L(1), s));
    CASE(MLXC_INT_INTS, (&r, A(0), I(0), L(0), s));
    CASE(MLXC_INT3, (&r, A(0), I(0), I(1), I(2), s));
    CASE(MLXC_TERNARY_INT, (&r, A(0), A(1), A(2), I(0), s));
    CASE(MLXC_GATHER, (&r, A(0), v, L(0), L(1), s));
    CASE(MLXC_SCATTER, (&r, A(0), v, A(1), L(0), s));
    CASE(MLXC_CLOSE, (&r, A(0), A(1), a->d[0], a->d[1], B(0), s));
    CASE(MLXC_NAN_TO_NUM, (&r, A(0), F(0), ((mlx_optional_float){F(1), B(0)}), ((mlx_optional_float){F(2), B(1)}), s));
    CASE(MLXC_SEARCHSORTED, (&r, A(0), A(1), WORD(sides, I(0)), s));
    CASE(MLXC_SCAN, (&r, A(0), I(0), B(1), B(2), ((mlx_optional_dtype){MLX_BOOL, false}), s));
    CASE(MLXC_ORDERED_SCAN, (&r, A(0), I(0), B(1), B(2), s));
    CASE(MLXC_BOOL_INT, (&r, A(0), B(0), I(1), s));
    CASE(MLXC_INTS_BOOL_INT, (&r, A(0), L(0), B(0), I(1), s));
    CASE(MLXC_TENSORDOT, (&r, A(0), A(1), L(0), L(1), s));
    CASE(MLXC_HADAMARD, (&r, A(0), ((mlx_optional_float){F(0), B(0)}), s));
    CASE(MLXC_BLOCK_MASKED_MM, (&r, A(0), A(1), I(0), A(2), A(3), A(4), s));
    CASE(MLXC_GATHER_MM, (&r, A(0), A(1), A(2), A(3), B(0), s));
    CASE(MLXC_CONV2D, (&r, A(0), A(1), I(0), I(1), I(2), I(3), I(4), I(5), I(6), s));
    CASE(MLXC_CONV3D, (&r, A(0), A(1), I(0), I(1), I(2), I(3), I(4), I(5), I(6), I(7), I(8), I(9), s));
    CASE(MLXC_CONV_GENERAL, (&r, A(0), A(1), L(0), L(1), L(2), L(3), L(4), I(0), B(1), s));
    CASE(MLXC_CONV_TRANSPOSE1D, (&r, A(0), A(1), I(0), I(1), I(2), I(3), I(4), s));
    CASE(MLXC_CONV_TRANSPOSE2D, (&r, A(0), A(1), I(0), I(1), I(2), I(3), I(4), I(5), I(6), I(7), I(8), s));
    CASE(MLXC_CONV_TRANSPOSE3D,
         (&r, A(0), A(1), I(0), I(1), I(2), I(3), I(4), I(5), I(6), I(7), I(8), I(9), I(10), I(11), I(12), s));
    CASE(MLXC_FFT, (&r, A(0), I(0), I(1), (mlx_fft_norm)I(2), s));
    CASE(MLXC_FFTN, (&r, A(0), L(0), L(1), (mlx_fft_norm)I(0), s));
    CASE(MLXC_TEXT, (&r, A(0), WORD(triangles, I(0)), s));
    CASE(MLXC_NORM, (&r, A(0), a->d[0], OPTIONAL(0), B(0), s));
    CASE(MLXC_NORM_MATRIX, (&r, A(0), WORD(norms, I(1)), OPTIONAL(0), B(0), s));
    CASE(MLXC_RANDOM_KEY, (&r, a->u));
    CASE(MLXC_RANDOM_RANGE, (&r, A(0), A(1), L(0), DT(0), A(2), s));
    CASE(MLXC_RANDOM_SCALED, (&r, L(0), DT(0), F(0), F(1), A(0), s));
    CASE(MLXC_RANDOM_PLAIN, (&r, L(0), DT(0), A(0), s));
    CASE(MLXC_RANDOM_BITS, (&r, L(0), I(0), A(0), s));
    CASE(MLXC_RANDOM_SHAPE, (&r, A(0), L(0), A(1), s));
    CASE(MLXC_RANDOM_AXIS, (&r, A(0), I(0), A(1), s));
    CASE(MLXC_RANDOM_AXIS_SHAPE, (&r, A(0), I(0), L(0), A(1), s));
    CASE(MLXC_RANDOM_INT, (&r, I(0), A(0), s));
    CASE(MLXC_DEQUANTIZE, (&r, A(0), A(1), A(2), some(I(0)), some(I(1)), WORD(modes, I(2)), A(3),
                           ((mlx_optional_dtype){DT(3), B(4)}), s));
    CASE(MLXC_QUANTIZED_MATMUL, (&r, A(0), A(1), A(2), A(3), B(3), some(I(0)), some(I(1)), WORD(modes, I(2)), s));
    CASE(MLXC_GATHER_QMM,
         (&r, A(0), A(1), A(2), A(3), A(4), A(5), B(3), some(I(0)), some(I(1)), WORD(modes, I(2)), B(4), s));
    CASE(MLXC_QQMM, (&r, A(0), A(1), A(2), some(I(0)), some(I(1)), WORD(modes, I(2)), A(3), A(4), s));
    CASE(MLXC_GATHER_QQMM,
         (&r, A(0), A(1), A(2), A(3), A(4), some(I(0)), some(I(1)), WORD(modes, I(2)), A(5), A(6), B(3), s));
    default: gf_say("the signature is not known");
  }
  gf_vector_free(v);
  return gf_done(rc, r);
}

static long two(int rc, mlx_array r0, mlx_array r1, gf_h *out, size_t cap) {
  if (rc == 0 && r0.ctx && r1.ctx && cap >= 2) {
    out[0] = (gf_h)r0.ctx;
    out[1] = (gf_h)r1.ctx;
    return 2;
  }
  gf_array_free(r0);
  gf_array_free(r1);
  return -1;
}

long gf_call_many(gf_h fn, int kind, const gf_args *a, const gf_h *in, size_t n, gf_h *out, size_t cap, gf_h st) {
  if (!gf_enter()) return -2;
  mlx_stream s = {(void *)st};
  int rc = 1;
  if (kind == K_MLXC_PAIR || kind == K_MLXC_PAIR_TEXT) {
    mlx_array r0 = {NULL}, r1 = {NULL};
    switch (kind) {
      CASE(MLXC_PAIR, (&r0, &r1, A(0), s));
      CASE(MLXC_PAIR_TEXT, (&r0, &r1, A(0), WORD(triangles, I(0)), s));
    }
    return two(rc, r0, r1, out, cap);
  }
  mlx_vector_array v = {NULL};
  if (kind == K_MLXC_MANY_VECTOR || kind == K_MLXC_MESHGRID) {
    v = gf_vector(in, n);
    if (!v.ctx) return -1;
  }
  mlx_vector_array r = gf_vector_empty();
  switch (kind) {
    CASE(MLXC_MANY, (&r, A(0), s));
    CASE(MLXC_MANY_INT, (&r, A(0), I(0), s));
    CASE(MLXC_MANY_BOOL, (&r, A(0), B(0), s));
    CASE(MLXC_MANY_VECTOR, (&r, v, s));
    CASE(MLXC_MESHGRID, (&r, v, B(0), WORD(indexings, I(1)), s));
    CASE(MLXC_QUANTIZE, (&r, A(0), some(I(0)), some(I(1)), WORD(modes, I(2)), A(1), s));
    default: gf_say("the signature is not known");
  }
  gf_vector_free(v);
  return gf_spread(rc, r, out, cap);
}

gf_h gf_einsum(gf_h fn, const char *subscripts, const gf_h *in, size_t n, gf_h st) {
  if (!gf_enter()) return GF_OFF_WORKER;
  mlx_vector_array v = gf_vector(in, n);
  if (!v.ctx) return 0;
  mlx_array r = {NULL};
  int rc = ((int(*) MLXC_EINSUM)fn)(&r, subscripts, v, (mlx_stream){(void *)st});
  gf_vector_free(v);
  return gf_done(rc, r);
}
