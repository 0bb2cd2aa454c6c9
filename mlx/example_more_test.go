package mlx_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/godflash/godflash/mlx"
)

// Without a shape a slice becomes one dimension.
func ExampleFromSlice() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		fmt.Println(mlx.FromSlice(s, []int32{1, 2, 3}))
		fmt.Println(mlx.FromSlice(s, []bool{true, false}, 2, 1))
		return nil
	})
	// Output:
	// array([1, 2, 3], shape=[3], dtype=int32)
	// array([[true],
	//        [false]], shape=[2,1], dtype=bool)
}

// Shapes are matched from the end; a length of 1 is repeated.
func ExampleScope_Add() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		column := mlx.FromSlice(s, []int32{10, 20}, 2, 1)
		row := mlx.FromSlice(s, []int32{1, 2, 3})
		fmt.Println(s.Add(column, row))
		return nil
	})
	// Output:
	// array([[11, 12, 13],
	//        [21, 22, 23]], shape=[2,3], dtype=int32)
}

func ExampleScope_MatMul() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		a := mlx.FromSlice(s, []float32{1, 2, 3, 4}, 2, 2)
		b := mlx.FromSlice(s, []float32{0, 1, 1, 0}, 2, 2)
		fmt.Println(s.MatMul(a, b))
		return nil
	})
	// Output:
	// array([[2, 1],
	//        [4, 3]], shape=[2,2], dtype=float32)
}

// A line fitted by gradient descent: y = 3x - 1 is found again from samples.
func ExampleScope_ValueAndGrad() {
	lib, err := mlx.Open(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer lib.Close()
	params := lib.NewScope("parameters")
	var w, b, x, y mlx.Array
	err = lib.Do(context.Background(), func(s *mlx.Scope) error {
		w, b = params.Zeros(mlx.Float32), params.Zeros(mlx.Float32)
		x = params.Move(mlx.FromSlice(s, []float32{-1, -0.5, 0, 0.5, 1}))
		y = params.Move(mlx.FromSlice(s, []float32{-4, -2.5, -1, 0.5, 2}))
		return params.Err()
	})
	loss := func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
		d := s.Sub(s.Add(s.Mul(in[0], x), in[1]), y)
		return []mlx.Array{s.Mean(s.Square(d), false)}
	}
	for step := 0; step < 200 && err == nil; step++ {
		err = lib.Do(context.Background(), func(s *mlx.Scope) error {
			_, grads := s.ValueAndGrad(loss, []mlx.Array{w, b}, 0, 1)
			if s.Err() != nil {
				return nil // Do returns the scope's error
			}
			rate := s.Scalar(0.2, mlx.Float32)
			w2, b2 := s.Sub(w, s.Mul(rate, grads[0])), s.Sub(b, s.Mul(rate, grads[1]))
			if err := s.Eval(w2, b2); err != nil { // or the graph grows with each step
				return err
			}
			params.Free(w, b)
			w, b = params.Move(w2), params.Move(b2)
			return nil
		})
	}
	if err != nil {
		log.Fatal(err)
	}
	err = lib.Do(context.Background(), func(s *mlx.Scope) error {
		wv, err := mlx.Item[float32](w)
		if err != nil {
			return err
		}
		bv, err := mlx.Item[float32](b)
		fmt.Printf("y = %.3fx %+.3f\n", wv, bv)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: y = 3.000x -1.000
}

// Backwards: the cotangent says how much each output counts.
func ExampleScope_VJP() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		square := func(s *mlx.Scope, in []mlx.Array) []mlx.Array { return []mlx.Array{s.Square(in[0])} }
		x := mlx.FromSlice(s, []float32{1, 2, 3})
		_, grads := s.VJP(square, []mlx.Array{x}, []mlx.Array{mlx.FromSlice(s, []float32{1, 0, 10})})
		if s.Err() == nil {
			fmt.Println(grads[0])
		}
		return nil
	})
	// Output: array([2, 0, 60], shape=[3], dtype=float32)
}

// Forwards: how the outputs change when the inputs move along the tangent.
func ExampleScope_JVP() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		sum := func(s *mlx.Scope, in []mlx.Array) []mlx.Array { return []mlx.Array{s.Sum(s.Square(in[0]), false)} }
		x := mlx.FromSlice(s, []float32{1, 2, 3})
		_, tangents := s.JVP(sum, []mlx.Array{x}, []mlx.Array{mlx.FromSlice(s, []float32{0, 1, 0})})
		if s.Err() == nil {
			fmt.Println(tangents[0])
		}
		return nil
	})
	// Output: array(4, shape=[], dtype=float32)
}

// What goes wrong in a function is the error of the operation that called it.
func ExampleFunc() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		s.ValueAndGrad(func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
			panic("a bug")
		}, []mlx.Array{s.Ones(mlx.Float32, 2)})
		return nil
	})
	// Output: mlx: ValueAndGrad(float32[2]; argnums [0]): in the function: mlx: panic inside Library.Do: a bug
}

// The layer's inner results are not kept for its gradient but computed again.
func ExampleCheckpoint() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		layer := mlx.Checkpoint(func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
			return []mlx.Array{s.Sum(s.Exp(in[0]), false)}
		})
		_, grads := s.ValueAndGrad(layer, []mlx.Array{s.Zeros(mlx.Float32, 2)})
		if s.Err() == nil {
			fmt.Println(grads[0])
		}
		return nil
	})
	// Output: array([1, 1], shape=[2], dtype=float32)
}

// Rounding has no useful derivative; this one passes gradients straight through.
func ExampleCustom() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		round := mlx.Custom(func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
			half := s.Scalar(0.5, mlx.Float32)
			return []mlx.Array{s.FloorDiv(s.Add(in[0], half), s.Scalar(1, mlx.Float32))}
		}, mlx.Rules{
			VJP: func(s *mlx.Scope, primals, cotangents, outputs []mlx.Array) []mlx.Array { return cotangents },
		})
		x := mlx.FromSlice(s, []float32{0.2, 1.7})
		out, grads := s.VJP(round, []mlx.Array{x}, []mlx.Array{s.Ones(mlx.Float32, 2)})
		if s.Err() == nil {
			fmt.Println(out[0])
			fmt.Println(grads[0])
		}
		return nil
	})
	// Output:
	// array([0, 2], shape=[2], dtype=float32)
	// array([1, 1], shape=[2], dtype=float32)
}

// The Go code runs once; later calls with the same shapes replay its graph.
func ExampleScope_Compile() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		gelu := s.Compile(func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
			fmt.Println("tracing")
			x := in[0]
			return []mlx.Array{s.Mul(x, s.Sigmoid(s.Mul(x, s.Scalar(1.702, mlx.Float32))))}
		}, mlx.CompileOptions{})
		for i := range 3 {
			out := gelu.Call(s, s.Full(float64(i)*100, mlx.Float32, 2))
			if s.Err() != nil {
				return nil
			}
			fmt.Println(out[0])
		}
		return nil
	})
	// Output:
	// tracing
	// array([0, 0], shape=[2], dtype=float32)
	// array([100, 100], shape=[2], dtype=float32)
	// array([200, 200], shape=[2], dtype=float32)
}

// One computation for Metal, for CUDA, and for everything else.
func ExampleScope_NewKernel() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		square := s.NewKernel(mlx.KernelSpec{
			Name: "square", Inputs: []string{"x"}, Outputs: []string{"y"},
			Metal: mlx.KernelSource{Source: "uint i = thread_position_in_grid.x; y[i] = x[i] * x[i];"},
			CUDA:  mlx.KernelSource{Source: "int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = x[i] * x[i];"},
			Fallback: func(s *mlx.Scope, in []mlx.Array, _ mlx.Launch) []mlx.Array {
				return []mlx.Array{s.Mul(in[0], in[0])}
			},
		}, nil)
		x := mlx.FromSlice(s, []float32{1, 2, 3, 4})
		launch := mlx.Launch{
			Outputs: []mlx.Output{{Dtype: mlx.Float32, Shape: []int{4}}},
			Grid:    [3]int{4}, Group: [3]int{4},
		}
		if err := square.SelfTest(s, []mlx.Array{x}, launch, 1e-6); err != nil {
			return err
		}
		fmt.Println(square.Call(s, []mlx.Array{x}, launch)[0])
		return nil
	})
	// Output: array([1, 4, 9, 16], shape=[4], dtype=float32)
}

// Operations inside On run on another stream, here one of the CPU.
func ExampleScope_On() {
	lib, err := mlx.Open(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer lib.Close()
	ctx := context.Background()
	cpu, err := lib.NewStream(ctx, mlx.DeviceCPU, 0)
	if err != nil {
		log.Fatal(err)
	}
	defer cpu.Close()
	err = lib.Do(ctx, func(s *mlx.Scope) error {
		x := s.Arange(0, 3, 1, mlx.Float32)
		var y mlx.Array
		s.On(cpu, func() { y = s.Square(x) })
		fmt.Println(s.Add(y, x)) // on the library's own stream, which waits for y
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: array([0, 2, 6], shape=[3], dtype=float32)
}

// A slice without copies: MLX's own memory, for as long as the array lives.
func ExampleViewSlice() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		a := s.Arange(0, 4, 1, mlx.Int32)
		v, err := mlx.ViewSlice[int32](a)
		if err != nil {
			return err
		}
		fmt.Println(v)
		_, err = mlx.ViewSlice[int32](s.Transpose(s.Reshape(a, 2, 2)))
		fmt.Println(err)
		return nil
	})
	// Output:
	// [0 1 2 3]
	// mlx: ViewSlice(int32[2,2]): the elements do not lie row by row; use Contiguous or ToSlice
}

// The slice belongs to MLX until release is called.
func ExampleShareSlice() {
	example(func(lib *mlx.Library, s *mlx.Scope) error {
		data := []float32{1, 2, 3}
		err := lib.Do(context.Background(), func(inner *mlx.Scope) error {
			a := mlx.ShareSlice(inner, data, func() { fmt.Println("released") })
			fmt.Println(inner.Sum(a, false))
			return nil
		})
		return err
	})
	// Output:
	// array(6, shape=[], dtype=float32)
	// released
}

func ExampleScope_LoadSafetensorsFrom() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		var file bytes.Buffer
		if err := s.SaveSafetensorsTo(&file, map[string]mlx.Array{"w": s.Full(0.5, mlx.Float16, 2)}, nil); err != nil {
			return err
		}
		arrays, _, err := s.LoadSafetensorsFrom(&file)
		fmt.Println(arrays["w"])
		return err
	})
	// Output: array([0.5, 0.5], shape=[2], dtype=float16)
}

func ExampleScope_LoadNPYFrom() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		var file bytes.Buffer
		if err := s.SaveNPYTo(&file, s.Arange(0, 4, 1, mlx.Int64)); err != nil {
			return err
		}
		fmt.Println(s.LoadNPYFrom(&file))
		return nil
	})
	// Output: array([0, 1, 2, 3], shape=[4], dtype=int64)
}

func ExampleScope_SaveGGUF() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "w.gguf")
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		w := map[string]mlx.Array{"w": s.Ones(mlx.Float32, 2)}
		if err := s.SaveGGUF(path, w, map[string]any{"general.name": "an example"}); err != nil {
			return err
		}
		arrays, metadata, err := s.LoadGGUF(path)
		fmt.Println(arrays["w"], metadata)
		return err
	})
	// Output: array([1, 1], shape=[2], dtype=float32) map[general.name:an example]
}

// A process alone is a group of one.
func ExampleScope_Group() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		g := s.Group(mlx.GroupOptions{})
		if g == nil {
			return nil
		}
		fmt.Println(g.Rank(), g.Size())
		fmt.Println(s.AllSum(s.Ones(mlx.Float32, 2), g))
		return nil
	})
	// Output:
	// 0 1
	// array([1, 1], shape=[2], dtype=float32)
}

// Weights of 4 bits, in groups of 64 with a scale and a bias each.
func ExampleScope_QuantizedMatMul() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		w := s.Full(0.5, mlx.Float32, 2, 64) // equal weights lose nothing
		q := s.Quantize(w, mlx.QuantizeOptions{})
		x := s.Ones(mlx.Float32, 1, 64)
		fmt.Println(s.QuantizedMatMul(x, q, true))
		return nil
	})
	// Output: array([[32, 32]], shape=[1,2], dtype=float32)
}

// Memory that arrays use, and what freeing them leaves.
func ExampleLibrary_Memory() {
	lib, err := mlx.Open(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer lib.Close()
	ctx := context.Background()
	before, err := lib.Memory(ctx)
	if err != nil {
		log.Fatal(err)
	}
	err = lib.Do(ctx, func(s *mlx.Scope) error {
		if err := s.Eval(s.Ones(mlx.Float32, 1024, 1024)); err != nil {
			return err
		}
		now, err := lib.Memory(ctx)
		fmt.Println((now.Active-before.Active)>>20, "MiB more in use")
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := lib.Synchronize(ctx); err != nil { // a GPU may still be at work
		log.Fatal(err)
	}
	after, err := lib.Memory(ctx)
	fmt.Println(after.Active-before.Active, "bytes more afterwards", err)
	// Output:
	// 4 MiB more in use
	// 0 bytes more afterwards <nil>
}
