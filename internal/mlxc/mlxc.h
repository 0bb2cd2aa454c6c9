// The part of mlx-c 0.7.0 that godflash calls: the types, and one list of functions.
//
// The list is used three times: mlxc.c makes function pointers of it and fills them with dlsym, and
// internal/abicheck compiles it against mlx-c's own headers (MLXC_USE_REAL_HEADERS), where a
// prototype that differs is a compile error.
#ifndef GODFLASH_MLXC_H
#define GODFLASH_MLXC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef MLXC_USE_REAL_HEADERS
#include "mlx/c/mlx.h"
#else
typedef struct mlx_array_ { void *ctx; } mlx_array;
typedef struct mlx_stream_ { void *ctx; } mlx_stream;
typedef struct mlx_device_ { void *ctx; } mlx_device;
typedef struct mlx_string_ { void *ctx; } mlx_string;
typedef struct mlx_vector_array_ { void *ctx; } mlx_vector_array;
typedef struct mlx_compile_cache_ { void *ctx; } mlx_compile_cache;
typedef struct mlx_map_string_to_array_ { void *ctx; } mlx_map_string_to_array;
typedef struct mlx_map_string_to_string_ { void *ctx; } mlx_map_string_to_string;
typedef struct mlx_map_string_to_array_iterator_ { void *ctx; void *map_ctx; } mlx_map_string_to_array_iterator;
typedef enum mlx_dtype_ {
  MLX_BOOL, MLX_UINT8, MLX_UINT16, MLX_UINT32, MLX_UINT64, MLX_INT8, MLX_INT16, MLX_INT32, MLX_INT64,
  MLX_FLOAT16, MLX_FLOAT32, MLX_FLOAT64, MLX_BFLOAT16, MLX_COMPLEX64,
} mlx_dtype;
typedef enum mlx_device_type_ { MLX_CPU, MLX_GPU } mlx_device_type;
typedef struct mlx_optional_float_ { float value; bool has_value; } mlx_optional_float;
typedef struct mlx_optional_dtype_ { mlx_dtype value; bool has_value; } mlx_optional_dtype;
typedef void (*mlx_error_handler_func)(const char *msg, void *data);
#endif

// Signatures shared by many operations. Go names the same class when it declares an operation, and
// loading compares the two.
#define MLXC_UNARY (mlx_array *, const mlx_array, const mlx_stream)
#define MLXC_BINARY (mlx_array *, const mlx_array, const mlx_array, const mlx_stream)
#define MLXC_TERNARY (mlx_array *, const mlx_array, const mlx_array, const mlx_array, const mlx_stream)
#define MLXC_INT (mlx_array *, const mlx_array, int, const mlx_stream)
#define MLXC_INT2 (mlx_array *, const mlx_array, int, int, const mlx_stream)
#define MLXC_BOOL (mlx_array *, const mlx_array, bool, const mlx_stream)
#define MLXC_INT_BOOL (mlx_array *, const mlx_array, int, bool, const mlx_stream)
#define MLXC_INTS (mlx_array *, const mlx_array, const int *, size_t, const mlx_stream)
#define MLXC_INTS_BOOL (mlx_array *, const mlx_array, const int *, size_t, bool, const mlx_stream)
#define MLXC_DTYPE (mlx_array *, const mlx_array, mlx_dtype, const mlx_stream)
#define MLXC_BINARY_INT (mlx_array *, const mlx_array, const mlx_array, int, const mlx_stream)
#define MLXC_BINARY_BOOL (mlx_array *, const mlx_array, const mlx_array, bool, const mlx_stream)
#define MLXC_SCAN (mlx_array *, const mlx_array, int, bool, bool, mlx_optional_dtype, const mlx_stream)
#define MLXC_FILL (mlx_array *, const int *, size_t, mlx_dtype, const mlx_stream)
#define MLXC_VECTOR_INT (mlx_array *, const mlx_vector_array, int, const mlx_stream)

// F(result, name, parameters). mlx_compile_cache_new comes first: a library without it is older
// than 0.7, where attention had another signature under the same name.
#define MLXC_FUNCTIONS(F) \
  F(mlx_compile_cache, mlx_compile_cache_new, ()) \
  F(int, mlx_compile_cache_free, (mlx_compile_cache)) \
  F(int, mlx_disable_compile, (void)) \
  F(void, mlx_set_error_handler, (mlx_error_handler_func, void *, void (*)(void *))) \
  F(int, mlx_version, (mlx_string *)) \
  F(mlx_string, mlx_string_new, (void)) \
  F(const char *, mlx_string_data, (mlx_string)) \
  F(int, mlx_string_free, (mlx_string)) \
  F(mlx_device, mlx_device_new_type, (mlx_device_type, int)) \
  F(int, mlx_device_free, (mlx_device)) \
  F(int, mlx_device_is_available, (bool *, mlx_device)) \
  F(int, mlx_cuda_is_available, (bool *)) \
  F(int, mlx_metal_is_available, (bool *)) \
  F(mlx_stream, mlx_default_cpu_stream_new, (void)) \
  F(mlx_stream, mlx_default_gpu_stream_new, (void)) \
  F(int, mlx_stream_free, (mlx_stream)) \
  F(int, mlx_synchronize, (mlx_stream)) \
  F(int, mlx_get_active_memory, (size_t *)) \
  F(int, mlx_get_cache_memory, (size_t *)) \
  F(int, mlx_get_peak_memory, (size_t *)) \
  F(int, mlx_reset_peak_memory, (void)) \
  F(int, mlx_clear_cache, (void)) \
  F(int, mlx_set_cache_limit, (size_t *, size_t)) \
  F(int, mlx_set_memory_limit, (size_t *, size_t)) \
  F(mlx_array, mlx_array_new_data, (const void *, const int *, int, mlx_dtype)) \
  F(int, mlx_array_set, (mlx_array *, const mlx_array)) \
  F(int, mlx_array_free, (mlx_array)) \
  F(int, mlx_array_tostring, (mlx_string *, const mlx_array)) \
  F(size_t, mlx_array_size, (const mlx_array)) \
  F(size_t, mlx_array_nbytes, (const mlx_array)) \
  F(size_t, mlx_array_ndim, (const mlx_array)) \
  F(const int *, mlx_array_shape, (const mlx_array)) \
  F(mlx_dtype, mlx_array_dtype, (const mlx_array)) \
  F(int, mlx_array_eval, (mlx_array)) \
  F(const uint8_t *, mlx_array_data_uint8, (const mlx_array)) \
  F(int, _mlx_array_is_row_contiguous, (bool *, const mlx_array)) \
  F(mlx_vector_array, mlx_vector_array_new, (void)) \
  F(mlx_vector_array, mlx_vector_array_new_data, (const mlx_array *, size_t)) \
  F(int, mlx_vector_array_free, (mlx_vector_array)) \
  F(size_t, mlx_vector_array_size, (mlx_vector_array)) \
  F(int, mlx_vector_array_get, (mlx_array *, const mlx_vector_array, size_t)) \
  F(int, mlx_eval, (const mlx_vector_array)) \
  F(int, mlx_async_eval, (const mlx_vector_array)) \
  F(mlx_map_string_to_array, mlx_map_string_to_array_new, (void)) \
  F(int, mlx_map_string_to_array_free, (mlx_map_string_to_array)) \
  F(mlx_map_string_to_array_iterator, mlx_map_string_to_array_iterator_new, (mlx_map_string_to_array)) \
  F(int, mlx_map_string_to_array_iterator_free, (mlx_map_string_to_array_iterator)) \
  F(int, mlx_map_string_to_array_iterator_next, (const char **, mlx_array *, mlx_map_string_to_array_iterator)) \
  F(mlx_map_string_to_string, mlx_map_string_to_string_new, (void)) \
  F(int, mlx_map_string_to_string_free, (mlx_map_string_to_string)) \
  F(int, mlx_load_safetensors, (mlx_map_string_to_array *, mlx_map_string_to_string *, const char *, const mlx_stream)) \
  /* creation */ \
  F(int, mlx_zeros, MLXC_FILL) \
  F(int, mlx_ones, MLXC_FILL) \
  F(int, mlx_full, (mlx_array *, const int *, size_t, const mlx_array, mlx_dtype, const mlx_stream)) \
  F(int, mlx_arange, (mlx_array *, double, double, double, mlx_dtype, const mlx_stream)) \
  /* shape */ \
  F(int, mlx_reshape, MLXC_INTS) \
  F(int, mlx_flatten, MLXC_INT2) \
  F(int, mlx_transpose, MLXC_UNARY) \
  F(int, mlx_transpose_axes, MLXC_INTS) \
  F(int, mlx_swapaxes, MLXC_INT2) \
  F(int, mlx_expand_dims_axes, MLXC_INTS) \
  F(int, mlx_squeeze, MLXC_UNARY) \
  F(int, mlx_squeeze_axes, MLXC_INTS) \
  F(int, mlx_broadcast_to, MLXC_INTS) \
  F(int, mlx_concatenate_axis, MLXC_VECTOR_INT) \
  F(int, mlx_stack_axis, MLXC_VECTOR_INT) \
  F(int, mlx_split, (mlx_vector_array *, const mlx_array, int, int, const mlx_stream)) \
  F(int, mlx_split_sections, (mlx_vector_array *, const mlx_array, const int *, size_t, int, const mlx_stream)) \
  F(int, mlx_repeat_axis, MLXC_INT2) \
  F(int, mlx_contiguous, MLXC_BOOL) \
  F(int, mlx_copy, MLXC_UNARY) \
  F(int, mlx_astype, MLXC_DTYPE) \
  /* slices */ \
  F(int, mlx_slice, (mlx_array *, const mlx_array, const int *, size_t, const int *, size_t, const int *, size_t, const mlx_stream)) \
  F(int, mlx_slice_dynamic, (mlx_array *, const mlx_array, const mlx_array, const int *, size_t, const int *, size_t, const mlx_stream)) \
  F(int, mlx_slice_update, (mlx_array *, const mlx_array, const mlx_array, const int *, size_t, const int *, size_t, const int *, size_t, const mlx_stream)) \
  F(int, mlx_slice_update_dynamic, (mlx_array *, const mlx_array, const mlx_array, const mlx_array, const int *, size_t, const mlx_stream)) \
  F(int, mlx_take_axis, MLXC_BINARY_INT) \
  F(int, mlx_take_along_axis, MLXC_BINARY_INT) \
  F(int, mlx_where, MLXC_TERNARY) \
  /* elementwise */ \
  F(int, mlx_add, MLXC_BINARY) \
  F(int, mlx_subtract, MLXC_BINARY) \
  F(int, mlx_multiply, MLXC_BINARY) \
  F(int, mlx_divide, MLXC_BINARY) \
  F(int, mlx_floor_divide, MLXC_BINARY) \
  F(int, mlx_remainder, MLXC_BINARY) \
  F(int, mlx_power, MLXC_BINARY) \
  F(int, mlx_maximum, MLXC_BINARY) \
  F(int, mlx_minimum, MLXC_BINARY) \
  F(int, mlx_logaddexp, MLXC_BINARY) \
  F(int, mlx_negative, MLXC_UNARY) \
  F(int, mlx_abs, MLXC_UNARY) \
  F(int, mlx_exp, MLXC_UNARY) \
  F(int, mlx_log, MLXC_UNARY) \
  F(int, mlx_log1p, MLXC_UNARY) \
  F(int, mlx_sqrt, MLXC_UNARY) \
  F(int, mlx_rsqrt, MLXC_UNARY) \
  F(int, mlx_square, MLXC_UNARY) \
  F(int, mlx_sin, MLXC_UNARY) \
  F(int, mlx_cos, MLXC_UNARY) \
  F(int, mlx_tanh, MLXC_UNARY) \
  F(int, mlx_erf, MLXC_UNARY) \
  F(int, mlx_sigmoid, MLXC_UNARY) \
  F(int, mlx_clip, MLXC_TERNARY) \
  /* logic */ \
  F(int, mlx_equal, MLXC_BINARY) \
  F(int, mlx_not_equal, MLXC_BINARY) \
  F(int, mlx_less, MLXC_BINARY) \
  F(int, mlx_less_equal, MLXC_BINARY) \
  F(int, mlx_greater, MLXC_BINARY) \
  F(int, mlx_greater_equal, MLXC_BINARY) \
  F(int, mlx_logical_and, MLXC_BINARY) \
  F(int, mlx_logical_or, MLXC_BINARY) \
  F(int, mlx_logical_not, MLXC_UNARY) \
  F(int, mlx_isnan, MLXC_UNARY) \
  F(int, mlx_isfinite, MLXC_UNARY) \
  F(int, mlx_array_equal, MLXC_BINARY_BOOL) \
  /* reductions, scans, sorts */ \
  F(int, mlx_sum, MLXC_BOOL) \
  F(int, mlx_sum_axes, MLXC_INTS_BOOL) \
  F(int, mlx_mean, MLXC_BOOL) \
  F(int, mlx_mean_axes, MLXC_INTS_BOOL) \
  F(int, mlx_max, MLXC_BOOL) \
  F(int, mlx_max_axes, MLXC_INTS_BOOL) \
  F(int, mlx_min, MLXC_BOOL) \
  F(int, mlx_min_axes, MLXC_INTS_BOOL) \
  F(int, mlx_prod, MLXC_BOOL) \
  F(int, mlx_prod_axes, MLXC_INTS_BOOL) \
  F(int, mlx_all, MLXC_BOOL) \
  F(int, mlx_all_axes, MLXC_INTS_BOOL) \
  F(int, mlx_any, MLXC_BOOL) \
  F(int, mlx_any_axes, MLXC_INTS_BOOL) \
  F(int, mlx_logsumexp, MLXC_BOOL) \
  F(int, mlx_logsumexp_axes, MLXC_INTS_BOOL) \
  F(int, mlx_softmax, MLXC_BOOL) \
  F(int, mlx_softmax_axes, MLXC_INTS_BOOL) \
  F(int, mlx_argmax_axis, MLXC_INT_BOOL) \
  F(int, mlx_argmin_axis, MLXC_INT_BOOL) \
  F(int, mlx_cumsum_axis, MLXC_SCAN) \
  F(int, mlx_cumprod_axis, MLXC_SCAN) \
  F(int, mlx_sort_axis, MLXC_INT) \
  F(int, mlx_argsort_axis, MLXC_INT) \
  F(int, mlx_argpartition_axis, MLXC_INT2) \
  F(int, mlx_topk_axis, MLXC_INT2) \
  /* linear */ \
  F(int, mlx_matmul, MLXC_BINARY) \
  F(int, mlx_addmm, (mlx_array *, const mlx_array, const mlx_array, const mlx_array, float, float, const mlx_stream)) \
  F(int, mlx_conv1d, (mlx_array *, const mlx_array, const mlx_array, int, int, int, int, const mlx_stream)) \
  /* fast */ \
  F(int, mlx_fast_rms_norm, (mlx_array *, const mlx_array, const mlx_array, float, const mlx_stream)) \
  F(int, mlx_fast_layer_norm, (mlx_array *, const mlx_array, const mlx_array, const mlx_array, float, const mlx_stream)) \
  F(int, mlx_fast_rope, (mlx_array *, const mlx_array, int, bool, mlx_optional_float, float, int, const mlx_array, const mlx_stream)) \
  F(int, mlx_fast_rope_dynamic, (mlx_array *, const mlx_array, int, bool, mlx_optional_float, float, const mlx_array, const mlx_array, const mlx_stream)) \
  F(int, mlx_fast_scaled_dot_product_attention, (mlx_array *, const mlx_array, const mlx_array, const mlx_array, float, const char *, const mlx_array, const mlx_array, bool, const mlx_stream))

#endif
