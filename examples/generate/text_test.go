package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The text ends before the first stop text, with drafts and without, and the
// object says which one it was.
func TestStopFlag(t *testing.T) {
	args := []string{"-prompt", "Write F.", "-max-tokens", "24"}
	whole := runArgs(t, args...)
	require.Zero(t, whole.status, whole.stderr)
	text := strings.TrimSuffix(whole.stdout, "\n")
	stop := text[len(text)/2 : len(text)/2+4]
	before, _, _ := strings.Cut(text, stop)
	args = append(args, "-stop", "no such text", "-stop", stop)

	cut := runArgs(t, append(args, "-compare")...)
	require.Zero(t, cut.status, cut.stderr)
	require.Equal(t, before, strings.TrimSuffix(cut.stdout, "\n"))
	require.Contains(t, cut.stderr, "ids are identical")

	o := runJSON(t, args...)
	require.Equal(t, before, o.Text)
	require.Equal(t, "stop", o.FinishReason)
	require.Equal(t, stop, o.StopText)

	for _, wrong := range [][]string{
		{"-stop", ""},
		{"-thinking-budget", "-1"},
		{"-thinking-budget", "3", "-raw"},
	} {
		out := runArgs(t, append(wrong, "-prompt", "x")...)
		require.Equal(t, 2, out.status, wrong)
		require.Empty(t, out.stdout)
	}
}

// A thought of 3 tokens is closed.
func TestThinkingBudgetFlag(t *testing.T) {
	out := runArgs(t, "-json", "-prompt", "Write F.", "-think", "-max-tokens", "12", "-thinking-budget", "3", "-compare")
	require.Contains(t, out.stderr, "ids are identical")
	o := decode(t, out)
	require.Equal(t, 1, strings.Count(o.Text, "\n</think>\n\n"))
	require.Equal(t, 5, o.Stats.ReasoningTokens)
}
