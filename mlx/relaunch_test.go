package mlx_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// relaunchedStep is a kernel for relaunching: y = 2x + b, and the sum of a row's neighbours,
// which nobody needs.
func relaunchedStep() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name: "relaunched_step", Inputs: []string{"x", "b"}, Outputs: []string{"y", "rest"},
		CUDA: mlx.KernelSource{Source: `
const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
if (i < x_shape[0]) { y[i] = 2 * x[i] + b[0]; rest[i] = x[i]; }
`},
		Fallback: func(s *mlx.Scope, in []mlx.Array, _ mlx.Launch) []mlx.Array {
			return []mlx.Array{s.Add(s.Mul(in[0], s.Scalar(2, mlx.Float32)), in[1]), in[0]}
		},
	}
}

// relaunched is a function of x float32 [n] and b float32 [1] by many kernels: after
// i steps of y = 2y + b, for each i in at, what there is.
func relaunched(s *mlx.Scope, steps int, at ...int) *mlx.Compiled {
	k := s.NewKernel(relaunchedStep(), nil)
	return s.Compile(func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
		x, out := s.Reshape(in[0], -1), make([]mlx.Array, len(at))
		n := x.Dim(0)
		for i := range steps {
			x = k.Call(s, []mlx.Array{s.Reshape(x, n), in[1]}, mlx.Launch{
				Outputs: []mlx.Output{{Dtype: mlx.Float32, Shape: []int{n}}, {Dtype: mlx.Float32, Shape: []int{n}}},
				Grid:    [3]int{(n + 63) / 64 * 64}, Group: [3]int{64},
			})[0]
			if j := slices.Index(at, i+1); j >= 0 {
				out[j] = x
			}
		}
		return append(out, in[1])
	}, mlx.CompileOptions{Unfused: true, Relaunch: true})
}

// stepped is what relaunched gives.
func stepped(x []float32, b float32, steps int) []float32 {
	x = slices.Clone(x)
	for range steps {
		for i := range x {
			x[i] = 2*x[i] + b
		}
	}
	return x
}

// A function gives the same whether its kernels are launched by MLX or again from a
// record: with other inputs, results that are kept, calls on their way, and results
// and inputs that the host has read.
func TestRelaunch(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		const n, steps = 1000, 12
		f := relaunched(s, steps, 5, steps)
		kept := map[int][]mlx.Array{}
		input := func(i int) []float32 {
			x := make([]float32, n)
			for j := range x {
				x[j] = float32(i) + float32(j%17)
			}
			return x
		}
		check := func(i int, out []mlx.Array) {
			for j, after := range []int{5, steps} {
				got, err := mlx.ToSlice[float32](out[j])
				require.NoError(t, err)
				require.True(t, slices.Equal(stepped(input(i), float32(i), after), got), "call %d, result %d", i, j)
			}
			b, err := mlx.ToSlice[float32](out[2])
			require.NoError(t, err)
			require.Equal(t, []float32{float32(i)}, b)
		}
		for i := range 60 {
			x := mlx.FromSlice(s, input(i), n)
			if i%3 == 0 {
				x = s.Add(x, s.Scalar(0, mlx.Float32)) // not evaluated yet
			}
			out := f.Call(s, x, mlx.FromSlice(s, []float32{float32(i)}))
			require.NoError(t, s.Err())
			switch {
			case i%7 == 0:
				kept[i] = out
			case i%5 == 0:
				check(i, out) // the host reads, which moves the memory
				s.Free(out...)
			default:
				more := s.Sum(out[0], false)
				require.NoError(t, s.AsyncEval(more))
				s.Free(append(out, more)...)
			}
			if i == 40 {
				for j, out := range kept {
					check(j, out)
					s.Free(out...)
				}
				clear(kept)
			}
		}
		for i, out := range kept {
			check(i, out)
		}
		launches, err := f.Relaunches()
		require.NoError(t, err)
		if s.Library().Device() == mlx.DeviceGPU && s.NewKernel(relaunchedStep(), nil).Backend() == "cuda" {
			require.Equal(t, steps, launches)
		} else {
			require.Zero(t, launches)
		}
	})
}

// What is no kernel of ours keeps a function from being relaunched, and it says so.
func TestRelaunchRefuses(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		f := s.Compile(func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
			return []mlx.Array{s.Mul(in[0], in[0])}
		}, mlx.CompileOptions{Unfused: true, Relaunch: true})
		for i := range 5 {
			x := float32(i)
			got, err := mlx.ToSlice[float32](f.Call(s, mlx.FromSlice(s, []float32{x, -x}))[0])
			require.NoError(t, err)
			require.Equal(t, []float32{x * x, x * x}, got)
		}
		launches, err := f.Relaunches()
		require.Zero(t, launches)
		if s.Library().Device() == mlx.DeviceGPU && s.NewKernel(relaunchedStep(), nil).Backend() == "cuda" {
			require.ErrorContains(t, err, "the operation Multiply is no kernel of ours")
		} else {
			require.NoError(t, err)
		}
	})
}

// Calls leave no arrays and no memory behind.
func TestRelaunchMemory(t *testing.T) {
	lib := open(t)
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		f := relaunched(s, 6, 6)
		x := s.Ones(mlx.Float32, 1<<16)
		b := mlx.FromSlice(s, []float32{1})
		call := func() {
			mark := s.Mark()
			more := s.Sum(f.Call(s, x, b)[0], false)
			require.NoError(t, s.Eval(more))
			s.FreeSince(mark)
		}
		for range 8 {
			call()
		}
		arrays := lib.LiveArrays()
		before, err := lib.Memory(t.Context())
		require.NoError(t, err)
		for range 400 {
			call()
		}
		require.Equal(t, arrays, lib.LiveArrays())
		after, err := lib.Memory(t.Context())
		require.LessOrEqual(t, after.Active, before.Active+8<<20, "there may be more records than after the first calls, but not one a call")
		return err
	}))
}
