package dflash_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/probe"
)

// A probe replays how many drafts are taken, whatever the drafts are, on every
// path; without one nothing changes.
func TestProbe(t *testing.T) {
	e := open(t, "tiny-qwen3", dflash.Options{})
	s := newSession(t, e)
	ref := references(t, "tiny-qwen3")[10]
	pattern := []int{3, 0, 15, 7}
	for _, pipelined := range []bool{false, true} {
		s.SetPipelined(pipelined)
		p := &probe.Probe{Accepted: pattern}
		n := 0
		// The first token, then 4, 1, 16, 8 and again 4 of cycles.
		for _, err := range s.Generate(probe.With(t.Context(), p), dflash.Request{IDs: ref.Prompt, MaxTokens: 100, IgnoreEOS: true, BlockSize: 16}) {
			require.NoError(t, err)
			if n++; n == 1+4+1+16+8+4 {
				break
			}
		}
		require.Equal(t, []int{3, 0, 15, 7, 3}, s.Stats().AcceptedPerCycle, "pipelined: %v", pipelined)
		times := p.Times()
		require.GreaterOrEqual(t, len(times), 5)
		for _, h := range times {
			require.Positive(t, h.Build)
			require.Equal(t, pipelined, h.Dispatch > 0)
			require.Zero(t, h.Draft+h.Verify+h.Commit)
		}

		// Parts on their own do not change what comes out.
		p = &probe.Probe{Split: true}
		var ids []int
		for token, err := range s.Generate(probe.With(t.Context(), p), dflash.Request{IDs: ref.Prompt, MaxTokens: 40, BlockSize: 16, NoCache: true}) {
			require.NoError(t, err)
			require.Zero(t, s.InFlight())
			ids = append(ids, token.ID)
		}
		require.Equal(t, ref.Greedy[:40], ids)
		for _, h := range p.Times()[:2] {
			require.Positive(t, h.Draft)
			require.Positive(t, h.Verify)
			require.Positive(t, h.Commit)
		}
	}

	// Waiting for every cycle leaves none in flight.
	p := &probe.Probe{ReadEach: true}
	var ids []int
	for token, err := range s.Generate(probe.With(t.Context(), p), dflash.Request{IDs: ref.Prompt, MaxTokens: 24, BlockSize: 16}) {
		require.NoError(t, err)
		require.Zero(t, s.InFlight())
		ids = append(ids, token.ID)
	}
	require.Equal(t, ref.Greedy[:24], ids, "no pattern, no replacement")

	d, err := e.NewDecoder()
	require.NoError(t, err)
	defer d.Close()
	ctx := probe.With(t.Context(), &probe.Probe{Accepted: pattern})
	_, err = d.Prefill(ctx, ref.Prompt)
	require.NoError(t, err)
	for _, want := range pattern {
		v, err := d.Verify(ctx, make([]int, 15))
		require.NoError(t, err)
		require.Equal(t, want, v.Accepted)
		require.NoError(t, d.Commit(ctx, v.Accepted+1))
	}
	v, err := d.Verify(ctx, nil)
	require.NoError(t, err)
	require.Zero(t, v.Accepted, "no drafts, none taken")
}
