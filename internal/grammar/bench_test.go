package grammar

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// largeVocab has as many tokens as Qwen3.5's vocabulary, of lengths like its.
func largeVocab() func() *Vocab {
	rng := rand.New(rand.NewPCG(1, 2))
	seen := map[string]bool{}
	var texts []string
	add := func(s string) {
		if !seen[s] {
			seen[s] = true
			texts = append(texts, s)
		}
	}
	for b := range 256 {
		add(string([]byte{byte(b)}))
	}
	for n := 1; n <= 128; n++ {
		add(fmt.Sprintf("%*s", n, ""))
	}
	for len(texts) < 248000 {
		var s []byte
		if rng.IntN(2) == 0 {
			s = append(s, ' ')
		}
		switch rng.IntN(10) {
		case 0: // other scripts
			for range 1 + rng.IntN(4) {
				s = append(s, string(rune(0x400+rng.IntN(0x8000)))...)
			}
		case 1: // punctuation
			for range 1 + rng.IntN(5) {
				s = append(s, "\"'{}[]:,.;()<>/\\-_=+*&%$#@! \n\t"[rng.IntN(30)])
			}
		default:
			for range 2 + rng.IntN(9) {
				s = append(s, byte('a'+min(rng.IntN(26), rng.IntN(26))))
			}
		}
		add(string(s))
	}
	return func() *Vocab {
		return NewVocab(len(texts)+1, func(id int) Token {
			if id == len(texts) {
				return Token{Kind: End}
			}
			return Token{texts[id], Ordinary}
		})
	}
}

// BenchmarkMask is the cost of a mask over 248,000 tokens: at a new stack, which
// is the usual case while a document grows, at one that was there before, and of
// a machine that knows nothing.
func BenchmarkMask(b *testing.B) {
	build := largeVocab()
	vocab := build()
	form, err := Compile(Reply{Schema: []byte(`{"$defs":{"n":{"type":"object","properties":{"name":{"type":"string"},"n":{"type":"integer"},"sub":{"type":"array","items":{"$ref":"#/$defs/n"}}},"required":["name"]}},"$ref":"#/$defs/n"}`)})
	if err != nil {
		b.Fatal(err)
	}
	at := func(m *Machine, text string) *State {
		s := m.Start()
		for _, c := range []byte(text) {
			s, _ = m.Advance(s, int(c))
		}
		return s
	}
	b.Run("vocabulary", func(b *testing.B) {
		for b.Loop() {
			build()
		}
	})
	for _, place := range []struct{ name, text string }{{"string", `{"name": "a`}, {"number", `{"name": "a", "n": 1`}, {"key", `{"name": "a", "`}} {
		b.Run(place.name+"/first", func(b *testing.B) {
			for b.Loop() {
				m := NewMachine(form, vocab)
				m.Mask(at(m, place.text))
			}
		})
		b.Run(place.name+"/new stack", func(b *testing.B) {
			m := NewMachine(form, vocab)
			text := ""
			for b.Loop() {
				text += `{"name": "a", "sub": [`
				if len(text) > 5000 {
					text = ""
					b.StopTimer()
					m = NewMachine(form, vocab)
					m.Mask(at(m, place.text))
					b.StartTimer()
				}
				b.StopTimer()
				s := at(m, text+place.text)
				b.StartTimer()
				m.Mask(s)
			}
		})
		b.Run(place.name+"/known", func(b *testing.B) {
			m := NewMachine(form, vocab)
			s := at(m, place.text)
			for b.Loop() {
				m.Mask(s)
			}
		})
	}
}
