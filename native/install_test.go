//go:build unix

package main

import (
	"archive/zip"
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/dist"
)

func TestInstall(t *testing.T) {
	w := newWorld(t)
	r := w.run()
	require.Zero(t, r.status, r.stderr)
	require.Empty(t, r.stderr)
	require.Contains(t, r.stdout, "[6/6]")
	require.Contains(t, r.stdout, "installed MLX "+dist.MLXVersion)
	w.requireClean(true)

	var files []string
	require.NoError(t, filepath.WalkDir(w.target(), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(w.target(), path)
			files = append(files, rel)
		}
		return err
	}))
	want := []string{
		"LICENSE.mlx", "LICENSE.mlx.LICENSE-BLAS", "LICENSE.mlx-c", dist.ManifestName, "mlx/lib/libmlx.so", "mlx/lib/" + dist.LibraryName(),
		"mlx-c/mlx/c/array.h", "mlx-c/mlx/c/mlx.h", "mlx_cpu.libs/libblas.so",
	}
	slices.Sort(files)
	slices.Sort(want)
	require.Equal(t, want, files)
	licence, err := os.ReadFile(filepath.Join(w.target(), "LICENSE.mlx"))
	require.NoError(t, err)
	require.Equal(t, "licence of mlx", string(licence))

	require.Equal(t, 4, w.calls("compile")) // two files of mlx-c, sgemm.c and nvrtc.c
	require.Equal(t, 1, w.calls("link"))
	require.Equal(t, 1, w.calls("cargo fetch"))
	require.Zero(t, w.calls("cargo build"))

	lib, err := dist.Library(dist.CPU)
	require.NoError(t, err)
	r = w.run("-dir")
	require.Equal(t, result{0, lib + "\n", ""}, r)
}

// An installation by an installer that built from something else is made anew.
func TestOtherRecipeInstallsAgain(t *testing.T) {
	w := newWorld(t)
	require.Zero(t, w.run().status)
	m, err := dist.ReadManifest(w.target())
	require.NoError(t, err)
	require.Len(t, m.Recipe, 64)
	ours := m.Recipe
	m.Recipe = ""
	require.NoError(t, m.Write(w.target()))
	r := w.run()
	require.Zero(t, r.status, r.stderr)
	require.Contains(t, r.stdout, "another version of the installer")
	m, err = dist.ReadManifest(w.target())
	require.NoError(t, err)
	require.Equal(t, ours, m.Recipe)
	require.Contains(t, w.run().stdout, "already installed")
}

func TestSecondRunDoesNothing(t *testing.T) {
	w := newWorld(t)
	require.Zero(t, w.run().status)
	// Not one program is started, not even to look for its version.
	w.remove("python3", "cargo", "g++", "ldd", "getconf")
	r := w.run()
	require.Zero(t, r.status, r.stderr)
	require.Contains(t, r.stdout, "already installed in "+w.target())
	require.Equal(t, result{}, w.run("-q"))
}

func TestCheckAndRepair(t *testing.T) {
	w := newWorld(t)
	r := w.run("-check")
	require.Equal(t, 1, r.status)
	require.Contains(t, r.stderr, "nothing is installed")
	require.Zero(t, w.run("-q").status)
	r = w.run("-check")
	require.Zero(t, r.status, r.stderr)
	require.Contains(t, r.stdout, "all 8 files")

	// A flipped byte is seen by -check alone, and -force repairs it.
	lib := filepath.Join(w.target(), "mlx", "lib", "libmlx.so")
	data, err := os.ReadFile(lib)
	require.NoError(t, err)
	data[0] ^= 0x20
	require.NoError(t, os.WriteFile(lib, data, 0o644))
	r = w.run("-check")
	require.Equal(t, 1, r.status)
	require.Contains(t, r.stderr, lib)
	require.Contains(t, r.stderr, "-force")
	require.Zero(t, w.run("-force").status)
	require.Zero(t, w.run("-check").status)
	w.requireClean(true)

	// A file that is missing is seen by the next run, which installs again.
	require.NoError(t, os.Remove(lib))
	r = w.run()
	require.Zero(t, r.status, r.stderr)
	require.Contains(t, r.stdout, "installing again")
	require.FileExists(t, lib)
	w.requireClean(true)
}

func TestMissingTools(t *testing.T) {
	tests := []struct {
		name   string
		change func(w *world)
		want   []string
		not    []string
	}{
		{
			"no pip", func(w *world) { w.script("python3", "echo '/usr/bin/python3: No module named pip'; exit 1") },
			[]string{"No module named pip", "apt-get install python3-pip", "dnf install python3-pip"},
			[]string{"apt-get install cargo", "apt-get install g++"},
		},
		{"no python", func(w *world) { w.remove("python3") }, []string{"neither python3 nor pip3 nor pip", "python3-pip"}, nil},
		{"old pip", func(w *world) { w.script("python3", "echo pip 18.1 from x") }, []string{"version 18.1, 21.0 or newer", "python3-pip"}, nil},
		{"no cargo", func(w *world) { w.remove("cargo") }, []string{"cargo is missing", "apt-get install cargo"}, []string{"python3-pip"}},
		{"old cargo", func(w *world) { w.script("cargo", "echo cargo 1.46.0") }, []string{"cargo 1.46 is too old, 1.65"}, nil},
		{"broken cargo", func(w *world) { w.script("cargo", "echo no default toolchain; exit 1") }, []string{"no default toolchain"}, nil},
		{"no compiler", func(w *world) { w.remove("g++") }, []string{"looked for g++, c++, clang++", "apt-get install g++", "dnf install gcc-c++"}, nil},
		{"old compiler", func(w *world) { w.script("g++", "echo 'error: unrecognized option -std=c++20'; exit 1") }, []string{"cannot compile C++20", "unrecognized option", "g++ 11"}, nil},
		{"wrong CXX", func(w *world) { w.t.Setenv("CXX", "mycc") }, []string{"looked for mycc"}, nil},
		{"all", func(w *world) { w.remove("python3", "cargo", "g++") }, []string{"python3-pip", "install cargo", "install g++"}, nil},
		{"old glibc", func(w *world) { w.script("getconf", "echo glibc 2.31") }, []string{"glibc 2.31", "2.35 or newer"}, nil},
		{"musl", func(w *world) { w.remove("getconf"); w.script("ldd", "echo 'musl libc (x86_64)'; exit 1") }, []string{"musl", "glibc 2.35"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.change(w)
			r := w.run()
			require.Equal(t, 1, r.status)
			for _, want := range tt.want {
				require.Contains(t, r.stderr, want)
			}
			for _, not := range tt.not {
				require.NotContains(t, r.stderr, not)
			}
			w.requireClean(false)
			require.Zero(t, w.calls("pip"))
		})
	}
}

func TestOtherTools(t *testing.T) {
	w := newWorld(t)
	w.remove("python3", "g++", "getconf", "ldd")
	w.script("pip3", strings.ReplaceAll(fakePython, "*\"pip ", "*\""))
	w.script("clang++", fakeCompiler)
	r := w.run()
	require.Zero(t, r.status, r.stderr)
	require.Equal(t, 1, w.calls("pip"))
}

func TestOldCargoAsksForSinglePackages(t *testing.T) {
	w := newWorld(t)
	w.script("cargo", strings.ReplaceAll(fakeCargo, "cargo 1.75.0", "cargo 1.65.0"))
	r := w.run()
	require.Zero(t, r.status, r.stderr)
	require.Equal(t, 1, w.calls("cargo fetch 1"))
	require.Empty(t, cargoEnv([2]int{1, 70}))
	require.NotContains(t, cargoEnv([2]int{1, 68}), "RUSTC_BOOTSTRAP=1")
}

func TestFailures(t *testing.T) {
	pip := func(says string) func(*world) {
		return func(w *world) {
			w.script("python3", `case "$*" in *"pip --version"*) echo "pip 23.2.1" ;; *) cat <<'END'`+"\n"+says+"\nEND\nexit 1 ;; esac\n")
		}
	}
	cargo := func(says string) func(*world) {
		return func(w *world) {
			w.script("cargo", `[ "$1" = --version ] && { echo "cargo 1.75.0"; exit; }; cat <<'END'`+"\n"+says+"\nEND\nexit 101\n")
		}
	}
	const again = "check the network or proxy, then run the same command again"
	tests := []struct {
		name   string
		change func(w *world)
		want   []string
	}{
		{
			"pip: wrong hash", pip("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n  Expected sha256 aa\n       Got bb"),
			[]string{"pinned SHA-256", "DO NOT MATCH", "Expected sha256 aa", "install-cpu.log"},
		},
		{
			"pip: no network", pip("WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('Failed to establish a new connection: [Errno -2] Name or service not known')'\nERROR: No matching distribution found for mlx-cpu==0.32.2"),
			[]string{"could not be fetched", "Name or service not known", again},
		},
		{"pip: unknown version", pip("ERROR: No matching distribution found for mlx-cpu==0.32.2"), []string{"could not be fetched", "No matching distribution", "index"}},
		{
			"pip: full disk", pip("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"),
			[]string{"no space left in ", "120 MB", "Errno 28", dist.RootEnv},
		},
		{"pip: anything else", pip("ValueError: surprise"), []string{"exit status 1", "| ValueError: surprise", "install-cpu.log"}},
		{
			"pip: too few files", func(w *world) {
				require.NoError(w.t, os.RemoveAll(filepath.Join(w.home, "wheels")))
				require.NoError(w.t, os.MkdirAll(filepath.Join(w.home, "wheels"), 0o755))
				w.write(filepath.Join(w.home, "wheels", "README"), "")
			},
			[]string{"0 files in place of 1"},
		},
		{"cargo: no network", cargo("error: failed to download from registry\nCaused by:\n  [6] Could not resolve hostname"), []string{"mlx-c's sources could not be fetched: ", again, "| error: failed to download"}},
		{"cargo: retries", cargo("warning: spurious network error (3 tries remaining): [7] Could not connect to server"), []string{"could not be fetched: [7] Could not connect to server; check"}},
		{"cargo: wrong hash", cargo("error: failed to verify the checksum of `mlx-sys v0.7.0`"), []string{"pinned SHA-256", "mlx-sys v0.7.0"}},
		{"cargo: not the crate", func(w *world) { w.script("cargo", `echo 'cargo 1.75.0'`) }, []string{"does not name mlx-sys 0.7.0"}},
		{
			"source changed", func(w *world) { w.write(filepath.Join(w.home, "crate", "src", "mlx-c", "mlx", "c", "ops.cpp"), "evil") },
			[]string{"ops.cpp has SHA-256", "pinned is"},
		},
		{
			"compiler fails", func(w *world) {
				w.script("g++", `case "$*" in *-c*ops.cpp*) echo "ops.cpp:1: error: bad"; exit 1 ;; esac`+"\n"+fakeCompiler)
			},
			[]string{"compile ops.cpp", "| ops.cpp:1: error: bad", "install-cpu.log"},
		},
		{
			"compiler: full disk", func(w *world) {
				w.script("g++", `case "$*" in *-c*ops.cpp*) echo "fatal error: error writing to x: No space left on device"; exit 1 ;; esac`+"\n"+fakeCompiler)
			},
			[]string{"no space left in ", "120 MB"},
		},
		{
			"linker fails", func(w *world) {
				w.script("g++", `case "$*" in *-shared*) echo "undefined reference to foo"; exit 1 ;; esac`+"\n"+fakeCompiler)
			},
			[]string{"link " + dist.LibraryName(), "undefined reference to foo"},
		},
		{"loader finds faults", func(w *world) { w.script("ldd", "echo 'libblas.so => not found'; echo 'undefined symbol: cuInit (x)'") }, []string{"2 faults", "libblas.so => not found"}},
		{"disk is full", func(w *world) { w.free = 5 << 20 }, []string{"no space left in ", "120 MB", "5 MB are free", dist.RootEnv}},
		{"broken wheel", func(w *world) { w.wheelBytes([]byte("PK but not really")) }, []string{"unpack mlx_cpu-0.32.2", "zip"}},
		{"wheel that is not pinned", func(w *world) { w.write(filepath.Join(w.home, "wheels", "mlx_cpu-0.32.2-py3-none-any.whl"), "else") }, []string{"not a pinned one"}},
		{"wheel with a file outside", func(w *world) { w.wheel(map[string]string{"mlx/lib/../../../../evil": "x"}) }, []string{"refused", "outside its folder"}},
		{"wheel with an absolute path", func(w *world) { w.wheel(map[string]string{"/mlx/lib/evil": "x"}) }, []string{"refused", "outside its folder"}},
		{"wheel with a backslash", func(w *world) { w.wheel(map[string]string{`mlx/lib/..\..\evil`: "x"}) }, []string{"refused"}},
		{"wheel with a link", func(w *world) { w.wheelBytes(wheelWithLink(w.t)) }, []string{"refused", "neither a file nor a folder"}},
		{"wheel with a file twice", func(w *world) { w.wheelBytes(wheelWithTwice(w.t)) }, []string{"file exists"}},
	}
	for _, tt := range tests {
		for _, before := range []bool{false, true} {
			t.Run(tt.name+map[bool]string{false: "", true: ", over an installation"}[before], func(t *testing.T) {
				w := newWorld(t)
				if before {
					require.Zero(t, w.run().status)
				}
				tt.change(w)
				r := w.run("-q", "-force")
				require.Equal(t, 1, r.status, r.stdout)
				for _, want := range tt.want {
					require.Contains(t, r.stderr, want)
				}
				w.requireClean(before)
				if before {
					r = w.run("-check")
					require.Zero(t, r.status, r.stderr)
				}
			})
		}
	}
}

func wheelWithLink(t *testing.T) []byte {
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	h := &zip.FileHeader{Name: "mlx/lib/libmlx.so"}
	h.SetMode(fs.ModeSymlink | 0o777)
	f, err := z.CreateHeader(h)
	require.NoError(t, err)
	_, err = f.Write([]byte("/etc/passwd"))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return buf.Bytes()
}

func wheelWithTwice(t *testing.T) []byte {
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for range 2 {
		_, err := z.Create("mlx/lib/libmlx.so")
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return buf.Bytes()
}

func TestCacheThatCannotBeWritten(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "file")
	w.write(file, "")
	t.Setenv(dist.RootEnv, filepath.Join(file, "sub"))
	r := w.run()
	require.Equal(t, 1, r.status)
	require.Contains(t, r.stderr, "cannot write in "+file)
	require.Contains(t, r.stderr, dist.RootEnv)
	for _, errno := range []syscall.Errno{syscall.EROFS, syscall.EACCES, syscall.EPERM} {
		in := &installation{root: "/some/cache"}
		err := in.explain(&fs.PathError{Op: "mkdir", Path: "/some/cache", Err: errno})
		require.ErrorContains(t, err, "cannot write in /some/cache")
	}
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		in := &installation{root: "/some/cache", options: options{backend: dist.CUDA13}}
		err := in.explain(&fs.PathError{Op: "write", Path: "/some/cache/x", Err: errno})
		require.ErrorContains(t, err, "no space left in /some/cache: installing needs 4096 MB")
	}
}

func TestInterruptLeavesNothing(t *testing.T) {
	// The program waits for one that it has started in turn.
	hang := `sleep 300 & echo $! >"$FAKE_HOME/pid.new"; mv "$FAKE_HOME/pid.new" "$FAKE_HOME/pid"; wait`
	for name, change := range map[string]func(w *world){
		"while downloading": func(w *world) {
			w.script("python3", `case "$*" in *"pip --version"*) echo "pip 23.2.1"; exit ;; esac`+"\n"+hang)
		},
		"while compiling": func(w *world) {
			w.script("g++", `case "$*" in *-fsyntax-only*) exit ;; *-c*ops.cpp*) `+hang+" ;; esac\n"+fakeCompiler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			change(w)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			done := make(chan result)
			go func() { done <- w.runContext(ctx) }()
			pidFile := filepath.Join(w.home, "pid")
			var pid int
			require.Eventually(t, func() bool {
				data, _ := os.ReadFile(pidFile)
				n, err := strconv.Atoi(strings.TrimSpace(string(data)))
				pid = n
				return err == nil
			}, time.Minute, 5*time.Millisecond)
			cancel()
			r := <-done
			require.Equal(t, 130, r.status)
			require.Contains(t, r.stderr, "interrupted; nothing was installed")
			w.requireClean(false)
			require.Eventually(t, func() bool { return gone(pid) }, time.Minute, 5*time.Millisecond, "what the program had started is still there")
		})
	}
}

// gone says whether a process has ended, be it that nobody has asked for its
// status yet.
func gone(pid int) bool {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return syscall.Kill(pid, 0) == syscall.ESRCH || bytes.Contains(stat, []byte(") Z "))
}

func TestOldInstallationComesBack(t *testing.T) {
	w := newWorld(t)
	require.Zero(t, w.run().status)
	// The new tree vanishes after the manifest was made: the last rename fails.
	in := &installation{app: w.app(nil, nil), options: options{backend: dist.CUDA13}, root: w.cache, target: w.target()}
	require.NoError(t, in.prepare())
	lib := filepath.Join(in.tree, "mlx", "lib", "libmlx.so")
	w.write(lib, "new")
	ctx := &vanishing{Context: context.Background(), tree: in.tree}
	require.ErrorIs(t, in.finish(ctx), fs.ErrNotExist)
	require.NoError(t, os.RemoveAll(in.staging))
	require.Zero(t, w.run("-check").status)
	w.requireClean(true)
}

// vanishing removes the tree when it is asked whether to go on, which finish
// does just before the renames.
type vanishing struct {
	context.Context
	tree string
}

func (v *vanishing) Err() error { os.RemoveAll(v.tree); return nil }

func TestTwoAtOnce(t *testing.T) {
	w := newWorld(t)
	w.script("g++", `case "$*" in *-c*ops.cpp*) : >"$FAKE_HOME/started"; while [ ! -e "$FAKE_HOME/go" ]; do sleep 0.02; done ;; esac`+"\n"+fakeCompiler)
	var outs, errs [2]lockedBuffer
	done := make(chan int)
	start := func(i int) {
		go func() { done <- w.app(&outs[i], &errs[i]).run(context.Background(), nil) }()
	}
	start(0)
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(w.home, "started")); return err == nil }, time.Minute, 5*time.Millisecond)
	start(1)
	require.Eventually(t, func() bool { return strings.Contains(outs[1].String(), "waiting") }, time.Minute, 5*time.Millisecond)

	// A third one that is told to stop while it waits does stop.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.Equal(t, 130, w.runContext(ctx).status)

	w.write(filepath.Join(w.home, "go"), "")
	require.Zero(t, <-done, errs[0].String()+errs[1].String())
	require.Zero(t, <-done, errs[0].String()+errs[1].String())
	require.Contains(t, outs[0].String(), "installed MLX")
	require.Contains(t, outs[1].String(), "already installed")
	require.Equal(t, 1, w.calls("pip"))
	w.requireClean(true)
}

func TestKilledRunIsSweptUp(t *testing.T) {
	w := newWorld(t)
	w.write(filepath.Join(w.cache, stagingPrefix+"123", "tree", "x"), "")
	require.Zero(t, w.run().status)
	w.requireClean(true)
}

func TestNVIDIA(t *testing.T) {
	w := newWorld(t)
	w.nv = 570
	r := w.run()
	require.Zero(t, r.status, r.stderr)
	require.Contains(t, r.stdout, "-backend cuda13 installs the GPU build")

	r = w.run("-backend", "cuda13")
	require.Zero(t, r.status, r.stderr)
	require.Contains(t, r.stdout, "version 570: the build needs 580")
	dir, err := dist.Dir(dist.CUDA13)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "mlx", "include", "mlx", "mlx.h"), "read at run time to compile kernels")

	// Without a driver only what the driver brings may be missing.
	w.nv = 0
	w.script("ldd", "echo 'libcuda.so.1 => not found'; echo 'undefined symbol: cuInit (x)'")
	r = w.run("-backend", "cuda13", "-force")
	require.Zero(t, r.status, r.stderr)
	require.Contains(t, r.stdout, "no NVIDIA driver")
	w.script("ldd", "echo 'libcudnn.so.9 => not found'")
	r = w.run("-backend", "cuda13", "-force")
	require.Equal(t, 1, r.status)
	require.Contains(t, r.stderr, "libcudnn.so.9 => not found")

	require.Equal(t, 580, parseDriver([]byte("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue May 1 2026\nGCC version: 12.2")))
	require.Equal(t, 575, parseDriver([]byte("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.51.03  Release Build")))
	require.Zero(t, parseDriver([]byte("nothing")))
}
