package tokenizer_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dlclark/regexp2/v2"
	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/qwen/tokenizer"
)

func TestGoldenSplit(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair, func(t *testing.T) {
			tok := load(t, pair)
			for _, c := range goldenOf(t, pair).Split {
				if got := tokenizer.Split(tok, tokenizer.NFC(c.Text)); !slices.Equal(got, c.Pieces) {
					t.Errorf("%q\n got %q\nwant %q", c.Text, got, c.Pieces)
				}
			}
		})
	}
}

// Case 36: what Go's regexp cannot do, and what dropping the look-ahead would
// change. Pieces as the reference cuts them.
func TestSplit(t *testing.T) {
	both := map[string][]string{
		"a  b":               {"a", " ", " b"},
		"a   \n\n b":         {"a", "   \n\n", " b"},
		"\t\tx":              {"\t", "\tx"},
		"don't DON'T":        {"don", "'t", " DON", "'T"},
		"12345":              {"1", "2", "3", "4", "5"},
		"中文字":                {"中文字"},
		"😀😀":                 {"😀😀"},
		"a\u00a0b":           {"a", "\u00a0b"},
		"a\r\nb\r\n":         {"a", "\r\n", "b", "\r\n"},
		"  \u3000x":          {"  ", "\u3000x"},
		"he'ſ'Rex":           {"he", "'ſ", "'Re", "x"},
		" \u088f\u088f":      {" \u088f\u088f"},          // a letter since Unicode 17
		"a\u088fb":           {"a", "\u088fb"},           // to the reference it is none
		"x\U000323b0":        {"x", "\U000323b0"},        // nor is an ideogram of Unicode 17
		"!\n\n  x":           {"!\n\n", " ", " x"},       // line breaks stick to punctuation
		"\u0085\u180e\u00ad": {"\u0085", "\u180e\u00ad"}, // white space, then two that are not
	}
	marks := map[string][2][]string{
		"e\u0303\u0301x": {{"e", "\u0303\u0301", "x"}, {"e\u0303\u0301x"}},
		" \u0301a":       {{" \u0301", "a"}, {" \u0301a"}},
		"\u0301\u0301!":  {{"\u0301\u0301!"}, {"\u0301\u0301", "!"}},
		"नमस्ते":         {{"नमस", "्त", "े"}, {"नमस्ते"}},
	}
	for i, pair := range pairs[:2] {
		tok := load(t, pair)
		for text, want := range both {
			require.Equal(t, want, tokenizer.Split(tok, text), "%s: %q", pair, text)
		}
		for text, want := range marks {
			require.Equal(t, want[i], tokenizer.Split(tok, text), "%s: %q", pair, text)
		}
	}
}

// oracle cuts by the pattern itself, with an engine that has look-ahead.
type oracle struct{ re *regexp2.Regexp }

func newOracle(pattern string) oracle {
	return oracle{regexp2.MustCompile(pattern, regexp2.None)}
}

func (o oracle) split(tb testing.TB, text string) (pieces []string) {
	tb.Helper()
	m, err := o.re.FindStringMatch(text)
	for ; m != nil && err == nil; m, err = o.re.FindNextMatch(m) {
		pieces = append(pieces, m.String())
	}
	require.NoError(tb, err)
	return pieces
}

// splitAlphabet has a few characters of every class that the patterns and the
// scanner tell apart. All were in Unicode before either engine's tables.
var splitAlphabet = strings.Split("a|Z|é|中|ſ|s|S|t|r|e|v|m|l|d|'|'|1|٣|Ⅷ|½| | | |\t|\n|\r|\u00a0|\u3000|\u0085|\u2028|!|.|-|<|_|$|😀|\u0301|\u0323|\u093f|\u200d|\u200b|\x00", "|")

func TestSplitAgainstRegularExpression(t *testing.T) {
	for pair, pattern := range map[string]string{"tiny-qwen3": tokenizer.PatternQwen3, "tiny-qwen3.5": tokenizer.PatternQwen35} {
		tok, reference := load(t, pair), newOracle(pattern)
		random := rand.New(rand.NewPCG(1, 2))
		for range 8_000 {
			var text strings.Builder
			for range 1 + random.IntN(12) {
				text.WriteString(splitAlphabet[random.IntN(len(splitAlphabet))])
			}
			require.Equal(t, reference.split(t, text.String()), tokenizer.Split(tok, text.String()), "%s: %q", pair, text.String())
		}
	}
}
