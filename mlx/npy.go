package mlx

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/godflash/godflash/internal/mlxc"
)

var (
	opLoadNPY     = newOp("LoadNPY", "mlx_load", "")
	opLoadNPYFrom = newOp("LoadNPYFrom", "mlx_load_reader", "")
	opSaveNPY     = newOp("SaveNPY", "mlx_save_writer", "")
	opSaveNPYTo   = newOp("SaveNPYTo", "mlx_save_writer", "")
)

// LoadNPY gives the array of a file as NumPy's save makes it. The header is
// checked at once; the data is read when the array is evaluated, so the file must
// not be changed until then. An error becomes the scope's. (mlx_load)
func (s *Scope) LoadNPY(path string) Array {
	return s.loadFile(opLoadNPY, strconv.Quote(path), func() (mlxc.Handle, error) {
		f, err := os.Open(path)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return 0, err
		}
		if !info.Mode().IsRegular() {
			return 0, errors.New("it is no regular file")
		}
		if err := checkNPY(f, info.Size()); err != nil {
			return 0, err
		}
		plain, done, err := plainPath(path)
		if err != nil {
			return 0, err
		}
		defer done()
		return mlxc.LoadNPY(plain, s.lib.files), nil
	})
}

// LoadNPYFrom is LoadNPY for a file that r gives; it reads r to its end and keeps
// a copy until the array is evaluated or freed. (mlx_load_reader)
func (s *Scope) LoadNPYFrom(r io.Reader) Array {
	return s.loadFile(opLoadNPYFrom, "", func() (mlxc.Handle, error) {
		data, err := io.ReadAll(r)
		if err != nil {
			return 0, err
		}
		if err := checkNPY(bytes.NewReader(data), int64(len(data))); err != nil {
			return 0, err
		}
		return mlxc.LoadNPYBytes(data, s.lib.files), nil
	})
}

func (s *Scope) loadFile(o op, args string, load func() (mlxc.Handle, error)) Array {
	if !s.begin(o) {
		return Array{}
	}
	if !mlxc.OnWorker() {
		return s.failed(o, mlxc.OffWorker, args)
	}
	h, err := load()
	if err != nil {
		return s.record(&OpError{Op: ops[o].name, Args: args, Err: err})
	}
	if h <= mlxc.OffWorker {
		return s.failed(o, h, args)
	}
	return s.put(o, h)
}

// npyHeader is the text that NumPy writes. MLX looks at fixed places in it and
// checks nothing.
var npyHeader = regexp.MustCompile(`^\{'descr': '([<|=>])([a-zA-Z])(\d)', 'fortran_order': (True|False), 'shape': \(([0-9, ]*)\),? *\} *\n?$`)

const maxNPYHeader = 1 << 20

// checkNPY finds out whether MLX can read the file without reading beyond its end.
func checkNPY(f io.ReaderAt, size int64) error {
	start := make([]byte, min(size, 12))
	if _, err := f.ReadAt(start, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !bytes.HasPrefix(start, []byte("\x93NUMPY")) || len(start) < 12 {
		return errors.New("it is no NPY file: it does not begin as one")
	}
	var base, length int64
	switch start[6] {
	case 1:
		base, length = 10, int64(binary.LittleEndian.Uint16(start[8:]))
	case 2, 3:
		base, length = 12, int64(binary.LittleEndian.Uint32(start[8:]))
	default:
		return fmt.Errorf("NPY version %d is not known", start[6])
	}
	if length > maxNPYHeader || base+length > size {
		return fmt.Errorf("it is cut off: the header needs %d bytes, the file has %d", base+length, size)
	}
	text := make([]byte, length)
	if _, err := f.ReadAt(text, base); err != nil {
		return err
	}
	m := npyHeader.FindStringSubmatch(string(text))
	if m == nil {
		return fmt.Errorf("a header that MLX does not read: %.100q", text)
	}
	item := int64(m[3][0] - '0')
	if !strings.Contains(" b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 V2 ", " "+m[2]+m[3]+" ") {
		return fmt.Errorf("elements of type %s%s are not known to MLX", m[2], m[3])
	}
	n := item
	dims := 0
	for _, d := range strings.FieldsFunc(m[5], func(r rune) bool { return r == ',' || r == ' ' }) {
		v, err := strconv.ParseInt(d, 10, 32)
		if err != nil || v > 0 && n > (1<<62)/v {
			return fmt.Errorf("a length of %s is not possible", d)
		}
		n *= v
		dims++
	}
	if dims > mlxc.MaxDims {
		return fmt.Errorf("%d dimensions; %s", dims, limitText)
	}
	if n > size-base-length {
		return fmt.Errorf("it is cut off: the data needs %d bytes, the file has %d", n, size-base-length)
	}
	return nil
}

// SaveNPY evaluates the array and writes it to a file that NumPy's load reads.
// The file appears under its name only when it is complete. NumPy has no type for
// BFloat16 and shows its bytes; MLX reads them back. An error becomes the scope's.
// (mlx_save_writer)
func (s *Scope) SaveNPY(path string, a Array) error {
	return s.saveNPY(opSaveNPY, strconv.Quote(path), a, func(data []byte) error {
		return replaceFile(path, func(w io.Writer) error {
			_, err := w.Write(data)
			return err
		})
	})
}

// SaveNPYTo is SaveNPY into w. (mlx_save_writer)
func (s *Scope) SaveNPYTo(w io.Writer, a Array) error {
	return s.saveNPY(opSaveNPYTo, "", a, func(data []byte) error {
		_, err := w.Write(data)
		return err
	})
}

func (s *Scope) saveNPY(o op, args string, a Array, write func(data []byte) error) error {
	if !s.begin(o) {
		return s.Err()
	}
	x := a.use(s, o, 1)
	if x == 0 {
		s.zeroInput(o, args, a)
		return s.Err()
	}
	if i := mlxc.Describe(x); i.Status == mlxc.OK && i.Size == 0 {
		// MLX asks for the address of the data, which some empty arrays do not have on CUDA.
		t := s.steps()
		defer t.close(closedByClose)
		e := t.Zeros(a.Dtype(), a.Shape()...)
		if err := t.Err(); err != nil {
			s.Fail(err)
			return s.Err()
		}
		x = e.handle(o, 1)
	}
	data, status := mlxc.SaveNPY(x)
	switch status {
	case mlxc.OffThread:
		s.failed(o, mlxc.OffWorker, args)
	case mlxc.Failed:
		s.failed(o, 0, args, a)
	default:
		if err := write(data); err != nil {
			s.record(&OpError{Op: ops[o].name, Inputs: describe([]Array{a}), Args: args, Err: err})
		}
	}
	return s.Err()
}
