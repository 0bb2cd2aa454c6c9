package abicheck

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/dist"
	"github.com/godflash/godflash/internal/mlxc"
)

// include finds mlx-c's headers: GODFLASH_MLXC_INCLUDE, else an installed build.
func include(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("GODFLASH_MLXC_INCLUDE"); dir != "" {
		return dir
	}
	for _, b := range dist.Backends() {
		if dir, err := dist.Include(b); err == nil {
			return dir
		}
	}
	t.Skip("mlx-c's headers are not here: run make native, or set GODFLASH_MLXC_INCLUDE to the folder that holds mlx/c/mlx.h")
	return ""
}

func TestHeadersAgree(t *testing.T) {
	require.NoError(t, Run(include(t)))
}

// Every kind of drift must be seen, or the check is worth nothing.
func TestPlantedFaultsAreFound(t *testing.T) {
	dir := include(t)
	for name, c := range map[string]struct{ old, new, says string }{
		"a parameter's type":    {"F(int, mlx_arange, (mlx_array *, double,", "F(int, mlx_arange, (mlx_array *, float,", "mlx_arange"},
		"a parameter less":      {"const mlx_array, const mlx_array, bool, const mlx_stream))\n\n#endif", "const mlx_array, const mlx_array, const mlx_stream))\n\n#endif", "mlx_fast_scaled_dot_product_attention"},
		"a signature class":     {"F(int, mlx_where, MLXC_TERNARY)", "F(int, mlx_where, MLXC_BINARY)", "mlx_where"},
		"a class itself":        {"#define MLXC_INT2 (mlx_array *, const mlx_array, int, int,", "#define MLXC_INT2 (mlx_array *, const mlx_array, int, long,", "mlx_swapaxes"},
		"a result":              {"F(size_t, mlx_array_ndim,", "F(int, mlx_array_ndim,", "mlx_array_ndim"},
		"a function that is no": {"F(int, mlx_exp, MLXC_UNARY)", "F(int, mlx_exponential, MLXC_UNARY)", "mlx_exponential"},
		"an order of dtypes":    {"MLX_FLOAT16, MLX_FLOAT32,", "MLX_FLOAT32, MLX_FLOAT16,", "numbers of mlx_dtype"},
		"a struct":              {"{ float value; bool has_value; }", "{ double value; bool has_value; }", "mlx_optional_float"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, 1, strings.Count(mlxc.Header, c.old), "the text to change must be there once")
			err := check(strings.Replace(mlxc.Header, c.old, c.new, 1), dir)
			require.ErrorIs(t, err, ErrMismatch)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestMissingParts(t *testing.T) {
	empty := t.TempDir()
	err := Run(empty)
	require.ErrorIs(t, err, os.ErrNotExist)

	require.NoError(t, os.MkdirAll(filepath.Join(empty, "mlx", "c"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(empty, "mlx", "c", "mlx.h"), nil, 0o600))
	t.Setenv("PATH", t.TempDir())
	t.Setenv("CC", "")
	require.ErrorContains(t, Run(empty), "no C compiler found")
}
