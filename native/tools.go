package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// toolset is the programs an installation uses.
type toolset struct {
	pip      []string // program and leading arguments
	cargo    string
	cargoEnv []string // added to the environment of cargo
	cxx      string
}

// The oldest versions that do what is asked of them: pip takes several
// --platform flags, cargo is the oldest one tried (Debian 12's), the C library
// is the one MLX's builds name.
var (
	minPip   = [2]int{21, 0}
	minCargo = [2]int{1, 65}
	minGlibc = [2]int{2, 35}
)

// cargoEnv makes an old cargo ask the registry about single packages, as new
// ones do, in place of cloning its whole index from another host, which is slow
// and often not reachable. Before 1.68 that is behind a switch for experiments;
// nothing but downloading depends on it.
func cargoEnv(v [2]int) []string {
	switch {
	case less(v, [2]int{1, 68}):
		return []string{"CARGO_REGISTRIES_CRATES_IO_PROTOCOL=sparse", "CARGO_UNSTABLE_SPARSE_REGISTRY=true", "RUSTC_BOOTSTRAP=1"}
	case less(v, [2]int{1, 70}):
		return []string{"CARGO_REGISTRIES_CRATES_IO_PROTOCOL=sparse"}
	}
	return nil
}

// findTools looks for every program and tries each one out. The error has one
// line for each that is missing or too old.
func (in *installation) findTools(ctx context.Context) (*toolset, error) {
	if err := in.checkLibc(ctx); err != nil {
		return nil, err
	}
	var t toolset
	var problems []string
	missing := func(what, debian, fedora string) {
		problems = append(problems, fmt.Sprintf("%s; install it with: apt-get install %s (Debian, Ubuntu) or dnf install %s (Fedora)", what, debian, fedora))
	}

	pip, why := in.findPip(ctx)
	if pip == nil {
		missing("pip is missing: "+why, "python3-pip", "python3-pip")
	}
	t.pip = pip

	if cargo, err := exec.LookPath("cargo"); err != nil {
		missing("cargo is missing", "cargo", "cargo")
	} else if out, err := in.execute(ctx, in.work, cargo, "--version"); err != nil {
		missing(fmt.Sprintf("cargo does not run (%s)", firstLine(err)), "cargo", "cargo")
	} else if v, ok := version(out); ok && less(v, minCargo) {
		missing(fmt.Sprintf("cargo %d.%d is too old, %d.%d or newer is needed", v[0], v[1], minCargo[0], minCargo[1]), "cargo", "cargo")
	} else {
		t.cargo = cargo
		if ok {
			t.cargoEnv = cargoEnv(v)
		}
	}

	cxx, why := in.findCompiler(ctx)
	if cxx == "" {
		missing(why, "g++", "gcc-c++")
	}
	t.cxx = cxx

	if ctx.Err() != nil {
		return nil, errInterrupted
	}
	if len(problems) > 0 {
		return nil, errors.New(strings.Join(problems, "\n        "))
	}
	return &t, nil
}

func (in *installation) findPip(ctx context.Context) (command []string, why string) {
	why = "there is neither python3 nor pip3 nor pip"
	for _, c := range [][]string{{"python3", "-m", "pip"}, {"pip3"}, {"pip"}} {
		program, err := exec.LookPath(c[0])
		if err != nil {
			continue
		}
		c = append([]string{program}, c[1:]...)
		out, err := in.execute(ctx, in.work, c[0], append(c[1:len(c):len(c)], "--version")...)
		if err != nil {
			why = fmt.Sprintf("%s does not run (%s)", strings.Join(c, " "), firstLine(err))
			continue
		}
		if v, ok := version(out); ok && less(v, minPip) {
			why = fmt.Sprintf("%s is version %d.%d, %d.%d or newer is needed", strings.Join(c, " "), v[0], v[1], minPip[0], minPip[1])
			continue
		}
		return c, ""
	}
	return nil, why
}

// probe is what a compiler must accept: C++20 and a standard library, which
// clang can lack.
const probe = `#include <concepts>
#include <string>
#if __has_include(<format>)
#include <format>
#endif
std::string probe(int n) { return std::format("{}", n); }
`

func (in *installation) findCompiler(ctx context.Context) (program, why string) {
	candidates := []string{"g++", "c++", "clang++"}
	if cxx := os.Getenv("CXX"); cxx != "" {
		candidates = []string{cxx}
	}
	why = "a C++ compiler is missing (looked for " + strings.Join(candidates, ", ") + ")"
	for _, c := range candidates {
		program, err := exec.LookPath(c)
		if err != nil {
			continue
		}
		args := append(cxxFlags(in.shim), "-fsyntax-only", "-x", "c++", "-")
		if _, err := in.executeInput(ctx, in.work, probe, program, args...); err != nil {
			why = fmt.Sprintf("%s cannot compile C++20 (%s): g++ 11, clang++ 14 or newer is needed", c, firstLine(err))
			continue
		}
		return program, ""
	}
	return "", why
}

// checkLibc refuses a C library that MLX's builds cannot run on. Where none of
// the programs that tell the version is there, the check after linking decides.
func (in *installation) checkLibc(ctx context.Context) error {
	var out []byte
	if getconf, err := exec.LookPath("getconf"); err == nil {
		out, _ = in.execute(ctx, in.work, getconf, "GNU_LIBC_VERSION")
	}
	if len(out) == 0 {
		ldd, err := exec.LookPath("ldd")
		if err != nil {
			return nil
		}
		if out, err = in.execute(ctx, in.work, ldd, "--version"); err != nil {
			var failed *commandError
			if errors.As(err, &failed) {
				out = failed.output
			}
		}
	}
	if strings.Contains(string(out), "musl") {
		return fmt.Errorf("this system's C library is musl: MLX's builds for Linux need glibc %d.%d or newer (Debian 12, Ubuntu 22.04, Fedora 36 or newer)", minGlibc[0], minGlibc[1])
	}
	if v, ok := version(out); ok && less(v, minGlibc) {
		return fmt.Errorf("this system has glibc %d.%d: MLX's builds for Linux need %d.%d or newer (Debian 12, Ubuntu 22.04, Fedora 36 or newer)", v[0], v[1], minGlibc[0], minGlibc[1])
	}
	return nil
}

var versionNumber = regexp.MustCompile(`\b(\d+)\.(\d+)`)

// version finds the first version number in the first line.
func version(out []byte) (v [2]int, ok bool) {
	line, _, _ := strings.Cut(string(out), "\n")
	// The distribution's name of a package can come first, in brackets.
	if i := strings.LastIndex(line, ") "); i >= 0 && strings.HasPrefix(line, "ldd") {
		line = line[i:]
	}
	m := versionNumber.FindStringSubmatch(line)
	if m == nil {
		return v, false
	}
	v[0], _ = strconv.Atoi(m[1])
	v[1], _ = strconv.Atoi(m[2])
	return v, true
}

func less(a, b [2]int) bool { return a[0] < b[0] || a[0] == b[0] && a[1] < b[1] }

// firstLine is what a failed program said first, or why it did not start.
func firstLine(err error) string {
	var failed *commandError
	if errors.As(err, &failed) {
		for line := range strings.Lines(string(failed.output)) {
			if line = strings.TrimSpace(line); line != "" {
				return line
			}
		}
		return failed.err.Error()
	}
	return err.Error()
}

// cxxFlags are the flags of every compilation: the dialect, and the header that
// supplies std::format where the library has none.
func cxxFlags(shim string) []string {
	return []string{"-std=c++20", "-include", filepath.Join(shim, path.Base(shimHeader))}
}
