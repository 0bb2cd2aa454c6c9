package mlx

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/godflash/godflash/internal/mlxc"
)

// Scope owns arrays. Operations are its methods: the result belongs to the
// scope they are called on, whatever scopes the inputs belong to. Closing a
// scope frees its arrays at once; there are no finalizers.
//
// The first operation that fails sets the scope's error. From then on
// operations on it return the zero Array without calling MLX, so that a whole
// computation can be written without checks and the error read once, from
// Eval, Err, Close or Library.Do.
//
// All methods but Close, Err, Fail, Len and Library must be called inside
// [Library.Do], where only one goroutine runs at a time.
type Scope struct {
	lib      *Library
	stream   mlxc.Handle // where operations run: the library's, or another one inside On
	device   DeviceType  // of stream
	name     string
	ends     []func() // for what the scope owns besides arrays, last one first
	slots    []slot
	free     int32 // index+1 of the first free slot, 0 for none
	live     atomic.Int64
	sticky   atomic.Pointer[error]
	closedBy atomic.Pointer[string]
}

// A slot holds one handle. It has no Go pointers, so the garbage collector and
// cgo's checks pass over it.
type slot struct {
	h    mlxc.Handle
	gen  uint32 // raised each time the slot is emptied
	next int32  // while empty: the next free slot, as Scope.free
	end  ending // what emptied it last
}

type ending uint8

const (
	endFree ending = iota
	endMove
)

func (e ending) String() string {
	if e == endMove {
		return "Scope.Move"
	}
	return "Scope.Free"
}

// What can close a scope.
const (
	closedByClose   = "Scope.Close"
	closedByDo      = "the end of Library.Do"
	closedByLibrary = "Library.Close"
)

// Library is the one the scope was made with.
func (s *Scope) Library() *Library { return s.lib }

// Name is the name given to NewScope, "Do" for the scope of a Do.
func (s *Scope) Name() string { return s.name }

// Len is the number of arrays the scope owns.
func (s *Scope) Len() int { return int(s.live.Load()) }

// Err is the scope's error, nil while all went well.
func (s *Scope) Err() error {
	if p := s.sticky.Load(); p != nil {
		return *p
	}
	return nil
}

// Fail sets the scope's error unless it has one; nil is ignored.
func (s *Scope) Fail(err error) {
	if err != nil {
		s.sticky.CompareAndSwap(nil, &err)
	}
}

// begin reports whether an operation may go on; it panics on a closed scope.
func (s *Scope) begin(o op) bool {
	if why := s.closedBy.Load(); why != nil {
		panic(&UseError{Op: ops[o].name, Scope: s.name, Ending: *why})
	}
	return s.sticky.Load() == nil
}

// put takes a new handle over.
func (s *Scope) put(o op, h mlxc.Handle) Array {
	a := s.adopt(o, h)
	s.lib.core.live.Add(1)
	return a
}

// adopt puts a handle into a slot without counting it as new.
func (s *Scope) adopt(o op, h mlxc.Handle) Array {
	var i int32
	if s.free != 0 {
		i = s.free - 1
		s.free = s.slots[i].next
		s.slots[i].h = h
	} else {
		i = int32(len(s.slots))
		s.slots = append(s.slots, slot{h: h})
	}
	s.live.Add(1)
	return Array{s: s, slot: i, gen: s.slots[i].gen, made: o}
}

// remove empties the slot of an array that lives and gives its handle.
func (s *Scope) remove(a Array, why ending) mlxc.Handle {
	sl := &s.slots[a.slot]
	h := sl.h
	sl.h, sl.end, sl.next = 0, why, s.free
	sl.gen++
	s.free = a.slot + 1
	s.live.Add(-1)
	return h
}

// handles collects the inputs of an operation; false when one is the zero Array.
func (s *Scope) handles(o op, arrays []Array) ([]mlxc.Handle, bool) {
	list := s.lib.core.scratch[:0]
	ok := true
	for i, a := range arrays {
		h := a.use(s, o, i+1)
		ok = ok && h != 0
		list = append(list, h)
	}
	s.lib.core.scratch = list
	return list, ok
}

// failed records MLX's error.
func (s *Scope) failed(o op, h mlxc.Handle, args string, in ...Array) Array {
	if h == mlxc.OffWorker {
		return s.record(&OpError{Op: ops[o].name, Args: args, Err: ErrOutsideDo})
	}
	msg := cleanMessage(mlxc.LastError()) // before describe calls C again
	return s.record(&OpError{Op: ops[o].name, Inputs: describe(in), Args: args, Msg: msg})
}

// refuse records an error that this package found itself.
func (s *Scope) refuse(o op, msg, args string, in ...Array) Array {
	return s.record(&OpError{Op: ops[o].name, Inputs: describe(in), Args: args, Msg: msg})
}

// zeroInput records that a mandatory input is the zero Array, and what failed before where that is known.
func (s *Scope) zeroInput(o op, args string, in ...Array) Array {
	if !mlxc.OnWorker() {
		return s.failed(o, mlxc.OffWorker, args)
	}
	e := &OpError{Op: ops[o].name, Inputs: describe(in), Args: args, Err: ErrZeroArray}
	if first := s.lib.core.failure; first != nil {
		e.Msg, e.Err = "an earlier operation failed", errors.Join(ErrZeroArray, first)
	}
	return s.record(e)
}

func (s *Scope) record(e *OpError) Array {
	s.Fail(e)
	if !errors.Is(e, ErrOutsideDo) && s.lib.core.failure == nil {
		s.lib.core.failure = e
	}
	return Array{}
}

func describe(in []Array) []ArrayInfo {
	out := make([]ArrayInfo, len(in))
	for i, a := range in {
		out[i] = a.describe()
	}
	return out
}

var (
	opMove      = newOp("Move", "", "")
	opRef       = newOp("Ref", "mlx_array_set", "")
	opFree      = newOp("Free", "mlx_array_free", "")
	opEval      = newOp("Eval", "mlx_eval", "")
	opAsyncEval = newOp("AsyncEval", "mlx_async_eval", "")
)

// Move makes s the owner of a and returns the new reference; the old one must
// not be used again. Moving an array into its own scope returns it as it is.
// The data is not touched.
//
// The zero Array moves to the zero Array: an optional array that is absent, or
// the result of an operation that failed in its own scope, must not mark a
// long-lived owner as failed.
func (s *Scope) Move(a Array) Array {
	if !a.Valid() {
		return Array{}
	}
	if !s.begin(opMove) {
		return Array{}
	}
	if !mlxc.OnWorker() {
		return s.failed(opMove, mlxc.OffWorker, "")
	}
	if a.use(s, opMove, 1) == 0 {
		return s.zeroInput(opMove, "", a)
	}
	if a.s == s {
		return a
	}
	return s.adopt(a.made, a.s.remove(a, endMove))
}

// Ref makes a second reference to the data of a, owned by s. The data lives
// until both are freed; while both live, SliceUpdate cannot work in place. (mlx_array_set)
func (s *Scope) Ref(a Array) Array {
	if !s.begin(opRef) {
		return Array{}
	}
	x := a.use(s, opRef, 1)
	if x == 0 {
		return s.zeroInput(opRef, "", a)
	}
	h := mlxc.Ref(x)
	if h <= mlxc.OffWorker {
		return s.failed(opRef, h, "", a)
	}
	return s.put(a.made, h)
}

// Free releases arrays before their scope closes, also those of other scopes
// and of a scope that failed. Zero Arrays are ignored. (mlx_array_free)
func (s *Scope) Free(arrays ...Array) {
	if why := s.closedBy.Load(); why != nil {
		panic(&UseError{Op: "Free", Scope: s.name, Ending: *why})
	}
	if len(arrays) == 1 && arrays[0].Valid() { // C itself looks at the thread
		one := [1]mlxc.Handle{arrays[0].use(s, opFree, 1)}
		if mlxc.Free(one[:]) == mlxc.OffThread {
			s.failed(opFree, mlxc.OffWorker, "")
			return
		}
		arrays[0].s.remove(arrays[0], endFree)
		s.lib.core.live.Add(-1)
		return
	}
	if !mlxc.OnWorker() {
		s.failed(opFree, mlxc.OffWorker, "")
		return
	}
	list := s.lib.core.scratch[:0]
	for i, a := range arrays {
		if a.use(s, opFree, i+1) != 0 {
			list = append(list, a.s.remove(a, endFree))
		}
	}
	s.lib.core.scratch = list
	s.lib.core.release(list)
}

// Eval computes the arrays and waits for them. Arrays need no Eval before
// ToSlice or Item, but what a loop carries along must be evaluated each time
// round, or its graph grows without end. It returns the scope's error. (mlx_eval)
func (s *Scope) Eval(arrays ...Array) error { return s.eval(opEval, arrays) }

// AsyncEval starts computing the arrays and does not wait; a later Eval,
// ToSlice or Item does. It returns the scope's error. (mlx_async_eval)
func (s *Scope) AsyncEval(arrays ...Array) error { return s.eval(opAsyncEval, arrays) }

func (s *Scope) eval(o op, arrays []Array) error {
	if !s.begin(o) {
		return s.Err()
	}
	list, ok := s.handles(o, arrays)
	if !ok {
		s.zeroInput(o, "", arrays...)
		return s.Err()
	}
	switch mlxc.Eval(list, o == opAsyncEval) {
	case mlxc.OffThread:
		s.failed(o, mlxc.OffWorker, "")
	case mlxc.Failed:
		s.failed(o, 0, "", arrays...)
	}
	return s.Err()
}

// Close frees the scope's arrays and returns the scope's error. It may be
// called on any goroutine and more than once; outside Library.Do it waits for
// its turn on the worker.
func (s *Scope) Close() error {
	if s.closedBy.Load() == nil {
		s.lib.core.onWorker(func() { s.close(closedByClose) })
	}
	return s.Err()
}

// atEnd has f called on the worker when the scope closes.
func (s *Scope) atEnd(f func()) { s.ends = append(s.ends, f) }

// close runs on the worker.
func (s *Scope) close(by string) {
	if !s.closedBy.CompareAndSwap(nil, &by) {
		return
	}
	for _, end := range slices.Backward(s.ends) {
		end()
	}
	s.ends = nil
	c := s.lib.core
	list := c.scratch[:0]
	for i := range s.slots {
		if h := s.slots[i].h; h != 0 {
			list = append(list, h)
		}
	}
	c.scratch = list
	c.release(list)
	c.keepSlots(s.slots)
	s.slots, s.free = nil, 0
	s.live.Store(0)
	c.forget(s)
}
