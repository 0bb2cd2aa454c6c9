package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
)

// asPeer makes the test binary be a Python interpreter with mlx-lm.
const asPeer = "GODFLASH_TEST_AS_PEER"

func TestMain(m *testing.M) {
	if how := os.Getenv(asPeer); how != "" {
		os.Exit(fakePeer(how))
	}
	os.Exit(m.Run())
}

type outcome struct {
	status         int
	stdout, stderr string
}

func runArgs(t *testing.T, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status := run(t.Context(), args, &stdout, &stderr)
	return outcome{status, stdout.String(), stderr.String()}
}

// smallPair is the fastest pair of the repository.
func smallPair(t *testing.T) string {
	t.Helper()
	return filepath.Join(fixture.Testdata(t), "tiny-qwen3")
}

func TestWrongUsage(t *testing.T) {
	pair, err := demoPair()
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"unknown flag":          {[]string{"-topics", "1"}, "-topics"},
		"argument":              {[]string{"hello"}, `unexpected argument "hello"`},
		"two formats":           {[]string{"-json", "-markdown"}, "-json and -markdown"},
		"two formats more":      {[]string{"-json", "-benchstat"}, "-json and -benchstat"},
		"kind unknown":          {[]string{"-kinds", "code,poems"}, `"poems" is none of code, chat, maths, long`},
		"context with a letter": {[]string{"-context", "1k"}, `"1k"`},
		"context of nothing":    {[]string{"-context", "0"}, `"0"`},
		"context, no long":      {[]string{"-kinds", "chat", "-context", "100"}, "-kinds leaves out"},
		"context past model":    {[]string{"-context", "5000"}, "4096 positions"},
		"context too short":     {[]string{"-context", "3"}, "too few"},
		"plot as PDF":           {[]string{"-plot", "x.pdf"}, ".svg"},
		"no rounds":             {[]string{"-repeats", "0"}, "-repeats is 0"},
		"warm-up negative":      {[]string{"-warm-up", "-1"}, "-warm-up is -1"},
		"one token":             {[]string{"-max-tokens", "1"}, "-max-tokens is 1"},
		"block of one":          {[]string{"-block", "1"}, "-block is 1"},
		"block too long":        {[]string{"-block", "17"}, "17"},
		"bits":                  {[]string{"-draft-bits", "3"}, "3"},
		"temperature":           {[]string{"-temperature", "-1"}, "-temperature is -1"},
		"next to nothing":       {[]string{"-temperature", "1e-5"}, "below 0.0001"},
		"seed alone":            {[]string{"-seed", "3"}, "-seed needs -temperature"},
		"seed of nothing":       {[]string{"-temperature", "1", "-seed", "0"}, "-seed is 0"},
		"peer draws":            {[]string{"-temperature", "1", "-peer", "python3"}, "-peer and -temperature"},
		"peer empty":            {[]string{"-peer", ""}, "-peer is empty"},
		"peer missing":          {[]string{"-peer", "no/such/python", "-hash=false"}, "no/such/python"},
		"model empty":           {[]string{"-model", ""}, "-model is empty"},
		"draft empty":           {[]string{"-model", pair, "-draft", ""}, "-draft is empty"},
		"draft without model":   {[]string{"-draft", "d"}, "-draft needs -model"},
		"prompt file missing":   {[]string{"-prompt-file", "no/such/file", "-hash=false"}, "no/such/file"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runArgs(t, tc.args...)
			require.Equal(t, 2, got.status, got.stderr)
			require.Empty(t, got.stdout)
			require.Contains(t, got.stderr, tc.want)
		})
	}
}

func TestHelp(t *testing.T) {
	got := runArgs(t, "-h")
	require.Zero(t, got.status)
	require.Empty(t, got.stdout)
	for _, name := range []string{"model", "draft", "draft-bits", "block", "kinds", "prompt-file", "context", "max-tokens", "repeats", "warm-up", "temperature", "seed", "hash", "peer", "plot", "json", "markdown", "benchstat", "read", "synthetic", "bits", "layers", "accept", "cycles", "trace", "peer-context"} {
		require.Contains(t, got.stderr, "\n  -"+name)
	}
}

func TestFailure(t *testing.T) {
	pair, err := demoPair()
	require.NoError(t, err)
	missing := filepath.Join(t.TempDir(), "missing")
	got := runArgs(t, "-model", missing)
	require.Equal(t, 1, got.status)
	require.Contains(t, got.stderr, missing)
	got = runArgs(t, "-model", filepath.Join(pair, "target"))
	require.Equal(t, 1, got.status)
	require.Contains(t, got.stderr, "no drafter to measure")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr strings.Builder
	require.Equal(t, 130, run(ctx, nil, &stdout, &stderr))
	require.Contains(t, stderr.String(), "interrupted")
}

// TestMeasure runs the program and holds what it says against the reference
// texts, which other software made.
func TestMeasure(t *testing.T) {
	pair := smallPair(t)
	data, err := os.ReadFile(filepath.Join(pair, "reference-f32.json"))
	require.NoError(t, err)
	var ref struct {
		Prompts []struct{ Prompt, Greedy []int }
	}
	require.NoError(t, json.Unmarshal(data, &ref))

	plot := filepath.Join(t.TempDir(), "rates.svg")
	got := runArgs(t, "-model", pair, "-json", "-max-tokens", "9", "-repeats", "2", "-warm-up", "0", "-plot", plot)
	require.Zero(t, got.status, got.stderr)
	var r report
	d := json.NewDecoder(strings.NewReader(got.stdout))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&r))
	require.Len(t, r.Prompts, 12)
	for i, p := range r.Prompts {
		want := ref.Prompts[i].Greedy[:9]
		require.Equal(t, idsHash(ref.Prompts[i].Prompt), p.PromptSHA256, p.Name)
		require.True(t, p.Equal, p.Name)
		require.Nil(t, p.First, p.Name)
		for _, s := range []side{p.Plain, p.Drafted} {
			require.Equal(t, idsHash(want), s.SHA256, p.Name)
			require.Equal(t, 9, s.Tokens)
			require.Len(t, s.Rate.Values, 2)
			require.Positive(t, s.Rate.Min)
			require.Positive(t, s.Prefill.Min)
			require.GreaterOrEqual(t, s.PeakBytes, r.Model.WeightBytes)
		}
		require.Equal(t, 8, p.Plain.Cycles, "one token each after the first")
		require.Equal(t, []int{8}, p.Plain.Accepted)
		require.Less(t, p.Drafted.Cycles, 9)
	}
	require.Equal(t, []string{"known", "unknown", all}, []string{r.Kinds[0].Name, r.Kinds[1].Name, r.Kinds[2].Name})
	require.Equal(t, []int{9, 3, 12}, []int{r.Kinds[0].Equal, r.Kinds[1].Equal, r.Kinds[2].Equal})
	require.Greater(t, r.Kinds[0].TokensPerCycle, r.Kinds[1].TokensPerCycle)
	require.Equal(t, "cpu", r.Machine.Device)
	require.Equal(t, "tiny-qwen3", r.Model.Name)
	for _, f := range []*folder{&r.Model.Target, r.Model.Draft} {
		require.Equal(t, []string{"config.json", "model.safetensors"}, []string{f.Files[0].Name, f.Files[1].Name})
	}
	require.FileExists(t, plot)
}

// Sampling repeats with its seed, whatever the rounds, and a prompt of each kind
// is rendered.
func TestMeasureKinds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "question.txt")
	require.NoError(t, os.WriteFile(file, []byte("Write F.\n"), 0o600))
	got := runArgs(t, "-model", smallPair(t), "-max-tokens", "4", "-repeats", "2", "-warm-up", "0", "-hash=false", "-temperature", "0.8", "-seed", "5",
		"-kinds", "code,long", "-context", "200", "-prompt-file", file)
	require.Zero(t, got.status, got.stderr)
	require.Contains(t, got.stdout, "temperature 0.8, seed 5")
	for _, name := range []string{"code-1", "code-3", "long-200", "question.txt"} {
		require.Contains(t, got.stdout, "\n"+name+" ")
	}
	require.NotContains(t, got.stdout, "chat-1")
	require.NotContains(t, got.stdout, "files:")
	require.NotContains(t, got.stdout, " no\n")
}

func TestLongPrompts(t *testing.T) {
	pair, err := demoPair()
	require.NoError(t, err)
	e, err := dflash.Open(t.Context(), pair, nil)
	require.NoError(t, err)
	defer e.Close()
	list, err := longPrompts(e, &options{context: []int{500, 1500}, maxTokens: 10})
	require.NoError(t, err)
	for i, size := range []int{500, 1500} {
		require.LessOrEqual(t, len(list[i].ids), size)
		require.Greater(t, len(list[i].ids), size-100, "one record more would not fit")
	}
	list, err = longPrompts(e, &options{maxTokens: 10})
	require.NoError(t, err)
	require.LessOrEqual(t, len(list[0].ids), 4086, "the demo model has 4096 positions")
}

// The scores after the prompt are the reference's, computed by transformers.
func TestGap(t *testing.T) {
	pair, err := demoPair()
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(pair, "reference-f32.json"))
	require.NoError(t, err)
	var ref struct {
		Prompts []struct {
			Prompt []int
			Top    [][2]float64
		}
	}
	require.NoError(t, json.Unmarshal(data, &ref))
	e, err := dflash.Open(t.Context(), pair, nil)
	require.NoError(t, err)
	defer e.Close()
	p := ref.Prompts[10]
	d := &difference{Plain: int(p.Top[0][0]), Drafted: int(p.Top[2][0])}
	g, err := gap(t.Context(), e.Target(), p.Prompt, nil, d)
	require.NoError(t, err)
	require.InDelta(t, p.Top[0][1]-p.Top[2][1], g, 1e-3)
	d.At = 4
	half := len(p.Prompt) - 4
	g, err = gap(t.Context(), e.Target(), p.Prompt[:half], append(p.Prompt[half:len(p.Prompt):len(p.Prompt)], 1, 2, 3), d)
	require.NoError(t, err)
	require.InDelta(t, p.Top[0][1]-p.Top[2][1], g, 1e-3, "the common text counts as part of the prompt, what follows does not")
}

func TestDifferentTextsFail(t *testing.T) {
	r := &report{Machine: machine{Device: "cpu"}, Prompts: []result{{Name: "a", Equal: true}, {Name: "b"}}}
	err := r.wrong()
	require.ErrorIs(t, err, errDiffer)
	require.Contains(t, err.Error(), "(b)")
	r.Machine.Device = "gpu"
	require.NoError(t, r.wrong(), "near-ties may fall the other way")
	r.Machine.Device, r.Prompts[1].Equal = "cpu", true
	require.NoError(t, r.wrong())
}

// writerFunc is standard output that a test watches.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestStandardOutputBroken(t *testing.T) {
	full := errors.New("no space left")
	broken := writerFunc(func([]byte) (int, error) { return 0, full })
	for _, form := range []string{asTable, asMarkdown, asJSON, asBenchstat} {
		require.ErrorIs(t, write(broken, form, example()), full, form)
	}
}
