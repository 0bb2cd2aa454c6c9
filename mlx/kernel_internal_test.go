package mlx

import (
	"bytes"
	"log/slog"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/mlxc"
)

func TestWithoutPercent(t *testing.T) {
	for in, want := range map[string]string{
		"a + b":                        "a + b",
		"a % b":                        "a  GF_MOD  b",
		"a %= b":                       "a  GF_MOD_ASSIGN  b",
		`printf("%d\"%s", a % b);`:     `printf("%d\"%s", a  GF_MOD  b);`,
		"'%' % 3":                      "'%'  GF_MOD  3",
		"// don't % s\na % b /* 5% */": "// don't / s\na  GF_MOD  b /* 5/ */",
		"/* %":                         "/* /",
	} {
		require.Equal(t, want, withoutPercent(in))
	}
}

// The relauncher tells launches that may overlap by the function's name.
func TestKernelFunction(t *testing.T) {
	require.Equal(t, "twice", (&KernelSpec{Name: "twice"}).function(true))
	require.Equal(t, "twice_overlaps", (&KernelSpec{Name: "twice", Overlaps: true}).function(true))
	require.Equal(t, "twice", (&KernelSpec{Name: "twice", Overlaps: true}).function(false))
	relauncher, err := os.ReadFile("../native/kernels/launch.h")
	require.NoError(t, err)
	require.Contains(t, string(relauncher), `"_overlaps"`)
}

// A backend that fails is given up with one line of log, and the fallback serves.
func TestKernelThatFailsIsGivenUp(t *testing.T) {
	lib, err := Open(&Options{Device: DeviceCPU})
	require.NoError(t, err)
	defer lib.Close()
	for _, backend := range []string{"cuda", "metal"} {
		for _, trace := range []bool{false, true} {
			var log bytes.Buffer
			require.NoError(t, lib.Do(t.Context(), func(s *Scope) error {
				k := s.NewKernel(KernelSpec{
					Name: "twice", Inputs: []string{"x"}, Outputs: []string{"y"},
					Metal: KernelSource{Source: "y[0] = x[0] % 2;"}, CUDA: KernelSource{Source: "y[0] = x[0] % 2;"},
					Fallback: func(s *Scope, in []Array, _ Launch) []Array { return []Array{s.Add(in[0], in[0])} },
				}, slog.New(slog.NewTextHandler(&log, nil)))
				l := Launch{Outputs: []Output{{Float32, []int{2}}}, Template: []TemplateArg{{"T", Float32}, {"N", 3}, {"B", true}}, Init: new(float32)}
				k.backend = backend // as on a machine that has it
				call := func(s *Scope, in []Array) []Array {
					s.device = DeviceGPU
					defer func() { s.device = DeviceCPU }()
					return k.Call(s, in, l)
				}
				for range 2 {
					var out []Array
					if trace {
						out = s.Compile(call, CompileOptions{}).Call(s, s.Ones(Float32, 2))
					} else {
						out = call(s, []Array{s.Ones(Float32, 2)})
					}
					require.NoError(t, s.Err())
					v, err := ToSlice[float32](out[0])
					require.NoError(t, err)
					require.Equal(t, []float32{2, 2}, v)
				}
				require.Equal(t, "fallback", k.Backend())
				return nil
			}))
			require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("\n")), log.String())
			require.Contains(t, log.String(), "kernel=twice backend="+backend)
		}
	}
	require.Zero(t, lib.LiveArrays())
}

// What a kernel is tried with can be evaluated, in a trace too, where its inputs cannot.
func TestKernelSamples(t *testing.T) {
	lib, err := Open(&Options{Device: DeviceCPU})
	require.NoError(t, err)
	defer lib.Close()
	require.NoError(t, lib.Do(t.Context(), func(s *Scope) error {
		x := []Array{s.Ones(Float32, 2, 3), s.Ones(Int32, 1)}
		require.Equal(t, x, s.samples(x), "outside a trace: the inputs themselves")
		traced := false
		s.Compile(func(_ *Scope, in []Array) []Array {
			traced = true
			own := &Scope{lib: lib, stream: s.stream, device: s.device, name: "own"}
			defer own.close(closedByClose)
			out := own.samples(in)
			if err := own.Eval(out...); err != nil {
				t.Error("evaluating what the kernel is tried with: ", err)
			}
			for i, a := range out {
				if a.describe().String() != x[i].describe().String() {
					t.Errorf("sample %d is %v, the input %v", i, a.describe(), x[i].describe())
				}
			}
			return in
		}, CompileOptions{}).Call(s, x...)
		require.True(t, traced)
		return nil
	}))
	require.Zero(t, lib.LiveArrays())
}

// Operations inside On take its stream and device, also for what they compute on
// the way and for functions; afterwards, and after a panic, the scope's own again.
func TestOnSwitchesStreamAndDevice(t *testing.T) {
	lib, err := Open(&Options{Device: DeviceCPU})
	require.NoError(t, err)
	defer lib.Close()
	own, err := lib.NewStream(t.Context(), DeviceCPU, 0)
	require.NoError(t, err)
	defer own.Close()
	// No machine with a GPU is needed to see where the scope would send its work.
	gpu := &Stream{lib: lib, h: own.h, device: DeviceGPU}
	require.NoError(t, lib.Do(t.Context(), func(s *Scope) error {
		at := func(what string, h mlxc.Handle, d DeviceType) {
			t.Helper()
			require.Equal(t, h, s.stream, "stream %s", what)
			require.Equal(t, d, s.device, "device %s", what)
		}
		require.NotEqual(t, lib.stream, own.h)
		at("before", lib.stream, DeviceCPU)
		s.On(gpu, func() {
			at("inside", own.h, DeviceGPU)
			s.On(own, func() { at("in the inner one", own.h, DeviceCPU) })
			at("after the inner one", own.h, DeviceGPU)
			s.ValueAndGrad(func(f *Scope, in []Array) []Array {
				if f.stream != own.h || f.device != DeviceGPU {
					t.Error("a function runs on another stream or device than the operation that calls it")
				}
				return []Array{f.Sum(in[0], false)}
			}, []Array{s.Ones(Float32, 2)})
		})
		at("afterwards", lib.stream, DeviceCPU)
		require.Panics(t, func() { s.On(gpu, func() { panic("a bug") }) })
		at("after a panic", lib.stream, DeviceCPU)
		return nil
	}))
}

// Which form of a kernel runs follows the device that On chose.
func TestKernelFollowsTheDevice(t *testing.T) {
	lib, err := Open(&Options{Device: DeviceCPU})
	require.NoError(t, err)
	defer lib.Close()
	own, err := lib.NewStream(t.Context(), DeviceCPU, 0)
	require.NoError(t, err)
	defer own.Close()
	require.NoError(t, lib.Do(t.Context(), func(s *Scope) error {
		k := s.NewKernel(KernelSpec{
			Name: "twice", Inputs: []string{"x"}, Outputs: []string{"y"}, CUDA: KernelSource{Source: "y[0] = x[0];"},
			Fallback: func(s *Scope, in []Array, _ Launch) []Array { return []Array{s.Add(in[0], in[0])} },
		}, nil)
		k.backend = "cuda" // as on a machine that has it
		call := func() { k.Call(s, []Array{s.Ones(Float32, 2)}, Launch{Outputs: []Output{{Float32, []int{2}}}}) }
		call()
		s.On(own, call)
		require.Equal(t, "cuda", k.Backend(), "not tried on the CPU")
		s.On(&Stream{lib: lib, h: own.h, device: DeviceGPU}, call)
		require.Equal(t, "fallback", k.Backend(), "tried, and given up as there is no GPU")
		return s.Err()
	}))
}
