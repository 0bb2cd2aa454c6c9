package readfile_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/readfile"
)

func TestRegular(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(path, []byte("1234"), 0o644))
	data, err := readfile.Regular(path, 4)
	require.NoError(t, err)
	require.Equal(t, "1234", string(data))
	_, err = readfile.Regular(path, 3)
	require.ErrorIs(t, err, readfile.ErrNotRegular)
	_, err = readfile.Regular(dir, 1<<20)
	require.ErrorIs(t, err, readfile.ErrNotRegular)
	_, err = readfile.Regular(filepath.Join(dir, "none"), 1)
	require.ErrorIs(t, err, fs.ErrNotExist)
}
