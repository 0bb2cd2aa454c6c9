package dflash_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
)

// Case 20: a block is cut at the model's last position. The cache refuses
// positions past it, so a generation that ends well never asked for one.
func TestContextEnd(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair, func(t *testing.T) {
			const positions = 64
			dir := variant(t, pair, func(target, _, _ object) { text(target)["max_position_embeddings"] = positions })
			e := openDir(t, dir, dflash.Options{})
			require.Equal(t, positions, e.Info().ContextLength)
			s := newSession(t, e)
			prompt := references(t, pair)[0].Prompt
			for _, n := range []int{40, 47, 48, 49, 60, 62, 63} {
				r := dflash.Request{IDs: prompt[:n], IgnoreEOS: true}
				ids, _ := run(t, s, r)
				require.Len(t, ids, positions-n)
				require.Equal(t, dflash.FinishLength, s.Stats().Finish)
				require.Equal(t, positions-1, s.Decoder().Len())
				r.NoDraft = true
				plain, _ := run(t, s, r)
				require.Equal(t, plain, ids)
				s.SetPipelined(true)
				r.NoDraft = false
				ids, _ = run(t, s, r)
				s.SetPipelined(false)
				require.Equal(t, plain, ids)
			}
			for _, n := range []int{64, 65} {
				for _, err := range s.Generate(t.Context(), dflash.Request{IDs: prompt[:n]}) {
					require.ErrorIs(t, err, dflash.ErrContextLength)
				}
			}
		})
	}
}

// Case 21: past the drafter's positions generation goes on without drafts, and
// says so.
func TestDraftContextExceeded(t *testing.T) {
	const known = 64
	dir := variant(t, "tiny-qwen3", func(_, draft, _ object) { draft["max_position_embeddings"] = known })
	e := openDir(t, dir, dflash.Options{})
	s := newSession(t, e)
	ref := references(t, "tiny-qwen3")[0]
	for _, n := range []int{40, 55, 62, 63, 64, 80} {
		r := dflash.Request{IDs: ref.Prompt[:n], MaxTokens: 40, IgnoreEOS: true, BlockSize: 16}
		plain := plainIDs(t, s, r.IDs, 40)
		for _, pipelined := range []bool{false, true} {
			s.SetPipelined(pipelined)
			ids, _ := run(t, s, r)
			s.SetPipelined(false)
			require.Equal(t, plain, ids, fmt.Sprintf("prompt %d, pipelined %v", n, pipelined))
			st := s.Stats()
			require.Equal(t, dflash.DraftContextExceeded, st.DraftOff)
			require.LessOrEqual(t, s.Decoder().ContextLen(), known)
			if n > known-2 {
				require.Zero(t, st.Drafted)
			} else {
				require.Positive(t, st.Drafted)
			}
		}
	}
}

// Case 18: every end-of-sequence id counts, wherever it is written.
func TestEOSUnion(t *testing.T) {
	ref := references(t, "tiny-qwen3")[0]
	// Three ids that the greedy text reaches one after the other.
	ids := []int{ref.Greedy[30], ref.Greedy[20], ref.Greedy[10]}
	for name, c := range map[string]struct {
		edit func(target, generation object)
		want []int
	}{
		"generation scalar": {func(c, g object) { c["eos_token_id"] = nil; g["eos_token_id"] = ids[0] }, []int{ids[0]}},
		"generation list":   {func(c, g object) { delete(c, "eos_token_id"); g["eos_token_id"] = []int{ids[0], ids[1]} }, []int{ids[0], ids[1]}},
		"config scalar":     {func(c, g object) { c["eos_token_id"] = ids[2]; delete(g, "eos_token_id") }, []int{ids[2]}},
		"config list":       {func(c, g object) { c["eos_token_id"] = []int{ids[1], ids[2]}; g["eos_token_id"] = nil }, []int{ids[1], ids[2]}},
		"both":              {func(c, g object) { c["eos_token_id"] = ids[0]; g["eos_token_id"] = []int{ids[1]} }, []int{ids[0], ids[1]}},
		"nested": {func(c, g object) {
			nested := object{}
			for k, v := range c {
				if k != "architectures" {
					nested[k] = v
				}
			}
			nested["eos_token_id"] = ids[2]
			c["eos_token_id"] = ids[0]
			c["text_config"] = nested
			delete(g, "eos_token_id")
		}, []int{ids[0], ids[2]}},
	} {
		t.Run(name, func(t *testing.T) {
			e := openDir(t, variant(t, "tiny-qwen3", func(target, _, generation object) { c.edit(target, generation) }), dflash.Options{})
			// The tokenizer's own end of sequence is always among them.
			require.Subset(t, e.Info().EOSTokenIDs, append(c.want, 4034))
			stop := len(ref.Greedy)
			for _, id := range c.want {
				stop = min(stop, slices.Index(ref.Greedy, id))
			}
			s := newSession(t, e)
			got, _ := run(t, s, dflash.Request{IDs: ref.Prompt})
			require.Equal(t, ref.Greedy[:stop+1], got)
			require.Equal(t, dflash.FinishStop, s.Stats().Finish)
		})
	}
}
