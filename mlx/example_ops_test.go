package mlx_test

import (
	"context"
	"fmt"

	"github.com/godflash/godflash/mlx"
)

// Random numbers follow from their key alone.
func ExampleScope_SplitKey() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		keys := s.Unstack(s.SplitKey(s.Key(0), 2), 0)
		a := s.Normal(keys[0], 0, 1, mlx.Float32, 1000)
		b := s.Normal(keys[1], 0, 1, mlx.Float32, 1000)
		again := s.Normal(keys[0], 0, 1, mlx.Float32, 1000)
		fmt.Println(s.ArrayEqual(a, again), s.ArrayEqual(a, b))
		return s.Err()
	})
	// Output: array(true, shape=[], dtype=bool) array(false, shape=[], dtype=bool)
}

func ExampleScope_Einsum() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		a := mlx.FromSlice(s, []float32{1, 2, 3, 4}, 2, 2)
		fmt.Println(s.Einsum("ii->", a))        // trace
		fmt.Println(s.Einsum("ij,kj->k", a, a)) // columns of the product summed
		return s.Err()
	})
	// Output:
	// array(5, shape=[], dtype=float32)
	// array([16, 36], shape=[2], dtype=float32)
}

func ExampleScope_Conv2d() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		image := s.Reshape(s.Arange(0, 16, 1, mlx.Float32), 1, 4, 4, 1)
		mean := s.Full(0.25, mlx.Float32, 1, 2, 2, 1)
		small := s.Conv2d(image, mean, mlx.ConvOptions{Stride: []int{2}})
		fmt.Println(small.Shape(), s.Flatten(small))
		return s.Err()
	})
	// Output: [1 2 2 1] array([2.5, 4.5, 10.5, 12.5], shape=[4], dtype=float32)
}

func ExampleScope_ScatterAdd() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		counts := s.Zeros(mlx.Int32, 4)
		seen := mlx.FromSlice(s, []int32{1, 3, 3, 1, 3})
		counts = s.ScatterAdd(counts, []mlx.Array{seen}, s.Ones(mlx.Int32, 5, 1), []int{0})
		fmt.Println(counts)
		return s.Err()
	})
	// Output: array([0, 2, 0, 3], shape=[4], dtype=int32)
}

func ExampleScope_SliceStrided() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		a := s.Arange(0, 10, 1, mlx.Int32)
		fmt.Println(s.SliceStrided(a, []int{1}, []int{10}, []int{3}))
		fmt.Println(s.SliceStrided(a, []int{9}, []int{-11}, []int{-4}))
		return s.Err()
	})
	// Output:
	// array([1, 4, 7], shape=[3], dtype=int32)
	// array([9, 5, 1], shape=[3], dtype=int32)
}

func ExampleScope_CumSum() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		a := mlx.FromSlice(s, []int32{1, 2, 3, 4})
		fmt.Println(s.CumSum(a, 0))
		fmt.Println(s.CumSum(a, 0, mlx.Reverse, mlx.Exclusive))
		return s.Err()
	})
	// Output:
	// array([1, 3, 6, 10], shape=[4], dtype=int32)
	// array([9, 7, 4, 0], shape=[4], dtype=int32)
}

func ExampleScope_SearchSorted() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		limits := mlx.FromSlice(s, []float32{10, 20, 30})
		fmt.Println(s.SearchSorted(limits, mlx.FromSlice(s, []float32{5, 20, 99}), true))
		return s.Err()
	})
	// Output: array([0, 2, 3], shape=[3], dtype=uint32)
}

func ExampleScope_RFFT() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		wave := mlx.FromSlice(s, []float32{1, 0, -1, 0, 1, 0, -1, 0}) // two periods
		spectrum := s.Abs(s.RFFT(wave, 0, 0, mlx.FFTBackward))
		fmt.Println(spectrum)
		return s.Err()
	})
	// Output: array([0, 0, 4, 0, 0], shape=[5], dtype=float32)
}

// Decompositions run on CPUs, also where the library has a GPU.
func ExampleScope_Solve() {
	example(func(lib *mlx.Library, s *mlx.Scope) error {
		cpu, err := lib.NewStream(context.Background(), mlx.DeviceCPU, 0)
		if err != nil {
			return err
		}
		defer cpu.Close()
		s.On(cpu, func() {
			a := mlx.FromSlice(s, []float32{2, 1, 1, 3}, 2, 2)
			fmt.Println(s.Solve(a, mlx.FromSlice(s, []float32{3, 5})), s.Det(a))
		})
		return s.Err()
	})
	// Output: array([0.8, 1.4], shape=[2], dtype=float32) array(5, shape=[], dtype=float32)
}

// Four bits per element and a scale and bias for each group of 64.
func ExampleScope_Quantize() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		w := s.Reshape(s.Linspace(-1, 1, 128, mlx.Float32), 2, 64)
		q := s.Quantize(w, mlx.QuantizeOptions{})
		err := s.Max(s.Abs(s.Sub(w, s.Dequantize(q, mlx.Float32))), false)
		fmt.Println(q.W.Shape(), q.W.Dtype(), q.Scales.Shape(), w.NBytes(), "bytes in", q.W.NBytes()+q.Scales.NBytes()+q.Biases.NBytes())
		v, e := mlx.Item[float32](err)
		fmt.Println(v < 0.04)
		return e
	})
	// Output:
	// [2 8] uint32 [2 1] 512 bytes in 80
	// true
}

// The experts of a mixture: each row of x goes to the matrix that it picked.
func ExampleScope_GatherMM() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		experts := mlx.FromSlice(s, []float32{1, 0, 0, 1, 0, 10, 10, 0}, 2, 2, 2)
		x := mlx.FromSlice(s, []float32{1, 2, 3, 4}, 2, 1, 2)
		picked := mlx.FromSlice(s, []uint32{1, 0})
		fmt.Println(s.GatherMM(x, experts, mlx.GatherOptions{RHS: picked}))
		return s.Err()
	})
	// Output:
	// array([[[20, 10]],
	//        [[3, 4]]], shape=[2,1,2], dtype=float32)
}
