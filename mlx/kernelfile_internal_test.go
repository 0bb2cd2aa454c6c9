package mlx

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/dist"
)

func TestKernelFiles(t *testing.T) {
	root := t.TempDir()
	t.Setenv(dist.RootEnv, root)
	source := "o[0] = x_shape[0] + y_ndim;\n" + strings.Repeat("o[1] += 1;\n", 100)
	header := strings.Repeat("#define A 1\n", 100)
	path := func(line string) string {
		p := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), `#include "`), `"`)
		require.Equal(t, filepath.Join(root, "kernels"), filepath.Dir(p))
		return p
	}

	s, h := included(source, header, []string{"x", "y", "z"})
	mentioned, line, _ := strings.Cut(s, "\n")
	require.Equal(t, "// x_shape y_ndim", mentioned, "MLX looks for these words in the source")
	require.Less(t, len(s)+len(h), 2*shortText+2*len(root))
	for want, at := range map[string]string{source: path(line), header: path(h)} {
		have, err := os.ReadFile(at)
		require.NoError(t, err)
		require.Equal(t, want, string(have))
	}

	t.Run("again", func(t *testing.T) {
		before, err := os.Stat(path(h))
		require.NoError(t, err)
		s2, h2 := included(source, header, []string{"x", "y", "z"})
		require.Equal(t, []string{s, h}, []string{s2, h2})
		after, err := os.Stat(path(h))
		require.NoError(t, err)
		require.True(t, os.SameFile(before, after), "what is right is not written again")
	})
	t.Run("a file that was changed", func(t *testing.T) {
		require.NoError(t, os.WriteFile(path(h), []byte("#error"), 0o600))
		included(source, header, nil)
		have, err := os.ReadFile(path(h))
		require.NoError(t, err)
		require.Equal(t, header, string(have))
	})
	t.Run("other texts, other files", func(t *testing.T) {
		_, other := included(source, header+"#define B 1\n", nil)
		require.NotEqual(t, h, other)
	})
	t.Run("short", func(t *testing.T) {
		s, h := included("o[0] = x_shape[0];", "#define A 1\n", []string{"x"})
		require.Equal(t, "// x_shape\no[0] = x_shape[0];", s)
		require.Equal(t, "#define A 1\n", h)
	})
	t.Run("nowhere to write", func(t *testing.T) {
		file := filepath.Join(root, "file")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		for _, dir := range []string{file, filepath.Join(root, `a"b`), filepath.Join(root, "a%sb"), filepath.Join(root, "a\nb")} {
			require.Equal(t, header, include(dir, header), dir)
		}
	})
	left, err := filepath.Glob(filepath.Join(root, "kernels", ".new-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}
