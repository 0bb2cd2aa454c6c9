package dflash_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/mlx"
)

// TestOnGPU runs the reference prompts on a GPU, plain and drafted, in the
// file's precision. Near-ties may fall the other way there, so it asserts what
// must hold all the same: acceptance near the goldens', and tokens that differ
// from plain decoding only after a common beginning. It logs the rest.
//
// It is asked for by GODFLASH_GPU=1; docs/gpu.md has recorded runs.
func TestOnGPU(t *testing.T) {
	if os.Getenv("GODFLASH_GPU") == "" {
		t.Skip("GODFLASH_GPU=1 runs it, on a machine with a GPU")
	}
	gpu, err := mlx.Open(&mlx.Options{Device: mlx.DeviceGPU})
	require.NoError(t, err)
	defer gpu.Close()
	for _, pair := range allPairs {
		t.Run(pair, func(t *testing.T) {
			e, err := dflash.Open(t.Context(), pairDir(pair), &dflash.Options{Library: gpu, DraftBits: dflash.KeepDraftPrecision})
			require.NoError(t, err)
			s, err := e.NewSession()
			require.NoError(t, err)
			var tokens, cycles, same, reference int
			var plainTime, draftTime time.Duration
			var plainTokens int
			refs := references(t, pair)
			// The first round compiles kernels.
			for round := range 2 {
				tokens, cycles, same, reference, plainTokens = 0, 0, 0, 0, 0
				plainTime, draftTime = 0, 0
				for i, ref := range refs {
					drafted, _ := run(t, s, dflash.Request{IDs: ref.Prompt, MaxTokens: 96, BlockSize: e.Info().BlockSize})
					st := s.Stats()
					checkStats(t, st, drafted, e.Info().BlockSize)
					tokens, cycles, draftTime = tokens+len(drafted)-1, cycles+st.Cycles, draftTime+st.Decode
					plain, _ := run(t, s, dflash.Request{IDs: ref.Prompt, MaxTokens: 96, NoDraft: true})
					plainTokens, plainTime = plainTokens+len(plain)-1, plainTime+s.Stats().Decode
					if equal(plain, drafted) {
						same++
					} else if round == 1 {
						t.Logf("%s: prompt %d differs from plain decoding after %d tokens", pair, i, common(plain, drafted))
						require.Positive(t, common(plain, drafted))
					}
					if equal(ref.Greedy, drafted) {
						reference++
					}
				}
			}
			rate := float64(tokens) / float64(cycles)
			t.Logf("%s on %s: %.2f tokens per cycle; equal to plain decoding %d of 12, to the float32 reference %d of 12; plain %.0f tok/s, drafted %.0f tok/s",
				pair, e.Info().Device, rate, same, reference, float64(plainTokens)/plainTime.Seconds(), float64(tokens)/draftTime.Seconds())
			require.Greater(t, rate, 0.8*draftGoldens(t, pair).Mean)
			require.NoError(t, s.Close())
			require.NoError(t, e.Close())
		})
	}
}

func equal(a, b []int) bool { return len(a) == len(b) && common(a, b) == len(a) }

// common is the length of the common beginning.
func common(a, b []int) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
