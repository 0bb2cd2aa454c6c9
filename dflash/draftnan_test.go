package dflash_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
)

// A drafter whose weights are not finite drafts nonsense, and no token of the text
// depends on it: greedy, sampled with shared noise, and by rejection.
func TestDrafterNotFinite(t *testing.T) {
	spec := fixture.Perm(t, t.TempDir(), fixture.Options{Seed: 1})
	draft := editDraft(t, spec, fixture.DraftOptions{Seed: 2}, func(tensors tensorMap, _ object) {
		for _, name := range []string{"norm.weight", "fc.weight"} {
			binary.LittleEndian.PutUint32(tensors[name].Data, math.Float32bits(float32(math.NaN())))
		}
	})
	e := openDir(t, spec.Dir, dflash.Options{Draft: draft})
	s := newSession(t, e)
	for name, sampling := range map[string]dflash.Sampling{
		"greedy":       {},
		"shared noise": {Temperature: 0.7, Seed: 3},
		"rejection":    {Temperature: 0.01, Seed: 3, Rejection: true},
	} {
		r := dflash.Request{IDs: []int{7}, MaxTokens: 30, IgnoreEOS: true, BlockSize: 6, Sampling: sampling}
		drafted, _ := run(t, s, r)
		require.NotZero(t, s.Stats().Drafted, name)
		r.BlockSize, r.NoDraft = 0, true
		plain, _ := run(t, s, r)
		require.Equal(t, plain, drafted, name)
	}
}
