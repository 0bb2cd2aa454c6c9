package mlx

import "github.com/godflash/godflash/internal/mlxc"

// Small arrays that the host makes lie, on CUDA, in pages that host and device
// share, and a page moves each time when the other side touches it, which stops
// the device for a tenth of a millisecond. A decoding loop makes such arrays all
// the time: positions, counts, ids. So there int32 arrays of one element are parts
// of a table that the device has made for itself.

// The table's numbers are in [leastNumber, mostNumber).
const (
	leastNumber = -64
	mostNumber  = 1 << 18
)

var opNumber = newOp("number", "", "")

// fromTable is n as int32 [1], or as a scalar; ok is false where it is to be made
// from the host's memory.
func (s *Scope) fromTable(n int32, scalar bool) (a Array, ok bool) {
	if s.device != DeviceGPU || !s.lib.cuda || s.lib.core.tracing > 0 || n < leastNumber || n >= mostNumber || !mlxc.OnWorker() {
		return Array{}, false
	}
	table := s.lib.numberTable()
	if table == 0 {
		return Array{}, false
	}
	at := int(n - leastNumber)
	h := mlxc.SliceAxis(table, 0, at, at+1, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(opNumber, h, ""), true
	}
	a = s.put(opNumber, h)
	if scalar {
		one := a
		a = s.Reshape(one)
		s.Free(one)
	}
	return a, true
}

// numberTable makes it at the first call; 0 where that failed, which the next
// operation will say as well.
func (l *Library) numberTable() mlxc.Handle {
	if !l.numbersTried {
		l.numbersTried = true
		s := l.NewScope("numbers")
		t := s.steps()
		defer t.close(closedByClose)
		a := t.Arange(leastNumber, mostNumber, 1, Int32)
		if t.Eval(a) != nil {
			return 0
		}
		if h := mlxc.Ref(a.handle(opNumber, 1)); h > mlxc.OffWorker {
			l.numbers = h
			s.atEnd(func() { mlxc.Free([]mlxc.Handle{h}) })
		}
	}
	return l.numbers
}
