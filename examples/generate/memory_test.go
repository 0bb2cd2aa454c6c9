package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/fixture"
)

func TestMemory(t *testing.T) {
	dir := t.TempDir()
	p := fixture.Giant()
	fixture.WriteHeaders(t, dir, p.Config(), p.Raw(), 64<<30)
	out := runArgs(t, "-model", dir, "-prompt", "x")
	require.Equal(t, 1, out.status)
	require.Contains(t, out.stderr, "not enough memory")
	require.Contains(t, out.stderr, "-ignore-memory")

	pair, err := demoPair()
	require.NoError(t, err)
	out = runArgs(t, "-model", pair, "-prompt", "x", "-max-tokens", "2", "-ignore-memory")
	require.Zero(t, out.status, out.stderr)
}
