package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSpread(t *testing.T) {
	s := spreadOf([]float64{4, 1, 3, 2, 10})
	require.Equal(t, 3.0, s.Median)
	require.Equal(t, 1.0, s.Min)
	require.Equal(t, 10.0, s.Max)
	require.Equal(t, []float64{4, 1, 3, 2, 10}, s.Values, "in the order of the rounds")
	require.Equal(t, 3.0, s.relative())
	require.Equal(t, 2.5, median([]float64{1, 4, 2, 3}))
	require.Equal(t, 1.75, quantile([]float64{1, 4, 2, 3}, 0.25))
	require.Equal(t, 4.0, quantile([]float64{1, 4, 2, 3}, 1))
	require.NotNil(t, spreadOf(nil).Values, "no null in JSON")
}

func TestDoubt(t *testing.T) {
	require.Contains(t, spreadOf([]float64{2, 2}).doubt(), "fewer than 3 rounds")
	require.Contains(t, spreadOf([]float64{0.98, 1.01, 1.02}).doubt(), "disagree")
	require.Contains(t, spreadOf([]float64{2, 2.2, 3}).doubt(), "differ by 45 %")
	require.Empty(t, spreadOf([]float64{2, 2.1, 2.2}).doubt())
}

func TestRatios(t *testing.T) {
	require.Equal(t, []float64{2, 3}, ratios([]float64{4, 5, 9}, []float64{2, 0, 3}), "a round without a rate is left out")
}

func TestHistogram(t *testing.T) {
	counts, at := histogram([]int{0, 3, 1, 3})
	require.Equal(t, []int{1, 1, 0, 2}, counts)
	require.Equal(t, []int{3, 2, 2}, at)
}

func TestFirstDifference(t *testing.T) {
	require.Equal(t, -1, firstDifference([]int{1, 2}, []int{1, 2}))
	require.Equal(t, 1, firstDifference([]int{1, 2}, []int{1, 3}))
	require.Equal(t, 2, firstDifference([]int{1, 2}, []int{1, 2, 3}))
	require.Equal(t, 0, firstDifference(nil, []int{1}))
}

func TestResult(t *testing.T) {
	p := prompt{"a", "chat", []int{7}}
	round := func(decode float64, ids ...int) sample {
		return sample{ids: ids, prefill: 5, decode: decode, cycles: len(ids) - 1, acceptedPerCycle: make([]int, len(ids)-1)}
	}
	same := resultOf(p, [][]sample{{round(10, 1, 2, 3), round(20, 1, 2, 3)}, {round(5, 1, 2, 3), round(4, 1, 2, 3)}})
	require.True(t, same.Equal)
	require.Equal(t, []float64{200, 100}, same.Plain.Rate.Values, "2 tokens in 10 ms")
	require.Equal(t, []float64{2, 5}, same.Speedup.Values)
	require.Equal(t, 1.0, same.Plain.TokensPerCycle)

	other := resultOf(p, [][]sample{{round(10, 1, 2, 3)}, {round(10, 1, 4, 3)}})
	require.False(t, other.Equal)
	require.Equal(t, &difference{At: 1, Plain: 2, Drafted: 4, Scored: true}, other.First)
	shorter := resultOf(p, [][]sample{{round(10, 1, 2)}, {round(10, 1, 2, 3)}})
	require.Equal(t, &difference{At: 2, Plain: -1, Drafted: 3}, shorter.First)
	unsteady := resultOf(p, [][]sample{{round(10, 1, 2), round(10, 1, 2)}, {round(10, 1, 3), round(10, 1, 2)}})
	require.False(t, unsteady.Equal, "a round differed")
	require.False(t, unsteady.Drafted.Steady)
}

// A kind's rate in a round is all tokens over all time, not the mean of rates.
func TestKinds(t *testing.T) {
	r := example()
	k := sumUp(r.Prompts)
	require.Equal(t, []string{"code", "chat", all}, []string{k[0].Name, k[1].Name, k[2].Name})
	// Plain: 10 tokens in 100 ms and 20 in 100.
	require.Equal(t, 150.0, k[2].Plain.Values[0])
	// Drafted: 10 in 20 ms and 20 in 130.
	require.Equal(t, 200.0, k[2].Drafted.Values[0])
	require.InDelta(t, 4.0/3, k[2].Speedup.Values[0], 1e-12)
	require.Equal(t, 30.0/12, k[2].TokensPerCycle)
	require.Equal(t, 1, k[2].Equal)
	require.Len(t, sumUp(r.Prompts[:1]), 1, "one kind needs no sum")
}
