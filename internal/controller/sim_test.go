package controller

import (
	"math"
	"math/rand/v2"
	"time"
)

// curve is the cost of a cycle of two rows or more, in plain steps.
type curve func(rows int) float64

// text is the acceptance at position i, from 0, of the draft made at token at.
type text func(at, i int) float64

// world decodes n tokens of a text in a block of up to 16 rows.
type world struct {
	cost  curve
	text  text
	n     int
	lag   int
	noise float64
	seed  uint64
}

// right is the same for every way through the text.
func (w *world) right(at, i int) bool {
	u := rand.New(rand.NewPCG(w.seed, uint64(at)<<8|uint64(i))).Float64()
	return u < w.text(at, i)
}

func (w *world) steps(rows int) float64 {
	if rows == 1 {
		return 1
	}
	return w.cost(rows)
}

// run is the time in plain steps. Rows are chosen lag cycles before what they
// follow is known.
func (w *world) run(next func(limit, at int) int, record func(rows, accepted int, d time.Duration)) float64 {
	rng := rand.New(rand.NewPCG(w.seed, 7))
	at, total := 0, 0.0
	var out []int
	for at < w.n {
		for len(out) <= w.lag {
			out = append(out, next(w.n-at, at))
		}
		rows := min(out[0], w.n-at)
		out = out[1:]
		accepted := 0
		for accepted < rows-1 && w.right(at, accepted) {
			accepted++
		}
		cost := w.steps(rows)
		total += cost
		at += accepted + 1
		record(rows, accepted, time.Duration(cost*(1+w.noise*rng.NormFloat64())*float64(10*time.Millisecond)))
	}
	return total
}

func (w *world) fixed(rows int) float64 {
	return w.run(func(int, int) int { return rows }, func(int, int, time.Duration) {})
}

func (w *world) bestFixed() float64 {
	best := math.Inf(1)
	for _, r := range ladder(16) {
		best = min(best, w.fixed(r))
	}
	return best
}

// oracle knows the text's acceptance and the costs.
func (w *world) oracle() float64 {
	at := *w
	at.lag = 0
	return at.run(func(_, at int) int {
		best, value := 1, 0.0
		for _, r := range ladder(16) {
			e, run := 0.0, 1.0
			for i := range r {
				e += run
				run *= w.text(at, i)
			}
			if v := e / w.steps(r); v > value {
				best, value = r, v
			}
		}
		return best
	}, func(int, int, time.Duration) {})
}
