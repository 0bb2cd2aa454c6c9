package mlx_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// injected are mistakes in every class of call; each must be an error of Do.
func injected(dir string) map[string]func(s *mlx.Scope) {
	f32 := func(s *mlx.Scope, shape ...int) mlx.Array { return s.Ones(mlx.Float32, shape...) }
	grad := func(s *mlx.Scope, f mlx.Func) { s.ValueAndGrad(f, []mlx.Array{f32(s, 2)}) }
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			panic(err)
		}
		return path
	}
	return map[string]func(s *mlx.Scope){
		"shape: matmul":    func(s *mlx.Scope) { s.MatMul(f32(s, 2, 3), f32(s, 2, 3)) },
		"shape: broadcast": func(s *mlx.Scope) { s.Add(f32(s, 2), f32(s, 3)) },
		"shape: reshape":   func(s *mlx.Scope) { s.Reshape(f32(s, 2), 3) },
		"shape: concat":    func(s *mlx.Scope) { s.Concat(0, f32(s, 2, 2), f32(s, 2, 3)) },
		"shape: split":     func(s *mlx.Scope) { s.Split(f32(s, 3), 2, 0) },
		"shape: attention": func(s *mlx.Scope) {
			s.Attention(f32(s, 1, 1, 2, 4), f32(s, 1, 1, 2, 8), f32(s, 1, 1, 2, 4), mlx.AttentionOptions{})
		},
		"shape: conv":         func(s *mlx.Scope) { s.Conv1d(f32(s, 1, 4, 2), f32(s, 1, 2, 3), mlx.Conv1dOptions{}) },
		"shape: slice update": func(s *mlx.Scope) { s.SliceUpdate(f32(s, 2), f32(s, 5), []int{0}, []int{2}) },
		"shape: negative":     func(s *mlx.Scope) { s.Zeros(mlx.Float32, -1) },
		"shape: data":         func(s *mlx.Scope) { mlx.FromSlice(s, []int32{1}, 2) },
		"shape: shared":       func(s *mlx.Scope) { mlx.ShareSlice(s, []int32{1}, nil, 2) },
		"dtype: index":        func(s *mlx.Scope) { s.Take(f32(s, 2), f32(s, 2), 0) },
		"dtype: float":        func(s *mlx.Scope) { s.RMSNorm(s.Ones(mlx.Int32, 2), mlx.Array{}, 1e-5) },
		"dtype: unknown":      func(s *mlx.Scope) { s.AsType(f32(s, 2), mlx.Dtype(99)) },
		"dtype: read":         func(s *mlx.Scope) { _, err := mlx.ToSlice[int8](f32(s, 2)); s.Fail(err) },
		"dtype: quantized":    func(s *mlx.Scope) { s.Quantize(s.Ones(mlx.Int32, 2, 64), mlx.QuantizeOptions{}) },
		"axis: reduce":        func(s *mlx.Scope) { s.Sum(f32(s, 2), false, 3) },
		"axis: softmax":       func(s *mlx.Scope) { s.Softmax(f32(s, 2), true, -2) },
		"axis: sort":          func(s *mlx.Scope) { s.Sort(f32(s, 2), 1) },
		"axis: transpose":     func(s *mlx.Scope) { s.Transpose(f32(s, 2, 2), 0, 0) },
		"axis: scan":          func(s *mlx.Scope) { s.CumSum(f32(s, 2), 4) },
		"file: none":          func(s *mlx.Scope) { _, _, _ = s.LoadSafetensors(filepath.Join(dir, "none")) },
		"file: safetensors":   func(s *mlx.Scope) { _, _, _ = s.LoadSafetensors(file("a.safetensors", "no such format %s%n")) },
		"file: npy":           func(s *mlx.Scope) { s.LoadNPY(file("a%s%n.npy", "\x93NUMPY\x01\x00\x05\x00%s%n")) },
		"file: gguf": func(s *mlx.Scope) {
			_, _, _ = s.LoadGGUF(file("a.gguf", "GGUF\x03\x00\x00\x00"+strings.Repeat("\xff", 40)))
		},
		"file: reader": func(s *mlx.Scope) { s.LoadNPYFrom(iotest.ErrReader(errors.New("a broken pipe"))) },
		"file: save": func(s *mlx.Scope) {
			_ = s.SaveSafetensors(filepath.Join(dir, "no", "x"), map[string]mlx.Array{"a": f32(s, 2)}, nil)
		},
		"file: writer":    func(s *mlx.Scope) { _ = s.SaveNPYTo(failing{}, f32(s, 2)) },
		"callback: panic": func(s *mlx.Scope) { grad(s, func(*mlx.Scope, []mlx.Array) []mlx.Array { panic("a bug") }) },
		"callback: nil dereference": func(s *mlx.Scope) {
			grad(s, func(*mlx.Scope, []mlx.Array) []mlx.Array { var p *[1]mlx.Array; return p[:] })
		},
		"callback: index": func(s *mlx.Scope) { grad(s, func(_ *mlx.Scope, in []mlx.Array) []mlx.Array { return in[len(in)+1:] }) },
		"callback: error": func(s *mlx.Scope) {
			grad(s, func(s *mlx.Scope, in []mlx.Array) []mlx.Array { return []mlx.Array{s.MatMul(in[0], f32(s, 7, 7))} })
		},
		"callback: compile": func(s *mlx.Scope) {
			s.Compile(func(*mlx.Scope, []mlx.Array) []mlx.Array { panic("a bug") }, mlx.CompileOptions{}).Call(s, f32(s, 1))
		},
		"callback: rule": func(s *mlx.Scope) {
			grad(s, mlx.Custom(func(s *mlx.Scope, in []mlx.Array) []mlx.Array { return []mlx.Array{s.Sum(in[0], false)} },
				mlx.Rules{VJP: func(*mlx.Scope, []mlx.Array, []mlx.Array, []mlx.Array) []mlx.Array { panic("a bug") }}))
		},
		"callback: nested": func(s *mlx.Scope) {
			grad(s, func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
				_, g := s.ValueAndGrad(func(*mlx.Scope, []mlx.Array) []mlx.Array { panic("a bug") }, in)
				return g
			})
		},
		"callback: release":   func(s *mlx.Scope) { mlx.ShareSlice(s, []int32{1}, func() { panic("a bug") }) },
		"callback: fallback":  func(s *mlx.Scope) { brokenKernel(s) },
		"use: freed":          func(s *mlx.Scope) { a := f32(s, 1); s.Free(a); s.Exp(a) },
		"use: zero":           func(s *mlx.Scope) { s.Exp(mlx.Array{}) },
		"stream: of nobody":   func(s *mlx.Scope) { s.On(nil, func() {}) },
		"group: nobody there": func(s *mlx.Scope) { s.Send(f32(s, 1), 1, s.Group(mlx.GroupOptions{})) },
		"group: unknown":      func(s *mlx.Scope) { s.Group(mlx.GroupOptions{Backend: "none %s%n", Strict: true}) },
		"text: percent signs": func(s *mlx.Scope) {
			_ = s.SaveGGUF(filepath.Join(dir, "x"), map[string]mlx.Array{"%s%n": f32(s, 1)}, nil)
		},
		"memory: beyond reach": func(s *mlx.Scope) { s.Zeros(mlx.Float32, 1<<30, 1<<30, 1<<30) },
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

func brokenKernel(s *mlx.Scope) {
	spec := scaled()
	spec.Metal, spec.CUDA = mlx.KernelSource{}, mlx.KernelSource{}
	spec.Fallback = func(*mlx.Scope, []mlx.Array, mlx.Launch) []mlx.Array { panic("a bug") }
	x := s.Ones(mlx.Float32, 2)
	s.NewKernel(spec, nil).Call(s, []mlx.Array{x}, launch(x, 1))
}

func childClasses() {
	dir, err := os.MkdirTemp("", "inject")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	lib, err := mlx.Open(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for name, f := range injected(dir) {
		err := lib.Do(context.Background(), func(s *mlx.Scope) error { f(s); return nil })
		if err == nil {
			fmt.Printf("no error: %s\n", name)
		}
		// The library is as good as before.
		err = lib.Do(context.Background(), func(s *mlx.Scope) error {
			v, err := mlx.Item[float32](s.Sum(s.Ones(mlx.Float32, 3), false))
			if err == nil && v != 3 {
				err = fmt.Errorf("the sum of three ones is %v", v)
			}
			return err
		})
		if err != nil {
			fmt.Printf("after %s: %v\n", name, err)
		}
	}
	// Goexit in a function cannot become an error, but ends only the goroutine that called Do.
	ended := make(chan bool)
	go func() {
		defer close(ended)
		err := lib.Do(context.Background(), func(s *mlx.Scope) error {
			s.ValueAndGrad(func(*mlx.Scope, []mlx.Array) []mlx.Array { runtime.Goexit(); return nil }, []mlx.Array{s.Ones(mlx.Float32, 2)})
			return nil
		})
		fmt.Println("Do returned: ", err)
	}()
	<-ended
	err = lib.Do(context.Background(), func(s *mlx.Scope) error {
		_, g := s.ValueAndGrad(func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
			return []mlx.Array{s.Sum(s.Square(in[0]), false)}
		}, []mlx.Array{s.Ones(mlx.Float32, 1)})
		v, err := mlx.Item[float32](s.Sum(g[0], false))
		if err == nil && v != 2 {
			err = fmt.Errorf("the gradient is %v", v)
		}
		return err
	})
	if err != nil {
		fmt.Println("after Goexit:", err)
	}
	fmt.Println("left:", lib.LiveArrays())
	fmt.Println(lib.Close(), "end reached")
}

// No mistake in any class of call ends the process; in a child, because it might.
func TestMistakesNeverEndTheProcess(t *testing.T) {
	open(t)
	require.Equal(t, "left: 0\n<nil> end reached\n", runChild(t, "classes"))
}
