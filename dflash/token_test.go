package dflash_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
)

// Tokens say where they come from: cycles of drafts that end in a token of the
// target's own, in sums that Stats have too.
func TestTokenOrigin(t *testing.T) {
	e := open(t, "tiny-qwen3.5", dflash.Options{})
	prompt := references(t, "tiny-qwen3.5")[0].Prompt
	for _, r := range []dflash.Request{
		{IDs: prompt, MaxTokens: 60, BlockSize: 8},
		{IDs: prompt, MaxTokens: 20, NoDraft: true},
	} {
		s := newSession(t, e)
		var tokens []dflash.Token
		for token, err := range s.Generate(t.Context(), r) {
			require.NoError(t, err)
			require.Equal(t, len(prompt)+len(tokens), token.Position)
			tokens = append(tokens, token)
		}
		require.False(t, tokens[0].Drafted)
		require.Zero(t, tokens[0].Drafts, "the prompt's pass gives the first")
		st := s.Stats()
		accepted, cycles, run := 0, 0, 0
		for i, token := range tokens[1:] {
			if token.Drafted {
				run++
				require.LessOrEqual(t, run, token.Drafts)
			}
			if !token.Drafted || i == len(tokens)-2 {
				accepted, cycles, run = accepted+run, cycles+1, 0
			}
			if r.NoDraft {
				require.Zero(t, token.Drafts)
			} else if i < 40 {
				require.Equal(t, 7, token.Drafts)
			}
		}
		require.Equal(t, st.Accepted, accepted)
		require.Equal(t, st.Cycles, cycles)
	}
}
