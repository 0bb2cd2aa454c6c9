//go:build linux

package kernels

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// compiler returns the C++ compiler, which the installer needs too.
func compiler(t testing.TB) string {
	t.Helper()
	names := []string{os.Getenv("CXX"), "c++", "g++", "clang++"}
	for _, name := range names {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	t.Fatalf("no C++ compiler among %q: install g++", names)
	return ""
}

// flags are sgemm.c's.
var flags = Sources()[0].Flags

// object compiles source, which stands for sgemm.c, for the tests.
func object(t testing.TB, source []byte, more ...string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "sgemm.c")
	require.NoError(t, os.WriteFile(file, source, 0o600))
	out := filepath.Join(dir, "sgemm.o")
	args := slices.Concat(flags, []string{"-Wall", "-Wextra", "-Werror", "-DGF_TEST"}, more, []string{"-c", file, "-o", out})
	text, err := exec.Command(compiler(t), args...).CombinedOutput()
	require.NoError(t, err, "%s", text)
	return out
}

// checker links the program of testdata/check.c to an object.
func checker(t testing.TB, object string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "check")
	text, err := exec.Command(compiler(t), "-x", "c++", "-std=c++17", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror",
		filepath.Join("testdata", "check.c"), "-x", "none", object, "-o", out, "-lm").CombinedOutput()
	require.NoError(t, err, "%s", text)
	return out
}

func TestSGEMMEqualsItsChain(t *testing.T) {
	program := checker(t, object(t, sgemm))
	for _, seed := range []string{"1", "2"} {
		text, err := exec.Command(program, seed, "250").CombinedOutput()
		require.NoError(t, err, "%s", text)
		require.Contains(t, string(text), "checked portable")
		require.Contains(t, string(text), "250 problems, 0 faults")
	}
}

// The check sees what it is there to see.
func TestSGEMMCheckFindsFaults(t *testing.T) {
	for name, fault := range map[string]struct{ old, new string }{
		"two roundings":       {"#define GF_FMA(a, b, c) __builtin_fmaf(a, b, c)", "#define GF_FMA(a, b, c) ((a) * (b) + (c))"},
		"negative zero":       {"GF_MUL(scale, GF_ADD(acc[i][v], zero))", "GF_MUL(scale, acc[i][v])"},
		"C read with beta 0":  {"if (beta != 0)\n", "if (beta == beta)\n"},
		"C not scaled":        {"*x = beta == 0 ? 0 : beta * *x;", "*x = beta == 0 ? 0 : *x;"},
		"one step too few":    {"for (ptrdiff_t k = 0; k < kc; k++) {\n\t\tGF_VEC", "for (ptrdiff_t k = 0; k < kc - (kc > 100); k++) {\n\t\tGF_VEC"},
		"a block starts over": {"first = k0 == 0", "first = 1"},
		"lda unchecked":       {"lda < need_a ||", ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, 1, bytes.Count(sgemm, []byte(fault.old)), "the place of the fault is not in sgemm.c")
			broken := bytes.Replace(sgemm, []byte(fault.old), []byte(fault.new), 1)
			text, err := exec.Command(checker(t, object(t, broken, "-DGF_PORTABLE", "-O1", "-w")), "1", "250").CombinedOutput()
			require.Error(t, err, "%s", text)
		})
	}
}

// One symbol leaves the object.
func TestSGEMMExportsOneSymbol(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "sgemm.c")
	require.NoError(t, os.WriteFile(file, sgemm, 0o600))
	out := filepath.Join(dir, "sgemm.o")
	args := slices.Concat(flags, []string{"-c", file, "-o", out})
	text, err := exec.Command(compiler(t), args...).CombinedOutput()
	require.NoError(t, err, "%s", text)

	nm, err := exec.LookPath("nm")
	require.NoError(t, err, "nm comes with every compiler here")
	text, err = exec.Command(nm, "--extern-only", "--defined-only", out).CombinedOutput()
	require.NoError(t, err, "%s", text)
	fields := strings.Fields(string(text))
	require.Len(t, fields, 3, "%s", text)
	require.Equal(t, "cblas_sgemm", fields[2])
}
