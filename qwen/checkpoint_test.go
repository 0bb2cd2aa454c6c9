package qwen_test

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/internal/safetensors"
	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen"
)

// checkpoint is a folder's tensors in memory, to edit and write again.
type checkpoint map[string]safetensors.WriteTensor

func readCheckpoint(t testing.TB, dir string) checkpoint { return fixture.ReadTensors(t, dir) }

// write makes one file of all tensors or of those that pick names.
func (ck checkpoint) write(t testing.TB, path string, pick func(string) bool) {
	t.Helper()
	some := map[string]safetensors.WriteTensor{}
	for name, tensor := range ck {
		if pick == nil || pick(name) {
			some[name] = tensor
		}
	}
	fixture.WriteTensors(t, path, some)
}

// copyFolder copies a model folder's JSON files, and its weights after edit.
func copyFolder(t testing.TB, from string, edit func(ck checkpoint, config object)) string {
	t.Helper()
	dir := t.TempDir()
	ck, config := readCheckpoint(t, from), object{}
	readJSON(t, filepath.Join(from, "config.json"), &config)
	if edit != nil {
		edit(ck, config)
	}
	writeJSON(t, filepath.Join(dir, "config.json"), config)
	ck.write(t, filepath.Join(dir, "model.safetensors"), nil)
	return dir
}

// rename gives every tensor the name that f makes of its own.
func (ck checkpoint) rename(f func(string) string) {
	for name, tensor := range maps.Clone(ck) {
		delete(ck, name)
		ck[f(name)] = tensor
	}
}

// find is the one tensor whose name ends in suffix.
func (ck checkpoint) find(t testing.TB, suffix string) string {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(ck)) {
		if strings.HasSuffix(name, suffix) {
			return name
		}
	}
	t.Fatalf("no tensor ends in %s", suffix)
	return ""
}

func floats(data []byte) []float32 {
	out := make([]float32, len(data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return out
}

func float32Tensor(shape []int, v []float32) safetensors.WriteTensor {
	var data []byte
	for _, x := range v {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	return safetensors.WriteTensor{Dtype: "F32", Shape: shape, Data: data}
}

// convert stores all tensors in a half type; what is lost is lost in the
// float32 copy that it returns as well.
func (ck checkpoint) convert(t testing.TB, dtype string) (rounded checkpoint) {
	t.Helper()
	rounded = checkpoint{}
	for name, tensor := range ck {
		require.Equal(t, "F32", tensor.Dtype)
		v := floats(tensor.Data)
		var half []byte
		for i, x := range v {
			bits := math.Float32bits(x)
			if dtype == "BF16" {
				bits &= 0xffff0000
				half = binary.LittleEndian.AppendUint16(half, uint16(bits>>16))
				v[i] = math.Float32frombits(bits)
				continue
			}
			h := halfBits(x)
			half = binary.LittleEndian.AppendUint16(half, h)
			v[i] = halfValue(h)
		}
		rounded[name] = float32Tensor(tensor.Shape, v)
		ck[name] = safetensors.WriteTensor{Dtype: dtype, Shape: tensor.Shape, Data: half}
	}
	return rounded
}

// halfBits cuts a value of modest size down to float16; tiny ones become zero.
func halfBits(x float32) uint16 {
	bits := math.Float32bits(x)
	sign, exponent := uint16(bits>>16&0x8000), int(bits>>23&0xff)-127+15
	if exponent <= 0 {
		return sign
	}
	return sign | uint16(exponent)<<10 | uint16(bits>>13&0x3ff)
}

func halfValue(h uint16) float32 {
	if h&0x7fff == 0 {
		return math.Float32frombits(uint32(h) << 16)
	}
	return math.Float32frombits(uint32(h&0x8000)<<16 | (uint32(h>>10&0x1f)+127-15)<<23 | uint32(h&0x3ff)<<13)
}

func load(t testing.TB, dir string) *qwen.Model {
	t.Helper()
	m, err := qwen.Load(t.Context(), lib, dir, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

var prompt = []int32{72, 101, 108, 108, 111, 3, 250}

// logits of all rows of the prompt.
func logits(t testing.TB, dir string) []float32 {
	t.Helper()
	m := load(t, dir)
	cache := m.NewCache()
	defer cache.Close()
	var out []float32
	do(t, func(s *mlx.Scope) error {
		var err error
		out, err = mlx.ToSlice[float32](m.Logits(s, m.Forward(s, mlx.FromSlice(s, prompt), cache, nil).Hidden))
		return err
	})
	require.Len(t, out, len(prompt)*m.Config().VocabSize)
	return out
}

func bits(v []float32) []uint32 {
	out := make([]uint32, len(v))
	for i, x := range v {
		out[i] = math.Float32bits(x)
	}
	return out
}

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, v))
}
