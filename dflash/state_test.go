package dflash_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen"
)

// layerBits is one layer's committed state on the host.
type layerBits struct{ keys, values, conv, recurrent []float32 }

// stateOf copies every layer's committed state.
func stateOf(t testing.TB, d *dflash.Decoder, layers int) []layerBits {
	t.Helper()
	out := make([]layerBits, layers)
	require.NoError(t, lib.Do(context.Background(), func(s *mlx.Scope) error {
		for i := range out {
			st, err := d.Cache().(*qwen.Cache).Layer(s, i)
			if err != nil {
				return err
			}
			for _, part := range []struct {
				from mlx.Array
				to   *[]float32
			}{{st.Keys, &out[i].keys}, {st.Values, &out[i].values}, {st.Conv, &out[i].conv}, {st.Recurrent, &out[i].recurrent}} {
				if !part.from.Valid() {
					continue
				}
				if *part.to, err = mlx.ToSlice[float32](part.from); err != nil {
					return err
				}
			}
		}
		return nil
	}))
	return out
}

// requireSameState compares bit for bit.
func requireSameState(t testing.TB, want, got []layerBits, what string) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		for _, part := range []struct {
			name      string
			want, got []float32
		}{
			{"keys", want[i].keys, got[i].keys},
			{"values", want[i].values, got[i].values},
			{"convolution", want[i].conv, got[i].conv},
			{"recurrent", want[i].recurrent, got[i].recurrent},
		} {
			if !slices.Equal(part.want, part.got) {
				require.Failf(t, "state differs", "layer %d, %s, %s", i, part.name, what)
			}
		}
	}
}

// rounds drives a decoder with an oracle's drafts, right up to a seeded place
// and wrong after it, commits a seeded number of rows, and compares all state
// with a decoder that was fed the committed tokens one at a time.
func rounds(t *testing.T, e *dflash.Engine, prompt []int, count, maxLen int, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	layers, vocab := e.Info().Layers, e.Info().VocabSize
	newDecoder := func() *dflash.Decoder {
		d, err := e.NewDecoder()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		return d
	}
	spec, plain := newDecoder(), newDecoder()
	ctx := t.Context()
	// Greedy decoding knows one continuation; every committed state is one of
	// its prefixes.
	truth, _ := run(t, newSession(t, e), dflash.Request{IDs: prompt, MaxTokens: maxLen + 40, IgnoreEOS: true, NoDraft: true})
	restart := func() {
		require.NoError(t, spec.Reset(ctx))
		require.NoError(t, plain.Reset(ctx))
		for _, d := range []*dflash.Decoder{spec, plain} {
			anchor, err := d.Prefill(ctx, prompt)
			require.NoError(t, err)
			require.Equal(t, truth[0], anchor)
		}
	}
	restart()
	var history []string
	for round := range count {
		if spec.Len() > maxLen {
			restart()
			history = nil
		}
		// Every extreme comes up often: all right, none right, no drafts.
		drafts := rng.IntN(16)
		right := rng.IntN(drafts + 1)
		switch rng.IntN(4) {
		case 0:
			right = drafts
		case 1:
			right = 0
		}
		done := spec.Len() - len(prompt) + 1 // tokens known, the anchor's included
		block := slices.Clone(truth[done : done+drafts])
		for i := right; i < drafts; i++ {
			block[i] = (block[i] + 1 + rng.IntN(vocab-1)) % vocab
		}
		v, err := spec.Verify(ctx, block)
		require.NoError(t, err)
		require.Equal(t, right, v.Accepted)
		keep := right + 1
		if rng.IntN(8) == 0 {
			keep = rng.IntN(right + 2)
		}
		require.NoError(t, spec.Commit(ctx, keep))
		history = append(history, fmt.Sprintf("%d/%d/%d", drafts, right, keep))

		for plain.Len() < spec.Len() {
			v, err := plain.Verify(ctx, nil)
			require.NoError(t, err)
			require.NoError(t, plain.Commit(ctx, 1))
			require.Equal(t, truth[plain.Len()-len(prompt)], v.Choices[0])
		}
		require.Equal(t, plain.Anchor(), spec.Anchor())
		require.Equal(t, plain.Len(), spec.Len())
		if e.Drafter() != nil {
			require.Equal(t, spec.Len(), spec.ContextLen())
		}
		requireSameState(t, stateOf(t, plain, layers), stateOf(t, spec, layers),
			fmt.Sprintf("seed %d, round %d, drafts/right/kept %v", seed, round, history))
	}
}

// After any accepted pattern all state has the bits of feeding the accepted
// tokens alone.
func TestRollbackState(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair, func(t *testing.T) {
			e := open(t, pair, dflash.Options{})
			rounds(t, e, references(t, pair)[0].Prompt[:20], 12, 120, 7)
		})
	}
}
