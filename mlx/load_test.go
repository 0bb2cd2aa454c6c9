package mlx_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/mlxc"
	"github.com/godflash/godflash/mlx"
)

// A process can load one library, so each case runs in a child: this test
// binary again, which opens a library and prints what came of it.
const childEnv = "GODFLASH_TEST_CHILD"

func child(what string) {
	switch what {
	case "open":
		opts := &mlx.Options{Path: os.Getenv("CHILD_PATH"), Backend: os.Getenv("CHILD_BACKEND")}
		if os.Getenv("CHILD_LOG") != "" {
			opts.Logger = slog.New(slog.NewTextHandler(os.Stdout, nil))
		}
		lib, err := mlx.Open(opts)
		if err != nil {
			fmt.Printf("notfound=%v version=%v\n%v\n", errors.Is(err, mlx.ErrLibraryNotFound), errors.Is(err, mlx.ErrLibraryVersion), err)
			return
		}
		fmt.Println("opened", lib.Path(), lib.Version())
		_ = lib.Close()
	case "classes":
		childClasses()
	case "errors":
		lib, err := mlx.Open(nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, f := range []func(s *mlx.Scope){
			func(s *mlx.Scope) { s.MatMul(s.Ones(mlx.Float32, 2, 3), s.Ones(mlx.Float32, 2, 3)) },
			func(s *mlx.Scope) { _, _, _ = s.LoadSafetensors("/no/such/file.safetensors") },
			func(s *mlx.Scope) { s.Sum(s.Ones(mlx.Float32, 2, 3), false, 9) },
			func(s *mlx.Scope) { panic("a bug") },
		} {
			fmt.Println(lib.Do(context.Background(), func(s *mlx.Scope) error { f(s); return nil }))
		}
		_ = lib.Close()
		fmt.Println("end reached")
	}
}

// runChild runs child in a process with the given environment and gives its output.
func runChild(t *testing.T, what string, env ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, mlx.LibraryEnv+"=") || what == "errors" || what == "classes" {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, append([]string{childEnv + "=" + what}, env...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "the child ended badly:\n%s", out)
	require.NotContains(t, string(out), "goroutine ", "a stack dump")
	return string(out)
}

// The default handler of mlx-c prints and ends the process; ours must be in place for all of these.
func TestErrorsNeverEndTheProcess(t *testing.T) {
	open(t)
	out := runChild(t, "errors")
	for _, want := range []string{
		"mlx: MatMul(float32[2,3], float32[2,3]): ",
		`mlx: LoadSafetensors("/no/such/file.safetensors"): `,
		"mlx: Sum(float32[2,3]; axes [9]): ",
		"mlx: panic inside Library.Do: a bug",
		"end reached",
	} {
		require.Contains(t, out, want)
	}
}

// stub compiles a library with every function of mlxc.h, except the named one,
// that says it is MLX of the given version.
func stub(t *testing.T, without, version string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	require.NoError(t, err, "cgo needs a C compiler, so this test may")
	var src strings.Builder
	src.WriteString("#include <string.h>\n#include \"mlxc.h\"\n")
	fmt.Fprintf(&src, "mlx_string mlx_string_new(void) { return (mlx_string){strdup(%q)}; }\n", version)
	src.WriteString("const char *mlx_string_data(mlx_string s) { return s.ctx; }\nint mlx_version(mlx_string *s) { return 0; }\n")
	for _, line := range strings.Split(mlxc.Header, "\n") {
		entry, ok := strings.CutPrefix(strings.TrimSpace(line), "F(")
		if !ok {
			continue
		}
		name := strings.TrimSpace(strings.Split(entry, ",")[1])
		if name == without || name == "mlx_string_new" || name == "mlx_string_data" || name == "mlx_version" {
			continue
		}
		fmt.Fprintf(&src, "int %s() { return 0; }\n", name)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"mlxc.h": mlxc.Header, "stub.c": src.String()} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	path := filepath.Join(dir, "libmlxc.so")
	out, err := exec.Command(cc, "-w", "-shared", "-fPIC", "-o", path, filepath.Join(dir, "stub.c")).CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

func TestLibraryThatDoesNotFit(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the files are made as Linux has them")
	}
	lib := open(t)
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}
	real, err := os.ReadFile(lib.Path())
	require.NoError(t, err)
	foreign := append([]byte(nil), real...)
	machine, foreignName := uint16(183), "EM_AARCH64"
	if runtime.GOARCH == "arm64" {
		machine, foreignName = 62, "EM_X86_64"
	}
	binary.LittleEndian.PutUint16(foreign[18:], machine)

	seen := map[string]string{}
	for name, c := range map[string]struct {
		path, kind string
		says       []string
	}{
		"renamed":       {filepath.Join(dir, "libmlxc.so.old"), "notfound=true version=false", []string{"libmlxc.so.old (Options.Path): ", "no such file"}},
		"empty":         {write("empty.so", nil), "notfound=true version=false", []string{"the file is empty"}},
		"text":          {write("text.so", []byte("not a library at all, but long enough to be read")), "notfound=true version=false", []string{"not a Linux library"}},
		"cut short":     {write("short.so", real[:len(real)/2]), "notfound=true version=false", []string{"short.so"}},
		"a folder":      {dir, "notfound=true version=false", []string{"it is a folder"}},
		"other machine": {write("foreign.so", foreign), "notfound=true version=false", []string{"it is built for " + foreignName}},
		"before 0.7":    {stub(t, "mlx_compile_cache_new", "0.32.2"), "notfound=false version=true", []string{"lacks mlx_compile_cache_new", "mlx-c 0.6 or older"}},
		"one lacking":   {stub(t, "mlx_fast_rope_dynamic", "0.32.2"), "notfound=false version=true", []string{"lacks mlx_fast_rope_dynamic"}},
		"old MLX":       {stub(t, "", "0.31.9"), "notfound=false version=true", []string{"it runs on MLX 0.31.9"}},
	} {
		out := runChild(t, "open", "CHILD_PATH="+c.path)
		require.Contains(t, out, c.kind, name)
		for _, s := range c.says {
			require.Contains(t, out, s, name)
		}
		require.Contains(t, out, c.path, name)
		require.Contains(t, out, "needed is mlx-c 0.7.0 on MLX 0.32.2 or newer", name)
		require.Contains(t, out, "go run github.com/godflash/godflash/native@latest", name)
		require.Contains(t, out, "make native", name)
		if before, ok := seen[out]; ok {
			t.Errorf("%s and %s say the same", name, before)
		}
		seen[out] = name
	}
}

func TestSearchOrder(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the files are made as Linux has them")
	}
	open(t)
	cache := t.TempDir()
	bad := filepath.Join(t.TempDir(), "bad.so")
	require.NoError(t, os.WriteFile(bad, nil, 0o600))

	out := runChild(t, "open", mlx.LibraryEnv+"="+bad)
	require.Contains(t, out, bad+" (MLXC_LIBRARY): the file is empty", "what the user names is not passed over")
	require.Equal(t, 1, strings.Count(out, "\n  "), "one place only:\n%s", out)

	// Nowhere: every place is listed, in order.
	out = runChild(t, "open", "GODFLASH_CACHE="+cache, "CHILD_BACKEND=cuda13", "LD_LIBRARY_PATH=")
	last := -1
	for _, place := range []string{
		filepath.Join(filepath.Dir(os.Args[0]), "libmlxc.so") + " (beside the program)",
		"Frameworks/libmlxc.so (../Frameworks of the program)",
		"lib/libmlxc.so (../lib of the program)",
		filepath.Join(cache, "mlxc-0.7.0-mlx-0.32.2-cuda13", "mlx", "lib", "libmlxc.so") + " (installed, cuda13)",
		"libmlxc.so (the system's loader)",
	} {
		at := strings.Index(out, place)
		require.Greater(t, at, last, "%s in\n%s", place, out)
		last = at
	}
	require.Contains(t, runChild(t, "open", "CHILD_BACKEND=rocm"), `Options.Backend "rocm" is not known; there are cpu, cuda13`)
}

// Places that the user did not name are passed over with a warning when they hold something unusable.
func TestUnusableInstallIsPassedOver(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the files are made as Linux has them")
	}
	lib := open(t)
	dir := t.TempDir()
	exe := filepath.Join(dir, "bin", "program")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "bin"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "lib"), 0o700))
	program, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(exe, program, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bin", "libmlxc.so"), nil, 0o600))
	require.NoError(t, os.Symlink(lib.Path(), filepath.Join(dir, "lib", "libmlxc.so")))

	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"=open", mlx.LibraryEnv+"=", "CHILD_LOG=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), `level=WARN msg="mlx: library passed over"`)
	require.Contains(t, string(out), "opened "+filepath.Join(dir, "lib", "libmlxc.so"))
}

func TestSilentByDefault(t *testing.T) {
	lib := open(t)
	out := runChild(t, "open", "CHILD_PATH="+lib.Path())
	require.NotContains(t, out, "level=")
	require.Contains(t, out, "opened ")
}

func TestLoadErrorIsAValue(t *testing.T) {
	e := &mlx.LoadError{Kind: mlx.ErrLibraryNotFound, Places: []mlx.Place{{Path: "/a", From: "here", Err: fs.ErrNotExist}}}
	require.ErrorIs(t, e, mlx.ErrLibraryNotFound)
	require.ErrorContains(t, e, "\n  /a (here): file does not exist\n")
}
