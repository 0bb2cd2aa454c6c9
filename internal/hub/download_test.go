package hub_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/godflash/godflash/internal/hub"
)

func isWeights(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "model.safetensors") }

func TestDownload(t *testing.T) {
	f := newFake(t)
	var events []hub.Event
	var log bytes.Buffer
	c, waits := f.client(t, func(o *hub.Options) {
		o.Progress = func(e hub.Event) { events = append(events, e) }
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	s, err := c.Download(t.Context(), tiny)
	require.NoError(t, err)
	f.requireSnapshot(t, s, commit1)
	require.Empty(t, *waits)
	require.Contains(t, log.String(), commit1)

	dir := filepath.Join(c.Cache(), "models--acme--tiny")
	require.Equal(t, filepath.Join(dir, "snapshots", commit1), s.Dir)
	ref, err := os.ReadFile(filepath.Join(dir, "refs/main"))
	require.NoError(t, err)
	require.Equal(t, commit1, string(ref))
	target, err := os.Readlink(filepath.Join(s.Dir, "config.json"))
	require.NoError(t, err)
	require.Equal(t, filepath.Join("../../blobs", gitID(f.commits[commit1]["config.json"])), target)
	require.FileExists(t, filepath.Join(c.Cache(), ".locks/models--acme--tiny", sha256Of(f.commits[commit1]["model.safetensors"])+".lock"))

	last := events[len(events)-1]
	var total int64
	for _, name := range wantedFiles {
		total += int64(len(f.commits[commit1][name]))
	}
	require.Equal(t, total, last.AllDone)
	require.Equal(t, total, last.AllSize)
	require.Equal(t, tiny, last.Repo)

	// Now without a request: Cached, Get, and a commit's Download.
	n := len(f.seen())
	again, err := c.Cached(tiny)
	require.NoError(t, err)
	require.Equal(t, s, again)
	_, err = c.Get(t.Context(), tiny)
	require.NoError(t, err)
	pinned := tiny
	pinned.Revision = commit1
	byCommit, err := c.Download(t.Context(), pinned)
	require.NoError(t, err)
	require.Equal(t, s.Dir, byCommit.Dir)
	require.Len(t, f.seen(), n)

	// An unmoved branch costs one request: the list.
	_, err = c.Download(t.Context(), tiny)
	require.NoError(t, err)
	require.Len(t, f.seen(), n+1)
}

func TestRevisions(t *testing.T) {
	f := newFake(t)
	f.refs["v1.0"] = commit2
	f.refs["feature/x"] = commit2
	c, _ := f.client(t)
	for _, test := range []struct{ revision, commit string }{
		{"v1.0", commit2},
		{"feature/x", commit2},
		{commit1, commit1},
		{"", commit1},
	} {
		r := hub.Repo{Owner: "acme", Name: "tiny", Revision: test.revision}
		_, err := c.Cached(r)
		require.ErrorIs(t, err, hub.ErrNotCached, test.revision)
		s, err := c.Get(t.Context(), r)
		require.NoError(t, err)
		f.requireSnapshot(t, s, test.commit)
		s, err = c.Cached(r)
		require.NoError(t, err)
		require.Equal(t, test.commit, s.Commit)
	}
	require.NoFileExists(t, filepath.Join(c.Cache(), "models--acme--tiny/refs", commit1))

	// The branch moves: Get stays, Download follows, pins do not move.
	f.mu.Lock()
	f.refs["main"] = commit2
	f.mu.Unlock()
	s, err := c.Get(t.Context(), tiny)
	require.NoError(t, err)
	require.Equal(t, commit1, s.Commit)
	s, err = c.Download(t.Context(), tiny)
	require.NoError(t, err)
	require.Equal(t, commit2, s.Commit)
	s, err = c.Cached(tiny)
	require.NoError(t, err)
	f.requireSnapshot(t, s, commit2)
	s, err = c.Cached(hub.Repo{Owner: "acme", Name: "tiny", Revision: commit1})
	require.NoError(t, err)
	f.requireSnapshot(t, s, commit1)

	_, err = c.Download(t.Context(), hub.Repo{Owner: "acme", Name: "tiny", Revision: "v9"})
	require.ErrorIs(t, err, hub.ErrNotFound)
	require.ErrorContains(t, err, "the revision v9")
	absent := hub.Repo{Owner: "acme", Name: "tiny", Revision: strings.Repeat("3", 40)}
	_, err = c.Cached(absent)
	require.ErrorIs(t, err, hub.ErrNotCached)
	require.ErrorContains(t, err, absent.Revision)
}

func TestFileNames(t *testing.T) {
	for _, name := range []string{
		"../config.json", "..", "a/../../x.json", "/etc/x.json", `..\x.json`, `a\x.json`, "x\n.json", "x\x7f.json", "\x00.json",
		"C:x.json", "a//x.json", "./x.json", "x.json/", "draft/../../x.json", "draft/.. /x.json", "", strings.Repeat("a", 501),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.commits[commit1][name] = []byte("evil")
			c, _ := f.client(t)
			_, err := c.Download(t.Context(), tiny)
			require.ErrorIs(t, err, hub.ErrName)
			require.Len(t, f.seen(), 1, "refused before any file is asked for")
			require.NoDirExists(t, filepath.Join(c.Cache(), "models--acme--tiny"))
		})
	}
}

// TestMirror: an endpoint that knows less and has ETags of its own.
func TestMirror(t *testing.T) {
	f := newFake(t)
	f.listing = func(m map[string]any) {
		for _, s := range m["siblings"].([]any) {
			delete(s.(map[string]any), "lfs")
			delete(s.(map[string]any), "size")
			delete(s.(map[string]any), "blobId")
		}
	}
	f.onHub = func(w http.ResponseWriter, r *http.Request) bool {
		name, ok := strings.CutPrefix(r.URL.Path, "/acme/tiny/resolve/"+commit1+"/")
		if !ok || large(name) {
			return false
		}
		w.Header().Set("ETag", `"mirror-`+name+`"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(f.commits[commit1][name])))
		_, _ = w.Write(f.commits[commit1][name])
		return true
	}
	c, _ := f.client(t)
	s, err := c.Download(t.Context(), tiny)
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(s.Dir, "config.json"))
	require.NoError(t, err)
	require.Equal(t, f.commits[commit1]["config.json"], got)
	require.FileExists(t, filepath.Join(s.Dir, "../../blobs/mirror-config.json"))
}

func TestNoModel(t *testing.T) {
	for _, test := range []struct {
		name   string
		remove []string
		says   string
	}{
		{"only GGUF", []string{"model.safetensors"}, "GGUF"},
		{"no weights", []string{"model.safetensors", "model.gguf"}, "safetensors"},
		{"no config", []string{"config.json"}, "config.json"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFake(t)
			for _, name := range test.remove {
				delete(f.commits[commit1], name)
			}
			c, _ := f.client(t)
			_, err := c.Download(t.Context(), tiny)
			require.ErrorIs(t, err, hub.ErrNotFound)
			require.ErrorContains(t, err, test.says)
		})
	}
}

// TestPair: a repository with a target and its drafter.
func TestPair(t *testing.T) {
	f := newFake(t)
	f.commits[commit1] = map[string][]byte{
		"target/config.json": []byte("{}"), "target/model.safetensors": []byte("t"),
		"draft/config.json": []byte("{ }"), "draft/model.safetensors": []byte("t"),
	}
	c, _ := f.client(t)
	s, err := c.Download(t.Context(), tiny)
	require.NoError(t, err)
	link, err := os.Readlink(filepath.Join(s.Dir, "draft/config.json"))
	require.NoError(t, err)
	require.Equal(t, "../../../blobs/"+gitID([]byte("{ }")), filepath.ToSlash(link))
	cached, err := c.Cached(tiny)
	require.NoError(t, err)
	require.Equal(t, s, cached)
}

func TestWithoutSymlinks(t *testing.T) {
	f := newFake(t)
	c, _ := f.client(t)
	c.SetSymlink(func(string, string) error { return errors.New("a required privilege is not held by the client") })
	s, err := c.Download(t.Context(), tiny)
	require.NoError(t, err)
	f.requireSnapshot(t, s, commit1)
	info, err := os.Lstat(filepath.Join(s.Dir, "config.json"))
	require.NoError(t, err)
	require.True(t, info.Mode().IsRegular())
	_, err = c.Cached(tiny)
	require.NoError(t, err)
}

func TestRepair(t *testing.T) {
	f := newFake(t)
	c, _ := f.client(t)
	s, err := c.Download(t.Context(), tiny)
	require.NoError(t, err)
	weights := f.commits[commit1]["model.safetensors"]
	blob := filepath.Join(s.Dir, "../../blobs", sha256Of(weights))
	for name, damage := range map[string]func() error{
		"removed":                   func() error { return os.Remove(blob) },
		"cut short":                 func() error { return os.Truncate(blob, 10) },
		"a link that leads nowhere": func() error { os.Remove(blob); return os.Symlink("../gone", blob) },
		"link replaced": func() error {
			link := filepath.Join(s.Dir, "model.safetensors")
			os.Remove(link)
			return os.WriteFile(link, []byte("x"), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, damage())
			s, err := c.Download(t.Context(), tiny)
			require.NoError(t, err)
			f.requireSnapshot(t, s, commit1)
		})
	}
}

func TestTwoDownloadsAtOnce(t *testing.T) {
	f := newFake(t)
	cache := t.TempDir()
	var group errgroup.Group
	for range 4 {
		c, _ := f.client(t, func(o *hub.Options) { o.Cache = cache })
		group.Go(func() error {
			_, err := c.Download(t.Context(), tiny)
			return err
		})
	}
	require.NoError(t, group.Wait())
	require.Equal(t, 1, f.count("GET", commit1+"/model.safetensors")-f.count("GET", "/resolve/"+commit1+"/model.safetensors"))
	c, _ := f.client(t, func(o *hub.Options) { o.Cache = cache })
	s, err := c.Cached(tiny)
	require.NoError(t, err)
	f.requireSnapshot(t, s, commit1)
}

func TestTwoProcesses(t *testing.T) {
	f := newFake(t)
	cache := t.TempDir()
	// The first process is held in the middle of the weights until the second
	// has asked for their headers, and so comes to the lock.
	var heads atomic.Int32
	both := make(chan struct{})
	f.mu.Lock() // another process's requests order nothing by themselves
	f.onHub = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodHead && isWeights(r) && heads.Add(1) == 2 {
			close(both)
		}
		return false
	}
	f.onStorage = func(_ http.ResponseWriter, r *http.Request) bool {
		if isWeights(r) {
			<-both
		}
		return false
	}
	f.mu.Unlock()
	var group errgroup.Group
	for range 2 {
		group.Go(func() error {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), helperEnv+"="+f.hub.URL, "HF_ENDPOINT="+f.hub.URL, "HF_HUB_CACHE="+cache, "HF_HUB_OFFLINE=")
			out, err := cmd.CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	n := 0
	for _, r := range f.seen() {
		if r.server == "storage" && strings.HasSuffix(r.path, "model.safetensors") {
			n++
		}
	}
	require.Equal(t, 1, n)
	c, _ := f.client(t, func(o *hub.Options) { o.Cache = cache })
	s, err := c.Cached(tiny)
	require.NoError(t, err)
	f.requireSnapshot(t, s, commit1)
}

// TestWaitForLock: a download that waits for another ends with its context.
func TestWaitForLock(t *testing.T) {
	f := newFake(t)
	cache := t.TempDir()
	arrived, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.onStorage = func(_ http.ResponseWriter, r *http.Request) bool {
		if isWeights(r) {
			once.Do(func() { close(arrived) })
			<-release
		}
		return false
	}
	first, _ := f.client(t, func(o *hub.Options) { o.Cache = cache })
	done := make(chan error, 1)
	go func() { _, err := first.Download(t.Context(), tiny); done <- err }()
	<-arrived

	ctx, cancel := context.WithCancel(t.Context())
	second, _ := f.client(t, func(o *hub.Options) {
		o.Cache = cache
		o.Logger = slog.New(onLog(func(message string) {
			if strings.Contains(message, "another process") {
				cancel()
			}
		}))
	})
	_, err := second.Download(ctx, tiny)
	require.ErrorIs(t, err, context.Canceled)
	close(release)
	require.NoError(t, <-done)
}

type onLog func(string)

func (f onLog) Enabled(context.Context, slog.Level) bool      { return true }
func (f onLog) Handle(_ context.Context, r slog.Record) error { f(r.Message); return nil }
func (f onLog) WithAttrs([]slog.Attr) slog.Handler            { return f }
func (f onLog) WithGroup(string) slog.Handler                 { return f }

func TestStall(t *testing.T) {
	f := newFake(t)
	var n atomic.Int32
	f.onStorage = func(w http.ResponseWriter, r *http.Request) bool {
		if !isWeights(r) || n.Add(1) > 1 {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(f.data(r))))
		_, _ = w.Write(f.data(r)[:1000])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // until the client gives up
		return true
	}
	c, waits := f.client(t)
	c.SetStall(200 * time.Millisecond)
	s, err := c.Download(t.Context(), tiny)
	require.NoError(t, err)
	f.requireSnapshot(t, s, commit1)
	require.NotEmpty(t, *waits)
}

// TestSlow: a body that is slow, but moves, is not given up. The server takes no
// ranges, so a client that gave up would never get to the end.
func TestSlow(t *testing.T) {
	f := newFake(t)
	f.onStorage = func(w http.ResponseWriter, r *http.Request) bool {
		if !isWeights(r) {
			return false
		}
		data := f.data(r)
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		for i := range 15 {
			_, _ = w.Write(data[i*20_000 : (i+1)*20_000])
			_ = http.NewResponseController(w).Flush()
			time.Sleep(100 * time.Millisecond)
		}
		return true
	}
	c, _ := f.client(t)
	c.SetStall(time.Second)
	s, err := c.Download(t.Context(), tiny)
	require.NoError(t, err)
	f.requireSnapshot(t, s, commit1)
}

// TestIdleConnections: a download leaves no connection, and so no goroutine.
func TestIdleConnections(t *testing.T) {
	f := newFake(t)
	c, _ := f.client(t)
	_, err := c.Download(t.Context(), tiny)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		var stacks strings.Builder
		require.NoError(t, pprof.Lookup("goroutine").WriteTo(&stacks, 1))
		return !strings.Contains(stacks.String(), "persistConn")
	}, 10*time.Second, 10*time.Millisecond)
}
