package synthetic_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/internal/synthetic"
	"github.com/godflash/godflash/internal/weights"
	"github.com/godflash/godflash/mlx"
)

// chains are targets whose sizes suit a chain, and the kernels of a mixture.
func chains() map[string]fixture.Published {
	dense := fixture.Published{
		Name: "chain", Type: "qwen3", Guess: "made up", Hidden: 512, FFN: 1024, Layers: 3, Heads: 8, KVHeads: 2, HeadDim: 64,
		Vocab: 512, MaxPositions: 1024, Theta: 1e6,
	}
	hybrid := dense
	hybrid.Type, hybrid.Layers, hybrid.KeyHeads, hybrid.ValueHeads = "qwen3_5", 4, 2, 4
	hybrid.Heads, hybrid.KVHeads, hybrid.HeadDim = 2, 1, 256 // a quarter of a head rotates, and the kernels want 64
	// Mixtures, in chains and, where the hidden size does not suit one, beside them.
	mixture, shared := dense, hybrid
	mixture.Type, mixture.Experts, mixture.TopK, mixture.ExpertFFN = "qwen3_moe", 16, 4, 128
	shared.Type, shared.FFN, shared.Experts, shared.TopK, shared.ExpertFFN, shared.SharedFFN = "qwen3_5_moe", 0, 16, 2, 128, 128
	beside := shared
	beside.Hidden = 384
	return map[string]fixture.Published{
		"dense": dense, "hybrid": hybrid, "mixture": mixture, "mixture with a shared expert": shared, "mixture beside chains": beside,
	}
}

func chainPair(target fixture.Published, bits int) *synthetic.Pair {
	return &synthetic.Pair{Bits: bits, Target: target, Draft: fixture.PublishedDraft{
		Target: "chain", Hidden: target.Hidden, FFN: 512, Layers: 2, Heads: 8, KVHeads: 2,
		Taps: []int{0, 2}, TargetLayers: target.Layers, Mask: 511, Vocab: 512, MaxPositions: 1024, Theta: 1e6,
	}}
}

// What stands around the kernels is right: with every kernel by its operations the
// scores and drafts are those of a model without kernels. The shapes suit a chain.
func TestComposed(t *testing.T) {
	lib, err := mlx.Open(&mlx.Options{Device: mlx.DeviceCPU})
	require.NoError(t, err)
	defer lib.Close()
	for name, target := range chains() {
		for _, bits := range []int{4, 0} {
			if bits == 0 && target.Experts > 0 {
				continue // the kernels are for 4 bits
			}
			p := chainPair(target, bits)
			if name == "dense" {
				p.Draft.Window = 24 // its buffers begin anew, behind position 0
			}
			dir := t.TempDir()
			require.NoError(t, p.Write(dir))
			run := func(ctx context.Context) (scores []float32, drafts [][]int) {
				e, err := dflash.Open(weights.WithMaker(ctx, p.Maker(5)), dir, &dflash.Options{Library: lib, DraftBits: bits})
				require.NoError(t, err)
				defer e.Close()
				require.Empty(t, e.Info().DraftOff)
				ids := make([]int32, 40)
				for i := range ids {
					ids[i] = int32(i*37%500 + 1)
				}
				cache := e.Target().NewCache()
				defer cache.Close()
				at := 0
				for _, rows := range []int{21, 5, 1, 13} { // more than a block, blocks, one row
					require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
						hidden, taps := e.Target().Forward(s, mlx.FromSlice(s, ids[at:at+rows]), cache, []int{1, 0, target.Layers - 1})
						if err := s.Err(); err != nil {
							return err
						}
						if err := cache.Commit(s, rows); err != nil {
							return err
						}
						for _, a := range append(taps, e.Target().Logits(s, hidden)) {
							v, err := mlx.ToSlice[float32](s.Flatten(s.AsType(a, mlx.Float32)))
							if err != nil {
								return err
							}
							scores = append(scores, v...)
						}
						return s.Eval(cache.Arrays()...)
					}))
					at += rows
				}
				d, err := dflash.NewDecoder(e.Target(), e.Drafter(), &dflash.DecoderOptions{PrefillChunk: 150})
				require.NoError(t, err)
				defer d.Close()
				prompt := make([]int, 300) // pieces that run through weights written out
				for i := range prompt {
					prompt[i] = int(ids[i%len(ids)])
				}
				_, err = d.Prefill(t.Context(), prompt)
				require.NoError(t, err)
				for range 6 {
					ids, err := d.Propose(t.Context(), 7)
					require.NoError(t, err)
					drafts = append(drafts, ids)
					v, err := d.Verify(t.Context(), ids)
					require.NoError(t, err)
					drafts = append(drafts, v.Choices)
					require.NoError(t, d.Commit(t.Context(), 1))
				}
				return scores, drafts
			}
			want, wantDrafts := run(t.Context())
			got, gotDrafts := run(kernels.WithComposed(t.Context()))
			require.Len(t, got, len(want))
			for i, w := range want {
				require.InDelta(t, w, got[i], 2e-3*max(1, float64(w), -float64(w)), "%s, %d bits, element %d", name, bits, i)
			}
			require.Equal(t, wantDrafts, gotDrafts, "%s, %d bits", name, bits)
		}
	}
}
