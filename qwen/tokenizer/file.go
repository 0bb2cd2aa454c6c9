package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// maxID bounds ids, so that a damaged file cannot ask for a table of any size.
// The family's largest vocabulary has about 250,000 tokens.
const maxID = 1<<20 - 1

// definition is tokenizer.json. Its settings for batches (truncation, padding)
// are left out: they belong to whoever makes batches.
type definition struct {
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         *model          `json:"model"`
}

type addedToken struct {
	ID         *int64  `json:"id"`
	Content    *string `json:"content"`
	SingleWord bool    `json:"single_word"`
	LStrip     bool    `json:"lstrip"`
	RStrip     bool    `json:"rstrip"`
	Normalized *bool   `json:"normalized"`
	Special    bool    `json:"special"`
}

// normalized is the reference's default for tokens that do not say it.
func (a addedToken) normalized() bool {
	if a.Normalized != nil {
		return *a.Normalized
	}
	return !a.Special
}

type model struct {
	Type                    *string    `json:"type"`
	Dropout                 *float64   `json:"dropout"`
	UnknownToken            *string    `json:"unk_token"`
	ContinuingSubwordPrefix string     `json:"continuing_subword_prefix"`
	EndOfWordSuffix         string     `json:"end_of_word_suffix"`
	FuseUnknown             bool       `json:"fuse_unk"`
	ByteFallback            bool       `json:"byte_fallback"`
	IgnoreMerges            bool       `json:"ignore_merges"`
	Vocabulary              vocabulary `json:"vocab"`
	Merges                  mergeList  `json:"merges"`
}

func (m *model) check() error {
	switch {
	case m.Type != nil && *m.Type != "BPE":
		return unsupported("model type %q; only BPE is supported", *m.Type)
	case m.Dropout != nil && *m.Dropout != 0:
		return unsupported("model has dropout %v; ids would be random", *m.Dropout)
	case m.UnknownToken != nil:
		return unsupported("model has unk_token %q; byte-level BPE knows every byte", *m.UnknownToken)
	case m.FuseUnknown:
		return unsupported("model has fuse_unk")
	case m.ByteFallback:
		return unsupported("model has byte_fallback; byte-level BPE needs none")
	case m.ContinuingSubwordPrefix != "":
		return unsupported("model has continuing_subword_prefix %q", m.ContinuingSubwordPrefix)
	case m.EndOfWordSuffix != "":
		return unsupported("model has end_of_word_suffix %q", m.EndOfWordSuffix)
	}
	return nil
}

// vocabulary is an object of token text → id. A Go map would hide a text that is
// there twice.
type vocabulary []vocabularyEntry

type vocabularyEntry struct {
	text string
	id   int32
}

func (v *vocabulary) UnmarshalJSON(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return malformed("model.vocab is not an object of token to id")
	}
	entries := make(vocabulary, 0, min(len(data)/16, maxID+1))
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return err
		}
		value, err := decoder.Token()
		if err != nil {
			return err
		}
		text, _ := key.(string)
		number, ok := value.(json.Number)
		if !ok {
			return malformed("model.vocab: the id of %q is not a number", text)
		}
		id, err := number.Int64()
		if err != nil {
			return malformed("model.vocab: the id of %q is %s, not an integer", text, number)
		}
		if err := checkID(id, text); err != nil {
			return err
		}
		entries = append(entries, vocabularyEntry{text, int32(id)})
	}
	*v = entries
	return nil
}

func checkID(id int64, text string) error {
	if id < 0 || id > maxID {
		return malformed("token %q has id %d; ids lie between 0 and %d", text, id, maxID)
	}
	if text == "" {
		return malformed("the token of id %d is empty", id)
	}
	return nil
}

// mergeList is the list of merges, each a pair of texts, or in older files one
// text with a space between them.
type mergeList [][2]string

func (l *mergeList) UnmarshalJSON(data []byte) error {
	var pairs [][]string
	if json.Unmarshal(data, &pairs) == nil {
		*l = make(mergeList, len(pairs))
		for i, p := range pairs {
			if len(p) != 2 {
				return malformed("merge %d has %d parts instead of 2", i, len(p))
			}
			(*l)[i] = [2]string{p[0], p[1]}
		}
		return nil
	}
	var lines []string
	if err := json.Unmarshal(data, &lines); err != nil {
		return malformed("model.merges is neither a list of pairs nor a list of texts")
	}
	*l = make(mergeList, len(lines))
	for i, line := range lines {
		left, right, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(right, " ") {
			return malformed("merge %d, %q, is not two texts with a space between them", i, line)
		}
		(*l)[i] = [2]string{left, right}
	}
	return nil
}

func parseDefinition(data []byte) (*definition, error) {
	var d definition
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, asMalformed(err)
	}
	if d.Model == nil {
		return nil, malformed("no model")
	}
	if err := d.Model.check(); err != nil {
		return nil, err
	}
	return &d, nil
}

// component is a normalizer, pre-tokenizer, post-processor or decoder. Pointers
// tell an absent setting from a false one: the absent ones have other defaults.
type component struct {
	Type           string                     `json:"type"`
	AddPrefixSpace *bool                      `json:"add_prefix_space"`
	UseRegex       *bool                      `json:"use_regex"`
	PreTokenizers  []component                `json:"pretokenizers"`
	Pattern        map[string]json.RawMessage `json:"pattern"`
	Behavior       string                     `json:"behavior"`
	Invert         bool                       `json:"invert"`
}

// parseComponent reads a part of the file; absent and null give nil.
func parseComponent(name string, data json.RawMessage) (*component, error) {
	var c *component
	if len(data) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, malformed("%s: %v", name, err)
	}
	return c, nil
}

// arrangement checks everything around the model: what is not the family's own
// arrangement is refused. It gives the splitter, the pattern's name and whether
// text is brought to NFC.
func (d *definition) arrangement() (split splitter, pattern string, normalize bool, err error) {
	normalizer, err := parseComponent("normalizer", d.Normalizer)
	if err != nil {
		return split, "", false, err
	}
	if normalizer != nil && normalizer.Type != "NFC" {
		return split, "", false, unsupported("normalizer %q; NFC and none are supported", normalizer.Type)
	}
	post, err := parseComponent("post_processor", d.PostProcessor)
	if err != nil {
		return split, "", false, err
	}
	if post != nil && post.Type != "ByteLevel" && !isPlainTemplate(d.PostProcessor) {
		return split, "", false, unsupported("post_processor %q; ByteLevel, a TemplateProcessing that adds no tokens, and none are supported", post.Type)
	}
	decoder, err := parseComponent("decoder", d.Decoder)
	if err != nil {
		return split, "", false, err
	}
	switch {
	case decoder == nil:
		return split, "", false, unsupported("no decoder; ByteLevel is supported")
	case decoder.Type != "ByteLevel":
		return split, "", false, unsupported("decoder %q; ByteLevel is supported", decoder.Type)
	}
	pre, err := parseComponent("pre_tokenizer", d.PreTokenizer)
	if err != nil {
		return split, "", false, err
	}
	split, pattern, err = pre.splitter()
	return split, pattern, normalizer != nil, err
}

// splitter takes a Sequence of Split, by one of the two patterns, and ByteLevel
// that does nothing but write bytes as letters.
func (c *component) splitter() (splitter, string, error) {
	const want = "a Sequence of Split and ByteLevel is supported"
	switch {
	case c == nil:
		return splitter{}, "", unsupported("no pre_tokenizer; %s", want)
	case c.Type != "Sequence":
		return splitter{}, "", unsupported("pre_tokenizer %q; %s", c.Type, want)
	}
	types := make([]string, len(c.PreTokenizers))
	for i, part := range c.PreTokenizers {
		types[i] = part.Type
	}
	if len(types) != 2 || types[0] != "Split" || types[1] != "ByteLevel" {
		return splitter{}, "", unsupported("pre_tokenizer is a Sequence of %q; %s", types, want)
	}
	cut, level := c.PreTokenizers[0], c.PreTokenizers[1]

	// Absent settings of ByteLevel mean true in the reference.
	if level.UseRegex == nil || *level.UseRegex {
		return splitter{}, "", unsupported("pre_tokenizer ByteLevel with use_regex, which splits by GPT-2's pattern")
	}
	if level.AddPrefixSpace == nil || *level.AddPrefixSpace {
		return splitter{}, "", unsupported("pre_tokenizer ByteLevel with add_prefix_space")
	}
	if cut.Behavior != "Isolated" || cut.Invert {
		return splitter{}, "", unsupported("pre_tokenizer Split with behavior %q, invert %v; Isolated without invert is supported", cut.Behavior, cut.Invert)
	}
	var pattern string
	if raw, ok := cut.Pattern["Regex"]; !ok || len(cut.Pattern) != 1 || json.Unmarshal(raw, &pattern) != nil {
		return splitter{}, "", unsupported("pre_tokenizer Split by something else than a Regex")
	}
	split, ok := newSplitter(pattern)
	if !ok {
		return splitter{}, "", unsupported("pre_tokenizer pattern %q; those of Qwen3 and Qwen3.5 are supported", pattern)
	}
	return split, pattern, nil
}

// asMalformed gives a JSON error the package's sentinel.
func asMalformed(err error) error {
	if err == io.ErrUnexpectedEOF || err == io.EOF {
		err = fmt.Errorf("unexpected end of JSON")
	}
	return fmt.Errorf("%w: %w", ErrMalformed, err)
}

// isPlainTemplate recognises the post-processor that converted checkpoints
// have: a template of the text alone, which changes nothing.
func isPlainTemplate(raw json.RawMessage) bool {
	var t struct {
		Type   string                       `json:"type"`
		Single []map[string]json.RawMessage `json:"single"`
	}
	if json.Unmarshal(raw, &t) != nil || t.Type != "TemplateProcessing" || len(t.Single) != 1 {
		return false
	}
	_, ok := t.Single[0]["Sequence"]
	return ok && len(t.Single[0]) == 1
}
