package mlx_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/godflash/godflash/mlx"
)

// Open the library, compute inside Do, read the result.
func Example() {
	lib, err := mlx.Open(nil)
	if err != nil {
		log.Fatal(err) // says where it looked and how to install
	}
	defer lib.Close()

	err = lib.Do(context.Background(), func(s *mlx.Scope) error {
		a := mlx.FromSlice(s, []float32{1, 2, 3, 4}, 2, 2)
		b := s.MatMul(a, s.Transpose(a))
		v, err := mlx.ToSlice[float32](b)
		fmt.Println(b.Shape(), b.Dtype(), v)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [2 2] float32 [5 11 11 25]
}

// example runs f with an open library, as in the first example.
func example(f func(lib *mlx.Library, s *mlx.Scope) error) {
	lib, err := mlx.Open(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer lib.Close()
	if err := lib.Do(context.Background(), func(s *mlx.Scope) error { return f(lib, s) }); err != nil {
		fmt.Println(err)
	}
}

// Errors need no check after each operation: the first one comes out of Do.
func ExampleOpError() {
	lib, err := mlx.Open(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer lib.Close()
	err = lib.Do(context.Background(), func(s *mlx.Scope) error {
		x := s.Ones(mlx.Float32, 2, 3)
		y := s.Add(x, s.Ones(mlx.Float32, 4)) // fails
		s.Exp(s.Sum(y, false))                // does nothing
		return nil
	})
	var op *mlx.OpError
	if errors.As(err, &op) {
		fmt.Println(op.Op, op.Inputs)
	}
	// Output: Add [float32[2,3] float32[4]]
}

// What outlives a step moves to a scope that lives longer.
func ExampleScope_Move() {
	lib, err := mlx.Open(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer lib.Close()
	state := lib.NewScope("state")
	var sum mlx.Array
	for step := range 3 {
		err := lib.Do(context.Background(), func(s *mlx.Scope) error {
			if !sum.Valid() {
				sum = state.Move(s.Zeros(mlx.Int32))
			}
			next := s.Add(sum, s.Scalar(float64(step), mlx.Int32))
			if err := s.Eval(next); err != nil { // or the graph grows with each step
				return err
			}
			state.Free(sum)
			sum = state.Move(next)
			v, err := mlx.Item[int32](sum)
			fmt.Println(v, state.Len())
			return err
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 0 1
	// 1 1
	// 3 1
}

// A panic in Do is an error of Do; here an array is used after its end.
func ExampleUseError() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		a := s.Ones(mlx.Float32, 2)
		s.Free(a)
		s.Exp(a)
		return nil
	})
	// Output: mlx: panic inside Library.Do: mlx: input 1 of Exp, made by Ones in scope "Do", was ended by Scope.Free
}

func ExampleArray_String() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		fmt.Println(s.Arange(0, 3, 1, mlx.Int32))
		fmt.Println(mlx.Array{})
		return nil
	})
	// Output:
	// array([0, 1, 2], shape=[3], dtype=int32)
	// array(none)
}

// Halves have Go types of their own, which hold their bits.
func ExampleToSlice() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		a := s.Full(1.0/3, mlx.BFloat16, 2)
		bits, err := mlx.ToSlice[mlx.BF16](a)
		if err != nil {
			return err
		}
		fmt.Println(bits[0].Float32())
		_, err = mlx.ToSlice[float32](a) // types are not converted behind your back
		fmt.Println(err)
		v, err := mlx.ToSlice[float32](s.AsType(a, mlx.Float32))
		fmt.Println(v)
		return err
	})
	// Output:
	// 0.33398438
	// mlx: ToSlice(bfloat16[2]): the elements are bfloat16, asked for were float32; convert with AsType
	// [0.33398438 0.33398438]
}

// Reductions take axes, or none for all.
func ExampleScope_Sum() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		a := mlx.FromSlice(s, []float32{1, 2, 3, 4, 5, 6}, 2, 3)
		fmt.Println(s.Sum(a, false))
		fmt.Println(s.Sum(a, false, -1))
		fmt.Println(s.Sum(a, true, 0))
		return nil
	})
	// Output:
	// array(21, shape=[], dtype=float32)
	// array([6, 15], shape=[2], dtype=float32)
	// array([[5, 7, 9]], shape=[1,3], dtype=float32)
}

// A cache row is written where the data says; with no other user of the cache's
// memory this happens in place.
func ExampleScope_SliceUpdateDynamic() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		cache := s.Zeros(mlx.Int32, 4, 2)
		position := mlx.FromSlice(s, []int32{2})
		row := mlx.FromSlice(s, []int32{7, 8}, 1, 2)
		fmt.Println(s.SliceUpdateDynamic(cache, row, position, []int{0}))
		return nil
	})
	// Output:
	// array([[0, 0],
	//        [0, 0],
	//        [7, 8],
	//        [0, 0]], shape=[4,2], dtype=int32)
}

// Two queries see five keys: the causal mask is aligned at the end.
func ExampleScope_Attention() {
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		q := s.Zeros(mlx.Float32, 1, 1, 2, 4) // all keys weigh the same
		k := s.Ones(mlx.Float32, 1, 1, 5, 4)
		v := s.Reshape(s.Arange(0, 5, 1, mlx.Float32), 1, 1, 5, 1)
		fmt.Println(s.Flatten(s.Attention(q, k, v, mlx.AttentionOptions{Causal: true})))
		return nil
	})
	// Output: array([1.5, 2], shape=[2], dtype=float32)
}

func ExampleScope_LoadSafetensors() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "w.safetensors")
	example(func(_ *mlx.Library, s *mlx.Scope) error {
		w := map[string]mlx.Array{"w": s.Full(2, mlx.BFloat16, 3)}
		if err := s.SaveSafetensors(path, w, map[string]string{"format": "mlx"}); err != nil {
			return err
		}
		arrays, metadata, err := s.LoadSafetensors(path)
		fmt.Println(arrays["w"], metadata)
		return err
	})
	// Output: array([2, 2, 2], shape=[3], dtype=bfloat16) map[format:mlx]
}

// Live arrays are counted, so that a test can assert that none is left.
func ExampleLibrary_LiveArrays() {
	lib, err := mlx.Open(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer lib.Close()
	err = lib.Do(context.Background(), func(s *mlx.Scope) error {
		s.Exp(s.Ones(mlx.Float32, 2))
		fmt.Println(lib.LiveArrays())
		return nil
	})
	fmt.Println(lib.LiveArrays(), err)
	// Output:
	// 2
	// 0 <nil>
}
