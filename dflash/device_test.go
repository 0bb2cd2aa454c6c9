package dflash_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
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

// TestScoresOnGPU runs everything between scores and tokens on a GPU: penalties,
// bias, bans, masks, log probabilities, both sampling rules. On scores that are
// equal the results are those of the CPU, up to what its float32 rounds
// elsewhere. GODFLASH_GPU=1 asks for it.
func TestScoresOnGPU(t *testing.T) {
	if os.Getenv("GODFLASH_GPU") == "" {
		t.Skip("GODFLASH_GPU=1 runs it, on a machine with a GPU")
	}
	gpu, err := mlx.Open(&mlx.Options{Device: mlx.DeviceGPU})
	require.NoError(t, err)
	defer gpu.Close()
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 71}) // float32 on both
	draft := t.TempDir()
	fixture.Draft(t, draft, spec, fixture.DraftOptions{Seed: 72})
	var sessions []*dflash.Session
	for _, l := range []*mlx.Library{lib, gpu} {
		e, err := dflash.Open(t.Context(), spec.Dir, &dflash.Options{Library: l, Draft: draft, DraftBits: dflash.KeepDraftPrecision})
		require.NoError(t, err)
		defer e.Close()
		sessions = append(sessions, newSession(t, e))
	}
	same, all := 0, 0
	for _, r := range []dflash.Request{
		{},
		{Penalties: dflash.Penalties{Repetition: 1.3, Frequency: 0.5, Presence: 1}, LogitBias: map[int]float64{65: 3}, BannedIDs: []int{10, 32}},
		{Sampling: dflash.Sampling{Temperature: 1, TopK: 50, TopP: 0.9, MinP: 0.01, Seed: 1}},
		{Sampling: dflash.Sampling{Temperature: 1, Seed: 2}, Penalties: dflash.Penalties{Repetition: 1.1}},
		{Sampling: dflash.Sampling{Temperature: 1, Seed: 3, Rejection: true}, BannedIDs: banAllBut(spec.Vocab, 65, 72, 100, 105, 200)},
	} {
		r.IDs, r.MaxTokens, r.IgnoreEOS, r.LogProbs, r.TopLogProbs = []int{72, 105}, 40, true, true, 20
		for _, constrained := range []bool{false, true} {
			for _, noDraft := range []bool{true, false} {
				r.NoDraft = noDraft
				var lists [2][]dflash.Token
				for i, s := range sessions {
					r := r
					if constrained {
						dflash.Constrain(&r, &onlyEven{vocab: spec.Vocab, last: 105, free: 20})
					}
					lists[i] = tokens(t, s, r)
				}
				all++
				cpu, got := lists[0], lists[1]
				require.Len(t, got, len(cpu))
				for i := range got {
					if got[i].ID != cpu[i].ID {
						require.Positivef(t, i, "%+v", r)
						t.Logf("differs from the CPU after %d tokens: %+v", i, r)
						break
					}
					require.InDelta(t, cpu[i].LogProb, got[i].LogProb, 1e-2)
					for j := range got[i].Top {
						require.InDelta(t, cpu[i].Top[j].LogProb, got[i].Top[j].LogProb, 1e-2)
					}
					if i+1 == len(got) {
						same++
					}
				}
			}
		}
	}
	t.Logf("%d of %d texts are the CPU's", same, all)
	require.Greater(t, same, all/2)
}
