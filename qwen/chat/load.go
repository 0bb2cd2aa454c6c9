package chat

import (
	"encoding/json"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/godflash/godflash/internal/readfile"
)

// Load reads the chat template of the model in dir: chat_template.jinja, else
// chat_template in tokenizer_config.json, which is a text or a list of named
// ones, of which "default" is taken. The special tokens come from
// tokenizer_config.json and, where it lacks them, special_tokens_map.json.
// Without a template the error wraps ErrNoTemplate.
func Load(dir string) (*Template, error) {
	config, err := readObject(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil {
		return nil, err
	}
	tokens, err := readObject(filepath.Join(dir, "special_tokens_map.json"))
	if err != nil {
		return nil, err
	}
	specials := map[string]string{}
	addSpecials(specials, tokens)
	addSpecials(specials, config)

	path := filepath.Join(dir, "chat_template.jinja")
	text, err := readfile.Regular(path, maxFile)
	source := string(text)
	if errors.Is(err, fs.ErrNotExist) {
		path = filepath.Join(dir, "tokenizer_config.json")
		source, err = choose(config["chat_template"])
	}
	if errors.Is(err, ErrNoTemplate) {
		return nil, fmt.Errorf("chat: %s: %w: looked for chat_template.jinja and for chat_template in tokenizer_config.json; a base model has none, give it text or ids instead of messages", dir, err)
	} else if err != nil {
		return nil, fmt.Errorf("chat: %s: %w", path, err)
	}
	t, err := parse(source, specials)
	if err != nil {
		return nil, fmt.Errorf("chat: %s: %w", path, err)
	}
	return t, nil
}

// maxFile bounds what is read whole.
const maxFile = 32 << 20

// readObject reads a JSON file; one that is not there is empty.
func readObject(path string) (map[string]json.RawMessage, error) {
	text, err := readfile.Regular(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("chat: %w", err)
	}
	fields, err := object(text)
	if err != nil {
		return nil, fmt.Errorf("chat: %s: %w", path, err)
	}
	return fields, nil
}

// addSpecials takes the entries called …_token that are a text, or an object
// with the text in content.
func addSpecials(specials map[string]string, fields map[string]json.RawMessage) {
	for name, value := range fields {
		if !strings.HasSuffix(name, "_token") {
			continue
		}
		var text *string
		var token struct{ Content *string }
		if json.Unmarshal(value, &text) == nil && text != nil {
			specials[name] = *text
		} else if json.Unmarshal(value, &token) == nil && token.Content != nil {
			specials[name] = *token.Content
		}
	}
}

// choose takes the text of the entry chat_template.
func choose(entry json.RawMessage) (string, error) {
	switch entry.Kind() {
	case jsontext.KindInvalid, jsontext.KindNull:
		return "", ErrNoTemplate
	case jsontext.KindString:
		var source string
		err := json.Unmarshal(entry, &source)
		return source, err
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(entry, &list); err != nil {
		return "", fmt.Errorf("chat_template must be a text or a list of named ones: %w", err)
	}
	var names []string
	for _, named := range list {
		if named.Name == "default" {
			return named.Template, nil
		}
		names = append(names, named.Name)
	}
	return "", fmt.Errorf("chat_template has no template called default, only %q", names)
}
