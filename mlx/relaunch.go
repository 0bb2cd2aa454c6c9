package mlx

import (
	"errors"
	"fmt"
	"slices"

	"github.com/godflash/godflash/internal/mlxc"
)

// MLX takes the host 5 to 10 microseconds for each operation that it evaluates,
// longer than many kernels run. A compiled function that consists of custom kernels
// can do without: what its first evaluation launches is recorded, and launched again
// as one CUDA graph.

const (
	// mostRecords is the number of records of one function: a record can run again
	// when nobody holds its results, so calls that overlap take one each.
	mostRecords = 8
	// mostHeld is the number of calls after which results that somebody still holds
	// are taken to be kept for long; the record then goes, and another is made.
	mostHeld = 32
	// mostRefused is the number of calls in a row that are not recorded after which none
	// is. What stands in the way may be a call's own: two inputs in the same memory, or
	// too little memory.
	mostRefused = 3
)

// relaunches is the recorded side of a [Compiled].
type relaunches struct {
	calls   int
	refused error // why the last call was not recorded
	times   int   // calls in a row that were not
	records []record
}

type record struct {
	h       uintptr
	results int
	bytes   int // of the device's memory
	held    int // calls that found it busy, since its last run
}

// relaunch is Call from a record; false where MLX is to do the work.
func (c *Compiled) relaunch(s *Scope, in []mlxc.Handle, arrays []Array) ([]Array, bool) {
	r := &c.again
	if r.times == mostRefused || !s.lib.cuda || s.device != DeviceGPU || s.lib.core.tracing > 0 {
		return nil, false
	}
	if r.calls++; r.calls < 2 {
		return nil, false // the first traces the function, and compiles its kernels
	}
	if !mlxc.Records() {
		r.times = mostRefused - 1
		return nil, c.refuse(errors.New("the installed libmlxc does not record"))
	}
	if s.AsyncEval(arrays...) != nil {
		return nil, true
	}
	for i := 0; i < len(r.records); i++ {
		record := &r.records[i]
		switch mlxc.RecordState(record.h) {
		case mlxc.RecordBusy:
			if record.held++; record.held < mostHeld {
				continue
			}
		case mlxc.RecordReady:
			out, err := mlxc.RunRecord(record.h, in, record.results)
			if err == nil {
				record.held = 0
				return s.took(opCompiled, out), true
			}
			s.lib.log.Debug("mlx: kernels were not launched again", "error", err)
		}
		mlxc.FreeRecord(record.h)
		r.records = slices.Delete(r.records, i, i+1)
		i--
	}
	if len(r.records) == mostRecords {
		return nil, false
	}
	out, status := c.apply(s, in)
	if status != mlxc.OK {
		s.lib.core.traceErr = nil
		return nil, false // MLX tells the error once more
	}
	defer mlxc.Free(out)
	h, results, err := mlxc.Record(in, out, s.stream)
	if err != nil {
		return nil, c.refuse(err)
	}
	s.lib.log.Debug("mlx: kernels are launched again", "kernels", mlxc.RecordLaunches(h), "records", len(r.records)+1)
	r.records, r.refused, r.times = append(r.records, record{h: h, results: len(results), bytes: mlxc.RecordBytes(h)}), nil, 0
	return s.took(opCompiled, results), true
}

// refuse has MLX do the work of this call, and of all from the last refusal on.
func (c *Compiled) refuse(err error) bool {
	c.again.refused = err
	c.again.times++
	c.owner.lib.log.Debug("mlx: a function's kernels are not launched again", "error", err)
	return false
}

// Relaunches says how many kernels a call launches at once, see
// [CompileOptions.Relaunch]; an error why none, nil before the second call.
func (c *Compiled) Relaunches() (int, error) {
	if n := len(c.again.records); n > 0 {
		return mlxc.RecordLaunches(c.again.records[n-1].h), nil
	}
	if err := c.again.refused; err != nil {
		return 0, fmt.Errorf("mlx: a function's kernels are not launched again: %w", err)
	}
	return 0, nil
}

// RelaunchBytes is the device's memory that is kept for calls to come, see
// [CompileOptions.Relaunch]: for what lies between the kernels, and for the results.
func (c *Compiled) RelaunchBytes() int {
	n := 0
	for _, r := range c.again.records {
		n += r.bytes
	}
	return n
}

func (r *relaunches) drop() {
	for _, record := range r.records {
		mlxc.FreeRecord(record.h)
	}
	*r = relaunches{}
}
