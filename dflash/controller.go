package dflash

import (
	"fmt"
	"time"

	"github.com/godflash/godflash/internal/controller"
	"github.com/godflash/godflash/mlx"
)

// chooser says how many rows a cycle has and hears what came of it.
type chooser interface {
	// Next is the number of rows of the next cycle, 1 to limit.
	Next(limit int) int
	// Record tells how many of the drafts of a cycle of rows were right, and how
	// long it took, 0 where that says nothing about its cost.
	Record(rows, accepted int, took time.Duration)
}

// fixedRows is the chooser of a request that names the length itself.
type fixedRows int

func (f fixedRows) Next(limit int) int             { return min(int(f), limit) }
func (f fixedRows) Record(int, int, time.Duration) {}

// workload is what the cost of a cycle and the acceptance of drafts depend on
// besides the text: an engine has a controller for each.
type workload struct {
	temperature int  // class, 0 for greedy
	scored      bool // penalties, bias, log probabilities
	constrained bool
}

func (p *plan) workload() workload {
	o := p.scoring
	w := workload{
		scored:      o.Penalties != Penalties{} || len(o.LogitBias)+len(o.BannedIDs) > 0 || o.LogProbs || o.TopLogProbs > 0,
		constrained: p.constraint != nil,
	}
	switch t := o.Sampling.Temperature; {
	case o.Sampling.Greedy():
	case t <= 0.5:
		w.temperature = 1
	case t <= 0.9:
		w.temperature = 2
	default:
		w.temperature = 3
	}
	return w
}

// chooser is the chooser of a generation. What it learns serves the engine's
// other generations of the same kind, at the same time and later.
func (e *Engine) chooser(p *plan) chooser {
	if p.fixed {
		return fixedRows(p.rows)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	w := p.workload()
	c := e.controllers[w]
	if c == nil {
		c = controller.New(controller.Options{Block: p.rows, SkipFirst: e.lib.Device() == mlx.DeviceGPU})
		e.controllers[w] = c
	}
	return c.Start()
}

// nextRows is a chooser whose choice stands until it is taken: a block that does
// not fit into the pipeline is run later.
type nextRows struct {
	chooser
	most int // rows that are left
	rows int // the choice, 0 for none
}

func (n *nextRows) peek() int {
	if n.rows == 0 {
		n.rows = n.Next(n.most)
	}
	return n.rows
}

func (n *nextRows) take() int {
	rows := n.peek()
	n.rows = 0
	return rows
}

// paused says why cycles were left plain.
func (n *nextRows) paused(s Stats) string {
	run, ok := n.chooser.(*controller.Run)
	if !ok || s.Cycles == 0 || run.Paused() == 0 {
		return ""
	}
	rows, tokens, steps := run.Outlook()
	return fmt.Sprintf("%d of %d cycles plain: a block of %d rows gives %.1f tokens for %.1f plain steps", s.BlockLengths[1], s.Cycles, rows, tokens, steps)
}

// landings tells what cycles in flight cost. Where another one follows at once,
// the device is never idle, and the time from one landing to the next is that of
// the later cycle.
type landings struct {
	last time.Time // the one before, zero where nothing followed it
}

// land takes the times of a call that began to launch at start and to wait at
// built, and had a cycle's tokens at end. They tell no cost where the caller was
// away for a good part of the time and the device was done before he came back.
func (l *landings) land(start, built, end time.Time, followed bool) spent {
	out := spent{host: built.Sub(start), verify: end.Sub(built)}
	if !l.last.IsZero() {
		took := end.Sub(l.last)
		if away := start.Sub(l.last); away < took/10 || out.verify > took/20 {
			out.took = took
		}
	}
	l.last = time.Time{}
	if followed {
		l.last = end
	}
	return out
}
