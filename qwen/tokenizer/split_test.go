package tokenizer_test

import (
	"slices"
	"testing"

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
