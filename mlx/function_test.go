package mlx_test

import (
	"context"
	"errors"
	"runtime/cgo"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// square is x² + 3y, summed.
func square(s *mlx.Scope, in []mlx.Array) []mlx.Array {
	y := s.Add(s.Square(in[0]), s.Mul(in[1], s.Scalar(3, mlx.Float32)))
	return []mlx.Array{s.Sum(y, false), y}
}

func TestGradients(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		x, y := f32(s, []int{3}, 1, 2, 3), f32(s, []int{3}, 4, 5, 6)
		in := []mlx.Array{x, y}

		v, g := s.ValueAndGrad(square, in)
		require.NoError(t, s.Err())
		require.Len(t, v, 2)
		require.Len(t, g, 1)
		near(t, []float64{1 + 4 + 9 + 45}, values(t, s, v[0]), "value")
		near(t, []float64{13, 19, 27}, values(t, s, v[1]), "second output")
		near(t, []float64{2, 4, 6}, values(t, s, g[0]), "gradient by x")

		_, g = s.ValueAndGrad(square, in, 1, 0, 1)
		require.Len(t, g, 3)
		near(t, []float64{3, 3, 3}, values(t, s, g[0]), "gradient by y")
		near(t, []float64{2, 4, 6}, values(t, s, g[1]), "gradient by x")
		near(t, []float64{3, 3, 3}, values(t, s, g[2]), "gradient by y again")

		zero := s.Zeros(mlx.Float32)
		out, grads := s.VJP(square, in, []mlx.Array{zero, f32(s, []int{3}, 1, 10, 100)})
		require.NoError(t, s.Err())
		require.Len(t, out, 2)
		near(t, []float64{2, 40, 600}, values(t, s, grads[0]), "vjp by x")
		near(t, []float64{3, 30, 300}, values(t, s, grads[1]), "vjp by y")

		out, tan := s.JVP(square, in, []mlx.Array{f32(s, []int{3}, 1, 0, 0), f32(s, []int{3}, 0, 1, 0)})
		require.NoError(t, s.Err())
		near(t, []float64{59}, values(t, s, out[0]), "value")
		near(t, []float64{5}, values(t, s, tan[0]), "jvp of the sum")
		near(t, []float64{2, 3, 0}, values(t, s, tan[1]), "jvp")
	})
}

// Second derivatives: a function that differentiates inside.
func TestGradientOfGradient(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		cube := func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
			return []mlx.Array{s.Mul(in[0], s.Square(in[0]))}
		}
		slope := func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
			_, g := s.ValueAndGrad(cube, in)
			return g
		}
		v, g := s.ValueAndGrad(slope, []mlx.Array{s.Scalar(2, mlx.Float32)})
		near(t, []float64{12}, values(t, s, v[0]), "3x²")
		near(t, []float64{12}, values(t, s, g[0]), "6x")
	})
}

func TestCheckpoint(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		calls := 0
		body := func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
			calls++
			return []mlx.Array{s.Sum(s.Exp(s.Sin(in[0])), false)}
		}
		x := []mlx.Array{f32(s, []int{2}, 0.5, -1)}
		_, want := s.ValueAndGrad(body, x)
		calls = 0
		_, got := s.ValueAndGrad(mlx.Checkpoint(body), x)
		near(t, values(t, s, want[0]), values(t, s, got[0]), "gradient")
		require.Equal(t, 2, calls, "once forward and once for the gradient")
	})
}

func TestCustomRules(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		double := func(s *mlx.Scope, in []mlx.Array) []mlx.Array { return []mlx.Array{s.Add(in[0], in[0])} }
		f := mlx.Custom(double, mlx.Rules{
			VJP: func(s *mlx.Scope, primals, cotangents, outputs []mlx.Array) []mlx.Array {
				require.Len(t, primals, 1)
				require.Len(t, outputs, 1)
				return []mlx.Array{s.Mul(cotangents[0], s.Scalar(100, mlx.Float32))}
			},
			JVP: func(s *mlx.Scope, primals, tangents []mlx.Array, argnums []int) []mlx.Array {
				require.Equal(t, []int{0}, argnums)
				return []mlx.Array{s.Mul(tangents[0], s.Scalar(50, mlx.Float32))}
			},
		})
		x, one := f32(s, []int{2}, 1, 2), f32(s, []int{2}, 1, 1)
		out, g := s.VJP(f, []mlx.Array{x}, []mlx.Array{one})
		require.NoError(t, s.Err())
		near(t, []float64{2, 4}, values(t, s, out[0]), "value")
		near(t, []float64{100, 100}, values(t, s, g[0]), "its own gradient")
		_, tan := s.JVP(f, []mlx.Array{x}, []mlx.Array{one})
		near(t, []float64{50, 50}, values(t, s, tan[0]), "its own tangent")
	})
}

func TestCompile(t *testing.T) {
	lib := open(t)
	keep := lib.NewScope("keep")
	traces := 0
	var c *mlx.Compiled
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		c = keep.Compile(func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
			traces++
			return []mlx.Array{s.Mul(s.Exp(in[0]), in[1]), s.Neg(in[1])}
		}, mlx.CompileOptions{})
		return keep.Err()
	}))
	for i, shape := range [][]int{{2}, {2}, {1, 3}, {2}} {
		require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
			x, y := s.Zeros(mlx.Float32, shape...), s.Full(float64(i), mlx.Float32, shape...)
			out := c.Call(s, x, y)
			require.NoError(t, s.Err())
			require.Len(t, out, 2)
			require.True(t, item(t, s, s.ArrayEqual(out[0], y)))
			require.True(t, item(t, s, s.ArrayEqual(out[1], s.Neg(y))))
			return nil
		}))
	}
	require.Equal(t, 2, traces, "one for each shape")
	require.NoError(t, keep.Close())
	err := lib.Do(t.Context(), func(s *mlx.Scope) error {
		c.Call(s, s.Ones(mlx.Float32, 2), s.Ones(mlx.Float32, 2))
		return nil
	})
	require.ErrorIs(t, err, mlx.ErrClosed)
	require.ErrorContains(t, err, `Compiled.Call called on scope "keep", which was closed by Scope.Close`)
}

func item(t testing.TB, s *mlx.Scope, a mlx.Array) bool {
	t.Helper()
	v, err := mlx.Item[bool](a)
	require.NoError(t, err)
	return v
}

func TestCompileShapeless(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		traces := 0
		c := s.Compile(func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
			traces++
			return []mlx.Array{s.Square(in[0])}
		}, mlx.CompileOptions{Shapeless: true})
		for n := range 4 {
			out := c.Call(s, s.Full(3, mlx.Float32, n+1))
			require.NoError(t, s.Err())
			require.Equal(t, []int{n + 1}, out[0].Shape())
		}
		require.Equal(t, 1, traces)
	})
}

// A trace that fails must not be taken for a finished one.
func TestCompileAfterAFailure(t *testing.T) {
	lib := open(t)
	keep := lib.NewScope("keep")
	fail := true
	var c *mlx.Compiled
	call := func() error {
		return lib.Do(t.Context(), func(s *mlx.Scope) error {
			if c == nil {
				c = keep.Compile(func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
					if fail {
						panic("not yet")
					}
					return []mlx.Array{s.Neg(in[0])}
				}, mlx.CompileOptions{})
			}
			out := c.Call(s, s.Ones(mlx.Float32, 1))
			if s.Err() == nil {
				near(t, []float64{-1}, values(t, s, out[0]), "value")
			}
			return nil
		})
	}
	var p *mlx.PanicError
	require.ErrorAs(t, call(), &p)
	require.Equal(t, "not yet", p.Value)
	require.ErrorAs(t, call(), &p)
	fail = false
	require.NoError(t, call())
	require.NoError(t, keep.Close())
}

// Everything that can go wrong in and around functions is an error of the operation.
func TestFunctionErrors(t *testing.T) {
	id := func(s *mlx.Scope, in []mlx.Array) []mlx.Array { return in }
	sum := func(s *mlx.Scope, in []mlx.Array) []mlx.Array { return []mlx.Array{s.Sum(in[0], false)} }
	grad := func(s *mlx.Scope, f mlx.Func) { s.ValueAndGrad(f, []mlx.Array{s.Ones(mlx.Float32, 2)}) }
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		f    func(s *mlx.Scope)
		says string
	}{
		"nil":         {func(s *mlx.Scope) { grad(s, nil) }, "ValueAndGrad(float32[2]): the function is nil"},
		"no inputs":   {func(s *mlx.Scope) { s.VJP(id, nil, nil) }, "VJP(): no inputs given"},
		"zero input":  {func(s *mlx.Scope) { s.VJP(id, []mlx.Array{{}}, []mlx.Array{{}}) }, "zero Array"},
		"no results":  {func(s *mlx.Scope) { grad(s, func(*mlx.Scope, []mlx.Array) []mlx.Array { return nil }) }, "returned no arrays"},
		"zero result": {func(s *mlx.Scope) { grad(s, func(*mlx.Scope, []mlx.Array) []mlx.Array { return make([]mlx.Array, 1) }) }, "zero Array"},
		"no scalar":   {func(s *mlx.Scope) { grad(s, id) }, "ValueAndGrad(float32[2]; argnums [0]): "},
		"argnums":     {func(s *mlx.Scope) { s.ValueAndGrad(sum, []mlx.Array{s.Ones(mlx.Float32, 2)}, 1) }, "there are inputs 0 to 0"},
		"argnums < 0": {func(s *mlx.Scope) { s.ValueAndGrad(sum, []mlx.Array{s.Ones(mlx.Float32, 2)}, -1) }, "there are inputs 0 to 0"},
		"panic":       {func(s *mlx.Scope) { grad(s, func(*mlx.Scope, []mlx.Array) []mlx.Array { panic(boom) }) }, "in the function: mlx: panic inside Library.Do: boom"},
		"own error": {func(s *mlx.Scope) {
			grad(s, func(s *mlx.Scope, in []mlx.Array) []mlx.Array { s.Fail(boom); return in })
		}, "in the function: boom"},
		"an operation": {func(s *mlx.Scope) {
			grad(s, func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
				return []mlx.Array{s.Sum(s.Add(in[0], s.Ones(mlx.Float32, 3)), false)}
			})
		}, "in the function: mlx: Add(float32[2], float32[3]): "},
		"no derivative": {func(s *mlx.Scope) {
			grad(s, func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
				return []mlx.Array{s.Sum(s.CumProd(s.Neg(in[0]), 0), false)}
			})
		}, ""},
		"ended result": {func(s *mlx.Scope) {
			grad(s, func(s *mlx.Scope, in []mlx.Array) []mlx.Array { s.Free(in[0]); return in })
		}, "was ended by Scope.Free"},
		"cotangents": {func(s *mlx.Scope) { s.VJP(id, []mlx.Array{s.Ones(mlx.Float32, 2)}, nil) }, "1 outputs and 0 cotangents"},
		"cotangent shape": {func(s *mlx.Scope) {
			s.VJP(id, []mlx.Array{s.Ones(mlx.Float32, 2)}, []mlx.Array{s.Ones(mlx.Float32, 3)})
		}, "output 0 has shape [2] and its cotangent [3]"},
		"tangents": {func(s *mlx.Scope) {
			s.JVP(id, []mlx.Array{s.Ones(mlx.Float32, 2)}, []mlx.Array{s.Ones(mlx.Float32, 3)})
		}, "primal 0 has shape [2] and its tangent [3]"},
		"a rule's panic": {func(s *mlx.Scope) {
			grad(s, mlx.Custom(sum, mlx.Rules{VJP: func(*mlx.Scope, []mlx.Array, []mlx.Array, []mlx.Array) []mlx.Array { panic(boom) }}))
		}, "in the function: mlx: panic inside Library.Do: boom"},
		"a rule's results": {func(s *mlx.Scope) {
			grad(s, mlx.Custom(sum, mlx.Rules{VJP: func(s *mlx.Scope, _, c, _ []mlx.Array) []mlx.Array { return append(c, c...) }}))
		}, "it returned 2 arrays for 1 primals"},
		"a rule's shapes": {func(s *mlx.Scope) {
			grad(s, mlx.Custom(sum, mlx.Rules{VJP: func(s *mlx.Scope, _, c, _ []mlx.Array) []mlx.Array { return c }}))
		}, "result 0 has shape [] and its primal [2]"},
		"evaluating in a trace": {func(s *mlx.Scope) {
			s.Compile(func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
				_ = s.Eval(in[0])
				return in
			}, mlx.CompileOptions{}).Call(s, s.Ones(mlx.Float32, 2))
		}, "in the function: mlx: Eval(float32[2]): "},
		"a checkpoint": {func(s *mlx.Scope) {
			grad(s, mlx.Checkpoint(func(*mlx.Scope, []mlx.Array) []mlx.Array { panic(boom) }))
		}, "in the function: boom"},
	} {
		t.Run(name, func(t *testing.T) {
			lib := open(t)
			err := lib.Do(context.Background(), func(s *mlx.Scope) error {
				c.f(s)
				return nil
			})
			if c.says == "" {
				return // MLX may know the derivative; it must not end the process
			}
			require.Error(t, err)
			if name != "a checkpoint" {
				require.ErrorContains(t, err, c.says)
			}
			if errors.Is(err, boom) {
				require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
					grad(s, sum) // MLX is none the worse
					return nil
				}))
			}
		})
	}
}

// An array kept from a function is seen as ended.
func TestFunctionInputsEnd(t *testing.T) {
	lib := open(t)
	err := lib.Do(t.Context(), func(s *mlx.Scope) error {
		var kept mlx.Array
		s.ValueAndGrad(func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
			kept = in[0]
			return []mlx.Array{s.Sum(in[0], false)}
		}, []mlx.Array{s.Ones(mlx.Float32, 2)})
		s.Exp(kept)
		return nil
	})
	require.ErrorIs(t, err, mlx.ErrClosed)
	require.ErrorContains(t, err, `in scope "function of ValueAndGrad", was ended by the return of the function that made it`)
}

// Go values behind functions are forgotten when MLX drops them.
func TestFunctionsAreForgotten(t *testing.T) {
	lib := open(t)
	ids := func() uintptr { h := cgo.NewHandle(0); h.Delete(); return uintptr(h) }
	run := func() {
		require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
			x := []mlx.Array{s.Ones(mlx.Float32, 2)}
			f := mlx.Checkpoint(mlx.Custom(func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
				return []mlx.Array{s.Sum(in[0], false)}
			}, mlx.Rules{VJP: func(s *mlx.Scope, p, c, o []mlx.Array) []mlx.Array {
				return []mlx.Array{s.BroadcastTo(c[0], 2)}
			}}))
			_, g := s.ValueAndGrad(f, x)
			s.Compile(f, mlx.CompileOptions{}).Call(s, x...)
			return s.Eval(g...)
		}))
	}
	run()
	first := ids()
	made, found := uintptr(0), 0
	run()
	for id, last := first, ids(); id < last; id++ {
		made++
		func() {
			defer func() { _ = recover() }()
			cgo.Handle(id).Value()
			found++
		}()
	}
	require.Positive(t, made)
	require.Zero(t, found, "of %d Go values", made)
}

// A function of no inputs, and one that MLX refuses only after it returned as
// its input is taken from outside too: what MLX recorded until then must not serve.
func TestCompileAfterABrokenTrace(t *testing.T) {
	lib := open(t)
	keep := lib.NewScope("keep")
	defer func() { require.NoError(t, keep.Close()) }()
	fail := true
	var outside mlx.Array
	var none, one *mlx.Compiled
	require.NoError(t, lib.Do(t.Context(), func(*mlx.Scope) error {
		none = keep.Compile(func(s *mlx.Scope, _ []mlx.Array) []mlx.Array {
			if fail {
				panic("not yet")
			}
			return []mlx.Array{s.Full(3, mlx.Float32, 2)}
		}, mlx.CompileOptions{})
		one = keep.Compile(func(s *mlx.Scope, in []mlx.Array) []mlx.Array {
			return []mlx.Array{s.Add(in[0], outside)}
		}, mlx.CompileOptions{})
		return nil
	}))
	call := func(c *mlx.Compiled) error {
		return lib.Do(t.Context(), func(s *mlx.Scope) error {
			outside = s.Full(2, mlx.Float32, 2)
			var in []mlx.Array
			switch {
			case c == one && fail:
				in = []mlx.Array{outside}
			case c == one:
				in = []mlx.Array{s.Ones(mlx.Float32, 2)}
			}
			out := c.Call(s, in...)
			if err := s.Err(); err != nil {
				return err
			}
			near(t, []float64{3, 3}, values(t, s, out[0]), "value")
			return nil
		})
	}
	for range 2 {
		require.ErrorContains(t, call(none), "not yet")
		require.ErrorContains(t, call(one), "uncaptured inputs")
	}
	fail = false
	for range 2 {
		require.NoError(t, call(none))
		require.NoError(t, call(one))
	}
}
