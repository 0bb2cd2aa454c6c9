// Package abicheck compares the prototypes in internal/mlxc/mlxc.h, through
// which godflash calls mlx-c, with mlx-c's own headers. The comparison is made
// by the C compiler: for every function a static assertion that mlx-c's
// declaration has exactly the type written in mlxc.h.
package abicheck

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/godflash/godflash/internal/mlxc"
)

// ErrMismatch: a prototype, an enumeration or a struct differs; the text is the compiler's.
var ErrMismatch = errors.New("mlxc.h does not agree with mlx-c's headers")

// source asserts the type of every function, and of what is passed by value:
// the numbers of the enumerations and the layout of the structs, which mlxc.h
// declares again.
const source = `#define MLXC_USE_REAL_HEADERS
#include "mlxc.h"
#define CHECK(result, name, params) \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&name), __typeof__(result (*) params)), "prototype of " #name);
MLXC_FUNCTIONS(CHECK)
`

const layout = `
#define HANDLE(type) _Static_assert(sizeof(type) == sizeof(void *) && offsetof(type, ctx) == 0, "layout of " #type);
HANDLE(mlx_array) HANDLE(mlx_stream) HANDLE(mlx_device) HANDLE(mlx_string) HANDLE(mlx_vector_array)
HANDLE(mlx_compile_cache) HANDLE(mlx_map_string_to_array) HANDLE(mlx_map_string_to_string)
HANDLE(mlx_closure) HANDLE(mlx_closure_custom) HANDLE(mlx_closure_custom_jvp) HANDLE(mlx_closure_custom_vmap)
HANDLE(mlx_closure_value_and_grad) HANDLE(mlx_vector_string) HANDLE(mlx_device_info) HANDLE(mlx_distributed_group)
HANDLE(mlx_io_reader) HANDLE(mlx_io_writer) HANDLE(mlx_io_gguf)
HANDLE(mlx_fast_cuda_kernel) HANDLE(mlx_fast_cuda_kernel_config) HANDLE(mlx_fast_metal_kernel) HANDLE(mlx_fast_metal_kernel_config)
#define SLOT(n, member, type) _Static_assert(offsetof(mlx_io_vtable, member) == n * sizeof(void *) && \
  __builtin_types_compatible_p(__typeof__(((mlx_io_vtable *)0)->member), type), "mlx_io_vtable." #member);
SLOT(0, is_open, bool (*)(void *)) SLOT(1, good, bool (*)(void *)) SLOT(2, tell, size_t (*)(void *))
SLOT(3, seek, int (*)(void *, int64_t, int)) SLOT(4, read, size_t (*)(void *, char *, size_t))
SLOT(5, read_at_offset, size_t (*)(void *, char *, size_t, size_t)) SLOT(6, write, size_t (*)(void *, const char *, size_t))
SLOT(7, label, const char *(*)(void *)) SLOT(8, free, void (*)(void *))
_Static_assert(sizeof(mlx_io_vtable) == 9 * sizeof(void *), "size of mlx_io_vtable");
_Static_assert(MLX_COMPILE_MODE_DISABLED == 0 && MLX_COMPILE_MODE_NO_SIMPLIFY == 1 && MLX_COMPILE_MODE_NO_FUSE == 2 &&
  MLX_COMPILE_MODE_ENABLED == 3, "numbers of mlx_compile_mode");
_Static_assert(sizeof(mlx_map_string_to_array_iterator) == 2 * sizeof(void *), "layout of mlx_map_string_to_array_iterator");
_Static_assert(offsetof(mlx_map_string_to_array_iterator, map_ctx) == sizeof(void *), "layout of mlx_map_string_to_array_iterator");
_Static_assert(sizeof(mlx_optional_float) == 8 && offsetof(mlx_optional_float, has_value) == 4, "layout of mlx_optional_float");
_Static_assert(sizeof(mlx_optional_dtype) == 8 && offsetof(mlx_optional_dtype, has_value) == 4, "layout of mlx_optional_dtype");
_Static_assert(__builtin_types_compatible_p(__typeof__(((mlx_optional_float *)0)->value), float), "type in mlx_optional_float");
_Static_assert(MLX_CPU == 0 && MLX_GPU == 1, "numbers of mlx_device_type");
_Static_assert(MLX_BOOL == 0 && MLX_UINT8 == 1 && MLX_UINT16 == 2 && MLX_UINT32 == 3 && MLX_UINT64 == 4 && MLX_INT8 == 5 &&
  MLX_INT16 == 6 && MLX_INT32 == 7 && MLX_INT64 == 8 && MLX_FLOAT16 == 9 && MLX_FLOAT32 == 10 && MLX_FLOAT64 == 11 &&
  MLX_BFLOAT16 == 12 && MLX_COMPLEX64 == 13, "numbers of mlx_dtype");
`

// Run checks mlxc.h against the headers in includeDir, the folder in which
// mlx/c/mlx.h lies. It needs a C compiler: $CC, else cc, gcc or clang. The error
// is ErrMismatch with the compiler's text when they differ, and says what is
// missing when the check could not be made.
func Run(includeDir string) error { return check(mlxc.Header, includeDir) }

func check(header, includeDir string) error {
	if _, err := os.Stat(filepath.Join(includeDir, "mlx", "c", "mlx.h")); err != nil {
		return fmt.Errorf("abicheck: mlx-c's headers: %w", err)
	}
	cc, err := compiler()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "abicheck")
	if err != nil {
		return fmt.Errorf("abicheck: %w", err)
	}
	defer os.RemoveAll(dir)
	// The same layout assertions must hold for mlxc.h's own declarations and for the real ones.
	files := map[string]string{
		"mlxc.h": header,
		"real.c": source + layout,
		"own.c":  "#include \"mlxc.h\"\n" + layout,
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("abicheck: %w", err)
		}
	}
	for _, name := range []string{"own.c", "real.c"} {
		cmd := exec.Command(cc[0], append(cc[1:], "-std=gnu11", "-fsyntax-only", "-I", includeDir, "-I", dir, filepath.Join(dir, name))...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
				return fmt.Errorf("abicheck: run %s: %w", cc[0], err)
			}
			return fmt.Errorf("abicheck: %w (%s):\n%s", ErrMismatch, includeDir, strings.TrimSpace(out.String()))
		}
	}
	return nil
}

func compiler() ([]string, error) {
	if cc := strings.Fields(os.Getenv("CC")); len(cc) > 0 {
		return cc, nil
	}
	for _, name := range []string{"cc", "gcc", "clang"} {
		if path, err := exec.LookPath(name); err == nil {
			return []string{path}, nil
		}
	}
	hint := "install gcc or clang"
	if runtime.GOOS == "darwin" {
		hint = "run xcode-select --install"
	}
	return nil, fmt.Errorf("abicheck: no C compiler found; %s, or set CC", hint)
}
