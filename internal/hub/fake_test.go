package hub_test

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/godflash/godflash/internal/hub"
)

const helperEnv = "GODFLASH_HUB_TEST_DOWNLOAD"

func TestMain(m *testing.M) {
	if endpoint := os.Getenv(helperEnv); endpoint != "" { // another process, see TestTwoProcesses
		c, err := hub.New(hub.FromEnv())
		if err == nil {
			_, err = c.Download(context.Background(), hub.Repo{Owner: "acme", Name: "tiny"})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const (
	commit1 = "1111111111111111111111111111111111111111"
	commit2 = "2222222222222222222222222222222222222222"
	token   = "hf_secretsecret"
)

var tiny = hub.Repo{Owner: "acme", Name: "tiny"}

// request is what a fake server saw.
type request struct {
	server, method, path, rng, auth string
}

// fakeHub answers like the hub for acme/tiny: small files by itself after a
// relative redirect, large ones by another host.
type fakeHub struct {
	hub, storage *httptest.Server

	mu       sync.Mutex
	requests []request
	refs     map[string]string
	commits  map[string]map[string][]byte

	// Each may answer in place of the fake and say so.
	onHub, onStorage func(w http.ResponseWriter, r *http.Request) bool
	// listing may change what the list of files says.
	listing func(map[string]any)
}

// bytesOf makes reproducible bytes in which every position matters.
func bytesOf(seed byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = seed + byte(i) + byte(i>>8)*31 + byte(i>>16)*7
	}
	return b
}

func modelFiles(seed byte) map[string][]byte {
	return map[string][]byte{
		"config.json":       []byte(fmt.Sprintf(`{"model_type":"qwen3","seed":%d}`, seed)),
		"tokenizer.json":    bytesOf(seed, 5_000),
		"merges.txt":        []byte("a b\n"),
		"model.safetensors": bytesOf(seed+1, 300_000),
		"empty.json":        {},
		"README.md":         []byte("not wanted"),
		"model.gguf":        []byte("not wanted"),
		"onnx/model.json":   []byte("not wanted"),
		"pytorch_model.bin": []byte("not wanted"),
	}
}

var wantedFiles = []string{"config.json", "empty.json", "merges.txt", "model.safetensors", "tokenizer.json"}

func newFake(t *testing.T) *fakeHub {
	f := &fakeHub{
		refs:    map[string]string{"main": commit1},
		commits: map[string]map[string][]byte{commit1: modelFiles(1), commit2: modelFiles(2)},
	}
	f.mu.Lock() // the servers' goroutines take it too, and so see all that is set here
	defer f.mu.Unlock()
	f.hub = httptest.NewServer(f.logged("hub", f.serveHub))
	f.storage = httptest.NewServer(f.logged("storage", f.serveStorage))
	t.Cleanup(func() { f.hub.Close(); f.storage.Close() })
	return f
}

func (f *fakeHub) logged(server string, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.requests = append(f.requests, request{server, r.Method, r.URL.Path, r.Header.Get("Range"), r.Header.Get("Authorization")})
		hook := f.onHub
		if server == "storage" {
			hook = f.onStorage
		}
		f.mu.Unlock()
		if hook != nil && hook(w, r) {
			return
		}
		next(w, r)
	})
}

func (f *fakeHub) seen() []request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]request(nil), f.requests...)
}

// count is the number of requests of a method whose path contains part.
func (f *fakeHub) count(method, part string) int {
	n := 0
	for _, r := range f.seen() {
		if r.method == method && strings.Contains(r.path, part) {
			n++
		}
	}
	return n
}

func large(name string) bool {
	return path.Ext(name) == ".safetensors" || name == "tokenizer.json"
}

func sha256Of(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

func gitID(b []byte) string {
	s := sha1.Sum(append([]byte(fmt.Sprintf("blob %d\x00", len(b))), b...))
	return hex.EncodeToString(s[:])
}

func digest(name string, b []byte) string {
	if large(name) {
		return sha256Of(b)
	}
	return gitID(b)
}

func (f *fakeHub) serveHub(w http.ResponseWriter, r *http.Request) {
	if rev, ok := strings.CutPrefix(r.URL.Path, "/api/models/acme/tiny/revision/"); ok {
		f.serveListing(w, rev)
		return
	}
	for _, prefix := range []string{"/acme/tiny/resolve/", "/api/resolve-cache/models/acme/tiny/"} {
		rest, ok := strings.CutPrefix(r.URL.Path, prefix)
		if !ok {
			continue
		}
		commit, name, _ := strings.Cut(rest, "/")
		data, ok := f.commits[commit][name]
		if !ok {
			break
		}
		w.Header().Set("X-Repo-Commit", commit)
		switch {
		case large(name):
			w.Header().Set("X-Linked-Etag", `"`+sha256Of(data)+`"`)
			w.Header().Set("X-Linked-Size", fmt.Sprint(len(data)))
			w.Header().Set("ETag", `"of the redirect"`)
			w.Header().Set("Location", f.storage.URL+"/"+commit+"/"+name+"?X-Amz-Signature=presigned")
			w.WriteHeader(http.StatusFound)
		case strings.HasPrefix(prefix, "/acme"):
			w.Header().Set("Location", "/api/resolve-cache/models/acme/tiny/"+rest)
			w.WriteHeader(http.StatusTemporaryRedirect)
		default:
			w.Header().Set("ETag", `W/"`+gitID(data)+`"`)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
		}
		return
	}
	w.Header().Set("X-Error-Code", "RepoNotFound")
	http.Error(w, "{}", http.StatusNotFound)
}

func (f *fakeHub) serveListing(w http.ResponseWriter, rev string) {
	f.mu.Lock()
	commit := f.refs[rev]
	f.mu.Unlock()
	if commit == "" {
		commit = rev
	}
	files, ok := f.commits[commit]
	if !ok {
		w.Header().Set("X-Error-Code", "RevisionNotFound")
		http.Error(w, "{}", http.StatusNotFound)
		return
	}
	var siblings []any
	for name, data := range files {
		s := map[string]any{"rfilename": name, "size": len(data), "blobId": gitID(data)}
		if large(name) {
			s["blobId"] = gitID([]byte("pointer " + name))
			s["lfs"] = map[string]any{"sha256": sha256Of(data), "size": len(data), "pointerSize": 134}
		}
		siblings = append(siblings, s)
	}
	reply := map[string]any{"id": "acme/tiny", "sha": commit, "siblings": siblings}
	if f.listing != nil {
		f.listing(reply)
	}
	_ = json.NewEncoder(w).Encode(reply)
}

func (f *fakeHub) data(r *http.Request) []byte {
	commit, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return f.commits[commit][name]
}

func (f *fakeHub) serveStorage(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", `"storage's own"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.data(r)))
}

// client makes a client of the fake that does not wait; waits lists for how
// long it would have.
func (f *fakeHub) client(t *testing.T, change ...func(*hub.Options)) (c *hub.Client, waits *[]time.Duration) {
	o := hub.Options{Cache: t.TempDir(), Endpoint: f.hub.URL, Token: token}
	for _, c := range change {
		c(&o)
	}
	c, err := hub.New(o)
	require.NoError(t, err)
	waits = &[]time.Duration{}
	var mu sync.Mutex
	c.SetSleep(func(ctx context.Context, d time.Duration) error {
		mu.Lock()
		defer mu.Unlock()
		*waits = append(*waits, d)
		return ctx.Err()
	})
	return c, waits
}

// requireSnapshot compares a snapshot's folder with the fake's commit, and the
// blobs with their names.
func (f *fakeHub) requireSnapshot(t *testing.T, s hub.Snapshot, commit string) {
	t.Helper()
	require.Equal(t, commit, s.Commit)
	require.Equal(t, commit, filepath.Base(s.Dir))
	entries, err := os.ReadDir(s.Dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		got, err := os.ReadFile(filepath.Join(s.Dir, e.Name()))
		require.NoError(t, err)
		want := f.commits[commit][e.Name()]
		require.True(t, bytes.Equal(want, got), "%s differs", e.Name())
		blob := filepath.Join(s.Dir, "../../blobs", digest(e.Name(), want))
		require.FileExists(t, blob)
	}
	require.Equal(t, wantedFiles, names)
	parts, err := filepath.Glob(filepath.Join(s.Dir, "../../blobs/*part*"))
	require.NoError(t, err)
	require.Empty(t, parts)
}

// cutAt answers with the first part of the bytes that were asked for, and then
// breaks the connection.
func (f *fakeHub) cutAt(w http.ResponseWriter, r *http.Request, fraction float64) {
	data := f.data(r)
	from := 0
	status := http.StatusOK
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil {
		status = http.StatusPartialContent
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(data)-1, len(data)))
	}
	rest := data[from:]
	w.Header().Set("Content-Length", fmt.Sprint(len(rest)))
	w.WriteHeader(status)
	_, _ = w.Write(rest[:int(float64(len(rest))*fraction)])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}
