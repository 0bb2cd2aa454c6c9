//go:build linux && cgo

package mlx_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/mlxc"
	"github.com/godflash/godflash/mlx"
)

// against are measured here and, by testdata/bench.c, in C. Rounds are so many that one takes some 50 ms.
var against = []struct {
	name      string
	evaluates bool // MLX's own threads work: wall time counts, else the time of the calling thread
	rounds    int
	f         func(s *mlx.Scope, x, m mlx.Array, host []float32)
}{
	{"op", false, 200_000, func(s *mlx.Scope, x, _ mlx.Array, _ []float32) { s.Free(s.Add(x, x)) }},
	{"graph", true, 100, func(s *mlx.Scope, x, _ mlx.Array, _ []float32) {
		_ = s.Library().Do(context.Background(), func(s *mlx.Scope) error {
			last := x
			for range 1000 {
				last = s.Add(last, x)
			}
			return s.Eval(last)
		})
	}},
	{"close", false, 100, func(s *mlx.Scope, x, _ mlx.Array, _ []float32) {
		_ = s.Library().Do(context.Background(), func(s *mlx.Scope) error {
			for range 1000 {
				s.Add(x, x)
			}
			return nil
		})
	}},
	{"copy", false, 100, func(s *mlx.Scope, _, _ mlx.Array, host []float32) {
		half := len(host) / 2
		a := mlx.FromSlice(s, host[:half])
		v, err := mlx.ViewSlice[float32](a)
		s.Fail(err)
		copy(host[half:], v)
		s.Free(a)
	}},
	{"toslice", false, 100, func(s *mlx.Scope, _, _ mlx.Array, host []float32) {
		a := mlx.FromSlice(s, host[:len(host)/2])
		_, err := mlx.ToSlice[float32](a)
		s.Fail(err)
		s.Free(a)
	}},
	{"matmul", true, 3, func(s *mlx.Scope, _, m mlx.Array, _ []float32) {
		r := s.MatMul(m, m)
		_ = s.Eval(r)
		s.Free(r)
	}},
}

// BenchmarkAgainstC does the same work through this package and through mlx-c from
// C, in turns, and gives the medians of both, in nanoseconds per round, and of their ratio: op
// is one Add with its Free, graph 1,000 Adds built, evaluated and freed with their
// scope, close the same without evaluation, copy 1 MiB in and out, toslice the same
// into a new slice each time (in C still into the old one), matmul float32 1024².
func BenchmarkAgainstC(b *testing.B) {
	bin := buildC(b)
	lib, err := mlx.Open(nil)
	require.NoError(b, err)
	defer lib.Close()
	for _, c := range against {
		b.Run(c.name, func(b *testing.B) {
			var here, there, ratio []float64
			for b.Loop() {
				out, err := exec.Command(bin, lib.Path(), c.name, strconv.Itoa(c.rounds)).Output()
				require.NoError(b, err)
				inC, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
				require.NoError(b, err)
				var took float64
				require.NoError(b, lib.Do(b.Context(), func(s *mlx.Scope) error {
					x, m := s.Scalar(1, mlx.Float32), s.Ones(mlx.Float32, 1024, 1024)
					host := make([]float32, 2<<18)
					if err := s.Eval(x, m); err != nil {
						return err
					}
					for range 2 { // the first one warms up, as in C
						start := clock(c.evaluates)
						for range c.rounds {
							c.f(s, x, m, host)
						}
						took = clock(c.evaluates) - start
					}
					return nil
				}))
				inGo := took / float64(c.rounds)
				here, there, ratio = append(here, inGo), append(there, inC), append(ratio, inGo/inC)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(here), "go-ns")
			b.ReportMetric(median(there), "c-ns")
			b.ReportMetric(median(ratio), "go/c")
		})
	}
}

// clock gives nanoseconds. A thread's own time does not count what other programs take on a busy machine.
func clock(wall bool) float64 {
	if wall {
		return float64(time.Since(began).Nanoseconds())
	}
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if err := syscall.Getrusage(thread, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano() + u.Stime.Nano())
}

var began = time.Now()

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// buildC compiles testdata/bench.c.
func buildC(t testing.TB) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("needs a C compiler")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mlxc.h"), []byte(mlxc.Header), 0o600))
	bin := filepath.Join(dir, "bench")
	out, err := exec.Command(cc, "-O2", "-std=gnu11", "-I", dir, "-o", bin, filepath.Join("testdata", "bench.c"), "-ldl").CombinedOutput()
	require.NoError(t, err, string(out))
	return bin
}

// The comparison itself works: both sides do every kind of work.
func TestAgainstC(t *testing.T) {
	bin := buildC(t)
	lib := open(t)
	for _, c := range against {
		out, err := exec.Command(bin, lib.Path(), c.name, "1").CombinedOutput()
		require.NoError(t, err, c.name)
		ns, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		require.NoError(t, err)
		require.Positive(t, ns)
		require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
			c.f(s, s.Scalar(1, mlx.Float32), s.Ones(mlx.Float32, 8, 8), make([]float32, 8))
			return nil
		}))
	}
	require.Error(t, exec.Command(bin, lib.Path(), "nothing", "1").Run())
}
