package tokenizer_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/qwen/tokenizer"
)

// definition is a tokenizer.json that tests change before they load it.
type definition map[string]any

// at goes down the keys to an inner object.
func (d definition) at(keys ...string) map[string]any {
	object := map[string]any(d)
	for _, key := range keys {
		object = object[key].(map[string]any)
	}
	return object
}

func (d definition) part(i int) map[string]any {
	return d.at("pre_tokenizer")["pretokenizers"].([]any)[i].(map[string]any)
}

func (d definition) json(tb testing.TB) []byte {
	tb.Helper()
	data, err := json.Marshal(d)
	require.NoError(tb, err)
	return data
}

func (d definition) load(tb testing.TB) *tokenizer.Tokenizer {
	tb.Helper()
	t, err := tokenizer.New(d.json(tb), nil)
	require.NoError(tb, err)
	return t
}

func (d definition) add(id int, content string, settings ...string) {
	token := map[string]any{"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": false}
	for _, s := range settings {
		token[s] = true
	}
	d["added_tokens"] = append(d["added_tokens"].([]any), token)
}

// letterOfByte is the byte-level alphabet, counted up independently of the
// package: printable Latin-1 stands for itself, the rest follows from U+0100.
func letterOfByte(b int) string {
	printable := func(b int) bool { return b > 0x20 && b < 0x7F || b > 0xA0 && b != 0xAD }
	if printable(b) {
		return string(rune(b))
	}
	n := 0
	for before := range b {
		if !printable(before) {
			n++
		}
	}
	return string(rune(0x100 + n))
}

// byteTokens is the fixture T-byte: every byte is a token, there are no merges,
// and the family's control tokens and tags are added. Further tokens come between
// the bytes and the added ones.
func byteTokens(further ...string) definition {
	vocabulary := make(map[string]any)
	for b := range 256 {
		vocabulary[letterOfByte(b)] = b
	}
	for _, token := range further {
		vocabulary[token] = len(vocabulary)
	}
	size := len(vocabulary)
	d := definition{
		"added_tokens": []any{},
		"normalizer":   map[string]any{"type": "NFC"},
		"pre_tokenizer": map[string]any{"type": "Sequence", "pretokenizers": []any{
			map[string]any{"type": "Split", "pattern": map[string]any{"Regex": tokenizer.PatternQwen3}, "behavior": "Isolated", "invert": false},
			map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
		}},
		"post_processor": nil,
		"decoder":        map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
		"model":          map[string]any{"type": "BPE", "dropout": nil, "unk_token": nil, "vocab": vocabulary, "merges": []any{}},
	}
	for i, special := range []string{"<|im_start|>", "<|im_end|>", "<|endoftext|>"} {
		d.add(size+i, special, "special")
	}
	for i, tag := range []string{"<think>", "</think>", "<tool_call>", "</tool_call>"} {
		d.add(size+3+i, tag)
	}
	return d
}

// bytesOf is what T-byte encodes an ordinary text to.
func bytesOf(text string) []int {
	ids := make([]int, len(text))
	for i := range ids {
		ids[i] = int(text[i])
	}
	return ids
}
