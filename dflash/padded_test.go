package dflash_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
)

// A padded vocabulary: the embedding has rows that the tokenizer does not know,
// the mask's among them. A model that chooses one is not stopped and not hidden: its
// id is in the reply, its text is empty, with drafts as without.
func TestPaddedVocabulary(t *testing.T) {
	spec := fixture.Perm(t, t.TempDir(), fixture.Options{Seed: 1, Vocab: 320})
	e := fixturePair(t, spec, fixture.DraftOptions{Seed: 2})
	known := e.Tokenizer().VocabSize()
	require.Less(t, known, spec.Vocab-1)
	require.Equal(t, spec.Vocab, e.Info().VocabSize)
	start := spec.Vocab - 1 // it follows itself
	want := spec.Follow(start, 40)
	s := newSession(t, e)
	for _, noDraft := range []bool{true, false} {
		var ids []int
		for token, err := range s.Generate(t.Context(), dflash.Request{IDs: []int{start}, MaxTokens: 40, NoDraft: noDraft, IgnoreEOS: true}) {
			require.NoError(t, err)
			ids = append(ids, token.ID)
			require.Empty(t, token.Text)
			require.Nil(t, e.TokenBytes(token.ID))
		}
		require.Equal(t, want, ids)
	}
	// Nor can a prompt's ids lie outside the rows.
	for _, err := range s.Generate(t.Context(), dflash.Request{IDs: []int{spec.Vocab}}) {
		require.ErrorIs(t, err, dflash.ErrRequest)
	}
}
