package tokenizer_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/qwen/tokenizer"
)

func TestLoad(t *testing.T) {
	for _, pair := range pairs {
		tok := load(t, pair)
		require.Equal(t, 4042, tok.VocabSize())
		require.Equal(t, []int{4034}, tok.EOS())
		pad, ok := tok.Pad()
		require.True(t, ok)
		require.Equal(t, 4032, pad)
		_, ok = tok.BOS()
		require.False(t, ok)
		for id, special := range map[int]bool{-1: false, 0: false, 4032: true, 4034: true, 4035: false, 4037: false, 4041: true, 4042: false} {
			require.Equal(t, special, tok.IsSpecial(id), id)
		}
		for id := range tok.VocabSize() {
			text, ok := tok.Token(id)
			require.True(t, ok)
			back, ok := tok.TokenID(text)
			require.True(t, ok)
			require.Equal(t, id, back, text)
		}
		for _, text := range []string{"", "no such token", "日本", "\xff"} {
			_, ok := tok.TokenID(text)
			require.False(t, ok, text)
		}
		for _, id := range []int{-1, 4042} {
			_, ok := tok.Token(id)
			require.False(t, ok)
		}
	}
	require.Equal(t, []int{4034}, load(t, pairs[0]).EOS(), "the caller's change of an earlier result does not reach the tokenizer")
	load(t, pairs[0]).EOS()[0] = 7
	require.Equal(t, []int{4034}, load(t, pairs[0]).EOS())
}

func TestLoadFiles(t *testing.T) {
	dir := t.TempDir()
	_, err := tokenizer.Load(dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "tokenizer.json")

	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("tokenizer.json", string(byteTokens().json(t)))
	tok, err := tokenizer.Load(dir)
	require.NoError(t, err)
	require.Empty(t, tok.EOS())

	// An older checkpoint has its names in special_tokens_map.json only.
	write("special_tokens_map.json", `{"eos_token": {"content": "<|im_end|>", "lstrip": false}, "pad_token": "<|endoftext|>", "bos_token": null}`)
	tok, err = tokenizer.Load(dir)
	require.NoError(t, err)
	require.Equal(t, []int{257}, tok.EOS())
	pad, ok := tok.Pad()
	require.True(t, ok)
	require.Equal(t, 258, pad)

	// Where both name one, both end a sequence.
	write("tokenizer_config.json", `{"eos_token": "<|endoftext|>", "bos_token": "<|im_start|>"}`)
	tok, err = tokenizer.Load(dir)
	require.NoError(t, err)
	require.Equal(t, []int{258, 257}, tok.EOS())
	bos, ok := tok.BOS()
	require.True(t, ok)
	require.Equal(t, 256, bos)

	write("special_tokens_map.json", `{`)
	_, err = tokenizer.Load(dir)
	require.ErrorIs(t, err, tokenizer.ErrMalformed)
	require.ErrorContains(t, err, "special_tokens_map.json")
	require.ErrorContains(t, err, dir)
}

// Cases 36 and 37: what the file asks for and this package does not do is an
// error that names it, never other ids.
func TestUnsupported(t *testing.T) {
	for name, c := range map[string]struct {
		change func(d definition)
		says   string
	}{
		"model type":           {func(d definition) { d.at("model")["type"] = "Unigram" }, "Unigram"},
		"dropout":              {func(d definition) { d.at("model")["dropout"] = 0.1 }, "dropout"},
		"unknown token":        {func(d definition) { d.at("model")["unk_token"] = "<unk>" }, "<unk>"},
		"fused unknown tokens": {func(d definition) { d.at("model")["fuse_unk"] = true }, "fuse_unk"},
		"byte fallback":        {func(d definition) { d.at("model")["byte_fallback"] = true }, "byte_fallback"},
		"prefix":               {func(d definition) { d.at("model")["continuing_subword_prefix"] = "##" }, "##"},
		"suffix":               {func(d definition) { d.at("model")["end_of_word_suffix"] = "</w>" }, "</w>"},
		"normalizer":           {func(d definition) { d["normalizer"] = map[string]any{"type": "NFKC"} }, "NFKC"},
		"no pre-tokenizer":     {func(d definition) { d["pre_tokenizer"] = nil }, "pre_tokenizer"},
		"pre-tokenizer type":   {func(d definition) { d["pre_tokenizer"] = map[string]any{"type": "Metaspace"} }, "Metaspace"},
		"ByteLevel alone": {func(d definition) {
			d["pre_tokenizer"] = map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}
		}, "ByteLevel"},
		"sequence without Split": {func(d definition) {
			d.at("pre_tokenizer")["pretokenizers"] = []any{map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}}
		}, "Split"},
		"sequence of three": {func(d definition) {
			d.at("pre_tokenizer")["pretokenizers"] = append(d.at("pre_tokenizer")["pretokenizers"].([]any), map[string]any{"type": "Digits"})
		}, "Digits"},
		"pattern":              {func(d definition) { d.part(0)["pattern"] = map[string]any{"Regex": `\s+`} }, `\\s+`},
		"pattern is a text":    {func(d definition) { d.part(0)["pattern"] = map[string]any{"String": " "} }, "Regex"},
		"behavior":             {func(d definition) { d.part(0)["behavior"] = "Removed" }, "Removed"},
		"inverted":             {func(d definition) { d.part(0)["invert"] = true }, "invert"},
		"GPT-2's pattern":      {func(d definition) { d.part(1)["use_regex"] = true }, "use_regex"},
		"use_regex by default": {func(d definition) { delete(d.part(1), "use_regex") }, "use_regex"},
		"prefix space":         {func(d definition) { d.part(1)["add_prefix_space"] = true }, "add_prefix_space"},
		"post-processor":       {func(d definition) { d["post_processor"] = map[string]any{"type": "TemplateProcessing"} }, "TemplateProcessing"},
		"decoder":              {func(d definition) { d["decoder"] = map[string]any{"type": "WordPiece"} }, "WordPiece"},
		"no decoder":           {func(d definition) { d["decoder"] = nil }, "decoder"},
		"stripping token":      {func(d definition) { d.add(263, "<x>", "lstrip") }, "<x>"},
		"word token":           {func(d definition) { d.add(263, "<x>", "single_word") }, "<x>"},
		"special by merging": {func(d definition) {
			maps.Copy(d, byteTokens("ab"))
			d.at("model")["merges"] = []any{"a b"}
			d.add(256, "ab", "special")
		}, "ordinary text"},
		"special whole piece": {func(d definition) {
			maps.Copy(d, byteTokens("ab"))
			d.at("model")["ignore_merges"] = true
			d.add(256, "ab", "special")
		}, "ordinary text"},
		"special byte":        {func(d definition) { d.add(97, "a", "special") }, `"a"`},
		"gap before a token":  {func(d definition) { d.add(300, "<x>") }, "300"},
		"tokens out of order": {func(d definition) { d.add(264, "<y>"); d.add(263, "<x>") }, "264"},
	} {
		t.Run(name, func(t *testing.T) {
			d := byteTokens()
			c.change(d)
			_, err := tokenizer.New(d.json(t), nil)
			require.ErrorIs(t, err, tokenizer.ErrUnsupported)
			require.ErrorContains(t, err, c.says)
		})
	}
}

// What the reference takes as the same thing is accepted.
func TestSupported(t *testing.T) {
	for name, change := range map[string]func(d definition){
		"no model type": func(d definition) { delete(d.at("model"), "type") },
		"no dropout":    func(d definition) { d.at("model")["dropout"] = 0 },
		"empty affixes": func(d definition) {
			d.at("model")["continuing_subword_prefix"] = ""
			d.at("model")["end_of_word_suffix"] = ""
		},
		"offsets only":    func(d definition) { d["post_processor"] = map[string]any{"type": "ByteLevel", "trim_offsets": true} },
		"batch settings":  func(d definition) { d["truncation"] = map[string]any{"max_length": 2}; d["padding"] = map[string]any{} },
		"no added tokens": func(d definition) { delete(d, "added_tokens") },
		"special in the vocabulary": func(d definition) {
			maps.Copy(d, byteTokens("<x>"))
			d.add(256, "<x>", "special")
		},
		"no normalization": func(d definition) { d["normalizer"] = nil },
	} {
		t.Run(name, func(t *testing.T) {
			d := byteTokens()
			change(d)
			tok := d.load(t)
			require.Equal(t, bytesOf("don't"), tok.Encode("don't"))
			want := bytesOf("\u00e9")
			if name == "no normalization" {
				want = bytesOf("e\u0301")
			}
			require.Equal(t, want, tok.Encode("e\u0301"))
		})
	}
}

func TestMalformed(t *testing.T) {
	vocabulary := func(d definition) map[string]any { return d.at("model", "vocab") }
	merges := func(list ...any) func(d definition) {
		return func(d definition) { d.at("model")["merges"] = list }
	}
	for name, c := range map[string]struct {
		change func(d definition)
		says   string
	}{
		"no model":                {func(d definition) { delete(d, "model") }, "model"},
		"model is a list":         {func(d definition) { d["model"] = []any{} }, "model"},
		"no vocabulary":           {func(d definition) { delete(d.at("model"), "vocab") }, "byte 0x00"},
		"vocabulary is a list":    {func(d definition) { d.at("model")["vocab"] = []any{"a"} }, "vocab"},
		"a byte is missing":       {func(d definition) { delete(vocabulary(d), "Ġ") }, "byte 0x20"},
		"negative id":             {func(d definition) { vocabulary(d)["ab"] = -1 }, "-1"},
		"huge id":                 {func(d definition) { vocabulary(d)["ab"] = int64(1 << 31) }, "2147483648"},
		"enormous id":             {func(d definition) { vocabulary(d)["ab"] = json.Number("1e300") }, "1e300"},
		"fractional id":           {func(d definition) { vocabulary(d)["ab"] = 1.5 }, "1.5"},
		"id is a text":            {func(d definition) { vocabulary(d)["ab"] = "7" }, "ab"},
		"id is an object":         {func(d definition) { vocabulary(d)["ab"] = map[string]any{"id": 7} }, "ab"},
		"two tokens of one id":    {func(d definition) { vocabulary(d)["ab"] = 97 }, "97"},
		"empty token":             {func(d definition) { vocabulary(d)[""] = 300 }, "empty"},
		"merge of unknown left":   {merges([]any{"zz", "a"}), `"zz"`},
		"merge of unknown right":  {merges([]any{"a", "zz"}), `"zz"`},
		"merge to unknown":        {merges([]any{"a", "b"}), `"ab"`},
		"merge of an added token": {merges([]any{"a", "<think>"}), `"<think>"`},
		"merge of three":          {merges([]any{"a", "b", "c"}), "3 parts"},
		"merge of three texts":    {merges("a b c"), "a b c"},
		"merge without space":     {merges("ab"), "ab"},
		"mixed merges":            {merges("a b", []any{"a", "b"}), "merges"},
		"merges are an object":    {func(d definition) { d.at("model")["merges"] = map[string]any{} }, "merges"},
		"added token twice":       {func(d definition) { d.add(263, "<think>") }, "<think>"},
		"added id twice":          {func(d definition) { d.add(262, "<x>") }, "262"},
		"added negative id":       {func(d definition) { d.add(-263, "<x>") }, "-263"},
		"added huge id":           {func(d definition) { d.add(1<<20, "<x>") }, "1048576"},
		"added empty token":       {func(d definition) { d.add(263, "") }, "263"},
		"added without id":        {func(d definition) { d["added_tokens"] = []any{map[string]any{"content": "<x>"}} }, "without id"},
		"added without content":   {func(d definition) { d["added_tokens"] = []any{map[string]any{"id": 256}} }, "content"},
		"added over vocabulary": {func(d definition) {
			vocabulary(d)["zy"] = 257
			d["added_tokens"] = []any{map[string]any{"id": 257, "content": "<x>"}}
		}, "257"},
		"pre-tokenizer is a text": {func(d definition) { d["pre_tokenizer"] = "Split" }, "pre_tokenizer"},
	} {
		t.Run(name, func(t *testing.T) {
			d := byteTokens()
			c.change(d)
			_, err := tokenizer.New(d.json(t), nil)
			require.ErrorIs(t, err, tokenizer.ErrMalformed)
			require.ErrorContains(t, err, c.says)
		})
	}
	good := string(byteTokens().json(t))
	for name, text := range map[string]string{
		"empty":                "",
		"null":                 "null",
		"a number":             "7",
		"cut":                  good[:len(good)/2],
		"more behind":          good + "{}",
		"token is there twice": strings.Replace(good, `"vocab":{`, `"vocab":{"a":97,`, 1),
		"deep":                 strings.Repeat("[", 1_000_000),
		"deep in model":        `{"model":{"vocab":` + strings.Repeat(`{"a":`, 100_000),
	} {
		_, err := tokenizer.New([]byte(text), nil)
		require.ErrorIs(t, err, tokenizer.ErrMalformed, name)
	}
}

func TestConfig(t *testing.T) {
	file := byteTokens().json(t)
	for config, want := range map[string]error{
		`{}`:                  nil,
		`{"eos_token": null}`: nil,
		`{"add_prefix_space": false, "split_special_tokens": false}`:                                           nil,
		`{"added_tokens_decoder": {"256": {"content": "<|im_start|>", "special": true, "normalized": false}}}`: nil,
		`{"added_tokens_decoder": {"264": {"content": "<y>"}, "263": {"content": "<x>"}}}`:                     nil,

		`{"eos_token": "<|eos|>"}`:     tokenizer.ErrMalformed,
		`{"pad_token": "<|pad|>"}`:     tokenizer.ErrMalformed,
		`{"eos_token": ["a", "b"]}`:    tokenizer.ErrMalformed,
		`{"eos_token": {"text": "a"}}`: tokenizer.ErrMalformed,
		`[]`:                           tokenizer.ErrMalformed,
		`{"added_tokens_decoder": {"x": {"content": "<x>"}}}`:                                tokenizer.ErrMalformed,
		`{"added_tokens_decoder": {"263": {"content": "<x>"}, "0263": {"content": "<x>"}}}`:  tokenizer.ErrMalformed,
		`{"added_tokens_decoder": {"256": {"content": "<x>"}}}`:                              tokenizer.ErrMalformed,
		`{"added_tokens_decoder": {"263": {}}}`:                                              tokenizer.ErrMalformed,
		`{"added_tokens_decoder": {"256": {"content": "<|im_start|>", "normalized": true}}}`: tokenizer.ErrUnsupported,
		`{"added_tokens_decoder": {"270": {"content": "<x>"}}}`:                              tokenizer.ErrUnsupported,
		`{"added_tokens_decoder": {"263": {"content": "<x>", "rstrip": true}}}`:              tokenizer.ErrUnsupported,
		`{"add_prefix_space": true}`:                                                         tokenizer.ErrUnsupported,
		`{"split_special_tokens": true}`:                                                     tokenizer.ErrUnsupported,
	} {
		_, err := tokenizer.New(file, []byte(config))
		require.True(t, errors.Is(err, want), "%s: %v", config, err)
	}

	tok, err := tokenizer.New(file, []byte(`{"added_tokens_decoder": {
		"263": {"content": "<x>", "special": true},
		"259": {"content": "<think>", "normalized": false, "special": true}}}`))
	require.NoError(t, err)
	require.Equal(t, []int{263, 259}, tok.Encode("<x><think>"))
	require.True(t, tok.IsSpecial(263))
	require.True(t, tok.IsSpecial(259), "special if either file says so")
	require.False(t, tok.IsSpecial(260))

	// Without "normalized", a token that is not special is looked for in
	// normalized text: U+212A, the Kelvin sign, becomes K.
	tok, err = tokenizer.New(file, []byte(`{"added_tokens_decoder": {
		"263": {"content": "K!"}, "264": {"content": "K?", "special": true}}}`))
	require.NoError(t, err)
	require.Equal(t, []int{263, 264}, tok.Encode("\u212a!K?"))
	require.Equal(t, bytesOf("K?"), tok.Encode("\u212a?"))
}

func TestFingerprint(t *testing.T) {
	base := tinyDefinition(t).load(t).Fingerprint()
	require.Equal(t, base, load(t, "tiny-qwen3").Fingerprint())
	require.Equal(t, load(t, "tiny-qwen3.5").Fingerprint(), load(t, "tiny-qwen3.5-moe").Fingerprint())

	// tiny-qwen3's merges are texts. As pairs they are the same tokenizer.
	d := tinyDefinition(t)
	var split []any
	for _, line := range d.at("model")["merges"].([]any) {
		left, right, _ := strings.Cut(line.(string), " ")
		split = append(split, []any{left, right})
	}
	d.at("model")["merges"] = split
	require.Equal(t, base, d.load(t).Fingerprint())

	seen := map[[32]byte]string{base: "unchanged"}
	for name, change := range map[string]func(d definition){
		"pattern":    func(d definition) { d.part(0)["pattern"] = map[string]any{"Regex": tokenizer.PatternQwen35} },
		"normalizer": func(d definition) { d["normalizer"] = nil },
		"merges swapped": func(d definition) {
			m := d.at("model")["merges"].([]any)
			m[0], m[1] = m[1], m[0]
		},
		"merge less": func(d definition) {
			m := d.at("model")["merges"].([]any)
			d.at("model")["merges"] = m[:len(m)-1]
		},
		"ids swapped": func(d definition) {
			v := d.at("model", "vocab")
			v["Ġthe"], v["Ġa"] = v["Ġa"], v["Ġthe"]
		},
		"added token more":    func(d definition) { d.add(4042, "<x>") },
		"added special":       func(d definition) { d.add(4042, "<x>", "special") },
		"added normalized":    func(d definition) { d.add(4042, "<x>", "normalized") },
		"added another token": func(d definition) { d.add(4042, "<y>") },
	} {
		d := tinyDefinition(t)
		change(d)
		sum := d.load(t).Fingerprint()
		require.NotContains(t, seen, sum, "%s like %s", name, seen[sum])
		seen[sum] = name
	}
}
