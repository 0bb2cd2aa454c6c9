//go:build linux

package kernels

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/dist"
)

// cached is a machine with the fake NVRTC of testdata and a cache of its own.
type cached struct {
	t            *testing.T
	check, lib   string
	calls, cache string
	env          []string
}

// build compiles testdata's files and nvrtc.c, as the installer does, to what
// stands for libnvrtc, libmlx, libmlxc and a program that uses them.
func build(t *testing.T, more ...string) *cached {
	t.Helper()
	cc, dir := compiler(t), t.TempDir()
	write := func(name string, data []byte) string {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
		return filepath.Join(dir, name)
	}
	write("store.h", store)
	source := write("nvrtc.c", nvrtc)
	lib := filepath.Join(dir, "libmlxc.so")
	run := func(args ...string) {
		text, err := exec.Command(cc, args...).CombinedOutput()
		require.NoError(t, err, "%s", text)
	}
	// C, not C++: these two are not to hide that the symbols' names match.
	fake, user := filepath.Join("testdata", "nvrtc_fake.c"), filepath.Join("testdata", "nvrtc_check.c")
	plain := []string{"-x", "c", "-O1", "-fPIC", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"}
	run(slices.Concat(plain, []string{fake, "-shared", "-Wl,-soname,libnvrtc.so.13", "-o", filepath.Join(dir, "libnvrtc.so.13")})...)
	run(slices.Concat(plain, []string{
		"-DUSER", user, "-x", "none", filepath.Join(dir, "libnvrtc.so.13"),
		"-shared", "-Wl,-rpath,$ORIGIN", "-Wl,-soname,libmlx.so", "-o", filepath.Join(dir, "libmlx.so"),
	})...)
	run(slices.Concat(plain, []string{user, "-o", filepath.Join(dir, "check")})...)
	run(slices.Concat(Sources()[1].Flags, []string{"-Wall", "-Wextra", "-Werror"}, more, []string{
		source, "-x", "none", "-L" + dir, "-Wl,--no-as-needed", "-lmlx",
		"-shared", "-Wl,-rpath,$ORIGIN", "-Wl,-z,defs", "-Wl,--allow-shlib-undefined", "-o", lib,
	})...)
	return &cached{t: t, check: filepath.Join(dir, "check"), lib: lib}
}

// fresh returns the same libraries with an empty cache.
func (c *cached) fresh(t *testing.T, env ...string) *cached {
	root := filepath.Join(t.TempDir(), "not", "yet")
	return &cached{
		t: t, check: c.check, lib: c.lib, cache: filepath.Join(root, "kernels", "compiled"), calls: filepath.Join(t.TempDir(), "calls"),
		env: append([]string{"GODFLASH_CACHE=" + root}, env...),
	}
}

// program is the steps of one compile, and others.
func program(more ...string) []string {
	return append([]string{"name=one.cu", "text=code", "header=common", "expression=f<1>", "expression=g<2>", "option=-O"}, append(more, "compile=1")...)
}

func (c *cached) command(steps ...string) *exec.Cmd {
	cmd := exec.Command(c.check, append([]string{c.lib}, steps...)...)
	cmd.Env = append([]string{"FAKE_CALLS=" + c.calls, "MALLOC_PERTURB_=90"}, c.env...) // so that freed memory is not read unseen
	return cmd
}

func (c *cached) run(steps ...string) string {
	c.t.Helper()
	text, err := c.command(steps...).CombinedOutput()
	require.NoError(c.t, err, "%s", text)
	return string(text)
}

// compiles returns what NVRTC was asked to compile since the last call.
func (c *cached) compiles() []string {
	c.t.Helper()
	data, err := os.ReadFile(c.calls)
	if err != nil {
		require.ErrorIs(c.t, err, os.ErrNotExist)
		return nil
	}
	require.NoError(c.t, os.Remove(c.calls))
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// plain is what a process without the cache gets.
func (c *cached) plain(steps ...string) string {
	c.t.Helper()
	without := c.fresh(c.t, append(slices.Clone(c.env[1:]), "GODFLASH_KERNEL_CACHE=off")...)
	out := without.run(steps...)
	require.NotEmpty(c.t, without.compiles())
	require.NoDirExists(c.t, without.cache)
	return out
}

// files returns the cache's files.
func (c *cached) files() []string {
	c.t.Helper()
	entries, err := os.ReadDir(c.cache)
	require.NoError(c.t, err)
	var names []string
	for _, e := range entries {
		names = append(names, filepath.Join(c.cache, e.Name()))
	}
	return names
}

func TestKernelCache(t *testing.T) {
	libraries := build(t, "-DGF_PRECOMPILED_BYTES=1000")
	t.Run("exports", func(t *testing.T) { testExports(libraries.fresh(t)) })
	t.Run("folder", func(t *testing.T) { testFolder(libraries.fresh(t)) })
	for _, test := range []struct {
		name string
		run  func(*cached)
	}{
		{"second process", testSecondProcess},
		{"key", testKey},
		{"damage", testDamage},
		{"failure", testFailure},
		{"limit", testLimit},
		{"without NVRTC", testWithoutNVRTC},
		{"more than is kept", testMoreThanIsKept},
		{"at once", testAtOnce},
		{"precompiled headers", testPrecompiled},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(libraries.fresh(t))
		})
	}
}

func testSecondProcess(c *cached) {
	want := c.plain(program()...)
	require.Regexp(c.t, `(?s)compile: 0.*a remark.*lowered: 0.*lowered: 0.*cubin: 0, \d{5} bytes.*name: _Z\|f<1>\nname: _Z\|g<2>\ndestroy: 0 1`, want)
	require.Equal(c.t, want, c.run(program()...))
	require.Equal(c.t, []string{"compile one.cu -O"}, c.compiles())
	for range 2 {
		require.Equal(c.t, want, c.run(program()...))
		require.Empty(c.t, c.compiles())
	}

	// What lies on the disk.
	files := c.files()
	require.Len(c.t, files, 1)
	require.Regexp(c.t, `/[0-9a-f]{64}$`, files[0])
	data, err := os.ReadFile(files[0])
	require.NoError(c.t, err)
	sum := sha256.Sum256(data[:len(data)-32])
	require.Equal(c.t, sum[:], data[len(data)-32:])
	for path, mode := range map[string]os.FileMode{files[0]: 0o600, c.cache: 0o700, filepath.Dir(c.cache): 0o700, filepath.Dir(filepath.Dir(c.cache)): 0o700} {
		info, err := os.Stat(path)
		require.NoError(c.t, err)
		require.Equal(c.t, mode, info.Mode().Perm(), path)
	}
}

// Whatever changes the result is another kernel.
func testKey(c *cached) {
	include, nested, folder := filepath.Join(c.t.TempDir(), "a.cuh"), filepath.Join(c.t.TempDir(), "b.cuh"), c.t.TempDir()
	write := func(path, text string) { require.NoError(c.t, os.WriteFile(path, []byte(text), 0o600)) }
	write(nested, "nested")
	write(include, "int a;\n#include \""+nested+"\"\n")
	write(filepath.Join(folder, "c.h"), "c")
	base := []string{"name=one.cu", "text=x\n#include \"" + include + "\"\n", "header=h", "expression=f", "option=-O", "option=--include-path=" + folder, "compile=1"}
	with := func(i int, step string) []string { return slices.Concat(base[:i], []string{step}, base[i+1:]) }
	before := func(i int, step string) []string { return slices.Insert(slices.Clone(base), i, step) }
	c.run(base...)
	require.Len(c.t, c.compiles(), 1)

	once := func(what string, steps []string, env ...string) {
		c.t.Helper()
		other := *c
		other.env = append(slices.Clone(c.env), env...)
		require.Equal(c.t, other.plain(steps...), other.run(steps...), what)
		require.Len(c.t, c.compiles(), 1, what)
		require.Equal(c.t, other.plain(steps...), other.run(steps...), what)
		require.Empty(c.t, c.compiles(), what)
	}
	once("name", with(0, "name=two.cu"))
	once("text", with(1, "text=x "))
	once("header", with(2, "header=i"))
	once("no header", slices.Delete(slices.Clone(base), 2, 3))
	once("header twice", before(2, "header=h"))
	once("name expression", with(3, "expression=g"))
	once("another name expression", before(4, "expression=g"))
	c.run(base...)
	require.Empty(c.t, c.compiles())
	once("option", with(4, "option=-G"))
	once("options joined", slices.Concat(base[:4], []string{"option=-O--include-path=" + folder}, base[6:]))
	once("folder", with(5, "option=--include-path="+c.t.TempDir()))
	once("another option", before(6, "option=-lineinfo"))
	once("version", base, "FAKE_VERSION=1")
	write(include, "int b;\n#include \""+nested+"\"\n")
	once("included file", base)
	write(nested, "Nested")
	once("file included by that", base)
	require.NoError(c.t, os.Remove(nested))
	once("missing file", base)
	write(filepath.Join(folder, "d.h"), "")
	once("new header in a folder", base)
	write(filepath.Join(folder, "c.h"), "cc")
	once("size of a header in a folder", base)
	require.NoError(c.t, os.Chtimes(filepath.Join(folder, "c.h"), time.Time{}, time.Unix(1, 0)))
	once("time of a header in a folder", base)
	once("time of a header in a folder -I", with(5, "option=-I"+folder))
	require.NoError(c.t, os.Chtimes(filepath.Join(folder, "c.h"), time.Time{}, time.Unix(2, 0)))
	once("time of a header in a folder -I", with(5, "option=-I"+folder))

	c.run(base...)
	require.Len(c.t, c.compiles(), 1)

	// The library's own time stands for its minor versions.
	dir := c.t.TempDir()
	require.NoError(c.t, os.CopyFS(dir, os.DirFS(filepath.Dir(c.lib))))
	moved := *c
	moved.lib = filepath.Join(dir, filepath.Base(c.lib))
	require.NoError(c.t, os.Chtimes(filepath.Join(dir, "libnvrtc.so.13"), time.Time{}, time.Unix(1, 0)))
	moved.run(base...)
	require.Len(c.t, c.compiles(), 1)
	moved.run(base...)
	require.Empty(c.t, c.compiles())
}

// A file that is not as it was written is written again.
func testDamage(c *cached) {
	want := c.run(program()...)
	path := c.files()[0]
	good, err := os.ReadFile(path)
	require.NoError(c.t, err)
	c.run(program("name=other.cu")...)
	files := slices.DeleteFunc(c.files(), func(f string) bool { return f == path })
	require.Len(c.t, files, 1)
	other, err := os.ReadFile(files[0])
	require.NoError(c.t, err)
	c.compiles()

	// With a right checksum, so that the rest of the check is reached.
	sum := func(data []byte) []byte {
		s := sha256.Sum256(data)
		return append(slices.Clone(data), s[:]...)
	}
	body := good[:len(good)-32]
	damaged := map[string][]byte{
		"empty": {}, "another program's": other, "longer": append(slices.Clone(good), 0), "text": []byte("something else entirely"),
		"cut and summed": sum(body[:len(body)-1]), "extended and summed": sum(append(slices.Clone(body), 1)),
		"another name and summed":  sum(bytes.Replace(body, []byte("g<2>\x00"), []byte("g<3>\x00"), 1)),
		"another magic and summed": sum(append([]byte{'G'}, body[1:]...)), "head alone and summed": sum(body[:50]),
	}
	for i := range 8 {
		long := slices.Clone(body)
		long[50+i] = 0xff // in the first part's length
		damaged[fmt.Sprintf("length %d and summed", i)] = sum(long)
	}
	for _, at := range []int{0, 17, 18, 49, 50, 58, 70, 100, 1000, len(good) / 2, len(good) - 33, len(good) - 32, len(good) - 1} {
		flipped := slices.Clone(good)
		flipped[at] ^= 4
		damaged[fmt.Sprintf("byte %d", at)] = flipped
		damaged[fmt.Sprintf("cut to %d", at)] = good[:at]
	}
	for name, data := range damaged {
		require.NoError(c.t, os.WriteFile(path, data, 0o600))
		require.Equal(c.t, want, c.run(program()...), name)
		require.Len(c.t, c.compiles(), 1, name)
		now, err := os.ReadFile(path)
		require.NoError(c.t, err)
		require.True(c.t, bytes.Equal(good, now), name)
		require.Equal(c.t, want, c.run(program()...), name)
		require.Empty(c.t, c.compiles(), name)
	}

	// Things that are no files.
	require.NoError(c.t, os.Remove(path))
	require.NoError(c.t, syscall.Mkfifo(path, 0o600))
	require.Equal(c.t, want, c.run(program()...))
	require.Len(c.t, c.compiles(), 1)
	require.Equal(c.t, want, c.run(program()...))
	require.Empty(c.t, c.compiles())
	require.NoError(c.t, os.Remove(path))
	require.NoError(c.t, os.MkdirAll(filepath.Join(path, "x"), 0o700))
	for range 2 {
		require.Equal(c.t, want, c.run(program()...))
		require.Len(c.t, c.compiles(), 1)
	}
	require.Len(c.t, c.files(), 2, "temporary files are left")
}

// All that libmlx.so compiles kernels with leaves the object, and nothing else.
func testExports(c *cached) {
	t := c.t
	nm, err := exec.LookPath("nm")
	require.NoError(t, err, "nm comes with every compiler here")
	text, err := exec.Command(nm, "-D", "--extern-only", "--defined-only", c.lib).CombinedOutput()
	require.NoError(t, err, "%s", text)
	var names []string
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		names = append(names, strings.Fields(line)[2])
	}
	slices.Sort(names)
	require.Equal(t, []string{
		"nvrtcAddNameExpression", "nvrtcCompileProgram", "nvrtcCreateProgram", "nvrtcDestroyProgram", "nvrtcGetCUBIN", "nvrtcGetCUBINSize",
		"nvrtcGetLoweredName", "nvrtcGetPTX", "nvrtcGetPTXSize", "nvrtcGetProgramLog", "nvrtcGetProgramLogSize",
	}, names)
}

// The folder is that of package dist, and without one all goes on.
func testFolder(c *cached) {
	t := c.t
	want := c.plain(program()...)
	dir := t.TempDir()
	t.Chdir(dir)
	for name, env := range map[string][4]string{ // GODFLASH_CACHE, XDG_CACHE_HOME, HOME, GODFLASH_KERNEL_CACHE
		"own":      {dir + "/own", dir + "/xdg", dir + "/home", ""},
		"relative": {"relative", dir + "/xdg", dir + "/home", "on"},
		"XDG":      {"", dir + "/xdg", dir + "/home", ""},
		"home":     {"", "", dir + "/home", ""},
		"none":     {"", "relative", dir + "/home", ""},
		"no home":  {"", "", "", ""},
		"file":     {"/dev/null", "", "", ""},
		"in file":  {"/dev/null/x", "", "", ""},
		"no place": {"/proc/nowhere", "", "", ""},
		"long":     {"/" + strings.Repeat("long/", 1000), "", "", ""},
		"off":      {dir + "/off", "", "", "off"},
	} {
		t.Run(name, func(t *testing.T) {
			c := *c
			c.t = t
			c.env = nil
			for i, key := range []string{dist.RootEnv, "XDG_CACHE_HOME", "HOME", "GODFLASH_KERNEL_CACHE"} {
				t.Setenv(key, env[i])
				c.env = append(c.env, key+"="+env[i])
			}
			root, err := dist.Root()
			usable := err == nil && strings.HasPrefix(root, dir) && env[3] != "off"
			require.Equal(t, want, c.run(program()...))
			require.Len(t, c.compiles(), 1)
			found, err := filepath.Glob(filepath.Join(root, "kernels", "compiled", "*"))
			require.NoError(t, err)
			require.Equal(t, usable, len(found) == 1)
			require.Equal(t, want, c.run(program()...))
			require.Equal(t, usable, c.compiles() == nil)
		})
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 4)
}

// What does not compile is not kept, and says why.
func testFailure(c *cached) {
	steps := program("text=#error bad")
	want := c.plain(steps...)
	require.Regexp(c.t, `(?s)compile: 6.*error: #error bad`, want)
	for range 2 {
		require.Equal(c.t, want, c.run(steps...))
		require.Len(c.t, c.compiles(), 1)
	}
	require.NoDirExists(c.t, c.cache)
}

// A limit on the size of files does not end the process.
func testLimit(c *cached) {
	want := c.plain(program()...)
	for range 2 {
		cmd := c.command(program()...)
		cmd.Args = append([]string{"sh", "-c", `ulimit -f 20; exec "$@"`, "sh"}, cmd.Args...)
		var err error
		cmd.Path, err = exec.LookPath("sh")
		require.NoError(c.t, err)
		text, err := cmd.CombinedOutput()
		require.NoError(c.t, err, "%s", text)
		require.Equal(c.t, want, string(text))
		require.Len(c.t, c.compiles(), 1)
	}
	require.Empty(c.t, c.files())
}

// Without libnvrtc every function says so with NVRTC's own number.
func testWithoutNVRTC(c *cached) {
	dir := c.t.TempDir()
	require.NoError(c.t, os.CopyFS(dir, os.DirFS(filepath.Dir(c.lib))))
	text, err := exec.Command(compiler(c.t), "-x", "c", "-O1", "-fPIC", "-D_GNU_SOURCE", "-DUSER", filepath.Join("testdata", "nvrtc_check.c"),
		"-shared", "-Wl,-soname,libmlx.so", "-o", filepath.Join(dir, "libmlx.so")).CombinedOutput()
	require.NoError(c.t, err, "%s", text)
	c.lib = filepath.Join(dir, filepath.Base(c.lib))
	out := c.run(program("ptx=", "late=")...)
	require.Equal(c.t, 10, strings.Count(out, ": 11"), out)
	require.Empty(c.t, c.compiles())
}

// A record answers no more than it holds.
func testMoreThanIsKept(c *cached) {
	c.run(program()...)
	c.compiles()
	for _, ask := range []string{"ptx=", "unknown=", "late="} {
		steps := program(ask)
		require.Equal(c.t, c.plain(steps...), c.run(steps...), ask)
		require.Equal(c.t, []string{"compile one.cu -O"}, c.compiles(), ask)
	}
	// Where there is no machine code, the PTX is kept.
	for i := range 2 {
		steps := program("option=--gpu-architecture=compute_90", "ptx=")
		require.Equal(c.t, c.plain(steps...), c.run(steps...))
		require.Len(c.t, c.compiles(), 1-i)
	}
	steps := program("option=--gpu-architecture=compute_90")
	require.Equal(c.t, c.plain(steps...), c.run(steps...))
	require.Len(c.t, c.compiles(), 1)
}

// Threads and processes that compile the same do not meet half of a file.
func testAtOnce(c *cached) {
	var want []string
	steps := func(i int) []string {
		return append(program(fmt.Sprintf("text=code %d", i))[:7], "compile=8")
	}
	for i := range 3 {
		want = append(want, c.plain(steps(i)...))
	}
	for range 2 {
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() {
				text, err := c.command(steps(i % 3)...).CombinedOutput()
				if err != nil || string(text) != want[i%3] {
					c.t.Errorf("%v: %s", err, text)
				}
			})
		}
		all.Wait()
		require.Len(c.t, c.files(), 3)
	}
	c.compiles()
	c.run(steps(1)...)
	require.Empty(c.t, c.compiles())
}

// Kernels that begin alike share precompiled headers, which leave no trace.
func testPrecompiled(c *cached) {
	kernel := func(name, text string) []string {
		return []string{"name=custom_kernel_" + name, "text=\n#include <a.h>\n\n#include \"b.h\"\n\n" + text, "compile=1"}
	}
	three := slices.Concat(kernel("one", "#define X\nnamespace one {}"), kernel("two", "#include \"/two.h\"\nnamespace two {}"), kernel("three", "namespace three {}"))
	want := c.plain(three...)
	calls := func(steps []string, want string, lines ...string) {
		c.t.Helper()
		require.Equal(c.t, want, c.run(steps...))
		got := regexp.MustCompile(`=/\S+`).ReplaceAllString(strings.Join(c.compiles(), "\n"), "=")
		require.Equal(c.t, strings.Join(lines, "\n"), got)
		if entries, err := os.ReadDir(c.cache); err == nil {
			for _, e := range entries {
				require.Len(c.t, e.Name(), 64, "left over")
			}
			require.NoError(c.t, os.RemoveAll(c.cache))
		}
	}
	const create, use = "compile shared_headers.cu --create-pch=", " --use-pch="
	calls(three, want, create, "compile custom_kernel_one"+use, "compile custom_kernel_two"+use, "compile custom_kernel_three"+use)

	// A program that does not compile says so in its own words, and others go on.
	bad := slices.Concat(kernel("bad", "#error bad"), kernel("one", "x"))
	calls(bad, c.plain(bad...), create, "compile custom_kernel_bad"+use, "compile custom_kernel_bad", "compile custom_kernel_one"+use)

	// Others than the kernels that begin as the first did are compiled as ever.
	others := slices.Concat(kernel("one", "x"), []string{"name=gather", "compile=1"}, kernel("two", "x"), []string{"text=#include <c.h>\n", "compile=1"},
		kernel("three", "x"), []string{"option=-G", "compile=1"}, []string{"name=custom_kernel_", "text=x", "compile=1"})
	calls(others, c.plain(others...), create, "compile custom_kernel_one"+use, "compile gather", "compile custom_kernel_two"+use, "compile custom_kernel_two",
		"compile custom_kernel_three"+use, "compile custom_kernel_three -G", "compile custom_kernel_ -G")

	// NVRTC that cannot is not asked twice.
	c.env = append(c.env, "FAKE_PCH=create")
	calls(three, want, create, "compile custom_kernel_one", "compile custom_kernel_two", "compile custom_kernel_three")
	c.env[len(c.env)-1] = "FAKE_PCH=use"
	calls(three, want, create, "compile custom_kernel_one"+use, "compile custom_kernel_one", "compile custom_kernel_two", "compile custom_kernel_three")
	c.env[0] = "GODFLASH_CACHE=/dev/null"
	calls(three, want, "compile custom_kernel_one", "compile custom_kernel_two", "compile custom_kernel_three")
}

// The oldest files go, by their last use; files of others stay.
func TestKernelCacheBound(t *testing.T) {
	libraries := build(t, "-O0", "-DGF_CACHE_FILES=8", "-DGF_CACHE_BYTES=400000", "-DGF_PRECOMPILED_BYTES=1ll<<60")
	c := libraries.fresh(t)
	steps := func(i int) []string { return program(fmt.Sprintf("name=%d.cu", i)) }
	c.run(steps(0)...)
	c.run(steps(1)...)
	c.compiles()
	put := func(name string, age time.Duration) string {
		path := filepath.Join(c.cache, name)
		require.NoError(t, os.WriteFile(path, make([]byte, 1000), 0o600))
		require.NoError(t, os.Chtimes(path, time.Time{}, time.Now().Add(-age)))
		return path
	}
	foreign, similar := put("README", 1000*time.Hour), put(strings.Repeat("g", 64), 1000*time.Hour)
	young, old := put("tmp-young", time.Minute), put("tmp-old", 2*time.Hour)
	folder := filepath.Join(c.cache, "tmp-folder")
	require.NoError(t, os.Mkdir(folder, 0o700))
	put("tmp-folder/headers", 2*time.Hour)
	require.NoError(t, os.Chtimes(folder, time.Time{}, time.Now().Add(-2*time.Hour)))
	for i := 2; i < 12; i++ {
		c.run(steps(i)...)
		c.run(steps(0)...) // used always, so never the oldest
		require.Len(t, c.compiles(), 1)
		n, bytes := 0, int64(0)
		for _, f := range c.files() {
			if info, err := os.Stat(f); err == nil && len(filepath.Base(f)) == 64 && f != similar {
				n, bytes = n+1, bytes+info.Size()
			}
		}
		require.LessOrEqual(t, n, 8)
		require.LessOrEqual(t, bytes, int64(400000))
		require.GreaterOrEqual(t, n, min(i+1, 4))
	}
	require.FileExists(t, foreign)
	require.FileExists(t, similar)
	require.FileExists(t, young)
	require.NoFileExists(t, old)
	require.NoDirExists(t, folder)
	c.run(steps(11)...)
	require.Empty(t, c.compiles())
	c.run(steps(1)...)
	require.Len(t, c.compiles(), 1)

	// Headers are not precompiled where there is no room for it.
	c.run("name=custom_kernel_one", "text=#include <a.h>\n", "compile=1")
	require.Equal(t, []string{"compile custom_kernel_one"}, c.compiles())

	// The bound in files, of small ones.
	for i := range 10 {
		put(fmt.Sprintf("%064d", i), time.Duration(i+1)*time.Hour)
	}
	c.run(steps(20)...)
	require.LessOrEqual(t, len(c.files()), 8+3)
	require.NoFileExists(t, filepath.Join(c.cache, fmt.Sprintf("%064d", 9)))
}
