package mlx_test

import (
	"reflect"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// elsewhere are methods of Scope that make arrays of plain arguments and have no goldens, and where they are tested instead.
var elsewhere = map[string]string{
	"Move": "scope_test.go", "Ref": "scope_test.go",
	"Eig": "TestDecompositions: signs are free", "Eigh": "TestDecompositions: signs are free", "QR": "TestDecompositions: signs are free", "SVD": "TestDecompositions: signs are free",
	"RandomBits": "TestRandom: Python has one width only",
	"QQMM":       "TestGPUOnly", "GatherQQMM": "TestGPUOnly",
	"LoadNPY": "files_test.go",
}

// Every operation has goldens: a new one without fails here.
func TestGoldensCoverOperations(t *testing.T) {
	g := loadGoldens(t)
	good := map[string]bool{}
	for _, raw := range g.Cases {
		if c := g.parse(t, raw); !c.fails {
			good[c.method] = true
		}
	}
	var missing []string
	s := reflect.TypeFor[*mlx.Scope]()
	array, list := reflect.TypeFor[mlx.Array](), reflect.TypeFor[[]mlx.Array]()
	for m := range s.Methods() {
		gives, plain, first := false, true, true
		for in := range m.Type.Ins() {
			plain, first = plain && (first || plainType(in)), false
		}
		for r := range m.Type.Outs() {
			gives = gives || r == array || r == list || r == reflect.TypeFor[mlx.Quantized]()
		}
		if gives && plain && !good[m.Name] && elsewhere[m.Name] == "" {
			missing = append(missing, m.Name)
		}
	}
	sort.Strings(missing)
	require.Empty(t, missing, "methods without goldens")
	for name := range elsewhere {
		_, ok := s.MethodByName(name)
		require.True(t, ok, name)
		require.False(t, good[name], "%s has goldens", name)
	}
}

// Factors multiply to the matrix again.
func TestDecompositions(t *testing.T) {
	for _, dt := range []mlx.Dtype{mlx.Float32, mlx.Float64} {
		do(t, func(s *mlx.Scope) {
			if s.Library().Device() != mlx.DeviceCPU {
				t.Skip("decompositions run on CPUs only")
			}
			close := func(got, want mlx.Array, what string) {
				t.Helper()
				ok, err := mlx.Item[bool](s.AllClose(got, want, 1e-4, 1e-4, false))
				require.NoError(t, err, what)
				require.NoError(t, s.Err(), what)
				require.True(t, ok, "%s: %v\nwant %v", what, got, want)
			}
			a := s.AsType(s.Normal(s.Key(3), 0, 1, mlx.Float32, 2, 4, 3), dt)
			q, r := s.QR(a)
			close(s.MatMul(q, r), a, "q r")
			close(s.MatMul(s.SwapAxes(q, 1, 2), q), s.BroadcastTo(s.Identity(3, dt), 2, 3, 3), "qᵀ q")
			close(s.Tril(r, -1), s.ZerosLike(r), "below r's diagonal")

			u, v, vt := s.SVD(a)
			require.Equal(t, []int{2, 4, 4}, u.Shape())
			require.Equal(t, []int{2, 3}, v.Shape())
			require.Equal(t, []int{2, 3, 3}, vt.Shape())
			u3 := s.SliceAxis(u, 2, 0, 3)
			close(s.MatMul(s.Mul(u3, s.ExpandDims(v, 1)), vt), a, "u v vᵀ")
			close(s.SingularValues(a), v, "singular values")

			b := s.MatMul(s.SwapAxes(a, 1, 2), a)
			for _, upper := range []bool{false, true} {
				w, x := s.Eigh(b, upper)
				close(s.MatMul(b, x), s.Mul(x, s.ExpandDims(w, 1)), "b x = x w")
				l := s.Cholesky(b, upper)
				lt := s.SwapAxes(l, 1, 2)
				if upper {
					l, lt = lt, l
				}
				close(s.MatMul(l, lt), b, "cholesky")
			}
			c := s.SliceAxis(a, 1, 0, 3)
			w, x := s.Eig(c)
			require.Equal(t, mlx.Complex64, w.Dtype())
			close(s.MatMul(s.AsType(c, mlx.Complex64), x), s.Mul(x, s.ExpandDims(w, 1)), "c x = x w")
			p, lo, up := s.LU(s.Squeeze(s.SliceAxis(c, 0, 0, 1), 0))
			close(s.MatMul(lo, up), s.Take(s.Squeeze(s.SliceAxis(c, 0, 0, 1), 0), p, 0), "l u")
		})
	}
}

// What CPUs lack is an error there.
func TestGPUOnly(t *testing.T) {
	lib := open(t)
	if lib.Device() != mlx.DeviceCPU {
		t.Skip("for CPUs")
	}
	for name, f := range map[string]func(s *mlx.Scope, x mlx.Array, q mlx.Quantized) mlx.Array{
		"QQMM": func(s *mlx.Scope, x mlx.Array, q mlx.Quantized) mlx.Array { return s.QQMM(x, q) },
		"GatherQQMM": func(s *mlx.Scope, x mlx.Array, q mlx.Quantized) mlx.Array {
			return s.GatherQQMM(x, q, mlx.GatherOptions{})
		},
	} {
		err := lib.Do(t.Context(), func(s *mlx.Scope) error {
			q := s.Quantize(s.Ones(mlx.Float32, 2, 64, 64), mlx.QuantizeOptions{Mode: mlx.NVFP4})
			if name == "QQMM" {
				q = s.Quantize(s.Ones(mlx.Float32, 64, 64), mlx.QuantizeOptions{Mode: mlx.NVFP4})
			}
			return s.Eval(f(s, s.Ones(mlx.Float32, 2, 64), q))
		})
		require.Error(t, err, name)
		require.True(t, strings.HasPrefix(err.Error(), "mlx: "), err)
	}
}

// Operations with many arguments cost no Go memory either.
func TestNoAllocations(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		w := s.Quantize(s.Ones(mlx.Float32, 8, 64), mlx.QuantizeOptions{})
		x, key := s.Ones(mlx.Float32, 1, 64), s.Key(1)
		low, high := s.Scalar(0, mlx.Float32), s.Scalar(1, mlx.Float32)
		for name, f := range map[string]func() mlx.Array{
			"QuantizedMatMul": func() mlx.Array { return s.QuantizedMatMul(x, w, true) },
			"Uniform":         func() mlx.Array { return s.Uniform(key, low, high, mlx.Float32, 8) },
			"CumSum":          func() mlx.Array { return s.CumSum(x, 1) },
			"Var":             func() mlx.Array { return s.Var(x, false, 0, 1) },
			"GatherMM":        func() mlx.Array { return s.GatherMM(x, s.Transpose(x), mlx.GatherOptions{}) },
		} {
			n := testing.AllocsPerRun(100, func() { s.Free(f()) })
			require.NoError(t, s.Err(), name)
			require.Zero(t, n, name)
		}
	})
}
