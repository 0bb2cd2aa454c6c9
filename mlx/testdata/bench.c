// The same work as against_c_test.go through mlx-c alone. Arguments: the library, what to measure,
// how often. Prints nanoseconds per round.
#include "mlxc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DECLARE(result, name, params) static result(*p_##name) params;
MLXC_FUNCTIONS(DECLARE)

static void check(int rc) {
  if (rc != 0) exit(2);
}


static void eval(mlx_array a) {
  mlx_vector_array v = p_mlx_vector_array_new_data(&a, 1);
  check(p_mlx_eval(v));
  p_mlx_vector_array_free(v);
}

int main(int argc, char **argv) {
  if (argc != 4) return 1;
  void *lib = dlopen(argv[1], RTLD_NOW);
  if (!lib) return 1;
#define LOAD(result, name, params) \
  { \
    void *f = dlsym(lib, #name); \
    if (!f) return 1; \
    memcpy((void *)&p_##name, &f, sizeof f); \
  }
  MLXC_FUNCTIONS(LOAD)
  const char *what = argv[2];
  long n = atol(argv[3]);
  bool gpu = false;
  mlx_device d = p_mlx_device_new_type(MLX_GPU, 0);
  if (p_mlx_device_is_available(&gpu, d) != 0) gpu = false;
  mlx_stream s = gpu ? p_mlx_default_gpu_stream_new() : p_mlx_default_cpu_stream_new();
  const float one = 1;
  mlx_array x = p_mlx_array_new_data(&one, NULL, 0, MLX_FLOAT32);
  int square[] = {1024, 1024}, line[] = {1 << 18};
  mlx_array m = {NULL};
  check(p_mlx_full(&m, square, 2, x, MLX_FLOAT32, s));
  eval(m);
  float *host = calloc(1 << 18, sizeof *host), *back = calloc(1 << 18, sizeof *back);
  struct timespec a, b;
  // Where MLX's own threads work wall time counts, else the time of this thread.
  clockid_t clock = strcmp(what, "graph") == 0 || strcmp(what, "matmul") == 0 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
  for (int round = 0; round < 2; round++) {  // the first one warms up
    clock_gettime(clock, &a);
    for (long i = 0; i < n; i++) {
      if (strcmp(what, "op") == 0) {
        mlx_array r = {NULL};
        check(p_mlx_add(&r, x, x, s));
        p_mlx_array_free(r);
      } else if (strcmp(what, "graph") == 0) {
        mlx_array list[1000];
        mlx_array last = x;
        for (int k = 0; k < 1000; k++) {
          list[k].ctx = NULL;
          check(p_mlx_add(&list[k], last, x, s));
          last = list[k];
        }
        eval(last);
        for (int k = 0; k < 1000; k++) p_mlx_array_free(list[k]);
      } else if (strcmp(what, "close") == 0) {
        mlx_array list[1000];
        for (int k = 0; k < 1000; k++) {
          list[k].ctx = NULL;
          check(p_mlx_add(&list[k], x, x, s));
        }
        for (int k = 0; k < 1000; k++) p_mlx_array_free(list[k]);
      } else if (strcmp(what, "copy") == 0 || strcmp(what, "toslice") == 0) {
        mlx_array r = p_mlx_array_new_data(host, line, 1, MLX_FLOAT32);
        check(p_mlx_array_eval(r));
        memcpy(back, p_mlx_array_data_uint8(r), sizeof *back << 18);
        p_mlx_array_free(r);
      } else if (strcmp(what, "matmul") == 0) {
        mlx_array r = {NULL};
        check(p_mlx_matmul(&r, m, m, s));
        eval(r);
        p_mlx_array_free(r);
      } else {
        return 1;
      }
    }
    clock_gettime(clock, &b);
  }
  printf("%.1f\n", ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / (double)n);
  return 0;
}
