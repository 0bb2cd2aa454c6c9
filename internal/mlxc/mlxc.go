// Package mlxc is the border between Go and mlx-c: it loads the library at run
// time and calls it through the C functions of shim.h. Package mlx is its only
// user besides internal/abicheck; nothing here checks that a handle is alive.
//
// Where the platform or the build has no cgo, the same functions exist and
// Load says that the platform is not supported.
package mlxc

import (
	_ "embed" // the header
	"errors"
)

// Header is the text of mlxc.h, which internal/abicheck compiles.
//
//go:embed mlxc.h
var Header string

// Handle is a pointer to an MLX object, 0 for none. As a result, 0 means that
// MLX reported an error (see LastError) and OffWorker that nothing was called.
type Handle = uintptr

// OffWorker is the result of a call on a thread that does not own MLX.
const OffWorker Handle = 1

// MaxDims is the largest number of dimensions, axes or indices in one argument.
const MaxDims = 8

// Ints is a short list passed by value.
type Ints struct {
	N int32
	V [MaxDims]int32
}

// Signature classes of mlxc.h.
const (
	Unary      = "MLXC_UNARY"
	Binary     = "MLXC_BINARY"
	Ternary    = "MLXC_TERNARY"
	Int        = "MLXC_INT"
	Int2       = "MLXC_INT2"
	Bool       = "MLXC_BOOL"
	IntBool    = "MLXC_INT_BOOL"
	IntsOnly   = "MLXC_INTS"
	IntsBool   = "MLXC_INTS_BOOL"
	DtypeOnly  = "MLXC_DTYPE"
	BinaryInt  = "MLXC_BINARY_INT"
	BinaryBool = "MLXC_BINARY_BOOL"
	Scan       = "MLXC_SCAN"
	Fill       = "MLXC_FILL"
	VectorInt  = "MLXC_VECTOR_INT"
)

// Status of the calls that return no handle.
const (
	OK        = 0
	Failed    = -1 // see LastError
	OffThread = -2 // the thread does not own MLX
)

// What Memory does.
const (
	MemoryActive = iota
	MemoryPeak
	MemoryCache
	MemoryResetPeak
	MemoryClearCache
	MemoryCacheLimit
	MemoryLimit
)

// Errors of Load.
var (
	// ErrOpen: the system's loader refused the file; the text is its own.
	ErrOpen = errors.New("cannot be loaded")
	// ErrSymbol: the library lacks a function of mlxc.h, which the text names.
	ErrSymbol = errors.New("lacks a function")
	// ErrPlatform: this build has no way to call the library.
	ErrPlatform = errors.New("platform not supported")
)

// Info describes an array. Shape is the library's memory, valid while the array lives.
type Info struct {
	Shape  []int32
	Size   int
	NBytes int
	Dtype  int
	Status int
}
