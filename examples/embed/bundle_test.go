//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// A bundle that was moved runs with its own libraries alone: the environment is
// empty, the home folder does not exist, and the folder that they
// came from is not known to it.
func TestBundle(t *testing.T) {
	lib, err := mlx.Open(nil)
	require.NoError(t, err)
	installed := lib.Path()
	require.NoError(t, lib.Close())

	dir := t.TempDir()
	program := filepath.Join(dir, "embed")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	made := filepath.Join(dir, "made")
	out, err = exec.Command("sh", "bundle.sh", program, installed, made).CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = exec.Command("sh", "bundle.sh", program, installed, made).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "there already")
	out, err = exec.Command("sh", "bundle.sh", program, dir, filepath.Join(dir, "x")).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "no libmlxc.so where the installer puts it")

	moved := filepath.Join(dir, "a folder with blanks", "moved")
	require.NoError(t, os.MkdirAll(filepath.Dir(moved), 0o755))
	require.NoError(t, os.Rename(made, moved))
	require.NoError(t, os.Remove(program))
	run := func() (string, error) {
		cmd := exec.Command(filepath.Join(moved, "AppRun"), "-model", pair(t), "-prompt", "Write a function.", "-max-tokens", "8")
		cmd.Env = []string{"HOME=" + filepath.Join(dir, "nowhere"), "PATH=/usr/bin:/bin", "GODFLASH_CACHE=" + filepath.Join(dir, "nothing")}
		cmd.Dir = "/"
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	text, err := run()
	require.NoError(t, err, text)
	require.Contains(t, text, "MLX in "+moved+"/usr/lib/mlx/lib/libmlxc.so")
	require.Contains(t, text, "complete after 8 tokens")

	require.NoError(t, os.Remove(filepath.Join(moved, "usr/lib/mlx/lib/libmlxc.so")))
	text, err = run()
	require.Error(t, err, "nothing else serves in its place")
	require.True(t, strings.Contains(text, "libmlxc"), text)
}
