package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/godflash/godflash/internal/readfile"
	"github.com/godflash/godflash/qwen/chat"
)

// savedFormat marks a file of ours. A conversation is saved as text, so that any
// model can go on with it.
const savedFormat = "godflash chat 1"

type saved struct {
	Format   string         `json:"format"`
	System   string         `json:"system,omitempty"`
	Messages []chat.Message `json:"messages"`
}

// load reads a conversation.
func load(name string) (saved, error) {
	data, err := readfile.Regular(name, maxLine)
	if err != nil {
		return saved{}, err
	}
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return saved{}, fmt.Errorf("%s is no saved conversation: %w", name, err)
	}
	if s.Format != savedFormat {
		return saved{}, fmt.Errorf("%s is no saved conversation: its format is %q, expected %q", name, s.Format, savedFormat)
	}
	for i, m := range s.Messages {
		if m.Role != chat.RoleUser && m.Role != chat.RoleAssistant {
			return saved{}, fmt.Errorf("%s: message %d has the role %q", name, i, m.Role)
		}
	}
	return s, nil
}

// save writes a conversation whole or not at all. A file that is there is only
// replaced if it is a conversation too.
func save(name string, s saved) error {
	if _, err := os.Lstat(name); err == nil {
		if _, err := load(name); err != nil {
			return fmt.Errorf("%s is left as it is: %w", name, err)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.Format = savedFormat
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".chat-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
