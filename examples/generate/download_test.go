package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/fixture"
)

// fakeHub serves folders as the models of a hub.
func fakeHub(t *testing.T, models map[string]string) string {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, dir := range models {
			if strings.HasPrefix(r.URL.Path, "/api/models/"+name) {
				entries, err := os.ReadDir(dir)
				if err != nil {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				var files []map[string]string
				for _, f := range entries {
					files = append(files, map[string]string{"rfilename": f.Name()})
				}
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(map[string]any{"id": name, "sha": commit, "siblings": files})
				return
			}
			if rest, ok := strings.CutPrefix(r.URL.Path, "/"+name+"/resolve/"); ok {
				_, file, _ := strings.Cut(rest, "/")
				data, err := os.ReadFile(filepath.Join(dir, file))
				if err != nil {
					break
				}
				sum := sha256.Sum256(data)
				w.Header().Set("X-Repo-Commit", commit)
				w.Header().Set("X-Linked-Etag", `"`+hex.EncodeToString(sum[:])+`"`)
				w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:])+`"`)
				http.ServeContent(w, r, file, time.Time{}, bytes.NewReader(data))
				return
			}
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// A model named as on the hub is not fetched unasked; with -download it comes
// with its drafter, and afterwards it is there without the network.
func TestDownload(t *testing.T) {
	testdata := fixture.Testdata(t)
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	t.Setenv("HF_TOKEN", "")
	t.Setenv("HF_ENDPOINT", fakeHub(t, map[string]string{
		"Qwen/Qwen3-4B":             filepath.Join(testdata, "tiny-qwen3", "target"),
		"z-lab/Qwen3-4B-DFlash-b16": filepath.Join(testdata, "tiny-qwen3", "draft"),
	}))
	args := []string{"-model", "Qwen/Qwen3-4B", "-prompt", "Write F.", "-max-tokens", "8"}
	out := runArgs(t, args...)
	require.Equal(t, 1, out.status)
	require.Contains(t, out.stderr, "Qwen/Qwen3-4B")
	require.Empty(t, out.stdout)

	first := runArgs(t, append(args, "-download")...)
	require.Zero(t, first.status, first.stderr)
	t.Setenv("HF_HUB_OFFLINE", "1")
	second := runArgs(t, args...)
	require.Zero(t, second.status, second.stderr)
	require.Equal(t, first.stdout, second.stdout)
	require.Contains(t, second.stderr, "tokens per cycle")
}
