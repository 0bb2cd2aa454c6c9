package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/qwen/chat"
)

// asProgram makes the test binary be the program.
const asProgram = "GODFLASH_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

func pair(t *testing.T) string {
	t.Helper()
	dir, err := fixture.Dir()
	require.NoError(t, err)
	return filepath.Join(dir, "tiny-qwen3.5")
}

type outcome struct {
	status         int
	stdout, stderr string
}

func runWith(t *testing.T, stdin io.Reader, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status := run(t.Context(), args, console{in: stdin, out: &stdout, err: &stderr, interrupts: make(chan os.Signal)})
	return outcome{status, stdout.String(), stderr.String()}
}

func TestWrongUsage(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no model":           {nil, "-model"},
		"argument":           {[]string{"-model", "x", "hello"}, `"hello"`},
		"unknown flag":       {[]string{"-topics"}, "-topics"},
		"draft and no draft": {[]string{"-model", "x", "-draft", "y", "-no-draft"}, "exclude"},
		"budget":             {[]string{"-model", "x", "-max-tokens", "-1"}, "-max-tokens is -1"},
		"nothing is drawn":   {[]string{"-model", "x", "-seed", "4"}, "-seed needs -temperature"},
		"next to nothing":    {[]string{"-model", "x", "-temperature", "1e-5", "-top-k", "4"}, "-top-k needs -temperature"},
		"think":              {[]string{"-model", "x", "-think", "maybe"}, `"maybe" is neither`},
	} {
		t.Run(name, func(t *testing.T) {
			got := runWith(t, strings.NewReader(""), tc.args...)
			require.Equal(t, 2, got.status)
			require.Contains(t, got.stderr, tc.want)
			require.Empty(t, got.stdout)
		})
	}
	for _, flags := range [][]string{{"-temperature", "NaN"}, {"-temperature", "-3"}, {"-temperature", "1", "-top-p", "7"}} {
		got := runWith(t, strings.NewReader(""), append([]string{"-model", pair(t)}, flags...)...)
		require.Equal(t, 2, got.status, "%q: %s", flags, got.stderr)
	}
	got := runWith(t, strings.NewReader(""), "-model", filepath.Join(t.TempDir(), "none"))
	require.Equal(t, 1, got.status)
	require.Contains(t, got.stderr, "none")
}

// A pipe gives one question a line and gets the answers and nothing else, the
// commands' words being on standard error.
func TestPipe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "talk.json")
	script := strings.Join([]string{
		"/stats", "Write a function.", "/stats", "/save " + file, "/reset", "/draft off", "Write a function.", "/load " + file,
		"And another.", "/nothing", "/think perhaps", "/draft", "", "/help", "/quit", "never reached",
	}, "\n")
	got := runWith(t, strings.NewReader(script), "-model", pair(t), "-max-tokens", "12", "-think", "off")
	require.Equal(t, 0, got.status, got.stderr)
	for _, want := range []string{
		"No answer yet.", "12 tokens,", "2 messages saved in " + file, "A new conversation.", "Drafting is off.", "2 messages loaded from",
		"there is no command /nothing", `"perhaps" is neither on, off nor auto`, `"" is neither on nor off`, "/system TEXT",
	} {
		require.Contains(t, got.stderr, want)
	}

	s, err := load(file)
	require.NoError(t, err)
	require.Len(t, s.Messages, 2)
	require.Equal(t, "Write a function.", s.Messages[0].Content)
	first := s.Messages[1].Content
	require.NotEmpty(t, first)
	rest, ok := strings.CutPrefix(got.stdout, first+"\n"+first+"\n")
	require.True(t, ok, "the same question has the same answer with drafts and without: %q, then %q", got.stdout, first)
	require.NotEmpty(t, strings.TrimSpace(rest), "the third answer")

	long := runWith(t, strings.NewReader("Write a function.\n"), "-model", pair(t), "-max-tokens", "12", "-think", "off")
	require.Equal(t, first+"\n", long.stdout)
	require.Contains(t, long.stderr, "(cut off")
	whole := runWith(t, strings.NewReader("Write a function.\n"), "-model", pair(t), "-max-tokens", "400", "-think", "off")
	require.NotContains(t, whole.stderr, "(cut off", "the answer came to its end: %s", whole.stdout)
}

func TestSaved(t *testing.T) {
	dir := t.TempDir()
	thought := "hm"
	want := saved{System: "Be short.", Messages: []chat.Message{
		{Role: chat.RoleUser, Content: "ä\u0000<|im_end|>"},
		{Role: chat.RoleAssistant, Content: "b", ReasoningContent: &thought},
	}}
	file := filepath.Join(dir, "a.json")
	require.NoError(t, save(file, want))
	require.NoError(t, save(file, want), "a conversation may be replaced")
	got, err := load(file)
	require.NoError(t, err)
	want.Format = savedFormat
	require.Equal(t, want, got)

	other := filepath.Join(dir, "precious.txt")
	require.NoError(t, os.WriteFile(other, []byte("precious"), 0o600))
	require.ErrorContains(t, save(other, want), "left as it is")
	text, err := os.ReadFile(other)
	require.NoError(t, err)
	require.Equal(t, "precious", string(text))
	left, err := filepath.Glob(filepath.Join(dir, ".chat-*"))
	require.NoError(t, err)
	require.Empty(t, left)

	for name, content := range map[string]any{
		"format": saved{Format: "godflash chat 2"},
		"role":   saved{Format: savedFormat, Messages: []chat.Message{{Role: "system", Content: "x"}}},
		"list":   []int{1},
	} {
		data, err := json.Marshal(content)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, data, 0o600))
		_, err = load(file)
		require.ErrorContains(t, err, "a.json", name)
	}
	_, err = load(dir)
	require.Error(t, err)
}

// A model cannot drive the terminal.
func TestPrintable(t *testing.T) {
	require.Equal(t, "a\n\tb\uFFFD[2Jc\uFFFD\uFFFDé漢", printable("a\n\tb\x1b[2Jc\u009b\ré漢"))
	var out bytes.Buffer
	s := &screen{w: &out, terminal: true, colour: true}
	s.delta(chat.Delta{Kind: chat.DeltaReasoning, Text: "hm\x1b"})
	s.delta(chat.Delta{Kind: chat.DeltaContent, Text: "yes"})
	require.NoError(t, s.end())
	require.Equal(t, "\x1b[2mhm\uFFFD\x1b[0m\nyes\n", out.String())
}
