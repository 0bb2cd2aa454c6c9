package tokenizer

// What the tests of the package's parts look at; everything else goes through
// the public face.

// Split gives the pieces of the pre-tokenizer for normalized text.
func Split(t *Tokenizer, text string) (pieces []string) {
	for text != "" {
		n := t.split.next(text)
		pieces = append(pieces, text[:n])
		text = text[n:]
	}
	return pieces
}

// MergeSteps gives how many merges were queued for a piece.
func MergeSteps(t *Tokenizer, piece string) int {
	m := new(merger)
	m.append(nil, &t.bpe, piece)
	return m.pushes
}

var (
	NFC            = nfc
	ComposeSegment = composeSegment
	ToValidAll     = toValidAll

	NewerThanNormalizer = newerThanNormalizer.contains
)

const (
	PatternQwen3  = patternQwen3
	PatternQwen35 = patternQwen35
)
