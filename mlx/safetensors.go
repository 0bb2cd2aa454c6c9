package mlx

import (
	"fmt"
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
	opLoad = newOp("LoadSafetensors", "mlx_load_safetensors", "")
	opSave = newOp("SaveSafetensors", "mlx_array_data_uint8", "")
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

func (s *Scope) load(path string) (map[string]Array, map[string]string, error) {
	header, err := safetensors.ReadHeader(path)
	if err != nil {
		return nil, nil, err
	}
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
	cpath, done, err := plainPath(path)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	arrays := make(map[string]Array, len(header.Tensors))
	status := mlxc.LoadSafetensors(cpath, s.lib.files, func(name string, h mlxc.Handle) {
		arrays[name] = s.put(opLoad, h)
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
	if err := s.save(path, arrays, metadata); err != nil {
		s.record(&OpError{Op: "SaveSafetensors", Args: strconv.Quote(path), Err: err})
	}
	return s.Err()
}

func (s *Scope) save(path string, arrays map[string]Array, metadata map[string]string) error {
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
	f, err := os.CreateTemp(filepath.Dir(path), ".saving-*.safetensors")
	if err != nil {
		return err
	}
	tmp := f.Name()
	defer os.Remove(tmp) // no longer there after the rename
	if err := f.Close(); err != nil {
		return err
	}
	if err := safetensors.Write(tmp, list, metadata); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

func fileDtype(dt Dtype) (string, bool) {
	for name, d := range fileDtypes {
		if d == dt && name != "F8_E4M3" {
			return name, true
		}
	}
	return "", false
}
