package mlx_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// scaled is a*x in three forms; a is a template argument.
func scaled() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name: "scaled", Inputs: []string{"x"}, Outputs: []string{"y"},
		Metal: mlx.KernelSource{Source: "uint i = thread_position_in_grid.x; y[i] = T(A) * x[i];"},
		CUDA:  mlx.KernelSource{Source: "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < N) y[i] = T(A) * x[i];"},
		Fallback: func(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
			a := l.Template[1].Value.(int)
			return []mlx.Array{s.Mul(in[0], s.Scalar(float64(a), in[0].Dtype()))}
		},
	}
}

func launch(x mlx.Array, a int) mlx.Launch {
	return mlx.Launch{
		Outputs: []mlx.Output{{Dtype: x.Dtype(), Shape: x.Shape()}},
		Grid:    [3]int{x.Size()}, Group: [3]int{min(x.Size(), 256)},
		Template: []mlx.TemplateArg{{Name: "T", Value: x.Dtype()}, {Name: "A", Value: a}, {Name: "N", Value: x.Size()}},
	}
}

func TestKernel(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		k := s.NewKernel(scaled(), nil)
		require.NoError(t, s.Err())
		for _, dt := range []mlx.Dtype{mlx.Float32, mlx.Float16, mlx.Int32} {
			x := s.AsType(s.Reshape(s.Arange(0, 6, 1, mlx.Float32), 2, 3), dt)
			require.NoError(t, k.SelfTest(s, []mlx.Array{x}, launch(x, 3), 1e-3))
			for _, x := range []mlx.Array{x, s.Transpose(x)} {
				out := k.Call(s, []mlx.Array{x}, launch(x, 3))
				require.NoError(t, s.Err())
				want := values(t, s, x)
				for i := range want {
					want[i] *= 3
				}
				near(t, want, values(t, s, out[0]), dt.String())
			}
		}
		want := "fallback"
		if s.Library().Device() == mlx.DeviceGPU {
			want = map[bool]string{true: "cuda", false: "metal"}[k.Backend() == "cuda"]
		}
		require.Equal(t, want, k.Backend())

		// A kernel whose first call is in a trace, where inputs have no values.
		first := s.NewKernel(scaled(), nil)
		three := s.Full(3, mlx.Float32, 3)
		out := s.Compile(func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
			return first.Call(s, in, launch(in[0], 4))
		}, mlx.CompileOptions{}).Call(s, three)
		require.NoError(t, s.Err())
		near(t, []float64{12, 12, 12}, values(t, s, out[0]), "in a trace")
		require.Equal(t, want, first.Backend())

		// With a rule it has a derivative.
		x := s.Ones(mlx.Float32, 3)
		f := mlx.Custom(func(s *mlx.Scope, in []mlx.Array) []mlx.Array { return k.Call(s, in, launch(x, 4)) }, mlx.Rules{
			VJP: func(s *mlx.Scope, p, c, _ []mlx.Array) []mlx.Array { return k.Call(s, c, launch(c[0], 4)) },
		})
		_, g := s.VJP(f, []mlx.Array{x}, []mlx.Array{x})
		near(t, []float64{4, 4, 4}, values(t, s, g[0]), "gradient")
	})
}

func TestKernelErrors(t *testing.T) {
	lib := open(t)
	with := func(f func(*mlx.KernelSpec)) mlx.KernelSpec {
		spec := scaled()
		f(&spec)
		return spec
	}
	for says, spec := range map[string]mlx.KernelSpec{
		"Name must be letters":              with(func(k *mlx.KernelSpec) { k.Name = "a b" }),
		"Name must not contain _overlaps":   with(func(k *mlx.KernelSpec) { k.Name = "a_overlaps_b" }),
		"a Fallback is needed":              with(func(k *mlx.KernelSpec) { k.Fallback = nil }),
		"at least one input":                with(func(k *mlx.KernelSpec) { k.Inputs = nil }),
		`"x" is not a name, or comes twice`: with(func(k *mlx.KernelSpec) { k.Outputs = []string{"x"} }),
		"a source holds a zero byte":        with(func(k *mlx.KernelSpec) { k.CUDA.Header = "\x00" }),
		"SharedMemory is impossible":        with(func(k *mlx.KernelSpec) { k.SharedMemory = -1 }),
	} {
		err := lib.Do(t.Context(), func(s *mlx.Scope) error {
			require.Nil(t, s.NewKernel(spec, nil))
			return nil
		})
		require.ErrorContains(t, err, "NewKernel(name ")
		require.ErrorContains(t, err, says)
	}
	for says, change := range map[string]func(s *mlx.Scope, k **mlx.Kernel, in *[]mlx.Array, l *mlx.Launch){
		"the kernel is nil": func(_ *mlx.Scope, k **mlx.Kernel, _ *[]mlx.Array, _ *mlx.Launch) { *k = nil },
		"2 inputs and 1 outputs given, the kernel has 1 and 1": func(_ *mlx.Scope, _ **mlx.Kernel, in *[]mlx.Array, _ *mlx.Launch) { *in = append(*in, *in...) },
		"zero Array":                            func(_ *mlx.Scope, _ **mlx.Kernel, in *[]mlx.Array, _ *mlx.Launch) { (*in)[0] = mlx.Array{} },
		"Grid and Group must be positive":       func(_ *mlx.Scope, _ **mlx.Kernel, _ *[]mlx.Array, l *mlx.Launch) { l.Grid[1] = -1 },
		"a Group of 2048 threads":               func(_ *mlx.Scope, _ **mlx.Kernel, _ *[]mlx.Array, l *mlx.Launch) { l.Group = [3]int{2, 32, 32} },
		`template argument "T": an int`:         func(_ *mlx.Scope, _ **mlx.Kernel, _ *[]mlx.Array, l *mlx.Launch) { l.Template[0].Value = 1.5 },
		"output 0: an impossible shape":         func(_ *mlx.Scope, _ **mlx.Kernel, _ *[]mlx.Array, l *mlx.Launch) { l.Outputs[0].Shape = []int{-1} },
		"the fallback's output 0 is float32[2]": func(_ *mlx.Scope, _ **mlx.Kernel, _ *[]mlx.Array, l *mlx.Launch) { l.Outputs[0].Shape = []int{3} },
	} {
		if lib.Device() == mlx.DeviceGPU && says == "the fallback's output 0 is float32[2]" {
			continue
		}
		err := lib.Do(t.Context(), func(s *mlx.Scope) error {
			k, in := s.NewKernel(scaled(), nil), []mlx.Array{s.Ones(mlx.Float32, 2)}
			l := launch(in[0], 1)
			change(s, &k, &in, &l)
			k.Call(s, in, l)
			return nil
		})
		require.ErrorContains(t, err, says)
	}
	var old *mlx.Kernel
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		old = s.NewKernel(scaled(), nil)
		return nil
	}))
	require.ErrorIs(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		x := s.Ones(mlx.Float32, 1)
		old.Call(s, []mlx.Array{x}, launch(x, 1))
		return nil
	}), mlx.ErrClosed)
}

// A text that no compiler takes, with what printf would read as formats: on a GPU
// one line of log, everywhere the fallback's result.
func TestKernelThatDoesNotCompile(t *testing.T) {
	lib := open(t)
	var text bytes.Buffer
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		spec := scaled()
		spec.CUDA.Source = "int size = 3; y[0] = nothing %size %n;\n // %s%n\n"
		spec.Metal = spec.CUDA
		k := s.NewKernel(spec, slog.New(slog.NewTextHandler(&text, nil)))
		onGPU := k.Backend() != "fallback"
		require.Equal(t, lib.Device() == mlx.DeviceGPU, onGPU)
		x := s.Ones(mlx.Float32, 2)
		for range 2 {
			out := k.Call(s, []mlx.Array{x}, launch(x, 5))
			require.NoError(t, s.Err())
			near(t, []float64{5, 5}, values(t, s, out[0]), "the fallback's result")
		}
		require.Equal(t, "fallback", k.Backend())
		lines := 0
		if onGPU {
			lines = 1
		}
		require.Equal(t, lines, strings.Count(text.String(), "\n"), text.String())
		t.Log(text.String())
		return nil
	}))
}

// A kernel whose result differs from the fallback's is found and given up.
func TestKernelThatIsWrong(t *testing.T) {
	lib := open(t)
	err := lib.Do(t.Context(), func(s *mlx.Scope) error {
		spec := scaled()
		spec.CUDA.Source = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < N) y[i] = x[i];"
		spec.Metal.Source = "uint i = thread_position_in_grid.x; y[i] = x[i];"
		k := s.NewKernel(spec, nil)
		onGPU := k.Backend() != "fallback"
		x := s.Ones(mlx.Float32, 2)
		err := k.SelfTest(s, []mlx.Array{x}, launch(x, 2), 1e-5)
		if onGPU {
			require.ErrorContains(t, err, "element 0 of [2] is 1, the fallback has 2")
			require.Equal(t, "fallback", k.Backend())
		}
		return err
	})
	if lib.Device() == mlx.DeviceGPU {
		require.Error(t, err)
	} else {
		require.NoError(t, err)
	}
}
