//go:build unix

package main

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/godflash/godflash/internal/dist"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a machine on which every external program is a shell script, with a
// cache folder of its own. Nothing is downloaded or compiled.
type world struct {
	t     *testing.T
	bin   string // the whole PATH
	home  string // what the scripts hand out, and the record of their calls
	cache string
	files fstest.MapFS
	free  uint64
	nv    int // NVIDIA driver's version; 0 for none
	abi   func(includeDir string) error
}

const (
	fakePython = `case "$*" in
*"pip --version"*) echo "pip 23.2.1 from /usr/lib/python3 (python 3.11)" ;;
*"pip download"*)
  record pip
  while [ "$1" != --dest ]; do shift; done
  cp "$FAKE_HOME"/wheels/* "$2" ;;
esac
`
	fakeCargo = `case "$1" in
--version) echo "cargo 1.75.0 (abcdef 2024-01-01)" ;;
fetch) record "cargo fetch $RUSTC_BOOTSTRAP" ;;
metadata) echo "warning: something" >&2
  echo "{\"packages\":[{\"name\":\"cc\",\"version\":\"1.0.0\",\"manifest_path\":\"/x/Cargo.toml\"},{\"name\":\"mlx-sys\",\"version\":\"0.7.0\",\"manifest_path\":\"$FAKE_HOME/crate/Cargo.toml\"}]}" ;;
*) record "cargo $1" ;;
esac
`
	fakeCompiler = `case "$*" in
*-fsyntax-only*) cat >/dev/null; exit 0 ;;
*-shared*) record link ;;
*) record compile ;;
esac
while [ "$1" != -o ]; do shift; done
echo made >"$2"
`
	fakeLdd     = "echo '  libc.so.6 => /lib/libc.so.6 (0x0)'\n"
	fakeGetconf = "echo 'glibc 2.36'\n"
)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, bin: t.TempDir(), home: t.TempDir(), cache: filepath.Join(t.TempDir(), "cache"), free: 1 << 40}
	t.Setenv("PATH", w.bin)
	t.Setenv("FAKE_HOME", w.home)
	t.Setenv("CXX", "")
	t.Setenv(dist.RootEnv, w.cache)
	for name, text := range map[string]string{
		"python3": fakePython, "cargo": fakeCargo, "g++": fakeCompiler, "ldd": fakeLdd, "getconf": fakeGetconf,
	} {
		w.script(name, text)
	}
	w.files = fstest.MapFS{
		"shim/format.h":   {Data: []byte("// shim")},
		"pins/Cargo.toml": {Data: []byte("# manifest")},
		"pins/Cargo.lock": {Data: []byte("# lock")},
	}
	w.sources(map[string]string{
		"LICENSE": "licence of mlx-c", "mlx/c/mlx.h": "// all", "mlx/c/array.h": "// a", "mlx/c/array.cpp": "a", "mlx/c/ops.cpp": "b",
		"mlx/c/private/mlx.h": "// private",
	})
	w.wheel(map[string]string{
		"mlx/lib/libmlx.so":                              "the library",
		"mlx/include/mlx/mlx.h":                          "// c++",
		"mlx/share/cmake/MLX/MLXConfig.cmake":            "unused",
		"mlx_cpu.libs/libblas.so":                        "blas",
		"mlx_cpu-0.32.2.dist-info/licenses/LICENSE":      "licence of mlx",
		"mlx_cpu-0.32.2.dist-info/METADATA":              "unused",
		"mlx_cpu-0.32.2.dist-info/sboms/license.json":    "unused",
		"mlx_cpu-0.32.2.dist-info/licenses/LICENSE-BLAS": "licence of blas",
	})
	return w
}

// script puts an executable into the PATH.
func (w *world) script(name, text string) {
	w.t.Helper()
	text = "#!/bin/sh\nPATH=/usr/bin:/bin\nrecord() { echo \"$1\" >>\"$FAKE_HOME/calls\"; }\n" + text
	require.NoError(w.t, os.WriteFile(filepath.Join(w.bin, name), []byte(text), 0o755))
}

func (w *world) remove(names ...string) {
	for _, name := range names {
		require.NoError(w.t, os.Remove(filepath.Join(w.bin, name)))
	}
}

// calls counts how often the scripts recorded a call.
func (w *world) calls(name string) int {
	data, err := os.ReadFile(filepath.Join(w.home, "calls"))
	if !os.IsNotExist(err) {
		require.NoError(w.t, err)
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		if strings.TrimSpace(line) == name {
			n++
		}
	}
	return n
}

// sources writes what cargo "fetches" and pins it.
func (w *world) sources(files map[string]string) {
	var pins strings.Builder
	for name, text := range files {
		w.write(filepath.Join(w.home, "crate", "src", "mlx-c", name), text)
		fmt.Fprintf(&pins, "%x  %s\n", sha256.Sum256([]byte(text)), name)
	}
	w.files["pins/mlx-c.sha256"] = &fstest.MapFile{Data: []byte(pins.String())}
}

func (w *world) write(path, text string) {
	w.t.Helper()
	require.NoError(w.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(w.t, os.WriteFile(path, []byte(text), 0o644))
}

// wheel writes the wheel that pip "downloads" and pins it.
func (w *world) wheel(files map[string]string) {
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for name, text := range files {
		f, err := z.Create(name)
		require.NoError(w.t, err)
		_, err = f.Write([]byte(text))
		require.NoError(w.t, err)
	}
	require.NoError(w.t, z.Close())
	w.wheelBytes(buf.Bytes())
}

func (w *world) wheelBytes(data []byte) {
	w.write(filepath.Join(w.home, "wheels", "mlx_cpu-0.32.2-py3-none-any.whl"), string(data))
	sum := sha256.Sum256(data)
	for _, backend := range dist.Backends() {
		w.files["pins/requirements-"+backend+".txt"] = &fstest.MapFile{Data: []byte("# pins\nmlx==0.32.2 \\\n    --hash=sha256:" + hex.EncodeToString(sum[:]) + "\n")}
	}
}

// result is what one run of the command did.
type result struct {
	status         int
	stdout, stderr string
}

func (w *world) app(stdout, stderr *lockedBuffer) *app {
	return &app{
		stdout: stdout, stderr: stderr, goos: "linux", goarch: "amd64", files: w.files,
		diskFree: func(string) (uint64, error) { return w.free, nil },
		driver:   func() (int, bool) { return w.nv, w.nv != 0 },
		abi:      func(dir string) error { return w.abi(dir) },
	}
}

func (w *world) run(args ...string) result {
	return w.runContext(context.Background(), args...)
}

func (w *world) runContext(ctx context.Context, args ...string) result {
	var stdout, stderr lockedBuffer
	status := w.app(&stdout, &stderr).run(ctx, args)
	return result{status, stdout.String(), stderr.String()}
}

func (w *world) target() string {
	dir, err := dist.Dir(dist.CPU)
	require.NoError(w.t, err)
	return dir
}

// requireClean asserts that nothing but the lock and logs lies in the cache,
// apart from installations when there is to be one.
func (w *world) requireClean(installed bool) {
	w.t.Helper()
	entries, err := os.ReadDir(w.cache)
	require.NoError(w.t, err)
	found := false
	for _, e := range entries {
		switch name := e.Name(); {
		case name == lockName, strings.HasSuffix(name, ".log"):
		case name == filepath.Base(w.target()) && installed:
			found = true
		default:
			w.t.Errorf("left over in the cache: %s", name)
		}
	}
	require.Equal(w.t, installed, found, "installed")
}

// lockedBuffer is a buffer that several goroutines may use.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
