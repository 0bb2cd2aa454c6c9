package mlx_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// A plain array of whole numbers, on which every operation of a program is exact.
type plainArray struct {
	shape []int
	data  []float64
}

func filled(shape []int, f func(at []int) float64) *plainArray {
	p := &plainArray{shape: slices.Clone(shape)}
	n := 1
	for _, d := range shape {
		n *= d
	}
	at := make([]int, len(shape))
	for range n {
		p.data = append(p.data, f(at))
		for k := len(shape) - 1; k >= 0; k-- {
			if at[k]++; at[k] < shape[k] {
				break
			}
			at[k] = 0
		}
	}
	return p
}

// at reads with broadcasting: axes are counted from the last, those of length 1 repeat.
func (p *plainArray) at(index []int) float64 {
	i := 0
	for k, d := range p.shape {
		x := index[len(index)-len(p.shape)+k]
		if d == 1 {
			x = 0
		}
		i = i*d + x
	}
	return p.data[i]
}

func together(a, b []int) ([]int, bool) {
	n := max(len(a), len(b))
	out := make([]int, n)
	for k := range n {
		x, y := 1, 1
		if i := k - n + len(a); i >= 0 {
			x = a[i]
		}
		if i := k - n + len(b); i >= 0 {
			y = b[i]
		}
		switch {
		case x == y || y == 1:
			out[k] = x
		case x == 1:
			out[k] = y
		default:
			return nil, false
		}
	}
	return out, true
}

func place(axis, n int) (int, bool) {
	if axis < 0 {
		axis += n
	}
	return axis, axis >= 0 && axis < n
}

// A step is an operation on both sides: nil means that it is not legal.
type step struct {
	name string
	run  func(r *rand.Rand, s *mlx.Scope, a, b mlx.Array, x, y *plainArray) (mlx.Array, *plainArray)
}

func two(name string, op func(s *mlx.Scope, a, b mlx.Array) mlx.Array, f func(x, y float64) float64) step {
	return step{name, func(_ *rand.Rand, s *mlx.Scope, a, b mlx.Array, x, y *plainArray) (mlx.Array, *plainArray) {
		shape, ok := together(x.shape, y.shape)
		if !ok {
			return op(s, a, b), nil
		}
		return op(s, a, b), filled(shape, func(at []int) float64 { return f(x.at(at), y.at(at)) })
	}}
}

func one(name string, op func(s *mlx.Scope, a mlx.Array) mlx.Array, f func(x float64) float64) step {
	return step{name, func(_ *rand.Rand, s *mlx.Scope, a, _ mlx.Array, x, _ *plainArray) (mlx.Array, *plainArray) {
		return op(s, a), filled(x.shape, func(at []int) float64 { return f(x.at(at)) })
	}}
}

// along is an operation along one axis, which f maps to a list of any one length, or drops when keep is false.
func along(name string, op func(s *mlx.Scope, a mlx.Array, axis int) mlx.Array, drop bool, f func(line []float64) []float64) step {
	return step{name, func(r *rand.Rand, s *mlx.Scope, a, _ mlx.Array, x, _ *plainArray) (mlx.Array, *plainArray) {
		axis := r.IntN(5) - 2
		k, ok := place(axis, len(x.shape))
		if !ok {
			return op(s, a, axis), nil
		}
		line := func(at []int) []float64 {
			l := make([]float64, x.shape[k])
			i := slices.Clone(at)
			for j := range l {
				i[k] = j
				l[j] = x.at(i)
			}
			return l
		}
		first := f(line(make([]int, len(x.shape))))
		shape := slices.Clone(x.shape)
		shape[k] = len(first)
		out := filled(shape, func(at []int) float64 { return f(line(at))[at[k]] })
		if drop {
			out.shape = slices.Delete(out.shape, k, k+1)
		}
		return op(s, a, axis), out
	}}
}

func fold(f func(acc, v float64) float64) func([]float64) []float64 {
	return func(line []float64) []float64 {
		acc := line[0]
		for _, v := range line[1:] {
			acc = f(acc, v)
		}
		return []float64{acc}
	}
}

var steps = []step{
	two("Add", (*mlx.Scope).Add, func(x, y float64) float64 { return x + y }),
	two("Sub", (*mlx.Scope).Sub, func(x, y float64) float64 { return x - y }),
	two("Mul", (*mlx.Scope).Mul, func(x, y float64) float64 { return x * y }),
	two("Maximum", (*mlx.Scope).Maximum, math.Max),
	two("Minimum", (*mlx.Scope).Minimum, math.Min),
	two("Where", func(s *mlx.Scope, a, b mlx.Array) mlx.Array { return s.Where(s.Less(a, b), a, s.Neg(b)) }, func(x, y float64) float64 {
		if x < y {
			return x
		}
		return -y
	}),
	one("Neg", (*mlx.Scope).Neg, func(x float64) float64 { return -x }),
	one("Abs", (*mlx.Scope).Abs, math.Abs),
	one("Square", (*mlx.Scope).Square, func(x float64) float64 { return x * x }),
	one("ReLU", (*mlx.Scope).ReLU, func(x float64) float64 { return math.Max(x, 0) }),
	one("Sign", (*mlx.Scope).Sign, func(x float64) float64 {
		switch {
		case x > 0:
			return 1
		case x < 0:
			return -1
		}
		return 0
	}),
	along("Sum", func(s *mlx.Scope, a mlx.Array, k int) mlx.Array { return s.Sum(a, false, k) }, true, fold(func(a, v float64) float64 { return a + v })),
	along("Max", func(s *mlx.Scope, a mlx.Array, k int) mlx.Array { return s.Max(a, true, k) }, false, fold(math.Max)),
	along("Min", func(s *mlx.Scope, a mlx.Array, k int) mlx.Array { return s.Min(a, false, k) }, true, fold(math.Min)),
	along("Sort", func(s *mlx.Scope, a mlx.Array, k int) mlx.Array { return s.Sort(a, k) }, false, func(l []float64) []float64 {
		slices.Sort(l)
		return l
	}),
	along("Flip", func(s *mlx.Scope, a mlx.Array, k int) mlx.Array { return s.Flip(a, k) }, false, func(l []float64) []float64 {
		slices.Reverse(l)
		return l
	}),
	along("Roll", func(s *mlx.Scope, a mlx.Array, k int) mlx.Array { return s.Roll(a, 1, k) }, false, func(l []float64) []float64 {
		return append([]float64{l[len(l)-1]}, l[:len(l)-1]...)
	}),
	along("CumSum", func(s *mlx.Scope, a mlx.Array, k int) mlx.Array { return s.CumSum(a, k) }, false, func(l []float64) []float64 {
		for i := 1; i < len(l); i++ {
			l[i] += l[i-1]
		}
		return l
	}),
	along("Repeat", func(s *mlx.Scope, a mlx.Array, k int) mlx.Array { return s.Repeat(a, 2, k) }, false, func(l []float64) []float64 {
		var out []float64
		for _, v := range l {
			out = append(out, v, v)
		}
		return out
	}),
	along("SliceAxis", func(s *mlx.Scope, a mlx.Array, k int) mlx.Array { return s.SliceAxis(a, k, -1, math.MaxInt32) }, false, func(l []float64) []float64 {
		return l[len(l)-1:]
	}),
	{"Transpose", func(_ *rand.Rand, s *mlx.Scope, a, _ mlx.Array, x, _ *plainArray) (mlx.Array, *plainArray) {
		shape := slices.Clone(x.shape)
		slices.Reverse(shape)
		return s.Transpose(a), filled(shape, func(at []int) float64 {
			i := slices.Clone(at)
			slices.Reverse(i)
			return x.at(i)
		})
	}},
	{"Reshape", func(r *rand.Rand, s *mlx.Scope, a, _ mlx.Array, x, _ *plainArray) (mlx.Array, *plainArray) {
		n := r.IntN(4) + 1
		out := s.Reshape(a, n, -1)
		if len(x.data)%n != 0 {
			return out, nil
		}
		return out, &plainArray{[]int{n, len(x.data) / n}, x.data}
	}},
	{"ExpandDims", func(r *rand.Rand, s *mlx.Scope, a, _ mlx.Array, x, _ *plainArray) (mlx.Array, *plainArray) {
		k := r.IntN(4)
		out := s.ExpandDims(a, k)
		if k > len(x.shape) {
			return out, nil
		}
		return out, &plainArray{slices.Insert(slices.Clone(x.shape), k, 1), x.data}
	}},
	{"Concat", func(_ *rand.Rand, s *mlx.Scope, a, b mlx.Array, x, y *plainArray) (mlx.Array, *plainArray) {
		out := s.Concat(0, a, b)
		if len(x.shape) == 0 || len(x.shape) != len(y.shape) || !slices.Equal(x.shape[1:], y.shape[1:]) {
			return out, nil
		}
		shape := slices.Clone(x.shape)
		shape[0] += y.shape[0]
		return out, &plainArray{shape, slices.Concat(x.data, y.data)}
	}},
	{"MatMul", func(_ *rand.Rand, s *mlx.Scope, a, b mlx.Array, x, y *plainArray) (mlx.Array, *plainArray) {
		if len(x.shape) != 2 || len(y.shape) != 2 {
			return s.Neg(a), filled(x.shape, func(at []int) float64 { return -x.at(at) })
		}
		out := s.MatMul(a, b)
		if x.shape[1] != y.shape[0] {
			return out, nil
		}
		return out, filled([]int{x.shape[0], y.shape[1]}, func(at []int) float64 {
			sum := 0.0
			for k := range x.shape[1] {
				sum += x.at([]int{at[0], k}) * y.at([]int{k, at[1]})
			}
			return sum
		})
	}},
}

// Random programs of 30 operations give what plain Go gives, and errors where the shapes are not legal.
func FuzzPrograms(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed)
	}
	lib, err := mlx.Open(nil)
	require.NoError(f, err, "these tests need the MLX library: run make native")
	f.Cleanup(func() { _ = lib.Close() })
	f.Fuzz(func(t *testing.T, seed uint64) {
		require.NoError(t, lib.Do(t.Context(), func(keep *mlx.Scope) error {
			r := rand.New(rand.NewPCG(seed, 2))
			var arrays []mlx.Array
			var plain []*plainArray
			for _, shape := range [][]int{{}, {3}, {2, 3}, {3, 2}, {1, 3}, {2, 1, 3}, {4, 4}} {
				p := filled(shape, func([]int) float64 { return float64(r.IntN(9) - 4) })
				data := make([]float32, len(p.data))
				for i, v := range p.data {
					data[i] = float32(v)
				}
				arrays, plain = append(arrays, mlx.FromSlice(keep, data, shape...)), append(plain, p)
			}
			// Scalars made of one element need their shape.
			arrays[0] = keep.Reshape(arrays[0])
			for n := range 30 {
				st := steps[r.IntN(len(steps))]
				i, j := r.IntN(len(arrays)), r.IntN(len(arrays))
				s := lib.NewScope("step")
				got, want := st.run(r, s, arrays[i], arrays[j], plain[i], plain[j])
				what := fmt.Sprintf("step %d: %s of %v and %v", n, st.name, plain[i].shape, plain[j].shape)
				if want == nil {
					require.Error(t, s.Err(), what)
					require.NoError(t, keep.Err())
					s.Close()
					continue
				}
				require.NoError(t, s.Err(), what)
				v, err := mlx.ToSlice[float32](got)
				require.NoError(t, err, what)
				require.Equal(t, want.shape, got.Shape(), what)
				exact := true
				for k := range v {
					exact = exact && math.Abs(want.data[k]) < 1<<20
				}
				if exact {
					for k := range v {
						require.InDelta(t, want.data[k], v[k], 0, "%s: element %d of %v, want %v", what, k, v, want.data)
					}
					if len(v) <= 256 {
						arrays, plain = append(arrays, keep.Move(got)), append(plain, want)
					}
				}
				s.Close()
			}
			return keep.Err()
		}))
	})
}
