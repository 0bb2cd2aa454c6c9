package mlx

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/godflash/godflash/internal/mlxc"
)

// core is what all Library values share: one worker goroutine, locked to its
// OS thread, because MLX keeps streams, encoders and compile caches per thread.
// The worker lives from the first Open to the last Close.
type core struct {
	path    string
	version string
	jobs    chan *job
	stopped chan struct{} // closed when the worker has ended
	live    atomic.Int64
	waiting atomic.Int64 // hops that have not begun

	// Only the worker touches these.
	scratch     []mlxc.Handle // lists of handles on their way into C
	spare       [][]slot      // slots of closed scopes, for the next ones
	idle        []idleStream  // streams of closed Streams, for the next ones: MLX cannot end one alone
	compileMode int           // of mlxc.CompileMode, as MLX has it
	failure     *OpError      // the first failure of the Do that runs
	depth       int           // Do inside Do
	tracing     int           // functions of arrays that MLX is calling
	traceErr    error         // the first error in one of them, until the operation that called it takes it

	mu     sync.Mutex
	refs   int
	scopes map[*Scope]struct{} // made by NewScope and not closed
}

type job struct {
	run   func()
	state atomic.Int32
	done  chan struct{}
	exit  bool // run called runtime.Goexit
}

const (
	jobWaiting int32 = iota
	jobTaken
	jobCancelled
)

const maxSpare = 8

func newCore() *core {
	return &core{
		jobs: make(chan *job, 64), stopped: make(chan struct{}), scopes: map[*Scope]struct{}{},
		scratch: make([]mlxc.Handle, 0, 256), compileMode: startMode(),
	}
}

// startMode is what MLX reads from its environment.
func startMode() int {
	if _, off := os.LookupEnv("MLX_DISABLE_COMPILE"); off {
		return mlxc.CompileDisabled
	}
	return mlxc.CompileEnabled
}

// work is the worker goroutine; setup's error goes to started.
func (c *core) work(setup func() error, started chan<- error) {
	runtime.LockOSThread()
	mlxc.SetWorker(true)
	err := setup()
	started <- err
	if err == nil {
		c.serve()
	}
	c.end()
}

// end is the worker's last act. MLX keeps what it made for this thread, above
// all its default stream, and uses it again when a later worker happens to run
// on the thread; so their number is bounded by that of Go's threads.
func (c *core) end() {
	mlxc.SetWorker(false)
	runtime.UnlockOSThread()
	close(c.stopped)
}

// serve runs jobs until the channel closes. When a job calls runtime.Goexit
// (as t.FailNow does), this goroutine can no longer return normally, so its
// deferred function serves on: the thread must not change while arrays live.
func (c *core) serve() {
	for j := range c.jobs {
		c.serveOne(j)
	}
}

func (c *core) serveOne(j *job) {
	if !j.state.CompareAndSwap(jobWaiting, jobTaken) {
		return
	}
	c.waiting.Add(-1)
	returned := false
	defer func() {
		if returned {
			return
		}
		j.exit = true
		close(j.done)
		c.depth = 0
		c.serve()
		c.end()
	}()
	j.run()
	returned = true
	close(j.done)
}

// hop runs f on the worker and waits for it. It gives up only while f has not
// started. f must not panic.
func (c *core) hop(ctx context.Context, f func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	j := &job{run: f, done: make(chan struct{})}
	c.waiting.Add(1)
	select {
	case c.jobs <- j:
	case <-ctx.Done():
		c.waiting.Add(-1)
		return ctx.Err()
	}
	select {
	case <-j.done:
	case <-ctx.Done():
		if j.state.CompareAndSwap(jobWaiting, jobCancelled) {
			c.waiting.Add(-1)
			return ctx.Err()
		}
		<-j.done
	}
	if j.exit {
		runtime.Goexit()
	}
	return nil
}

// onWorker runs f on the worker, inline when already there.
func (c *core) onWorker(f func()) {
	if mlxc.OnWorker() {
		f()
		return
	}
	// The channel of an ended worker is closed; its scopes are closed too, so nothing is left to do.
	if !c.enter() {
		return
	}
	defer c.leave()
	_ = c.hop(context.Background(), f)
}

// enter holds the worker alive for one call; false when it has ended.
func (c *core) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refs == 0 {
		return false
	}
	c.refs++
	return true
}

// leave ends what enter began; the last one ends the worker.
func (c *core) leave() {
	c.mu.Lock()
	c.refs--
	last := c.refs == 0
	c.mu.Unlock()
	if !last {
		return
	}
	close(c.jobs)
	<-c.stopped
}

func (c *core) openScopes(l *Library) []*Scope {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []*Scope
	for s := range c.scopes {
		if s.lib == l {
			list = append(list, s)
		}
	}
	return list
}

func (c *core) forget(s *Scope) {
	c.mu.Lock()
	delete(c.scopes, s)
	c.mu.Unlock()
}

// release frees handles that no slot holds any more.
func (c *core) release(list []mlxc.Handle) {
	if len(list) == 0 {
		return
	}
	mlxc.Free(list)
	c.live.Add(-int64(len(list)))
}

func (c *core) keepSlots(slots []slot) {
	if cap(slots) > 0 && len(c.spare) < maxSpare {
		clear(slots[:cap(slots)])
		c.spare = append(c.spare, slots[:0])
	}
}

func (c *core) takeSlots() []slot {
	if n := len(c.spare); n > 0 {
		slots := c.spare[n-1]
		c.spare = c.spare[:n-1]
		return slots
	}
	return nil
}

// Do runs f on the thread that owns MLX, with a fresh scope that is closed
// afterwards, and waits for it. Called inside a Do it runs at once, in a scope
// of its own.
//
// The result is f's error joined with the scope's error. A panic in f becomes a
// [PanicError]. When ctx ends before f has started, f never runs and the result
// is ctx.Err(); once it runs, Do waits, and f may look at ctx itself. One Do runs
// at a time, in the order in which they were called: f must not wait for another
// goroutine that calls Do.
func (l *Library) Do(ctx context.Context, f func(s *Scope) error) error {
	c := l.core
	if mlxc.OnWorker() {
		if err := ctx.Err(); err != nil {
			return err
		}
		return l.run(f)
	}
	if l.closed.Load() || !c.enter() {
		return fmt.Errorf("%w: Library", ErrClosed)
	}
	defer c.leave()
	var result error
	if err := c.hop(ctx, func() { result = l.run(f) }); err != nil {
		return err
	}
	return result
}

// run is Do on the worker.
func (l *Library) run(f func(s *Scope) error) (err error) {
	if l.closed.Load() { // also while f waited for its turn
		return fmt.Errorf("%w: Library", ErrClosed)
	}
	c := l.core
	s := &Scope{lib: l, stream: l.stream, device: l.device, name: "Do", slots: c.takeSlots()}
	if c.depth == 0 {
		c.failure = nil
	}
	c.depth++
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
		c.depth--
		if sticky := s.Err(); sticky != nil && !errors.Is(err, sticky) {
			err = errors.Join(err, sticky)
		}
		s.close(closedByDo)
		if c.depth == 0 {
			c.failure, c.traceErr = nil, nil
			if e := c.drain(); e != nil {
				err = errors.Join(err, e)
			}
		}
	}()
	return f(s)
}

// drain forgets what MLX no longer holds, and calls the release functions of
// shared memory among it.
func (c *core) drain() (err error) {
	for {
		v, ok := mlxc.Dropped()
		if !ok {
			return err
		}
		if release, ok := v.(func()); ok {
			func() {
				defer func() {
					if v := recover(); v != nil {
						err = errors.Join(err, &PanicError{Value: v, Stack: debug.Stack()})
					}
				}()
				release()
			}()
		}
	}
}

// NewScope makes a scope that lives until its Close, or until the Library is
// closed: for weights, caches, states. It may be called on any goroutine. On
// a closed Library the scope is closed from the start. The name is for error texts.
func (l *Library) NewScope(name string) *Scope {
	s := &Scope{lib: l, stream: l.stream, device: l.device, name: name}
	c := l.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.closed.Load() {
		by := closedByLibrary
		s.closedBy.Store(&by)
		return s
	}
	c.scopes[s] = struct{}{}
	return s
}
