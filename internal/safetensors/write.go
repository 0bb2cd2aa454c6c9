package safetensors

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json/v2"
	"fmt"
	"io"
	"os"
)

// WriteTensor is a tensor for Write: Data is row-major and little-endian.
type WriteTensor struct {
	Name  string
	Dtype string
	Shape []int
	Data  []byte
}

// Write makes a safetensors file at path with the tensors in the given order,
// and metadata as the entry __metadata__ unless it is nil. It replaces a file
// that is there, without a temporary file.
func Write(path string, tensors []WriteTensor, metadata map[string]string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	defer f.Close()
	if err := Encode(f, tensors, metadata); err != nil {
		return fmt.Errorf("safetensors: %s: %w", path, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	return nil
}

// Encode writes what Write does to f.
func Encode(f io.Writer, tensors []WriteTensor, metadata map[string]string) error {
	type jsonEntry struct {
		Dtype   string   `json:"dtype"`
		Shape   []int    `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	entries := make(map[string]any, len(tensors)+1)
	if metadata != nil {
		entries["__metadata__"] = metadata
	}
	var end int64
	for _, t := range tensors {
		if _, twice := entries[t.Name]; twice {
			return fmt.Errorf("tensor %q comes twice", t.Name)
		}
		begin := end
		end += int64(len(t.Data))
		entries[t.Name] = jsonEntry{t.Dtype, t.Shape, [2]int64{begin, end}}
	}
	header, err := json.Marshal(entries, json.Deterministic(true))
	if err != nil {
		return err
	}
	// Readers map the file, so the data starts at a multiple of eight.
	header = append(header, bytes.Repeat([]byte(" "), (8-len(header)%8)%8)...)
	if _, err := decodeHeader(bytes.TrimRight(header, " ")); err != nil {
		return err
	}

	w := bufio.NewWriter(f)
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(header)))
	w.Write(length[:]) // bufio keeps the first error for Flush
	w.Write(header)
	for _, t := range tensors {
		w.Write(t.Data)
	}
	return w.Flush()
}
