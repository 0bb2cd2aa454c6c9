package qwen_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/internal/safetensors"
	"github.com/godflash/godflash/internal/weights"
	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen"
)

// closedLibrary cannot read a weight: an error that is not ErrClosed was found
// before.
func closedLibrary(t testing.TB) *mlx.Library {
	t.Helper()
	l, err := mlx.Open(&mlx.Options{Device: mlx.DeviceCPU})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l
}

// What is wrong with a folder's files is said before a weight is read, all of
// it at once, and leaves nothing behind.
func TestFilesThatDoNotFit(t *testing.T) {
	spec := fixture.GDN(t, t.TempDir(), fixture.Options{Seed: 1})
	closed := closedLibrary(t)
	const layer = "model.language_model.layers."
	edit := func(f func(ck checkpoint)) func(t *testing.T) string {
		return func(t *testing.T) string {
			return copyFolder(t, spec.Dir, func(ck checkpoint, _ object) { f(ck) })
		}
	}
	file := func(f func(path string, data []byte) []byte) func(t *testing.T) string {
		return func(t *testing.T) string {
			dir := copyFolder(t, spec.Dir, nil)
			path := filepath.Join(dir, "model.safetensors")
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, f(path, data), 0o644))
			return dir
		}
	}
	shape := func(ck checkpoint, name string, shape ...int) {
		tensor := ck[name]
		tensor.Shape = shape
		ck[name] = tensor
	}
	for name, c := range map[string]struct {
		make func(t *testing.T) string
		kind error
		says []string
	}{
		"everything at once": {edit(func(ck checkpoint) {
			delete(ck, layer+"3.self_attn.q_norm.weight")
			delete(ck, layer+"0.linear_attn.A_log")
			ck[layer+"0.self_attn.q_proj.bias"] = float32Tensor([]int{1}, []float32{1})
			shape(ck, "lm_head.weight", 64, 269)
			shape(ck, layer+"1.mlp.up_proj.weight", 64, 96)
		}), nil, []string{
			"2 missing", "layers.3.self_attn.q_norm.weight", "layers.0.linear_attn.A_log",
			"1 not part of the model", "layers.0.self_attn.q_proj.bias",
			"2 of another shape", "lm_head.weight is [64 269], want [269 64]", "layers.1.mlp.up_proj.weight is [64 96], want [96 64]",
		}},
		"one layer's convolution in the other layout": {edit(func(ck checkpoint) {
			shape(ck, layer+"2.linear_attn.conv1d.weight", 128, 4, 1)
		}), nil, []string{"conv1d.weight is ["}},
		"integers": {edit(func(ck checkpoint) {
			for _, name := range []string{layer + "0.mlp.up_proj.weight", "lm_head.weight"} {
				tensor := ck[name]
				tensor.Dtype = "U32"
				ck[name] = tensor
			}
		}), weights.ErrDtype, []string{"layers.0.mlp.up_proj.weight U32", "lm_head.weight U32", "2 in all", "BF16"}},
		"packed integers": {edit(func(ck checkpoint) {
			name := layer + "0.mlp.up_proj.weight"
			packed := ck[name]
			packed.Dtype, packed.Shape = "U32", []int{96, 8}
			packed.Data = packed.Data[:96*8*4]
			ck[name] = packed
			ck[layer+"0.mlp.up_proj.scales"] = float32Tensor([]int{96}, make([]float32, 96))
		}), qwen.ErrUnsupported, []string{"layers.0.mlp.up_proj", "without biases"}},
		"cut in the data":   {file(func(_ string, data []byte) []byte { return data[:len(data)-1] }), safetensors.ErrTruncated, []string{"model.safetensors"}},
		"cut in the header": {file(func(_ string, data []byte) []byte { return data[:100] }), safetensors.ErrTruncated, []string{"model.safetensors"}},
		"an LFS pointer": {file(func(string, []byte) []byte {
			return []byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
		}), safetensors.ErrNotSafetensors, []string{"Git LFS"}},
		"a web page": {file(func(string, []byte) []byte { return []byte("<!DOCTYPE html><html>") }), safetensors.ErrNotSafetensors, []string{"web page"}},
		"no weights": {file(func(path string, data []byte) []byte {
			_ = os.Remove(filepath.Join(filepath.Dir(path), "config.json"))
			return data
		}), qwen.ErrConfig, []string{"config.json"}},
		"a header of 2^60 bytes": {file(func(_ string, data []byte) []byte {
			return append([]byte{0, 0, 0, 0, 0, 0, 0, 0x10}, data[8:]...)
		}), safetensors.ErrNotSafetensors, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := c.make(t)
			base := lib.LiveArrays()
			_, err := qwen.Load(t.Context(), closed, dir, nil)
			require.Error(t, err)
			require.NotErrorIs(t, err, mlx.ErrClosed)
			require.ErrorContains(t, err, dir)
			if c.kind != nil {
				require.ErrorIs(t, err, c.kind)
			}
			for _, text := range c.says {
				require.ErrorContains(t, err, text)
			}
			_, again := qwen.Load(t.Context(), lib, dir, nil)
			require.EqualError(t, again, err.Error())
			require.Equal(t, base, lib.LiveArrays())
		})
	}
	_, err := qwen.Load(t.Context(), closed, spec.Dir, nil)
	require.ErrorIs(t, err, mlx.ErrClosed)
}

// A header is enough to refuse: not even a gigabyte of data that is all hole
// delays or changes that.
func TestDataIsNotTouched(t *testing.T) {
	spec := fixture.Tied(t, t.TempDir(), false, fixture.Options{})
	dir := copyFolder(t, spec.Dir, nil)
	path := filepath.Join(dir, "model.safetensors")
	header := `{"model.embed_tokens.weight":{"dtype":"F32","shape":[16384,16384],"data_offsets":[0,1073741824]}}`
	data := append([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0}, header...)
	require.NoError(t, os.WriteFile(path, data, 0o644))
	require.NoError(t, os.Truncate(path, int64(len(data))+1<<30))
	_, err := qwen.Load(t.Context(), lib, dir, nil)
	var mismatch *safetensors.MismatchError
	require.ErrorAs(t, err, &mismatch)
	require.Equal(t, "embed_tokens.weight", mismatch.Shapes[0].Name)
}

// stepContext does something at the n-th question whether it has ended.
type stepContext struct {
	context.Context
	at, asked int
	do        func() error
}

func (c *stepContext) Err() error {
	if c.asked++; c.asked == c.at {
		return c.do()
	}
	return nil
}

// Load is given up, or its files vanish, at every point: an error, and nothing
// stays behind.
func TestLoadBrokenOff(t *testing.T) {
	spec := fixture.GDN(t, t.TempDir(), fixture.Options{Seed: 1})
	count := &stepContext{Context: t.Context()}
	m, err := qwen.Load(count, lib, spec.Dir, nil)
	require.NoError(t, err)
	require.NoError(t, m.Close())
	require.NoError(t, m.Close(), "closing twice")
	require.Greater(t, count.asked, spec.Layers, "a look at the context for each layer")
	base := lib.LiveArrays()
	for at := 1; at <= count.asked; at++ {
		m, err := qwen.Load(&stepContext{t.Context(), at, 0, func() error { return context.Canceled }}, lib, spec.Dir, nil)
		require.Nil(t, m)
		require.ErrorIs(t, err, context.Canceled, "at %d", at)
		require.Equal(t, base, lib.LiveArrays(), "at %d", at)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = qwen.Load(cancelled, lib, spec.Dir, nil)
	require.ErrorIs(t, err, context.Canceled)

	gone := copyFolder(t, spec.Dir, nil)
	_, err = qwen.Load(&stepContext{t.Context(), 1, 0, func() error {
		return errors.Join(os.Remove(filepath.Join(gone, "model.safetensors")))
	}}, lib, gone, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Equal(t, base, lib.LiveArrays())

	for at := 2; at <= spec.Layers; at++ { // cut while it is being read
		cut := copyFolder(t, spec.Dir, nil)
		_, err = qwen.Load(&stepContext{t.Context(), at, 0, func() error {
			return os.Truncate(filepath.Join(cut, "model.safetensors"), 20_000)
		}}, lib, cut, nil)
		require.ErrorContains(t, err, cut)
		require.ErrorContains(t, err, "read")
		require.Equal(t, base, lib.LiveArrays())
	}

	other := copyFolder(t, spec.Dir, nil)
	_, err = qwen.Load(&stepContext{t.Context(), 1, 0, func() error {
		small := readCheckpoint(t, other)
		delete(small, small.find(t, "layers.5.mlp.up_proj.weight"))
		small.write(t, filepath.Join(other, "model.safetensors"), nil)
		return nil
	}}, lib, other, nil)
	require.ErrorContains(t, err, "layers.5.mlp.up_proj.weight")
	require.Equal(t, base, lib.LiveArrays())
}

// Case 80: what Load's documentation says of memory: float32 on the CPU, so
// twice a bfloat16 file, with one layer more while it works.
func TestLoadMemory(t *testing.T) {
	dir := filepath.Join(pairDir("tiny-qwen3.5"), "target")
	info, err := os.Stat(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	memory := func() mlx.Memory {
		require.NoError(t, lib.ClearCache(t.Context()))
		m, err := lib.Memory(t.Context())
		require.NoError(t, err)
		return m
	}
	before := memory()
	require.NoError(t, lib.ResetPeak(t.Context()))
	m, err := qwen.Load(t.Context(), lib, dir, nil)
	require.NoError(t, err)
	after := memory()
	const slack = 1 << 20
	require.Greater(t, after.Active-before.Active, 19*info.Size()/10)
	require.LessOrEqual(t, after.Active-before.Active, 21*info.Size()/10+slack)
	layer := info.Size() / int64(m.Config().NumHiddenLayers)
	embedding := int64(m.Config().VocabSize*m.Config().HiddenSize) * 2
	require.LessOrEqual(t, after.Peak-before.Active, 21*info.Size()/10+max(3*layer, 3*embedding)+slack)
	require.NoError(t, m.Close())
	require.Equal(t, before.Active, memory().Active)
}

// Case 80 for quantised weights: what is resident is at most 1.1 times the files.
func TestLoadMemoryQuantized(t *testing.T) {
	for _, dir := range []string{"tiny-qwen3.5/target-4bit", "tiny-qwen3/target-mxfp4"} {
		dir := filepath.Join("..", "testdata", dir)
		info, err := os.Stat(filepath.Join(dir, "model.safetensors"))
		require.NoError(t, err)
		active := func() int64 {
			require.NoError(t, lib.ClearCache(t.Context()))
			m, err := lib.Memory(t.Context())
			require.NoError(t, err)
			return m.Active
		}
		before := active()
		m, err := qwen.Load(t.Context(), lib, dir, nil)
		require.NoError(t, err)
		resident := active() - before
		require.Greater(t, resident, 9*info.Size()/10, dir)
		require.LessOrEqual(t, resident, 11*info.Size()/10, dir)
		require.NoError(t, m.Close())
		require.Equal(t, before, active())
	}
}

// A folder under a name that could be a format string, or with spaces, loads.
func TestFolderNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "100% größe %s %n")
	spec := fixture.Rand(t, dir, fixture.Options{})
	require.NotEmpty(t, logits(t, spec.Dir))
	require.True(t, strings.Contains(spec.Dir, "%"))
}
