package dflash_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
)

// kinds are the pairs with quantised targets and with mixtures of experts, and
// the ids that other software gives for them with float32 activations.
var kinds = []struct{ pair, target, reference string }{
	{"tiny-qwen3.5", "target-4bit", "reference-4bit.json"},
	{"tiny-qwen3", "target-mxfp4", "reference-mxfp4.json"},
	{"tiny-qwen3.5-moe", "target", "reference-f32.json"},
	{"tiny-qwen3.5-moe", "target-4bit", "reference-4bit.json"},
}

// Quantised weights and mixtures of experts: the reference's ids, plain and
// drafted.
func TestKinds(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.pair+"/"+k.target, func(t *testing.T) {
			dir := pairDir(k.pair)
			e := openDir(t, filepath.Join(dir, k.target), dflash.Options{Draft: filepath.Join(dir, "draft")})
			s := newSession(t, e)
			data, err := os.ReadFile(filepath.Join(dir, k.reference))
			require.NoError(t, err)
			var f struct{ Prompts []reference }
			require.NoError(t, json.Unmarshal(data, &f))
			require.Len(t, f.Prompts, 12)
			for i, ref := range f.Prompts {
				for _, block := range []int{1, 4} {
					if block == 4 && i%4 != 1 {
						continue // drafts are the same business as with other weights
					}
					r := dflash.Request{IDs: ref.Prompt, MaxTokens: 96, BlockSize: block}
					if block == 1 {
						r.BlockSize, r.NoDraft = 0, true
					}
					ids, _ := run(t, s, r)
					require.Equalf(t, ref.Greedy, ids, "prompt %d, block %d, margins %v", i, block, ref.Margins)
					checkStats(t, s.Stats(), ids, block)
				}
			}
		})
	}
}

// A drafter stored in fewer bits drafts a little worse and changes no token.
func TestDraftBits(t *testing.T) {
	ref := references(t, "tiny-qwen3")[:6]
	perCycle := map[int]float64{}
	for _, bits := range []int{dflash.KeepDraftPrecision, 0, 8, 4} {
		e := open(t, "tiny-qwen3", dflash.Options{DraftBits: bits})
		require.Equal(t, max(bits, 0), e.Info().DraftBits)
		s := newSession(t, e)
		tokens, cycles := 0, 0
		for _, r := range ref {
			ids, _ := run(t, s, dflash.Request{IDs: r.Prompt, MaxTokens: 96, BlockSize: e.Info().BlockSize})
			require.Equal(t, r.Greedy, ids)
			tokens, cycles = tokens+len(ids)-1, cycles+s.Stats().Cycles
		}
		perCycle[bits] = float64(tokens) / float64(cycles)
	}
	t.Logf("tokens per cycle by bits: %v", perCycle)
	require.InDelta(t, perCycle[dflash.KeepDraftPrecision], perCycle[0], 0)
	require.Greater(t, perCycle[8], 0.9*perCycle[0])
	require.Greater(t, perCycle[4], 0.4*perCycle[0])
	_, err := dflash.Open(t.Context(), pairDir("tiny-qwen3"), &dflash.Options{Library: lib, DraftBits: 3})
	require.ErrorIs(t, err, dflash.ErrRequest)
}
