package hub_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/hub"
)

// TestToken: the hub gets the token, storage and whoever comes after it do not,
// and no message has it.
func TestToken(t *testing.T) {
	f := newFake(t)
	c, _ := f.client(t)
	_, err := c.Download(t.Context(), tiny)
	require.NoError(t, err)
	storage := 0
	for _, r := range f.seen() {
		if r.server == "storage" {
			storage++
			require.Empty(t, r.auth, r.path)
		} else {
			require.Equal(t, "Bearer "+token, r.auth, r.path)
		}
	}
	require.Equal(t, 2, storage)

	t.Run("a redirect away and back", func(t *testing.T) {
		f := newFake(t)
		f.onStorage = func(w http.ResponseWriter, r *http.Request) bool {
			if isWeights(r) {
				http.Redirect(w, r, f.hub.URL+"/came-back"+r.URL.Path, http.StatusFound)
			}
			return isWeights(r)
		}
		f.onHub = func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(r.URL.Path, "/came-back") {
				_, _ = w.Write(f.commits[commit1]["model.safetensors"])
				return true
			}
			return false
		}
		c, _ := f.client(t)
		_, err := c.Download(t.Context(), tiny)
		require.NoError(t, err)
		require.Contains(t, f.seen(), request{"hub", "GET", "/came-back/" + commit1 + "/model.safetensors", "", ""})
	})
	t.Run("the listing redirected to another host", func(t *testing.T) {
		f := newFake(t)
		f.onHub = func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, f.storage.URL+"/steal", http.StatusFound)
			return true
		}
		c, _ := f.client(t)
		_, err := c.Download(t.Context(), tiny)
		require.Error(t, err)
		require.Contains(t, f.seen(), request{"storage", "GET", "/steal", "", ""})
	})
	t.Run("a host that only looks relative", func(t *testing.T) {
		f := newFake(t)
		f.onHub = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodHead || !isWeights(r) {
				return false
			}
			w.Header().Set("Location", "//"+strings.TrimPrefix(f.storage.URL, "http://")+"/steal")
			w.Header().Set("X-Linked-Etag", sha256Of(f.commits[commit1]["model.safetensors"]))
			w.Header().Set("X-Linked-Size", "300000")
			w.WriteHeader(http.StatusFound)
			return true
		}
		c, _ := f.client(t)
		_, err := c.Download(t.Context(), tiny)
		require.NoError(t, err)
		require.Zero(t, f.count("HEAD", "/steal"))
	})
	t.Run("errors and logs", func(t *testing.T) {
		f := newFake(t)
		f.onStorage = func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }
		var log bytes.Buffer
		c, _ := f.client(t, func(o *hub.Options) {
			o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		_, err := c.Download(t.Context(), tiny)
		require.Error(t, err)
		for _, secret := range []string{token, "presigned"} {
			require.NotContains(t, err.Error(), secret)
			require.NotContains(t, log.String(), secret)
		}
		require.NotEmpty(t, log.String())
	})
}

func TestRedirects(t *testing.T) {
	t.Run("without end", func(t *testing.T) {
		f := newFake(t)
		f.onHub = func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
			return true
		}
		c, _ := f.client(t)
		_, err := c.Download(t.Context(), tiny)
		require.ErrorContains(t, err, "redirects")
		require.Len(t, f.seen(), 11)
	})
	t.Run("to a file", func(t *testing.T) {
		f := newFake(t)
		f.onHub = func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
			return true
		}
		c, _ := f.client(t)
		_, err := c.Download(t.Context(), tiny)
		require.ErrorContains(t, err, "not http or https")
	})
	t.Run("from https to http", func(t *testing.T) {
		plain := newFake(t)
		secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, plain.hub.URL+r.URL.Path, http.StatusFound)
		}))
		defer secure.Close()
		c, _ := plain.client(t, func(o *hub.Options) { o.Endpoint, o.Client = secure.URL, secure.Client() })
		_, err := c.Download(t.Context(), tiny)
		require.ErrorContains(t, err, "from https to http")
		require.Empty(t, plain.seen())
	})
	t.Run("renamed model", func(t *testing.T) {
		f := newFake(t)
		f.onHub = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "acme/old") {
				return false
			}
			http.Redirect(w, r, strings.Replace(r.URL.Path, "acme/old", "acme/tiny", 1), http.StatusTemporaryRedirect)
			return true
		}
		c, _ := f.client(t)
		old := hub.Repo{Owner: "acme", Name: "old"}
		s, err := c.Download(t.Context(), old)
		require.NoError(t, err)
		f.requireSnapshot(t, s, commit1)
		_, err = c.Cached(old)
		require.NoError(t, err)
	})
}

func TestStatus(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int
		header map[string]string
		token  string
		is     []error
		says   string
		tries  int
	}{
		{"401 without a token", 401, nil, "", []error{hub.ErrAuth}, "needs HF_TOKEN", 1},
		{"401 with a token", 401, nil, token, []error{hub.ErrAuth}, "not valid", 1},
		{
			"401 for what may not exist", 401,
			map[string]string{"X-Error-Code": "RepoNotFound"},
			"",
			[]error{hub.ErrAuth, hub.ErrNotFound},
			"check the name", 1,
		},
		{
			"403, gated, without a token", 403,
			map[string]string{"X-Error-Code": "GatedRepo"},
			"",
			[]error{hub.ErrAuth},
			"accept the model's licence at", 1,
		},
		{
			"403, gated, with a token", 403,
			map[string]string{"X-Error-Code": "GatedRepo", "X-Error-Message": "not in the authorized list"},
			token,
			[]error{hub.ErrAuth},
			"not in the authorized list", 1,
		},
		{"404", 404, map[string]string{"X-Error-Code": "RepoNotFound"}, token, []error{hub.ErrNotFound}, "the model is not found", 1},
		{"410", 410, nil, token, []error{hub.ErrNotFound}, "main", 1},
		{"400", 400, nil, token, nil, "400", 1},
		{"500", 500, nil, token, nil, "500", 5},
		{"429 for good", 429, map[string]string{"Retry-After": "2"}, token, []error{hub.ErrRateLimited}, "tried 5 times", 5},
		{"429 for long", 429, map[string]string{"Retry-After": "3600"}, token, []error{hub.ErrRateLimited}, "1h0m0s", 1},
		{"429 for ever", 429, map[string]string{"Retry-After": "99999999999999999999"}, token, []error{hub.ErrRateLimited}, "", 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFake(t)
			f.onHub = func(w http.ResponseWriter, _ *http.Request) bool {
				for k, v := range test.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(test.status)
				return true
			}
			c, _ := f.client(t, func(o *hub.Options) { o.Token = test.token })
			_, err := c.Download(t.Context(), tiny)
			require.Error(t, err)
			for _, is := range test.is {
				require.ErrorIs(t, err, is)
			}
			require.ErrorContains(t, err, test.says)
			require.ErrorContains(t, err, "acme/tiny")
			require.Len(t, f.seen(), test.tries)
		})
	}
}

func TestRetryAfter(t *testing.T) {
	for _, test := range []struct {
		after     string
		low, high time.Duration
	}{
		{"7", 7 * time.Second, 7 * time.Second},
		{"0", time.Millisecond, time.Millisecond},
		{time.Now().Add(30 * time.Second).UTC().Format(http.TimeFormat), 20 * time.Second, 30 * time.Second},
		{time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat), time.Millisecond, time.Millisecond},
		{"soon", 500 * time.Millisecond, 500 * time.Millisecond},
		{"", 500 * time.Millisecond, 500 * time.Millisecond},
	} {
		t.Run(test.after, func(t *testing.T) {
			f := newFake(t)
			first := true
			f.onHub = func(w http.ResponseWriter, r *http.Request) bool {
				if !first || !strings.HasPrefix(r.URL.Path, "/api/models") {
					return false
				}
				first = false
				w.Header().Set("Retry-After", test.after)
				w.WriteHeader(http.StatusTooManyRequests)
				return true
			}
			c, waits := f.client(t)
			s, err := c.Download(t.Context(), tiny)
			require.NoError(t, err)
			f.requireSnapshot(t, s, commit1)
			require.Len(t, *waits, 1)
			require.GreaterOrEqual(t, (*waits)[0], test.low)
			require.LessOrEqual(t, (*waits)[0], test.high)
		})
	}
}

// TestExpiredSignature: the storage's 403 says nothing of the token; the hub
// signs anew.
func TestExpiredSignature(t *testing.T) {
	f := newFake(t)
	expired := true
	f.onStorage = func(w http.ResponseWriter, r *http.Request) bool {
		if !isWeights(r) || !expired {
			return false
		}
		expired = false
		w.WriteHeader(http.StatusForbidden)
		return true
	}
	c, _ := f.client(t)
	s, err := c.Download(t.Context(), tiny)
	require.NoError(t, err)
	f.requireSnapshot(t, s, commit1)
	require.Equal(t, 2, f.count("GET", "/resolve/"+commit1+"/model.safetensors"))
}

func TestUnreachable(t *testing.T) {
	f := newFake(t)
	c, waits := f.client(t)
	f.hub.Close()
	_, err := c.Download(t.Context(), tiny)
	require.ErrorContains(t, err, "tried 5 times")
	require.Len(t, *waits, 4)
}
