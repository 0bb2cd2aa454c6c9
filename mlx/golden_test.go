package mlx_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// goldens are the results of MLX's Python package; testdata/generate.py writes
// them and explains the format.
type goldens struct {
	MLX    string            `json:"mlx"`
	Arrays []json.RawMessage `json:"arrays"`
	Cases  []json.RawMessage `json:"cases"`
}

func loadGoldens(t testing.TB) *goldens {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "goldens.json"))
	require.NoError(t, err)
	g := new(goldens)
	require.NoError(t, json.Unmarshal(text, g))
	return g
}

type goldenCase struct {
	method string
	args   []json.RawMessage
	out    []int
	fails  bool
}

func (g *goldens) parse(t testing.TB, raw json.RawMessage) goldenCase {
	t.Helper()
	var parts []json.RawMessage
	var c goldenCase
	require.NoError(t, json.Unmarshal(raw, &parts))
	require.NoError(t, json.Unmarshal(parts[0], &c.method))
	require.NoError(t, json.Unmarshal(parts[1], &c.args))
	if string(parts[2]) == `"error"` {
		c.fails = true
	} else {
		require.NoError(t, json.Unmarshal(parts[2], &c.out))
	}
	return c
}

var dtypeNames = func() map[string]mlx.Dtype {
	m := map[string]mlx.Dtype{}
	for d := mlx.Bool; d <= mlx.Complex64; d++ {
		m[d.String()] = d
	}
	return m
}()

// array makes array i of the file in s.
func (g *goldens) array(s *mlx.Scope, i int) (mlx.Array, error) {
	var parts []json.RawMessage
	if err := json.Unmarshal(g.Arrays[i], &parts); err != nil {
		return mlx.Array{}, err
	}
	if len(parts) == 2 {
		var base int
		var how string
		if err := json.Unmarshal(parts[0], &base); err != nil {
			return mlx.Array{}, err
		}
		if err := json.Unmarshal(parts[1], &how); err != nil {
			return mlx.Array{}, err
		}
		a, err := g.array(s, base)
		if err != nil {
			return a, err
		}
		n := a.NDim()
		start, stop, step := make([]int, n), a.Shape(), make([]int, n)
		for k := range step {
			step[k] = 1
		}
		switch how {
		case "T":
			return s.Transpose(a), nil
		case "step":
			step[0] = 2
			return s.SliceStrided(a, start, stop, step), nil
		case "back":
			start[0], stop[0], step[0] = stop[0]-1, -stop[0]-1, -1
			return s.SliceStrided(a, start, stop, step), nil
		case "hole":
			return s.Transpose(s.SliceAxis(a, 1, 2, 2), 0, 2, 1), nil
		case "stretch":
			return s.BroadcastTo(a, 3, 1), nil
		case "wide":
			return s.BroadcastTo(a, append([]int{2}, a.Shape()...)...), nil
		}
		return a, fmt.Errorf("view %q", how)
	}
	var name, text string
	var shape []int
	for k, v := range []any{&name, &shape, &text} {
		if err := json.Unmarshal(parts[k], v); err != nil {
			return mlx.Array{}, err
		}
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return mlx.Array{}, err
	}
	bytes := mlx.FromSlice(s, data)
	if len(data) == 0 {
		return s.Zeros(dtypeNames[name], shape...), nil
	}
	if name == "bool" {
		return s.Reshape(s.AsType(bytes, mlx.Bool), shape...), nil
	}
	return s.Reshape(s.View(bytes, dtypeNames[name]), shape...), nil
}

var (
	arrayType = reflect.TypeFor[mlx.Array]()
	dtypeType = reflect.TypeFor[mlx.Dtype]()
)

// decode turns an argument of the file into a value of type t.
func (g *goldens) decode(s *mlx.Scope, raw json.RawMessage, t reflect.Type) (reflect.Value, error) {
	v := reflect.New(t).Elem()
	if string(raw) == "null" {
		return v, nil
	}
	switch {
	case t == arrayType:
		var ref struct{ A int }
		if err := json.Unmarshal(raw, &ref); err != nil {
			return v, err
		}
		a, err := g.array(s, ref.A)
		return reflect.ValueOf(a), err
	case t == dtypeType:
		var ref struct{ D string }
		if err := json.Unmarshal(raw, &ref); err != nil {
			return v, err
		}
		d, ok := dtypeNames[ref.D]
		if !ok {
			return v, fmt.Errorf("dtype %q", ref.D)
		}
		return reflect.ValueOf(d), nil
	case t.Kind() == reflect.Struct:
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(raw, &fields); err != nil {
			return v, err
		}
		for name, part := range fields {
			f := v.FieldByName(name)
			if !f.IsValid() {
				return v, fmt.Errorf("%v has no field %s", t, name)
			}
			x, err := g.decode(s, part, f.Type())
			if err != nil {
				return v, err
			}
			f.Set(x)
		}
		return v, nil
	case t.Kind() == reflect.Slice:
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return v, err
		}
		v = reflect.MakeSlice(t, 0, len(list))
		for _, part := range list {
			x, err := g.decode(s, part, t.Elem())
			if err != nil {
				return v, err
			}
			v = reflect.Append(v, x)
		}
		return v, nil
	case raw[0] == '"' && (t.Kind() == reflect.Float64 || t.Kind() == reflect.Float32):
		v.SetFloat(map[string]float64{`"inf"`: math.Inf(1), `"-inf"`: math.Inf(-1), `"nan"`: math.NaN()}[string(raw)])
		return v, nil
	}
	err := json.Unmarshal(raw, v.Addr().Interface())
	return v, err
}

// call runs the case on s and gives the arrays of its results.
func (g *goldens) call(s *mlx.Scope, c goldenCase) ([]mlx.Array, error) {
	m := reflect.ValueOf(s).MethodByName(c.method)
	if !m.IsValid() {
		return nil, fmt.Errorf("no method %s", c.method)
	}
	mt := m.Type()
	fixed := mt.NumIn()
	if mt.IsVariadic() {
		fixed--
	}
	if len(c.args) < fixed || len(c.args) > fixed && !mt.IsVariadic() {
		return nil, fmt.Errorf("%s takes %d arguments, the case has %d", c.method, fixed, len(c.args))
	}
	in := make([]reflect.Value, len(c.args))
	for i, raw := range c.args {
		t := mt.In(min(i, mt.NumIn()-1))
		if i >= fixed {
			t = t.Elem()
		}
		x, err := g.decode(s, raw, t)
		if err != nil {
			return nil, fmt.Errorf("argument %d: %w", i, err)
		}
		in[i] = x
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	var out []mlx.Array
	for _, r := range m.Call(in) {
		switch r := r.Interface().(type) {
		case mlx.Array:
			out = append(out, r)
		case []mlx.Array:
			out = append(out, r...)
		case mlx.Quantized:
			out = append(out, r.W, r.Scales)
			if r.Biases.Valid() {
				out = append(out, r.Biases)
			}
		}
	}
	return out, nil
}

// bits gives the elements' bytes.
func bits(s *mlx.Scope, a mlx.Array) ([]byte, error) {
	if a.Size() == 0 {
		return []byte{}, s.Eval(a)
	}
	b := s.Flatten(a)
	if a.Dtype() == mlx.Bool {
		b = s.AsType(b, mlx.Uint8)
	} else {
		b = s.View(s.Contiguous(b), mlx.Uint8)
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return mlx.ToSlice[uint8](b)
}

// loose are methods that add up many products or pass through libraries that differ between machines.
var loose = map[string]float64{"Det": 10, "Mish": 1e5, "Inv": 10, "PInv": 10, "Solve": 10, "SingularValues": 10, "Gumbel": 10, "Normal": 10, "Laplace": 10}

// agree compares results: shapes, types and integers exactly, floating-point numbers as their type allows.
func agree(s *mlx.Scope, c goldenCase, got, want mlx.Array) error {
	if got.Dtype() != want.Dtype() || fmt.Sprint(got.Shape()) != fmt.Sprint(want.Shape()) {
		return fmt.Errorf("%v%v, want %v%v", got.Dtype(), got.Shape(), want.Dtype(), want.Shape())
	}
	x, err := bits(s, got)
	if err != nil {
		return err
	}
	y, err := bits(s, want)
	if err != nil {
		return err
	}
	if bytes.Equal(x, y) {
		return nil
	}
	tolerance := map[mlx.Dtype]float64{mlx.Float16: 4e-3, mlx.BFloat16: 3e-2, mlx.Float32: 1e-5, mlx.Float64: 1e-12, mlx.Complex64: 1e-5}[got.Dtype()]
	if tolerance == 0 {
		return fmt.Errorf("%v, want %v", got, want)
	}
	if f := loose[c.method]; f != 0 {
		tolerance *= f
	}
	if s.Library().Device() == mlx.DeviceGPU {
		tolerance = max(tolerance, 1e-3) // fast functions, and TF32 in products
	}
	ok, err := mlx.Item[bool](s.AllClose(got, want, tolerance, tolerance, true))
	if err == nil {
		err = s.Err()
	}
	if err == nil && !ok {
		err = fmt.Errorf("%v, want %v", got, want)
	}
	return err
}

// check runs one case in a scope of its own.
func (g *goldens) check(lib *mlx.Library, c goldenCase) error {
	s := lib.NewScope("case")
	defer s.Close()
	got, err := g.call(s, c)
	if err != nil {
		return err
	}
	if c.fails {
		if s.Err() == nil {
			for _, a := range got {
				if err := s.Eval(a); err != nil {
					break
				}
			}
		}
		if err := s.Err(); err == nil {
			return fmt.Errorf("no error, but %v", got)
		} else if text := err.Error(); !strings.HasPrefix(text, "mlx: ") {
			return fmt.Errorf("the error names no operation: %w", err)
		}
		return nil
	}
	if err := s.Err(); err != nil {
		return err
	}
	if len(got) != len(c.out) {
		return fmt.Errorf("%d results, want %d", len(got), len(c.out))
	}
	for i, a := range got {
		want, err := g.array(s, c.out[i])
		if err != nil {
			return err
		}
		if err := agree(s, c, a, want); err != nil {
			return fmt.Errorf("result %d: %w", i, err)
		}
	}
	return nil
}

// cpuOnly are operations that MLX has on CPUs only, and one that refuses more there than on GPUs.
var cpuOnly = map[string]bool{
	"Inv": true, "PInv": true, "TriInv": true, "Cholesky": true, "CholeskyInv": true, "Solve": true, "SolveTriangular": true, "Det": true, "SlogDet": true,
	"QR": true, "Eig": true, "EigVals": true, "Eigh": true, "EigValsh": true, "LU": true, "LUFactor": true, "SVD": true, "SingularValues": true,
	"NormNuclear": true, "MultivariateNormal": true, "GatherMM": true,
}

var references = regexp.MustCompile(`"a":(\d+)`)

// onCPU says whether a case is for CPUs only: GPUs have no float64.
func (g *goldens) onCPU(raw json.RawMessage, c goldenCase) bool {
	if cpuOnly[c.method] || strings.Contains(string(raw), `"float64"`) {
		return true
	}
	list := c.out
	for _, m := range references.FindAllStringSubmatch(string(raw), -1) {
		i, _ := strconv.Atoi(m[1])
		list = append(list, i)
	}
	for _, i := range list {
		for !strings.HasPrefix(string(g.Arrays[i]), `["`) { // a view
			_, _ = fmt.Sscanf(string(g.Arrays[i]), "[%d", &i)
		}
		if strings.HasPrefix(string(g.Arrays[i]), `["float64"`) {
			return true
		}
	}
	return false
}

// Every operation gives what MLX's Python package gives, in every type, and refuses what it refuses.
func TestGoldens(t *testing.T) {
	g := loadGoldens(t)
	lib := open(t)
	failed := map[string]int{}
	gpu, skipped := lib.Device() == mlx.DeviceGPU, 0
	// CUDA compiles a kernel for each operation and type, which takes minutes:
	// GODFLASH_GOLDENS_FROM begins at that case, GODFLASH_GOLDENS_TO ends before it.
	first, _ := strconv.Atoi(os.Getenv("GODFLASH_GOLDENS_FROM"))
	end := len(g.Cases)
	if to, err := strconv.Atoi(os.Getenv("GODFLASH_GOLDENS_TO")); err == nil {
		end = min(end, to)
	}
	require.NoError(t, lib.Do(t.Context(), func(*mlx.Scope) error {
		for i, raw := range g.Cases[:end] {
			if i < first {
				continue
			}
			c := g.parse(t, raw)
			if gpu && g.onCPU(raw, c) {
				skipped++
				continue
			}
			if err := g.check(lib, c); err != nil {
				if failed[c.method]++; failed[c.method] <= 5 {
					t.Errorf("case %d %s: %v", i, raw, err)
				}
			}
		}
		return nil
	}))
	t.Logf("%d cases from %d on, %d of them for CPUs only and left out here", end-first, first, skipped)
	if len(failed) > 0 {
		t.Errorf("failures per method: %v", failed)
	}
}
