package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// lib is the CPU library, or, with GODFLASH_GPU=1, the GPU's.
var lib *mlx.Library

func TestMain(m *testing.M) {
	o := &mlx.Options{Device: mlx.DeviceCPU}
	if os.Getenv("GODFLASH_GPU") != "" {
		o.Device = mlx.DeviceGPU
	}
	var err error
	if lib, err = mlx.Open(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	lib.Close()
	os.Exit(code)
}

func do(t testing.TB, f func(s *mlx.Scope)) {
	t.Helper()
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error { f(s); return s.Err() }))
}

// source makes random arrays.
type source struct {
	s *mlx.Scope
	r *rand.Rand
}

func newSource(s *mlx.Scope, seed uint64) source { return source{s, rand.New(rand.NewPCG(seed, 1))} }

// normal has mean at and the given deviation.
func (r source) normal(dt mlx.Dtype, at, deviation float64, shape ...int) mlx.Array {
	n := 1
	for _, d := range shape {
		n *= d
	}
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(at + deviation*r.r.NormFloat64())
	}
	return r.s.AsType(mlx.FromSlice(r.s, v, shape...), dt)
}

// A trial is a call of a kernel whose result must be its fallback's: an element
// may differ by tolerance, times the fallback's value where that is above 1.
type trial struct {
	name      string
	spec      mlx.KernelSpec
	call      call
	tolerance float64
}

// texts are the forms of the kernel.
func (tr trial) texts() map[string]mlx.KernelSource {
	return map[string]mlx.KernelSource{"CUDA": tr.spec.CUDA, "Metal": tr.spec.Metal}
}

// checkAll runs the trials that f makes: the kernels themselves on a GPU, their
// texts under the shim on a CPU.
func checkAll(t *testing.T, f func(s *mlx.Scope) []trial) {
	t.Helper()
	do(t, func(s *mlx.Scope) {
		trials := f(s)
		require.NoError(t, s.Err())
		if lib.Device() == mlx.DeviceGPU {
			for _, tr := range trials {
				k := s.NewKernel(tr.spec, nil)
				require.NotEqual(t, "fallback", k.Backend())
				require.NoError(t, k.SelfTest(s, tr.call.in, tr.call.launch, tr.tolerance), tr.name)
				require.NotEqual(t, "fallback", k.Backend(), "%s: given up", tr.name)
			}
			return
		}
		sh := newShim(t, trials)
		for _, tr := range trials {
			tr.emulate(t, s, sh)
		}
	})
}

func (tr trial) emulate(t *testing.T, s *mlx.Scope, sh *shim) {
	t.Helper()
	want := tr.spec.Fallback(s, tr.call.in, tr.call.launch)
	require.NoError(t, s.Err(), tr.name)
	for form, src := range tr.texts() {
		if src.Source == "" {
			continue
		}
		res := sh.run(t, tr.spec, src, tr.call)
		for i, o := range tr.call.launch.Outputs {
			raw := res[i]
			require.Equal(t, o.Dtype, want[i].Dtype(), tr.name)
			require.Equal(t, o.Shape, want[i].Shape(), tr.name)
			near(t, s, want[i], array(t, s, raw, o), tr.tolerance, "%s, %s: %s", tr.name, form, tr.spec.Outputs[i])
		}
	}
}

// near asserts that no element differs by more than tolerance, times the wanted
// value where that is above 1.
func near(t testing.TB, s *mlx.Scope, want, got mlx.Array, tolerance float64, format string, args ...any) {
	t.Helper()
	require.Equal(t, want.Shape(), got.Shape(), format, args)
	g := floats(t, s, got)
	for i, w := range floats(t, s, want) {
		if !(math.Abs(float64(g[i]-w)) <= tolerance*max(1, math.Abs(float64(w)))) {
			t.Fatalf("%s: element %d of %v is %v, not %v", fmt.Sprintf(format, args...), i, want.Shape(), g[i], w)
		}
	}
}

func floats(t testing.TB, s *mlx.Scope, a mlx.Array) []float32 {
	t.Helper()
	v, err := mlx.ToSlice[float32](s.AsType(a, mlx.Float32))
	require.NoError(t, err)
	return v
}

// runner runs one kernel's CUDA form again and again: on a GPU itself, else under
// the shim. like are calls with all the template arguments that are to come.
func runner(t *testing.T, s *mlx.Scope, spec mlx.KernelSpec, like ...call) func(c call) [][]byte {
	if lib.Device() == mlx.DeviceGPU {
		k := s.NewKernel(spec, nil)
		return func(c call) [][]byte {
			var raw [][]byte
			for _, a := range c.run(s, k) {
				raw = append(raw, rawBytes(t, a))
			}
			for _, i := range c.writes {
				raw = append(raw, rawBytes(t, c.in[i]))
			}
			require.NoError(t, s.Err())
			require.NotEqual(t, "fallback", k.Backend())
			return raw
		}
	}
	var trials []trial
	for _, c := range like {
		trials = append(trials, trial{spec: spec, call: c})
	}
	sh := newShim(t, trials)
	return func(c call) [][]byte { return sh.run(t, spec, spec.CUDA, c) }
}

func allTrials(s *mlx.Scope) []trial {
	return slices.Concat(deltaTrials(s), pointwiseTrials(s), q4Trials(s), headsTrials(s), chainTrials(s), denseTrials(s), expertsTrials(s), groupedTrials(s), joinTrials(s))
}

// Each kernel's result is that of its operations.
func TestKernels(t *testing.T) { checkAll(t, allTrials) }
