//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/dist"
)

func (w *world) runOn(goos, goarch string, args ...string) result {
	var stdout, stderr lockedBuffer
	a := w.app(&stdout, &stderr)
	a.goos, a.goarch = goos, goarch
	status := a.run(context.Background(), args)
	return result{status, stdout.String(), stderr.String()}
}

func TestPlatformsThatAreRefused(t *testing.T) {
	for _, p := range [][2]string{{"windows", "amd64"}, {"darwin", "amd64"}, {"linux", "386"}, {"freebsd", "arm64"}} {
		w := newWorld(t)
		r := w.runOn(p[0], p[1])
		require.Equal(t, 1, r.status)
		require.Contains(t, r.stderr, p[0]+"/"+p[1])
		require.Contains(t, r.stderr, "Apple silicon")
		require.NoDirExists(t, w.cache)
	}
}

func TestArm64AsksForItsOwnWheels(t *testing.T) {
	w := newWorld(t)
	w.script("python3", `case "$*" in *x86_64*) echo wrong; exit 1 ;; esac`+"\n"+fakePython)
	require.Zero(t, w.runOn("linux", "arm64").status)
	require.Equal(t, 1, w.runOn("linux", "amd64", "-force").status)
}

func TestHomebrew(t *testing.T) {
	w := newWorld(t)
	r := w.runOn("darwin", "arm64")
	require.Equal(t, 1, r.status)
	require.Contains(t, r.stderr, "brew install mlx-c")

	w.script("brew", `case "$1" in --prefix) echo "$FAKE_HOME/opt/mlx-c" ;; list) cat "$FAKE_HOME/version" ;; esac`)
	r = w.runOn("darwin", "arm64")
	require.Equal(t, 1, r.status)
	require.Contains(t, r.stderr, "mlx-c is not installed")
	require.Contains(t, r.stderr, "    brew install mlx-c\n")

	lib := filepath.Join(w.home, "opt", "mlx-c", "lib", "libmlxc.dylib")
	w.write(lib, "")
	tests := []struct {
		version string
		status  int
		want    string
	}{
		{"mlx-c 0.6.1\n", 1, "brew upgrade mlx-c"},
		{"mlx-c 0.7.0\n", 0, "found mlx-c 0.7.0 in " + filepath.Join(w.home, "opt", "mlx-c")},
		{"mlx-c 0.8.2_1\n", 0, "tested with mlx-c 0.7.0"},
		{"", 1, "does not tell its version"},
	}
	for _, tt := range tests {
		w.write(filepath.Join(w.home, "version"), tt.version)
		r = w.runOn("darwin", "arm64")
		require.Equal(t, tt.status, r.status, tt.version)
		require.Contains(t, r.stdout+r.stderr, tt.want)
	}
	w.write(filepath.Join(w.home, "version"), "mlx-c 0.7.0\n")
	require.Equal(t, result{0, lib + "\n", ""}, w.runOn("darwin", "arm64", "-dir"))
	r = w.runOn("darwin", "arm64", "-backend", "cuda13")
	require.Equal(t, 1, r.status)
	require.Contains(t, r.stderr, "for Linux")
	for _, flag := range []string{"-check", "-force"} {
		r = w.runOn("darwin", "arm64", flag)
		require.Equal(t, 1, r.status)
		require.Contains(t, r.stderr, "brew reinstall mlx-c")
	}
	require.NoDirExists(t, w.cache)
}

func TestABI(t *testing.T) {
	w := newWorld(t)
	r := w.run("-abi")
	require.Equal(t, 1, r.status)
	require.Contains(t, r.stderr, "without -abi")
	require.Zero(t, w.run().status)
	w.abi = func(dir string) error {
		_, err := os.Stat(filepath.Join(dir, "mlx", "c", "mlx.h"))
		return err
	}
	r = w.run("-abi")
	require.Zero(t, r.status, r.stderr)
	require.Contains(t, r.stdout, filepath.Join(w.target(), "mlx-c"))
	w.abi = func(string) error { return errors.New("mlx_add differs") }
	r = w.run("-abi")
	require.Equal(t, 1, r.status)
	require.Contains(t, r.stderr, "mlx_add differs")
}

func TestFlags(t *testing.T) {
	w := newWorld(t)
	for args, want := range map[string]string{
		"-backend vulkan": `unknown backend "vulkan" (known: cpu, cuda13)`, "-nope": "-nope", "extra": `unexpected argument "extra"`,
		"-check -dir": "-check and -dir exclude each other", "-force -abi -q": "-force and -abi exclude each other",
		"-abi -dir -check -force": "-check and -force and -dir and -abi",
	} {
		r := w.run(strings.Fields(args)...)
		require.Equal(t, 2, r.status, args)
		require.Contains(t, r.stderr, want)
		require.Empty(t, r.stdout, args)
	}
	r := w.run("-h")
	require.Zero(t, r.status)
	for _, want := range []string{"-backend", "-check", "-force", "-dir", "-abi", "-q", dist.RootEnv} {
		require.Contains(t, r.stderr, want)
	}
	r = w.run("-dir")
	require.Equal(t, 1, r.status)
	require.Contains(t, r.stderr, "without -dir")
	require.NoDirExists(t, w.cache)
}

func TestVersion(t *testing.T) {
	for text, want := range map[string][2]int{
		"cargo 1.65.0": {1, 65}, "pip 23.2.1 from /usr/lib/python3.11/x": {23, 2}, "glibc 2.36": {2, 36},
		"ldd (Debian GLIBC 2.36-9+deb12u10) 2.36": {2, 36}, "ldd (Ubuntu GLIBC 2.35-0ubuntu3.8) 2.35\nmore 1.1": {2, 35},
		"mlx-c 0.7.0": {0, 7},
	} {
		got, ok := version([]byte(text))
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
	_, ok := version([]byte("no number"))
	require.False(t, ok)
}

// The pins that are really built in.
func TestEmbeddedPins(t *testing.T) {
	read := func(name string) string {
		data, err := embedded.ReadFile(name)
		require.NoError(t, err)
		return string(data)
	}
	for backend, names := range map[string][]string{
		dist.CPU:    {"mlx-cpu"},
		dist.CUDA13: {"mlx-cuda-13", "nvidia-cublas", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cudnn-cu13", "nvidia-cufft", "nvidia-nccl-cu13"},
	} {
		text := read("pins/requirements-" + backend + ".txt")
		require.Contains(t, text, names[0]+"=="+dist.MLXVersion+" ")
		require.NotContains(t, text, "://")
		require.NotRegexp(t, `(?m)^\s*--(extra-)?index`, text)
		require.Len(t, pinnedPackage.FindAllString(text, -1), len(names))
		hashes := pinnedHash.FindAllString(text, -1)
		require.Len(t, hashes, 2*len(names), "one wheel for each of two architectures")
		seen := map[string]bool{}
		for _, h := range hashes {
			require.False(t, seen[h], h)
			seen[h] = true
		}
		for _, name := range names {
			require.Regexp(t, `(?m)^`+name+`==[0-9.]+ \\\n    --hash=sha256:[0-9a-f]{64} \\\n    --hash=sha256:[0-9a-f]{64}$`, text)
		}
	}
	require.Equal(t, dist.MLXCVersion, sourceVersion)
	require.Contains(t, read("pins/Cargo.toml"), sourceCrate+` = "=`+sourceVersion+`"`)
	lock := read("pins/Cargo.lock")
	require.Regexp(t, `(?m)^version = 3$`, lock, "the format that old cargos read")
	require.Regexp(t, `(?m)^name = "`+sourceCrate+`"\nversion = "`+regexp.QuoteMeta(sourceVersion)+`"$`, lock)
	sums := read("pins/mlx-c.sha256")
	for _, name := range []string{"LICENSE", "mlx/c/mlx.h", "mlx/c/ops.cpp", "mlx/c/private/io.h"} {
		require.Regexp(t, `(?m)^[0-9a-f]{64}  `+regexp.QuoteMeta(name)+`$`, sums)
	}
	require.Equal(t, 26, strings.Count(sums, ".cpp\n"))
	require.Contains(t, read(shimHeader), "__cpp_lib_format")
}

// The header that stands in for std::format, with whatever compiler is here.
func TestFormatHeader(t *testing.T) {
	cxx, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no g++ here: the header is tried where the installer can compile")
	}
	dir := t.TempDir()
	compile := func(body string) (string, error) {
		source := filepath.Join(dir, "a.cpp")
		text := "#include <cstdio>\n#include <string>\n#if __has_include(<format>)\n#include <format>\n#endif\nint main() {" + body + "}\n"
		require.NoError(t, os.WriteFile(source, []byte(text), 0o644))
		args := append(cxxFlags("shim"), "-Wall", "-Wextra", "-Werror", source, "-o", filepath.Join(dir, "a"))
		out, err := exec.Command(cxx, args...).CombinedOutput()
		return string(out), err
	}
	out, err := compile(`std::string s = "str";
		std::puts(std::format("a {} b {}{} c {}", 1, s, "lit", 18446744073709551615ull).c_str());
		std::puts(std::format("plain").c_str());
		std::puts(std::format("{}", true).c_str());`)
	require.NoError(t, err, out)
	printed, err := exec.Command(filepath.Join(dir, "a")).Output()
	require.NoError(t, err)
	require.Equal(t, "a 1 b strlit c 18446744073709551615\nplain\ntrue\n", string(printed))
	out, err = compile(`std::puts(std::format("{} {}", 1).c_str());`)
	require.Error(t, err, "too few arguments have to be seen by the compiler: %s", out)
}
