package resolve_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/hub"
	"github.com/godflash/godflash/internal/resolve"
)

var (
	commit1 = strings.Repeat("1", 40)
	commit2 = strings.Repeat("2", 40)
)

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// client is a hub whose every request fails the test.
func client(t *testing.T, cache string) *hub.Client {
	c, err := hub.New(hub.Options{Cache: cache, Client: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		t.Errorf("a request: %s", r.URL)
		return nil, errors.New("no network")
	})}})
	require.NoError(t, err)
	return c
}

func model(t *testing.T, dir string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for _, name := range []string{"config.json", "model.safetensors"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o644))
	}
	return dir
}

// cached puts a model into a cache, as its branch main.
func cached(t *testing.T, cache, id, commit string) string {
	t.Helper()
	repo := filepath.Join(cache, "models--"+strings.ReplaceAll(id, "/", "--"))
	require.NoError(t, os.MkdirAll(filepath.Join(repo, "refs"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(repo, "refs/main"), []byte(commit), 0o644))
	return model(t, filepath.Join(repo, "snapshots", commit))
}

// TestNames: the ways to name one model (and what is no name of it).
func TestNames(t *testing.T) {
	home, cache := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Chdir(home)
	local := model(t, filepath.Join(home, "models", "mine"))
	snapshot := cached(t, cache, "Qwen/Qwen3.5-4B", commit1)
	cached(t, cache, "a/twin", commit1)
	cached(t, cache, "b/twin", commit1)
	model(t, filepath.Join(home, "Qwen", "shadow"))
	cached(t, cache, "Qwen/shadow", commit1)
	require.NoError(t, os.WriteFile(filepath.Join(home, "file"), nil, 0o644))

	repo := resolve.Place{Dir: snapshot, Repo: "Qwen/Qwen3.5-4B", Commit: commit1}
	for name, want := range map[string]resolve.Place{
		local:                        {Dir: local},
		local + "/":                  {Dir: local},
		"~/models/mine":              {Dir: local},
		"models/mine":                {Dir: "models/mine"},
		"./models/mine/":             {Dir: "models/mine"},
		"Qwen/Qwen3.5-4B":            repo,
		"Qwen/Qwen3.5-4B@main":       repo,
		"Qwen/Qwen3.5-4B@" + commit1: repo,
		"Qwen3.5-4B":                 repo,
		"qwen3.5-4b":                 repo,
		"Qwen3.5-4B@" + commit1:      repo,
		snapshot:                     repo,
		"Qwen/shadow":                {Dir: "Qwen/shadow"}, // a folder comes first
	} {
		f, err := resolve.Find(t.Context(), name, &resolve.Options{Hub: client(t, cache), NoDraft: true})
		require.NoError(t, err, name)
		require.Equal(t, want, f.Target, name)
		require.Equal(t, "switched off", f.Why)
	}
	for _, test := range []struct {
		name string
		is   error
		says string
	}{
		{"", resolve.ErrNoModel, "empty"},
		{"file", resolve.ErrNoModel, "is a file"},
		{"./nowhere", resolve.ErrNoModel, "nowhere"},
		{"~/nowhere", resolve.ErrNoModel, home},
		{"a/b/c", resolve.ErrNoModel, "no such file"},
		{"a/b--c", hub.ErrName, "no folder"},
		{"Qwen/Qwen3.5-9B", hub.ErrNotCached, "hf download Qwen/Qwen3.5-9B, or opening it with downloads allowed (Options.Download; -download of the programs)"},
		{"Qwen/Qwen3.5-4B@" + commit2, hub.ErrNotCached, commit2},
		{"Qwen3.5-4B@" + commit2, hub.ErrNotCached, commit2},
		{"twin", resolve.ErrNoModel, "a/twin, b/twin"},
		{"Qwen3.5", resolve.ErrNoModel, "Qwen/Qwen3.5-4B"},
	} {
		_, err := resolve.Find(t.Context(), test.name, &resolve.Options{Hub: client(t, cache)})
		require.ErrorIs(t, err, test.is, test.name)
		require.ErrorContains(t, err, test.says)
	}
	_, err := resolve.Find(t.Context(), "Qwen/Qwen3.5-4B", nil)
	require.ErrorIs(t, err, resolve.ErrNoModel)
	require.ErrorContains(t, err, "no hub")
}

// TestDrafter: explicit before the folder draft before the registry's.
func TestDrafter(t *testing.T) {
	cache := t.TempDir()
	target := cached(t, cache, "mlx-community/Qwen3.5-4B-4bit", commit1)
	o := &resolve.Options{Hub: client(t, cache)}
	find := func(name string) resolve.Found {
		t.Helper()
		f, err := resolve.Find(t.Context(), name, o)
		require.NoError(t, err)
		return f
	}

	f := find("mlx-community/Qwen3.5-4B-4bit")
	require.Empty(t, f.Draft, "known, but not cached")
	require.Contains(t, f.Why, "z-lab/Qwen3.5-4B-DFlash was trained for Qwen3.5-4B")
	require.Contains(t, f.Why, "hf download z-lab/Qwen3.5-4B-DFlash")

	drafter := cached(t, cache, "z-lab/Qwen3.5-4B-DFlash", commit2)
	auto := resolve.Place{Dir: drafter, Repo: "z-lab/Qwen3.5-4B-DFlash", Commit: commit2}
	for _, name := range []string{"mlx-community/Qwen3.5-4B-4bit", target, model(t, filepath.Join(t.TempDir(), "Qwen3.5-4B-MLX-8bit"))} {
		f = find(name)
		require.Equal(t, auto, f.Draft, name)
		require.False(t, f.Asked)
		require.Equal(t, "z-lab/Qwen3.5-4B-DFlash was trained for Qwen3.5-4B", f.Why)
	}

	inside := model(t, filepath.Join(target, "draft"))
	f = find("mlx-community/Qwen3.5-4B-4bit")
	require.Equal(t, inside, f.Draft.Dir)
	require.True(t, f.Asked)

	mine := model(t, filepath.Join(t.TempDir(), "my-drafter"))
	for name, want := range map[string]resolve.Place{mine: {Dir: mine}, "z-lab/Qwen3.5-4B-DFlash": auto, "qwen3.5-4b-dflash": auto} {
		o.Draft = name
		f = find(target)
		require.Equal(t, want, f.Draft)
		require.True(t, f.Asked)
	}
	o.Draft = "z-lab/Qwen3.5-9B-DFlash"
	_, err := resolve.Find(t.Context(), target, o)
	require.ErrorIs(t, err, hub.ErrNotCached, "one that was named must be there")
	require.ErrorContains(t, err, "drafter")
	o.NoDraft = true
	_, err = resolve.Find(t.Context(), target, o)
	require.Error(t, err)
	o.Draft = ""
	require.Empty(t, find(target).Draft)
}

// TestDrafterBeside: the registry's drafter in a folder beside the model's, or
// beside its owner's, comes before the cache's; the folder draft before it.
func TestDrafterBeside(t *testing.T) {
	cache, root := t.TempDir(), t.TempDir()
	cached(t, cache, "z-lab/Qwen3.5-9B-DFlash", commit1)
	target := model(t, filepath.Join(root, "mlx-community", "Qwen3.5-9B-4bit"))
	find := func(name string, client *hub.Client) resolve.Found {
		t.Helper()
		f, err := resolve.Find(t.Context(), name, &resolve.Options{Hub: client})
		require.NoError(t, err)
		return f
	}
	require.Equal(t, commit1, find(target, client(t, cache)).Draft.Commit)
	require.NoError(t, os.MkdirAll(filepath.Join(root, "z-lab", "Qwen3.5-9B-DFlash"), 0o755))
	require.Equal(t, commit1, find(target, client(t, cache)).Draft.Commit, "an empty folder is none")

	tree := model(t, filepath.Join(root, "z-lab", "Qwen3.5-9B-DFlash"))
	for _, c := range []*hub.Client{client(t, cache), nil} {
		f := find(target, c)
		require.Equal(t, resolve.Place{Dir: tree}, f.Draft)
		require.False(t, f.Asked)
		require.Contains(t, f.Why, "z-lab/Qwen3.5-9B-DFlash was trained for Qwen3.5-9B; it lies near the model, in "+tree)
	}
	beside := model(t, filepath.Join(root, "mlx-community", "Qwen3.5-9B-DFlash"))
	require.Equal(t, beside, find(target, nil).Draft.Dir)
	t.Chdir(target)
	require.Equal(t, beside, find(".", nil).Draft.Dir)
	model(t, filepath.Join(root, "mlx-community", "Qwen3.5-4B-DFlash"))
	require.Equal(t, beside, find(target, nil).Draft.Dir, "another model's does not count")

	inside := model(t, filepath.Join(target, "draft"))
	require.Equal(t, inside, find(target, client(t, cache)).Draft.Dir)
	// A model of the cache has no folders beside it that anybody named.
	snapshot := cached(t, cache, "Qwen/Qwen3.5-4B", commit2)
	model(t, filepath.Join(filepath.Dir(snapshot), "Qwen3.5-4B-DFlash"))
	require.Empty(t, find("Qwen/Qwen3.5-4B", client(t, cache)).Draft)
}

func TestNoDrafter(t *testing.T) {
	cache := t.TempDir()
	// Even if somebody has them.
	cached(t, cache, "z-lab/Qwen3.8-27B-DFlash2", commit1)
	cached(t, cache, "z-lab/Qwen3-4B-DFlash-b16", commit1)
	o := &resolve.Options{Hub: client(t, cache)}
	for name, says := range map[string]string{
		"Qwen3-40B":              "no drafter is known for Qwen3-40B",
		"Qwen3.8-27B-4bit":       "DFlash 2",
		"Qwen3-4B-Instruct-2507": "trained further",
	} {
		f, err := resolve.Find(t.Context(), model(t, filepath.Join(t.TempDir(), name)), o)
		require.NoError(t, err)
		require.Empty(t, f.Draft)
		require.Contains(t, f.Why, says)
	}
	f, err := resolve.Find(t.Context(), model(t, filepath.Join(t.TempDir(), "Qwen3-4B")), nil)
	require.NoError(t, err)
	require.Contains(t, f.Why, "no hub")

	// "." has no name of its own.
	t.Chdir(model(t, filepath.Join(t.TempDir(), "Qwen3.5-9B")))
	f, err = resolve.Find(t.Context(), ".", o)
	require.NoError(t, err)
	require.Contains(t, f.Why, "z-lab/Qwen3.5-9B-DFlash")
}

func TestPairFolder(t *testing.T) {
	pair := t.TempDir()
	target, draft := model(t, filepath.Join(pair, "target")), model(t, filepath.Join(pair, "draft"))
	f, err := resolve.Find(t.Context(), pair, nil)
	require.NoError(t, err)
	require.Equal(t, target, f.Target.Dir)
	require.Equal(t, draft, f.Draft.Dir)
	f, err = resolve.Find(t.Context(), pair, &resolve.Options{NoDraft: true})
	require.NoError(t, err)
	require.Equal(t, target, f.Target.Dir)
	require.Empty(t, f.Draft)
}

// TestDownload: only with Download; a drafter that cannot be had is a notice, a
// target is an error.
func TestDownload(t *testing.T) {
	cache := t.TempDir()
	cached(t, cache, "Qwen/Qwen3-8B", commit1)
	var asked []string
	c, err := hub.New(hub.Options{Cache: cache, Client: &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		asked = append(asked, r.URL.Path)
		return &http.Response{StatusCode: 403, Header: http.Header{"X-Error-Code": {"GatedRepo"}}, Body: http.NoBody, Request: r}, nil
	})}})
	require.NoError(t, err)
	var log bytes.Buffer
	o := &resolve.Options{Hub: c, Logger: slog.New(slog.NewTextHandler(&log, nil))}

	_, err = resolve.Find(t.Context(), "Qwen/Qwen3-8B", o)
	require.NoError(t, err)
	require.Empty(t, asked)

	o.Download = true
	f, err := resolve.Find(t.Context(), "Qwen/Qwen3-8B", o)
	require.NoError(t, err)
	require.Equal(t, []string{"/api/models/z-lab/Qwen3-8B-DFlash-b16/revision/main"}, asked)
	require.Empty(t, f.Draft)
	require.Contains(t, f.Why, "licence")
	require.Contains(t, log.String(), "decoding without a drafter")

	_, err = resolve.Find(t.Context(), "Qwen/Qwen3-4B", o)
	require.ErrorIs(t, err, hub.ErrAuth)
	o.Draft = "z-lab/Qwen3-8B-DFlash-b16"
	_, err = resolve.Find(t.Context(), "Qwen/Qwen3-8B", o)
	require.ErrorIs(t, err, hub.ErrAuth)

	o.Draft = ""
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = resolve.Find(ctx, "Qwen/Qwen3-8B", o)
	require.ErrorIs(t, err, context.Canceled)
}
