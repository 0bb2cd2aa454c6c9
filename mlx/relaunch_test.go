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
			require.GreaterOrEqual(t, f.RelaunchBytes(), 2*4*n)
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

// What a call was given may go at once, and the host may write new arrays where it lay,
// however long the device takes.
func TestRelaunchInputsGo(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		const steps = 24
		busy := s.NewKernel(mlx.KernelSpec{
			Name: "relaunched_busy", Inputs: []string{"x"}, Outputs: []string{"y"},
			CUDA: mlx.KernelSource{Source: `
const long long begin = clock64();
while (clock64() - begin < 4000000) {}
y[0] = x[0];
`},
			Fallback: func(s *mlx.Scope, in []mlx.Array, _ mlx.Launch) []mlx.Array { return []mlx.Array{s.Copy(in[0])} },
		}, nil)
		zero := s.Zeros(mlx.Float32, 1)
		for _, n := range []int{1, 2, 4, 1000, 1 << 18} {
			f := relaunched(s, steps, steps)
			want := make([]float32, n)
			var other []mlx.Array
			for i := range 24 {
				for j := range want {
					want[j] = float32(i) + float32(j%7)
				}
				x, b := mlx.FromSlice(s, want, n), mlx.FromSlice(s, []float32{float32(i)})
				// The device has something to do first, some milliseconds of a GPU's.
				require.NoError(t, s.AsyncEval(busy.Call(s, []mlx.Array{zero}, mlx.Launch{
					Outputs: []mlx.Output{{Dtype: mlx.Float32, Shape: []int{1}}}, Grid: [3]int{1}, Group: [3]int{1},
				})...))
				out := f.Call(s, x, b)
				require.Len(t, out, 2)
				s.Free(x, b, out[1])
				// These stay, so that soon nothing lies free but what x and b had.
				for range 8 {
					other = append(other, mlx.FromSlice(s, slices.Repeat([]float32{-9}, n), n), mlx.FromSlice(s, []float32{-9}))
				}
				got, err := mlx.ToSlice[float32](out[0])
				require.NoError(t, err)
				require.True(t, slices.Equal(stepped(want, float32(i), steps), got), "%d numbers, call %d", n, i)
				s.Free(out[0])
			}
			s.Free(other...)
			launches, err := f.Relaunches()
			require.NoError(t, err)
			if s.Library().Device() == mlx.DeviceGPU && busy.Backend() == "cuda" {
				require.Equal(t, steps, launches)
			}
		}
	})
}

// Inputs may come from other streams, lie in any order, and be given twice; a call may
// be made on another stream than the one before.
func TestRelaunchAnyInput(t *testing.T) {
	lib := open(t)
	var others []*mlx.Stream
	for _, device := range []mlx.DeviceType{mlx.DeviceCPU, mlx.DeviceDefault} {
		st, err := lib.NewStream(t.Context(), device, 0)
		require.NoError(t, err)
		defer st.Close()
		others = append(others, st)
	}
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		const n, steps = 512, 8
		check := func(out []mlx.Array, x []float32, b float32, what string, i int) {
			require.NoError(t, s.Err())
			got, err := mlx.ToSlice[float32](out[0])
			require.NoError(t, err)
			require.True(t, slices.Equal(stepped(x, b, steps), got), "%s, call %d", what, i)
		}
		ones := slices.Repeat([]float32{1}, n)
		for j, st := range others {
			f := relaunched(s, steps, steps)
			for i := range 6 {
				var x mlx.Array
				s.On(st, func() {
					wide := s.Mul(mlx.FromSlice(s, ones, n, 1), mlx.FromSlice(s, ones, 1, n))
					x = s.Mul(s.Sum(wide, false, 1), s.Scalar(float64(i), mlx.Float32))
				})
				b := mlx.FromSlice(s, []float32{1})
				var out []mlx.Array
				if j == 1 && i%2 == 1 {
					s.On(st, func() { out = f.Call(s, x, b) })
				} else {
					out = f.Call(s, x, b)
				}
				check(out, slices.Repeat([]float32{float32(n * i)}, n), 1, st.String(), i)
			}
		}
		across, twice := relaunched(s, steps, steps), relaunched(s, steps, steps)
		for i := range 6 {
			data, turned := make([]float32, n), make([]float32, n)
			for j := range data {
				data[j] = float32(i + j)
				turned[j%8*(n/8)+j/8] = data[j]
			}
			x := s.SwapAxes(mlx.FromSlice(s, data, n/8, 8), 0, 1)
			check(across.Call(s, x, mlx.FromSlice(s, []float32{2})), turned, 2, "columns", i)
			one := mlx.FromSlice(s, []float32{float32(i)})
			check(twice.Call(s, one, one), []float32{float32(i)}, float32(i), "twice", i)
		}
		return s.Err()
	}))
}
