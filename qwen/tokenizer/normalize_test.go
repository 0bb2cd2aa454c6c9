package tokenizer_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"

	"github.com/godflash/godflash/qwen/tokenizer"
)

func TestNFC(t *testing.T) {
	marks := strings.Repeat("\u0301", 40)
	for text, want := range map[string]string{
		"":                       "",
		"ascii":                  "ascii",
		"e\u0301":                "é",
		"a\u0323\u0307":          "ạ\u0307",
		"a\u0307\u0323":          "ạ\u0307",
		"\u1100\u1161\u11a8":     "각",
		"\u212b\u2126\u212a":     "ÅΩK",
		"\u0958":                 "\u0915\u093c",  // excluded from composition
		"e" + marks:              "é" + marks[2:], // no U+034F
		"e" + marks + "\u0323":   "ẹ" + marks,
		marks + "\u0323e\u0301":  "\u0323" + marks + "é",
		"x" + marks + "\u212a é": "x" + marks + "K é",
		// Newer than the reference's normalizer: neither moved nor crossed.
		"a\u1dfa\u0301":             "a\u1dfa\u0301",
		"\U000105d2\u0307":          "\U000105d2\u0307",
		"\U00016d63\U00016d67":      "\U00016d63\U00016d67",
		"\u1dfa\u0301\u0323e\u0301": "\u1dfa\u0323\u0301é",
	} {
		require.Equal(t, want, tokenizer.NFC(text), "%+q", text)
	}
}

// The slow path must agree with x/text wherever x/text is right, which is
// everywhere but in long runs of marks.
func TestComposeSegmentAgainstNorm(t *testing.T) {
	var pool []rune
	for r := rune(1); r < unicode.MaxRune; r++ {
		if (r < 0xD800 || r > 0xDFFF) && (norm.NFD.PropertiesString(string(r)).CCC() != 0 || !norm.NFC.PropertiesString(string(r)).BoundaryBefore()) {
			pool = append(pool, r)
		}
		if decomposed := norm.NFD.String(string(r)); decomposed != string(r) && (r < 0xAC00 || r%97 == 0) {
			pool = append(pool, r)
			pool = append(pool, []rune(decomposed)...)
			require.Equal(t, norm.NFC.String(decomposed), tokenizer.ComposeSegment(decomposed), "%+q", decomposed)
		}
	}
	require.Greater(t, len(pool), 3000)
	random := rand.New(rand.NewPCG(5, 6))
	for range 20_000 {
		var text strings.Builder
		for range 1 + random.IntN(7) {
			text.WriteRune(pool[random.IntN(len(pool))])
		}
		require.Equal(t, norm.NFC.String(text.String()), tokenizer.ComposeSegment(text.String()), "%+q", text.String())
	}
}

// The lists of characters newer than the reference's tables were made for these
// versions. When one rises, compare all code points with the reference again and
// complete the lists.
func TestUnicodeVersion(t *testing.T) {
	require.Equal(t, "17.0.0", unicode.Version)
	require.Equal(t, "17.0.0", norm.Version)
}
