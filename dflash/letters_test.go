package dflash_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
)

// dictation allows nothing but the next token of a text, or the drafts' way
// through it.
type dictation struct {
	vocab int
	rest  []int
}

func (d *dictation) Free(int) bool { return false }

func (d *dictation) Masks(drafts []int) ([]uint32, error) {
	var out []uint32
	for i := range min(len(drafts)+1, len(d.rest)) {
		row := make([]uint32, (d.vocab+31)/32)
		row[d.rest[i]/32] |= 1 << (d.rest[i] % 32)
		out = append(out, row...)
		if i < len(drafts) && drafts[i] != d.rest[i] {
			break
		}
	}
	return out, nil
}

func (d *dictation) Advance(tokens []int) error {
	d.rest = d.rest[len(tokens):]
	return nil
}

// Cases 26, 29, 33 and 34: letters of several tokens leave when they are whole,
// marks and joined emoji one code point at a time, bytes that are no letter
// once, and what is left at the end with the last token, whatever ends it.
func TestLettersOfManyTokens(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 41})
	e := fixturePair(t, spec, fixture.DraftOptions{Seed: 42})
	s := newSession(t, e)
	for text, want := range map[string]string{ // pieces as they leave
		"aé中🇩🇪e\u0301x":                     "a|é|中|🇩|🇪|e|\u0301|x",
		"👩\u200d💻!":                         "👩|\u200d|💻|!",
		"\xe4\xbd \xffa\xf0\x9f":            "\uFFFD |\uFFFD|a|\uFFFD",
		"The quick brown fox":               "T|h|e| |q|u|i|c|k| |b|r",
		"its own f":                         "i|t|s| |own f",
		"\xc3own fox":                       "\uFFFD",
		"own fowné":                         "own f|owné",
		"o\u0301own \xf0\x9f\x98\x80wn fox": "o\u0301|own 😀|w|n| |f|ox",
	} {
		for _, form := range []dflash.Request{{IDs: []int{71, 72}}, {Prompt: "a", Thinking: new(false)}} {
			r := form
			r.Stop = []string{"own fox"}
			ids := make([]int, len(text))
			for i := range len(text) {
				ids[i] = int(text[i])
			}
			for _, way := range []string{"end", "limit"} {
				c := &dictation{spec.Vocab, slices.Clone(ids)}
				r.MaxTokens = 0
				if way == "limit" {
					r.MaxTokens = len(ids)
				} else {
					c.rest = append(c.rest, spec.EOS[0])
				}
				r := r
				dflash.Constrain(&r, c)
				tokens, all := reply(t, s, r)
				var pieces []string
				content := ""
				for _, token := range tokens {
					if token.Text != "" {
						pieces = append(pieces, token.Text)
					}
					for _, d := range token.Deltas {
						content += d.Text
					}
				}
				require.Equal(t, want, strings.Join(pieces, "|"), "%q, %s", text, way)
				cut, _, found := strings.Cut(text, "own fox")
				require.Equal(t, found, s.Stats().StopText != "")
				if utf8.ValidString(cut) {
					require.Equal(t, cut, all)
				}
				if r.Prompt != "" {
					require.Equal(t, strings.TrimLeft(all, "\n "), content)
				}
			}
		}
	}
}
