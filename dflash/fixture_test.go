package dflash_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/mlx"
)

// fixturePair opens a fixture with a random drafter, whose drafts are noise.
func fixturePair(t testing.TB, spec fixture.Spec, o fixture.DraftOptions) *dflash.Engine {
	t.Helper()
	dir := t.TempDir()
	fixture.Draft(t, dir, spec, o)
	return openDir(t, spec.Dir, dflash.Options{Draft: dir})
}

// Cases 5 and 6: 500 seeded rounds on a hybrid and 200 on a dense model; the
// error of a rollback does not add up, because there is none.
func TestRollbackRounds(t *testing.T) {
	prompt := []int{72, 101, 108, 108, 111}
	t.Run("gated delta", func(t *testing.T) {
		spec := fixture.GDN(t, t.TempDir(), fixture.Options{Seed: 3})
		rounds(t, fixturePair(t, spec, fixture.DraftOptions{Seed: 4, BlockSize: 16}), prompt, 500, 300, 11)
	})
	t.Run("dense", func(t *testing.T) {
		spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 5})
		rounds(t, fixturePair(t, spec, fixture.DraftOptions{Seed: 6, BlockSize: 16}), prompt, 200, 300, 12)
	})
}

// The expected output is written down by hand: every token's successor. Noise
// for drafts does not change it.
func TestPermutation(t *testing.T) {
	spec := fixture.Perm(t, t.TempDir(), fixture.Options{Seed: 1})
	e := fixturePair(t, spec, fixture.DraftOptions{Seed: 2})
	s := newSession(t, e)
	for _, start := range []int{0, 7, 200} {
		want := spec.Follow(start, 100)
		for _, pipelined := range []bool{false, true} {
			s.SetPipelined(pipelined)
			ids, _ := run(t, s, dflash.Request{IDs: []int{start}, MaxTokens: 100, IgnoreEOS: true, BlockSize: e.Info().BlockSize})
			require.Equal(t, want, ids)
			require.Positive(t, s.Stats().Drafted)
		}
	}
}

// Genuine weights on both sides whose drafts are always right: every block is
// accepted whole.
func TestAllAccepted(t *testing.T) {
	spec := fixture.Const(t, t.TempDir(), 65, fixture.Options{})
	e := openDir(t, spec.Dir, dflash.Options{Draft: spec.Draft})
	s := newSession(t, e)
	block := e.Info().BlockSize
	ids, _ := run(t, s, dflash.Request{IDs: []int{1, 2, 3}, MaxTokens: 1 + 5*block, BlockSize: block})
	require.Equal(t, spec.Follow(3, 1+5*block), ids)
	require.Equal(t, 5, s.Stats().Cycles)
	require.InDelta(t, block, s.Stats().TokensPerCycle(), 0)
}

// Case 2: tokens of a random model, with an oracle's drafts in blocks of 1 to
// 16 of which a seeded number is right, equal plain decoding. A block is long
// enough a test when it has been cut at every place several times.
func TestOracleBlocks(t *testing.T) {
	for name, make := range map[string]func(testing.TB, string, fixture.Options) fixture.Spec{"dense": fixture.Rand, "gated delta": fixture.GDN} {
		t.Run(name, func(t *testing.T) {
			spec := make(t, t.TempDir(), fixture.Options{Seed: 9})
			e := openDir(t, spec.Dir, dflash.Options{})
			truth := plainIDs(t, newSession(t, e), []int{70, 71}, 300)
			for _, block := range []int{1, 2, 3, 5, 8, 15, 16} {
				rng := rand.New(rand.NewPCG(uint64(block), 0))
				d, err := e.NewDecoder()
				require.NoError(t, err)
				first, err := d.Prefill(t.Context(), []int{70, 71})
				require.NoError(t, err)
				got := []int{first}
				for len(got) < 256 {
					drafts := append([]int(nil), truth[len(got):len(got)+block-1]...)
					if wrong := rng.IntN(block + 1); wrong < len(drafts) {
						drafts[wrong] = (drafts[wrong] + 1) % spec.Vocab
					}
					v, err := d.Verify(t.Context(), drafts)
					require.NoError(t, err)
					require.NoError(t, d.Commit(t.Context(), v.Accepted+1))
					got = append(got, v.Choices[:v.Accepted+1]...)
				}
				require.Equal(t, truth[:256], got[:256], "block %d", block)
				require.NoError(t, d.Close())
			}
		})
	}
}

// Cases 129 and 130: 1,000 generations, plain, drafted and broken off, leave
// as many live arrays and active bytes as the first ones.
func TestNoLeak(t *testing.T) {
	spec := fixture.GDN(t, t.TempDir(), fixture.Options{Seed: 3})
	dir := t.TempDir()
	fixture.Draft(t, dir, spec, fixture.DraftOptions{Seed: 4})
	e := openDir(t, spec.Dir, dflash.Options{Draft: dir, PrefixCacheBytes: -1})
	rng := rand.New(rand.NewPCG(1, 2))
	generate := func(s *dflash.Session) {
		prompt := make([]int, 1+rng.IntN(6))
		for i := range prompt {
			prompt[i] = rng.IntN(spec.Vocab)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stop := rng.IntN(10)
		s.SetPipelined(rng.IntN(2) == 0)
		// Recorded graphs keep their constants. Besides, what they make is freed by
		// MLX's thread as well as by ours, which on CPUs loses a few bytes now and then.
		s.SetRecorded(false)
		n := 0
		for _, err := range s.Generate(ctx, dflash.Request{IDs: prompt, MaxTokens: 1 + rng.IntN(7), NoDraft: rng.IntN(4) == 0}) {
			if err != nil {
				require.ErrorIs(t, err, context.Canceled)
			}
			if n++; n == stop {
				cancel()
			}
			if n == stop+1 {
				break
			}
		}
	}
	// The kept session shows what a generation leaves behind in it, the others
	// what a session leaves.
	kept, err := e.NewSession()
	require.NoError(t, err)
	defer kept.Close()
	measure := func() (int64, int64) {
		require.NoError(t, kept.Decoder().Reset(t.Context()))
		require.NoError(t, lib.ClearCache(t.Context()))
		m, err := lib.Memory(t.Context())
		require.NoError(t, err)
		return lib.LiveArrays(), m.Active
	}
	some := func(n int) {
		s, err := e.NewSession()
		require.NoError(t, err)
		for range n {
			generate(s)
			generate(kept)
		}
		require.NoError(t, s.Close())
	}
	some(5)
	arrays, bytes := measure()
	for range 10 {
		some(50)
	}
	after, bytesAfter := measure()
	require.Equal(t, arrays, after)
	require.Equal(t, bytes, bytesAfter)
}

// Case 58 and 124: sessions in many goroutines do not see each other.
func TestSessionsSideBySide(t *testing.T) {
	spec := fixture.Perm(t, t.TempDir(), fixture.Options{Seed: 1})
	e := fixturePair(t, spec, fixture.DraftOptions{Seed: 2})
	old := runtime.GOMAXPROCS(8)
	defer runtime.GOMAXPROCS(old)
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for g := range errs {
		wg.Go(func() {
			s, err := e.NewSession()
			if err != nil {
				errs[g] = err
				return
			}
			defer s.Close()
			for turn := range 4 {
				start := 20*g + turn
				var ids []int
				for token, err := range s.Generate(context.Background(), dflash.Request{IDs: []int{start}, MaxTokens: 30, IgnoreEOS: true}) {
					if err != nil {
						errs[g] = err
						return
					}
					ids = append(ids, token.ID)
				}
				for i, want := range spec.Follow(start, 30) {
					if ids[i] != want {
						errs[g] = errors.New("a foreign token")
						return
					}
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
}

// failing is a target whose forward pass breaks at the n-th call.
type failing struct {
	dflash.Target
	calls, at int
}

var errPlanted = errors.New("planted fault")

func (f *failing) Forward(s *mlx.Scope, ids mlx.Array, c dflash.TargetCache, taps []int) (mlx.Array, []mlx.Array) {
	if f.calls++; f.calls == f.at {
		s.Fail(errPlanted)
		return mlx.Array{}, nil
	}
	return f.Target.Forward(s, ids, c, taps)
}

// Case 10: a fault in the middle is an error, never an end; after Reset the
// sequence works again.
func TestFaultIsAnError(t *testing.T) {
	spec := fixture.GDN(t, t.TempDir(), fixture.Options{Seed: 3})
	e := fixturePair(t, spec, fixture.DraftOptions{Seed: 4})
	for at := 1; at <= 3; at++ {
		d, err := dflash.NewDecoder(&failing{Target: e.Target(), at: at}, e.Drafter(), nil)
		require.NoError(t, err)
		drive := func() error {
			if _, err := d.Prefill(t.Context(), []int{1, 2, 3}); err != nil {
				return err
			}
			for range 3 {
				drafts, err := d.Propose(t.Context(), 4)
				if err != nil {
					return err
				}
				v, err := d.Verify(t.Context(), drafts)
				if err != nil {
					return err
				}
				if err := d.Commit(t.Context(), v.Accepted+1); err != nil {
					return err
				}
			}
			return nil
		}
		require.ErrorIs(t, drive(), errPlanted)
		_, err = d.Verify(t.Context(), nil)
		require.ErrorIs(t, err, errPlanted)
		require.NoError(t, d.Reset(t.Context()))
		require.NoError(t, drive())
		require.NoError(t, d.Close())
	}
}

// The level below the session says what it cannot do.
func TestDecoderOrder(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 3})
	e := fixturePair(t, spec, fixture.DraftOptions{Seed: 4})
	d, err := e.NewDecoder()
	require.NoError(t, err)
	ctx := t.Context()
	_, err = d.Propose(ctx, 3)
	require.ErrorIs(t, err, dflash.ErrRequest)
	_, err = d.Verify(ctx, nil)
	require.ErrorIs(t, err, dflash.ErrRequest)
	require.ErrorIs(t, d.Commit(ctx, 0), dflash.ErrRequest)
	_, err = d.Prefill(ctx, nil)
	require.ErrorIs(t, err, dflash.ErrEmptyPrompt)
	_, err = d.Prefill(ctx, []int{spec.Vocab})
	require.ErrorIs(t, err, dflash.ErrRequest)
	_, err = d.Prefill(ctx, make([]int, 513))
	require.ErrorIs(t, err, dflash.ErrContextLength)

	_, err = d.Prefill(ctx, []int{1, 2})
	require.NoError(t, err)
	_, err = d.Propose(ctx, -1)
	require.ErrorIs(t, err, dflash.ErrRequest)
	none, err := d.Propose(ctx, 0)
	require.NoError(t, err)
	require.Empty(t, none)
	some, err := d.Propose(ctx, 100)
	require.NoError(t, err)
	require.Len(t, some, 7) // the fixture's block is 8
	_, err = d.Verify(ctx, []int{-1})
	require.ErrorIs(t, err, dflash.ErrRequest)
	v, err := d.Verify(ctx, some)
	require.NoError(t, err)
	_, err = d.Verify(ctx, some)
	require.ErrorIs(t, err, dflash.ErrRequest)
	_, err = d.Prefill(ctx, []int{1})
	require.ErrorIs(t, err, dflash.ErrRequest)
	require.ErrorIs(t, d.Commit(ctx, -1), dflash.ErrRequest)
	require.ErrorIs(t, d.Commit(ctx, v.Accepted+2), dflash.ErrRequest)
	require.NoError(t, d.Commit(ctx, 0))
	require.Equal(t, 2, d.Len())
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	_, err = d.Verify(ctx, nil)
	require.ErrorIs(t, err, dflash.ErrClosed)
	require.ErrorIs(t, d.Reset(ctx), dflash.ErrClosed)
}

// A folder with a drafter of another target is refused before weights are read.
func TestPairMismatch(t *testing.T) {
	dir := t.TempDir()
	small := fixture.Rand(t, filepath.Join(dir, "a"), fixture.Options{Seed: 3})
	fixture.Draft(t, filepath.Join(dir, "draft"), small, fixture.DraftOptions{})
	require.NoError(t, os.Remove(filepath.Join(dir, "draft", "model.safetensors")))
	_, err := dflash.Open(t.Context(), filepath.Join(pairDir("tiny-qwen3"), "target"), &dflash.Options{Library: lib, Draft: filepath.Join(dir, "draft")})
	require.ErrorIs(t, err, dflash.ErrPairMismatch)
	require.ErrorContains(t, err, "hidden_size")
	require.ErrorContains(t, err, "128")
}
