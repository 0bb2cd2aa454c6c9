// Package controller chooses how many rows a decode cycle drafts and verifies,
// one row being plain decoding, so that the expected number of tokens per
// second is greatest.
//
// It knows what cycles cost by their number of rows, from their durations, and
// how probable it is that a draft is accepted at each position of the block. A
// block of T rows gives 1 + a1 + a1·a2 + … + a1·…·a(T-1) tokens, where ai is the
// probability that draft i is right when those before it are; the number of
// rows with the largest quotient of tokens and cost is the choice.
//
// Texts are of two kinds, known to the drafter or not, each with an acceptance of its
// own; which kind a text is, its first drafts tell, and before them how many of either
// kind there were.
//
// Cycles that serve to learn something cost time. That cost is bounded: it is
// paid from an allowance that grows with the time spent, by Share of it.
package controller

import (
	"sync"
	"time"
)

// Share is the part of the decoding time that may go into exploring.
const Share = 0.015

const (
	// startSteps and mostSteps are the allowance in plain steps: at the start, and
	// the most that is saved up.
	startSteps, mostSteps = 1.5, 4
	// firstWait and lastWait are the tokens between explorations of longer blocks,
	// doubled each time that one fails.
	firstWait, lastWait = 4, 32
	// predictable is the acceptance of a text that the drafter knows.
	predictable = 0.95
	// worthwhile is the gain in speed below which nothing is explored.
	worthwhile = 1.03
	// patience is the number of cycles in which an exploration, or a plain step's
	// duration, must come back.
	patience = 4
	// textDecay is what a text still weighs after the next one.
	textDecay = 0.9
)

// Options are the choices of New.
type Options struct {
	// Block is the most rows of a block, 2 or more. A new controller starts with
	// it.
	Block int
	// SkipFirst leaves the first duration of each number of rows out of account:
	// on GPUs it has the compilation of kernels in it.
	SkipFirst bool
}

// Controller is what is known of one drafter and target over all generations of
// a kind. Several goroutines may use it.
type Controller struct {
	mu    sync.Mutex
	costs costs
	past  [textKinds]counts
	texts [textKinds]float64 // how many of a kind there were, older ones weighing less
	spare float64            // seconds that exploring may cost, negative when overdrawn
	began bool               // the allowance was given
}

// New makes a controller that has seen nothing.
func New(o Options) *Controller {
	return &Controller{costs: newCosts(ladder(o.Block), o.SkipFirst), past: [textKinds]counts{newCounts(o.Block-1, slowPull), newCounts(o.Block-1, slowPull)}, texts: firstTexts}
}

// ladder is the numbers of rows in use: powers of two, and the block. Few, since
// each new shape costs a GPU a plan.
func ladder(block int) []int {
	var rungs []int
	for r := 1; r < block; r *= 2 {
		rungs = append(rungs, r)
	}
	return append(rungs, block)
}

// Run is one generation's use of a controller, by one goroutine at a time.
type Run struct {
	c     *Controller
	model mixture
	wait  int                // tokens between explorations of longer blocks
	since int                // tokens since the last
	probe int                // rows of the exploration that is out, 0 for none
	late  int                // cycles recorded since it was chosen
	plain int                // plain cycles chosen because their cost was unknown
	pause int                // plain cycles chosen because no block was better
	told  [textKinds]float64 // what it has added to the controller's texts
}

// Start begins a generation. It starts from what earlier ones have seen.
func (c *Controller) Start() *Run {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &Run{c: c, model: newMixture(c.past, c.texts), wait: firstWait, since: firstWait}
	for kind := range c.texts {
		c.texts[kind] = firstTexts[kind] + textDecay*(c.texts[kind]-firstTexts[kind])
	}
	// What was saved up in a text that the drafter knows is not for the next to spend.
	c.spare = min(c.spare, startSteps*c.costs.at(1))
	return r
}

// Next is the number of rows of the next cycle, at most limit, which is 1 or
// more. Cycles may be chosen before earlier ones are recorded.
func (r *Run) Next(limit int) int {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	c := &r.c.costs
	limit = min(limit, c.rungs[len(c.rungs)-1])
	switch {
	case !c.drafted():
		return limit
	case !c.known(1) && r.plain < patience:
		r.plain++
		return 1
	}
	best, value := r.best(limit)
	if r.probe == 0 {
		r.probe, r.late = r.explore(best, value, limit), 0
		if r.probe != 0 {
			return r.probe
		}
	}
	if best == 1 && limit > 1 {
		r.pause++
	}
	return best
}

// best is the number of rows with the most tokens per second, and these.
func (r *Run) best(limit int) (rows int, value float64) {
	for _, n := range r.c.costs.rungs {
		n = min(n, limit)
		if v := r.model.tokens(n) / r.c.costs.at(n); v > value {
			rows, value = n, v
		}
	}
	return rows, value
}

// explore is a number of rows worth trying in place of the best, 0 for none.
func (r *Run) explore(best int, value float64, limit int) int {
	c := &r.c.costs
	// Lengths whose cost is not known well, if the best of what is possible
	// would make them win.
	choice, least := 0, r.c.spare
	for _, rows := range c.rungs {
		if rows > limit || rows == best {
			continue
		}
		tokens := r.model.tokens(rows)
		if tokens/c.optimistic(rows) < worthwhile*value {
			continue
		}
		if loss := c.at(rows) - tokens/value; loss < least {
			choice, least = rows, loss
		}
	}
	if choice == 0 && r.since >= r.wait {
		choice = r.longer(best, value, limit)
	}
	return choice
}

// longer is the number of rows that tells most for its cost whether the text
// has become predictable, where longer blocks than the best would then be
// better; 0 for none, or none that can be paid.
func (r *Run) longer(best int, value float64, limit int) int {
	c := &r.c.costs
	most := 0
	for _, rows := range c.rungs {
		if rows > best && rows <= limit && r.model.tokensIf(rows, best, predictable)/c.at(rows) > worthwhile*value {
			most = rows
		}
	}
	choice, score := 0, 0.0
	for _, rows := range c.rungs {
		if rows <= best || rows > most {
			continue
		}
		loss := max(c.at(rows)-r.model.tokens(rows)/value, 0.01*c.at(1))
		// A few right drafts settle the matter, more say nothing new.
		if s := float64(min(rows-best, 3)) / loss; loss <= r.c.spare && s > score {
			choice, score = rows, s
		}
	}
	return choice
}

// Record tells what a cycle of rows gave: accepted of its rows-1 drafts, in
// took; 0 where the duration says nothing about the cost.
func (r *Run) Record(rows, accepted int, took time.Duration) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	c := &r.c.costs
	seconds := took.Seconds()
	if seconds > 0 {
		c.record(rows, seconds)
	}
	if c.known(1) && !r.c.began {
		r.c.began, r.c.spare = true, startSteps*c.at(1)
	}
	spent := c.at(rows)
	r.c.spare = min(r.c.spare+Share*spent, mostSteps*c.at(1))
	r.since += accepted + 1
	if r.late++; r.late > patience {
		r.probe = 0 // cut short or never run
	}
	if rows == r.probe {
		r.probe = 0
		_, value := r.best(c.rungs[len(c.rungs)-1])
		r.c.spare -= spent - float64(accepted+1)/value
		r.since = 0
		if accepted > 0 {
			r.wait = firstWait
		} else {
			r.wait = min(2*r.wait, lastWait)
		}
	}
	if rows > 1 {
		r.model.record(rows-1, accepted)
		for kind := range r.c.past {
			p := r.model.kind(kind)
			r.c.past[kind].record(rows-1, accepted, pastDecay, p)
			r.c.texts[kind] = max(r.c.texts[kind]+p-r.told[kind], firstTexts[kind])
			r.told[kind] = p
		}
	} else {
		r.model.age()
	}
}

// Paused is the number of plain cycles that were chosen because no block
// promised more.
func (r *Run) Paused() int { return r.pause }

// Outlook is the number of drafted rows that would be best, the tokens that
// they give on average and their cost in plain steps.
func (r *Run) Outlook() (rows int, tokens, steps float64) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	c := &r.c.costs
	for _, n := range c.rungs[1:] {
		t, s := r.model.tokens(n), c.at(n)/c.at(1)
		if rows == 0 || t/s > tokens/steps {
			rows, tokens, steps = n, t, s
		}
	}
	return rows, tokens, steps
}
