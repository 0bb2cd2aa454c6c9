package dflash_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
)

// Cases 132, 149 and 150: what a long prompt needs above its own keys and values
// is bounded by the chunk, and the layers of a drafter that have a window keep no
// more than that.
func TestLongPrompt(t *testing.T) {
	const window = 64
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 3, MaxPositions: 2200})
	dir := t.TempDir()
	fixture.Draft(t, dir, spec, fixture.DraftOptions{Seed: 4, Layers: 5, Window: window}) // 4 of 5 layers
	e := openDir(t, spec.Dir, dflash.Options{Draft: dir, PrefillChunk: 64, PrefixCacheBytes: -1})
	s := newSession(t, e)
	measure := func(n int) (above, context int64) {
		require.NoError(t, s.Trim(t.Context(), 0))
		require.NoError(t, lib.ClearCache(t.Context()))
		done := 0
		r := dflash.Request{IDs: span(1, n), MaxTokens: 1, Progress: func(at, total int) {
			require.Equal(t, n, total)
			require.Equal(t, min(done+64, n), at)
			done = at
		}}
		run(t, s, r)
		require.Equal(t, n, done)
		m, err := lib.Memory(t.Context())
		require.NoError(t, err)
		return s.Stats().PeakBytes - m.Active, s.Decoder().ContextBytes()
	}
	above, context := measure(300)
	aboveLong, contextLong := measure(2100)
	// Scores of a chunk against all keys, and the caches being copied as they grow.
	const heads, row = 4, (4 + 5) * 2 * 2 * 16 * 4
	require.Lessf(t, aboveLong-above, int64(1800*(2*heads*64*4+row)), "%d and %d bytes", above, aboveLong)
	// Hidden states of the whole prompt would be 2100 rows of each layer.
	// A row of a layer has a key and a value of 2 heads; buffers grow by 256 rows,
	// above 1024 by 512.
	const one = 2 * 2 * 16 * 4
	require.EqualValues(t, one*(512+4*256), context)
	require.EqualValues(t, one*(2560+4*256), contextLong, "only the layer without a window grows")
	t.Log(above, aboveLong)
}

// A drafter's window has dropped the rows of a place that a session goes back to.
// As many tokens before it as the window sees are run again, and the drafter then
// has what it would have.
func TestWindowGoesBack(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 3})
	dir := t.TempDir()
	fixture.Draft(t, dir, spec, fixture.DraftOptions{Seed: 4, Window: 6})
	e := openDir(t, spec.Dir, dflash.Options{Draft: dir, PrefillChunk: 64, PrefixCacheBytes: -1})
	s := newSession(t, e)
	text := span(1, 400)
	run(t, s, dflash.Request{IDs: text, MaxTokens: 3, IgnoreEOS: true})
	for _, c := range []struct{ back, known int }{{200, 195}, {198, 193}, {199, 198}} {
		ids := append(text[:c.back:c.back], 9)
		got, _ := run(t, s, dflash.Request{IDs: ids, MaxTokens: 4, IgnoreEOS: true})
		require.Equal(t, c.known, s.Stats().CachedTokens)
		require.Equal(t, fresh(t, e, ids, 4), got)
		require.NoError(t, s.Decoder().Settle(t.Context()))
		require.True(t, s.Decoder().Drafts())
		requireFreshState(t, e, s.Decoder(), "gone back")
	}
}
