package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// The byte-level alphabet writes each of the 256 bytes as one printable letter,
// so that a vocabulary of byte strings can be stored as JSON text. Printable
// Latin-1 bytes stand for themselves, the others take U+0100 and up in order.

// letterOf is the alphabet: the letter of each byte.
var letterOf = func() (letters [256]rune) {
	next := rune(0x100)
	for b := range letters {
		if '!' <= b && b <= '~' || 0xA1 <= b && b <= 0xAC || 0xAE <= b && b <= 0xFF {
			letters[b] = rune(b)
			continue
		}
		letters[b] = next
		next++
	}
	return letters
}()

// byteOf inverts letterOf; letters outside the alphabet have -1.
var byteOf = func() (bytes [0x100 + 68]int16) {
	for i := range bytes {
		bytes[i] = -1
	}
	for b, letter := range letterOf {
		bytes[letter] = int16(b)
	}
	return bytes
}()

// toBytes gives the bytes that text stands for, and false if a letter of it is
// outside the alphabet.
func toBytes(text string) (string, bool) {
	same := true
	for i := 0; i < len(text); i++ {
		if text[i] < '!' || text[i] > '~' {
			same = false
			break
		}
	}
	if same {
		return text, true
	}
	raw := make([]byte, 0, len(text))
	for _, letter := range text {
		if int(letter) >= len(byteOf) || byteOf[letter] < 0 {
			return "", false
		}
		raw = append(raw, byte(byteOf[letter]))
	}
	return string(raw), true
}

// toLetters writes raw bytes in the alphabet.
func toLetters(raw string) string {
	var text strings.Builder
	text.Grow(len(raw) + utf8.UTFMax)
	for i := 0; i < len(raw); i++ {
		text.WriteRune(letterOf[raw[i]])
	}
	return text.String()
}
