package chat_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/godflash/godflash/qwen/chat"
	"github.com/stretchr/testify/require"
)

var pairs = []string{"tiny-qwen3", "tiny-qwen3.5", "tiny-qwen3.5-moe"}

type goldenCase struct {
	Note                string            `json:"note"`
	Messages            []json.RawMessage `json:"messages"`
	Tools               []json.RawMessage `json:"tools"`
	AddGenerationPrompt bool              `json:"add_generation_prompt"`
	EnableThinking      *bool             `json:"enable_thinking"`
	Text                *string           `json:"text"`
	Error               string            `json:"error"`
}

func golden(tb testing.TB, pair string) []goldenCase {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("../../testdata", pair, "golden-chat.json"))
	require.NoError(tb, err)
	var file struct{ Cases []goldenCase }
	require.NoError(tb, json.Unmarshal(text, &file))
	require.Greater(tb, len(file.Cases), 40)
	return file.Cases
}

// messages reads a case's messages. Content that Message refuses goes in through
// Fields, so that the template sees it as transformers' did.
func (c goldenCase) messages(tb testing.TB) []chat.Message {
	tb.Helper()
	var list []chat.Message
	for _, raw := range c.Messages {
		var m chat.Message
		if c.Note == "error: number as content" {
			require.ErrorContains(tb, json.Unmarshal(raw, &m), "content must be a string")
			var fields map[string]json.RawMessage
			require.NoError(tb, json.Unmarshal(raw, &fields))
			m = chat.Message{Fields: fields}
		} else {
			require.NoError(tb, json.Unmarshal(raw, &m))
		}
		list = append(list, m)
	}
	return list
}

func TestGolden(t *testing.T) {
	for _, pair := range pairs {
		template, err := chat.Load(filepath.Join("../../testdata", pair, "target"))
		require.NoError(t, err)
		for _, c := range golden(t, pair) {
			t.Run(pair+"/"+c.Note, func(t *testing.T) {
				opts := &chat.Options{
					Tools:               c.Tools,
					AddGenerationPrompt: c.AddGenerationPrompt,
					EnableThinking:      c.EnableThinking,
					Verbatim:            true,
				}
				text, err := template.Render(c.messages(t), opts)
				if c.Text != nil {
					require.NoError(t, err)
					require.Equal(t, *c.Text, text)

					// Joined parts and parsed arguments give the same text.
					opts.Verbatim = false
					text, err = template.Render(c.messages(t), opts)
					require.NoError(t, err)
					require.Equal(t, *c.Text, text)
					return
				}
				var refused *chat.TemplateError
				require.ErrorAs(t, err, &refused)
				require.Equal(t, c.Error, refused.Message)
			})
		}
	}
}
