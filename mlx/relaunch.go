package mlx

import (
	"errors"
	"fmt"

	"github.com/godflash/godflash/internal/mlxc"
)

// MLX takes the host 5 to 10 microseconds for each operation that it evaluates,
// longer than many kernels run. A compiled function that consists of custom kernels
// can do without: what its first evaluation launches is recorded, and launched again
// as one CUDA graph.

const (
	// mostRecords is the number of records of one function: a record can run again
	// when nobody holds its results, so calls that overlap take one each.
	mostRecords = 4
	// mostBusy is the number of calls in a row for which all may be busy before the
	// oldest goes: somebody keeps its results.
	mostBusy = 16
)

// relaunches is the recorded side of a [Compiled].
type relaunches struct {
	calls   int
	refused error // why nothing is recorded
	records []uintptr
	busy    int // calls in a row that found none free
}

// relaunch is Call from a record; false where MLX is to do the work.
func (c *Compiled) relaunch(s *Scope, in []mlxc.Handle, arrays []Array) ([]Array, bool) {
	r := &c.again
	if r.refused != nil || !s.lib.cuda || s.device != DeviceGPU || s.lib.core.tracing > 0 {
		return nil, false
	}
	if r.calls++; r.calls < 2 {
		return nil, false // the first traces the function, and compiles its kernels
	}
	if !mlxc.Records() {
		return nil, c.refuse(errors.New("the installed libmlxc does not record"))
	}
	if s.AsyncEval(arrays...) != nil {
		return nil, true
	}
	for i := 0; i < len(r.records); i++ {
		record := r.records[i]
		switch mlxc.RecordState(record) {
		case mlxc.RecordBusy:
			continue
		case mlxc.RecordReady:
			out, err := mlxc.RunRecord(record, in, c.results)
			if err == nil {
				r.busy = 0
				return s.took(opCompiled, out), true
			}
			s.lib.log.Debug("mlx: kernels were not launched again", "error", err)
		}
		mlxc.FreeRecord(record)
		r.records = append(r.records[:i], r.records[i+1:]...)
		i--
	}
	if len(r.records) == mostRecords {
		if r.busy++; r.busy < mostBusy {
			return nil, false
		}
		mlxc.FreeRecord(r.records[0])
		r.records = r.records[1:]
	}
	out, status := c.apply(s, in)
	if status != mlxc.OK {
		return nil, false // MLX tells the error once more
	}
	defer mlxc.Free(out)
	record, results, err := mlxc.Record(in, out, s.stream)
	if err != nil {
		return nil, c.refuse(err)
	}
	s.lib.log.Debug("mlx: kernels are launched again", "kernels", mlxc.RecordLaunches(record), "records", len(r.records)+1)
	r.records, r.busy, c.results = append(r.records, record), 0, len(results)
	return s.took(opCompiled, results), true
}

// refuse has MLX do the work from now on.
func (c *Compiled) refuse(err error) bool {
	c.again.refused = err
	c.owner.lib.log.Debug("mlx: a function's kernels are not launched again", "error", err)
	return false
}

// Relaunches says how many kernels a call launches at once, see
// [CompileOptions.Relaunch]; an error why none, nil before the second call.
func (c *Compiled) Relaunches() (int, error) {
	if n := len(c.again.records); n > 0 {
		return mlxc.RecordLaunches(c.again.records[n-1]), nil
	}
	if err := c.again.refused; err != nil {
		return 0, fmt.Errorf("mlx: a function's kernels are not launched again: %w", err)
	}
	return 0, nil
}

func (r *relaunches) drop() {
	for _, record := range r.records {
		mlxc.FreeRecord(record)
	}
	*r = relaunches{}
}
