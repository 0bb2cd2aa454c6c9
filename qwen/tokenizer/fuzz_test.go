package tokenizer_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/qwen/tokenizer"
)

// FuzzNew: whatever the file, either an error with one of the two sentinels or a
// tokenizer whose ids, names and texts belong together.
func FuzzNew(f *testing.F) {
	good := func(file, config []byte) {
		_, err := tokenizer.New(file, config)
		require.NoError(f, err)
		f.Add(file, config)
	}
	good(byteTokens().json(f), []byte(nil))
	base := byteTokens("ab", "abc", "<x>")
	base.at("model")["merges"] = []any{"a b", "ab c"}
	good(base.json(f), []byte(`{"eos_token": "<|im_end|>", "added_tokens_decoder": {"266": {"content": "<y>"}}}`))
	base.at("model")["merges"] = []any{[]any{"ab", "c"}, []any{"a", "b"}}
	base.add(258, "<x>", "special")
	base.add(266, "e\u0301x", "normalized")
	good(base.json(f), []byte(`{"pad_token": {"content": "ab"}}`))
	base.at("model")["ignore_merges"] = true
	base["normalizer"] = nil
	good(base.json(f), []byte(`{}`))
	f.Add([]byte(`{"model":{"vocab":{"a":1048575}}}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, file, config []byte) {
		tok, err := tokenizer.New(file, config)
		if err != nil {
			if !errors.Is(err, tokenizer.ErrMalformed) && !errors.Is(err, tokenizer.ErrUnsupported) {
				t.Fatalf("no sentinel: %v", err)
			}
			return
		}
		for id := range tok.VocabSize() {
			text, ok := tok.Token(id)
			if !ok {
				_, err := tok.Decode([]int{id})
				require.ErrorIs(t, err, tokenizer.ErrUnknownID)
				continue
			}
			back, ok := tok.TokenID(text)
			require.True(t, ok)
			require.Equal(t, id, back)
		}
		for _, id := range tok.EOS() {
			_, ok := tok.Token(id)
			require.True(t, ok)
		}
		const text = "ab <x> e\u0301<|im_end|>\n\n 1"
		_, err = tok.Decode(tok.Encode(text))
		require.NoError(t, err)
		ordinary := tok.EncodeOrdinary(text)
		require.False(t, slices.ContainsFunc(ordinary, tok.IsSpecial))
		decoded, err := tok.Decode(ordinary)
		require.NoError(t, err)
		require.Contains(t, []string{text, tokenizer.NFC(text)}, decoded)
	})
}

// addedIDs are the added tokens of the tiny pairs.
var addedIDs = [2]int{4032, 4042}

// FuzzEncodeDecode: for any text
//   - Decode(EncodeOrdinary(text)) is the NFC of the text made valid,
//   - Decode(Encode(text)) is the text made valid with its added tokens as they
//     are and each stretch between them in NFC,
//   - encoding that result again gives the same ids,
//   - the pieces of the pre-tokenizer are those of the regular expression.
func FuzzEncodeDecode(f *testing.F) {
	for _, text := range append(splitAlphabet, "<|im_start|>user\n", "<think>\u0338", "e\u0301\u0323", "\xf0\x9f\xff", strings.Repeat("\u0301", 40), "\u1100\u1161\u11a8", "\u1dfa\u0301") {
		f.Add(text)
	}
	for _, c := range goldenOf(f, "tiny-qwen3").Encode {
		if len(c.Text) < 200 {
			f.Add(c.Text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<12 {
			t.Skip("the oracle is slow")
		}
		valid := tokenizer.ToValidAll(text)
		require.True(t, utf8.ValidString(valid))
		if utf8.ValidString(text) {
			require.Equal(t, text, valid)
		}
		for _, pair := range pairs[:2] {
			tok := load(t, pair)
			ordinary := tok.EncodeOrdinary(text)
			for _, id := range ordinary {
				require.Less(t, id, addedIDs[0])
			}
			decoded, err := tok.Decode(ordinary)
			require.NoError(t, err)
			require.Equal(t, tokenizer.NFC(valid), decoded)

			ids := tok.Encode(text)
			var want strings.Builder
			rest := valid
			for _, id := range ids {
				if id < addedIDs[0] || id >= addedIDs[1] {
					continue
				}
				name, _ := tok.Token(id)
				before, after, found := strings.Cut(rest, name)
				require.True(t, found, "%s is not in the text", name)
				want.WriteString(tokenizer.NFC(before))
				want.WriteString(name)
				rest = after
			}
			want.WriteString(tokenizer.NFC(rest))
			decoded, err = tok.Decode(ids)
			require.NoError(t, err)
			require.Equal(t, want.String(), decoded)
			require.True(t, slices.Equal(ids, tok.Encode(decoded)), "%q", decoded)
		}
	})
}

// FuzzSplit compares the scanner with the regular expression. Characters on
// which the engine's Unicode tables may differ from the reference's are left out.
func FuzzSplit(f *testing.F) {
	oracles := [2]oracle{newOracle(tokenizer.PatternQwen3), newOracle(tokenizer.PatternQwen35)}
	for _, text := range append(splitAlphabet, "don't  STOP\r\n\r\n x", " \u0301a'ſ") {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.Map(func(r rune) rune {
			if r == utf8.RuneError || r >= 0x0870 && !strings.ContainsRune("\u093f\u200b\u200d\u2028\u3000中Ⅷ😀", r) {
				return -1
			}
			return r
		}, text)
		if text == "" || len(text) > 1<<10 {
			return
		}
		for i, pair := range pairs[:2] {
			require.Equal(t, oracles[i].split(t, text), tokenizer.Split(load(t, pair), text), "%q", text)
		}
	})
}

// FuzzStream: the promises of checkStream, for any ids, of each tokenizer.
func FuzzStream(f *testing.F) {
	f.Add([]byte("\x00\xf0\x00\x9f\x01\x01\x00\x98\x00\x80"), true)
	f.Add([]byte("\x00\xe4\x00\xbd\x00\x20"), false)
	f.Add([]byte("\x0f\xc1\x0f\xc2\x0f\xc3"), true)
	bytes := byteTokens().load(f)
	f.Fuzz(func(t *testing.T, data []byte, skip bool) {
		if len(data) > 1<<9 {
			t.Skip("checkStream decodes every prefix")
		}
		for _, tok := range []*tokenizer.Tokenizer{bytes, load(t, "tiny-qwen3")} {
			var ids []int
			for d := data; len(d) >= 2; d = d[2:] {
				ids = append(ids, int(binary.BigEndian.Uint16(d))%tok.VocabSize())
			}
			checkStream(t, tok, ids, skip)
		}
	})
}

// FuzzNFC: the whole-text path and the segment path agree wherever the reference
// knows all characters, and normalizing twice changes nothing.
func FuzzNFC(f *testing.F) {
	f.Add("e\u0301\u0323")
	f.Add(strings.Repeat("a\u0301", 5) + strings.Repeat("\u0323", 40))
	f.Add("\u1100\u1161\u11a8\u1dfa\u0301")
	f.Fuzz(func(t *testing.T, text string) {
		text = tokenizer.ToValidAll(text)
		normal := tokenizer.NFC(text)
		require.Equal(t, normal, tokenizer.NFC(normal))
		for _, r := range text {
			if tokenizer.NewerThanNormalizer(r) {
				return
			}
		}
		require.Equal(t, tokenizer.ComposeSegment(text), normal)
	})
}
