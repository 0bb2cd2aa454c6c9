package chat_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/godflash/godflash/qwen/chat"
	"github.com/stretchr/testify/require"
)

// render parses and renders a template with variables.
func render(source string, kwargs map[string]any) (string, error) {
	t, err := chat.Parse(source, nil)
	if err != nil {
		return "", err
	}
	return t.Render(nil, &chat.Options{Kwargs: kwargs})
}

func user(text string) []chat.Message {
	return []chat.Message{{Role: chat.RoleUser, Content: text}}
}

func TestWhiteSpace(t *testing.T) {
	text, err := os.ReadFile("testdata/whitespace.json")
	require.NoError(t, err)
	var file struct {
		Cases []struct{ Template, Text string }
	}
	require.NoError(t, json.Unmarshal(text, &file))
	require.Len(t, file.Cases, 240)
	for _, c := range file.Cases {
		got, err := render(c.Template, map[string]any{"a": true, "x": "X"})
		require.NoError(t, err, "%q", c.Template)
		require.Equal(t, c.Text, got, "%q", c.Template)
	}
}

func TestExpressions(t *testing.T) {
	kwargs := map[string]any{
		"s": "a</think>b", "n": nil, "l": []int{1, 2, 3, 4},
		"o": json.RawMessage(`{"items": 1, "keys": {"get": 2}, "get": [3], "z": 1.0, "a": 1e-7}`),
	}
	for source, want := range map[string]string{
		`{{ o['items'] }} {{ o["keys"]["get"] }} {{ o['get'][0] }}`: "1 2 3",
		`{% for k, v in o.items() %}{{ k }},{% endfor %}`:           "items,keys,get,z,a,",
		`{% for k in o.keys() %}{{ k }},{% endfor %}`:               "items,keys,get,z,a,",
		`{{ o | tojson }}`:                        `{"items": 1, "keys": {"get": 2}, "get": [3], "z": 1.0, "a": 1e-07}`,
		`{{ o.get('none', 'else') }}`:             "else",
		`{{ l[::-1] }} {{ l[-2:] }} {{ l[:-3] }}`: "[4, 3, 2, 1] [3, 4] [1]",
		`{{ s.split('</think>')[-1] }}{{ ' x '.strip() }}{{ 'xxy'.lstrip('x') }}`:                                 "bxy",
		`{{ n is none }} {{ nothing is defined }} {{ n is defined }}`:                                             "True False True",
		`{% set ns = namespace(i=0) %}{% for x in l %}{% set ns.i = ns.i + x %}{% endfor %}{{ ns.i }}`:            "10",
		`{% for x in l if x % 2 %}{{ loop.index0 }}{{ x }}{% if loop.nextitem %}>{% endif %}{% endfor %}`:         "01>13",
		`{% for x in range(3) %}{{ x }}{% endfor %}{{ range(5, 0, -2) }}`:                                         "012[5, 3, 1]",
		`{% for x in l %}{% if x == 2 %}{% continue %}{% elif x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}`: "13",
		`{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, b=3) }}`:                              "1213",
	} {
		got, err := render(source, kwargs)
		require.NoError(t, err, source)
		require.Equal(t, want, got, source)
	}
}

func TestNumbers(t *testing.T) {
	list := `[1, -2, 1.0, 0.1, -0.0, 12345678901234567890, -99999999999999999999, 1e-07, 1e+20, 1e5, 1e16, 9007199254740993, 1e400]`
	got, err := render(`{{ x | tojson }}|{{ x[5] }}|{{ y | string }}`, map[string]any{
		"x": json.RawMessage(list), "y": json.RawMessage("123456789012345678901"),
	})
	require.NoError(t, err)
	require.Equal(t, `[1, -2, 1.0, 0.1, -0.0, 12345678901234567890, -99999999999999999999, 1e-07, 1e+20, 100000.0, 1e+16, 9007199254740993, Infinity]|12345678901234567890|123456789012345678901`, got)

	_, err = render(`{{ x }}`, map[string]any{"x": json.RawMessage(strings.Repeat("9", 5000))})
	require.ErrorContains(t, err, "5000 digits")
}

func TestToolsKeepOrderAndText(t *testing.T) {
	template, err := chat.Load("../../testdata/tiny-qwen3.5/target")
	require.NoError(t, err)
	tool := json.RawMessage(`{"zeta":{"b":1,"a":[true,null]},"description":"<b>&\"é\u2028\u00e9","alpha":{"items":{},"keys":2,"get":3},"zeta":{"last":"wins"}}`)
	text, err := template.Render(user("x"), &chat.Options{Tools: []json.RawMessage{tool}})
	require.NoError(t, err)
	require.Contains(t, text, "<tools>\n"+`{"zeta": {"last": "wins"}, "description": "<b>&\"é`+"\u2028"+`é", "alpha": {"items": {}, "keys": 2, "get": 3}}`+"\n</tools>")

	for tool, says := range map[string]string{
		`[]`:    "want a JSON object",
		`{"a":`: "EOF",
		`{} {}`: "after the end",
		`{"a":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`: "nests deeper",
	} {
		_, err := template.Render(user("x"), &chat.Options{Tools: []json.RawMessage{json.RawMessage(tool)}})
		require.ErrorContains(t, err, "tool 0")
		require.ErrorContains(t, err, says)
	}
}

func TestArguments(t *testing.T) {
	template, err := chat.Load("../../testdata/tiny-qwen3.5/target")
	require.NoError(t, err)
	call := func(arguments string) []chat.Message {
		m := chat.Message{Role: chat.RoleAssistant, ToolCalls: []chat.ToolCall{{Name: "run"}}}
		if arguments != "" {
			m.ToolCalls[0].Arguments = json.RawMessage(arguments)
		}
		return append(user("x"), m)
	}
	want := "<tool_call>\n<function=run>\n<parameter=z>\n1\n</parameter>\n<parameter=a>\n[1, {\"k\": \"é\"}]\n</parameter>\n</function>\n</tool_call>"
	for _, arguments := range []string{`{"z":1,"a":[1,{"k":"é"}]}`, `"{\"z\": 1, \"a\": [1, {\"k\": \"\\u00e9\"}]}"`} {
		text, err := template.Render(call(arguments), nil)
		require.NoError(t, err)
		require.Contains(t, text, want)
	}
	for _, none := range []string{"", "{}", `"{}"`, `""`} {
		text, err := template.Render(call(none), nil)
		require.NoError(t, err)
		require.Contains(t, text, "<function=run>\n</function>")
	}
	for _, bad := range []string{`"{"`, `"[1]"`, `"x"`, `"{} {}"`, `{"a":`} {
		_, err := template.Render(call(bad), nil)
		require.ErrorIs(t, err, chat.ErrArguments, bad)
		require.ErrorContains(t, err, "message 1: tool call 0 (run)")
	}
}

func TestNotText(t *testing.T) {
	template, err := chat.Load("../../testdata/tiny-qwen3/target")
	require.NoError(t, err)
	var m chat.Message
	require.NoError(t, json.Unmarshal([]byte(`{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}}]}`), &m))
	_, err = template.Render([]chat.Message{m}, nil)
	require.ErrorIs(t, err, chat.ErrNotText)
	require.ErrorContains(t, err, `part 1 has type "image_url"`)
}

func TestKwargs(t *testing.T) {
	yes := true
	source := "{{ enable_thinking }} {{ x }} {{ eos_token }}{{ bos_token }}\n"
	template, err := chat.Parse(source, map[string]string{"eos_token": "<end>"})
	require.NoError(t, err)
	require.Equal(t, source, template.Source())
	text, err := template.Render(nil, &chat.Options{EnableThinking: &yes, Kwargs: map[string]any{"x": map[string]any{"b": 1, "a": "<"}}})
	require.NoError(t, err)
	require.Equal(t, "True {'a': '<', 'b': 1} <end>", text)

	for says, kwargs := range map[string]map[string]any{
		`"messages" is taken`:                   {"messages": nil},
		`"range" is taken`:                      {"range": nil},
		`"__chat_step" cannot be the name`:      {"__chat_step": nil},
		`"a b" cannot be the name`:              {"a b": nil},
		"enable_thinking is given twice":        {"enable_thinking": true},
		"x: json: unsupported type: chan int":   {"x": make(chan int)},
		"enable_thinking must be true or false": {"enable_thinking": "no"},
	} {
		opts := &chat.Options{Kwargs: kwargs}
		if strings.Contains(says, "twice") {
			opts.EnableThinking = &yes
		}
		_, err := template.Render(nil, opts)
		require.ErrorContains(t, err, says)
	}
}

func TestParseErrors(t *testing.T) {
	for source, says := range map[string]string{
		"{{ x | nosuch }}":                           `unknown filter "nosuch"`,
		"{% if x is not strange %}{% endif %}":       `unknown test "strange"`,
		"{% filter nosuch %}{% endfilter %}":         `unknown filter "nosuch"`,
		"{% include 'x' %}":                          `unknown statement "include"`,
		"{% if x %}":                                 "if",
		"a\nb {{ x":                                  "line 2",
		"{% raw %}":                                  "endraw",
		"{{ " + strings.Repeat("(", 20000) + " }}":   "not closed",
		"{{ '" + strings.Repeat("a", 20000) + "' }}": "20002 bytes",
		strings.Repeat("a", 1<<20+1):                 "at most",
	} {
		_, err := chat.Parse(source, nil)
		require.ErrorContains(t, err, says, "%.50s", source)
	}
	// Names in texts, comments and raw blocks are not used.
	text, err := render(`{{ 'x | nosuch' }}{# | nosuch #}{% raw %}{{ x | nosuch }}{% endraw %}`, nil)
	require.NoError(t, err)
	require.Equal(t, "x | nosuch{{ x | nosuch }}", text)
}

func TestHostileTemplates(t *testing.T) {
	for name, source := range map[string]string{
		"macro calls itself":         "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
		"macros call each other":     "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
		"call block calls its macro": "{% macro m() %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}",
		"endless recursive loop":     "{% set ns = namespace(l=[1]) %}{% for x in ns.l recursive %}{{ loop(ns.l) }}{% endfor %}",
		"loops in loops":             "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
		"macro calls in loops":       "{% macro m() %}{% endmacro %}{% for a in range(1000) %}{% for b in range(1000) %}{{ m() }}{% endfor %}{% endfor %}",
		"enormous range":             "{% for a in range(9000000000000000000) %}{% endfor %}",
		"much text":                  "{% set t = 'x' * 10000000 %}{% for a in range(10) %}{{ t }}{% endfor %}",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render(source, nil)
			require.ErrorIs(t, err, chat.ErrLimit)
		})
	}
	// Faults of the engine's evaluation become errors too.
	for _, source := range []string{"{{ nothing() }}", "{{ 'a'.nosuch() }}", "{{ {}[0]() }}", "{{ range(0, 5, 0) }}", "{{ range('a') }}", "{{ 'x' * 10000000000 }}"} {
		_, err := render(source, nil)
		require.Error(t, err, source)
		require.True(t, strings.HasPrefix(err.Error(), "chat: "), err)
	}
}

func TestRaiseException(t *testing.T) {
	for source, want := range map[string]string{
		"{{ raise_exception('No ' ~ 1) }}":                                                   "No 1",
		"{% macro m() %}{{ raise_exception('in a macro') }}{% endmacro %}x{{ m() | upper }}": "in a macro",
		"{{ raise_exception() }}":                                                            "",
	} {
		_, err := render(source, nil)
		var refused *chat.TemplateError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, want, refused.Message)
	}
}

func TestConcurrentUse(t *testing.T) {
	template, err := chat.Load("../../testdata/tiny-qwen3/target")
	require.NoError(t, err)
	tools := []json.RawMessage{json.RawMessage(`{"n": 12345678901234567890}`)}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 20 {
				text, err := template.Render(user(fmt.Sprint("number ", i)), &chat.Options{Tools: tools})
				if err != nil || !strings.Contains(text, fmt.Sprint("number ", i, "<|im_end|>")) || !strings.Contains(text, `{"n": 12345678901234567890}`) {
					t.Errorf("goroutine %d: %q, %v", i, text, err)
				}
			}
		})
	}
	group.Wait()
}

func TestLoad(t *testing.T) {
	write := func(files map[string]string) string {
		dir := t.TempDir()
		for name, text := range files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
		return dir
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"file first": {map[string]string{
			"chat_template.jinja":   "file {{ eos_token }} {{ bos_token }}",
			"tokenizer_config.json": `{"chat_template":"config","eos_token":{"content":"<e>"},"bos_token":null,"add_bos_token":false}`,
		}, "file <e> "},
		"config": {map[string]string{
			"tokenizer_config.json":   `{"chat_template":"config {{ eos_token }} {{ pad_token }}","eos_token":"<e>"}`,
			"special_tokens_map.json": `{"eos_token":"<other>","pad_token":"<p>"}`,
		}, "config <e> <p>"},
		"list": {map[string]string{
			"tokenizer_config.json": `{"chat_template":[{"name":"rag","template":"rag"},{"name":"default","template":"the default"}]}`,
		}, "the default"},
	} {
		t.Run(name, func(t *testing.T) {
			template, err := chat.Load(write(c.files))
			require.NoError(t, err)
			text, err := template.Render(nil, nil)
			require.NoError(t, err)
			require.Equal(t, c.want, text)
		})
	}

	for _, files := range []map[string]string{{}, {"tokenizer_config.json": `{}`}, {"tokenizer_config.json": `{"chat_template":null}`}} {
		dir := write(files)
		_, err := chat.Load(dir)
		require.ErrorIs(t, err, chat.ErrNoTemplate)
		require.ErrorContains(t, err, dir)
	}
	for says, files := range map[string]map[string]string{
		"no template called default":       {"tokenizer_config.json": `{"chat_template":[{"name":"rag","template":""}]}`},
		"list of named ones":               {"tokenizer_config.json": `{"chat_template":5}`},
		"want a JSON object":               {"tokenizer_config.json": `[]`},
		"chat_template.jinja: jinja parse": {"chat_template.jinja": "{% if %}"},
	} {
		dir := write(files)
		_, err := chat.Load(dir)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, dir)
		require.NotErrorIs(t, err, chat.ErrNoTemplate)
	}
}

func TestOpensThinking(t *testing.T) {
	for text, want := range map[string]bool{
		"": false,
		"<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n":                              false,
		"<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n<think>\n":                     true,
		"<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n<think>\nhalf a thought":       true,
		"<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n":       false,
		"<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n<think>\na</think>\n<think>\n": true,
		"<|im_start|>user\nwhat is <think>?<|im_end|>\n<|im_start|>assistant\n":               false,
		"<|im_start|>user\nwhat is <think>?<|im_end|>\n":                                      false,
		"<|im_start|>user\nwhat is </think>?<|im_end|>\n<|im_start|>assistant\n<think>\n":     true,
		"plain text <think>\n": true,
	} {
		require.Equal(t, want, chat.OpensThinking(text), "%q", text)
	}
}
