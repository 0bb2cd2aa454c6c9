//go:build cgo && ((linux && (amd64 || arm64)) || (darwin && arm64))

package mlxc

// #include "record.h"
import "C"

import "errors"

// Records reports whether libmlxc can launch kernels again, as that of the CUDA build can.
func Records() bool { return C.gf_records() != 0 }

// Clusters reports whether kernels of the worker's device may ask for clusters of two
// blocks: what MLX does with graphs makes that wrong without libmlxc's help.
func Clusters() bool { return C.gf_cluster_launches() != 0 }

// Record evaluates out, arrays made of in, and records the kernels that do it. It
// gives the results, which take the place of out. The error says why that is refused;
// out may be evaluated then or not.
func Record(in, out []Handle, stream Handle) (record uintptr, results []Handle, err error) {
	results = make([]Handle, len(out))
	r := C.gf_record_make(first(in), C.size_t(len(in)), first(out), C.size_t(len(out)), C.gf_h(stream), first(results))
	if r == 0 {
		return 0, nil, errors.New(C.GoString(C.gf_record_error()))
	}
	return uintptr(r), results, nil
}

// States of a record.
const (
	RecordInvalid = -1 // an array's memory has moved
	RecordBusy    = 0  // somebody holds a result
	RecordReady   = 1
)

// RecordState says whether a record can run.
func RecordState(record uintptr) int { return int(C.gf_record_look(C.uintptr_t(record))) }

// RecordLaunches is the number of kernels.
func RecordLaunches(record uintptr) int { return int(C.gf_record_count(C.uintptr_t(record))) }

// RecordBytes is the memory that a record has of its own, its results included.
func RecordBytes(record uintptr) int { return int(C.gf_record_size(C.uintptr_t(record))) }

// RunRecord launches the kernels with other inputs and gives n results.
func RunRecord(record uintptr, in []Handle, n int) ([]Handle, error) {
	results := make([]Handle, n)
	if C.gf_record_again(C.uintptr_t(record), first(in), C.size_t(len(in)), first(results)) != 0 {
		return nil, errors.New(C.GoString(C.gf_record_error()))
	}
	return results, nil
}

// FreeRecord waits for the record's last run.
func FreeRecord(record uintptr) { C.gf_record_drop(C.uintptr_t(record)) }
