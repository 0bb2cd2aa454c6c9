package tokenizer_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/qwen/tokenizer"
)

// sourceText is about 70 kB of English and code: the tokenizer's own sources.
func sourceText(tb testing.TB) string {
	tb.Helper()
	names, err := os.ReadDir(".")
	require.NoError(tb, err)
	var text strings.Builder
	for _, name := range names {
		data, err := os.ReadFile(name.Name())
		if err == nil {
			text.Write(data)
		}
	}
	return text.String()
}

func BenchmarkLoad(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_, err := tokenizer.Load(testdata("tiny-qwen3.5", "target"))
		require.NoError(b, err)
	}
}

func BenchmarkEncode(b *testing.B) {
	for name, text := range map[string]string{
		"source":     sourceText(b),
		"chinese":    strings.Repeat("快速的棕色狐狸跳过懒狗。", 2000),
		"accents":    strings.Repeat("Ce\u0301sar et\u0327 l'e\u0301te\u0301 ", 2000),
		"one letter": strings.Repeat("a", 1<<16),
		"spaces":     strings.Repeat(" ", 1<<16),
		"control":    strings.Repeat("<|im_start|>", 1<<12),
	} {
		b.Run(name, func(b *testing.B) {
			tok := load(b, "tiny-qwen3.5")
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				tok.Encode(text)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	tok := load(b, "tiny-qwen3.5")
	text := sourceText(b)
	ids := tok.Encode(text)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		_, err := tok.Decode(ids)
		require.NoError(b, err)
	}
}

func BenchmarkStream(b *testing.B) {
	tok := load(b, "tiny-qwen3.5")
	ids := tok.Encode(strings.Repeat("The fox, 狐狸, jumps. 😀\n", 100))
	b.ReportAllocs()
	for b.Loop() {
		s := tok.Stream(tokenizer.StreamOptions{})
		for _, id := range ids {
			if _, err := s.Push(id); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(ids)), "ns/token")
}
