package main

import (
	"fmt"
	"math"
	"slices"
)

// spread is what several measurements of one thing came to.
type spread struct {
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Values []float64 `json:"values"` // in the order of the rounds
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{Values: []float64{}}
	}
	return spread{Median: median(values), Min: slices.Min(values), Max: slices.Max(values), Values: values}
}

// median is the middle value, or the mean of the two in the middle; NaN of none.
func median(values []float64) float64 { return quantile(values, 0.5) }

// quantile interpolates between the two values that the share q of the ranks
// lies between; NaN of no values.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// relative is the distance from the least to the most, as a share of the median.
func (s spread) relative() float64 {
	if s.Median == 0 {
		return 0
	}
	return (s.Max - s.Min) / s.Median
}

// noisy is the relative spread from which on a figure is not to be trusted.
const noisy = 0.25

// trusted is the number of rounds from which on a median says something.
const trusted = 3

// doubt says why a ratio of rates means little, or is empty.
func (s spread) doubt() string {
	switch {
	case len(s.Values) < trusted:
		return fmt.Sprintf("fewer than %d rounds", trusted)
	case s.Min < 1 && s.Max > 1:
		return "the rounds disagree about which is faster"
	case s.relative() > noisy:
		return fmt.Sprintf("the rounds differ by %.0f %%", 100*s.relative())
	}
	return ""
}

// ratios divides round by round, so that what slows both down cancels.
func ratios(above, below []float64) []float64 {
	out := make([]float64, 0, len(above))
	for i := range min(len(above), len(below)) {
		if below[i] > 0 {
			out = append(out, above[i]/below[i])
		}
	}
	return out
}
