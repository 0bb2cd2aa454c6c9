package tokenizer

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"unicode/utf8"

	"github.com/godflash/godflash/internal/readfile"
)

// Load reads the tokenizer of a checkpoint's folder: tokenizer.json, and if they
// are there tokenizer_config.json (names of eos, bos and padding, further added
// tokens) and special_tokens_map.json (the same names in older checkpoints).
// Errors wrap [ErrMalformed], [ErrUnsupported] or the file system's error.
func Load(dir string) (*Tokenizer, error) {
	definition, err := readfile.Regular(filepath.Join(dir, "tokenizer.json"), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("tokenizer: %s holds no tokenizer.json, without which texts and tokens cannot be turned into each other; fetch that file from where the model came from: %w", dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	settings, err := readOptional(dir, "tokenizer_config.json")
	if err != nil {
		return nil, err
	}
	names, err := readOptional(dir, "special_tokens_map.json")
	if err != nil {
		return nil, err
	}
	t, err := build(definition, settings, names)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", dir, err)
	}
	return t, nil
}

// maxFile bounds what is read whole; a vocabulary of 250,000 takes some 20 MB.
const maxFile = 256 << 20

func readOptional(dir, name string) ([]byte, error) {
	data, err := readfile.Regular(filepath.Join(dir, name), maxFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return data, nil
}

// New makes a tokenizer from the contents of tokenizer.json and, unless it is
// nil, tokenizer_config.json. Errors wrap [ErrMalformed] or [ErrUnsupported].
func New(tokenizerJSON, tokenizerConfigJSON []byte) (*Tokenizer, error) {
	t, err := build(tokenizerJSON, tokenizerConfigJSON, nil)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	return t, nil
}

// build puts a tokenizer together; configJSON and namesJSON may be empty.
func build(definitionJSON, configJSON, namesJSON []byte) (*Tokenizer, error) {
	d, err := parseDefinition(definitionJSON)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	settings, err := parseConfig(configJSON)
	if err != nil {
		return nil, fmt.Errorf("tokenizer_config.json: %w", err)
	}
	names, err := parseConfig(namesJSON)
	if err != nil {
		return nil, fmt.Errorf("special_tokens_map.json: %w", err)
	}

	t := &Tokenizer{bos: -1, pad: -1}
	var pattern string
	if t.split, pattern, t.normalize, err = d.arrangement(); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	if err := t.setVocabulary(d.Model.Vocabulary); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	t.bpe.ignoreMerges = d.Model.IgnoreMerges
	if err := t.setMerges(d.Model.Merges); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	added, err := mergeAdded(d.AddedTokens, settings.AddedTokensDecoder)
	if err != nil {
		return nil, err
	}
	if err := t.setAdded(added, len(d.Model.Vocabulary)); err != nil {
		return nil, err
	}
	if err := t.setNames(settings, names); err != nil {
		return nil, err
	}
	t.bpe.whole = make([]atomic.Uint32, len(t.tokens))
	t.setFingerprint(pattern, added)
	return t, nil
}

// setVocabulary takes the model's vocabulary. It must hold all 256 bytes: the
// reference drops a byte without a token in silence.
func (t *Tokenizer) setVocabulary(entries vocabulary) error {
	t.bpe.pieces = make(map[string]int32, len(entries))
	t.foreign = make(map[string]int32)
	size := 0
	for _, entry := range entries {
		size = max(size, int(entry.id)+1)
	}
	t.tokens = make([]token, size)
	for _, entry := range entries {
		if t.known(int(entry.id)) {
			other, _ := t.Token(int(entry.id))
			return malformed("model.vocab: tokens %q and %q have the same id %d", other, entry.text, entry.id)
		}
		if _, ok := t.vocabularyID(entry.text); ok {
			return malformed("model.vocab: token %q is there twice", entry.text)
		}
		tok := newToken(entry.text)
		t.tokens[entry.id] = tok
		if tok.foreign {
			t.foreign[entry.text] = entry.id
			continue
		}
		t.bpe.pieces[tok.raw] = entry.id
		t.bpe.longest = max(t.bpe.longest, len(tok.raw))
	}
	for b := range t.bpe.bytes {
		id, ok := t.bpe.pieces[string([]byte{byte(b)})]
		if !ok {
			return malformed("model.vocab: no token for byte 0x%02X, %q", b, letterOf[b])
		}
		t.bpe.bytes[b] = id
	}
	return nil
}

func newToken(text string) token {
	raw, ok := toBytes(text)
	if !ok {
		return token{raw: text, foreign: true}
	}
	return token{raw: raw}
}

// setMerges takes the merges, whose places in the list are their ranks. A pair
// that is there twice has the later rank, as in the reference.
func (t *Tokenizer) setMerges(list mergeList) error {
	t.bpe.merges = make(map[pair]merge, len(list))
	for rank, texts := range list {
		left, ok := t.vocabularyID(texts[0])
		if !ok {
			return malformed("merge %d, %q: no token %q", rank, texts, texts[0])
		}
		right, ok := t.vocabularyID(texts[1])
		if !ok {
			return malformed("merge %d, %q: no token %q", rank, texts, texts[1])
		}
		merged, ok := t.vocabularyID(texts[0] + texts[1])
		if !ok {
			return malformed("merge %d, %q: no token %q", rank, texts, texts[0]+texts[1])
		}
		t.bpe.merges[pair{left, right}] = merge{uint32(rank), merged}
	}
	return nil
}

// mergeAdded joins the added tokens of tokenizer.json, in their order, with those
// of tokenizer_config.json, which may repeat them. A token is special if either
// file says so.
func mergeAdded(own []addedToken, further map[string]addedToken) ([]addedToken, error) {
	byID := make(map[int64]int, len(own))
	all := make([]addedToken, 0, len(own))
	take := func(file string, a addedToken) error {
		if a.ID == nil || a.Content == nil {
			return fmt.Errorf("%s: %w", file, malformed("an added token without id or content"))
		}
		if err := checkID(*a.ID, *a.Content); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if a.SingleWord || a.LStrip || a.RStrip {
			return fmt.Errorf("%s: %w", file, unsupported("added token %q with single_word, lstrip or rstrip", *a.Content))
		}
		i, ok := byID[*a.ID]
		if !ok {
			byID[*a.ID] = len(all)
			all = append(all, a)
			return nil
		}
		if *all[i].Content != *a.Content {
			return fmt.Errorf("%s: %w", file, malformed("added tokens %q and %q have the same id %d", *all[i].Content, *a.Content, *a.ID))
		}
		if all[i].normalized() != a.normalized() {
			return fmt.Errorf("%s: %w", file, unsupported("added token %q is said to be normalized and not to be", *a.Content))
		}
		all[i].Special = all[i].Special || a.Special
		return nil
	}
	for _, a := range own {
		if err := take("tokenizer.json", a); err != nil {
			return nil, err
		}
	}
	ids := make(map[int64]addedToken, len(further))
	for key, a := range further {
		id, err := strconv.ParseInt(key, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: %w", malformed("added_tokens_decoder: id %q is not an integer", key))
		}
		if _, ok := ids[id]; ok {
			return nil, fmt.Errorf("tokenizer_config.json: %w", malformed("added_tokens_decoder: id %d is there twice", id))
		}
		a.ID = &id
		ids[id] = a
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if err := take("tokenizer_config.json", ids[id]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// setAdded takes the added tokens. One that is in the vocabulary has the id it
// has there; the others continue after the vocabulary's size and each other. The
// reference gives them these ids whatever the file says, so a file that says
// something else means two things and is refused.
func (t *Tokenizer) setAdded(added []addedToken, next int) error {
	t.added = make(map[string]int32, len(added))
	for _, a := range added {
		text := *a.Content
		if a.normalized() && t.normalize {
			text = nfc(text)
		}
		id := int32(*a.ID)
		if _, ok := t.added[text]; ok {
			return malformed("added token %q is there twice", text)
		}
		expected, ok := t.vocabularyID(text)
		if !ok {
			expected = int32(next)
		}
		if id != expected {
			return unsupported("added token %q has id %d, but by its place it has id %d", text, id, expected)
		}
		if ok && a.Special && (t.bpe.reaches(id) || t.bpe.ignoreMerges && t.isPiece(id)) {
			return unsupported("special token %q can come out of ordinary text", text)
		}
		next = max(next, int(id)+1)
		if int(id) >= len(t.tokens) {
			t.tokens = append(t.tokens, make([]token, int(id)+1-len(t.tokens))...)
		}
		if !ok && t.known(int(id)) {
			other, _ := t.Token(int(id))
			return malformed("tokens %q and %q have the same id %d", other, text, id)
		}
		tok := newToken(text)
		tok.special = a.Special
		t.tokens[id] = tok
		t.added[text] = id
		if a.normalized() {
			t.normalizedMatcher.add(text, id)
		} else {
			t.rawMatcher.add(text, id)
		}
	}
	return nil
}

// isPiece says whether a token can be a whole piece of the pre-tokenizer.
func (t *Tokenizer) isPiece(id int32) bool {
	raw := t.tokens[id].raw
	return utf8.ValidString(raw) && t.split.next(raw) == len(raw)
}

// setNames looks up the tokens that the files name.
func (t *Tokenizer) setNames(settings, names *config) error {
	find := func(role string, name tokenName) (int, error) {
		id, ok := t.TokenID(string(name))
		if !ok {
			return 0, malformed("%s %q is not a token", role, string(name))
		}
		return id, nil
	}
	for _, c := range []*config{settings, names} {
		if c.EOS == "" {
			continue
		}
		id, err := find("eos_token", c.EOS)
		if err != nil {
			return err
		}
		if !slices.Contains(t.eos, id) {
			t.eos = append(t.eos, id)
		}
	}
	for _, one := range []struct {
		role string
		name tokenName
		id   *int
	}{
		{"bos_token", cmp.Or(settings.BOS, names.BOS), &t.bos},
		{"pad_token", cmp.Or(settings.Pad, names.Pad), &t.pad},
	} {
		if one.name == "" {
			continue
		}
		id, err := find(one.role, one.name)
		if err != nil {
			return err
		}
		*one.id = id
	}
	return nil
}

// setFingerprint hashes what decides ids, in an order and form of its own. Merges
// are written by rank order of their ids, so gaps in the ranks do not matter.
func (t *Tokenizer) setFingerprint(pattern string, added []addedToken) {
	hash := sha256.New()
	out := bufio.NewWriter(hash)
	fmt.Fprintf(out, "pattern %q nfc %v ignore_merges %v\n", pattern, t.normalize, t.bpe.ignoreMerges)

	text := func(s string) {
		var size [8]byte
		binary.LittleEndian.PutUint64(size[:], uint64(len(s)))
		out.Write(size[:])
		out.WriteString(s)
	}
	for _, tok := range t.tokens {
		text(tok.raw)
		out.WriteByte(flags(tok.foreign, tok.special))
	}
	type ranked struct {
		rank uint32
		pair pair
	}
	merges := make([]ranked, 0, len(t.bpe.merges))
	for p, m := range t.bpe.merges {
		merges = append(merges, ranked{m.rank, p})
	}
	slices.SortFunc(merges, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) })
	fmt.Fprintf(out, "merges %d\n", len(merges))
	for _, m := range merges {
		var ids [8]byte
		binary.LittleEndian.PutUint32(ids[:4], uint32(m.pair.left))
		binary.LittleEndian.PutUint32(ids[4:], uint32(m.pair.right))
		out.Write(ids[:])
	}
	fmt.Fprintf(out, "added %d\n", len(added))
	for _, a := range slices.SortedFunc(slices.Values(added), func(a, b addedToken) int { return cmp.Compare(*a.ID, *b.ID) }) {
		fmt.Fprintf(out, "%d %v\n", *a.ID, a.normalized())
	}
	out.Flush()
	hash.Sum(t.fingerprint[:0])
}

func flags(bits ...bool) (b byte) {
	for i, bit := range bits {
		if bit {
			b |= 1 << i
		}
	}
	return b
}
