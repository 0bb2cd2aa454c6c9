package controller

import "math"

const (
	// pastDecay, slowDecay and fastDecay are what an observation still weighs
	// after the next one, ageDecay what a fast one does after a plain token.
	pastDecay, slowDecay, fastDecay, ageDecay = 0.98, 0.98, 0.7, 0.98
	// slowPull and fastPull are the weights, in trials, of the guess that a
	// position is like the one before it.
	slowPull, fastPull = 2, 1
	// share is the weight that the models of a mixture exchange each cycle, so
	// that the worse one can return.
	share = 0.01
)

// counts are trials and successes at each position of a block, older ones
// weighing less. A position is tried when all drafts before it were right.
type counts struct {
	tried, right []float64
	pull         float64
}

func newCounts(positions int, pull float64) counts {
	return counts{tried: make([]float64, positions), right: make([]float64, positions), pull: pull}
}

// scaled is a copy whose positions weigh at most so many trials.
func (c counts) scaled(most, pull float64) counts {
	out := newCounts(len(c.tried), pull)
	for i, n := range c.tried {
		if n > 0 {
			f := min(1, most/n)
			out.tried[i], out.right[i] = f*n, f*c.right[i]
		}
	}
	return out
}

// record takes a cycle's drafts, which weigh w.
func (c counts) record(drafted, accepted int, decay, w float64) {
	c.fade(math.Pow(decay, w))
	for i := range min(drafted, accepted+1) {
		c.tried[i] += w
		if i < accepted {
			c.right[i] += w
		}
	}
}

func (c counts) fade(decay float64) {
	for i := range c.tried {
		c.tried[i] *= decay
		c.right[i] *= decay
	}
}

// at is the probability that the draft at position i, from 0, is right when
// those before it are. before is that of the position before.
func (c counts) at(i int, before float64) float64 {
	return (c.right[i] + c.pull*before) / (c.tried[i] + c.pull)
}

// Kinds of texts: those that the drafter knows, and those that it does not. Which a
// text is has to be found out, and what was seen of the others of its kind says more
// of it than the average of all.
const (
	knownText = iota
	unknownText
	textKinds
)

// firstGuess is the acceptance of a kind of which nothing has been seen, firstTexts
// the number of texts of it that are taken to have been.
var firstGuess, firstTexts = [textKinds]float64{0.85, 0.2}, [textKinds]float64{1, 0.05}

// mixture predicts by models of each kind of text: one that forgets slowly and is
// exact while the text stays as it is, and one that forgets fast. What each predicted
// of the last cycles decides how much it counts (Herbster and Warmuth, Tracking
// the Best Expert, 1998).
type mixture struct {
	models [2 * textKinds]counts // of each kind the slow one and the fast one
	weight [2 * textKinds]float64
}

func newMixture(past [textKinds]counts, texts [textKinds]float64) mixture {
	var m mixture
	for kind := range textKinds {
		m.models[2*kind], m.models[2*kind+1] = past[kind].scaled(4, slowPull), past[kind].scaled(1, fastPull)
		w := texts[kind] / (texts[knownText] + texts[unknownText])
		m.weight[2*kind], m.weight[2*kind+1] = w/2, w/2
	}
	return m
}

// kind is the probability that the text is of a kind.
func (m *mixture) kind(kind int) float64 { return m.weight[2*kind] + m.weight[2*kind+1] }

func (m *mixture) record(drafted, accepted int) {
	sum := 0.0
	for k, c := range m.models {
		p, q := 1.0, m.guess(k)
		for i := range min(drafted, accepted+1) {
			q = c.at(i, q)
			if i < accepted {
				p *= q
			} else {
				p *= 1 - q
			}
		}
		m.weight[k] *= math.Max(p, 1e-9)
		sum += m.weight[k]
	}
	for k := range m.models {
		m.weight[k] = share/float64(len(m.models)) + (1-share)*m.weight[k]/sum
		m.models[k].record(drafted, accepted, [2]float64{slowDecay, fastDecay}[k%2], 1)
	}
}

// age is what a plain token does to the evidence.
func (m *mixture) age() {
	for kind := range textKinds {
		m.models[2*kind+1].fade(ageDecay)
	}
}

// guess is what a model thinks of the first draft without evidence of its own.
func (m *mixture) guess(k int) float64 {
	if k%2 == 0 {
		return firstGuess[k/2]
	}
	return m.models[k-1].at(0, firstGuess[k/2])
}

// tokens is the number of tokens that a block of rows gives, on average.
func (m *mixture) tokens(rows int) float64 { return m.tokensIf(rows, rows, 0) }

// tokensIf is tokens where drafts from position from on, from 1, are accepted
// with probability p at least.
func (m *mixture) tokensIf(rows, from int, p float64) float64 {
	sum := 0.0
	for k, c := range m.models {
		run, q := 1.0, m.guess(k)
		n := 1.0
		for i := range rows - 1 {
			q = c.at(i, q)
			if i+1 >= from {
				q = max(q, p)
			}
			run *= q
			n += run
		}
		sum += m.weight[k] * n
	}
	return sum
}
