package mlx

import "github.com/godflash/godflash/internal/mlxc"

// Mark is a point in the life of a scope, see [Scope.Mark].
type Mark struct {
	s          *Scope
	from, free int32
}

var opFreeSince = newOp("FreeSince", "mlx_array_free", "")

// Mark begins a stretch of arrays that [Scope.FreeSince] frees together. An array
// that a scope holds keeps its memory after evaluation though nobody reads it
// again, so a long computation whose steps are not needed frees them before it is
// evaluated: MLX then gives each step's memory back as soon as the next has used
// it. Marks may be nested, the inner one used first.
func (s *Scope) Mark() Mark {
	m := Mark{s: s, from: int32(len(s.slots)), free: s.free}
	s.free = 0 // so that new arrays lie behind those that are there
	return m
}

// FreeSince frees the arrays of s that were made since m, but for keep and for
// those moved elsewhere. A mark serves once. (mlx_array_free)
func (s *Scope) FreeSince(m Mark, keep ...Array) {
	if why := s.closedBy.Load(); why != nil {
		panic(&UseError{Op: ops[opFreeSince].name, Scope: s.name, Ending: *why})
	}
	switch {
	case m.s != s || int(m.from) > len(s.slots):
		s.refuse(opFreeSince, "the mark is of another scope", "")
		return
	case !mlxc.OnWorker():
		s.failed(opFreeSince, mlxc.OffWorker, "")
		return
	}
	list := s.lib.core.scratch[:0]
	s.free = m.free
	for i := int32(len(s.slots)) - 1; i >= m.from; i-- {
		sl := &s.slots[i]
		if sl.h != 0 && !holds(keep, s, i) {
			list = append(list, sl.h)
			sl.h, sl.end = 0, endFree
			sl.gen++
			s.live.Add(-1)
		}
		if sl.h == 0 {
			sl.next, s.free = s.free, i+1
		}
	}
	s.lib.core.scratch = list
	s.lib.core.release(list)
}

func holds(list []Array, s *Scope, slot int32) bool {
	for _, a := range list {
		if a.s == s && a.slot == slot {
			return true
		}
	}
	return false
}
