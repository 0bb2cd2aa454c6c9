package mlx_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

var allTypes = []mlx.Dtype{
	mlx.Bool, mlx.Uint8, mlx.Uint16, mlx.Uint32, mlx.Uint64, mlx.Int8, mlx.Int16, mlx.Int32, mlx.Int64,
	mlx.Float16, mlx.Float32, mlx.BFloat16, mlx.Complex64,
}

func TestNPYRoundTrip(t *testing.T) {
	dir := t.TempDir()
	do(t, func(s *mlx.Scope) {
		for _, dt := range allTypes {
			for _, shape := range [][]int{{}, {3}, {1}, {2, 3}, {2, 1, 2}, {0, 2}, {0}} {
				a := s.AsType(s.Full(3, mlx.Float32, shape...), dt)
				path := filepath.Join(dir, "a 100%d.npy")
				require.NoError(t, s.SaveNPY(path, a), "%v %v", dt, shape)
				var buf bytes.Buffer
				require.NoError(t, s.SaveNPYTo(&buf, a))
				onDisk, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Equal(t, onDisk, buf.Bytes())
				for _, b := range []mlx.Array{s.LoadNPY(path), s.LoadNPYFrom(iotest.OneByteReader(&buf))} {
					require.NoError(t, s.Err(), "%v %v", dt, shape)
					require.Equal(t, dt, b.Dtype())
					require.Equal(t, a.Shape(), b.Shape())
					require.True(t, item(t, s, s.ArrayEqual(a, b)), "%v", b)
				}
			}
		}
		// Column by column, as NumPy may write and MLX reads.
		a := s.Transpose(s.Reshape(s.Arange(0, 6, 1, mlx.Int32), 2, 3))
		var buf bytes.Buffer
		require.NoError(t, s.SaveNPYTo(&buf, a))
		same(t, s.LoadNPYFrom(&buf), []int32{0, 3, 1, 4, 2, 5})
	})
	left, err := filepath.Glob(filepath.Join(dir, ".saving*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// npy makes a file of version 1 with the given header text.
func npy(header string, data int) []byte {
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	return append(append(b, header...), make([]byte, data)...)
}

func TestNPYErrors(t *testing.T) {
	lib := open(t)
	const good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n"
	dir := t.TempDir()
	for says, data := range map[string][]byte{
		"it does not begin as one":            []byte("nothing"),
		"is no NPY file":                      {},
		"NPY version 9 is not known":          []byte("\x93NUMPY\x09\x00\x00\x00\x00\x00"),
		"the header needs 70 bytes":           npy(good, 24)[:30],
		"the data needs 24 bytes, the file":   npy(good, 23),
		"a header that MLX does not read":     npy("{'shape': (2, 3), 'descr': '<f4', 'fortran_order': False}\n", 24),
		"elements of type O8 are not known":   npy("{'descr': '|O8', 'fortran_order': False, 'shape': (2,), }\n", 24),
		"a length of 99999999999 is not":      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999,), }\n", 24),
		"a length of 2147483647 is not":       npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2147483647, 2147483647, 2147483647), }\n", 24),
		"9 dimensions":                        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1), }\n", 24),
		"the header needs 4294967307 bytes":   []byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"),
		"MLX does not read: \"{'descr': '<c1": npy("{'descr': '<c16', 'fortran_order': False, 'shape': (2,), }\n", 64),
	} {
		path := filepath.Join(dir, "x.npy")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		for _, f := range []func(s *mlx.Scope){
			func(s *mlx.Scope) { s.LoadNPY(path) },
			func(s *mlx.Scope) { s.LoadNPYFrom(bytes.NewReader(data)) },
		} {
			err := lib.Do(t.Context(), func(s *mlx.Scope) error { f(s); return nil })
			require.ErrorContains(t, err, "mlx: LoadNPY")
			if says != "the header needs 4294967307 bytes" {
				require.ErrorContains(t, err, says)
			}
		}
	}
	boom := errors.New("boom")
	for want, f := range map[error]func(s *mlx.Scope){
		fs.ErrNotExist:   func(s *mlx.Scope) { s.LoadNPY(filepath.Join(dir, "no.npy")) },
		boom:             func(s *mlx.Scope) { s.LoadNPYFrom(iotest.ErrReader(boom)) },
		mlx.ErrZeroArray: func(s *mlx.Scope) { _ = s.SaveNPY(filepath.Join(dir, "z.npy"), mlx.Array{}) },
	} {
		require.ErrorIs(t, lib.Do(t.Context(), func(s *mlx.Scope) error { f(s); return nil }), want)
	}
	err := lib.Do(t.Context(), func(s *mlx.Scope) error { return s.SaveNPY(filepath.Join(dir, "no", "z.npy"), s.Ones(mlx.Int8, 1)) })
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestSafetensorsInMemory(t *testing.T) {
	lib := open(t)
	var buf bytes.Buffer
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		require.NoError(t, s.SaveSafetensorsTo(&buf, map[string]mlx.Array{"a": ints(s, 1, 2), "b": s.Full(2, mlx.BFloat16, 2, 2)}, map[string]string{"k": "v"}))
		arrays, metadata, err := s.LoadSafetensorsFrom(bytes.NewReader(buf.Bytes()))
		require.NoError(t, err)
		require.Equal(t, map[string]string{"k": "v"}, metadata)
		require.Len(t, arrays, 2)
		same(t, arrays["a"], []int32{1, 2})
		require.Equal(t, mlx.BFloat16, arrays["b"].Dtype())
		near(t, []float64{2, 2, 2, 2}, values(t, s, arrays["b"]), "b")
		return nil
	}))
	boom := errors.New("boom")
	require.ErrorIs(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		_, _, err := s.LoadSafetensorsFrom(iotest.ErrReader(boom))
		return err
	}), boom)
	require.ErrorContains(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		_, _, err := s.LoadSafetensorsFrom(bytes.NewReader(buf.Bytes()[:buf.Len()-1]))
		return err
	}), "LoadSafetensorsFrom(): safetensors: memory: ")
}

func ggufArrays(s *mlx.Scope) (map[string]mlx.Array, map[string]any) {
	arrays := map[string]mlx.Array{"t": s.Transpose(s.Reshape(s.Arange(0, 6, 1, mlx.Float32), 2, 3))}
	for _, dt := range []mlx.Dtype{mlx.Float32, mlx.Float16, mlx.Int8, mlx.Int16, mlx.Int32} {
		arrays[dt.String()] = s.Full(3, dt, 2, 1, 3)
	}
	return arrays, map[string]any{
		"name": "a name", "list": []string{"x", "", "z"},
		"numbers": mlx.FromSlice(s, []float32{1, 2}), "one": s.Scalar(7, mlx.Uint32),
	}
}

func TestGGUFRoundTrip(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		path := filepath.Join(t.TempDir(), "100%s.gguf")
		arrays, metadata := ggufArrays(s)
		require.NoError(t, s.SaveGGUF(path, arrays, metadata))
		got, meta, err := s.LoadGGUF(path)
		require.NoError(t, err)
		require.Len(t, got, len(arrays))
		for name, a := range arrays {
			require.Equal(t, a.Dtype(), got[name].Dtype(), name)
			require.True(t, item(t, s, s.ArrayEqual(a, got[name])), name)
		}
		require.Len(t, meta, 4)
		require.Equal(t, "a name", meta["name"])
		require.Equal(t, []string{"x", "", "z"}, meta["list"])
		near(t, []float64{1, 2}, values(t, s, meta["numbers"].(mlx.Array)), "numbers")
		near(t, []float64{7}, values(t, s, meta["one"].(mlx.Array)), "one")
	})
}

func TestGGUFErrors(t *testing.T) {
	lib := open(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "x.gguf")
	one := func(s *mlx.Scope) map[string]mlx.Array { return map[string]mlx.Array{"a": s.Ones(mlx.Float32, 2)} }
	for says, f := range map[string]func(s *mlx.Scope) error{
		`array "a": zero Array`: func(s *mlx.Scope) error { return s.SaveGGUF(path, map[string]mlx.Array{"a": {}}, nil) },
		`array "a": it is empty`: func(s *mlx.Scope) error {
			return s.SaveGGUF(path, map[string]mlx.Array{"a": s.Zeros(mlx.Float32, 0)}, nil)
		},
		`array "a" is uint32`: func(s *mlx.Scope) error {
			return s.SaveGGUF(path, map[string]mlx.Array{"a": s.Zeros(mlx.Uint32, 1)}, nil)
		},
		`array "a" has 0 dimensions`: func(s *mlx.Scope) error {
			return s.SaveGGUF(path, map[string]mlx.Array{"a": s.Zeros(mlx.Float32)}, nil)
		},
		`array "%n"`: func(s *mlx.Scope) error {
			return s.SaveGGUF(path, map[string]mlx.Array{"%n": s.Zeros(mlx.Float32, 1)}, nil)
		},
		`metadata "k" is a int`: func(s *mlx.Scope) error { return s.SaveGGUF(path, one(s), map[string]any{"k": 1}) },
		`metadata "k" is float32[1,1]`: func(s *mlx.Scope) error {
			return s.SaveGGUF(path, one(s), map[string]any{"k": s.Ones(mlx.Float32, 1, 1)})
		},
		`metadata "k" is empty`:     func(s *mlx.Scope) error { return s.SaveGGUF(path, one(s), map[string]any{"k": []string{}}) },
		"no such file or directory": func(s *mlx.Scope) error { return s.SaveGGUF(filepath.Join(dir, "no", "x.gguf"), one(s), nil) },
		"LoadGGUF(": func(s *mlx.Scope) error {
			_, _, err := s.LoadGGUF(filepath.Join(dir, "no.gguf"))
			require.ErrorIs(t, err, fs.ErrNotExist)
			return err
		},
	} {
		require.ErrorContains(t, lib.Do(t.Context(), f), says)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// gguf makes a file of one tensor of two float32 that begins offset bytes into the
// data, of which it has so many.
func gguf(offset uint64, data int) []byte {
	b := []byte("GGUF\x03\x00\x00\x00")
	u64 := func(v uint64) { b = binary.LittleEndian.AppendUint64(b, v) }
	u32 := func(v uint32) { b = binary.LittleEndian.AppendUint32(b, v) }
	u64(1) // tensors
	u64(0) // metadata
	u64(1)
	b = append(b, 'a')
	u32(1) // dimensions
	u64(2)
	u32(0) // float32
	u64(offset)
	b = append(b, make([]byte, (32-len(b)%32)%32)...)
	for range data {
		b = append(b, byte(len(b)))
	}
	return b
}

// A tensor is read only where all of it lies in the file.
func TestGGUFOffsets(t *testing.T) {
	lib := open(t)
	path := filepath.Join(t.TempDir(), "x.gguf")
	for _, c := range []struct {
		offset uint64
		data   int
		fine   bool
	}{
		{0, 8, true},
		{0, 7, false},
		{0, 0, false},
		{32, 40, true},
		{32, 39, false},
		{32, 8, false},
		{64, 8, false},
		{1 << 20, 8, false},
		{1 << 40, 8, false},
		{4, 12, false}, // not aligned
		{math.MaxInt64/16 - 31, 8, false},
		{math.MaxUint64 - 31, 64, false},
	} {
		require.NoError(t, os.WriteFile(path, gguf(c.offset, c.data), 0o600))
		err := lib.Do(t.Context(), func(s *mlx.Scope) error {
			m, _, err := s.LoadGGUF(path)
			if err == nil {
				err = s.Eval(m["a"])
			}
			return err
		})
		if c.fine {
			require.NoError(t, err, "%+v", c)
			continue
		}
		require.Error(t, err, "%+v", c)
		if c.offset < math.MaxInt64/16 {
			require.ErrorContains(t, err, `tensor "a" lies outside the file`, "%+v", c)
		}
	}
}

// Damaged files of all kinds: an error or arrays, never the end of the process.
func TestDamagedFiles(t *testing.T) {
	lib := open(t)
	dir := t.TempDir()
	write := map[string]func(s *mlx.Scope, path string) error{
		"gguf": func(s *mlx.Scope, path string) error {
			arrays, metadata := ggufArrays(s)
			return s.SaveGGUF(path, arrays, metadata)
		},
		"npy": func(s *mlx.Scope, path string) error { return s.SaveNPY(path, s.Ones(mlx.Float32, 2, 3)) },
		"safetensors": func(s *mlx.Scope, path string) error {
			return s.SaveSafetensors(path, map[string]mlx.Array{"a": s.Ones(mlx.Float32, 2, 3), "b": ints(s, 1)}, nil)
		},
	}
	read := map[string]func(s *mlx.Scope, path string) []mlx.Array{
		"gguf": func(s *mlx.Scope, path string) []mlx.Array {
			m, meta, _ := s.LoadGGUF(path)
			for _, v := range meta {
				if a, ok := v.(mlx.Array); ok {
					_ = a.String()
				}
			}
			return list(m)
		},
		"npy": func(s *mlx.Scope, path string) []mlx.Array { return []mlx.Array{s.LoadNPY(path)} },
		"safetensors": func(s *mlx.Scope, path string) []mlx.Array {
			m, _, _ := s.LoadSafetensors(path)
			return list(m)
		},
	}
	rounds := 400
	if testing.Short() {
		rounds = 50
	}
	for kind := range write {
		path := filepath.Join(dir, "x."+kind)
		require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error { return write[kind](s, path) }))
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		r := rand.New(rand.NewPCG(1, 2))
		failed, fine := 0, 0
		for range rounds {
			data := bytes.Clone(whole)
			for range 1 + r.IntN(3) {
				data[r.IntN(min(len(data), 1000))] = byte([]int{0, 1, 255, 127, r.IntN(256)}[r.IntN(5)])
			}
			if r.IntN(3) == 0 {
				data = data[:r.IntN(len(data))]
			}
			require.NoError(t, os.WriteFile(path, data, 0o600))
			err := lib.Do(t.Context(), func(s *mlx.Scope) error {
				for _, a := range read[kind](s, path) {
					if a.Valid() {
						if err := s.Eval(a); err != nil {
							return err
						}
					}
				}
				return nil
			})
			if err != nil {
				failed++
			} else {
				fine++
			}
		}
		require.Positive(t, failed, kind)
		require.Positive(t, fine, kind)
	}
}

func list(m map[string]mlx.Array) []mlx.Array {
	var out []mlx.Array
	for _, a := range m {
		out = append(out, a)
	}
	return out
}
