package tokenizer_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/qwen/tokenizer"
)

var pairs = []string{"tiny-qwen3", "tiny-qwen3.5", "tiny-qwen3.5-moe"}

func testdata(parts ...string) string {
	return filepath.Join(append([]string{"..", "..", "testdata"}, parts...)...)
}

// loaded keeps each vocabulary for the whole test process.
var loaded sync.Map

func load(tb testing.TB, pair string) *tokenizer.Tokenizer {
	tb.Helper()
	if t, ok := loaded.Load(pair); ok {
		return t.(*tokenizer.Tokenizer)
	}
	t, err := tokenizer.Load(testdata(pair, "target"))
	require.NoError(tb, err)
	loaded.Store(pair, t)
	return t
}

type golden struct {
	Encode []struct {
		Group, Text string
		IDs         []int
	}
	Split []struct {
		Text   string
		Pieces []string
	}
	Decode []struct {
		Note            string
		IDs             []int
		Text            string
		TextSkipSpecial string `json:"text_skip_special"`
	}
}

func goldenOf(tb testing.TB, pair string) golden {
	tb.Helper()
	data, err := os.ReadFile(testdata(pair, "golden-tokenizer.json"))
	require.NoError(tb, err)
	var g golden
	require.NoError(tb, json.Unmarshal(data, &g))
	require.NotEmpty(tb, g.Encode)
	require.NotEmpty(tb, g.Split)
	require.NotEmpty(tb, g.Decode)
	return g
}

func TestGoldenEncode(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair, func(t *testing.T) {
			tok := load(t, pair)
			for _, c := range goldenOf(t, pair).Encode {
				if got := tok.Encode(c.Text); !slices.Equal(got, c.IDs) {
					t.Errorf("%s: Encode(%q)\n got %v\nwant %v", c.Group, c.Text, got, c.IDs)
				}
			}
		})
	}
}

// The reference leaves ids without a token out of the text; here they are an
// error, and the rest must decode to the same text.
func TestGoldenDecode(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair, func(t *testing.T) {
			tok := load(t, pair)
			unknown := 0
			for _, c := range goldenOf(t, pair).Decode {
				known := slices.DeleteFunc(slices.Clone(c.IDs), func(id int) bool { return id >= tok.VocabSize() })
				if len(known) < len(c.IDs) {
					unknown++
					_, err := tok.Decode(c.IDs)
					require.ErrorIs(t, err, tokenizer.ErrUnknownID, c.Note)
					_, err = tok.DecodeSkipSpecial(c.IDs)
					require.ErrorIs(t, err, tokenizer.ErrUnknownID, c.Note)
				}
				text, err := tok.Decode(known)
				require.NoError(t, err)
				require.Equal(t, c.Text, text, c.Note)
				text, err = tok.DecodeSkipSpecial(known)
				require.NoError(t, err)
				require.Equal(t, c.TextSkipSpecial, text, c.Note)

				require.Equal(t, c.Text, streamed(t, tok, known, false), c.Note)
				require.Equal(t, c.TextSkipSpecial, streamed(t, tok, known, true), c.Note)
			}
			require.Positive(t, unknown, "the golden data holds ids without a token")
		})
	}
}

// streamed decodes ids one by one.
func streamed(tb testing.TB, tok *tokenizer.Tokenizer, ids []int, skip bool) string {
	tb.Helper()
	s := tok.Stream(tokenizer.StreamOptions{SkipSpecial: skip})
	var text string
	for _, id := range ids {
		piece, err := s.Push(id)
		require.NoError(tb, err)
		text += piece
	}
	return text + s.Flush()
}

// tinyDefinition is tiny-qwen3's tokenizer.json, for changing.
func tinyDefinition(tb testing.TB) definition {
	tb.Helper()
	data, err := os.ReadFile(testdata("tiny-qwen3", "target", "tokenizer.json"))
	require.NoError(tb, err)
	var d definition
	require.NoError(tb, json.Unmarshal(data, &d))
	return d
}
