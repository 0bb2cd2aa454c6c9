package mlx

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
)

// ggufReader walks a GGUF file. The library below MLX trusts such files and ends
// the process, or reads beyond them, where they lie; so everything that it would
// follow is followed here before.
type ggufReader struct {
	r    *bufio.Reader
	at   int64
	size int64
}

// Numbers of the format's value types.
const (
	ggufString = 8
	ggufArray  = 9
)

// ggufValueSize is the length of a value by its type, 0 where it is not fixed.
var ggufValueSize = []int64{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}

// ggufBlock is how tensor types are stored: so many elements in so many bytes.
var ggufBlock = map[uint32][2]int64{
	0: {1, 4}, 1: {1, 2}, 2: {32, 18}, 3: {32, 20}, 6: {32, 22}, 7: {32, 24}, 8: {32, 34}, 9: {32, 40},
	10: {256, 84}, 11: {256, 110}, 12: {256, 144}, 13: {256, 176}, 14: {256, 210}, 15: {256, 292},
	24: {1, 1}, 25: {1, 2}, 26: {1, 4}, 27: {1, 8}, 28: {1, 8}, 30: {1, 2},
}

// checkGGUF reads the header and gives the keys of the metadata.
func checkGGUF(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	g := &ggufReader{r: bufio.NewReader(f), size: info.Size()}
	keys, err := g.check()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it is cut off")
	}
	return keys, err
}

func (g *ggufReader) check() (keys []string, err error) {
	var head struct {
		Magic            [4]byte
		Version          uint32
		Tensors, Entries uint64
	}
	if err := binary.Read(g.r, binary.LittleEndian, &head); err != nil || string(head.Magic[:]) != "GGUF" {
		return nil, errors.New("it is no GGUF file: it does not begin as one")
	}
	g.at = 24
	if head.Version != 2 && head.Version != 3 {
		return nil, fmt.Errorf("GGUF version %d is not known", head.Version)
	}
	if head.Tensors > uint64(g.size) || head.Entries > uint64(g.size) {
		return nil, errors.New("it names more entries than it has bytes")
	}
	align := int64(32)
	seen := map[string]bool{}
	for range head.Entries {
		key, err := g.name(seen)
		if err != nil {
			return nil, err
		}
		kind, err := g.u32()
		if err != nil {
			return nil, err
		}
		if key == "general.alignment" {
			if kind != 4 {
				return nil, errors.New("general.alignment is no uint32")
			}
			v, err := g.u32()
			if err != nil {
				return nil, err
			}
			if v == 0 || v&(v-1) != 0 || v > 1<<20 {
				return nil, fmt.Errorf("an alignment of %d is not possible", v)
			}
			align = int64(v)
		} else if err := g.value(kind, false); err != nil {
			return nil, fmt.Errorf("metadata %q: %w", key, err)
		}
		keys = append(keys, key)
	}
	type tensor struct {
		name          string
		offset, bytes int64
	}
	var tensors []tensor
	seen = map[string]bool{}
	for range head.Tensors {
		name, err := g.name(seen)
		if err != nil {
			return nil, err
		}
		offset, bytes, err := g.tensor()
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		tensors = append(tensors, tensor{name, offset, bytes})
	}
	base := (g.at + align - 1) / align * align
	for _, t := range tensors {
		if t.offset%align != 0 || t.offset < 0 || t.bytes > g.size-base || t.offset > g.size-base-t.bytes {
			return nil, fmt.Errorf("tensor %q lies outside the file", t.name)
		}
	}
	return keys, nil
}

func (g *ggufReader) skip(n int64) error {
	if n < 0 || n > g.size-g.at {
		return io.ErrUnexpectedEOF
	}
	g.at += n
	for n > 0 {
		k, err := g.r.Discard(int(min(n, 1<<20)))
		if err != nil {
			return err
		}
		n -= int64(k)
	}
	return nil
}

func (g *ggufReader) u32() (uint32, error) {
	var b [4]byte
	_, err := io.ReadFull(g.r, b[:])
	g.at += 4
	return binary.LittleEndian.Uint32(b[:]), err
}

func (g *ggufReader) u64() (int64, error) {
	var b [8]byte
	_, err := io.ReadFull(g.r, b[:])
	g.at += 8
	v := binary.LittleEndian.Uint64(b[:])
	if err == nil && v > math.MaxInt64/16 {
		return 0, fmt.Errorf("a length of %d is not possible", v)
	}
	return int64(v), err
}

// name reads a key, which must be new.
func (g *ggufReader) name(seen map[string]bool) (string, error) {
	n, err := g.u64()
	if err != nil {
		return "", err
	}
	if n > 1<<16 || n > g.size-g.at {
		return "", fmt.Errorf("a name of %d bytes is not possible", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(g.r, b); err != nil {
		return "", err
	}
	g.at += n
	name := string(b)
	// MLX takes error texts, names included, as printf formats.
	if strings.ContainsAny(name, "%\x00") {
		return "", fmt.Errorf("name %q holds a percent sign or a zero byte", name)
	}
	if seen[name] {
		return "", fmt.Errorf("name %q comes twice", name)
	}
	seen[name] = true
	return name, nil
}

func (g *ggufReader) value(kind uint32, inArray bool) error {
	switch {
	case kind == ggufString:
		n, err := g.u64()
		if err != nil {
			return err
		}
		return g.skip(n)
	case kind == ggufArray && inArray:
		return errors.New("arrays in arrays are not supported")
	case kind == ggufArray:
		kind, err := g.u32()
		if err != nil {
			return err
		}
		n, err := g.u64()
		if err != nil {
			return err
		}
		if n > math.MaxInt32 {
			return fmt.Errorf("an array of %d values is not possible", n)
		}
		if kind < uint32(len(ggufValueSize)) && ggufValueSize[kind] > 0 {
			return g.skip(n * ggufValueSize[kind])
		}
		for range n {
			if err := g.value(kind, true); err != nil {
				return err
			}
		}
		return nil
	case kind < uint32(len(ggufValueSize)):
		return g.skip(ggufValueSize[kind])
	}
	return fmt.Errorf("values of type %d are not known", kind)
}

func (g *ggufReader) tensor() (offset, bytes int64, err error) {
	dims, err := g.u32()
	if err != nil {
		return 0, 0, err
	}
	if dims == 0 || dims > 4 {
		return 0, 0, fmt.Errorf("%d dimensions, the format knows 1 to 4", dims)
	}
	n, first := int64(1), int64(0)
	for i := range dims {
		d, err := g.u64()
		if err != nil {
			return 0, 0, err
		}
		if d <= 0 || d > math.MaxInt32 || n > math.MaxInt64/16/d {
			return 0, 0, fmt.Errorf("a length of %d is not possible", d)
		}
		if i == 0 {
			first = d
		}
		n *= d
	}
	kind, err := g.u32()
	if err != nil {
		return 0, 0, err
	}
	block, ok := ggufBlock[kind]
	if !ok {
		return 0, 0, fmt.Errorf("elements of type %d are not known", kind)
	}
	if first%block[0] != 0 {
		return 0, 0, fmt.Errorf("rows of %d elements do not fit blocks of %d", first, block[0])
	}
	offset, err = g.u64()
	return offset, n / block[0] * block[1], err
}
