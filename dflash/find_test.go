package dflash_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
)

// snapshot lays a folder into a hub cache as Python's client would.
func snapshot(t testing.TB, cache, repo, from string) {
	t.Helper()
	const commit = "0123456789abcdef0123456789abcdef01234567"
	root := filepath.Join(cache, "models--"+repo)
	require.NoError(t, os.MkdirAll(filepath.Join(root, "refs"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "refs", "main"), []byte(commit), 0o644))
	dir := filepath.Join(root, "snapshots", commit)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	from, err := filepath.Abs(from)
	require.NoError(t, err)
	entries, err := os.ReadDir(from)
	require.NoError(t, err)
	for _, f := range entries {
		require.NoError(t, os.Symlink(filepath.Join(from, f.Name()), filepath.Join(dir, f.Name())))
	}
}

// A model named as on the hub comes from the cache, with the drafter that the
// registry knows for its name, and without any network; a drafter that does not
// fit is left out with a reason, unless it was asked for.
func TestOpenByName(t *testing.T) {
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	cache := t.TempDir()
	o := dflash.Options{Library: lib, Hub: &dflash.HubOptions{Cache: cache, Endpoint: server.URL}}
	tiny := pairDir("tiny-qwen3")

	_, err := dflash.Open(t.Context(), "Qwen/Qwen3-4B", &o)
	require.ErrorContains(t, err, "Qwen/Qwen3-4B")
	require.ErrorContains(t, err, cache)
	require.Zero(t, requests.Load(), "nothing may be asked of the hub unless Download is set")

	snapshot(t, cache, "Qwen--Qwen3-4B", filepath.Join(tiny, "target"))
	e, err := dflash.Open(t.Context(), "Qwen/Qwen3-4B", &o)
	require.NoError(t, err)
	require.Nil(t, e.Drafter())
	require.Contains(t, e.Info().DraftOff, "z-lab/Qwen3-4B-DFlash-b16")
	require.NoError(t, e.Close())

	snapshot(t, cache, "z-lab--Qwen3-4B-DFlash-b16", filepath.Join(tiny, "draft"))
	for _, name := range []string{"Qwen/Qwen3-4B", "Qwen/Qwen3-4B@main", "qwen3-4b"} {
		e, err := dflash.Open(t.Context(), name, &o)
		require.NoError(t, err, name)
		info := e.Info()
		require.Equal(t, "Qwen/Qwen3-4B", info.Repo)
		require.Len(t, info.Commit, 40)
		require.Equal(t, "z-lab/Qwen3-4B-DFlash-b16", info.DraftRepo)
		require.NotEmpty(t, info.DraftWhy)
		require.NotNil(t, e.Drafter())
		ref := references(t, "tiny-qwen3")[0]
		ids, _ := run(t, newSession(t, e), dflash.Request{IDs: ref.Prompt})
		require.Equal(t, ref.Greedy, ids)
		require.NoError(t, e.Close())
	}

	// The cached drafter of another model is of another size.
	snapshot(t, cache, "Qwen--Qwen3.5-4B", filepath.Join(pairDir("tiny-qwen3.5"), "target"))
	snapshot(t, cache, "z-lab--Qwen3.5-4B-DFlash", filepath.Join(tiny, "draft"))
	e, err = dflash.Open(t.Context(), "Qwen/Qwen3.5-4B", &o)
	require.NoError(t, err)
	require.Nil(t, e.Drafter())
	require.Contains(t, e.Info().DraftOff, "hidden_size")
	require.NoError(t, e.Close())
	o.Draft = "z-lab/Qwen3.5-4B-DFlash"
	_, err = dflash.Open(t.Context(), "Qwen/Qwen3.5-4B", &o)
	require.ErrorIs(t, err, dflash.ErrPairMismatch)
	require.Zero(t, requests.Load())

	// Asked to download, the hub's refusal comes back.
	o.Draft, o.Download = "", true
	_, err = dflash.Open(t.Context(), "nobody/nothing", &o)
	require.ErrorContains(t, err, "nobody/nothing")
	require.Positive(t, requests.Load())

	o.Hub = &dflash.HubOptions{Cache: cache, Endpoint: "ftp://x"}
	_, err = dflash.Open(t.Context(), "nobody/nothing", &o)
	require.ErrorIs(t, err, dflash.ErrRequest)
	require.ErrorContains(t, err, "HF_ENDPOINT")
	// A folder does not need the hub.
	e, err = dflash.Open(t.Context(), tiny, &o)
	require.NoError(t, err)
	require.NotNil(t, e.Drafter())
	require.NoError(t, e.Close())

	_, err = dflash.Open(t.Context(), tiny, &dflash.Options{Library: lib, NoDraft: true, DraftBits: 8})
	require.ErrorIs(t, err, dflash.ErrRequest)
}

// An entry draft or target is meant, whatever it is: what is wrong with it is an
// error that names it, never a reason to decode without a drafter.
func TestBrokenFolders(t *testing.T) {
	link := func(t *testing.T, dir, name string) {
		from, err := filepath.Abs(filepath.Join(pairDir("tiny-qwen3"), name))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
		entries, err := os.ReadDir(from)
		require.NoError(t, err)
		for _, f := range entries {
			require.NoError(t, os.Symlink(filepath.Join(from, f.Name()), filepath.Join(dir, name, f.Name())))
		}
	}
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir string)
		says   string
	}{
		"drafter without config": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "draft", "config.json")))
		}, "draft/config.json"},
		"drafter is a file": {func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "draft")))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "draft"), nil, 0o644))
		}, "draft/config.json"},
		"drafter is a loop": {func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "draft")))
			require.NoError(t, os.Symlink("draft", filepath.Join(dir, "draft")))
		}, "draft"},
		"target without config": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "target", "config.json")))
		}, "target"},
		"target's config is a folder": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "target", "config.json")))
			require.NoError(t, os.Mkdir(filepath.Join(dir, "target", "config.json"), 0o755))
		}, "target/config.json"},
		"tokenizer is a folder": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "target", "tokenizer.json")))
			require.NoError(t, os.Mkdir(filepath.Join(dir, "target", "tokenizer.json"), 0o755))
		}, "target/tokenizer.json"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			link(t, dir, "target")
			link(t, dir, "draft")
			c.damage(t, dir)
			_, err := dflash.Open(t.Context(), dir, &dflash.Options{Library: lib})
			require.ErrorContains(t, err, c.says)
		})
	}
	t.Run("a template that says nothing", func(t *testing.T) {
		dir := t.TempDir()
		link(t, dir, "target")
		require.NoError(t, os.WriteFile(filepath.Join(dir, "target", "chat_template.jinja"), []byte("{{ '' }}"), 0o644))
		s := newSession(t, openDir(t, dir, dflash.Options{}))
		for _, err := range s.Generate(t.Context(), dflash.Request{Prompt: "hi"}) {
			require.ErrorIs(t, err, dflash.ErrConfig)
			require.ErrorContains(t, err, "chat template")
		}
	})
}

// Open tells how far it is: the target's bytes first, then the drafter's, each
// up to their total.
func TestLoadProgress(t *testing.T) {
	var heard []dflash.LoadProgress
	e, err := dflash.Open(t.Context(), pairDir("tiny-qwen3.5"), &dflash.Options{Progress: func(p dflash.LoadProgress) { heard = append(heard, p) }})
	require.NoError(t, err)
	require.NoError(t, e.Close())
	require.Greater(t, len(heard), 8)
	for i, p := range heard[1:] {
		before := heard[i]
		if p.Drafter == before.Drafter {
			require.GreaterOrEqual(t, p.Done, before.Done)
			require.Equal(t, before.Total, p.Total)
		} else {
			require.True(t, p.Drafter)
			require.Equal(t, before.Total, before.Done)
		}
	}
	last := heard[len(heard)-1]
	require.True(t, last.Drafter)
	require.Positive(t, last.Total)
	require.Equal(t, last.Total, last.Done)
}
