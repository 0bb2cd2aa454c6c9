// Package replay keeps recorded graphs of functions that run again and again
// with other arrays of the same shapes: the passes of a decoding cycle. To build
// such a graph operation by operation costs the host more than a GPU needs to
// run it; MLX copies a recorded one in a fraction of the time.
package replay

import (
	"context"
	"sync"

	"github.com/godflash/godflash/mlx"
)

const (
	// recordAt is the use at which a function is recorded. To record takes a few
	// times as long as to build, so what comes up now and then is only built.
	recordAt = 3
	// most bounds the recorded graphs, mostSeen the kinds looked out for.
	most, mostSeen = 64, 512
	// share is the part of the memory that MLX may have which graphs that are launched
	// again may have of their own. Beyond it those go that were not used for idle uses
	// of others: for another size, or for rows that the controller has given up.
	share, idle = 8, 256
)

// Steps are the recorded functions of a model, by kind and size. All methods but Close run
// on the library's worker.
type Steps struct {
	lib *mlx.Library

	mu     sync.Mutex // Close comes from any goroutine
	steps  map[key]*Step
	seen   map[string]int // uses of a kind that were not replayed
	clock  uint64
	bytes  int // of all steps
	limit  int // 0 before the first step has any
	closed bool
}

type key struct {
	kind string
	size int
}

// Step is one recorded function.
type Step struct {
	// Layout is what the function noted about its results while it was recorded.
	Layout any

	of       *Steps
	scope    *mlx.Scope
	compiled *mlx.Compiled
	used     uint64
	bytes    int
}

// New makes an empty set of steps.
func New(lib *mlx.Library) *Steps {
	return &Steps{lib: lib, steps: map[key]*Step{}, seen: map[string]int{}}
}

// Of is the step of a kind for a size. The two stand for everything that f's graph
// depends on, the shapes of its inputs included. It is nil before the kind has come
// up often enough, in whatever size, and after Close: the caller then builds the
// graph itself. f is recorded at the step's first Run; see [mlx.Func] for what it
// may do. It must not depend on a sequence.
func (st *Steps) Of(kind string, size int, f func(p *Step) mlx.Func) *Step {
	if st == nil {
		return nil
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return nil
	}
	st.clock++
	key := key{kind, size}
	if p := st.steps[key]; p != nil {
		p.used = st.clock
		return p
	}
	if len(st.seen) == mostSeen {
		clear(st.seen)
	}
	if st.seen[kind]++; st.seen[kind] < recordAt {
		return nil
	}
	if len(st.steps) == most {
		st.dropOldest(0)
	}
	p := &Step{of: st, scope: st.lib.NewScope("recorded step"), used: st.clock}
	p.compiled = p.scope.Compile(f(p), mlx.CompileOptions{Unfused: true, Relaunch: true})
	st.steps[key] = p
	return p
}

// dropOldest drops the step that was used least recently; false where that is less
// than so many uses ago, or there is none.
func (st *Steps) dropOldest(ago uint64) bool {
	var oldest key
	for key, p := range st.steps {
		if st.steps[oldest] == nil || p.used < st.steps[oldest].used {
			oldest = key
		}
	}
	p := st.steps[oldest]
	if p == nil || st.clock-p.used < ago {
		return false
	}
	p.scope.Close() // on the worker already: it does not wait
	st.bytes -= p.bytes
	delete(st.steps, oldest)
	return true
}

// has notes the memory that a step has.
func (st *Steps) has(p *Step, bytes int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return
	}
	st.bytes += bytes - p.bytes
	p.bytes = bytes
	if st.limit == 0 {
		limit, err := st.lib.MemoryLimit(context.Background())
		if err != nil {
			return
		}
		st.limit = int(limit / share)
	}
	for st.bytes > st.limit && st.dropOldest(idle) {
	}
}

// Run is the function of in; the results belong to s. Errors are the scope's.
func (p *Step) Run(s *mlx.Scope, in []mlx.Array) []mlx.Array {
	if s.Err() != nil {
		return nil
	}
	out := p.compiled.Call(s, in...)
	if bytes := p.compiled.RelaunchBytes(); bytes != p.bytes {
		p.of.has(p, bytes)
	}
	return out
}

// Len is the number of recorded graphs.
func (st *Steps) Len() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return len(st.steps)
}

// Close drops the graphs. What they hold, a model's weights among it, is then
// free to go.
func (st *Steps) Close() {
	st.mu.Lock()
	steps := st.steps
	st.steps, st.closed = map[key]*Step{}, true
	st.mu.Unlock() // the worker may want it before it closes a scope
	for _, p := range steps {
		p.scope.Close()
	}
}
