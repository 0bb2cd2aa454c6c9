package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
)

// maxHeader is the format's own cap on the JSON header, in bytes.
const maxHeader = 100 << 20

// Tensor is one entry of a header.
type Tensor struct {
	Name   string
	Dtype  string // as in the file: "BF16", "F32", "U32", …
	Shape  []int  // empty for a scalar
	File   string // path of the file that holds the data
	Offset int64  // of the data, in bytes from the start of the file
	Bytes  int64  // length of the data
}

// Read returns the tensor's data as it lies in the file: row-major,
// little-endian.
func (t Tensor) Read() ([]byte, error) {
	f, err := os.Open(t.File)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	defer f.Close()
	data := make([]byte, t.Bytes)
	if _, err := f.ReadAt(data, t.Offset); err != nil {
		return nil, fmt.Errorf("safetensors: %s: tensor %q: %w", t.File, t.Name, err)
	}
	return data, nil
}

// Header is what one file says about its tensors.
type Header struct {
	Path     string
	Tensors  map[string]Tensor
	Metadata map[string]string // the entry __metadata__; nil when there is none
}

// dtypeBits has the width of one element in bits.
var dtypeBits = map[string]int64{
	"BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
	"F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
	"F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
	"F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}

// ReadHeader reads and checks the header of the safetensors file at path. The
// data is not read, and no more memory is taken than the file is long.
//
// Errors wrap ErrTruncated, ErrNotSafetensors (which also says what the file is
// instead, where that can be told) or ErrCorrupt, or come from the file system.
func ReadHeader(path string) (*Header, error) {
	h, err := readHeader(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %s: %w", path, err)
	}
	return h, nil
}

// ParseHeader is ReadHeader for a file in memory; name is for error texts.
func ParseHeader(data []byte, name string) (*Header, error) {
	h, err := parseHeader(bytes.NewReader(data), int64(len(data)), name)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %s: %w", name, err)
	}
	return h, nil
}

func readHeader(path string) (*Header, error) {
	// Opening a pipe would wait for a writer, so ask what it is first.
	info, err := os.Stat(path)
	if err != nil {
		return nil, cause(err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a regular file", ErrNotSafetensors, info.Mode().Type())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, cause(err)
	}
	defer f.Close()
	return parseHeader(f, info.Size(), path)
}

// cause drops the path that os puts into its errors, as ReadHeader adds it.
func cause(err error) error {
	var pathErr *os.PathError
	if errors.As(err, &pathErr) {
		return fmt.Errorf("%s: %w", pathErr.Op, pathErr.Err)
	}
	return err
}

func parseHeader(f io.ReaderAt, size int64, path string) (*Header, error) {
	start := make([]byte, min(size, 512))
	if _, err := f.ReadAt(start, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, cause(err)
	}
	if what := recognise(start); what != "" {
		return nil, fmt.Errorf("%w: %s", ErrNotSafetensors, what)
	}
	if size < 8 {
		return nil, fmt.Errorf("%w: %d bytes, a header length alone takes 8; fetch the file again", ErrTruncated, size)
	}
	length := binary.LittleEndian.Uint64(start)
	if length > maxHeader {
		return nil, fmt.Errorf("%w: it would have a header of %d bytes, the format allows %d", ErrNotSafetensors, length, maxHeader)
	}
	if size > 8 && length > 0 && start[8] != '{' {
		return nil, fmt.Errorf("%w: the header begins with %q, not with {", ErrNotSafetensors, start[8])
	}
	if int64(length) > size-8 {
		return nil, fmt.Errorf("%w: the header needs %d bytes, the file has %d; fetch the file again", ErrTruncated, length+8, size)
	}
	text := make([]byte, length)
	if _, err := f.ReadAt(text, 8); err != nil {
		return nil, cause(err)
	}
	// The format lets a header be padded with spaces.
	h, err := decodeHeader(bytes.TrimRight(text, " "))
	if err != nil {
		return nil, err
	}
	h.Path = path
	if err := h.place(path, 8+int64(length), size); err != nil {
		return nil, err
	}
	return h, nil
}

// recognise names the usual things that lie where weights should, or "".
func recognise(start []byte) string {
	lower := bytes.ToLower(bytes.TrimLeft(start, " \t\r\n\ufeff"))
	switch {
	case bytes.HasPrefix(start, []byte("version https://git-lfs.github.com/spec/")):
		return "it is a Git LFS pointer, the weights were not fetched; run `git lfs pull` in its repository or download the file from the hub"
	case bytes.HasPrefix(lower, []byte("<!doctype")), bytes.HasPrefix(lower, []byte("<html")), bytes.HasPrefix(lower, []byte("<?xml")):
		return "it is a web page saved in place of the weights; download the file itself, logged in if the model asks for it"
	case bytes.HasPrefix(lower, []byte(`{"error`)):
		return "it is a server's error message saved in place of the weights; download the file again"
	case bytes.HasPrefix(start, []byte("GGUF")):
		return "it is a GGUF file; take the model's safetensors weights"
	case bytes.HasPrefix(start, []byte("PK\x03\x04")):
		return "it is a zip archive, perhaps a PyTorch checkpoint; take the model's safetensors weights"
	}
	return ""
}

// entry is a tensor in the header's JSON.
type entry struct {
	Dtype   *string           `json:"dtype"`
	Shape   *[]jsontext.Value `json:"shape"`
	Offsets *[]jsontext.Value `json:"data_offsets"`
}

func decodeHeader(text []byte) (*Header, error) {
	// jsontext refuses a name that comes twice, as the format wants, and
	// nesting deeper than it could recurse.
	var raw map[string]jsontext.Value
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if raw == nil {
		return nil, fmt.Errorf("%w: it is null, not an object", ErrCorrupt)
	}
	h := &Header{Tensors: make(map[string]Tensor, len(raw))}
	for name, value := range raw {
		if name == "__metadata__" {
			if err := json.Unmarshal(value, &h.Metadata); err != nil {
				return nil, fmt.Errorf("%w: __metadata__ must map text to text: %w", ErrCorrupt, err)
			}
			continue
		}
		t, err := decodeEntry(value)
		if err != nil {
			return nil, fmt.Errorf("%w: tensor %q: %w", ErrCorrupt, name, err)
		}
		t.Name = name
		h.Tensors[name] = t
	}
	return h, nil
}

// decodeEntry leaves Offset relative to the start of the data.
func decodeEntry(value jsontext.Value) (Tensor, error) {
	var e entry
	if err := json.Unmarshal(value, &e); err != nil {
		return Tensor{}, err
	}
	if e.Dtype == nil || e.Shape == nil || e.Offsets == nil {
		return Tensor{}, errors.New("it needs dtype, shape and data_offsets")
	}
	bits, ok := dtypeBits[*e.Dtype]
	if !ok {
		return Tensor{}, fmt.Errorf("unknown dtype %q", *e.Dtype)
	}
	t := Tensor{Dtype: *e.Dtype, Shape: make([]int, len(*e.Shape))}
	elements := int64(1)
	for i, v := range *e.Shape {
		n, err := number(v)
		if err != nil {
			return Tensor{}, fmt.Errorf("shape: %w", err)
		}
		if n > math.MaxInt {
			return Tensor{}, fmt.Errorf("shape: %d is too large", n)
		}
		t.Shape[i] = int(n)
		if n > 0 && elements > math.MaxInt64/64/n {
			return Tensor{}, fmt.Errorf("shape %s has too many elements", brief(*e.Shape))
		}
		elements *= n
	}
	if elements*bits%8 != 0 {
		return Tensor{}, fmt.Errorf("shape %v of %s does not fill whole bytes", t.Shape, t.Dtype)
	}
	if len(*e.Offsets) != 2 {
		return Tensor{}, fmt.Errorf("data_offsets must be two numbers, not %d", len(*e.Offsets))
	}
	begin, err := number((*e.Offsets)[0])
	if err != nil {
		return Tensor{}, fmt.Errorf("data_offsets: %w", err)
	}
	end, err := number((*e.Offsets)[1])
	if err != nil {
		return Tensor{}, fmt.Errorf("data_offsets: %w", err)
	}
	if end < begin {
		return Tensor{}, fmt.Errorf("data_offsets end at %d, before their start %d", end, begin)
	}
	t.Offset, t.Bytes = begin, end-begin
	if want := elements * bits / 8; t.Bytes != want {
		return Tensor{}, fmt.Errorf("shape %v of %s takes %d bytes, data_offsets give %d", t.Shape, t.Dtype, want, t.Bytes)
	}
	return t, nil
}

// number reads a whole number from 0 to 1<<63-1, written in digits only.
func number(v jsontext.Value) (int64, error) {
	text := strings.TrimSpace(string(v))
	var n int64
	if text == "" || len(text) > 19 {
		return 0, fmt.Errorf("%.40q is not a size", text)
	}
	for _, c := range []byte(text) {
		if c < '0' || c > '9' || n > (math.MaxInt64-int64(c-'0'))/10 {
			return 0, fmt.Errorf("%.40q is not a size", text)
		}
		n = n*10 + int64(c-'0')
	}
	return n, nil
}

func brief(values []jsontext.Value) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, v := range values {
		if i == 8 {
			b.WriteString(" …")
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.Write(v)
	}
	b.WriteByte(']')
	return b.String()
}

// place checks that the tensors fill the data part from its start at byte base
// of the file to the file's end at size, without overlap and without a hole,
// and makes their offsets count from the start of the file.
func (h *Header) place(path string, base, size int64) error {
	tensors := make([]Tensor, 0, len(h.Tensors))
	for _, t := range h.Tensors {
		tensors = append(tensors, t)
	}
	slices.SortFunc(tensors, func(a, b Tensor) int {
		if a.Offset != b.Offset {
			if a.Offset < b.Offset {
				return -1
			}
			return 1
		}
		// An empty tensor may share its place with the one that starts there.
		if a.Bytes != b.Bytes {
			if a.Bytes < b.Bytes {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	var end int64
	for _, t := range tensors {
		if t.Offset < end {
			return fmt.Errorf("%w: tensor %q starts at byte %d of the data, inside the one before it, which ends at %d", ErrCorrupt, t.Name, t.Offset, end)
		}
		if t.Offset > end {
			return fmt.Errorf("%w: bytes %d to %d of the data, before tensor %q, belong to no tensor", ErrCorrupt, end, t.Offset, t.Name)
		}
		end = t.Offset + t.Bytes
		t.File, t.Offset = path, t.Offset+base
		h.Tensors[t.Name] = t
	}
	if have := size - base; end > have {
		return fmt.Errorf("%w: the tensors need %d bytes of data, the file has %d; fetch the file again", ErrTruncated, end, have)
	} else if end < have {
		return fmt.Errorf("%w: %d bytes after the last tensor belong to no tensor", ErrCorrupt, have-end)
	}
	return nil
}
