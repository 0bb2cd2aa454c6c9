// Calls of operations with many arguments: one function for those with one result, one for those
// with several. Which signature a function has is its kind; arguments travel in one struct.
#ifndef GODFLASH_OPS_H
#define GODFLASH_OPS_H

#include "shim.h"

// The fields are filled in the order of the C parameters of their sort: h arrays, i numbers, l
// lists, d floating-point numbers. v are the arrays of a vector parameter, n of them.
typedef struct {
  gf_h h[8];
  gf_h v[8];
  int64_t strides[8];
  double d[3];
  uint64_t u;
  int i[14];
  gf_ints l[5];
  int n;
} gf_args;

// The number of a signature class of mlxc.h, 0 when ops.c has no case for it.
int gf_kind(const char *class_name);

gf_h gf_call(gf_h fn, int kind, const gf_args *a, gf_h st);
// Results as gf_split; in are the arrays of a vector parameter.
long gf_call_many(gf_h fn, int kind, const gf_args *a, const gf_h *in, size_t n, gf_h *out, size_t cap, gf_h st);
gf_h gf_einsum(gf_h fn, const char *subscripts, const gf_h *in, size_t n, gf_h st);

#endif
