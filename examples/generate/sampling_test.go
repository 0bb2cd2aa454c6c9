package main

import (
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
	} {
		out := runArgs(t, append(wrong, "-prompt", "x")...)
		require.Equal(t, 2, out.status, wrong)
		require.Empty(t, out.stdout)
	}
}
