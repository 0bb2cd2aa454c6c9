package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Draws repeat with the seed that the statistics tell, and are the same without
// drafts.
func TestSamplingFlags(t *testing.T) {
	args := []string{"-prompt", "Write F.", "-max-tokens", "12", "-temperature", "3", "-top-k", "40", "-top-p", "0.95", "-min-p", "0.001"}
	first := runArgs(t, append(args, "-compare")...)
	require.Zero(t, first.status, first.stderr)
	require.Contains(t, first.stderr, "ids are identical")
	_, seed, ok := strings.Cut(first.stderr, "seed ")
	require.True(t, ok, first.stderr)
	seed, _, _ = strings.Cut(seed, ":")
	again := runArgs(t, append(args, "-seed", seed)...)
	require.Zero(t, again.status, again.stderr)
	require.Equal(t, first.stdout, again.stdout)

	for _, wrong := range [][]string{
		{"-top-k", "5"},
		{"-seed", "1"},
		{"-temperature", "-1"},
		{"-temperature", "NaN"},
		{"-temperature", "1", "-top-p", "2"},
		{"-temperature", "1", "-seed", "-1"},
		{"-rejection"},
		{"-temperature", "1", "-rejection", "-compare"},
		{"-repetition-penalty", "0"},
		{"-repetition-penalty", "-1"},
		{"-frequency-penalty", "3"},
		{"-presence-penalty", "NaN"},
		{"-logit-bias", "5"},
		{"-logit-bias", "x=1"},
		{"-logit-bias", "5=much"},
		{"-logit-bias", "5=101"},
		{"-logit-bias", "5=NaN"},
		{"-repetition-penalty", "0.05"},
		{"-temperature", "0.00005", "-top-k", "5"},
		{"-logit-bias", "5=1", "-logit-bias", "5=2"},
		{"-logprobs", "2"},
		{"-json", "-logprobs", "21"},
		{"-json", "-logprobs", "-1"},
	} {
		// Said before the model is looked for: there is none.
		out := runArgs(t, append(wrong, "-prompt", "x", "-model", t.TempDir())...)
		require.Equal(t, 2, out.status, wrong)
		require.Empty(t, out.stdout)
		require.Contains(t, out.stderr, strings.TrimPrefix(wrong[len(wrong)-2+len(wrong)%2], "-"), "the flag is named")
	}
	// What needs the model's vocabulary.
	require.Equal(t, 2, runArgs(t, "-logit-bias", "4096=1", "-prompt", "x").status)
}

// Penalties and biases change the text, the same with drafts and without.
func TestPenaltyFlags(t *testing.T) {
	args := []string{"-prompt", "Write F.", "-max-tokens", "40"}
	free := runJSON(t, args...)
	first := strconv.Itoa(free.IDs[0])
	for _, change := range [][]string{
		{"-repetition-penalty", "3"},
		{"-frequency-penalty", "2", "-presence-penalty", "2"},
		{"-logit-bias", first + "=-100", "-logit-bias", "5=1"},
	} {
		o := decode(t, runArgs(t, append(append(args, "-json", "-compare"), change...)...)) // -compare fails where ids differ
		require.NotEqual(t, free.IDs, o.IDs, change)
	}
}

// Each id has its log probability and as many alternatives as were asked for.
func TestLogProbsFlag(t *testing.T) {
	args := []string{"-prompt", "Write F.", "-max-tokens", "12"}
	require.Empty(t, runJSON(t, args...).LogProbs)
	o := runJSON(t, append(args, "-logprobs", "3")...)
	require.Len(t, o.LogProbs, len(o.IDs))
	drafted := 0
	for i, p := range o.LogProbs {
		require.Equal(t, o.IDs[i], p.ID)
		require.Len(t, p.Top, 3)
		require.Equal(t, p.probability, p.Top[0]) // greedy
		require.Less(t, p.Top[1].LogProb, p.LogProb)
		require.LessOrEqual(t, p.LogProb, 0.0)
		if p.Drafted {
			drafted++
		}
	}
	require.Equal(t, o.Stats.Accepted, drafted)
	require.Len(t, runJSON(t, append(args, "-logprobs", "0")...).LogProbs, len(o.IDs))
}

// Rejection draws with drafts; its draws repeat.
func TestRejectionFlag(t *testing.T) {
	args := []string{"-prompt", "Write F.", "-max-tokens", "12", "-temperature", "1", "-seed", "3", "-rejection"}
	first := runJSON(t, args...)
	require.Positive(t, first.Stats.Drafted)
	require.Equal(t, first.IDs, runJSON(t, args...).IDs)
}
