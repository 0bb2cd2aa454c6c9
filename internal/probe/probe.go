// Package probe lets a measuring program replay an acceptance that no model
// gave, and tells it what decoding costs the host. A probe travels in a context;
// without one decoding is as it always is.
package probe

import (
	"context"
	"sync"
	"time"

	"github.com/godflash/godflash/mlx"
)

// Probe is one measurement. Its fields are set before it is used, its methods
// may be called with a nil Probe.
type Probe struct {
	// Accepted takes the place of the number of right drafts, one entry a cycle
	// and then from the start again. All the work of the cycle is done all the
	// same, the comparison of drafts and choices too. Nil: nothing is replaced.
	Accepted []int
	// ReadEach has the host wait for every cycle, on devices on which it would
	// build the next one meanwhile.
	ReadEach bool
	// Split evaluates each part of a cycle on its own, so that Times has what each
	// takes. Implies ReadEach.
	Split bool

	mu    sync.Mutex
	at    int // of Accepted, the next entry
	last  int // the entry that replaced a count last
	times []Times
	reads []Read
	clock *Clock // of the cycle that is being built
}

// Times are those of one cycle.
type Times struct {
	// Build and Dispatch are what the cycle cost the host: making its graph, and
	// handing it to the device, which is 0 where the host waits for the result at
	// once.
	Build, Dispatch time.Duration
	// Draft, Verify and Commit are the parts, from graph to result. They are
	// there with Split only, and Build and Dispatch are not to be used then.
	Draft, Verify, Commit time.Duration
	// Began is when the host began with the graph.
	Began time.Time
}

// Read is when the host waited for the result of a cycle, in the order of Times.
type Read struct{ Began, Ended time.Time }

type key struct{}

// With gives decoding under ctx the probe.
func With(ctx context.Context, p *Probe) context.Context { return context.WithValue(ctx, key{}, p) }

// From is the probe of ctx, nil without one.
func From(ctx context.Context) *Probe {
	p, _ := ctx.Value(key{}).(*Probe)
	return p
}

// Waits reports whether the host is to wait for every cycle.
func (p *Probe) Waits() bool { return p != nil && (p.ReadEach || p.Split) }

// Instead takes the place of the number of right drafts of a block of rows, int32
// [1]; the zero Array for nothing. A block of one row has no drafts.
func (p *Probe) Instead(s *mlx.Scope, rows int) mlx.Array {
	if p == nil || len(p.Accepted) == 0 || rows < 2 {
		return mlx.Array{}
	}
	p.mu.Lock()
	p.last = min(p.Accepted[p.at%len(p.Accepted)], rows-1)
	p.at++
	n := p.last
	p.mu.Unlock()
	return mlx.FromSlice(s, []int32{int32(n)})
}

// Last is the number that took count's place in the newest block, which has
// drafts, or count itself.
func (p *Probe) Last(count, drafts int) int {
	if p == nil || len(p.Accepted) == 0 || drafts == 0 {
		return count
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// Times are those of the cycles so far.
func (p *Probe) Times() []Times {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Times{}, p.times...)
}

// Landed notes that the host waited from began until now for the oldest cycle.
func (p *Probe) Landed(began time.Time) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads = append(p.reads, Read{began, time.Now()})
}

// Reads are those of the cycles so far.
func (p *Probe) Reads() []Read {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Read{}, p.reads...)
}

// Part is a part of a cycle.
type Part int

// The parts, in order.
const (
	Draft Part = iota
	Verify
	Commit
)

// End is called where a part's graph is complete, with its results. With Split
// it evaluates them.
func (p *Probe) End(part Part, s *mlx.Scope, results ...mlx.Array) error {
	if p == nil || !p.Split {
		return nil
	}
	if err := s.Eval(results...); err != nil {
		return err
	}
	c := p.clock
	now := time.Now()
	*[]*time.Duration{&c.times.Draft, &c.times.Verify, &c.times.Commit}[part] = now.Sub(c.part)
	c.part = now
	return nil
}

// Clock times one cycle; nil without a probe.
type Clock struct {
	probe       *Probe
	began, part time.Time
	times       Times
}

// Start begins the time of a cycle.
func (p *Probe) Start() *Clock {
	if p == nil {
		return nil
	}
	now := time.Now()
	p.clock = &Clock{probe: p, began: now, part: now, times: Times{Began: now}}
	return p.clock
}

// Built ends the making of the graph.
func (c *Clock) Built() {
	if c != nil {
		c.times.Build = time.Since(c.began)
	}
}

// Handed ends a cycle that the device goes on with.
func (c *Clock) Handed() {
	if c == nil {
		return
	}
	c.times.Dispatch = time.Since(c.began) - c.times.Build
	c.Done()
}

// Done keeps the cycle's times.
func (c *Clock) Done() {
	if c == nil {
		return
	}
	c.probe.mu.Lock()
	defer c.probe.mu.Unlock()
	c.probe.times = append(c.probe.times, c.times)
}
