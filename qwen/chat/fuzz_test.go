package chat_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/godflash/godflash/qwen/chat"
	"github.com/stretchr/testify/require"
)

// FuzzRender holds that no messages make a template panic, and that a message
// read, written and read again renders to the same text.
func FuzzRender(f *testing.F) {
	for _, c := range golden(f, "tiny-qwen3.5") {
		messages, err := json.Marshal(c.Messages)
		require.NoError(f, err)
		tools, err := json.Marshal(c.Tools)
		require.NoError(f, err)
		f.Add(string(messages), string(tools), c.AddGenerationPrompt)
	}
	template, err := chat.Load(filepath.Join("../../testdata/tiny-qwen3.5/target"))
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, messages, tools string, prompt bool) {
		var list, again []chat.Message
		if json.Unmarshal([]byte(messages), &list) != nil {
			return
		}
		opts := &chat.Options{AddGenerationPrompt: prompt}
		if json.Unmarshal([]byte(tools), &opts.Tools) != nil {
			return
		}
		text, err := template.Render(list, opts)
		back, marshalErr := json.Marshal(list)
		require.NoError(t, marshalErr)
		require.NoError(t, json.Unmarshal(back, &again))
		textAgain, errAgain := template.Render(again, opts)
		require.Equal(t, err == nil, errAgain == nil, "%v, %v", err, errAgain)
		segments, errSegments := template.RenderSegments(list, opts, controls)
		require.Equal(t, err == nil, errSegments == nil, "%v, %v", err, errSegments)
		if err == nil {
			require.Equal(t, text, textAgain)
			var joined strings.Builder
			for _, s := range segments {
				joined.WriteString(s.Text)
			}
			require.Equal(t, text, joined.String())
			if prompt {
				require.True(t, strings.HasSuffix(text, "<|im_start|>assistant\n<think>\n"))
				require.True(t, chat.OpensThinking(text))
			}
		}
	})
}

// FuzzParse holds that no template ends the process or escapes the errors.
func FuzzParse(f *testing.F) {
	for _, pair := range pairs[:1] {
		template, err := chat.Load(filepath.Join("../../testdata", pair, "target"))
		require.NoError(f, err)
		f.Add(template.Source())
	}
	f.Add("{% macro m(a=1) %}{{ m(a) }}{% endmacro %}{{ m() }}")
	f.Add("{%- for x in messages[::-1] recursive +%}\n{{ loop(x) | tojson(indent=2) }}{% raw -%} {{ {%+ endraw %}{# c #}{% endfor %}")
	f.Add("{% set ns = namespace(a=1) %}{% set ns.a = ns %}{{ ns }}{{ ns | tojson }}{% filter upper %}x{% endfilter %}")
	f.Fuzz(func(t *testing.T, source string) {
		template, err := chat.Parse(source, map[string]string{"eos_token": "</s>"})
		if err != nil {
			return
		}
		_, err = template.Render(user("x"), nil)
		var refused *chat.TemplateError
		if err != nil && !errors.As(err, &refused) && !errors.Is(err, chat.ErrLimit) {
			require.True(t, strings.HasPrefix(err.Error(), "chat: "), err)
		}
	})
}
