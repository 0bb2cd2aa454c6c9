package mlx

import (
	"errors"
	"fmt"
	"strings"
)

// Sentinels, for errors.Is.
var (
	// ErrLibraryNotFound: no usable mlx-c library; the error lists every place looked at.
	ErrLibraryNotFound = errors.New("mlx: library not found")
	// ErrUnsupportedPlatform: this build or platform cannot run MLX.
	ErrUnsupportedPlatform = errors.New("mlx: platform not supported")
	// ErrLibraryVersion: a library was found but it is of another version than this package needs.
	ErrLibraryVersion = errors.New("mlx: library version does not fit")
	// ErrNoGPU: DeviceGPU was asked for and the library has none.
	ErrNoGPU = errors.New("mlx: no GPU")
	// ErrClosed: the Library or Scope was closed.
	ErrClosed = errors.New("mlx: closed")
	// ErrOutsideDo: an operation was called on a goroutine that Library.Do did not start.
	ErrOutsideDo = errors.New("called outside Library.Do")
	// ErrInsideDo: a call that must wait for the worker was made on the worker.
	ErrInsideDo = errors.New("mlx: called inside Library.Do")
	// ErrZeroArray: a mandatory input is the zero Array.
	ErrZeroArray = errors.New("zero Array")
)

// ArrayInfo is the shape and type of an operation's input.
type ArrayInfo struct {
	Valid bool // false for the zero Array
	Shape []int
	Dtype Dtype
}

// String looks like float32[2,3].
func (i ArrayInfo) String() string {
	if !i.Valid {
		return "zero Array"
	}
	var b strings.Builder
	b.WriteString(i.Dtype.String())
	b.WriteString(formatInts(i.Shape))
	return b.String()
}

// OpError says which operation failed, on what, and why. It is the sticky
// error of the scope the operation was called on.
type OpError struct {
	Op     string // method of Scope, such as "MatMul"
	Inputs []ArrayInfo
	Args   string // other arguments, "" for none
	Msg    string // MLX's text, or this package's
	Err    error  // a sentinel or cause, may be nil
}

func (e *OpError) Error() string {
	var b strings.Builder
	b.WriteString("mlx: " + e.Op + "(")
	for i, in := range e.Inputs {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(in.String())
	}
	if e.Args != "" {
		if len(e.Inputs) > 0 {
			b.WriteString("; ")
		}
		b.WriteString(e.Args)
	}
	b.WriteString(")")
	if e.Msg != "" {
		b.WriteString(": " + e.Msg)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap gives Err.
func (e *OpError) Unwrap() error { return e.Err }

// PanicError is a panic inside Library.Do.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("mlx: panic inside Library.Do: %v", e.Value) }

// Unwrap gives the panic's value where that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// UseError is the value of the panic for an array or scope used after its end.
type UseError struct {
	Op     string // the operation it was used in
	Input  int    // which input, counted from 1; 0: the scope the operation was called on
	Made   string // the operation that made the array, "" for a scope
	Scope  string // name of the scope
	Ending string // what ended it
}

func (e *UseError) Error() string {
	if e.Input == 0 {
		return fmt.Sprintf("mlx: %s called on scope %q, which was closed by %s", e.Op, e.Scope, e.Ending)
	}
	return fmt.Sprintf("mlx: input %d of %s, made by %s in scope %q, was ended by %s", e.Input, e.Op, e.Made, e.Scope, e.Ending)
}

// Is reports that a UseError is an ErrClosed.
func (e *UseError) Is(target error) bool { return target == ErrClosed }

// cleanMessage cuts mlx-c's own source position off the end of its text.
func cleanMessage(msg string) string {
	if i := strings.LastIndex(msg, " at "); i >= 0 && strings.Contains(msg[i:], ".cpp:") {
		msg = msg[:i]
	}
	return strings.TrimSpace(msg)
}
