package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen/tokenizer"
)

// object is -json's output as a reader of the documentation would declare it.
type object struct {
	IDs          []int  `json:"ids"`
	Text         string `json:"text"`
	FinishReason string `json:"finish_reason"`
	StopText     string `json:"stop_text"`
	LogProbs     []struct {
		probability
		Drafted bool          `json:"drafted"`
		Top     []probability `json:"top"`
	} `json:"logprobs"`
	Stats struct {
		PromptTokens     int         `json:"prompt_tokens"`
		CompletionTokens int         `json:"completion_tokens"`
		ReasoningTokens  int         `json:"reasoning_tokens"`
		Cycles           int         `json:"cycles"`
		Drafted          int         `json:"drafted"`
		Accepted         int         `json:"accepted"`
		TokensPerCycle   float64     `json:"tokens_per_cycle"`
		AcceptedPerCycle []int       `json:"accepted_per_cycle"`
		BlockLengths     map[int]int `json:"block_lengths"`
		PrefillMS        float64     `json:"prefill_ms"`
		DecodeMS         float64     `json:"decode_ms"`
	} `json:"stats"`
}

type probability struct {
	ID      int     `json:"id"`
	Text    string  `json:"text"`
	LogProb float64 `json:"logprob"`
}

func runJSON(t *testing.T, args ...string) object {
	t.Helper()
	return decode(t, runArgs(t, append([]string{"-json"}, args...)...))
}

func decode(t *testing.T, got outcome) object {
	t.Helper()
	require.Zero(t, got.status, got.stderr)
	require.Equal(t, 1, strings.Count(got.stdout, "\n"), "one line")
	var o object
	d := json.NewDecoder(strings.NewReader(got.stdout))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&o))
	return o
}

func joinIDs(ids []int) string {
	text := make([]string, len(ids))
	for i, id := range ids {
		text[i] = strconv.Itoa(id)
	}
	return strings.Join(text, ",")
}

type reference struct {
	Prompts []struct {
		Prompt, Greedy []int
	}
}

func readReference(t *testing.T) reference {
	t.Helper()
	pair, err := demoPair()
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(pair, "reference-f32.json"))
	require.NoError(t, err)
	var r reference
	require.NoError(t, json.Unmarshal(data, &r))
	require.Len(t, r.Prompts, 12)
	return r
}

func TestJSONKeys(t *testing.T) {
	got := runArgs(t, "-json", "-max-tokens", "1")
	require.Zero(t, got.status, got.stderr)
	var top, stats map[string]any
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &top))
	stats, ok := top["stats"].(map[string]any)
	require.True(t, ok)
	delete(top, "stats")
	number, list := 0.0, []any{}
	for key, kind := range map[string]any{"ids": list, "text": "", "finish_reason": ""} {
		require.IsType(t, kind, top[key], key)
		delete(top, key)
	}
	require.Empty(t, top)
	for key, kind := range map[string]any{
		"prompt_tokens": number, "completion_tokens": number, "reasoning_tokens": number, "cycles": number, "drafted": number, "accepted": number,
		"tokens_per_cycle": number, "accepted_per_cycle": list, "block_lengths": map[string]any{}, "prefill_ms": number, "decode_ms": number,
	} {
		require.IsType(t, kind, stats[key], key)
		delete(stats, key)
	}
	require.Empty(t, stats)
}

// The reference was made by other software: see testdata/README.md. Prompts 0
// and 4 the pair knows by heart, 10 it does not.
func TestReference(t *testing.T) {
	r := readReference(t)
	for name, tc := range map[string]struct {
		prompt int
		args   []string
		most   float64 // tokens per cycle
		least  float64
	}{
		"known, block 16":   {0, []string{"-block", "16"}, 16, 13},
		"known":             {0, nil, 16, 1},
		"known, block 3":    {4, []string{"-block", "3"}, 3, 2.5},
		"known, plain":      {4, []string{"-no-draft"}, 1, 1},
		"unknown, block 16": {10, []string{"-block", "16"}, 3, 1.3},
		"unknown":           {10, nil, 3, 1},
		"unknown, block 2":  {10, []string{"-block", "2"}, 2, 1.2},
	} {
		t.Run(name, func(t *testing.T) {
			p := r.Prompts[tc.prompt]
			o := runJSON(t, append([]string{"-prompt-ids", joinIDs(p.Prompt), "-max-tokens", "96"}, tc.args...)...)
			require.Equal(t, p.Greedy, o.IDs)
			require.Equal(t, "stop", o.FinishReason)
			s := o.Stats
			require.Equal(t, len(p.Prompt), s.PromptTokens)
			require.Equal(t, len(o.IDs), s.CompletionTokens)
			require.LessOrEqual(t, s.TokensPerCycle, tc.most)
			require.GreaterOrEqual(t, s.TokensPerCycle, tc.least)
			require.Len(t, s.AcceptedPerCycle, s.Cycles)
			sum := 0
			for _, n := range s.AcceptedPerCycle {
				sum += n
			}
			require.Equal(t, s.Accepted, sum)
			require.LessOrEqual(t, s.Accepted, s.Drafted)
			require.InDelta(t, float64(len(o.IDs)-1)/float64(s.Cycles), s.TokensPerCycle, 1e-9)
			require.Positive(t, s.PrefillMS)
			require.Positive(t, s.DecodeMS)
		})
	}
}

func TestBudget(t *testing.T) {
	greedy := readReference(t).Prompts[0].Greedy
	prompt := joinIDs(readReference(t).Prompts[0].Prompt)
	for _, n := range []int{1, 2, 17} {
		o := runJSON(t, "-prompt-ids", prompt, "-max-tokens", strconv.Itoa(n))
		require.Equal(t, greedy[:n], o.IDs)
		require.Equal(t, "length", o.FinishReason)
	}
	require.Equal(t, greedy, runJSON(t, "-prompt-ids", prompt, "-max-tokens", "0").IDs)
}

// Text leaves in pieces, which together are the text of -json.
func TestStreaming(t *testing.T) {
	var pieces []string
	stdout := writerFunc(func(p []byte) (int, error) {
		pieces = append(pieces, string(p))
		return len(p), nil
	})
	var stderr strings.Builder
	require.Zero(t, run(t.Context(), nil, strings.NewReader(""), stdout, &stderr))
	require.Greater(t, len(pieces), 20)
	o := runJSON(t)
	require.Equal(t, o.Text, strings.Join(pieces, ""))
	require.Contains(t, o.Text, "func "+demoFunction)
	require.Contains(t, stderr.String(), "Write this Go function", "the prompt is shown")
	require.Regexp(t, `with drafts: \d+ tokens, 1\d\.\d\d tokens per cycle, \d+\.\d tok/s; prompt of \d+ tokens in \d+ ms\n$`, stderr.String())
}

func TestCompare(t *testing.T) {
	if !onCPU(t) {
		t.Skip("identical ids are promised on the CPU")
	}
	got := runArgs(t, "-compare", "-json", "-max-tokens", "40")
	o := decode(t, got)
	require.Positive(t, o.Stats.Drafted, "the object is of the generation with drafts")
	require.Regexp(t, `with drafts: 40 tokens, \d+\.\d\d tokens per cycle, \d+\.\d tok/s`, got.stderr)
	require.Regexp(t, `no drafts \(.*\): 40 tokens, 1\.00 tokens per cycle, \d+\.\d tok/s`, got.stderr)
	require.Regexp(t, `\d+\.\d\d × the rate of plain decoding; all 40 ids are identical\n$`, got.stderr)
}

func onCPU(t *testing.T) bool {
	t.Helper()
	lib, err := mlx.Open(nil)
	require.NoError(t, err)
	defer lib.Close()
	return lib.Device() == mlx.DeviceCPU
}

func TestComparisonVerdict(t *testing.T) {
	same, other := reply{ids: []int{5, 6, 7}}, reply{ids: []int{5, 6, 8}}
	short := reply{ids: []int{5, 6}}
	for name, tc := range map[string]struct {
		device mlx.DeviceType
		plain  reply
		said   string
		fails  bool
	}{
		"equal":         {mlx.DeviceCPU, same, "all 3 ids are identical", false},
		"other on CPU":  {mlx.DeviceCPU, other, "differ from token 3 on", true},
		"short on CPU":  {mlx.DeviceCPU, short, "differ from token 3 on", true},
		"other on GPU":  {mlx.DeviceGPU, other, "differ from token 3 on", false},
		"nothing timed": {mlx.DeviceCPU, same, "all 3", false},
	} {
		t.Run(name, func(t *testing.T) {
			var w strings.Builder
			err := reportComparison(&w, tc.device, same, tc.plain)
			require.Contains(t, w.String(), tc.said)
			require.NotContains(t, w.String(), "NaN")
			require.Equal(t, tc.fails, err != nil)
		})
	}
}

// The flags that shape the prompt reach the model: each is compared with the
// ids that it must amount to.
func TestPromptForms(t *testing.T) {
	pair, err := demoPair()
	require.NoError(t, err)
	tok, err := tokenizer.Load(filepath.Join(pair, "target"))
	require.NoError(t, err)
	const user = "Package path. Write this Go function:\nfunc Ext(path string) string"
	turn := func(system, tail string) string {
		if system != "" {
			system = "<|im_start|>system\n" + system + "<|im_end|>\n"
		}
		return system + "<|im_start|>user\n" + user + "<|im_end|>\n<|im_start|>assistant\n<think>\n" + tail
	}
	file := filepath.Join(t.TempDir(), "prompt.txt")
	require.NoError(t, os.WriteFile(file, []byte(user+"\n"), 0o600))
	for name, tc := range map[string]struct {
		args  []string
		stdin string
		want  string
	}{
		"prompt":         {[]string{"-prompt", user}, "", turn("", "")},
		"file":           {[]string{"-prompt-file", file}, "", turn("", "")},
		"standard input": {[]string{"-prompt-file", "-"}, user + "\r\n", turn("", "")},
		"system":         {[]string{"-prompt", user, "-system", "Be short."}, "", turn("Be short.", "")},
		"thinking":       {[]string{"-prompt", user, "-think"}, "", turn("", "")},
		"no thinking":    {[]string{"-prompt", user, "-think=false"}, "", turn("", "\n</think>\n\n")},
		"raw":            {[]string{"-raw", "-prompt", user}, "", user},
		"raw file":       {[]string{"-raw", "-prompt-file", file}, "", user + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parse(t.Context(), tc.args, strings.NewReader(tc.stdin), &strings.Builder{})
			require.NoError(t, err)
			require.NotNil(t, o)
			got := decode(t, runIn(t, t.Context(), tc.stdin, append(tc.args, "-json", "-max-tokens", "8")...))
			want := runJSON(t, "-prompt-ids", joinIDs(tok.Encode(tc.want)), "-max-tokens", "8")
			require.Equal(t, want.Stats.PromptTokens, got.Stats.PromptTokens)
			require.Equal(t, want.IDs, got.IDs)
		})
	}
}

// Another model than the demo pair, with its drafter named.
func TestNamedPair(t *testing.T) {
	testdata, err := demoPair()
	require.NoError(t, err)
	pair := filepath.Join(testdata, "..", "tiny-qwen3")
	args := []string{"-prompt", "Package path. Write this Go function:\nfunc Ext(path string) string", "-max-tokens", "12"}
	whole := runJSON(t, append(args, "-model", pair)...)
	parts := runJSON(t, append(args, "-model", filepath.Join(pair, "target"), "-draft", filepath.Join(pair, "draft"))...)
	plain := runJSON(t, append(args, "-model", filepath.Join(pair, "target"))...)
	require.Equal(t, whole.IDs, parts.IDs)
	require.Equal(t, whole.IDs, plain.IDs)
	require.Positive(t, parts.Stats.Drafted)
	require.Zero(t, plain.Stats.Drafted)
}
