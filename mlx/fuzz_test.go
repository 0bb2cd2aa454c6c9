package mlx_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// unchecked are operations that trust the values of their indices, as their documentation says.
var unchecked = map[string]bool{
	"Take": true, "TakeAlong": true, "SliceDynamic": true, "SliceUpdateDynamic": true, "Gather": true, "Scatter": true, "ScatterAdd": true,
	"ScatterMax": true, "ScatterMin": true, "ScatterProd": true, "PutAlong": true, "ScatterAddAlong": true, "MaskedScatter": true,
	"GatherMM": true, "GatherQMM": true, "GatherQQMM": true, "CrossEntropy": true,
}

// anyOperation lists the methods of Scope that make arrays out of plain arguments.
func anyOperation() []reflect.Method {
	var list []reflect.Method
	array, many, quantized := reflect.TypeFor[mlx.Array](), reflect.TypeFor[[]mlx.Array](), reflect.TypeFor[mlx.Quantized]()
	for m := range reflect.TypeFor[*mlx.Scope]().Methods() {
		ok := m.Type.NumOut() > 0 && !unchecked[m.Name] && m.Name != "Move"
		for r := range m.Type.Outs() {
			ok = ok && (r == array || r == many || r == quantized)
		}
		first := true
		for in := range m.Type.Ins() {
			if first {
				first = false
				continue
			}
			ok = ok && plainType(in)
		}
		if ok {
			list = append(list, m)
		}
	}
	return list
}

func plainType(t reflect.Type) bool {
	switch {
	case t == arrayType || t == dtypeType:
		return true
	case t.Kind() == reflect.Slice:
		return plainType(t.Elem())
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			if !plainType(t.Field(i).Type) {
				return false
			}
		}
		return true
	}
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Uint8, reflect.Uint64, reflect.Float32, reflect.Float64, reflect.String:
		return true
	}
	return false
}

type fuzzer struct {
	r    *rand.Rand
	keep *mlx.Scope
	pool []mlx.Array
}

var einsums = []string{"ij,jk->ik", "ij->ji", "ii->i", "i,i->", "...i->...", "ij,kl->", "", "ij,", "a->aa", "->", "ijk,ikl->ijl", "?"}

func (f *fuzzer) int() int {
	switch f.r.IntN(40) {
	case 0:
		return math.MaxInt
	case 1:
		return math.MinInt32
	case 2:
		return math.MaxInt32
	case 3:
		return 32
	}
	return f.r.IntN(7) - 2
}

// value makes a random value of type t.
func (f *fuzzer) value(t reflect.Type) reflect.Value {
	v := reflect.New(t).Elem()
	switch {
	case t == arrayType:
		if f.r.IntN(50) != 0 {
			v.Set(reflect.ValueOf(f.pool[f.r.IntN(len(f.pool))]))
		}
		return v
	case t == dtypeType:
		return reflect.ValueOf(mlx.Dtype(f.r.IntN(15)))
	case t.Kind() == reflect.Slice:
		if f.r.IntN(10) == 0 {
			return v
		}
		n := f.r.IntN(4)
		if f.r.IntN(40) == 0 {
			n = 9
		}
		for range n {
			v = reflect.Append(v, f.value(t.Elem()))
		}
		return v
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			if f.r.IntN(3) != 0 {
				v.Field(i).Set(f.value(t.Field(i).Type))
			}
		}
		return v
	}
	switch t.Kind() {
	case reflect.Bool:
		v.SetBool(f.r.IntN(2) == 0)
	case reflect.Int:
		v.SetInt(int64(f.int()))
	case reflect.Uint8:
		v.SetUint(uint64(f.r.IntN(6)))
	case reflect.Uint64:
		v.SetUint(f.r.Uint64())
	case reflect.Float32, reflect.Float64:
		v.SetFloat([]float64{0, 1, -1, 0.5, 2, 3e9, -1e300, math.Inf(1), math.Inf(-1), math.NaN()}[f.r.IntN(10)])
	case reflect.String:
		v.SetString(einsums[f.r.IntN(len(einsums))])
	}
	return v
}

// seed fills the pool with arrays of all types and some shapes, empty and strided ones among them.
func (f *fuzzer) seed(cpu bool) {
	s := f.keep
	shapes := [][]int{{}, {1}, {3}, {0}, {2, 3}, {3, 3}, {3, 0}, {0, 3}, {1, 4, 2}, {2, 64}, {2, 3, 3}, {1, 5, 4, 2}, {2, 2, 1, 2, 2}}
	for range 24 {
		dt := mlx.Dtype(f.r.IntN(14))
		if f.r.IntN(2) == 0 {
			dt = mlx.Float32
		}
		if dt == mlx.Float64 && !cpu {
			dt = mlx.Float32
		}
		shape := shapes[f.r.IntN(len(shapes))]
		n := 1
		for _, d := range shape {
			n *= d
		}
		data := make([]float32, n)
		for i := range data {
			data[i] = float32(f.r.IntN(9)) / 2
			if dt.IsFloat() || dt == mlx.Complex64 {
				data[i] -= 2
			}
		}
		a := s.AsType(mlx.FromSlice(s, data, shape...), dt)
		if len(shape) > 1 && f.r.IntN(3) == 0 {
			a = s.Transpose(a)
		}
		f.pool = append(f.pool, a)
	}
	f.pool = append(f.pool, s.Key(f.r.Uint64()))
	q := s.Quantize(s.Ones(mlx.Float32, 4, 64), mlx.QuantizeOptions{})
	f.pool = append(f.pool, q.W, q.Scales, q.Biases)
}

const mostElements = 1 << 12

// program runs steps random operations. Each may fail with an error; none may end the process.
func (f *fuzzer) program(lib *mlx.Library, methods []reflect.Method, steps int, log func(string)) error {
	for range steps {
		m := methods[f.r.IntN(len(methods))]
		in := make([]reflect.Value, 0, 8)
		t := m.Type
		for i := 1; i < t.NumIn(); i++ {
			v := f.value(t.In(i))
			if t.IsVariadic() && i == t.NumIn()-1 {
				for k := range v.Len() {
					in = append(in, v.Index(k))
				}
				continue
			}
			in = append(in, v)
		}
		if log != nil {
			var b strings.Builder
			fmt.Fprintf(&b, "%s(", m.Name)
			for _, v := range in {
				if a, ok := v.Interface().(mlx.Array); ok {
					fmt.Fprintf(&b, " %v%v", a.Dtype(), a.Shape())
				} else {
					fmt.Fprintf(&b, " %+v", v.Interface())
				}
			}
			log(b.String() + " )")
		}
		if err := f.step(lib, m, in); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	return nil
}

func (f *fuzzer) step(lib *mlx.Library, m reflect.Method, in []reflect.Value) error {
	s := lib.NewScope("step")
	defer s.Close()
	var out []mlx.Array
	for _, r := range reflect.ValueOf(s).MethodByName(m.Name).Call(in) {
		switch r := r.Interface().(type) {
		case mlx.Array:
			out = append(out, r)
		case []mlx.Array:
			out = append(out, r...)
		case mlx.Quantized:
			out = append(out, r.W, r.Scales)
		}
	}
	for _, a := range out {
		if !a.Valid() {
			if s.Err() == nil {
				return fmt.Errorf("a zero Array without an error")
			}
			continue
		}
		if a.Size() > mostElements {
			continue // never evaluated
		}
		if s.Err() == nil && s.Eval(a) == nil && s.Err() == nil && len(f.pool) < 60 {
			f.pool = append(f.pool, f.keep.Move(a))
		}
	}
	if err := s.Err(); err != nil && !strings.HasPrefix(err.Error(), "mlx: ") {
		return fmt.Errorf("the error names no operation: %w", err)
	}
	return nil
}

// Random programs of 30 random operations on random arrays never end the process.
func FuzzOperations(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed)
	}
	lib, err := mlx.Open(nil)
	require.NoError(f, err, "these tests need the MLX library: run make native")
	f.Cleanup(func() { _ = lib.Close() })
	methods := anyOperation()
	require.Greater(f, len(methods), 200)
	var log func(string)
	if os.Getenv("GODFLASH_FUZZ_LOG") != "" {
		log = func(text string) { fmt.Fprintln(os.Stderr, text) }
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		err := lib.Do(context.Background(), func(s *mlx.Scope) error {
			z := &fuzzer{r: rand.New(rand.NewPCG(seed, 1)), keep: s}
			z.seed(lib.Device() == mlx.DeviceCPU)
			if err := s.Err(); err != nil {
				return err
			}
			return z.program(lib, methods, 30, log)
		})
		require.NoError(t, err)
	})
}
