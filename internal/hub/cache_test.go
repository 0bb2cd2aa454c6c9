package hub_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/hub"
)

// noNetwork fails every request.
type noNetwork struct{ t *testing.T }

func (n noNetwork) RoundTrip(r *http.Request) (*http.Response, error) {
	n.t.Errorf("a request: %s %s", r.Method, r.URL.Path)
	return nil, errors.New("no network")
}

// offline is a client of a cache that would notice a request.
func offline(t *testing.T, cache string) *hub.Client {
	c, err := hub.New(hub.Options{Cache: cache, Offline: true, Client: &http.Client{Transport: noNetwork{t}}})
	require.NoError(t, err)
	return c
}

// write puts files below dir; a value that begins with -> is a link.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if len(text) > 2 && text[:2] == "->" {
			require.NoError(t, os.Symlink(text[2:], path))
		} else {
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		}
	}
}

// python is a cache as huggingface_hub leaves it, with two snapshots, and
// blobs that lie in the store which models share.
func python(t *testing.T) string {
	cache := t.TempDir()
	write(t, cache, map[string]string{
		"models--acme--tiny/refs/main":                                   commit1,
		"models--acme--tiny/refs/refs/pr/3":                              commit2 + "\n",
		"models--acme--tiny/blobs/c1":                                    "{}",
		"models--acme--tiny/blobs/c2":                                    "{ }",
		"models--acme--tiny/blobs/w":                                     "->../../blobs/ab/abcd",
		"models--acme--tiny/snapshots/" + commit1 + "/config.json":       "->../../blobs/c1",
		"models--acme--tiny/snapshots/" + commit1 + "/model.safetensors": "->../../blobs/w",
		"models--acme--tiny/snapshots/" + commit2 + "/config.json":       "->../../blobs/c2",
		"models--acme--tiny/snapshots/" + commit2 + "/model.safetensors": "->../../blobs/w",
		"models--acme--tiny/snapshots/" + commit1 + "/README.md":         "->../../blobs/gone",
		"blobs/ab/abcd":                    "weights",
		".locks/models--acme--tiny/w.lock": "",
		"datasets--acme--tiny/refs/main":   commit1,
		"models--gpt2/refs/main":           commit1,
	})
	return cache
}

func TestCached(t *testing.T) {
	c := offline(t, python(t))
	for _, test := range []struct{ revision, commit string }{
		{"", commit1},
		{"main", commit1},
		{"refs/pr/3", commit2},
		{commit2, commit2},
		{commit1, commit1},
	} {
		for name, get := range map[string]func(hub.Repo) (hub.Snapshot, error){
			"Cached": c.Cached,
			"Get":    func(r hub.Repo) (hub.Snapshot, error) { return c.Get(t.Context(), r) },
		} {
			s, err := get(hub.Repo{Owner: "acme", Name: "tiny", Revision: test.revision})
			require.NoError(t, err, name)
			require.Equal(t, test.commit, s.Commit)
			require.Equal(t, filepath.Join(c.Cache(), "models--acme--tiny/snapshots", test.commit), s.Dir)
		}
	}
	all, err := c.List()
	require.NoError(t, err)
	require.Equal(t, []hub.Snapshot{
		{Repo: hub.Repo{Owner: "acme", Name: "tiny", Revision: "main"}, Commit: commit1, Dir: filepath.Join(c.Cache(), "models--acme--tiny/snapshots", commit1)},
		{Repo: hub.Repo{Owner: "acme", Name: "tiny", Revision: "refs/pr/3"}, Commit: commit2, Dir: filepath.Join(c.Cache(), "models--acme--tiny/snapshots", commit2)},
	}, all)

	// The branch moves: the commit that is reported changes.
	write(t, c.Cache(), map[string]string{"models--acme--tiny/refs/main": commit2})
	s, err := c.Cached(tiny)
	require.NoError(t, err)
	require.Equal(t, commit2, s.Commit)
}

// TestNotCached: one message with the model, the place, the flaw and a command.
func TestNotCached(t *testing.T) {
	snapshot := "models--acme--tiny/snapshots/" + commit1
	for _, test := range []struct {
		name   string
		repo   hub.Repo
		change func(cache string)
		says   string
	}{
		{"nothing", hub.Repo{Owner: "acme", Name: "other"}, nil, "models--acme--other"},
		{"no such revision", hub.Repo{Owner: "acme", Name: "tiny", Revision: "v2"}, nil, filepath.Join("refs", "v2")},
		{"a folder of refs", hub.Repo{Owner: "acme", Name: "tiny", Revision: "refs/pr"}, nil, "refs/pr"},
		{"no such commit", hub.Repo{Owner: "acme", Name: "tiny", Revision: "3333333333333333333333333333333333333333"}, nil, "snapshots/3333"},
		{"main unknown", tiny, func(d string) { os.Remove(filepath.Join(d, "models--acme--tiny/refs/main")) }, commit1},
		{"a ref that is a path", tiny, func(d string) {
			os.WriteFile(filepath.Join(d, "models--acme--tiny/refs/main"), []byte("../../../other"), 0o644)
		}, "holds no commit"},
		{"broken link", tiny, func(d string) { os.Remove(filepath.Join(d, "models--acme--tiny/blobs/c1")) }, filepath.Join(commit1, "config.json") + " leads to ../../blobs/c1"},
		{"broken link further on", tiny, func(d string) { os.Remove(filepath.Join(d, "blobs/ab/abcd")) }, "model.safetensors leads to"},
		{"no config", tiny, func(d string) { os.Remove(filepath.Join(d, snapshot, "config.json")) }, "no config.json"},
		{"no weights", tiny, func(d string) { os.Remove(filepath.Join(d, snapshot, "model.safetensors")) }, "no *.safetensors"},
		{"a shard missing", tiny, func(d string) {
			os.Rename(filepath.Join(d, snapshot, "model.safetensors"), filepath.Join(d, snapshot, "model-00001-of-00002.safetensors"))
			os.WriteFile(filepath.Join(d, snapshot, "model.safetensors.index.json"),
				[]byte(`{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`), 0o644)
		}, "model-00002-of-00002.safetensors, which is not there"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cache := python(t)
			if test.change != nil {
				test.change(cache)
			}
			c := offline(t, cache)
			_, err := c.Cached(test.repo)
			require.ErrorIs(t, err, hub.ErrNotCached)
			for _, says := range []string{test.repo.String(), cache, test.says, "hf download " + test.repo.ID()} {
				require.ErrorContains(t, err, says)
			}
			if test.repo.Revision != "" {
				require.ErrorContains(t, err, "--revision "+test.repo.Revision)
			}
			_, err = c.Get(t.Context(), test.repo)
			require.ErrorIs(t, err, hub.ErrNotCached)
			require.ErrorIs(t, err, hub.ErrOffline)
			_, err = c.Download(t.Context(), test.repo)
			require.ErrorIs(t, err, hub.ErrOffline)
		})
	}
	none, err := offline(t, filepath.Join(t.TempDir(), "none")).List()
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestFromEnv(t *testing.T) {
	home := t.TempDir()
	clear := func(t *testing.T) {
		for _, name := range []string{
			"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HF_ENDPOINT", "HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE",
		} {
			t.Setenv(name, "")
		}
		t.Setenv("HOME", home)
	}
	for _, test := range []struct {
		name, cache string
		env         map[string]string
	}{
		{"nothing", home + "/.cache/huggingface/hub", nil},
		{"XDG", "/x/huggingface/hub", map[string]string{"XDG_CACHE_HOME": "/x"}},
		{"home before XDG", "/h/hub", map[string]string{"XDG_CACHE_HOME": "/x", "HF_HOME": "/h"}},
		{"old name before home", "/o", map[string]string{"HF_HOME": "/h", "HUGGINGFACE_HUB_CACHE": "/o"}},
		{"new name first", "/c", map[string]string{"XDG_CACHE_HOME": "/x", "HF_HOME": "/h", "HUGGINGFACE_HUB_CACHE": "/o", "HF_HUB_CACHE": "/c"}},
		{"tilde", home + "/models", map[string]string{"HF_HUB_CACHE": "~/models"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			clear(t)
			for k, v := range test.env {
				t.Setenv(k, v)
			}
			require.Equal(t, filepath.FromSlash(test.cache), hub.FromEnv().Cache)
		})
	}
	for value, want := range map[string]bool{
		"1": true, "true": true, "YES": true, "on": true, " TRUE ": true,
		"0": false, "": false, "no": false, "false": false, "off": false,
	} {
		t.Run("offline="+value, func(t *testing.T) {
			clear(t)
			t.Setenv("HF_HUB_OFFLINE", value)
			require.Equal(t, want, hub.FromEnv().Offline)
		})
	}
	t.Run("token and endpoint", func(t *testing.T) {
		clear(t)
		require.Empty(t, hub.FromEnv().Token)
		write(t, home, map[string]string{"hf/token": "from home\n", "elsewhere": " from path "})
		t.Setenv("HF_HOME", home+"/hf")
		require.Equal(t, "from home", hub.FromEnv().Token)
		t.Setenv("HF_TOKEN_PATH", "~/elsewhere")
		require.Equal(t, "from path", hub.FromEnv().Token)
		t.Setenv("HF_TOKEN", "from variable\n")
		require.Equal(t, "from variable", hub.FromEnv().Token)
		t.Setenv("HF_ENDPOINT", "https://mirror.example/hub/")
		require.Equal(t, "https://mirror.example/hub/", hub.FromEnv().Endpoint)
	})
}

func TestNew(t *testing.T) {
	for name, o := range map[string]hub.Options{
		"no cache":                 {},
		"no scheme":                {Cache: "x", Endpoint: "mirror.example"},
		"a scheme of another kind": {Cache: "x", Endpoint: "ftp://mirror.example"},
		"a password":               {Cache: "x", Endpoint: "https://user:pa55@mirror.example"},
		"a query":                  {Cache: "x", Endpoint: "https://mirror.example?a=b"},
		"connections":              {Cache: "x", Connections: -1},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := hub.New(o)
			require.Error(t, err)
			require.NotContains(t, err.Error(), "pa55")
		})
	}
	c, err := hub.New(hub.Options{Cache: "x"})
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(c.Cache()))
}
