package dist_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/dist"
)

// install makes a small complete installation and returns its folder.
func install(t *testing.T, backend string) string {
	t.Helper()
	t.Setenv(dist.RootEnv, t.TempDir())
	dir, err := dist.Dir(backend)
	require.NoError(t, err)
	for _, f := range []string{"mlx/lib/" + dist.LibraryName(), "mlx/lib/libmlx.so", "mlx-c/mlx/c/mlx.h"} {
		path := filepath.Join(dir, filepath.FromSlash(f))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte("contents of "+f), 0o644))
	}
	m, err := dist.NewManifest(dir, backend)
	require.NoError(t, err)
	require.Len(t, m.Files, 3)
	require.NoError(t, m.Write(dir))
	return dir
}

func TestRootIsOverridden(t *testing.T) {
	want := t.TempDir()
	t.Setenv(dist.RootEnv, want)
	got, err := dist.Root()
	require.NoError(t, err)
	require.Equal(t, want, got)

	t.Chdir(want)
	t.Setenv(dist.RootEnv, "sub")
	got, err = dist.Root()
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(got), got)
	require.Equal(t, "sub", filepath.Base(got))

	t.Setenv(dist.RootEnv, "")
	got, err = dist.Root()
	require.NoError(t, err)
	require.Equal(t, "godflash", filepath.Base(got))
}

func TestDirNamesThePair(t *testing.T) {
	t.Setenv(dist.RootEnv, t.TempDir())
	seen := map[string]bool{}
	for _, backend := range dist.Backends() {
		dir, err := dist.Dir(backend)
		require.NoError(t, err)
		require.Equal(t, "mlxc-"+dist.MLXCVersion+"-mlx-"+dist.MLXVersion+"-"+backend, filepath.Base(dir))
		require.False(t, seen[dir])
		seen[dir] = true
	}
	_, err := dist.Dir("vulkan")
	require.ErrorIs(t, err, dist.ErrUnknownBackend)
	require.ErrorContains(t, err, "cpu, cuda13")
	_, err = dist.Library("../cpu")
	require.ErrorIs(t, err, dist.ErrUnknownBackend)
}

func TestLibraryNeedsManifestAndFile(t *testing.T) {
	dir := install(t, dist.CPU)
	lib, err := dist.Library(dist.CPU)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "mlx", "lib", dist.LibraryName()), lib)
	include, err := dist.Include(dist.CPU)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(include, "mlx", "c", "mlx.h"))

	_, err = dist.Library(dist.CUDA13)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "cuda13")

	require.NoError(t, os.Remove(filepath.Join(dir, dist.ManifestName)))
	lib, err = dist.Library(dist.CPU)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Empty(t, lib)
}

func TestManifestSeesDamage(t *testing.T) {
	const lib = "mlx/lib/libmlx.so"
	tests := []struct {
		name   string
		damage func(t *testing.T, path string)
		quick  bool // whether the check without checksums sees it too
		want   string
	}{
		{"none", func(*testing.T, string) {}, false, ""},
		{"flipped byte", func(t *testing.T, path string) {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			data[3] ^= 1
			require.NoError(t, os.WriteFile(path, data, 0o644))
		}, false, "SHA-256"},
		{"cut short", func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 2)) }, true, "has 2 bytes"},
		{"removed", func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) }, true, "is missing"},
		{"link", func(t *testing.T, path string) {
			require.NoError(t, os.Rename(path, path+".x"))
			require.NoError(t, os.Symlink(path+".x", path))
		}, true, "is not a file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := install(t, dist.CPU)
			m, err := dist.ReadManifest(dir)
			require.NoError(t, err)
			tt.damage(t, filepath.Join(dir, filepath.FromSlash(lib)))
			quick, full := m.CheckQuick(dir, dist.CPU), m.Check(dir, dist.CPU)
			if tt.want == "" {
				require.NoError(t, quick)
				require.NoError(t, full)
				return
			}
			require.Equal(t, tt.quick, errors.Is(quick, dist.ErrDamaged))
			require.ErrorIs(t, full, dist.ErrDamaged)
			require.ErrorContains(t, full, tt.want)
			require.ErrorContains(t, full, "libmlx.so")
		})
	}
}

func TestManifestOfAnotherBuild(t *testing.T) {
	dir := install(t, dist.CPU)
	m, err := dist.ReadManifest(dir)
	require.NoError(t, err)
	require.ErrorIs(t, m.CheckQuick(dir, dist.CUDA13), dist.ErrDamaged)
	m.Arch = "mips"
	require.ErrorContains(t, m.CheckQuick(dir, dist.CPU), "/mips")
}

func TestReadManifestRefuses(t *testing.T) {
	dir := t.TempDir()
	_, err := dist.ReadManifest(dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	for _, text := range []string{"", "{}", `{"files":[{"path":"../x"}]}`, `{"files":[{"path":"/etc/passwd"}]}`, `{"files":`} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, dist.ManifestName), []byte(text), 0o644))
		_, err := dist.ReadManifest(dir)
		require.ErrorIs(t, err, dist.ErrDamaged, text)
	}
}

func TestManifestRefusesLinks(t *testing.T) {
	dir := install(t, dist.CPU)
	require.NoError(t, os.Symlink("libmlx.so", filepath.Join(dir, "mlx", "lib", "alias.so")))
	_, err := dist.NewManifest(dir, dist.CPU)
	require.ErrorContains(t, err, "alias.so")
}
