package controller

import "slices"

// costs are the durations of cycles by their number of rows, in seconds.
type costs struct {
	rungs     []int
	seen      []int     // durations recorded
	mean      []float64 // 0 while nothing is known
	age       []int     // cycles since the last
	skipFirst bool
}

const (
	// smoothing is the weight of a new duration.
	smoothing = 0.2
	// clip is how far from the mean one may be, so that a pause of the machine
	// does not count as cost.
	clip = 1.5
	// settledAfter is the number of durations from which on a change of the mean
	// is taken for one of the conditions, not for a better estimate.
	settledAfter = 6
	// staleAfter is the number of cycles after which a cost may have become lower
	// by so much that measuring it again pays.
	staleAfter = 256
)

func newCosts(rungs []int, skipFirst bool) costs {
	n := len(rungs)
	return costs{rungs: rungs, seen: make([]int, n), mean: make([]float64, n), age: make([]int, n), skipFirst: skipFirst}
}

// any reports whether anything is known.
func (c *costs) any() bool {
	return slices.ContainsFunc(c.mean, func(m float64) bool { return m > 0 })
}

func (c *costs) known(rows int) bool {
	i := slices.Index(c.rungs, rows)
	return i >= 0 && c.mean[i] > 0
}

// record takes a duration. Lengths that are not on the ladder, at a budget's
// end, are not kept.
//
// What changes one length's cost, a longer context or a busier machine, changes
// the others' too: they move along with it.
func (c *costs) record(rows int, seconds float64) {
	i := slices.Index(c.rungs, rows)
	if i < 0 {
		return
	}
	for k := range c.age {
		c.age[k]++
	}
	c.age[i] = 0
	c.seen[i]++
	old := c.mean[i]
	switch {
	case c.skipFirst && c.seen[i] == 1:
		return
	case old == 0:
		c.mean[i] = seconds
		return
	}
	weight := max(smoothing, 1/float64(c.seen[i]))
	c.mean[i] += weight * (min(max(seconds, old/clip), old*clip) - old)
	for k := range c.mean {
		if k != i && c.seen[i] > settledAfter {
			c.mean[k] *= c.mean[i] / old
		}
	}
}

// at is the cost of a cycle of rows: measured, or on the line through the
// measured neighbours. Beyond them the line goes on; with one alone, half of
// the cost is taken to grow with the rows.
func (c *costs) at(rows int) float64 {
	below, above := -1, -1
	for i, m := range c.mean {
		switch {
		case m == 0:
		case c.rungs[i] <= rows:
			below = i
		case above < 0:
			above = i
		}
	}
	switch {
	case below < 0 && above < 0:
		return 1
	case above < 0 && c.rungs[below] == rows:
		return c.mean[below]
	case above < 0:
		for i := below - 1; i >= 0; i-- {
			if c.mean[i] > 0 {
				return max(c.mean[below], c.line(i, below, rows))
			}
		}
		return c.half(below, rows)
	case below < 0:
		return c.half(above, rows)
	}
	return c.line(below, above, rows)
}

func (c *costs) line(i, k, rows int) float64 {
	slope := (c.mean[k] - c.mean[i]) / float64(c.rungs[k]-c.rungs[i])
	return c.mean[i] + slope*float64(rows-c.rungs[i])
}

func (c *costs) half(i, rows int) float64 {
	return c.mean[i] * (1 + float64(rows)/float64(c.rungs[i])) / 2
}

// optimistic is the cost that rows could have at best.
func (c *costs) optimistic(rows int) float64 {
	i := slices.Index(c.rungs, rows)
	switch {
	case c.mean[i] == 0:
		return 0.75 * c.at(rows)
	case c.age[i] >= staleAfter:
		return 0.85 * c.mean[i]
	case c.seen[i] < 3:
		return 0.9 * c.mean[i]
	}
	return c.mean[i]
}
