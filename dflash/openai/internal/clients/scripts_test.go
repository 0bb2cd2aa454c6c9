package clients

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash/openai"
)

// The official clients, at versions whose behaviour is known.
var (
	pythonClients     = []string{"openai==3.57.0", "anthropic==2.14.0"}
	javaScriptClients = []string{"openai@6.49.0"}
)

// The official Python and JavaScript clients against the real engine. They come
// from their registries.
func TestOfficialClients(t *testing.T) {
	if testing.Short() {
		t.Skip("installs clients from PyPI and npm")
	}
	w, _ := real(t, openai.Options{APIKey: "sesame", Aliases: []string{"tiny"}})
	given, err := json.Marshal(object{"url": w.URL, "known": known, "reply": knownReply, "question": question})
	require.NoError(t, err)
	command := func(t *testing.T, dir string, env []string, name string, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir, c.Env = dir, append(os.Environ(), env...)
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s %s\n%s", name, strings.Join(args, " "), out)
		return string(out)
	}
	// installed is a folder with the clients in it, made by install where it is not
	// there from an earlier run.
	installed := func(t *testing.T, what []string, install func(dir string)) string {
		t.Helper()
		cache, err := os.UserCacheDir()
		require.NoError(t, err)
		dir := filepath.Join(cache, "godflash", "clients", strings.Join(what, " "))
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o755))
		fresh, err := os.MkdirTemp(filepath.Dir(dir), "new-")
		require.NoError(t, err)
		defer os.RemoveAll(fresh)
		install(fresh)
		if err := os.Rename(fresh, dir); err != nil { // another run was faster
			require.DirExists(t, dir)
		}
		return dir
	}
	t.Run("Python", func(t *testing.T) {
		python, err := exec.LookPath("python3")
		if err != nil {
			t.Skip("python3 is not installed")
		}
		dir := installed(t, pythonClients, func(dir string) {
			command(t, dir, nil, python, append([]string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--target", dir}, pythonClients...)...)
		})
		script, err := filepath.Abs("testdata/clients.py")
		require.NoError(t, err)
		out := command(t, t.TempDir(), []string{"PYTHONPATH=" + dir}, python, script, string(given))
		require.Equal(t, 21, strings.Count(out, "ok "), out)
		require.True(t, strings.HasSuffix(out, "done\n"), out)
	})
	t.Run("JavaScript", func(t *testing.T) {
		npm, err := exec.LookPath("npm")
		if err != nil {
			t.Skip("npm is not installed")
		}
		modules := filepath.Join(installed(t, javaScriptClients, func(dir string) {
			command(t, dir, nil, npm, append([]string{"install", "--silent", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", dir}, javaScriptClients...)...)
		}), "node_modules")
		dir := t.TempDir()
		require.NoError(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
		script, err := os.ReadFile("testdata/clients.mjs")
		require.NoError(t, err)
		// A module looks for packages beside itself.
		require.NoError(t, os.WriteFile(filepath.Join(dir, "clients.mjs"), script, 0o644))
		out := command(t, dir, nil, "node", "clients.mjs", string(given))
		require.Equal(t, 11, strings.Count(out, "ok "), out)
		require.True(t, strings.HasSuffix(out, "done\n"), out)
	})
}
