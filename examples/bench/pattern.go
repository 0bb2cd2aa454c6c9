package main

import (
	"math"
	"math/rand/v2"
)

// pattern gives, for n cycles, numbers of accepted drafts, at most most each: each
// draft is right with the same probability, as long as those before it are. The
// probability is such that tokens per cycle, one more than the drafts, come out
// on average; the draws are spread evenly, so that they do for few cycles too.
func pattern(tokensPerCycle float64, most, n int, seed uint64) []int {
	want := math.Min(tokensPerCycle-1, float64(most))
	// The expected number grows with the probability.
	low, high := 0.0, 1.0
	for range 60 {
		p := (low + high) / 2
		mean, power := 0.0, 1.0
		for range most {
			power *= p
			mean += power
		}
		if mean < want {
			low = p
		} else {
			high = p
		}
	}
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([]int, n)
	for i, place := range r.Perm(n) {
		u := (float64(place) + r.Float64()) / float64(n)
		// k drafts or more are right with probability high^k.
		for power := high; out[i] < most && u < power; power *= high {
			out[i]++
		}
	}
	return out
}

func mean(values []int) float64 {
	sum := 0
	for _, v := range values {
		sum += v
	}
	return float64(sum) / float64(len(values))
}
