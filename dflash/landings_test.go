package dflash

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The cost of a cycle in flight is the time between landings, where that is the
// device's.
func TestLandings(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	var l landings
	first := l.land(at(0), at(2), at(30), true)
	require.Equal(t, spent{host: ms(2), verify: ms(28)}, first, "nothing was in flight before it")
	require.Equal(t, ms(20), l.land(at(30), at(32), at(50), true).took)
	require.Equal(t, ms(40), l.land(at(80), at(81), at(90), true).took, "the caller was away, and the device still busy")
	require.Zero(t, l.land(at(140), at(141), at(141), true).took, "the device was done long before")
	require.Equal(t, ms(10), l.land(at(141), at(151), at(151), false).took, "the host is what takes time")
	require.Zero(t, l.land(at(151), at(152), at(170), true).took, "nothing followed the one before")
}

// Generations that cost alike share a controller, others do not.
func TestWorkload(t *testing.T) {
	kinds := map[workload]string{}
	for name, p := range map[string]plan{
		"greedy": {},
		"frozen": {scoring: scoring{Sampling: Sampling{Temperature: 0.00005}}},
		"cold":   {scoring: scoring{Sampling: Sampling{Temperature: 0.3}}},
		"warm":   {scoring: scoring{Sampling: Sampling{Temperature: 0.7}}},
		"hot":    {scoring: scoring{Sampling: Sampling{Temperature: 1}}},
		"scored": {scoring: scoring{LogProbs: true}},
		"banned": {scoring: scoring{BannedIDs: []int{1}}},
	} {
		kinds[p.workload()] += name + " "
	}
	require.Len(t, kinds, 5, "%v", kinds)
	same := plan{scoring: scoring{Sampling: Sampling{Temperature: 0.9, Seed: 4, TopP: 0.9}}}
	require.Equal(t, "warm ", kinds[same.workload()])
}
