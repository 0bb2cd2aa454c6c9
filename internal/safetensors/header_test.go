package safetensors_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/godflash/godflash/internal/safetensors"
	"github.com/stretchr/testify/require"
)

// file is a safetensors file with the given header text and data length.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	return append(b, make([]byte, data)...)
}

func one(dtype, shape, offsets string) string {
	return fmt.Sprintf(`{"t":{"dtype":%q,"shape":%s,"data_offsets":%s}}`, dtype, shape, offsets)
}

func TestReadHeaderErrors(t *testing.T) {
	good := one("F32", "[2,3]", "[0,24]")
	pointer := "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
	cases := map[string]struct {
		content []byte
		is      error
		says    string
	}{
		"empty":                     {nil, safetensors.ErrTruncated, "0 bytes"},
		"cut in the length":         {file(good, 24)[:5], safetensors.ErrTruncated, "5 bytes"},
		"cut in the header":         {file(good, 24)[:30], safetensors.ErrTruncated, "the file has 30"},
		"cut at the header's end":   {file(good, 0), safetensors.ErrTruncated, "need 24 bytes of data, the file has 0"},
		"cut in the data":           {file(good, 23), safetensors.ErrTruncated, "need 24 bytes of data, the file has 23"},
		"header of 1<<60 bytes":     {append(binary.LittleEndian.AppendUint64(nil, 1<<60), good...), safetensors.ErrNotSafetensors, "1152921504606846976"},
		"header of 1<<64-1 bytes":   {append(binary.LittleEndian.AppendUint64(nil, 1<<64-1), good...), safetensors.ErrNotSafetensors, "18446744073709551615"},
		"header of 99 MB":           {append(binary.LittleEndian.AppendUint64(nil, 99<<20), good...), safetensors.ErrTruncated, "fetch"},
		"Git LFS pointer":           {[]byte(pointer), safetensors.ErrNotSafetensors, "git lfs pull"},
		"web page":                  {[]byte("\n<!DOCTYPE html>\n<html>…"), safetensors.ErrNotSafetensors, "web page"},
		"server's error":            {[]byte(`{"error":"Access denied"}`), safetensors.ErrNotSafetensors, "error message"},
		"GGUF":                      {[]byte("GGUF\x03\x00\x00\x00\x00\x00\x00\x00"), safetensors.ErrNotSafetensors, "GGUF"},
		"zip":                       {[]byte("PK\x03\x04\x00\x00\x00\x00\x00\x00\x00"), safetensors.ErrNotSafetensors, "PyTorch"},
		"not JSON":                  {file("[]", 0), safetensors.ErrNotSafetensors, "'['"},
		"broken JSON":               {file(`{"t":`, 0), safetensors.ErrCorrupt, "EOF"},
		"empty header":              {file("", 0), safetensors.ErrCorrupt, "EOF"},
		"name twice":                {file(`{"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 0), safetensors.ErrCorrupt, "duplicate"},
		"text after the header":     {file(good+" x", 24), safetensors.ErrCorrupt, "invalid"},
		"unknown dtype":             {file(one("Q7", "[1]", "[0,1]"), 1), safetensors.ErrCorrupt, `"t": unknown dtype "Q7"`},
		"no dtype":                  {file(`{"t":{"shape":[1],"data_offsets":[0,1]}}`, 1), safetensors.ErrCorrupt, "dtype"},
		"tensor is a number":        {file(`{"t":5}`, 0), safetensors.ErrCorrupt, `"t"`},
		"negative shape":            {file(one("U8", "[-1]", "[0,1]"), 1), safetensors.ErrCorrupt, `"-1"`},
		"fraction in shape":         {file(one("U8", "[1.0]", "[0,1]"), 1), safetensors.ErrCorrupt, `"1.0"`},
		"text in shape":             {file(one("U8", `["1"]`, "[0,1]"), 1), safetensors.ErrCorrupt, "size"},
		"shape over int64":          {file(one("U8", "[18446744073709551617]", "[0,1]"), 1), safetensors.ErrCorrupt, "size"},
		"elements overflow":         {file(one("U8", "[4294967296,4294967296,1]", "[0,0]"), 0), safetensors.ErrCorrupt, "too many elements"},
		"bytes overflow":            {file(one("F64", "[2305843009213693952]", "[0,0]"), 0), safetensors.ErrCorrupt, "too many elements"},
		"size differs from shape":   {file(one("F32", "[2,3]", "[0,20]"), 20), safetensors.ErrCorrupt, "takes 24 bytes, data_offsets give 20"},
		"half bytes":                {file(one("F4", "[3]", "[0,1]"), 1), safetensors.ErrCorrupt, "whole bytes"},
		"offsets backwards":         {file(one("U8", "[1]", "[1,0]"), 1), safetensors.ErrCorrupt, "before their start"},
		"one offset":                {file(one("U8", "[1]", "[0]"), 1), safetensors.ErrCorrupt, "two numbers"},
		"negative offset":           {file(one("U8", "[1]", "[-1,0]"), 1), safetensors.ErrCorrupt, "size"},
		"offset far outside":        {file(one("U8", "[1]", "[9223372036854775806,9223372036854775807]"), 1), safetensors.ErrCorrupt, "belong to no tensor"},
		"overlap":                   {file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}`, 6), safetensors.ErrCorrupt, `"b" starts at byte 2`},
		"same place twice":          {file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4), safetensors.ErrCorrupt, `"b" starts at byte 0`},
		"hole":                      {file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[1],"data_offsets":[5,6]}}`, 6), safetensors.ErrCorrupt, "bytes 4 to 5"},
		"data after the last one":   {file(good, 25), safetensors.ErrCorrupt, "1 bytes after"},
		"metadata is not text":      {file(`{"__metadata__":{"a":1}}`, 0), safetensors.ErrCorrupt, "__metadata__"},
		"nesting of 20000 brackets": {file(`{"t":`+strings.Repeat("[", 20000)+strings.Repeat("]", 20000)+"}", 0), safetensors.ErrCorrupt, "depth"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.safetensors")
			require.NoError(t, os.WriteFile(path, c.content, 0o644))
			_, err := safetensors.ReadHeader(path)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, path)
		})
	}
}

func TestReadHeaderNoFile(t *testing.T) {
	dir := t.TempDir()
	_, err := safetensors.ReadHeader(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)

	_, err = safetensors.ReadHeader(dir)
	require.ErrorIs(t, err, safetensors.ErrNotSafetensors)

	// Opening it would wait for a writer for ever.
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	_, err = safetensors.ReadHeader(pipe)
	require.ErrorIs(t, err, safetensors.ErrNotSafetensors)
}

func TestReadHeader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.safetensors")
	header := `{"__metadata__":{"format":"pt"},
		"last":{"dtype":"BF16","shape":[2,1,2],"data_offsets":[5,13]},
		"none":{"shape":[4,0],"dtype":"F64","data_offsets":[5,5]},
		"scalar":{"dtype":"I8","shape":[],"data_offsets":[4,5],"more":{"x":[1]}},
		"first":{"dtype":"F4","shape":[8],"data_offsets":[0,4]}}   `
	content := file(header, 13)
	content[8+len(header)+4] = 0xfe
	require.NoError(t, os.WriteFile(path, content, 0o644))
	h, err := safetensors.ReadHeader(path)
	require.NoError(t, err)
	base := int64(8 + len(header))
	require.Equal(t, &safetensors.Header{
		Path:     path,
		Metadata: map[string]string{"format": "pt"},
		Tensors: map[string]safetensors.Tensor{
			"first":  {Name: "first", Dtype: "F4", Shape: []int{8}, File: path, Offset: base, Bytes: 4},
			"scalar": {Name: "scalar", Dtype: "I8", Shape: []int{}, File: path, Offset: base + 4, Bytes: 1},
			"none":   {Name: "none", Dtype: "F64", Shape: []int{4, 0}, File: path, Offset: base + 5, Bytes: 0},
			"last":   {Name: "last", Dtype: "BF16", Shape: []int{2, 1, 2}, File: path, Offset: base + 5, Bytes: 8},
		},
	}, h)
	data, err := h.Tensors["scalar"].Read()
	require.NoError(t, err)
	require.Equal(t, []byte{0xfe}, data)
}

func TestReadTinyModels(t *testing.T) {
	for name, tensors := range map[string]int{
		"tiny-qwen3/target/model.safetensors":        68,
		"tiny-qwen3/draft/model.safetensors":         25,
		"tiny-qwen3.5/target-4bit/model.safetensors": 234,
	} {
		h, err := safetensors.ReadHeader(filepath.Join("../../testdata", name))
		require.NoError(t, err)
		require.Equal(t, tensors, len(h.Tensors), name)
	}
}

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	require.NoError(t, safetensors.Write(path, []safetensors.WriteTensor{
		{Name: "b", Dtype: "U8", Shape: []int{3}, Data: []byte{1, 2, 3}},
		{Name: "a", Dtype: "F32", Shape: []int{}, Data: []byte{0, 0, 128, 63}},
	}, map[string]string{"format": "pt"}))
	h, err := safetensors.ReadHeader(path)
	require.NoError(t, err)
	require.Equal(t, "pt", h.Metadata["format"])
	require.Zero(t, h.Tensors["b"].Offset%8)
	data, err := h.Tensors["b"].Read()
	require.NoError(t, err)
	require.Equal(t, []byte{1, 2, 3}, data)
	data, err = h.Tensors["a"].Read()
	require.NoError(t, err)
	require.Equal(t, []byte{0, 0, 128, 63}, data)

	err = safetensors.Write(path, []safetensors.WriteTensor{{Name: "a", Dtype: "F32", Shape: []int{2}, Data: make([]byte, 4)}}, nil)
	require.ErrorIs(t, err, safetensors.ErrCorrupt)
	err = safetensors.Write(path, []safetensors.WriteTensor{{Name: "a", Dtype: "U8", Shape: []int{0}}, {Name: "a", Dtype: "U8", Shape: []int{0}}}, nil)
	require.ErrorContains(t, err, "twice")
}

// FuzzReadHeader holds that no file makes ReadHeader panic, and that what it
// lets through keeps the format's promises.
func FuzzReadHeader(f *testing.F) {
	f.Add(file(one("F32", "[2,3]", "[0,24]"), 24))
	f.Add(file(`{"__metadata__":{"a":"b"},"x":{"dtype":"F4","shape":[2,0],"data_offsets":[0,0]}} `, 0))
	f.Add(file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"BF16","shape":[1],"data_offsets":[4,6]}}`, 6))
	f.Add([]byte("version https://git-lfs.github.com/spec/v1\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(dir, fmt.Sprintf("%d.safetensors", os.Getpid()))
		require.NoError(t, os.WriteFile(path, content, 0o644))
		h, err := safetensors.ReadHeader(path)
		if err != nil {
			require.ErrorContains(t, err, path)
			return
		}
		base := 8 + int64(binary.LittleEndian.Uint64(content))
		var sum int64
		for name, tensor := range h.Tensors {
			require.Equal(t, name, tensor.Name)
			require.GreaterOrEqual(t, tensor.Offset, base)
			require.GreaterOrEqual(t, tensor.Bytes, int64(0))
			require.LessOrEqual(t, tensor.Offset+tensor.Bytes, int64(len(content)))
			sum += tensor.Bytes
		}
		require.Equal(t, int64(len(content)), base+sum)
	})
}
