package controller

import "slices"

// costs are the durations of cycles by their number of rows, in seconds.
type costs struct {
	rungs     []int
	last      [][]float64 // of each rung's durations, the last few
	seen      []int       // durations recorded
	mid       []float64   // median of last, 0 while nothing is known
	age       []int       // cycles since the newest
	skipFirst bool
	warm      bool // a drafted cycle has been seen
}

const (
	// window is the number of durations of a length whose median is its cost: what
	// else the machine does makes many of them too long, few too short.
	window = 9
	// settledAfter is the number of durations from which on a change of the median
	// is taken for one of the conditions, not for a better estimate.
	settledAfter = 6
	// sureAfter is the number from which on a cost counts as measured.
	sureAfter = 3
	// staleAfter is the number of cycles after which a cost may have become lower
	// by so much that measuring it again pays.
	staleAfter = 256
	// usualStart and usualRow are what a drafted cycle and each of its rows cost in
	// plain steps, before it is known.
	usualStart, usualRow = 1.3, 0.25
)

func newCosts(rungs []int, skipFirst bool) costs {
	n := len(rungs)
	return costs{rungs: rungs, last: make([][]float64, n), seen: make([]int, n), mid: make([]float64, n), age: make([]int, n), skipFirst: skipFirst}
}

// drafted reports whether the cost of any drafted length is known.
func (c *costs) drafted() bool {
	return slices.ContainsFunc(c.mid[1:], func(m float64) bool { return m > 0 })
}

func (c *costs) known(rows int) bool {
	i := slices.Index(c.rungs, rows)
	return i >= 0 && c.mid[i] > 0
}

// record takes a duration. Lengths that are not on the ladder, at a budget's
// end, are not kept.
//
// What changes one length's cost, a longer context or a busier machine, changes
// the others' too: they move along with it. The first drafted cycle of all says nothing:
// the drafter's weights come from disk then, and memory from the system, and what other
// lengths cost is guessed from it.
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
	cold := rows > 1 && !c.warm
	c.warm = c.warm || rows > 1
	if cold || c.skipFirst && c.seen[i] == 1 {
		return
	}
	if len(c.last[i]) == window {
		c.last[i] = slices.Delete(c.last[i], 0, 1)
	}
	c.last[i] = append(c.last[i], seconds)
	old := c.mid[i]
	sorted := slices.Sorted(slices.Values(c.last[i]))
	c.mid[i] = sorted[(len(sorted)-1)/2]
	if old == 0 || c.seen[i] <= settledAfter {
		return
	}
	for k := range c.mid {
		if k == i {
			continue
		}
		c.mid[k] *= c.mid[i] / old
		for j := range c.last[k] {
			c.last[k][j] *= c.mid[i] / old
		}
	}
}

// at is the cost of a cycle of rows. It is never more than that of one with more
// rows.
func (c *costs) at(rows int) float64 {
	cost := c.guess(rows)
	for i, m := range c.mid {
		if c.rungs[i] > rows && m > 0 {
			cost = min(cost, m)
		}
	}
	return cost
}

// guess is the cost of a cycle of rows: measured, or on the line through the
// measured neighbours, or beyond them. Where plain steps are not known either, half of
// the cost is taken to grow with the rows.
func (c *costs) guess(rows int) float64 {
	below, above := -1, -1
	for i, m := range c.mid {
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
		return c.mid[below]
	case above < 0:
		return c.beyond(below, rows)
	case below < 0:
		return c.half(above, rows)
	}
	return c.line(below, above, rows)
}

// beyond is the cost of more rows than have been measured, i being the most that were. A
// row more costs what it did from one drafted length to the next, no more than a plain
// step, and usual while one such length is known: a plain step has no drafts to make,
// so the way from there says nothing.
func (c *costs) beyond(i, rows int) float64 {
	plain, more := c.mid[0], float64(rows-c.rungs[i])
	if plain == 0 {
		return c.half(i, rows)
	}
	if i == 0 {
		return plain * (usualStart + usualRow*float64(rows))
	}
	slope := usualRow * plain
	for k := i - 1; k > 0; k-- {
		if c.mid[k] > 0 {
			slope = min(max(0, c.mid[i]-c.mid[k])/float64(c.rungs[i]-c.rungs[k]), plain)
			break
		}
	}
	return c.mid[i] + slope*more
}

func (c *costs) line(i, k, rows int) float64 {
	slope := (c.mid[k] - c.mid[i]) / float64(c.rungs[k]-c.rungs[i])
	return c.mid[i] + slope*float64(rows-c.rungs[i])
}

func (c *costs) half(i, rows int) float64 {
	return c.mid[i] * (1 + float64(rows)/float64(c.rungs[i])) / 2
}

// optimistic is the cost that rows could have at best.
func (c *costs) optimistic(rows int) float64 {
	i := slices.Index(c.rungs, rows)
	switch {
	case c.mid[i] == 0:
		return 0.75 * c.at(rows)
	case c.seen[i] < sureAfter, c.age[i] >= staleAfter:
		return 0.85 * c.at(rows)
	}
	return c.at(rows)
}
