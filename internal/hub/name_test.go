package hub_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/hub"
)

func TestParse(t *testing.T) {
	for name, want := range map[string]hub.Repo{
		"Qwen/Qwen3-4B":                     {Owner: "Qwen", Name: "Qwen3-4B"},
		"z-lab/Qwen3.5-27B-DFlash@main":     {Owner: "z-lab", Name: "Qwen3.5-27B-DFlash", Revision: "main"},
		"a/b@refs/pr/12":                    {Owner: "a", Name: "b", Revision: "refs/pr/12"},
		"a_b/c.d_e@" + commit1:              {Owner: "a_b", Name: "c.d_e", Revision: commit1},
		"a/" + strings.Repeat("x", 96):      {Owner: "a", Name: strings.Repeat("x", 96)},
		"mlx-community/Qwen3.5-27B-4bit@v1": {Owner: "mlx-community", Name: "Qwen3.5-27B-4bit", Revision: "v1"},
	} {
		got, err := hub.Parse(name)
		require.NoError(t, err, name)
		require.Equal(t, want, got)
		require.Equal(t, name, got.String())
	}
	for _, name := range []string{
		"", "gpt2", "/", "a/", "/b", "a/b/c", "../b", "a/..", "./b", "a/.b", "a/b.", "-a/b", "a/b-", "a/b--c", "a/b..c", "a--b/c",
		`a\b`, `a/b\c`, "a/b\x00", "a/b\n", "a /b", "a/b ", "~/b", "a/ü", "a/b.git", "a/b@", "a/b@..", "a/b@x/../y", "a/b@/x", "a/b@x/",
		"a/b@x//y", "a/b@a@b", `a/b@x\y`, "a/b@-x", "a/b@.x", "a/b@x\n", "a/" + strings.Repeat("x", 97), "a/b@" + strings.Repeat("x", 201),
		"https://huggingface.co/a/b", "C:/b", "a/b@x:y", "a/b@%2e%2e",
	} {
		_, err := hub.Parse(name)
		require.ErrorIs(t, err, hub.ErrName, "%q", name)
		require.Less(t, len(err.Error()), 500)
	}
	c := offline(t, t.TempDir())
	_, err := c.Cached(hub.Repo{Owner: "..", Name: "x"})
	require.ErrorIs(t, err, hub.ErrName, "a Repo that Parse did not make")
	_, err = c.Download(t.Context(), hub.Repo{Owner: "a", Name: "b", Revision: "../x"})
	require.ErrorIs(t, err, hub.ErrName)
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"Qwen/Qwen3-4B", "a/b@main", "../x", "a/b@../x", "a/b@refs/pr/1", "a--b/c", "a/b\\c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		r, err := hub.Parse(name)
		if err != nil {
			require.ErrorIs(t, err, hub.ErrName)
			return
		}
		require.Equal(t, name, r.String())
		dir := "models--" + r.Owner + "--" + r.Name
		require.Equal(t, dir, filepath.Base(filepath.Join("cache", dir)), "one folder, directly in the cache")
		require.True(t, filepath.IsLocal(dir))
		if r.Revision != "" {
			ref := filepath.Join("refs", r.Revision)
			require.True(t, strings.HasPrefix(ref, "refs"+string(filepath.Separator)))
		}
		// The folder's name leads back to one model: no two share it.
		require.Equal(t, 2, strings.Count(dir, "--"))
	})
}
