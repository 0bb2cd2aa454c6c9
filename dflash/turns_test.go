package dflash_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/mlx"
)

// watched is a target that tells of each pass, before it is built.
type watched struct {
	dflash.Target
	pass func(c dflash.TargetCache)
}

func (w *watched) Forward(s *mlx.Scope, ids mlx.Array, c dflash.TargetCache, taps []int) (mlx.Array, []mlx.Array) {
	w.pass(c)
	return w.Target.Forward(s, ids, c, taps)
}

// waitFor looks until ok, and fails when that takes very long.
func waitFor(t *testing.T, what string, ok func() bool) {
	for start := time.Now(); !ok(); runtime.Gosched() {
		if time.Since(start) > time.Minute {
			assert.Fail(t, "waited in vain for "+what)
			return
		}
	}
}

// Sessions are served in turn: while one waits, no other has more than two
// passes, be it one that decodes or one in the middle of a long prompt. The
// library is held until everybody waits, so that the order does not depend on
// when goroutines wake up.
func TestTurns(t *testing.T) {
	const sessions = 4
	spec := fixture.Perm(t, t.TempDir(), fixture.Options{Seed: 1})
	dir := t.TempDir()
	fixture.Draft(t, dir, spec, fixture.DraftOptions{Seed: 2})
	e := openDir(t, spec.Dir, dflash.Options{Draft: dir, PrefillChunk: 8})
	var active atomic.Int64
	owner := map[dflash.TargetCache]int{}
	var passes []int
	e.WrapTarget(func(target dflash.Target) dflash.Target {
		return &watched{target, func(c dflash.TargetCache) {
			waitFor(t, "the other sessions", func() bool { return int64(lib.Waiting()) >= active.Load()-1 })
			passes = append(passes, owner[c])
		}}
	})
	var all []*dflash.Session
	for i := range sessions {
		s := newSession(t, e)
		owner[s.Decoder().Cache()] = i
		all = append(all, s)
	}
	active.Store(sessions)
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() {
			defer active.Add(-1)
			r := dflash.Request{IDs: []int{10 * i}, MaxTokens: 40, IgnoreEOS: true, NoCache: true}
			if i == 0 {
				r.IDs = span(1, 300)
			}
			n := 0
			for token, err := range s.Generate(context.Background(), r) {
				assert.NoError(t, err)
				if i > 0 {
					assert.Equal(t, spec.Follow(10*i, 40)[n], token.ID)
				}
				n++
			}
			assert.Equal(t, 40, n)
		})
	}
	wg.Wait()
	require.Greater(t, len(passes), 100)
	for i := range sessions {
		last := -1
		for at, who := range passes {
			if who != i {
				continue
			}
			if last >= 0 {
				others := map[int]int{}
				for _, other := range passes[last+1 : at] {
					others[other]++
					require.LessOrEqualf(t, others[other], 2, "session %d waits from pass %d to %d: %v", i, last, at, passes)
				}
			}
			last = at
		}
	}
}

// Case 118: a context that ends ends the generation within one pass, in the
// prompt and after it, and at once where it waits for others.
func TestCancelWithinOnePass(t *testing.T) {
	spec := fixture.Perm(t, t.TempDir(), fixture.Options{Seed: 1})
	dir := t.TempDir()
	fixture.Draft(t, dir, spec, fixture.DraftOptions{Seed: 2})
	e := openDir(t, spec.Dir, dflash.Options{Draft: dir, PrefillChunk: 8})
	var ctx context.Context
	var cancel context.CancelFunc
	passes, at := 0, 0
	e.WrapTarget(func(target dflash.Target) dflash.Target {
		return &watched{target, func(dflash.TargetCache) {
			if passes++; passes == at {
				cancel()
			}
		}}
	})
	for at = 1; at < 8; at++ {
		passes = 0
		ctx, cancel = context.WithCancel(t.Context())
		var last error
		for _, err := range e.Generate(ctx, dflash.Request{IDs: span(at, 35), NoCache: true, IgnoreEOS: true}, nil) {
			last = err
		}
		require.ErrorIs(t, last, context.Canceled)
		require.Equal(t, at, passes)
	}

	// The library is busy for as long as the test likes.
	gate, running := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = lib.Do(context.Background(), func(*mlx.Scope) error {
			close(running)
			<-gate
			return nil
		})
	})
	<-running
	s := newSession(t, e)
	ctx, cancel = context.WithCancel(t.Context())
	wg.Go(func() {
		waitFor(t, "the session", func() bool { return lib.Waiting() > 0 })
		cancel()
	})
	passes = 0
	for _, err := range s.Generate(ctx, dflash.Request{IDs: span(1, 35), IgnoreEOS: true}) {
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Zero(t, passes)
	close(gate)
	wg.Wait()
	ids, _ := run(t, s, dflash.Request{IDs: []int{7}, MaxTokens: 5, IgnoreEOS: true})
	require.Equal(t, spec.Follow(7, 5), ids)
}

// What was cancelled while it loads is closed again.
func TestCancelOpen(t *testing.T) {
	spec := fixture.GDN(t, t.TempDir(), fixture.Options{Seed: 3})
	dir := t.TempDir()
	fixture.Draft(t, dir, spec, fixture.DraftOptions{Seed: 4})
	arrays := lib.LiveArrays()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := dflash.Open(ctx, spec.Dir, &dflash.Options{Library: lib, Draft: dir})
	require.ErrorIs(t, err, context.Canceled)
	for after := 1; ; after++ {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		e, err := dflash.Open(ctx, spec.Dir, &dflash.Options{Library: lib, Draft: dir, Progress: func(dflash.LoadProgress) {
			if calls++; calls == after {
				cancel()
			}
		}})
		cancel()
		if calls < after {
			require.NoError(t, err)
			require.NoError(t, e.Close())
			require.Greater(t, after, 8, "target and drafter are read in parts")
			break
		}
		if err != nil { // the last part of all is told when everything is there
			require.ErrorIs(t, err, context.Canceled)
		} else {
			require.NoError(t, e.Close())
		}
		require.Equal(t, arrays, lib.LiveArrays())
	}
	require.Equal(t, arrays, lib.LiveArrays())
}

// A cancelled Prefill leaves the chunks that are done, and the rest may follow.
func TestPrefillGoesOn(t *testing.T) {
	spec := fixture.GDN(t, t.TempDir(), fixture.Options{Seed: 3})
	e := fixturePair(t, spec, fixture.DraftOptions{Seed: 4})
	whole, err := e.NewDecoder()
	require.NoError(t, err)
	defer whole.Close()
	text := span(1, 30)
	want, err := whole.Prefill(t.Context(), text)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	passes := 0
	target := &watched{e.Target(), func(dflash.TargetCache) {
		if passes++; passes == 2 {
			cancel()
		}
	}}
	d, err := dflash.NewDecoder(target, e.Drafter(), &dflash.DecoderOptions{PrefillChunk: 8})
	require.NoError(t, err)
	defer d.Close()
	_, err = d.Prefill(ctx, text)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 16, d.Len())
	_, err = d.Verify(t.Context(), nil)
	require.ErrorIs(t, err, dflash.ErrRequest, "there is no anchor yet")
	got, err := d.Prefill(t.Context(), text[d.Len():])
	require.NoError(t, err)
	require.Equal(t, want, got)
	requireFreshState(t, e, d, "gone on")
}
