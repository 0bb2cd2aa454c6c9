package tokenizer_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/qwen/tokenizer"
)

// The ids of these tests are the reference's (tokenizers 0.23.3), for the same
// changes to tiny-qwen3's tokenizer.json.

func TestAddedTokens(t *testing.T) {
	tok := load(t, "tiny-qwen3")
	for text, want := range map[string][]int{
		"<|im_start|>user\n":         append([]int{4033}, tok.EncodeOrdinary("user\n")...),
		"<|im_end|><|im_end|>":       {4034, 4034},
		"<<think>>":                  {27, 4035, 29},
		"<think></think>":            {4035, 4036},
		"<|im_start":                 tok.EncodeOrdinary("<|im_start"),
		"<|IM_END|>":                 tok.EncodeOrdinary("<|IM_END|>"),
		"x<|im_start|":               tok.EncodeOrdinary("x<|im_start|"),
		"<tool_call><tool_response>": {4037, 4039},
	} {
		require.Equal(t, want, tok.Encode(text), text)
	}

	// U+0338 would compose with the ">" before it; the token is cut out first.
	require.Equal(t, append([]int{4035}, tok.EncodeOrdinary("\u0338x")...), tok.Encode("<think>\u0338x"))
	require.Equal(t, tok.Encode("\u226f"), tok.Encode(">\u0338"))
}

func TestAddedTokensLongestOfTheLeftmost(t *testing.T) {
	d := tinyDefinition(t)
	d.add(4042, "<thi")
	d.add(4043, "<think>\n")
	d.add(4044, "hink>xx")
	tok := d.load(t)
	for text, want := range map[string][]int{
		"<think>\n":  {4043},
		"<think>xx":  {4035, 3471},
		"<thi":       {4042},
		"<thinx":     {4042, 77, 87},
		"<|endofte<": tok.EncodeOrdinary("<|endofte<"),
	} {
		require.Equal(t, want, tok.Encode(text), text)
	}
}

// A token with "normalized": true is looked for in normalized text, and its own
// text is normalized too.
func TestNormalizedAddedTokens(t *testing.T) {
	d := tinyDefinition(t)
	d.add(4042, "e\u0301x", "normalized")
	d.add(4043, "K!", "normalized")
	d.add(4044, "\u212a?", "normalized")
	tok := d.load(t)
	for text, want := range map[string][]int{
		"e\u0301x":        {4042},
		"\u00e9x":         {4042},
		"\u212a!":         {4043},
		"K!":              {4043},
		"\u212a?":         {4044},
		"K?":              {4044},
		"e\u0301<think>x": {127, 102, 4035, 87},
		"K!e\u0301xK!":    {4043, 4042, 4043},
	} {
		require.Equal(t, want, tok.Encode(text), text)
	}
	// Its letters are all in the byte-level alphabet, so decoding reads them as
	// bytes: U+00E9 is the byte E9.
	text, err := tok.Decode([]int{4042})
	require.NoError(t, err)
	require.Equal(t, "\uFFFDx", text)
}

func TestAddedTokenOutsideAlphabet(t *testing.T) {
	d := tinyDefinition(t)
	d.add(4042, "日本")
	d.add(4043, "a b")
	tok := d.load(t)
	require.Equal(t, []int{87, 4042, 4043}, tok.Encode("x日本a b"))
	text, err := tok.Decode([]int{4042, 4043})
	require.NoError(t, err)
	require.Equal(t, "日本a b", text)
	id, ok := tok.TokenID("日本")
	require.True(t, ok)
	require.Equal(t, 4042, id)
	name, ok := tok.Token(4043)
	require.True(t, ok)
	require.Equal(t, "a b", name)
}

// A vocabulary entry that merging does not reach is used only with
// ignore_merges, and an entry outside the alphabet never.
func TestWholePieces(t *testing.T) {
	d := tinyDefinition(t)
	d["added_tokens"] = []any{}
	d.at("model", "vocab")["zqzq"] = 4032
	d.at("model", "vocab")["日"] = 4033
	plain := d.load(t)
	d.at("model")["ignore_merges"] = true
	ignoring := d.load(t)
	for range 2 { // the first use decides, the second remembers
		require.Equal(t, []int{89, 80, 89, 80, 675, 80, 89, 80}, plain.Encode("zqzq zqzq"))
		require.Equal(t, []int{4032, 675, 80, 89, 80}, ignoring.Encode("zqzq zqzq"))
	}
	require.Equal(t, []int{162, 245, 98}, plain.Encode("日"))
	text, err := plain.Decode([]int{4033, 4032})
	require.NoError(t, err)
	require.Equal(t, "日zqzq", text)
	require.NotEqual(t, plain.Fingerprint(), ignoring.Fingerprint())
}

func TestMergeTwiceInTheListHasLaterRank(t *testing.T) {
	d := tinyDefinition(t)
	merges := d.at("model")["merges"].([]any)
	require.Equal(t, []int{2555, 333}, d.load(t).Encode("index in"))
	d.at("model")["merges"] = append(slices.Clone(merges), merges[0])
	require.Equal(t, []int{2555, 303, 77}, d.load(t).Encode("index in"))
}

func TestEncodeOrdinary(t *testing.T) {
	for _, pair := range pairs {
		tok := load(t, pair)
		for _, c := range goldenOf(t, pair).Encode {
			for _, id := range tok.EncodeOrdinary(c.Text) {
				require.Less(t, id, 4032, "%q: an added token in user content", c.Text)
			}
			if c.Group != "special" && c.Group != "generated" && !strings.ContainsAny(c.Text, "<") {
				require.Equal(t, c.IDs, tok.EncodeOrdinary(c.Text), c.Text)
			}
		}
		ids := tok.EncodeOrdinary("<|im_end|>\n<|im_start|>system")
		text, err := tok.DecodeSkipSpecial(ids)
		require.NoError(t, err)
		require.Equal(t, "<|im_end|>\n<|im_start|>system", text)
	}
}

// Case 33: no work on grapheme clusters. Case 36: NUL is U+0100 in the alphabet.
func TestByteTokens(t *testing.T) {
	tok := byteTokens().load(t)
	for b := range 256 {
		name, ok := tok.Token(b)
		require.True(t, ok)
		require.Equal(t, letterOfByte(b), name)
	}
	for _, text := range []string{"", "a", "don't  stop\r\n", "\x00\x7f", "x\u0301", "🇩🇪", "👨\u200d👩\u200d👧", "q\u0301x", "\ufeff\ufffd"} {
		require.Equal(t, bytesOf(text), tok.Encode(text), text)
		got, err := tok.Decode(tok.Encode(text))
		require.NoError(t, err)
		require.Equal(t, text, got)
	}
	require.Equal(t, append(append([]int{256}, bytesOf("hi")...), 257, 259, 260, 258), tok.Encode("<|im_start|>hi<|im_end|><think></think><|endoftext|>"))
}

func TestEncodeInvalidUTF8(t *testing.T) {
	tok := byteTokens().load(t)
	for text, want := range map[string]string{
		"\xff":                     "\uFFFD",
		"a\xe4\xbd b":              "a\uFFFD b",
		"\xf0\x9f\x98":             "\uFFFD",
		"\xf0\x9f\x98\x80":         "😀",
		"\xf0\x9f\xf0\x9f\x98\x80": "\uFFFD😀",
		"\xed\xa0\x80":             "\uFFFD\uFFFD\uFFFD", // a surrogate
		"\xc0\xaf":                 "\uFFFD\uFFFD",       // overlong
		"\xf4\x90\x80\x80":         "\uFFFD\uFFFD\uFFFD\uFFFD",
		"\xe2\x82<think>":          "\uFFFD<think>",
	} {
		require.Equal(t, tok.Encode(want), tok.Encode(text), "%q", text)
		require.Equal(t, bytesOf(want), tok.EncodeOrdinary(text), "%q", text)
	}
}

// Long texts must take linear work (n log n for one long word): a quadratic step
// anywhere would take hours, not fail an assertion.
func TestLongTexts(t *testing.T) {
	const megabyte, short = 1 << 20, 1 << 15
	for _, c := range []struct {
		name, unit string
		size       int
		decoded    string // if the text is not its own normal form
	}{
		{"one letter", "a", megabyte, ""},
		{"control tokens", "<|im_start|>", megabyte, ""},
		{"combining marks", "\u0301", megabyte, ""},
		{"nearly tokens", "<|im_start<|im_star", short, ""},
		{"opening brackets", "<", short, ""},
		{"one ideogram", "中", short, ""},
		{"marks in wrong order", "\u0301\u0323", short, "\u0323\u0301"},
		{"marks new to the reference", "\u1dfa\u0301", short, ""},
		{"vowel jamo", "\u1161", short, ""},
		{"spaces", " ", short, ""},
		{"line breaks", "\n", short, ""},
		{"spaces and letters", "  \t a", short, ""},
		{"broken UTF-8", "\xf0\x9f", short, "\uFFFD"},
		{"digits", "0", short, ""},
		{"apostrophes", "'", short, ""},
	} {
		for _, pair := range pairs[:2] {
			t.Run(pair+"/"+c.name, func(t *testing.T) {
				tok, n := load(t, pair), c.size/len(c.unit)
				text := strings.Repeat(c.unit, n)
				decoded, err := tok.Decode(tok.Encode(text))
				require.NoError(t, err)
				switch c.decoded {
				case "":
					require.True(t, decoded == text, "decoded text differs")
				case "\uFFFD":
					require.True(t, decoded == strings.Repeat(c.decoded, n), "decoded text differs")
				default: // all of one kind of mark come first
					a, b := c.decoded[:len(c.decoded)/2], c.decoded[len(c.decoded)/2:]
					require.True(t, decoded == strings.Repeat(a, n)+strings.Repeat(b, n), "decoded text differs")
				}
			})
		}
	}
}

// The bound that the merger's comment states, for pieces with as many merges as
// possible.
func TestMergeWork(t *testing.T) {
	tok := load(t, "tiny-qwen3")
	for _, unit := range []string{"a", "in", "error", "return", "ab"} {
		for _, n := range []int{1, 2, 3, 100, 20_000} {
			piece := strings.Repeat(unit, n)
			require.LessOrEqual(t, tokenizer.MergeSteps(tok, piece), 3*len(piece), unit)
		}
	}
	require.Positive(t, tokenizer.MergeSteps(tok, "return"))
}

// A limit cuts the ids and changes nothing else; a text that is far longer than
// it is hardly read.
func TestEncodeUpTo(t *testing.T) {
	d := tinyDefinition(t)
	d.add(4042, "e\u0301x", "normalized")
	tok := d.load(t)

	// A piece of blanks that is made of the longest token.
	half := strings.Repeat("\u0120", 16)
	d = tinyDefinition(t)
	d["added_tokens"] = []any{}
	d.at("model", "vocab")[half+half] = 4032
	d.at("model")["merges"] = append(slices.Clone(d.at("model")["merges"].([]any)), half+" "+half)
	blanks := d.load(t)
	for limit := range 6 {
		ids, ok := blanks.EncodeUpTo(strings.Repeat(" ", 96), limit)
		require.Equal(t, limit >= 3, ok, limit)
		if ok {
			require.Equal(t, []int{4032, 4032, 4032}, ids)
		}
	}

	for _, text := range []string{
		"", "a", "<think>", "<|im_start|>user\nHello, world!<|im_end|>\n", "e\u0301x and \u00e9x", "func main() {\n\tfmt.Println(1, 22, 333)\n}\n",
		strings.Repeat("ab", 60), strings.Repeat(" ", 300), "\xff<think>\xff", strings.Repeat("<think>", 5), strings.Repeat("\u03b1\u0313\u0301\u0345", 20),
	} {
		for name, encode := range map[string]struct {
			whole func(string) []int
			upTo  func(string, int) ([]int, bool)
		}{"Encode": {tok.Encode, tok.EncodeUpTo}, "EncodeOrdinary": {tok.EncodeOrdinary, tok.EncodeOrdinaryUpTo}} {
			want := encode.whole(text)
			for limit := range len(want) + 3 {
				ids, ok := encode.upTo(text, limit)
				require.Equal(t, len(want) <= limit, ok, "%s of %q up to %d", name, text, limit)
				if ok {
					require.Equal(t, want, ids)
				} else {
					require.LessOrEqual(t, len(ids), limit)
					require.Equal(t, want[:len(ids)], ids)
				}
			}
		}
	}

	for name, text := range map[string]string{"one word": strings.Repeat("a", 8<<20), "words": strings.Repeat("word ", 2<<20), "tags": strings.Repeat("<think>", 1<<20)} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, ok := tok.EncodeUpTo(text, 1000)
		runtime.ReadMemStats(&after)
		require.False(t, ok)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), name)
	}
}

func TestConcurrentUse(t *testing.T) {
	tok := tinyDefinition(t).load(t) // fresh: the whole-piece table is empty
	g := goldenOf(t, "tiny-qwen3")
	var group sync.WaitGroup
	failures := make(chan string, 8)
	for range 8 {
		group.Go(func() {
			for _, c := range g.Encode {
				if got := tok.Encode(c.Text); !slices.Equal(got, c.IDs) {
					failures <- fmt.Sprintf("%q: got %v want %v", c.Text, got, c.IDs)
					return
				}
			}
		})
	}
	group.Wait()
	close(failures)
	for failure := range failures {
		t.Error(failure)
	}
}
