package mlx

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// mlx-c uses error texts, paths in them included, as printf formats. The header
// check before it leaves few errors to it, so this is seen from inside only.
func TestPlainPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "100%n.bin")
	require.NoError(t, os.WriteFile(path, []byte("data"), 0o600))
	plain, done, err := plainPath(path)
	require.NoError(t, err)
	require.NotContains(t, plain, "%")
	data, err := os.ReadFile(plain)
	require.NoError(t, err)
	require.Equal(t, "data", string(data))
	done()

	plain, done, err = plainPath("/a/b")
	require.NoError(t, err)
	require.Equal(t, "/a/b", plain)
	done()
	_, _, err = plainPath("/no/such/%")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestCleanMessage(t *testing.T) {
	require.Equal(t, "[add] look at this", cleanMessage("[add] look at this at /build/ops.cpp:12"))
	require.Equal(t, "[add] at last", cleanMessage("[add] at last"))
}

func TestCompareVersions(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"0.32.2", "0.32.2", 0},
		{"0.32.10", "0.32.2", 1},
		{"0.31.9", "0.32.2", -1},
		{"1.0", "0.32.2", 1},
		{"0.32", "0.32.2", -1},
		{"0.32.2.dev20261101+abc", "0.32.2", 0},
		{"", "0.32.2", -1},
	} {
		require.Equal(t, c.want, compareVersions(c.a, c.b), "%s against %s", c.a, c.b)
	}
}

// Every operation must be one that resolveOps accepts; the names are unique per C function.
func TestOperationTable(t *testing.T) {
	seen := map[string]string{}
	for _, o := range ops[1:] {
		require.NotEmpty(t, o.name)
		if o.class == "" {
			continue
		}
		require.Empty(t, seen[o.c], "%s is declared for %s and %s", o.c, seen[o.c], o.name)
		seen[o.c] = o.name
	}
	require.Greater(t, len(seen), 80)
}
