package tokenizer

import (
	"fmt"
	"math"
	"strings"
)

// A Tokenizer is the tokenizer of one checkpoint. It does not change after
// [Load] or [New], and any number of goroutines may use it at once.
type Tokenizer struct {
	bpe       bpe
	split     splitter
	normalize bool

	tokens []token // by id; a hole has an empty text
	added  map[string]int32
	// rawMatcher finds added tokens in the raw text, normalizedMatcher those with
	// "normalized": true in the normalized text between them.
	rawMatcher        matcher
	normalizedMatcher matcher
	// foreign are vocabulary entries with a letter outside the byte-level
	// alphabet. Merging cannot reach them.
	foreign map[string]int32

	eos         []int
	bos, pad    int // -1 for none
	fingerprint [32]byte
}

// A token is the text of one id.
type token struct {
	raw     string // the bytes that decoding yields
	foreign bool   // the text in the file is raw itself, not raw in the alphabet
	special bool
}

// Encode gives the ids of a text. Added tokens inside the text (control tokens,
// tags such as <think>) become their ids; none is put in front or behind. Bytes
// that are not UTF-8 count as U+FFFD, one for each maximal bad part.
//
// Text from outside should not be able to close its own turn: see
// [Tokenizer.EncodeOrdinary].
func (t *Tokenizer) Encode(text string) []int {
	ids, _ := t.EncodeUpTo(text, math.MaxInt)
	return ids
}

// EncodeUpTo is Encode for a text that may have limit tokens: ok says that it has
// no more. If it has, which is found without encoding all of it, ids are those
// of a beginning.
func (t *Tokenizer) EncodeUpTo(text string, limit int) (ids []int, ok bool) {
	text = toValidAll(text)
	e := t.encoder(len(text), limit)
	defer e.close()
	for from := 0; from < len(text) && !e.over; {
		start, end, id := t.rawMatcher.find(text, from)
		if start > from {
			e.segment(text[from:start])
		}
		e.add(id)
		from = end
	}
	return e.ids, !e.over
}

// EncodeOrdinary gives the ids of a text in which no added token is recognised:
// "<|im_end|>" comes out as the letters it is made of. It is meant for user
// content, which must not be able to speak with the voice of the template. No id
// it gives is special.
func (t *Tokenizer) EncodeOrdinary(text string) []int {
	ids, _ := t.EncodeOrdinaryUpTo(text, math.MaxInt)
	return ids
}

// EncodeOrdinaryUpTo is to EncodeOrdinary what EncodeUpTo is to Encode.
func (t *Tokenizer) EncodeOrdinaryUpTo(text string, limit int) (ids []int, ok bool) {
	text = toValidAll(text)
	e := t.encoder(len(text), limit)
	defer e.close()
	if t.normalize {
		text = nfc(text)
	}
	e.ordinary(text)
	return e.ids, !e.over
}

type encoder struct {
	*Tokenizer
	merger *merger
	ids    []int
	limit  int  // of ids
	over   bool // the text has more
}

func (t *Tokenizer) encoder(size, limit int) *encoder {
	return &encoder{Tokenizer: t, merger: t.bpe.merger(), ids: make([]int, 0, min(size/3, max(limit, 0))+1), limit: limit}
}

// add takes an added token, or nothing where id is -1.
func (e *encoder) add(id int32) {
	switch {
	case id < 0 || e.over:
	case len(e.ids) >= e.limit:
		e.over = true
	default:
		e.ids = append(e.ids, int(id))
	}
}

func (e *encoder) close() { e.bpe.release(e.merger) }

// segment encodes raw text between added tokens.
func (e *encoder) segment(text string) {
	if e.normalize {
		text = nfc(text)
	}
	if e.normalizedMatcher.empty() {
		e.ordinary(text)
		return
	}
	for from := 0; from < len(text) && !e.over; {
		start, end, id := e.normalizedMatcher.find(text, from)
		e.ordinary(text[from:start])
		e.add(id)
		from = end
	}
}

// ordinary encodes normalized text without added tokens. Since no token is
// longer than the longest, a long piece can be over the limit before it is
// merged.
func (e *encoder) ordinary(text string) {
	for text != "" && !e.over {
		n := e.split.next(text)
		if left := e.limit - len(e.ids); n > e.bpe.longest && (n-1)/e.bpe.longest >= left {
			e.over = true
			return
		}
		e.ids = e.bpe.append(e.ids, text[:n], e.merger)
		if len(e.ids) > e.limit {
			e.ids, e.over = e.ids[:e.limit], true
		}
		text = text[n:]
	}
}

// Decode gives the text of ids, special tokens included. Bytes that form no
// UTF-8 come out as U+FFFD, one for each maximal bad part. An id without a token
// is an error that wraps [ErrUnknownID].
func (t *Tokenizer) Decode(ids []int) (string, error) {
	return t.decode(ids, false)
}

// DecodeSkipSpecial is Decode without the special tokens. Added tokens that are
// not special, such as <think> and <tool_call> in this family, stay.
func (t *Tokenizer) DecodeSkipSpecial(ids []int) (string, error) {
	return t.decode(ids, true)
}

func (t *Tokenizer) decode(ids []int, skipSpecial bool) (string, error) {
	var text strings.Builder
	for _, id := range ids {
		piece, special, err := t.piece(id)
		if err != nil {
			return "", err
		}
		if !special || !skipSpecial {
			text.WriteString(piece)
		}
	}
	return toValidAll(text.String()), nil
}

// piece gives the bytes of an id and whether it is a special token.
func (t *Tokenizer) piece(id int) (string, bool, error) {
	if !t.known(id) {
		return "", false, fmt.Errorf("tokenizer: %w: %d (vocabulary size %d)", ErrUnknownID, id, len(t.tokens))
	}
	return t.tokens[id].raw, t.tokens[id].special, nil
}

func (t *Tokenizer) known(id int) bool {
	return id >= 0 && id < len(t.tokens) && t.tokens[id].raw != ""
}

// TokenID gives the id of a token by its text in the file: ordinary tokens are
// written in the byte-level alphabet ("Ġhello" for " hello"), added tokens as
// they are.
func (t *Tokenizer) TokenID(token string) (int, bool) {
	id, ok := t.added[token]
	if !ok {
		id, ok = t.vocabularyID(token)
	}
	return int(id), ok
}

func (t *Tokenizer) vocabularyID(text string) (int32, bool) {
	raw, ok := toBytes(text)
	if !ok {
		id, ok := t.foreign[text]
		return id, ok
	}
	id, ok := t.bpe.pieces[raw]
	return id, ok
}

// Token gives the text in the file of an id; it is the inverse of TokenID.
func (t *Tokenizer) Token(id int) (string, bool) {
	if !t.known(id) {
		return "", false
	}
	if t.tokens[id].foreign {
		return t.tokens[id].raw, true
	}
	return toLetters(t.tokens[id].raw), true
}

// Bytes gives the bytes that an id stands for, which need not be whole
// characters; nil for an id outside the vocabulary.
func (t *Tokenizer) Bytes(id int) []byte {
	if !t.known(id) {
		return nil
	}
	return []byte(t.tokens[id].raw)
}

// IsSpecial says whether an id is a special token, one that DecodeSkipSpecial
// leaves out.
func (t *Tokenizer) IsSpecial(id int) bool {
	return t.known(id) && t.tokens[id].special
}

// IsAdded says whether an id is an added token: one that Encode finds in a text
// as it stands, such as <|im_end|> and <think>.
func (t *Tokenizer) IsAdded(id int) bool {
	if !t.known(id) {
		return false
	}
	added, ok := t.added[t.tokens[id].raw]
	return ok && int(added) == id
}

// VocabSize is the highest id plus one. A model's embedding may have more rows.
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

// EOS gives the ids of the end-of-sequence tokens that the tokenizer's files
// name, none if they name none. generation_config.json may name others.
func (t *Tokenizer) EOS() []int { return append([]int(nil), t.eos...) }

// BOS gives the id of the beginning-of-sequence token, if the files name one.
// Encode does not add it.
func (t *Tokenizer) BOS() (int, bool) { return t.bos, t.bos >= 0 }

// Pad gives the id of the padding token, if the files name one.
func (t *Tokenizer) Pad() (int, bool) { return t.pad, t.pad >= 0 }

// Fingerprint is a SHA-256 over all that decides ids: vocabulary, merges, added
// tokens, normalizer and pattern. Tokenizers with the same fingerprint give the
// same ids, however their files are written.
func (t *Tokenizer) Fingerprint() [32]byte { return t.fingerprint }
