//go:build !(cgo && ((linux && (amd64 || arm64)) || (darwin && arm64)))

package mlxc

import "errors"

// Records is false: MLX is not here.
func Records() bool { return false }

// Clusters is not here.
func Clusters() bool { return false }

// Record is not here.
func Record([]Handle, []Handle, Handle) (record uintptr, results []Handle, err error) {
	return 0, nil, errors.ErrUnsupported
}

// States of a record.
const (
	RecordInvalid = -1
	RecordBusy    = 0
	RecordReady   = 1
)

// RecordState is not here.
func RecordState(uintptr) int { return RecordInvalid }

// RecordLaunches is not here.
func RecordLaunches(uintptr) int { return 0 }

// RecordBytes is not here.
func RecordBytes(uintptr) int { return 0 }

// RunRecord is not here.
func RunRecord(uintptr, []Handle, int) ([]Handle, error) { return nil, errors.ErrUnsupported }

// FreeRecord is not here.
func FreeRecord(uintptr) {}
