package tokenizer_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/qwen/tokenizer"
)

// Case 32: a truncated character waits, bytes that can never be one are replaced
// at once, one U+FFFD for each maximal bad part. Case 33: letters and their marks
// are not held together.
func TestStream(t *testing.T) {
	tok := byteTokens().load(t)
	for name, c := range map[string]struct {
		bytes  string
		pushed []string
		end    string
	}{
		"broken by a space":  {"\xe4\xbd ", []string{"", "", "\uFFFD "}, ""},
		"never a character":  {"\xffa", []string{"\uFFFD", "a"}, ""},
		"cut at the end":     {"\xf0\x9f", []string{"", ""}, "\uFFFD"},
		"three of four":      {"\xf0\x9f\x98", []string{"", "", ""}, "\uFFFD"},
		"whole":              {"\xf0\x9f\x98\x80", []string{"", "", "", "😀"}, ""},
		"second one begins":  {"\xf0\x9f\xf0\x9f\x98\x80", []string{"", "", "\uFFFD", "", "", "😀"}, ""},
		"lone continuation":  {"\x98x", []string{"\uFFFD", "x"}, ""},
		"letter and mark":    {"e\xcc\x81x", []string{"e", "", "\u0301", "x"}, ""},
		"surrogate":          {"\xed\xa0\x80", []string{"", "\uFFFD\uFFFD", "\uFFFD"}, ""},
		"beyond U+10FFFF":    {"\xf4\x90", []string{"", "\uFFFD\uFFFD"}, ""},
		"overlong":           {"\xe0\x80\xc0", []string{"", "\uFFFD\uFFFD", "\uFFFD"}, ""},
		"U+FFFD of the text": {"\xef\xbf\xbd", []string{"", "", "\uFFFD"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := tok.Stream(tokenizer.StreamOptions{})
			for i, id := range bytesOf(c.bytes) {
				text, err := s.Push(id)
				require.NoError(t, err)
				require.Equal(t, c.pushed[i], text, "byte %d", i)
			}
			require.Equal(t, c.end, s.Flush())
			require.Empty(t, s.Flush(), "the end comes once")
			require.Equal(t, strings.Join(c.pushed, "")+c.end, streamed(t, tok, bytesOf(c.bytes), false), "after Flush a stream starts afresh")
		})
	}
}

func TestStreamIsReusable(t *testing.T) {
	tok := byteTokens().load(t)
	s := tok.Stream(tokenizer.StreamOptions{})
	_, err := s.Push(0xF0)
	require.NoError(t, err)
	require.Equal(t, "\uFFFD", s.Flush())
	text, err := s.Push('a')
	require.NoError(t, err)
	require.Equal(t, "a", text)
}

func TestStreamSpecial(t *testing.T) {
	tok := byteTokens().load(t)
	ids := append(bytesOf("\xf0\x9f"), 257, 259) // <|im_end|>, <think>
	require.Equal(t, "\uFFFD<|im_end|><think>", streamed(t, tok, ids, false))
	require.Equal(t, "\uFFFD<think>", streamed(t, tok, ids, true))
	// A skipped token leaves no trace: the bytes around it meet.
	ids = append(append(bytesOf("\xf0\x9f"), 257), bytesOf("\x98\x80")...)
	require.Equal(t, "😀", streamed(t, tok, ids, true))
}

func TestStreamUnknownID(t *testing.T) {
	tok := byteTokens().load(t)
	s := tok.Stream(tokenizer.StreamOptions{SkipSpecial: true})
	_, err := s.Push(0xC3)
	require.NoError(t, err)
	for _, id := range []int{-1, tok.VocabSize(), math.MaxInt} {
		text, err := s.Push(id)
		require.ErrorIs(t, err, tokenizer.ErrUnknownID)
		require.ErrorContains(t, err, "vocabulary size 263")
		require.Empty(t, text)
	}
	text, err := s.Push(0xA9)
	require.NoError(t, err)
	require.Equal(t, "é", text, "the held byte is still there")
}

// checkStream holds the promises of a stream for any ids: the same text as
// Decode, whole characters only, at most 3 bytes behind.
func checkStream(tb testing.TB, tok *tokenizer.Tokenizer, ids []int, skip bool) {
	tb.Helper()
	decode := tok.Decode
	if skip {
		decode = tok.DecodeSkipSpecial
	}
	s := tok.Stream(tokenizer.StreamOptions{SkipSpecial: skip})
	var text strings.Builder
	for i, id := range ids {
		piece, err := s.Push(id)
		require.NoError(tb, err)
		require.True(tb, utf8.ValidString(piece), "half a letter: %q", piece)
		text.WriteString(piece)

		soFar, err := decode(ids[:i+1])
		require.NoError(tb, err)
		// What is out is final; what is missing is the U+FFFD of at most 3 bytes.
		if text.String() != soFar {
			require.Equal(tb, soFar, text.String()+"\uFFFD", "ids %v", ids[:i+1])
		}
	}
	text.WriteString(s.Flush())
	want, err := decode(ids)
	require.NoError(tb, err)
	require.Equal(tb, want, text.String(), "ids %v", ids)
}

func TestStreamIsDecode(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	bytes := byteTokens().load(t)
	for range 2000 {
		ids := make([]int, 1+random.IntN(24))
		for i := range ids {
			// Lead and continuation bytes are likelier than chance to meet.
			ids[i] = []int{0x80, 0xBF, 0x90, 0xA0, 0xC3, 0xE0, 0xE4, 0xED, 0xF0, 0xF4, 'a', 257, 259, random.IntN(256)}[random.IntN(14)]
		}
		checkStream(t, bytes, ids, random.IntN(2) == 0)
	}
	for _, pair := range pairs {
		tok := load(t, pair)
		for range 200 {
			ids := make([]int, 1+random.IntN(24))
			for i := range ids {
				ids[i] = random.IntN(tok.VocabSize())
			}
			checkStream(t, tok, ids, random.IntN(2) == 0)
		}
	}
}
