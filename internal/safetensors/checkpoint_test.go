package safetensors_test

import (
	"encoding/json"
	jsonv2 "encoding/json/v2"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/godflash/godflash/internal/safetensors"
	"github.com/stretchr/testify/require"
)

// weights writes a file of one-byte tensors.
func weights(t testing.TB, dir, name string, tensors ...string) {
	t.Helper()
	var list []safetensors.WriteTensor
	for _, tensor := range tensors {
		list = append(list, safetensors.WriteTensor{Name: tensor, Dtype: "U8", Shape: []int{1}, Data: []byte{7}})
	}
	require.NoError(t, safetensors.Write(filepath.Join(dir, name), list, nil))
}

func index(t *testing.T, dir string, weightMap map[string]string) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"total_size": 1}, "weight_map": weightMap})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), text, 0o644))
}

func names(c *safetensors.Checkpoint) (files, tensors []string) {
	for _, f := range c.Files {
		files = append(files, filepath.Base(f))
	}
	for name := range c.Tensors {
		tensors = append(tensors, name)
	}
	return files, tensors
}

func TestOpen(t *testing.T) {
	cases := map[string]struct {
		make           func(t *testing.T, dir string)
		files, tensors []string
		stale          bool
	}{
		"single": {func(t *testing.T, dir string) {
			weights(t, dir, "model.safetensors", "a")
			weights(t, dir, "adapter.safetensors", "x")
		}, []string{"model.safetensors"}, []string{"a"}, false},
		"index": {func(t *testing.T, dir string) {
			weights(t, dir, "model-00001-of-00002.safetensors", "a", "b")
			weights(t, dir, "model-00002-of-00002.safetensors", "c")
			weights(t, dir, "consolidated.safetensors", "a", "b", "c")
			index(t, dir, map[string]string{"a": "model-00001-of-00002.safetensors", "b": "model-00001-of-00002.safetensors", "c": "model-00002-of-00002.safetensors"})
		}, []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}, []string{"a", "b", "c"}, false},
		"index of files in a folder": {func(t *testing.T, dir string) {
			require.NoError(t, os.Mkdir(filepath.Join(dir, "part"), 0o755))
			weights(t, dir, "part/x.safetensors", "a")
			index(t, dir, map[string]string{"a": "part/x.safetensors"})
		}, []string{"x.safetensors"}, []string{"a"}, false},
		"stale index, single file": {func(t *testing.T, dir string) {
			weights(t, dir, "model.safetensors", "a", "a.scales", "b")
			index(t, dir, map[string]string{"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"})
		}, []string{"model.safetensors"}, []string{"a", "a.scales", "b"}, true},
		"stale index, other shards": {func(t *testing.T, dir string) {
			weights(t, dir, "model-00001-of-00002.safetensors", "b")
			weights(t, dir, "model-00002-of-00002.safetensors", "a")
			index(t, dir, map[string]string{"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"})
		}, []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}, []string{"a", "b"}, true},
		"no index, model files": {func(t *testing.T, dir string) {
			weights(t, dir, "model-b.safetensors", "b")
			weights(t, dir, "model-a.safetensors", "a")
			weights(t, dir, "other.safetensors", "a")
		}, []string{"model-a.safetensors", "model-b.safetensors"}, []string{"a", "b"}, false},
		"no index, any files": {func(t *testing.T, dir string) {
			weights(t, dir, "b.safetensors", "b")
			weights(t, dir, "a.safetensors", "a")
			weights(t, dir, ".tmp.safetensors", "a")
		}, []string{"a.safetensors", "b.safetensors"}, []string{"a", "b"}, false},
		"symbolic links": {func(t *testing.T, dir string) {
			blobs := t.TempDir()
			weights(t, blobs, "0123", "a")
			weights(t, blobs, "4567", "b")
			require.NoError(t, os.Symlink(filepath.Join(blobs, "0123"), filepath.Join(dir, "model-00001-of-00002.safetensors")))
			require.NoError(t, os.Symlink(filepath.Join(blobs, "4567"), filepath.Join(dir, "model-00002-of-00002.safetensors")))
			index(t, dir, map[string]string{"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"})
		}, []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}, []string{"a", "b"}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.make(t, dir)
			got, err := safetensors.Open(dir)
			require.NoError(t, err)
			files, tensors := names(got)
			require.Equal(t, c.files, files)
			require.ElementsMatch(t, c.tensors, tensors)
			require.Equal(t, c.stale, got.IndexStale)
		})
	}
}

func TestOpenErrors(t *testing.T) {
	touch := func(t *testing.T, dir, name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	cases := map[string]struct {
		make func(t *testing.T, dir string)
		is   error
		says []string
	}{
		"empty folder": {func(t *testing.T, dir string) {}, safetensors.ErrNoWeights, []string{"model.safetensors.index.json"}},
		"only other formats": {func(t *testing.T, dir string) {
			touch(t, dir, "pytorch_model.bin", "x")
			touch(t, dir, "m.gguf", "x")
		}, safetensors.ErrNoWeights, []string{"m.gguf, pytorch_model.bin", "safetensors weights"}},
		"duplicate": {func(t *testing.T, dir string) {
			weights(t, dir, "a.safetensors", "x", "y")
			weights(t, dir, "b.safetensors", "z", "y")
		}, safetensors.ErrDuplicate, []string{"y is in a.safetensors and in b.safetensors"}},
		"shard missing, no index": {func(t *testing.T, dir string) {
			weights(t, dir, "model-00001-of-00003.safetensors", "x")
			weights(t, dir, "model-00003-of-00003.safetensors", "y")
		}, safetensors.ErrIncomplete, []string{"model-00002-of-00003.safetensors"}},
		"index names missing files": {func(t *testing.T, dir string) {
			weights(t, dir, "model-00001-of-00002.safetensors", "a")
			weightMap := map[string]string{"a": "model-00001-of-00002.safetensors"}
			for i := range 15 {
				weightMap[fmt.Sprintf("t%02d", i)] = "model-00002-of-00002.safetensors"
			}
			index(t, dir, weightMap)
		}, safetensors.ErrIncomplete, []string{"15 tensors", "t00, t01", "t09 and 5 more", "model-00002-of-00002.safetensors"}},
		"index names a tensor that no file has": {func(t *testing.T, dir string) {
			weights(t, dir, "model.safetensors", "a")
			index(t, dir, map[string]string{"a": "model.safetensors", "b": "model.safetensors"})
		}, safetensors.ErrIncomplete, []string{"1 tensors", ": b;"}},
		"all files of the index missing": {func(t *testing.T, dir string) {
			index(t, dir, map[string]string{"a": "model-00001-of-00001.safetensors"})
		}, safetensors.ErrIncomplete, []string{"model-00001-of-00001.safetensors"}},
		"path out of the folder": {func(t *testing.T, dir string) {
			index(t, dir, map[string]string{"a": "../model.safetensors"})
		}, safetensors.ErrIndex, []string{`"../model.safetensors"`}},
		"absolute path": {func(t *testing.T, dir string) {
			index(t, dir, map[string]string{"a": "/etc/passwd"})
		}, safetensors.ErrIndex, []string{"/etc/passwd"}},
		"backslash": {func(t *testing.T, dir string) {
			index(t, dir, map[string]string{"a": `..\model.safetensors`})
		}, safetensors.ErrIndex, []string{"not inside"}},
		"broken index": {func(t *testing.T, dir string) {
			touch(t, dir, "model.safetensors.index.json", "{")
		}, safetensors.ErrIndex, []string{"model.safetensors.index.json"}},
		"index without weight_map": {func(t *testing.T, dir string) {
			touch(t, dir, "model.safetensors.index.json", "{}")
		}, safetensors.ErrIndex, []string{"weight_map"}},
		"index is a Git LFS pointer": {func(t *testing.T, dir string) {
			touch(t, dir, "model.safetensors.index.json", "version https://git-lfs.github.com/spec/v1\n")
		}, safetensors.ErrIndex, []string{"git lfs pull"}},
		"shard is a Git LFS pointer": {func(t *testing.T, dir string) {
			weights(t, dir, "a.safetensors", "x")
			touch(t, dir, "b.safetensors", "version https://git-lfs.github.com/spec/v1\n")
		}, safetensors.ErrNotSafetensors, []string{"b.safetensors", "git lfs pull"}},
		"dangling link": {func(t *testing.T, dir string) {
			require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "model.safetensors")))
		}, os.ErrNotExist, []string{"model.safetensors"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.make(t, dir)
			_, err := safetensors.Open(dir)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, dir)
			for _, text := range c.says {
				require.ErrorContains(t, err, text)
			}
		})
	}
	_, err := safetensors.Open(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	var have []string
	for i := range 12 {
		have = append(have, fmt.Sprintf("extra%02d", i))
	}
	weights(t, dir, "model.safetensors", append(have, "a", "b")...)
	c, err := safetensors.Open(dir)
	require.NoError(t, err)

	want := map[string][]int{"a": {1}, "b": {1}}
	for _, name := range have {
		want[name] = []int{1}
	}
	require.NoError(t, c.Check(want))

	err = c.Check(map[string][]int{"a": {1}, "b": {1, 1}, "c": {2}})
	var mismatch *safetensors.MismatchError
	require.ErrorAs(t, err, &mismatch)
	require.Equal(t, []string{"c"}, mismatch.Missing)
	require.Len(t, mismatch.Superfluous, 12)
	require.Equal(t, []safetensors.ShapeError{{Name: "b", Got: []int{1}, Want: []int{1, 1}}}, mismatch.Shapes)
	require.ErrorContains(t, err, dir)
	require.ErrorContains(t, err, "extra09 and 2 more")
	require.ErrorContains(t, err, "b is [1], want [1 1]")
}

// FuzzIndex holds that no index makes Open panic or leave the folder, and that
// what it lets through has every tensor that the index promises, from a file there.
func FuzzIndex(f *testing.F) {
	for _, text := range []string{
		`{"metadata":{"total_size":8},"weight_map":{"x":"model-00001-of-00002.safetensors","y":"model-00002-of-00002.safetensors"}}`,
		`{"weight_map":{"x":"model-00001-of-00009.safetensors"}}`,
		`{"weight_map":{"x":"../outside.safetensors"}}`, `{"weight_map":{"x":"C:\\a"}}`, `{"weight_map":{"x":"sub/../model-00001-of-00002.safetensors"}}`,
		`{"weight_map":{"x":".", "y":""}}`, `{"weight_map":[]}`, `{}`, `null`, "version https://git-lfs.github.com/spec/v1\n", "<html>",
	} {
		f.Add([]byte(text))
	}
	root := f.TempDir()
	dir := filepath.Join(root, "model")
	require.NoError(f, os.Mkdir(dir, 0o755))
	weights(f, root, "outside.safetensors", "x")
	weights(f, dir, "model-00001-of-00002.safetensors", "x")
	weights(f, dir, "model-00002-of-00002.safetensors", "y")
	f.Fuzz(func(t *testing.T, text []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), text, 0o644))
		c, err := safetensors.Open(dir)
		if err != nil {
			require.ErrorContains(t, err, dir)
			return
		}
		var index struct {
			WeightMap map[string]string `json:"weight_map"`
		}
		require.NoError(t, jsonv2.Unmarshal(text, &index))
		require.NotEmpty(t, index.WeightMap)
		for tensor := range index.WeightMap {
			require.Contains(t, c.Tensors, tensor)
		}
		for _, file := range c.Files {
			require.Equal(t, dir, filepath.Dir(file))
		}
	})
}
