package mlx_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

var (
	inf = math.Inf(1)
	nan = math.NaN()
)

type opCase struct {
	name  string
	f     func(s *mlx.Scope) mlx.Array
	dtype mlx.Dtype
	shape []int
	want  []float64
}

// run checks values, shape and type of every case.
func run(t *testing.T, cases []opCase) {
	t.Helper()
	do(t, func(s *mlx.Scope) {
		for _, c := range cases {
			a := c.f(s)
			require.NoError(t, s.Err(), c.name)
			require.Equal(t, c.dtype, a.Dtype(), c.name)
			require.Equal(t, c.shape, a.Shape(), c.name)
			near(t, c.want, values(t, s, a), c.name)
		}
	})
}

func TestCreation(t *testing.T) {
	run(t, []opCase{
		{"zeros", func(s *mlx.Scope) mlx.Array { return s.Zeros(mlx.BFloat16, 2, 2) }, mlx.BFloat16, []int{2, 2}, []float64{0, 0, 0, 0}},
		{"zeros scalar", func(s *mlx.Scope) mlx.Array { return s.Zeros(mlx.Int8) }, mlx.Int8, []int{}, []float64{0}},
		{"zeros empty", func(s *mlx.Scope) mlx.Array { return s.Zeros(mlx.Int8, 0, 3) }, mlx.Int8, []int{0, 3}, []float64{}},
		{"ones", func(s *mlx.Scope) mlx.Array { return s.Ones(mlx.Uint32, 3) }, mlx.Uint32, []int{3}, []float64{1, 1, 1}},
		{"full", func(s *mlx.Scope) mlx.Array { return s.Full(-2.5, mlx.Float16, 1, 2) }, mlx.Float16, []int{1, 2}, []float64{-2.5, -2.5}},
		{"full infinite", func(s *mlx.Scope) mlx.Array { return s.Full(math.Inf(-1), mlx.Float32, 2) }, mlx.Float32, []int{2}, []float64{-inf, -inf}},
		{"scalar", func(s *mlx.Scope) mlx.Array { return s.Scalar(1.0/3, mlx.Float32) }, mlx.Float32, []int{}, []float64{float64(float32(1.0 / 3))}},
		{"scalar bf16", func(s *mlx.Scope) mlx.Array { return s.Scalar(1.0/3, mlx.BFloat16) }, mlx.BFloat16, []int{}, []float64{0.333984375}},
		{"scalar int", func(s *mlx.Scope) mlx.Array { return s.Scalar(-2.9, mlx.Int32) }, mlx.Int32, []int{}, []float64{-2}},
		{"scalar bool", func(s *mlx.Scope) mlx.Array { return s.Scalar(-0.5, mlx.Bool) }, mlx.Bool, []int{}, []float64{1}},
		{"scalar nan", func(s *mlx.Scope) mlx.Array { return s.Scalar(nan, mlx.BFloat16) }, mlx.BFloat16, []int{}, []float64{nan}},
		{"arange", func(s *mlx.Scope) mlx.Array { return s.Arange(1, 8, 3, mlx.Int32) }, mlx.Int32, []int{3}, []float64{1, 4, 7}},
		{"arange down", func(s *mlx.Scope) mlx.Array { return s.Arange(2, 0, -0.5, mlx.Float32) }, mlx.Float32, []int{4}, []float64{2, 1.5, 1, 0.5}},
		{"arange empty", func(s *mlx.Scope) mlx.Array { return s.Arange(2, 2, 1, mlx.Float32) }, mlx.Float32, []int{0}, []float64{}},
	})
}

func TestShapes(t *testing.T) {
	grid := func(s *mlx.Scope) mlx.Array { return f32(s, []int{2, 3}, 1, 2, 3, 4, 5, 6) }
	six := []float64{1, 2, 3, 4, 5, 6}
	run(t, []opCase{
		{"reshape", func(s *mlx.Scope) mlx.Array { return s.Reshape(grid(s), 3, -1) }, mlx.Float32, []int{3, 2}, six},
		{"reshape to scalar", func(s *mlx.Scope) mlx.Array { return s.Reshape(s.Ones(mlx.Float32, 1, 1)) }, mlx.Float32, []int{}, []float64{1}},
		{"flatten", func(s *mlx.Scope) mlx.Array { return s.Flatten(grid(s)) }, mlx.Float32, []int{6}, six},
		{"flatten scalar", func(s *mlx.Scope) mlx.Array { return s.Flatten(s.Ones(mlx.Float32)) }, mlx.Float32, []int{1}, []float64{1}},
		{"transpose", func(s *mlx.Scope) mlx.Array { return s.Transpose(grid(s)) }, mlx.Float32, []int{3, 2}, []float64{1, 4, 2, 5, 3, 6}},
		{"transpose axes", func(s *mlx.Scope) mlx.Array { return s.Transpose(s.Reshape(grid(s), 1, 2, 3), 2, 0, 1) }, mlx.Float32, []int{3, 1, 2}, []float64{1, 4, 2, 5, 3, 6}},
		{"swap", func(s *mlx.Scope) mlx.Array { return s.SwapAxes(grid(s), 0, -1) }, mlx.Float32, []int{3, 2}, []float64{1, 4, 2, 5, 3, 6}},
		{"expand", func(s *mlx.Scope) mlx.Array { return s.ExpandDims(grid(s), 0, -1) }, mlx.Float32, []int{1, 2, 3, 1}, six},
		{"squeeze all", func(s *mlx.Scope) mlx.Array { return s.Squeeze(s.Reshape(grid(s), 1, 6, 1)) }, mlx.Float32, []int{6}, six},
		{"squeeze one", func(s *mlx.Scope) mlx.Array { return s.Squeeze(s.Reshape(grid(s), 1, 6, 1), -1) }, mlx.Float32, []int{1, 6}, six},
		{"broadcast", func(s *mlx.Scope) mlx.Array { return s.BroadcastTo(f32(s, []int{2, 1}, 1, 2), 2, 2, 2) }, mlx.Float32, []int{2, 2, 2}, []float64{1, 1, 2, 2, 1, 1, 2, 2}},
		{"concat", func(s *mlx.Scope) mlx.Array { return s.Concat(1, grid(s), s.Zeros(mlx.Float32, 2, 1)) }, mlx.Float32, []int{2, 4}, []float64{1, 2, 3, 0, 4, 5, 6, 0}},
		{"concat one", func(s *mlx.Scope) mlx.Array { return s.Concat(0, grid(s)) }, mlx.Float32, []int{2, 3}, six},
		{"stack", func(s *mlx.Scope) mlx.Array { return s.Stack(-1, ints(s, 1, 2), ints(s, 3, 4)) }, mlx.Int32, []int{2, 2}, []float64{1, 3, 2, 4}},
		{"split", func(s *mlx.Scope) mlx.Array { return s.Split(grid(s), 3, 1)[1] }, mlx.Float32, []int{2, 1}, []float64{2, 5}},
		{"split at", func(s *mlx.Scope) mlx.Array { return s.SplitAt(grid(s), -1, 1, 1)[2] }, mlx.Float32, []int{2, 2}, []float64{2, 3, 5, 6}},
		{"split at empty part", func(s *mlx.Scope) mlx.Array { return s.SplitAt(grid(s), -1, 1, 1)[1] }, mlx.Float32, []int{2, 0}, []float64{}},
		{"split nowhere", func(s *mlx.Scope) mlx.Array { return s.SplitAt(grid(s), 0)[0] }, mlx.Float32, []int{2, 3}, six},
		{"repeat", func(s *mlx.Scope) mlx.Array { return s.Repeat(ints(s, 1, 2), 2, 0) }, mlx.Int32, []int{4}, []float64{1, 1, 2, 2}},
		{"contiguous", func(s *mlx.Scope) mlx.Array { return s.Contiguous(s.Transpose(grid(s))) }, mlx.Float32, []int{3, 2}, []float64{1, 4, 2, 5, 3, 6}},
		{"copy", func(s *mlx.Scope) mlx.Array { return s.Copy(grid(s)) }, mlx.Float32, []int{2, 3}, six},
		{"astype", func(s *mlx.Scope) mlx.Array { return s.AsType(f32(s, []int{3}, -1.5, 0, 2.7), mlx.Int16) }, mlx.Int16, []int{3}, []float64{-1, 0, 2}},
		{"astype bool", func(s *mlx.Scope) mlx.Array { return s.AsType(f32(s, []int{3}, -1.5, 0, 2.7), mlx.Bool) }, mlx.Bool, []int{3}, []float64{1, 0, 1}},
		{"astype bf16", func(s *mlx.Scope) mlx.Array { return s.AsType(f32(s, []int{1}, 1.00390625), mlx.BFloat16) }, mlx.BFloat16, []int{1}, []float64{1}},
	})
}

func TestSlices(t *testing.T) {
	grid := func(s *mlx.Scope) mlx.Array { return f32(s, []int{3, 3}, 1, 2, 3, 4, 5, 6, 7, 8, 9) }
	run(t, []opCase{
		{"slice", func(s *mlx.Scope) mlx.Array { return s.Slice(grid(s), []int{1, 0}, []int{3, 2}) }, mlx.Float32, []int{2, 2}, []float64{4, 5, 7, 8}},
		{"slice from the end", func(s *mlx.Scope) mlx.Array { return s.Slice(grid(s), []int{-1, -2}, []int{3, -1}) }, mlx.Float32, []int{1, 1}, []float64{8}},
		{"slice over the end", func(s *mlx.Scope) mlx.Array { return s.Slice(grid(s), []int{2, 2}, []int{9, 9}) }, mlx.Float32, []int{1, 1}, []float64{9}},
		{"slice nothing", func(s *mlx.Scope) mlx.Array { return s.Slice(grid(s), []int{2, 0}, []int{1, 3}) }, mlx.Float32, []int{0, 3}, []float64{}},
		{"axis", func(s *mlx.Scope) mlx.Array { return s.SliceAxis(grid(s), -1, 1, 2) }, mlx.Float32, []int{3, 1}, []float64{2, 5, 8}},
		{"axis, last row", func(s *mlx.Scope) mlx.Array { return s.SliceAxis(grid(s), 0, -1, 3) }, mlx.Float32, []int{1, 3}, []float64{7, 8, 9}},
		{"dynamic", func(s *mlx.Scope) mlx.Array { return s.SliceDynamic(grid(s), ints(s, 1), []int{0}, []int{2, 2}) }, mlx.Float32, []int{2, 2}, []float64{4, 5, 7, 8}},
		{"dynamic, two axes", func(s *mlx.Scope) mlx.Array {
			return s.SliceDynamic(grid(s), ints(s, 2, 1), []int{1, 0}, []int{2, 1})
		}, mlx.Float32, []int{2, 1}, []float64{6, 9}},
		{"update", func(s *mlx.Scope) mlx.Array {
			return s.SliceUpdate(grid(s), f32(s, []int{1, 2}, 0, -1), []int{1, 1}, []int{2, 3})
		}, mlx.Float32, []int{3, 3}, []float64{1, 2, 3, 4, 0, -1, 7, 8, 9}},
		{"update broadcasts", func(s *mlx.Scope) mlx.Array {
			return s.SliceUpdate(grid(s), s.Zeros(mlx.Float32), []int{0, 0}, []int{3, 1})
		}, mlx.Float32, []int{3, 3}, []float64{0, 2, 3, 0, 5, 6, 0, 8, 9}},
		{"update dynamic", func(s *mlx.Scope) mlx.Array {
			return s.SliceUpdateDynamic(grid(s), f32(s, []int{2, 1}, 0, -1), ints(s, 1, 2), []int{0, 1})
		}, mlx.Float32, []int{3, 3}, []float64{1, 2, 3, 4, 5, 0, 7, 8, -1}},
		{"take rows", func(s *mlx.Scope) mlx.Array { return s.Take(grid(s), ints(s, 2, 0, -1), 0) }, mlx.Float32, []int{3, 3}, []float64{7, 8, 9, 1, 2, 3, 7, 8, 9}},
		{"take, matrix of indices", func(s *mlx.Scope) mlx.Array {
			return s.Take(ints(s, 5, 6, 7), mlx.FromSlice(s, []uint32{0, 1, 2, 2}, 2, 2), 0)
		}, mlx.Int32, []int{2, 2}, []float64{5, 6, 7, 7}},
		{"take, scalar index", func(s *mlx.Scope) mlx.Array { return s.Take(grid(s), s.Scalar(1, mlx.Int32), 1) }, mlx.Float32, []int{3}, []float64{2, 5, 8}},
		{"take along", func(s *mlx.Scope) mlx.Array {
			return s.TakeAlong(grid(s), mlx.FromSlice(s, []int32{0, 2, 1}, 3, 1), 1)
		}, mlx.Float32, []int{3, 1}, []float64{1, 6, 8}},
		{"where", func(s *mlx.Scope) mlx.Array {
			return s.Where(mlx.FromSlice(s, []bool{true, false}), ints(s, 1, 2), s.Scalar(9, mlx.Int32))
		}, mlx.Int32, []int{2}, []float64{1, 9}},
	})
}

func TestElementwise(t *testing.T) {
	a := func(s *mlx.Scope) mlx.Array { return f32(s, []int{4}, -2, 0, 0.5, 3) }
	b := func(s *mlx.Scope) mlx.Array { return f32(s, []int{4}, 2, 1, -0.5, 3) }
	each := func(f func(float64) float64, v ...float64) []float64 {
		out := make([]float64, len(v))
		for i, x := range v {
			out[i] = f(x)
		}
		return out
	}
	in := []float64{-2, 0, 0.5, 3}
	unary := func(name string, f func(s *mlx.Scope, a mlx.Array) mlx.Array, want ...float64) opCase {
		return opCase{name, func(s *mlx.Scope) mlx.Array { return f(s, a(s)) }, mlx.Float32, []int{4}, want}
	}
	binary := func(name string, f func(s *mlx.Scope, a, b mlx.Array) mlx.Array, want ...float64) opCase {
		return opCase{name, func(s *mlx.Scope) mlx.Array { return f(s, a(s), b(s)) }, mlx.Float32, []int{4}, want}
	}
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	run(t, []opCase{
		unary("neg", (*mlx.Scope).Neg, 2, 0, -0.5, -3),
		unary("abs", (*mlx.Scope).Abs, 2, 0, 0.5, 3),
		unary("exp", (*mlx.Scope).Exp, each(math.Exp, in...)...),
		unary("log", (*mlx.Scope).Log, nan, -inf, math.Log(0.5), math.Log(3)),
		unary("log1p", (*mlx.Scope).Log1p, nan, 0, math.Log1p(0.5), math.Log1p(3)),
		unary("sqrt", (*mlx.Scope).Sqrt, nan, 0, math.Sqrt(0.5), math.Sqrt(3)),
		unary("rsqrt", (*mlx.Scope).Rsqrt, nan, inf, 1/math.Sqrt(0.5), 1/math.Sqrt(3)),
		unary("square", (*mlx.Scope).Square, 4, 0, 0.25, 9),
		unary("sin", (*mlx.Scope).Sin, each(math.Sin, in...)...),
		unary("cos", (*mlx.Scope).Cos, each(math.Cos, in...)...),
		unary("tanh", (*mlx.Scope).Tanh, each(math.Tanh, in...)...),
		unary("erf", (*mlx.Scope).Erf, each(math.Erf, in...)...),
		unary("sigmoid", (*mlx.Scope).Sigmoid, each(sigmoid, in...)...),
		unary("silu", (*mlx.Scope).SiLU, each(func(x float64) float64 { return x * sigmoid(x) }, in...)...),
		unary("softplus", (*mlx.Scope).Softplus, each(func(x float64) float64 { return math.Log1p(math.Exp(x)) }, in...)...),
		binary("add", (*mlx.Scope).Add, 0, 1, 0, 6),
		binary("sub", (*mlx.Scope).Sub, -4, -1, 1, 0),
		binary("mul", (*mlx.Scope).Mul, -4, 0, -0.25, 9),
		binary("div", (*mlx.Scope).Div, -1, 0, -1, 1),
		binary("power", (*mlx.Scope).Power, 4, 0, math.Pow(0.5, -0.5), 27),
		binary("max", (*mlx.Scope).Maximum, 2, 1, 0.5, 3),
		binary("min", (*mlx.Scope).Minimum, -2, 0, -0.5, 3),
		binary("logaddexp", (*mlx.Scope).LogAddExp,
			math.Log(math.Exp(-2)+math.Exp(2)), math.Log(1+math.E), math.Log(math.Exp(0.5)+math.Exp(-0.5)), 3+math.Log(2)),
		{"div of integers", func(s *mlx.Scope) mlx.Array { return s.Div(ints(s, 7, -7), ints(s, 2, 2)) }, mlx.Float32, []int{2}, []float64{3.5, -3.5}},
		{"floor div", func(s *mlx.Scope) mlx.Array {
			return s.FloorDiv(f32(s, []int{2}, 7, -7), f32(s, []int{2}, 2, 2))
		}, mlx.Float32, []int{2}, []float64{3, -4}},
		{"floor div of integers", func(s *mlx.Scope) mlx.Array { return s.FloorDiv(ints(s, 7, 8), ints(s, 2, 2)) }, mlx.Int32, []int{2}, []float64{3, 4}},
		{"remainder", func(s *mlx.Scope) mlx.Array { return s.Remainder(ints(s, 7, -7, 7), ints(s, 3, 3, -3)) }, mlx.Int32, []int{3}, []float64{1, 2, -2}},
		// These divisions would end the process on the CPU if MLX made them.
		{"floor div by 0 and -1", func(s *mlx.Scope) mlx.Array {
			return s.FloorDiv(ints(s, 7, 7, -7, math.MinInt32), ints(s, 0, -1, 2, -1))
		}, mlx.Int32, []int{4}, []float64{0, -7, -3, math.MinInt32}},
		{"floor div, wider", func(s *mlx.Scope) mlx.Array {
			return s.FloorDiv(mlx.FromSlice(s, []int8{-128, 7}), ints(s, -1, 3))
		}, mlx.Int32, []int{2}, []float64{128, 2}},
		{"floor div, unsigned", func(s *mlx.Scope) mlx.Array {
			return s.FloorDiv(mlx.FromSlice(s, []uint32{7, 7}), mlx.FromSlice(s, []uint32{0, 2}))
		}, mlx.Uint32, []int{2}, []float64{0, 3}},
		{"remainder of 0 and -1", func(s *mlx.Scope) mlx.Array {
			return s.Remainder(ints(s, 7, 7, 7, math.MinInt32), ints(s, 0, -1, 4, -1))
		}, mlx.Int32, []int{4}, []float64{0, 0, 3, 0}},
		{"remainder, one divisor", func(s *mlx.Scope) mlx.Array {
			return s.Remainder(ints(s, 7, 8), s.Scalar(4, mlx.Int32))
		}, mlx.Int32, []int{2}, []float64{3, 0}},
		{"remainder of floats", func(s *mlx.Scope) mlx.Array {
			return s.Remainder(f32(s, []int{2}, 7, -7), f32(s, []int{2}, 0, 4))
		}, mlx.Float32, []int{2}, []float64{nan, 1}},
		{"broadcast", func(s *mlx.Scope) mlx.Array { return s.Add(f32(s, []int{2, 1}, 1, 2), f32(s, []int{3}, 10, 20, 30)) }, mlx.Float32, []int{2, 3}, []float64{11, 21, 31, 12, 22, 32}},
		{"promotion", func(s *mlx.Scope) mlx.Array { return s.Mul(ints(s, 2), s.Scalar(1.5, mlx.BFloat16)) }, mlx.BFloat16, []int{1}, []float64{3}},
		{"clip", func(s *mlx.Scope) mlx.Array { return s.Clip(a(s), s.Scalar(-1, mlx.Float32), s.Scalar(1, mlx.Float32)) }, mlx.Float32, []int{4}, []float64{-1, 0, 0.5, 1}},
		{"clip below", func(s *mlx.Scope) mlx.Array { return s.Clip(a(s), s.Scalar(-1, mlx.Float32), mlx.Array{}) }, mlx.Float32, []int{4}, []float64{-1, 0, 0.5, 3}},
		{"clip above", func(s *mlx.Scope) mlx.Array { return s.Clip(a(s), mlx.Array{}, s.Scalar(1, mlx.Float32)) }, mlx.Float32, []int{4}, []float64{-2, 0, 0.5, 1}},
		{"softplus without overflow", func(s *mlx.Scope) mlx.Array { return s.Softplus(f32(s, []int{2}, 200, -200)) }, mlx.Float32, []int{2}, []float64{200, 0}},
		{"softplus bf16", func(s *mlx.Scope) mlx.Array { return s.Softplus(s.Zeros(mlx.BFloat16, 1)) }, mlx.BFloat16, []int{1}, []float64{0.69140625}},
	})
}

func TestLogic(t *testing.T) {
	a := func(s *mlx.Scope) mlx.Array { return f32(s, []int{3}, 1, 2, 3) }
	b := func(s *mlx.Scope) mlx.Array { return f32(s, []int{3}, 3, 2, 1) }
	binary := func(name string, f func(s *mlx.Scope, a, b mlx.Array) mlx.Array, want ...float64) opCase {
		return opCase{name, func(s *mlx.Scope) mlx.Array { return f(s, a(s), b(s)) }, mlx.Bool, []int{3}, want}
	}
	odd := func(s *mlx.Scope) mlx.Array { return f32(s, []int{3}, 0, float32(nan), float32(inf)) }
	p := func(s *mlx.Scope) mlx.Array { return mlx.FromSlice(s, []bool{true, true, false}) }
	q := func(s *mlx.Scope) mlx.Array { return mlx.FromSlice(s, []bool{true, false, false}) }
	run(t, []opCase{
		binary("equal", (*mlx.Scope).Equal, 0, 1, 0),
		binary("not equal", (*mlx.Scope).NotEqual, 1, 0, 1),
		binary("less", (*mlx.Scope).Less, 1, 0, 0),
		binary("less equal", (*mlx.Scope).LessEqual, 1, 1, 0),
		binary("greater", (*mlx.Scope).Greater, 0, 0, 1),
		binary("greater equal", (*mlx.Scope).GreaterEqual, 0, 1, 1),
		{"and", func(s *mlx.Scope) mlx.Array { return s.LogicalAnd(p(s), q(s)) }, mlx.Bool, []int{3}, []float64{1, 0, 0}},
		{"or", func(s *mlx.Scope) mlx.Array { return s.LogicalOr(p(s), q(s)) }, mlx.Bool, []int{3}, []float64{1, 1, 0}},
		{"not", func(s *mlx.Scope) mlx.Array { return s.LogicalNot(p(s)) }, mlx.Bool, []int{3}, []float64{0, 0, 1}},
		{"is nan", func(s *mlx.Scope) mlx.Array { return s.IsNaN(odd(s)) }, mlx.Bool, []int{3}, []float64{0, 1, 0}},
		{"is finite", func(s *mlx.Scope) mlx.Array { return s.IsFinite(odd(s)) }, mlx.Bool, []int{3}, []float64{1, 0, 0}},
		{"array equal", func(s *mlx.Scope) mlx.Array { return s.ArrayEqual(a(s), a(s)) }, mlx.Bool, []int{}, []float64{1}},
		{"array not equal", func(s *mlx.Scope) mlx.Array { return s.ArrayEqual(a(s), b(s)) }, mlx.Bool, []int{}, []float64{0}},
		{"array of other shape", func(s *mlx.Scope) mlx.Array { return s.ArrayEqual(a(s), s.Ones(mlx.Float32)) }, mlx.Bool, []int{}, []float64{0}},
		{"array with nan", func(s *mlx.Scope) mlx.Array { return s.ArrayEqual(odd(s), odd(s)) }, mlx.Bool, []int{}, []float64{0}},
	})
}

func TestReductions(t *testing.T) {
	grid := func(s *mlx.Scope) mlx.Array { return f32(s, []int{2, 3}, 1, 5, 3, 4, 2, 6) }
	lse := func(v ...float64) float64 {
		sum := 0.0
		for _, x := range v {
			sum += math.Exp(x)
		}
		return math.Log(sum)
	}
	soft := func(v ...float64) []float64 {
		out := make([]float64, len(v))
		for i := range v {
			out[i] = math.Exp(v[i] - lse(v...))
		}
		return out
	}
	type reduction = func(s *mlx.Scope, a mlx.Array, keep bool, axes ...int) mlx.Array
	rows := func(name string, f reduction, all, row0, row1 float64) []opCase {
		return []opCase{
			{name, func(s *mlx.Scope) mlx.Array { return f(s, grid(s), false) }, mlx.Float32, []int{}, []float64{all}},
			{name + " keeps all", func(s *mlx.Scope) mlx.Array { return f(s, grid(s), true) }, mlx.Float32, []int{1, 1}, []float64{all}},
			{name + " rows", func(s *mlx.Scope) mlx.Array { return f(s, grid(s), false, -1) }, mlx.Float32, []int{2}, []float64{row0, row1}},
			{name + " keeps", func(s *mlx.Scope) mlx.Array { return f(s, grid(s), true, 1) }, mlx.Float32, []int{2, 1}, []float64{row0, row1}},
			{name + " both", func(s *mlx.Scope) mlx.Array { return f(s, grid(s), false, 0, 1) }, mlx.Float32, []int{}, []float64{all}},
		}
	}
	var cases []opCase
	cases = append(cases, rows("sum", (*mlx.Scope).Sum, 21, 9, 12)...)
	cases = append(cases, rows("mean", (*mlx.Scope).Mean, 3.5, 3, 4)...)
	cases = append(cases, rows("max", (*mlx.Scope).Max, 6, 5, 6)...)
	cases = append(cases, rows("min", (*mlx.Scope).Min, 1, 1, 2)...)
	cases = append(cases, rows("prod", (*mlx.Scope).Prod, 720, 15, 48)...)
	cases = append(cases, rows("logsumexp", (*mlx.Scope).LogSumExp, lse(1, 5, 3, 4, 2, 6), lse(1, 5, 3), lse(4, 2, 6))...)
	flags := func(s *mlx.Scope) mlx.Array { return mlx.FromSlice(s, []bool{true, true, true, false}, 2, 2) }
	run(t, append(cases, []opCase{
		{"all", func(s *mlx.Scope) mlx.Array { return s.All(flags(s), false) }, mlx.Bool, []int{}, []float64{0}},
		{"all rows", func(s *mlx.Scope) mlx.Array { return s.All(flags(s), false, 1) }, mlx.Bool, []int{2}, []float64{1, 0}},
		{"any", func(s *mlx.Scope) mlx.Array { return s.Any(flags(s), false) }, mlx.Bool, []int{}, []float64{1}},
		{"any columns", func(s *mlx.Scope) mlx.Array { return s.Any(flags(s), true, 0) }, mlx.Bool, []int{1, 2}, []float64{1, 1}},
		{"sum of a scalar", func(s *mlx.Scope) mlx.Array { return s.Sum(s.Ones(mlx.Float32), false) }, mlx.Float32, []int{}, []float64{1}},
		{"argmax", func(s *mlx.Scope) mlx.Array { return s.Argmax(grid(s), -1, false) }, mlx.Uint32, []int{2}, []float64{1, 2}},
		{"argmax of equals", func(s *mlx.Scope) mlx.Array { return s.Argmax(ints(s, 1, 3, 3), 0, true) }, mlx.Uint32, []int{1}, []float64{1}},
		{"argmin", func(s *mlx.Scope) mlx.Array { return s.Argmin(grid(s), 0, true) }, mlx.Uint32, []int{1, 3}, []float64{0, 1, 0}},
		{"cumsum", func(s *mlx.Scope) mlx.Array { return s.CumSum(grid(s), 1) }, mlx.Float32, []int{2, 3}, []float64{1, 6, 9, 4, 6, 12}},
		{"cumprod", func(s *mlx.Scope) mlx.Array { return s.CumProd(ints(s, 1, 1, 0, 1), 0) }, mlx.Int32, []int{4}, []float64{1, 1, 0, 0}},
		{"softmax", func(s *mlx.Scope) mlx.Array { return s.Softmax(grid(s), false, -1) }, mlx.Float32, []int{2, 3}, append(soft(1, 5, 3), soft(4, 2, 6)...)},
		{"softmax of all", func(s *mlx.Scope) mlx.Array { return s.Softmax(grid(s), true) }, mlx.Float32, []int{2, 3}, soft(1, 5, 3, 4, 2, 6)},
		{"sort", func(s *mlx.Scope) mlx.Array { return s.Sort(grid(s), -1) }, mlx.Float32, []int{2, 3}, []float64{1, 3, 5, 2, 4, 6}},
		{"argsort", func(s *mlx.Scope) mlx.Array { return s.Argsort(grid(s), -1) }, mlx.Uint32, []int{2, 3}, []float64{0, 2, 1, 1, 0, 2}},
		{"argpartition", func(s *mlx.Scope) mlx.Array { return s.SliceAxis(s.Argpartition(grid(s), -1, -1), -1, -1, 3) }, mlx.Uint32, []int{2, 1}, []float64{1, 2}},
		{"topk", func(s *mlx.Scope) mlx.Array { return s.Sort(s.TopK(grid(s), 2, -1), -1) }, mlx.Float32, []int{2, 2}, []float64{3, 5, 4, 6}},
	}...))
}
