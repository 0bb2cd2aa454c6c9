package mlx_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/dist"
	"github.com/godflash/godflash/internal/mlxc"
)

var (
	comments    = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	directives  = regexp.MustCompile(`(?m)^\s*#.*$`)
	declaration = regexp.MustCompile(`\b(_?mlx_\w+)\s*\([^;{}]*\)\s*;`)
	listed      = regexp.MustCompile(`F\([^,]+, (_?mlx_\w+),`)
	tableRow    = regexp.MustCompile(`(?m)^\| (_?mlx_\w+) \| (.*) \|$`)
)

func names(re *regexp.Regexp, text string) []string {
	var list []string
	for _, m := range re.FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// docs/mlx-coverage.md says of every function of mlx-c whether it is bound, and why not.
func TestCoverageTable(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "mlx-coverage.md"))
	require.NoError(t, err)
	var bound, all []string
	methods := map[string]bool{}
	for _, row := range tableRow.FindAllStringSubmatch(string(text), -1) {
		require.NotContains(t, all, row[1], "twice in the table")
		all = append(all, row[1])
		why, not := strings.CutPrefix(row[2], "not bound: ")
		if !not {
			bound = append(bound, row[1])
			for _, m := range strings.Split(row[2], ", ") {
				methods[strings.Trim(m, "`")] = true
			}
		} else {
			require.NotEmpty(t, why, row[1])
		}
	}
	slices.Sort(bound)
	slices.Sort(all)
	require.Equal(t, names(listed, mlxc.Header), bound, "internal/mlxc/mlxc.h and the table")
	require.True(t, methods["MatMul"] && methods["Library.Memory"], "methods")

	include := os.Getenv("GODFLASH_MLXC_INCLUDE")
	for _, b := range dist.Backends() {
		if dir, err := dist.Include(b); err == nil && include == "" {
			include = dir
		}
	}
	if include == "" {
		t.Skip("mlx-c's headers are not here: run make native, or set GODFLASH_MLXC_INCLUDE to the folder that holds mlx/c/mlx.h")
	}
	headers, err := filepath.Glob(filepath.Join(include, "mlx", "c", "*.h"))
	require.NoError(t, err)
	require.NotEmpty(t, headers)
	var declared []string
	for _, path := range headers {
		h, err := os.ReadFile(path)
		require.NoError(t, err)
		declared = append(declared, names(declaration, directives.ReplaceAllString(comments.ReplaceAllString(string(h), ""), ""))...)
	}
	slices.Sort(declared)
	require.Greater(t, len(declared), 600)
	require.Equal(t, slices.Compact(declared), all, "mlx-c's headers and the table")
}
