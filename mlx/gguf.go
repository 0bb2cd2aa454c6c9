package mlx

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/godflash/godflash/internal/mlxc"
)

var (
	opLoadGGUF = newOp("LoadGGUF", "mlx_load_gguf", "")
	opSaveGGUF = newOp("SaveGGUF", "mlx_save_gguf", "")
)

// LoadGGUF gives the arrays and the metadata of a GGUF file by name. Metadata is a
// string, a []string, or an Array of numbers. Tensors of types Q4_0, Q4_1 and Q8_0
// come in MLX's own layout, as NAME.weight with NAME.scales and NAME.biases, and
// fit [Scope.QuantizedMatMul] with groups of 32; other quantised types that MLX
// knows become Float16. An error becomes the scope's. (mlx_load_gguf)
func (s *Scope) LoadGGUF(path string) (map[string]Array, map[string]any, error) {
	if !s.begin(opLoadGGUF) {
		return nil, nil, s.Err()
	}
	if !mlxc.OnWorker() {
		s.failed(opLoadGGUF, mlxc.OffWorker, path)
		return nil, nil, s.Err()
	}
	arrays, metadata, err := s.loadGGUF(path)
	if err != nil {
		s.record(&OpError{Op: "LoadGGUF", Args: strconv.Quote(path), Err: err})
		return nil, nil, s.Err()
	}
	return arrays, metadata, nil
}

func (s *Scope) loadGGUF(path string) (_ map[string]Array, _ map[string]any, err error) {
	keys, err := checkGGUF(path)
	if err != nil {
		return nil, nil, err
	}
	plain, done, err := plainPath(path)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	g := mlxc.LoadGGUF(plain, s.lib.files)
	if mlxc.Handle(g) <= mlxc.OffWorker {
		return nil, nil, fmt.Errorf("MLX: %s", cleanMessage(mlxc.LastError()))
	}
	defer g.Free()
	arrays, metadata := map[string]Array{}, map[string]any{}
	defer func() {
		if err == nil {
			return
		}
		for _, a := range arrays {
			s.drop(a)
		}
		for _, v := range metadata {
			if a, ok := v.(Array); ok {
				s.drop(a)
			}
		}
	}()
	names, ok := g.Keys()
	if !ok {
		return nil, nil, fmt.Errorf("MLX: %s", cleanMessage(mlxc.LastError()))
	}
	for _, name := range names {
		h := g.Array(name)
		if h <= mlxc.OffWorker {
			return arrays, metadata, fmt.Errorf("array %q: MLX: %s", name, cleanMessage(mlxc.LastError()))
		}
		arrays[name] = s.put(opLoadGGUF, h)
	}
	for _, key := range keys {
		v, ok := g.Metadata(key)
		if !ok {
			return arrays, metadata, fmt.Errorf("metadata %q: MLX: %s", key, cleanMessage(mlxc.LastError()))
		}
		switch v := v.(type) {
		case nil:
		case mlxc.Handle:
			metadata[key] = s.put(opLoadGGUF, v)
		default:
			metadata[key] = v
		}
	}
	return arrays, metadata, nil
}

// ggufTypes are the array types that MLX writes.
var ggufTypes = []Dtype{Float32, Float16, Int8, Int16, Int32}

// SaveGGUF evaluates the arrays and writes a GGUF file. Arrays can be Float32,
// Float16, Int8, Int16 or Int32, of at least one element and 1 to 4
// dimensions; metadata values a string, a []string, or an Array of numbers with at
// most one dimension. The file appears under its name only when it is complete.
// An error becomes the scope's. (mlx_save_gguf)
func (s *Scope) SaveGGUF(path string, arrays map[string]Array, metadata map[string]any) error {
	if !s.begin(opSaveGGUF) {
		return s.Err()
	}
	if !mlxc.OnWorker() {
		s.failed(opSaveGGUF, mlxc.OffWorker, path)
		return s.Err()
	}
	if err := s.saveGGUF(path, arrays, metadata); err != nil {
		s.record(&OpError{Op: "SaveGGUF", Args: strconv.Quote(path), Err: err})
	}
	return s.Err()
}

func (s *Scope) saveGGUF(path string, arrays map[string]Array, metadata map[string]any) error {
	g := mlxc.NewGGUF()
	defer g.Free()
	t := s.steps() // for contiguous copies
	defer t.close(closedByClose)
	ready := func(a Array) (mlxc.Handle, error) {
		if a.use(s, opSaveGGUF, 1) == 0 {
			return 0, ErrZeroArray
		}
		if a.Size() == 0 {
			return 0, errors.New("it is empty, which the format does not know")
		}
		c := t.Contiguous(a)
		if err := t.Eval(c); err != nil {
			return 0, err
		}
		return c.handle(opSaveGGUF, 1), nil
	}
	for _, name := range slices.Sorted(maps.Keys(arrays)) {
		a := arrays[name]
		h, err := ready(a)
		switch {
		case err != nil:
			return fmt.Errorf("array %q: %w", name, err)
		case !slices.Contains(ggufTypes, a.Dtype()):
			return fmt.Errorf("array %q is %v, which MLX does not write to such files; convert with AsType", name, a.Dtype())
		case a.NDim() == 0 || a.NDim() > 4:
			return fmt.Errorf("array %q has %d dimensions, the format knows 1 to 4", name, a.NDim())
		case !plainName(name):
			return fmt.Errorf("array %q: the name must be 1 to 64 bytes without percent signs and zero bytes", name)
		}
		if !g.SetArray(name, h) {
			return fmt.Errorf("array %q: MLX: %s", name, cleanMessage(mlxc.LastError()))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		v := metadata[key]
		switch x := v.(type) {
		case string:
			if strings.ContainsRune(x, 0) {
				return fmt.Errorf("metadata %q holds a zero byte", key)
			}
		case []string:
			if len(x) == 0 || slices.ContainsFunc(x, func(t string) bool { return strings.ContainsRune(t, 0) }) {
				return fmt.Errorf("metadata %q is empty or holds a zero byte", key)
			}
		case Array:
			h, err := ready(x)
			if err != nil {
				return fmt.Errorf("metadata %q: %w", key, err)
			}
			if x.NDim() > 1 || x.Dtype() == Complex64 {
				return fmt.Errorf("metadata %q is %v, needed are numbers with at most one dimension", key, x.describe())
			}
			v = h
		default:
			return fmt.Errorf("metadata %q is a %T, not a string, []string or Array", key, v)
		}
		if !plainName(key) {
			return fmt.Errorf("metadata %q: the name must be 1 to 64 bytes without percent signs and zero bytes", key)
		}
		if !g.SetMetadata(key, v) {
			return fmt.Errorf("metadata %q: MLX: %s", key, cleanMessage(mlxc.LastError()))
		}
	}
	// MLX writes to a path and takes what went wrong as a printf format, so the path is one of ours.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".saving-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tmp := filepath.Join(dir, "file.gguf")
	plain, done, err := plainPath(dir)
	if err != nil {
		return err
	}
	defer done()
	if g.Save(filepath.Join(plain, "file.gguf")) != mlxc.OK {
		return fmt.Errorf("MLX: %s", cleanMessage(mlxc.LastError()))
	}
	if err := os.Chmod(tmp, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// plainName keeps away what MLX would cut off or, in an error text, read as a format.
func plainName(name string) bool {
	return len(name) > 0 && len(name) <= 64 && !strings.ContainsAny(name, "%\x00")
}
