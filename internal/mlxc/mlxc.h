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
typedef struct mlx_optional_int_ { int value; bool has_value; } mlx_optional_int;
typedef enum mlx_fft_norm_ { MLX_FFT_NORM_BACKWARD, MLX_FFT_NORM_ORTHO, MLX_FFT_NORM_FORWARD } mlx_fft_norm;
typedef void (*mlx_error_handler_func)(const char *msg, void *data);

// Types of MLXC_OBJECTS.
typedef struct mlx_closure_ { void *ctx; } mlx_closure;
typedef struct mlx_closure_custom_ { void *ctx; } mlx_closure_custom;
typedef struct mlx_closure_custom_jvp_ { void *ctx; } mlx_closure_custom_jvp;
typedef struct mlx_closure_custom_vmap_ { void *ctx; } mlx_closure_custom_vmap;
typedef struct mlx_closure_value_and_grad_ { void *ctx; } mlx_closure_value_and_grad;
typedef struct mlx_vector_string_ { void *ctx; } mlx_vector_string;
typedef struct mlx_device_info_ { void *ctx; } mlx_device_info;
typedef struct mlx_distributed_group_ { void *ctx; } mlx_distributed_group;
typedef struct mlx_io_reader_ { void *ctx; } mlx_io_reader;
typedef struct mlx_io_writer_ { void *ctx; } mlx_io_writer;
typedef struct mlx_io_gguf_ { void *ctx; } mlx_io_gguf;
typedef struct mlx_fast_cuda_kernel_ { void *ctx; } mlx_fast_cuda_kernel;
typedef struct mlx_fast_cuda_kernel_config_ { void *ctx; } mlx_fast_cuda_kernel_config;
typedef struct mlx_fast_metal_kernel_ { void *ctx; } mlx_fast_metal_kernel;
typedef struct mlx_fast_metal_kernel_config_ { void *ctx; } mlx_fast_metal_kernel_config;
typedef enum mlx_compile_mode_ {
  MLX_COMPILE_MODE_DISABLED, MLX_COMPILE_MODE_NO_SIMPLIFY, MLX_COMPILE_MODE_NO_FUSE, MLX_COMPILE_MODE_ENABLED,
} mlx_compile_mode;
typedef struct mlx_io_vtable_ {
  bool (*is_open)(void *);
  bool (*good)(void *);
  size_t (*tell)(void *);
  int (*seek)(void *, int64_t, int);
  size_t (*read)(void *, char *, size_t);
  size_t (*read_at_offset)(void *, char *, size_t, size_t);
  size_t (*write)(void *, const char *, size_t);
  const char *(*label)(void *);
  void (*free)(void *);
} mlx_io_vtable;
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

// Signatures that ops.c calls, one case each.
#define MLXC_SLICE (mlx_array *, const mlx_array, const int *, size_t, const int *, size_t, const int *, size_t, const mlx_stream)
#define MLXC_SLICE_UPDATE (mlx_array *, const mlx_array, const mlx_array, const int *, size_t, const int *, size_t, const int *, size_t, const mlx_stream)
#define MLXC_AS_STRIDED (mlx_array *, const mlx_array, const int *, size_t, const int64_t *, size_t, size_t, const mlx_stream)
#define MLXC_TRI (mlx_array *, int, int, int, mlx_dtype, const mlx_stream)
#define MLXC_IDENTITY (mlx_array *, int, mlx_dtype, const mlx_stream)
#define MLXC_LINSPACE (mlx_array *, double, double, int, bool, mlx_dtype, const mlx_stream)
#define MLXC_WINDOW (mlx_array *, int, const mlx_stream)
#define MLXC_FREQUENCIES (mlx_array *, int, double, const mlx_stream)
#define MLXC_FULL_LIKE (mlx_array *, const mlx_array, const mlx_array, mlx_dtype, const mlx_stream)
#define MLXC_PAD (mlx_array *, const mlx_array, const int *, size_t, const int *, size_t, const int *, size_t, const mlx_array, const char *, const mlx_stream)
#define MLXC_INTS_INTS (mlx_array *, const mlx_array, const int *, size_t, const int *, size_t, const mlx_stream)
#define MLXC_INT_INTS (mlx_array *, const mlx_array, int, const int *, size_t, const mlx_stream)
#define MLXC_INT3 (mlx_array *, const mlx_array, int, int, int, const mlx_stream)
#define MLXC_TERNARY_INT (mlx_array *, const mlx_array, const mlx_array, const mlx_array, int, const mlx_stream)
#define MLXC_GATHER (mlx_array *, const mlx_array, const mlx_vector_array, const int *, size_t, const int *, size_t, const mlx_stream)
#define MLXC_SCATTER (mlx_array *, const mlx_array, const mlx_vector_array, const mlx_array, const int *, size_t, const mlx_stream)
#define MLXC_CLOSE (mlx_array *, const mlx_array, const mlx_array, double, double, bool, const mlx_stream)
#define MLXC_NAN_TO_NUM (mlx_array *, const mlx_array, float, mlx_optional_float, mlx_optional_float, const mlx_stream)
#define MLXC_SEARCHSORTED (mlx_array *, const mlx_array, const mlx_array, const char *, const mlx_stream)
#define MLXC_ORDERED_SCAN (mlx_array *, const mlx_array, int, bool, bool, const mlx_stream)
#define MLXC_BOOL_INT (mlx_array *, const mlx_array, bool, int, const mlx_stream)
#define MLXC_INTS_BOOL_INT (mlx_array *, const mlx_array, const int *, size_t, bool, int, const mlx_stream)
#define MLXC_EINSUM (mlx_array *, const char *, const mlx_vector_array, const mlx_stream)
#define MLXC_TENSORDOT (mlx_array *, const mlx_array, const mlx_array, const int *, size_t, const int *, size_t, const mlx_stream)
#define MLXC_HADAMARD (mlx_array *, const mlx_array, mlx_optional_float, const mlx_stream)
#define MLXC_BLOCK_MASKED_MM (mlx_array *, const mlx_array, const mlx_array, int, const mlx_array, const mlx_array, const mlx_array, const mlx_stream)
#define MLXC_GATHER_MM (mlx_array *, const mlx_array, const mlx_array, const mlx_array, const mlx_array, bool, const mlx_stream)
#define MLXC_CONV2D (mlx_array *, const mlx_array, const mlx_array, int, int, int, int, int, int, int, const mlx_stream)
#define MLXC_CONV3D (mlx_array *, const mlx_array, const mlx_array, int, int, int, int, int, int, int, int, int, int, const mlx_stream)
#define MLXC_CONV_GENERAL (mlx_array *, const mlx_array, const mlx_array, const int *, size_t, const int *, size_t, const int *, size_t, const int *, size_t, const int *, size_t, int, bool, const mlx_stream)
#define MLXC_CONV_TRANSPOSE1D (mlx_array *, const mlx_array, const mlx_array, int, int, int, int, int, const mlx_stream)
#define MLXC_CONV_TRANSPOSE2D (mlx_array *, const mlx_array, const mlx_array, int, int, int, int, int, int, int, int, int, const mlx_stream)
#define MLXC_CONV_TRANSPOSE3D (mlx_array *, const mlx_array, const mlx_array, int, int, int, int, int, int, int, int, int, int, int, int, int, const mlx_stream)
#define MLXC_FFT (mlx_array *, const mlx_array, int, int, mlx_fft_norm, const mlx_stream)
#define MLXC_FFTN (mlx_array *, const mlx_array, const int *, size_t, const int *, size_t, mlx_fft_norm, const mlx_stream)
#define MLXC_TEXT (mlx_array *, const mlx_array, const char *, const mlx_stream)
#define MLXC_NORM (mlx_array *, const mlx_array, double, const int *, size_t, bool, const mlx_stream)
#define MLXC_NORM_MATRIX (mlx_array *, const mlx_array, const char *, const int *, size_t, bool, const mlx_stream)
#define MLXC_RANDOM_KEY (mlx_array *, uint64_t)
#define MLXC_RANDOM_RANGE (mlx_array *, const mlx_array, const mlx_array, const int *, size_t, mlx_dtype, const mlx_array, const mlx_stream)
#define MLXC_RANDOM_SCALED (mlx_array *, const int *, size_t, mlx_dtype, float, float, const mlx_array, const mlx_stream)
#define MLXC_RANDOM_PLAIN (mlx_array *, const int *, size_t, mlx_dtype, const mlx_array, const mlx_stream)
#define MLXC_RANDOM_BITS (mlx_array *, const int *, size_t, int, const mlx_array, const mlx_stream)
#define MLXC_RANDOM_SHAPE (mlx_array *, const mlx_array, const int *, size_t, const mlx_array, const mlx_stream)
#define MLXC_RANDOM_AXIS (mlx_array *, const mlx_array, int, const mlx_array, const mlx_stream)
#define MLXC_RANDOM_AXIS_SHAPE (mlx_array *, const mlx_array, int, const int *, size_t, const mlx_array, const mlx_stream)
#define MLXC_RANDOM_INT (mlx_array *, int, const mlx_array, const mlx_stream)
#define MLXC_DEQUANTIZE (mlx_array *, const mlx_array, const mlx_array, const mlx_array, mlx_optional_int, mlx_optional_int, const char *, const mlx_array, mlx_optional_dtype, const mlx_stream)
#define MLXC_QUANTIZED_MATMUL (mlx_array *, const mlx_array, const mlx_array, const mlx_array, const mlx_array, bool, mlx_optional_int, mlx_optional_int, const char *, const mlx_stream)
#define MLXC_GATHER_QMM (mlx_array *, const mlx_array, const mlx_array, const mlx_array, const mlx_array, const mlx_array, const mlx_array, bool, mlx_optional_int, mlx_optional_int, const char *, bool, const mlx_stream)
#define MLXC_QQMM (mlx_array *, const mlx_array, const mlx_array, const mlx_array, mlx_optional_int, mlx_optional_int, const char *, const mlx_array, const mlx_array, const mlx_stream)
#define MLXC_GATHER_QQMM (mlx_array *, const mlx_array, const mlx_array, const mlx_array, const mlx_array, const mlx_array, mlx_optional_int, mlx_optional_int, const char *, const mlx_array, const mlx_array, bool, const mlx_stream)
#define MLXC_PAIR (mlx_array *, mlx_array *, const mlx_array, const mlx_stream)
#define MLXC_PAIR_TEXT (mlx_array *, mlx_array *, const mlx_array, const char *, const mlx_stream)
#define MLXC_MANY (mlx_vector_array *, const mlx_array, const mlx_stream)
#define MLXC_MANY_INT (mlx_vector_array *, const mlx_array, int, const mlx_stream)
#define MLXC_MANY_BOOL (mlx_vector_array *, const mlx_array, bool, const mlx_stream)
#define MLXC_MANY_VECTOR (mlx_vector_array *, const mlx_vector_array, const mlx_stream)
#define MLXC_MESHGRID (mlx_vector_array *, const mlx_vector_array, bool, const char *, const mlx_stream)
#define MLXC_QUANTIZE (mlx_vector_array *, const mlx_array, mlx_optional_int, mlx_optional_int, const char *, const mlx_array, const mlx_stream)

// The operations of ops.c, and more of the classes above.
#define MLXC_OPS(F) \
  F(int, mlx_arccos, MLXC_UNARY) \
  F(int, mlx_arccosh, MLXC_UNARY) \
  F(int, mlx_arcsin, MLXC_UNARY) \
  F(int, mlx_arcsinh, MLXC_UNARY) \
  F(int, mlx_arctan, MLXC_UNARY) \
  F(int, mlx_arctanh, MLXC_UNARY) \
  F(int, mlx_atleast_1d, MLXC_UNARY) \
  F(int, mlx_atleast_2d, MLXC_UNARY) \
  F(int, mlx_atleast_3d, MLXC_UNARY) \
  F(int, mlx_bitwise_invert, MLXC_UNARY) \
  F(int, mlx_ceil, MLXC_UNARY) \
  F(int, mlx_conjugate, MLXC_UNARY) \
  F(int, mlx_cosh, MLXC_UNARY) \
  F(int, mlx_degrees, MLXC_UNARY) \
  F(int, mlx_erfinv, MLXC_UNARY) \
  F(int, mlx_expm1, MLXC_UNARY) \
  F(int, mlx_floor, MLXC_UNARY) \
  F(int, mlx_imag, MLXC_UNARY) \
  F(int, mlx_isinf, MLXC_UNARY) \
  F(int, mlx_isneginf, MLXC_UNARY) \
  F(int, mlx_isposinf, MLXC_UNARY) \
  F(int, mlx_log10, MLXC_UNARY) \
  F(int, mlx_log2, MLXC_UNARY) \
  F(int, mlx_ones_like, MLXC_UNARY) \
  F(int, mlx_radians, MLXC_UNARY) \
  F(int, mlx_real, MLXC_UNARY) \
  F(int, mlx_reciprocal, MLXC_UNARY) \
  F(int, mlx_sign, MLXC_UNARY) \
  F(int, mlx_sinh, MLXC_UNARY) \
  F(int, mlx_stop_gradient, MLXC_UNARY) \
  F(int, mlx_tan, MLXC_UNARY) \
  F(int, mlx_to_fp8, MLXC_UNARY) \
  F(int, mlx_trunc, MLXC_UNARY) \
  F(int, mlx_zeros_like, MLXC_UNARY) \
  F(int, mlx_linalg_det, MLXC_UNARY) \
  F(int, mlx_linalg_eigvals, MLXC_UNARY) \
  F(int, mlx_linalg_inv, MLXC_UNARY) \
  F(int, mlx_linalg_pinv, MLXC_UNARY) \
  F(int, mlx_arctan2, MLXC_BINARY) \
  F(int, mlx_bitwise_and, MLXC_BINARY) \
  F(int, mlx_bitwise_or, MLXC_BINARY) \
  F(int, mlx_bitwise_xor, MLXC_BINARY) \
  F(int, mlx_inner, MLXC_BINARY) \
  F(int, mlx_kron, MLXC_BINARY) \
  F(int, mlx_left_shift, MLXC_BINARY) \
  F(int, mlx_logical_xor, MLXC_BINARY) \
  F(int, mlx_outer, MLXC_BINARY) \
  F(int, mlx_right_shift, MLXC_BINARY) \
  F(int, mlx_linalg_solve, MLXC_BINARY) \
  F(int, mlx_fast_cross_entropy, MLXC_BINARY) \
  F(int, mlx_diag, MLXC_INT) \
  F(int, mlx_round, MLXC_INT) \
  F(int, mlx_tril, MLXC_INT) \
  F(int, mlx_triu, MLXC_INT) \
  F(int, mlx_random_split_num, MLXC_INT) \
  F(int, mlx_diff, MLXC_INT2) \
  F(int, mlx_moveaxis, MLXC_INT2) \
  F(int, mlx_partition_axis, MLXC_INT2) \
  F(int, mlx_diagonal, MLXC_INT3) \
  F(int, mlx_count_nonzero, MLXC_BOOL) \
  F(int, mlx_median, MLXC_BOOL) \
  F(int, mlx_linalg_cholesky, MLXC_BOOL) \
  F(int, mlx_linalg_cholesky_inv, MLXC_BOOL) \
  F(int, mlx_linalg_tri_inv, MLXC_BOOL) \
  F(int, mlx_flip_axes, MLXC_INTS) \
  F(int, mlx_tile, MLXC_INTS) \
  F(int, mlx_fft_fftshift, MLXC_INTS) \
  F(int, mlx_fft_ifftshift, MLXC_INTS) \
  F(int, mlx_count_nonzero_axes, MLXC_INTS_BOOL) \
  F(int, mlx_median_axes, MLXC_INTS_BOOL) \
  F(int, mlx_from_fp8, MLXC_DTYPE) \
  F(int, mlx_view, MLXC_DTYPE) \
  F(int, mlx_vecdot, MLXC_BINARY_INT) \
  F(int, mlx_linalg_cross, MLXC_BINARY_INT) \
  F(int, mlx_linalg_solve_triangular, MLXC_BINARY_BOOL) \
  F(int, mlx_masked_scatter, MLXC_TERNARY) \
  F(int, mlx_segmented_mm, MLXC_TERNARY) \
  F(int, mlx_put_along_axis, MLXC_TERNARY_INT) \
  F(int, mlx_scatter_add_axis, MLXC_TERNARY_INT) \
  F(int, mlx_slice_update_add, MLXC_SLICE_UPDATE) \
  F(int, mlx_slice_update_max, MLXC_SLICE_UPDATE) \
  F(int, mlx_slice_update_min, MLXC_SLICE_UPDATE) \
  F(int, mlx_slice_update_prod, MLXC_SLICE_UPDATE) \
  F(int, mlx_as_strided, MLXC_AS_STRIDED) \
  F(int, mlx_eye, MLXC_TRI) \
  F(int, mlx_tri, MLXC_TRI) \
  F(int, mlx_identity, MLXC_IDENTITY) \
  F(int, mlx_linspace_endpoint, MLXC_LINSPACE) \
  F(int, mlx_bartlett, MLXC_WINDOW) \
  F(int, mlx_blackman, MLXC_WINDOW) \
  F(int, mlx_hamming, MLXC_WINDOW) \
  F(int, mlx_hanning, MLXC_WINDOW) \
  F(int, mlx_fft_fftfreq, MLXC_FREQUENCIES) \
  F(int, mlx_fft_rfftfreq, MLXC_FREQUENCIES) \
  F(int, mlx_full_like, MLXC_FULL_LIKE) \
  F(int, mlx_pad, MLXC_PAD) \
  F(int, mlx_roll_axes, MLXC_INTS_INTS) \
  F(int, mlx_unflatten, MLXC_INT_INTS) \
  F(int, mlx_gather, MLXC_GATHER) \
  F(int, mlx_scatter, MLXC_SCATTER) \
  F(int, mlx_scatter_add, MLXC_SCATTER) \
  F(int, mlx_scatter_max, MLXC_SCATTER) \
  F(int, mlx_scatter_min, MLXC_SCATTER) \
  F(int, mlx_scatter_prod, MLXC_SCATTER) \
  F(int, mlx_allclose, MLXC_CLOSE) \
  F(int, mlx_isclose, MLXC_CLOSE) \
  F(int, mlx_nan_to_num, MLXC_NAN_TO_NUM) \
  F(int, mlx_searchsorted, MLXC_SEARCHSORTED) \
  F(int, mlx_cummax_axis, MLXC_ORDERED_SCAN) \
  F(int, mlx_cummin_axis, MLXC_ORDERED_SCAN) \
  F(int, mlx_logcumsumexp_axis, MLXC_ORDERED_SCAN) \
  F(int, mlx_std, MLXC_BOOL_INT) \
  F(int, mlx_var, MLXC_BOOL_INT) \
  F(int, mlx_std_axes, MLXC_INTS_BOOL_INT) \
  F(int, mlx_var_axes, MLXC_INTS_BOOL_INT) \
  F(int, mlx_einsum, MLXC_EINSUM) \
  F(int, mlx_tensordot, MLXC_TENSORDOT) \
  F(int, mlx_hadamard_transform, MLXC_HADAMARD) \
  F(int, mlx_block_masked_mm, MLXC_BLOCK_MASKED_MM) \
  F(int, mlx_gather_mm, MLXC_GATHER_MM) \
  F(int, mlx_conv2d, MLXC_CONV2D) \
  F(int, mlx_conv3d, MLXC_CONV3D) \
  F(int, mlx_conv_general, MLXC_CONV_GENERAL) \
  F(int, mlx_conv_transpose1d, MLXC_CONV_TRANSPOSE1D) \
  F(int, mlx_conv_transpose2d, MLXC_CONV_TRANSPOSE2D) \
  F(int, mlx_conv_transpose3d, MLXC_CONV_TRANSPOSE3D) \
  F(int, mlx_fft_fft, MLXC_FFT) \
  F(int, mlx_fft_ifft, MLXC_FFT) \
  F(int, mlx_fft_rfft, MLXC_FFT) \
  F(int, mlx_fft_irfft, MLXC_FFT) \
  F(int, mlx_fft_fftn, MLXC_FFTN) \
  F(int, mlx_fft_ifftn, MLXC_FFTN) \
  F(int, mlx_fft_rfftn, MLXC_FFTN) \
  F(int, mlx_fft_irfftn, MLXC_FFTN) \
  F(int, mlx_linalg_eigvalsh, MLXC_TEXT) \
  F(int, mlx_linalg_norm, MLXC_NORM) \
  F(int, mlx_linalg_norm_matrix, MLXC_NORM_MATRIX) \
  F(int, mlx_linalg_norm_l2, MLXC_INTS_BOOL) \
  F(int, mlx_random_key, MLXC_RANDOM_KEY) \
  F(int, mlx_random_uniform, MLXC_RANDOM_RANGE) \
  F(int, mlx_random_randint, MLXC_RANDOM_RANGE) \
  F(int, mlx_random_truncated_normal, MLXC_RANDOM_RANGE) \
  F(int, mlx_random_multivariate_normal, MLXC_RANDOM_RANGE) \
  F(int, mlx_random_normal, MLXC_RANDOM_SCALED) \
  F(int, mlx_random_laplace, MLXC_RANDOM_SCALED) \
  F(int, mlx_random_gumbel, MLXC_RANDOM_PLAIN) \
  F(int, mlx_random_bits, MLXC_RANDOM_BITS) \
  F(int, mlx_random_bernoulli, MLXC_RANDOM_SHAPE) \
  F(int, mlx_random_categorical, MLXC_RANDOM_AXIS) \
  F(int, mlx_random_permutation, MLXC_RANDOM_AXIS) \
  F(int, mlx_random_categorical_shape, MLXC_RANDOM_AXIS_SHAPE) \
  F(int, mlx_random_permutation_arange, MLXC_RANDOM_INT) \
  F(int, mlx_dequantize, MLXC_DEQUANTIZE) \
  F(int, mlx_quantized_matmul, MLXC_QUANTIZED_MATMUL) \
  F(int, mlx_gather_qmm, MLXC_GATHER_QMM) \
  F(int, mlx_qqmm, MLXC_QQMM) \
  F(int, mlx_gather_qqmm, MLXC_GATHER_QQMM) \
  F(int, mlx_linalg_eig, MLXC_PAIR) \
  F(int, mlx_linalg_lu_factor, MLXC_PAIR) \
  F(int, mlx_linalg_qr, MLXC_PAIR) \
  F(int, mlx_linalg_slogdet, MLXC_PAIR) \
  F(int, mlx_linalg_eigh, MLXC_PAIR_TEXT) \
  F(int, mlx_linalg_lu, MLXC_MANY) \
  F(int, mlx_unstack_axis, MLXC_MANY_INT) \
  F(int, mlx_linalg_svd, MLXC_MANY_BOOL) \
  F(int, mlx_broadcast_arrays, MLXC_MANY_VECTOR) \
  F(int, mlx_meshgrid, MLXC_MESHGRID) \
  F(int, mlx_quantize, MLXC_QUANTIZE)

#define MLXC_GROUP (mlx_array *, const mlx_array, const mlx_distributed_group, const mlx_stream)
#define MLXC_INT_GROUP (mlx_array *, const mlx_array, int, const mlx_distributed_group, const mlx_stream)

// What is no operation: functions of arrays, kernels, streams, devices, files, groups. objects.c calls these.
#define MLXC_OBJECTS(F) \
  /* functions */ \
  F(mlx_closure, mlx_closure_new_func_payload, (int (*)(mlx_vector_array *, const mlx_vector_array, void *), void *, void (*)(void *))) \
  F(int, mlx_closure_free, (mlx_closure)) \
  F(int, mlx_closure_apply, (mlx_vector_array *, mlx_closure, const mlx_vector_array)) \
  F(mlx_closure_custom, mlx_closure_custom_new_func_payload, (int (*)(mlx_vector_array *, const mlx_vector_array, const mlx_vector_array, const mlx_vector_array, void *), void *, void (*)(void *))) \
  F(int, mlx_closure_custom_free, (mlx_closure_custom)) \
  F(mlx_closure_custom_jvp, mlx_closure_custom_jvp_new_func_payload, (int (*)(mlx_vector_array *, const mlx_vector_array, const mlx_vector_array, const int *, size_t, void *), void *, void (*)(void *))) \
  F(int, mlx_closure_custom_jvp_free, (mlx_closure_custom_jvp)) \
  F(int, mlx_closure_value_and_grad_free, (mlx_closure_value_and_grad)) \
  F(int, mlx_closure_value_and_grad_apply, (mlx_vector_array *, mlx_vector_array *, mlx_closure_value_and_grad, const mlx_vector_array)) \
  F(int, mlx_value_and_grad, (mlx_closure_value_and_grad *, const mlx_closure, const int *, size_t)) \
  F(int, mlx_vjp, (mlx_vector_array *, mlx_vector_array *, const mlx_closure, const mlx_vector_array, const mlx_vector_array)) \
  F(int, mlx_jvp, (mlx_vector_array *, mlx_vector_array *, const mlx_closure, const mlx_vector_array, const mlx_vector_array)) \
  F(int, mlx_checkpoint, (mlx_closure *, const mlx_closure)) \
  F(int, mlx_custom_function, (mlx_closure *, const mlx_closure, const mlx_closure_custom, const mlx_closure_custom_jvp, const mlx_closure_custom_vmap)) \
  F(int, mlx_compile, (mlx_closure *, const mlx_closure, bool)) \
  F(int, mlx_set_compile_mode, (mlx_compile_mode)) \
  F(int, mlx_vector_array_set_data, (mlx_vector_array *, const mlx_array *, size_t)) \
  /* kernels */ \
  F(mlx_vector_string, mlx_vector_string_new, (void)) \
  F(int, mlx_vector_string_append_value, (mlx_vector_string, const char *)) \
  F(size_t, mlx_vector_string_size, (mlx_vector_string)) \
  F(int, mlx_vector_string_get, (char **, const mlx_vector_string, size_t)) \
  F(int, mlx_vector_string_free, (mlx_vector_string)) \
  F(mlx_fast_metal_kernel, mlx_fast_metal_kernel_new, (const char *, const mlx_vector_string, const mlx_vector_string, const char *, const char *, bool, bool)) \
  F(void, mlx_fast_metal_kernel_free, (mlx_fast_metal_kernel)) \
  F(int, mlx_fast_metal_kernel_apply, (mlx_vector_array *, mlx_fast_metal_kernel, const mlx_vector_array, const mlx_fast_metal_kernel_config, const mlx_stream)) \
  F(mlx_fast_metal_kernel_config, mlx_fast_metal_kernel_config_new, (void)) \
  F(void, mlx_fast_metal_kernel_config_free, (mlx_fast_metal_kernel_config)) \
  F(int, mlx_fast_metal_kernel_config_add_output_arg, (mlx_fast_metal_kernel_config, const int *, size_t, mlx_dtype)) \
  F(int, mlx_fast_metal_kernel_config_set_grid, (mlx_fast_metal_kernel_config, int, int, int)) \
  F(int, mlx_fast_metal_kernel_config_set_thread_group, (mlx_fast_metal_kernel_config, int, int, int)) \
  F(int, mlx_fast_metal_kernel_config_set_init_value, (mlx_fast_metal_kernel_config, float)) \
  F(int, mlx_fast_metal_kernel_config_add_template_arg_dtype, (mlx_fast_metal_kernel_config, const char *, mlx_dtype)) \
  F(int, mlx_fast_metal_kernel_config_add_template_arg_int, (mlx_fast_metal_kernel_config, const char *, int)) \
  F(int, mlx_fast_metal_kernel_config_add_template_arg_bool, (mlx_fast_metal_kernel_config, const char *, bool)) \
  F(mlx_fast_cuda_kernel, mlx_fast_cuda_kernel_new, (const char *, const mlx_vector_string, const mlx_vector_string, const char *, const char *, bool, int)) \
  F(void, mlx_fast_cuda_kernel_free, (mlx_fast_cuda_kernel)) \
  F(int, mlx_fast_cuda_kernel_apply, (mlx_vector_array *, mlx_fast_cuda_kernel, const mlx_vector_array, const mlx_fast_cuda_kernel_config, const mlx_stream)) \
  F(mlx_fast_cuda_kernel_config, mlx_fast_cuda_kernel_config_new, (void)) \
  F(void, mlx_fast_cuda_kernel_config_free, (mlx_fast_cuda_kernel_config)) \
  F(int, mlx_fast_cuda_kernel_config_add_output_arg, (mlx_fast_cuda_kernel_config, const int *, size_t, mlx_dtype)) \
  F(int, mlx_fast_cuda_kernel_config_set_grid, (mlx_fast_cuda_kernel_config, int, int, int)) \
  F(int, mlx_fast_cuda_kernel_config_set_thread_group, (mlx_fast_cuda_kernel_config, int, int, int)) \
  F(int, mlx_fast_cuda_kernel_config_set_init_value, (mlx_fast_cuda_kernel_config, float)) \
  F(int, mlx_fast_cuda_kernel_config_add_template_arg_dtype, (mlx_fast_cuda_kernel_config, const char *, mlx_dtype)) \
  F(int, mlx_fast_cuda_kernel_config_add_template_arg_int, (mlx_fast_cuda_kernel_config, const char *, int)) \
  F(int, mlx_fast_cuda_kernel_config_add_template_arg_bool, (mlx_fast_cuda_kernel_config, const char *, bool)) \
  /* memory, streams, devices */ \
  F(mlx_array, mlx_array_new_data_managed_payload, (void *, const int *, int, mlx_dtype, void *, void (*)(void *))) \
  F(int, mlx_get_memory_limit, (size_t *)) \
  F(int, mlx_set_wired_limit, (size_t *, size_t)) \
  F(mlx_stream, mlx_stream_new_device, (mlx_device)) \
  F(int, mlx_stream_get_index, (int *, mlx_stream)) \
  F(int, mlx_device_count, (int *, mlx_device_type)) \
  F(mlx_device_info, mlx_device_info_new, (void)) \
  F(int, mlx_device_info_get, (mlx_device_info *, mlx_device)) \
  F(int, mlx_device_info_free, (mlx_device_info)) \
  F(int, mlx_device_info_is_string, (bool *, mlx_device_info, const char *)) \
  F(int, mlx_device_info_get_string, (const char **, mlx_device_info, const char *)) \
  F(int, mlx_device_info_get_size, (size_t *, mlx_device_info, const char *)) \
  F(int, mlx_device_info_get_keys, (mlx_vector_string *, mlx_device_info)) \
  /* files */ \
  F(mlx_io_reader, mlx_io_reader_new, (void *, mlx_io_vtable)) \
  F(int, mlx_io_reader_free, (mlx_io_reader)) \
  F(mlx_io_writer, mlx_io_writer_new, (void *, mlx_io_vtable)) \
  F(int, mlx_io_writer_free, (mlx_io_writer)) \
  F(int, mlx_load, (mlx_array *, const char *, const mlx_stream)) \
  F(int, mlx_load_reader, (mlx_array *, mlx_io_reader, const mlx_stream)) \
  F(int, mlx_save_writer, (mlx_io_writer, const mlx_array)) \
  F(int, mlx_load_safetensors_reader, (mlx_map_string_to_array *, mlx_map_string_to_string *, mlx_io_reader, const mlx_stream)) \
  F(int, mlx_load_gguf, (mlx_io_gguf *, const char *, const mlx_stream)) \
  F(int, mlx_save_gguf, (const char *, mlx_io_gguf)) \
  F(mlx_io_gguf, mlx_io_gguf_new, (void)) \
  F(int, mlx_io_gguf_free, (mlx_io_gguf)) \
  F(int, mlx_io_gguf_get_keys, (mlx_vector_string *, mlx_io_gguf)) \
  F(int, mlx_io_gguf_get_array, (mlx_array *, mlx_io_gguf, const char *)) \
  F(int, mlx_io_gguf_has_metadata_array, (bool *, mlx_io_gguf, const char *)) \
  F(int, mlx_io_gguf_get_metadata_array, (mlx_array *, mlx_io_gguf, const char *)) \
  F(int, mlx_io_gguf_has_metadata_string, (bool *, mlx_io_gguf, const char *)) \
  F(int, mlx_io_gguf_get_metadata_string, (mlx_string *, mlx_io_gguf, const char *)) \
  F(int, mlx_io_gguf_has_metadata_vector_string, (bool *, mlx_io_gguf, const char *)) \
  F(int, mlx_io_gguf_get_metadata_vector_string, (mlx_vector_string *, mlx_io_gguf, const char *)) \
  F(int, mlx_io_gguf_set_array, (mlx_io_gguf, const char *, const mlx_array)) \
  F(int, mlx_io_gguf_set_metadata_array, (mlx_io_gguf, const char *, const mlx_array)) \
  F(int, mlx_io_gguf_set_metadata_string, (mlx_io_gguf, const char *, const char *)) \
  F(int, mlx_io_gguf_set_metadata_vector_string, (mlx_io_gguf, const char *, const mlx_vector_string)) \
  /* groups of processes */ \
  F(int, mlx_distributed_init, (mlx_distributed_group *, bool, const char *)) \
  F(int, mlx_distributed_group_free, (mlx_distributed_group)) \
  F(int, mlx_distributed_group_rank, (mlx_distributed_group)) \
  F(int, mlx_distributed_group_size, (mlx_distributed_group)) \
  F(int, mlx_distributed_group_split, (mlx_distributed_group *, mlx_distributed_group, int, int)) \
  F(bool, mlx_distributed_is_available, (const char *)) \
  F(int, mlx_distributed_all_gather, MLXC_GROUP) \
  F(int, mlx_distributed_all_max, MLXC_GROUP) \
  F(int, mlx_distributed_all_min, MLXC_GROUP) \
  F(int, mlx_distributed_all_sum, MLXC_GROUP) \
  F(int, mlx_distributed_sum_scatter, MLXC_GROUP) \
  F(int, mlx_distributed_send, MLXC_INT_GROUP) \
  F(int, mlx_distributed_recv_like, MLXC_INT_GROUP) \
  F(int, mlx_distributed_recv, (mlx_array *, const int *, size_t, mlx_dtype, int, const mlx_distributed_group, const mlx_stream))

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
  MLXC_OPS(F) \
  MLXC_OBJECTS(F) \
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
  F(int, mlx_slice, MLXC_SLICE) \
  F(int, mlx_slice_dynamic, (mlx_array *, const mlx_array, const mlx_array, const int *, size_t, const int *, size_t, const mlx_stream)) \
  F(int, mlx_slice_update, MLXC_SLICE_UPDATE) \
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
