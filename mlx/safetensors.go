package mlx

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/godflash/godflash/internal/mlxc"
	"github.com/godflash/godflash/internal/safetensors"
)

var (
	opLoad     = newOp("LoadSafetensors", "mlx_load_safetensors", "")
	opLoadFrom = newOp("LoadSafetensorsFrom", "mlx_load_safetensors_reader", "")
	opSave     = newOp("SaveSafetensors", "mlx_array_data_uint8", "")
	opSaveTo   = newOp("SaveSafetensorsTo", "mlx_array_data_uint8", "")
)

// fileDtypes are the types of a safetensors file that MLX reads. Eight-bit floats
// arrive as their bytes, Uint8; Float64 it neither reads nor writes.
var fileDtypes = map[string]Dtype{
	"BOOL": Bool, "U8": Uint8, "U16": Uint16, "U32": Uint32, "U64": Uint64, "I8": Int8, "I16": Int16, "I32": Int32, "I64": Int64,
	"F16": Float16, "F32": Float32, "BF16": BFloat16, "C64": Complex64, "F8_E4M3": Uint8,
}

// LoadSafetensors gives the arrays of a file by name, and the file's metadata.
// The header is read and checked at once, before MLX sees the file; the data is
// read when an array is evaluated, so the file must not be changed until then.
//
// An error is returned and also becomes the scope's error. Errors of the file
// are those of the file system (fs.ErrNotExist) or say what is wrong in it.
// (mlx_load_safetensors)
func (s *Scope) LoadSafetensors(path string) (map[string]Array, map[string]string, error) {
	if !s.begin(opLoad) {
		return nil, nil, s.Err()
	}
	if !mlxc.OnWorker() {
		s.failed(opLoad, mlxc.OffWorker, path)
		return nil, nil, s.Err()
	}
	arrays, metadata, err := s.load(path)
	if err != nil {
		s.record(&OpError{Op: "LoadSafetensors", Args: strconv.Quote(path), Err: err})
		return nil, nil, s.Err()
	}
	return arrays, metadata, nil
}

// LoadSafetensorsFrom is LoadSafetensors for a file that r gives; it reads r to its
// end and keeps a copy until the arrays are evaluated or freed. (mlx_load_safetensors_reader)
func (s *Scope) LoadSafetensorsFrom(r io.Reader) (map[string]Array, map[string]string, error) {
	if !s.begin(opLoadFrom) {
		return nil, nil, s.Err()
	}
	if !mlxc.OnWorker() {
		s.failed(opLoadFrom, mlxc.OffWorker, "")
		return nil, nil, s.Err()
	}
	arrays, metadata, err := s.loadFrom(r)
	if err != nil {
		s.record(&OpError{Op: "LoadSafetensorsFrom", Err: err})
		return nil, nil, s.Err()
	}
	return arrays, metadata, nil
}

func (s *Scope) loadFrom(r io.Reader) (map[string]Array, map[string]string, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, nil, err
	}
	header, err := safetensors.ParseHeader(data, "memory")
	if err != nil {
		return nil, nil, err
	}
	return s.take(opLoadFrom, header, func(each func(string, mlxc.Handle)) int {
		return mlxc.LoadSafetensorsBytes(data, s.lib.files, each)
	})
}

func (s *Scope) load(path string) (map[string]Array, map[string]string, error) {
	header, err := safetensors.ReadHeader(path)
	if err != nil {
		return nil, nil, err
	}
	cpath, done, err := plainPath(path)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	return s.take(opLoad, header, func(each func(string, mlxc.Handle)) int {
		return mlxc.LoadSafetensors(cpath, s.lib.files, each)
	})
}

// take has load give the arrays that header names, if MLX can read them all.
func (s *Scope) take(o op, header *safetensors.Header, load func(each func(name string, h mlxc.Handle)) int) (map[string]Array, map[string]string, error) {
	for name, t := range header.Tensors {
		if _, ok := fileDtypes[t.Dtype]; !ok {
			return nil, nil, fmt.Errorf("tensor %q has type %s, which MLX does not read", name, t.Dtype)
		}
		if strings.ContainsRune(name, 0) {
			return nil, nil, fmt.Errorf("tensor name %q holds a zero byte", name)
		}
		for _, d := range t.Shape {
			if !fits(d) {
				return nil, nil, fmt.Errorf("tensor %q has a length of %d; MLX takes at most 2147483647", name, d)
			}
		}
	}
	arrays := make(map[string]Array, len(header.Tensors))
	status := load(func(name string, h mlxc.Handle) {
		arrays[name] = s.put(o, h)
	})
	if status != mlxc.OK {
		msg := cleanMessage(mlxc.LastError())
		for _, a := range arrays {
			s.drop(a)
		}
		return nil, nil, fmt.Errorf("MLX: %s", msg)
	}
	if len(arrays) != len(header.Tensors) {
		return nil, nil, fmt.Errorf("the header names %d tensors, MLX found %d", len(header.Tensors), len(arrays))
	}
	return arrays, header.Metadata, nil
}

// plainPath gives a path that is safe to hand to mlx-c, which takes its own
// error texts, paths included, as printf formats: for a path with a percent
// sign, the name of an open file descriptor. done closes it.
func plainPath(path string) (plain string, done func(), err error) {
	if !strings.ContainsRune(path, '%') {
		return path, func() {}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return "", nil, err
	}
	dir := "/proc/self/fd"
	if runtime.GOOS == "darwin" {
		dir = "/dev/fd"
	}
	return filepath.Join(dir, strconv.Itoa(int(f.Fd()))), func() { f.Close() }, nil
}

// SaveSafetensors evaluates the arrays and writes them to a file, sorted by
// name. The file appears under its name only when it is complete, replacing one
// that is there. metadata may be nil. An error is returned and also becomes the
// scope's error. (mlx_array_data_uint8; the file is written by this package)
func (s *Scope) SaveSafetensors(path string, arrays map[string]Array, metadata map[string]string) error {
	if !s.begin(opSave) {
		return s.Err()
	}
	if !mlxc.OnWorker() {
		s.failed(opSave, mlxc.OffWorker, path)
		return s.Err()
	}
	err := replaceFile(path, func(w io.Writer) error { return s.save(w, arrays, metadata) })
	if err != nil {
		s.record(&OpError{Op: "SaveSafetensors", Args: strconv.Quote(path), Err: err})
	}
	return s.Err()
}

// SaveSafetensorsTo is SaveSafetensors into w. (mlx_array_data_uint8; the bytes are made by this package)
func (s *Scope) SaveSafetensorsTo(w io.Writer, arrays map[string]Array, metadata map[string]string) error {
	if !s.begin(opSaveTo) {
		return s.Err()
	}
	if !mlxc.OnWorker() {
		s.failed(opSaveTo, mlxc.OffWorker, "")
		return s.Err()
	}
	if err := s.save(w, arrays, metadata); err != nil {
		s.record(&OpError{Op: "SaveSafetensorsTo", Err: err})
	}
	return s.Err()
}

func (s *Scope) save(w io.Writer, arrays map[string]Array, metadata map[string]string) error {
	var extras []mlxc.Handle
	defer func() {
		if len(extras) > 0 {
			mlxc.Free(extras)
		}
	}()
	var list []safetensors.WriteTensor
	for i, name := range slices.Sorted(maps.Keys(arrays)) {
		a := arrays[name]
		if !a.Valid() {
			return fmt.Errorf("array %q: %w", name, ErrZeroArray)
		}
		data, extra, status := mlxc.Read(a.use(s, opSave, i+1), s.stream)
		if extra != 0 {
			extras = append(extras, extra)
		}
		if status != mlxc.OK {
			return fmt.Errorf("array %q: MLX: %s", name, cleanMessage(mlxc.LastError()))
		}
		info := a.describe()
		dtype, ok := fileDtype(info.Dtype)
		if !ok {
			return fmt.Errorf("array %q is %v, which MLX does not read from such files; convert with AsType", name, info.Dtype)
		}
		list = append(list, safetensors.WriteTensor{
			Name: name, Dtype: dtype, Shape: info.Shape,
			Data: unsafe.Slice((*byte)(data), a.NBytes()), // MLX's memory, alive until the arrays are freed
		})
	}
	return safetensors.Encode(w, list, metadata)
}

// replaceFile has f write a file that appears under its name only when it is complete.
func replaceFile(path string, f func(w io.Writer) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".saving-*"+filepath.Ext(path))
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // no longer there after the rename
	if err := f(tmp); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	if err := os.Chmod(tmp.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

func fileDtype(dt Dtype) (string, bool) {
	for name, d := range fileDtypes {
		if d == dt && name != "F8_E4M3" {
			return name, true
		}
	}
	return "", false
}
