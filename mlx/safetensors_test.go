package mlx_test

import (
	"encoding/binary"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

func TestSafetensorsRoundTrip(t *testing.T) {
	lib := open(t)
	dir := t.TempDir()
	// A percent sign must not reach mlx-c's error texts, which it takes as formats.
	for _, name := range []string{"plain.safetensors", "100%s%n.safetensors", "no-extension"} {
		path := filepath.Join(dir, name)
		require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
			grid := f32(s, []int{2, 3}, 1, 2, 3, 4, 5, float32(math.Inf(1)))
			return s.SaveSafetensors(path, map[string]mlx.Array{
				"transposed": s.Transpose(grid),
				"part":       s.SliceAxis(grid, 1, 1, 2),
				"bf16":       mlx.FromSlice(s, []mlx.BF16{0x3f80, 0xc020, 0x7fc0}),
				"f16":        mlx.FromSlice(s, []mlx.F16{0x3c00, 0xfbff}),
				"bool":       mlx.FromSlice(s, []bool{true, false}),
				"u8":         mlx.FromSlice(s, []uint8{255}),
				"u32":        mlx.FromSlice(s, []uint32{math.MaxUint32}),
				"i64":        mlx.FromSlice(s, []int{math.MinInt64}),
				"c64":        mlx.FromSlice(s, []complex64{complex(1, -2)}),
				"scalar":     s.Scalar(3, mlx.Int32),
				"empty":      s.Zeros(mlx.Float32, 0, 4),
				"a name, 日本": s.Ones(mlx.Int8, 1),
			}, map[string]string{"format": "mlx", "note": "ä"})
		}))
		require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
			arrays, meta, err := s.LoadSafetensors(path)
			require.NoError(t, err)
			require.Equal(t, map[string]string{"format": "mlx", "note": "ä"}, meta)
			require.Len(t, arrays, 12)
			require.Equal(t, 12, s.Len())
			require.Equal(t, []int{3, 2}, arrays["transposed"].Shape())
			same(t, arrays["transposed"], []float32{1, 4, 2, 5, 3, float32(math.Inf(1))})
			same(t, arrays["part"], []float32{2, 5})
			same(t, arrays["bf16"], []mlx.BF16{0x3f80, 0xc020, 0x7fc0})
			same(t, arrays["f16"], []mlx.F16{0x3c00, 0xfbff})
			same(t, arrays["bool"], []bool{true, false})
			same(t, arrays["u8"], []uint8{255})
			same(t, arrays["u32"], []uint32{math.MaxUint32})
			same(t, arrays["i64"], []int{math.MinInt64})
			same(t, arrays["c64"], []complex64{complex(1, -2)})
			same(t, arrays["scalar"], []int32{3})
			require.Equal(t, []int{}, arrays["scalar"].Shape())
			require.Equal(t, []int{0, 4}, arrays["empty"].Shape())
			same(t, arrays["empty"], []float32{})
			same(t, arrays["a name, 日本"], []int8{1})
			return nil
		}))
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 3, "no temporary files")
}

func same[T mlx.Element](t *testing.T, a mlx.Array, want []T) {
	t.Helper()
	got, err := mlx.ToSlice[T](a)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// Saving over the file that unevaluated arrays come from must not change them.
func TestSaveOverLoaded(t *testing.T) {
	lib := open(t)
	path := filepath.Join(t.TempDir(), "w.safetensors")
	save := func(s *mlx.Scope, a mlx.Array) {
		require.NoError(t, s.SaveSafetensors(path, map[string]mlx.Array{"w": a}, nil))
	}
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		save(s, f32(s, []int{2}, 1, 2))
		arrays, meta, err := s.LoadSafetensors(path)
		require.NoError(t, err)
		require.Nil(t, meta)
		save(s, f32(s, []int{2}, 8, 9))
		same(t, arrays["w"], []float32{1, 2})
		return nil
	}))
}

func TestSafetensorsErrors(t *testing.T) {
	lib := open(t)
	dir := t.TempDir()
	file := func(header string, data int) string {
		f, err := os.CreateTemp(dir, "*.safetensors")
		require.NoError(t, err)
		b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		_, err = f.Write(append(append(b, header...), make([]byte, data)...))
		require.NoError(t, err)
		require.NoError(t, f.Close())
		return f.Name()
	}
	for name, c := range map[string]struct{ path, says string }{
		"missing":          {filepath.Join(dir, "none.safetensors"), "none.safetensors"},
		"a folder":         {dir, "not a regular file"},
		"cut in the data":  {file(`{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}`, 8), "file is cut short"},
		"no JSON":          {file(`{"w":`, 0), "corrupt safetensors header"},
		"wrong size":       {file(`{"w":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}}`, 16), "takes 12 bytes"},
		"type not in MLX":  {file(`{"w":{"dtype":"F8_E5M2","shape":[4],"data_offsets":[0,4]}}`, 4), `tensor "w" has type F8_E5M2, which MLX does not read`},
		"type with format": {file(`{"w":{"dtype":"%s%n","shape":[4],"data_offsets":[0,4]}}`, 4), `%s%n`},
		"zero in a name":   {file(`{"w\u0000":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4), "zero byte"},
		"huge and empty":   {file(`{"w":{"dtype":"U8","shape":[0,4294967296],"data_offsets":[0,0]}}`, 0), "at most 2147483647"},
	} {
		err := lib.Do(t.Context(), func(s *mlx.Scope) error {
			arrays, meta, err := s.LoadSafetensors(c.path)
			require.Nil(t, arrays, name)
			require.Nil(t, meta, name)
			require.Equal(t, s.Err(), err, name)
			require.Zero(t, s.Len(), name)
			return nil
		})
		var op *mlx.OpError
		require.ErrorAs(t, err, &op, name)
		require.Equal(t, "LoadSafetensors", op.Op)
		require.ErrorContains(t, err, c.says, name)
		if name == "missing" {
			require.ErrorIs(t, err, fs.ErrNotExist)
		}
	}
	for name, f := range map[string]func(s *mlx.Scope) error{
		"no folder": func(s *mlx.Scope) error {
			return s.SaveSafetensors(filepath.Join(dir, "none", "w.safetensors"), map[string]mlx.Array{"w": s.Ones(mlx.Int8, 1)}, nil)
		},
		"float64": func(s *mlx.Scope) error {
			return s.SaveSafetensors(filepath.Join(dir, "zero.safetensors"), map[string]mlx.Array{"w": mlx.FromSlice(s, []float64{1})}, nil)
		},
		"zero Array": func(s *mlx.Scope) error {
			return s.SaveSafetensors(filepath.Join(dir, "zero.safetensors"), map[string]mlx.Array{"w": {}}, nil)
		},
	} {
		require.Error(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
			require.Error(t, f(s), name)
			return nil
		}), name)
	}
	_, err := os.Stat(filepath.Join(dir, "zero.safetensors"))
	require.ErrorIs(t, err, fs.ErrNotExist, "nothing half-written")
}

func TestManyDimensionsFromAFile(t *testing.T) {
	lib := open(t)
	header := `{"w":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,2]}}`
	path := filepath.Join(t.TempDir(), "nine.safetensors")
	data := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	require.NoError(t, os.WriteFile(path, append(data, 3, 4), 0o600))
	err := lib.Do(t.Context(), func(s *mlx.Scope) error {
		arrays, _, err := s.LoadSafetensors(path)
		require.NoError(t, err)
		require.Equal(t, 9, arrays["w"].NDim())
		same(t, s.Reshape(arrays["w"], 2), []uint8{3, 4})
		s.SliceAxis(arrays["w"], -1, 0, 1)
		return nil
	})
	require.ErrorContains(t, err, "more than 8 dimensions")
}
