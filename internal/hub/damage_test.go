package hub_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/hub"
)

// TestResume cuts in different ways; the bytes must be right and not be
// fetched twice.
func TestResume(t *testing.T) {
	t.Run("cut at half, in one call", func(t *testing.T) {
		f := newFake(t)
		f.onStorage = func(w http.ResponseWriter, r *http.Request) bool {
			if isWeights(r) && r.Header.Get("Range") == "" {
				f.cutAt(w, r, 0.5)
			}
			return false
		}
		c, waits := f.client(t)
		s, err := c.Download(t.Context(), tiny)
		require.NoError(t, err)
		f.requireSnapshot(t, s, commit1)
		require.Len(t, *waits, 1)
		ranges := []string{}
		for _, r := range f.seen() {
			if r.server == "storage" && strings.HasSuffix(r.path, ".safetensors") {
				ranges = append(ranges, r.rng)
			}
		}
		require.Equal(t, []string{"", "bytes=150000-"}, ranges)
	})
	t.Run("many cuts, each with progress", func(t *testing.T) {
		f := newFake(t)
		cuts := 0
		f.onStorage = func(w http.ResponseWriter, r *http.Request) bool {
			if isWeights(r) && cuts < 12 {
				cuts++
				f.cutAt(w, r, 0.2)
			}
			return false
		}
		c, _ := f.client(t)
		s, err := c.Download(t.Context(), tiny)
		require.NoError(t, err)
		f.requireSnapshot(t, s, commit1)
		require.Equal(t, 12, cuts)
	})
	t.Run("by a later call", func(t *testing.T) {
		f := newFake(t)
		ctx, cancel := context.WithCancel(t.Context())
		f.onStorage = func(w http.ResponseWriter, r *http.Request) bool {
			if isWeights(r) && ctx.Err() == nil {
				cancel()
				f.cutAt(w, r, 0.5)
			}
			return false
		}
		// The answer's first half has been read when the context ends.
		c, _ := f.client(t)
		_, err := c.Download(ctx, tiny)
		require.ErrorIs(t, err, context.Canceled)
		_, err = c.Cached(tiny)
		require.ErrorIs(t, err, hub.ErrNotCached, "unfinished snapshots are none")
		part := filepath.Join(c.Cache(), "models--acme--tiny/blobs", sha256Of(f.commits[commit1]["model.safetensors"])+".godflash-part")
		require.NoError(t, os.MkdirAll(filepath.Dir(part), 0o755))
		require.NoError(t, os.WriteFile(part, f.commits[commit1]["model.safetensors"][:100_000], 0o644))
		s, err := c.Download(t.Context(), tiny)
		require.NoError(t, err)
		f.requireSnapshot(t, s, commit1)
		seen := f.seen()
		require.Contains(t, seen, request{"storage", "GET", "/" + commit1 + "/model.safetensors", "bytes=100000-", ""})
	})
	for _, left := range []struct {
		name string
		make func(right []byte) []byte
	}{
		{"a part of wrong bytes", func(b []byte) []byte { return make([]byte, 1000) }},
		{"a part of full length with a flipped bit", func(b []byte) []byte { c := bytes.Clone(b); c[7] ^= 4; return c }},
		{"a part that is too long", func(b []byte) []byte { return make([]byte, len(b)+1) }},
		{"a part that is complete", func(b []byte) []byte { return b }},
	} {
		t.Run(left.name, func(t *testing.T) {
			f := newFake(t)
			c, _ := f.client(t)
			right := f.commits[commit1]["model.safetensors"]
			blob := filepath.Join(c.Cache(), "models--acme--tiny/blobs", sha256Of(right))
			require.NoError(t, os.MkdirAll(filepath.Dir(blob), 0o755))
			part := left.make(right)
			require.NoError(t, os.WriteFile(blob+".godflash-part", part, 0o644))
			s, err := c.Download(t.Context(), tiny)
			require.NoError(t, err)
			f.requireSnapshot(t, s, commit1)
			if bytes.Equal(part, right) {
				require.Zero(t, f.count("GET", commit1+"/model.safetensors"))
			}
		})
	}
}

// TestRanges: servers that answer a Range in other ways than by it.
func TestRanges(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer func(f *fakeHub, w http.ResponseWriter, r *http.Request) bool
	}{
		{"200 with the whole file", func(f *fakeHub, w http.ResponseWriter, r *http.Request) bool {
			_, _ = w.Write(f.data(r))
			return true
		}},
		{"416", func(_ *fakeHub, w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return true
		}},
		{"206 from another byte", func(f *fakeHub, w http.ResponseWriter, r *http.Request) bool {
			data := f.data(r)
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(data)-1, len(data)))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(data)
			return true
		}},
		{"206 of another file", func(f *fakeHub, w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Range", "bytes 150000-199999/200000")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(f.data(r)[150000:200000])
			return true
		}},
		{"206 without Content-Range", func(f *fakeHub, w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(f.data(r)[150000:])
			return true
		}},
		{"206 with other bytes", func(f *fakeHub, w http.ResponseWriter, r *http.Request) bool {
			n := len(f.data(r))
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 150000-%d/%d", n-1, n))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(make([]byte, n-150000))
			return true
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFake(t)
			cut := false
			f.onStorage = func(w http.ResponseWriter, r *http.Request) bool {
				switch {
				case !isWeights(r):
				case !cut:
					cut = true
					f.cutAt(w, r, 0.5)
				case r.Header.Get("Range") != "":
					return test.answer(f, w, r)
				}
				return false
			}
			c, _ := f.client(t)
			s, err := c.Download(t.Context(), tiny)
			require.NoError(t, err)
			f.requireSnapshot(t, s, commit1)
			if strings.HasPrefix(test.name, "200") {
				require.Equal(t, 2, f.count("GET", "/resolve/"+commit1+"/model.safetensors"), "the whole file is taken, not asked for again")
			}
		})
	}
	t.Run("206 from another byte, and no digest would tell", func(t *testing.T) {
		f := newFake(t)
		f.listing = func(m map[string]any) {
			for _, s := range m["siblings"].([]any) {
				delete(s.(map[string]any), "lfs")
				delete(s.(map[string]any), "blobId")
			}
		}
		f.onHub = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasPrefix(r.URL.Path, "/acme/tiny/resolve/") || !isWeights(r) {
				return false
			}
			data := f.commits[commit1]["model.safetensors"]
			w.Header().Set("ETag", `"mirror-own"`)
			switch {
			case r.Method == http.MethodHead:
				w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			case f.count("GET", r.URL.Path) == 1:
				w.Header().Set("Content-Length", fmt.Sprint(len(data)))
				_, _ = w.Write(data[:len(data)/2])
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			case r.Header.Get("Range") != "":
				w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(data)/2-1, len(data)))
				w.WriteHeader(http.StatusPartialContent)
				_, _ = w.Write(data[:len(data)/2])
			default:
				_, _ = w.Write(data)
			}
			return true
		}
		c, _ := f.client(t)
		s, err := c.Download(t.Context(), tiny)
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(s.Dir, "model.safetensors"))
		require.NoError(t, err)
		require.True(t, bytes.Equal(f.commits[commit1]["model.safetensors"], got))
	})
	t.Run("always cut and never a range", func(t *testing.T) {
		f := newFake(t)
		f.onStorage = func(w http.ResponseWriter, r *http.Request) bool {
			if isWeights(r) {
				r.Header.Del("Range")
				f.cutAt(w, r, 0.5)
			}
			return false
		}
		c, _ := f.client(t)
		_, err := c.Download(t.Context(), tiny)
		require.ErrorContains(t, err, "model.safetensors")
		require.LessOrEqual(t, f.count("GET", commit1+"/model.safetensors"), 20)
		_, err = c.Cached(tiny)
		require.ErrorIs(t, err, hub.ErrNotCached)
	})
}

// TestCorrupt: bytes that are not what was announced. Once is repaired, always
// is ErrCorrupt, and neither a blob nor a snapshot is left.
func TestCorrupt(t *testing.T) {
	flip := func(f *fakeHub, w http.ResponseWriter, r *http.Request) {
		data := bytes.Clone(f.data(r))
		data[len(data)/3] ^= 0x10
		_, _ = w.Write(data)
	}
	for _, test := range []struct {
		name   string
		answer func(f *fakeHub, w http.ResponseWriter, r *http.Request)
	}{
		{"flipped bit", flip},
		{"an HTML page", func(_ *fakeHub, w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<html>log in</html>"))
		}},
		{"shorter, and says so", func(f *fakeHub, w http.ResponseWriter, r *http.Request) { _, _ = w.Write(f.data(r)[:1000]) }},
		{"longer, without a length", func(f *fakeHub, w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush() // chunked from here on
			_, _ = w.Write(f.data(r))
			_, _ = w.Write([]byte("more"))
		}},
		{"compressed", func(f *fakeHub, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(f.data(r))
		}},
	} {
		for _, always := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/always=%v", test.name, always), func(t *testing.T) {
				f := newFake(t)
				var n atomic.Int32
				f.onStorage = func(w http.ResponseWriter, r *http.Request) bool {
					if !isWeights(r) || n.Add(1) > 1 && !always {
						return false
					}
					test.answer(f, w, r)
					return true
				}
				c, _ := f.client(t)
				s, err := c.Download(t.Context(), tiny)
				if !always {
					require.NoError(t, err)
					f.requireSnapshot(t, s, commit1)
					return
				}
				require.ErrorIs(t, err, hub.ErrCorrupt)
				require.ErrorContains(t, err, "model.safetensors")
				left, _ := filepath.Glob(filepath.Join(c.Cache(), "models--acme--tiny/blobs", sha256Of(f.commits[commit1]["model.safetensors"])+"*"))
				require.Empty(t, left)
				require.NoDirExists(t, filepath.Join(c.Cache(), "models--acme--tiny/snapshots"))
				require.NoDirExists(t, filepath.Join(c.Cache(), "models--acme--tiny/refs"))
			})
		}
	}

	t.Run("without end", func(t *testing.T) {
		f := newFake(t)
		const limit = 32 << 20
		var sent atomic.Int64
		f.onStorage = func(w http.ResponseWriter, r *http.Request) bool {
			if !isWeights(r) {
				return false
			}
			for chunk := make([]byte, 64<<10); sent.Load() < limit; {
				n, err := w.Write(chunk)
				sent.Add(int64(n))
				if err != nil {
					break
				}
			}
			return true
		}
		c, _ := f.client(t)
		_, err := c.Download(t.Context(), tiny)
		require.ErrorIs(t, err, hub.ErrCorrupt)
		f.storage.Close() // waits for the handler
		require.Less(t, sent.Load(), int64(limit))
	})
	t.Run("small file", func(t *testing.T) {
		f := newFake(t)
		f.onHub = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet || !strings.HasPrefix(r.URL.Path, "/api/resolve-cache") || !strings.HasSuffix(r.URL.Path, "/merges.txt") {
				return false
			}
			_, _ = w.Write([]byte("b a\n"))
			return true
		}
		c, _ := f.client(t)
		_, err := c.Download(t.Context(), tiny)
		require.ErrorIs(t, err, hub.ErrCorrupt)
		require.ErrorContains(t, err, "merges.txt")
	})
}

// TestContradictions: headers and listings that do not agree, or are no names.
func TestContradictions(t *testing.T) {
	header := func(key, value string) func(*fakeHub) {
		return func(f *fakeHub) {
			f.onHub = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodHead || !isWeights(r) {
					return false
				}
				data := f.commits[commit1]["model.safetensors"]
				for k, v := range map[string]string{
					"X-Repo-Commit": commit1, "X-Linked-Etag": `"` + sha256Of(data) + `"`,
					"X-Linked-Size": fmt.Sprint(len(data)), "Location": f.storage.URL, key: value,
				} {
					w.Header().Set(k, v)
				}
				w.WriteHeader(http.StatusFound)
				return true
			}
		}
	}
	list := func(key string, value any) func(*fakeHub) {
		return func(f *fakeHub) { f.listing = func(m map[string]any) { m[key] = value } }
	}
	weights := func(change map[string]any) func(*fakeHub) {
		return func(f *fakeHub) {
			f.listing = func(m map[string]any) {
				for _, s := range m["siblings"].([]any) {
					if s := s.(map[string]any); s["rfilename"] == "model.safetensors" {
						for k, v := range change {
							s[k] = v
						}
					}
				}
			}
		}
	}
	for _, test := range []struct {
		name  string
		setup func(*fakeHub)
		says  string
	}{
		{"another SHA-256 in the ETag", header("X-Linked-Etag", strings.Repeat("a", 64)), "model.safetensors"},
		{"an ETag that is a path", header("X-Linked-Etag", `"../../../../evil"`), "no name for a blob"},
		{"an ETag with a backslash", header("X-Linked-Etag", `"..\evil"`), "no name for a blob"},
		{"an empty ETag", header("X-Linked-Etag", `""`), "no name for a blob"},
		{"another size", header("X-Linked-Size", "17"), "17"},
		{"a negative size", header("X-Linked-Size", "-1"), "X-Linked-Size"},
		{"another commit", header("X-Repo-Commit", commit2), commit2},
		{"a listing of a path for a commit", list("sha", "../../../evil"), "names no commit"},
		{"a listing without a commit", list("sha", ""), "names no commit"},
		{"a listing with a SHA-256 that is none", weights(map[string]any{"lfs": map[string]any{"sha256": "x"}}), "SHA-256"},
		{"a listing with a Git id that is none", weights(map[string]any{"lfs": nil, "blobId": "../x"}), "Git id"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFake(t)
			test.setup(f)
			c, _ := f.client(t)
			_, err := c.Download(t.Context(), tiny)
			require.ErrorIs(t, err, hub.ErrCorrupt)
			require.ErrorContains(t, err, test.says)
			require.NoDirExists(t, filepath.Join(c.Cache(), "models--acme--tiny/snapshots"))
		})
	}
	t.Run("an answer that is no JSON", func(t *testing.T) {
		f := newFake(t)
		f.onHub = func(w http.ResponseWriter, r *http.Request) bool { _, _ = w.Write([]byte("<html>")); return true }
		c, _ := f.client(t)
		_, err := c.Download(t.Context(), tiny)
		require.ErrorIs(t, err, hub.ErrCorrupt)
		require.ErrorContains(t, err, "login page")
	})
}
