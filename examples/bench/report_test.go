package main

import (
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"
)

// example is a report of made-up numbers: two prompts, three rounds.
func example() *report {
	fill := func(n int, v float64) spread { return spreadOf([]float64{v, v, v}[:n]) }
	s := func(tokens, cycles int, ms, prefill float64) side {
		x := side{
			Tokens: tokens, Cycles: cycles, SHA256: "abc", Steady: true, PeakBytes: 2_500_000_000,
			Decode: fill(3, ms), Prefill: fill(3, prefill), Rate: fill(3, float64(tokens-1)/ms*1e3), TokensPerCycle: float64(tokens-1) / float64(cycles),
		}
		return x
	}
	a := result{Name: "code-1", Kind: "code", PromptTokens: 30, Plain: s(11, 10, 100, 50), Drafted: s(11, 2, 20, 52), Equal: true, Speedup: fill(3, 5)}
	a.Drafted.Accepted, a.Drafted.AcceptedAt = histogram([]int{3, 5})
	b := result{Name: "chat-1", Kind: "chat", PromptTokens: 40, Plain: s(21, 20, 100, 60), Drafted: s(21, 10, 130, 62)}
	b.Speedup = spreadOf([]float64{0.7, 0.8, 1.1})
	b.Drafted.Accepted, b.Drafted.AcceptedAt = histogram([]int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1})
	b.First = &difference{At: 7, Plain: 11, Drafted: 12, Gap: 0.015625, Scored: true}
	r := &report{
		Machine: machine{
			Time: "2026-11-30T12:00:00Z", Device: "gpu", GPU: "Some GPU", CPU: "Some CPU", CPUs: 4, System: "linux/amd64", Power: "mains", Load: "0.1 0.2 0.3", LoadAfter: "1.1 0.4 0.3",
			Godflash: "v0.1.0", Go: "go1.27.3", MLX: "0.32.2", MLXC: "0.7.0",
		},
		Model: model{
			Name: "Qwen/Qwen3-4B", ModelType: "qwen3", Quantization: "4-bit affine", DraftBits: 4, BlockSize: 16, WeightBytes: 2_400_000_000,
			Target: folder{Commit: "c0ffee", Files: []file{{"config.json", 10, "f00d"}}}, Draft: &folder{Repo: "z-lab/Qwen3-4B-DFlash-b16"},
		},
		Settings: settings{Repeats: 3, WarmUp: 1, MaxTokens: 128},
		Prompts:  []result{a, b},
	}
	r.Kinds = sumUp(r.Prompts)
	return r
}

func TestTable(t *testing.T) {
	var b strings.Builder
	require.NoError(t, write(&b, asTable, example()))
	require.Equal(t, strings.TrimPrefix(`
2026-11-30T12:00:00Z, on Some GPU (gpu), 4 CPUs, linux/amd64, power: mains, load 0.1 0.2 0.3 before and 1.1 0.4 0.3 after. godflash v0.1.0, go1.27.3, MLX 0.32.2, mlx-c 0.7.0.

Qwen/Qwen3-4B (qwen3, 4-bit affine, revision c0ffee), drafter z-lab/Qwen3-4B-DFlash-b16 in 4 bits, blocks of up to 16 rows; weights of both take 2.40 GB.

Rounds: 3, after 1 that do not count, up to 128 tokens, greedy.
Medians; rates from the first token to the last, in tokens per second; the prompt's pass in ms.

prompt  kind  tokens  prefill  new  plain  drafted  speed-up  least–most  tokens/cycle     peak  equal
code-1  code      30       52   11    100      500    5.00 ×   5.00–5.00          5.00  2.50 GB    yes
chat-1  chat      40       62   21    200      154    0.80 ×   0.70–1.10          2.00  2.50 GB     no

kind  prompts  plain  drafted  speed-up  least–most  tokens/cycle   equal
code        1    100      500    5.00 ×   5.00–5.00          5.00  1 of 1
chat        1    200      154    0.77 ×   0.77–0.77          2.00  0 of 1
all         2    150      200    1.33 ×   1.33–1.33          2.50  1 of 2

chat-1: after 7 equal tokens plain decoding chose 11 and drafted decoding 12; the model's scores for them differ by 0.01562.

Share of the cycles that took a draft, by its place in the block: 1.00 0.17 0.17 0.08 0.08.

SHA-256 of the ids, drafted:
- abc code-1
- abc chat-1

SHA-256 of the target's files:
- f00d config.json
`, "\n"), b.String())
}

func TestMarkdown(t *testing.T) {
	r := example()
	r.Settings.Peer = "mlx-lm 0.32.2"
	for i := range r.Prompts {
		p := &r.Prompts[i]
		peer, over := p.Plain, spreadOf([]float64{1, 1, 1})
		p.Peer, p.OverPeer = &peer, &over
	}
	r.Kinds = sumUp(r.Prompts)
	r.Kinds[0].Doubt = "the rounds differ by 30 %"
	var b strings.Builder
	require.NoError(t, write(&b, asMarkdown, r))
	require.Contains(t, b.String(), `
| prompt | kind | tokens | prefill | new | plain | drafted | speed-up | least–most | tokens/cycle | peak | equal | peer | plain/peer |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| code-1 | code | 30 | 52 | 11 | 100 | 500 | 5.00 × | 5.00–5.00 | 5.00 | 2.50 GB | yes | 100 | 1.00 × |
`)
	require.Contains(t, b.String(), "Peer: mlx-lm 0.32.2.")
	require.Contains(t, b.String(), "Take the speed-up of \"code\" with care: the rounds differ by 30 %.\n")
	require.NotContains(t, b.String(), `of "chat" with care`)
}

// The lines are read by the parser of benchstat.
func TestBenchstat(t *testing.T) {
	var b strings.Builder
	require.NoError(t, write(&b, asBenchstat, example()))
	reader := benchfmt.NewReader(strings.NewReader(b.String()), "bench")
	var names []string
	var results []*benchfmt.Result
	for reader.Scan() {
		res, ok := reader.Result().(*benchfmt.Result)
		require.True(t, ok, "%v", reader.Result())
		names = append(names, string(res.Name))
		results = append(results, res.Clone())
	}
	require.NoError(t, reader.Err())
	require.Len(t, names, 2*2*3, "prompts, ways, rounds")
	require.Equal(t, "Decode/kind=code/prompt=code-1/way=plain", names[0])
	require.Equal(t, "Decode/kind=chat/prompt=chat-1/way=drafted", names[11])
	first := results[3] // code-1, drafted
	rate, ok := first.Value("tok/s")
	require.True(t, ok)
	require.Equal(t, 500.0, rate)
	seconds, ok := first.Value("sec/op") // benchfmt turns ns into seconds
	require.True(t, ok)
	require.InDelta(t, 0.020, seconds, 1e-9)
	perCycle, ok := first.Value("tok/cycle")
	require.True(t, ok)
	require.Equal(t, 5.0, perCycle)
	require.Equal(t, "Qwen/Qwen3-4B", first.GetConfig("model"))
	require.Equal(t, "linux", first.GetConfig("goos"))
	require.Equal(t, "gpu Some GPU", first.GetConfig("device"))
	require.Equal(t, "a_b_c_d", word("a b/c=d"))
}

func TestPlot(t *testing.T) {
	dir := t.TempDir()
	r := example()
	require.NoError(t, r.plot(filepath.Join(dir, "rates.png")))
	f, err := os.Open(filepath.Join(dir, "rates.png"))
	require.NoError(t, err)
	defer f.Close()
	img, err := png.Decode(f)
	require.NoError(t, err)
	require.Greater(t, img.Bounds().Dx(), 300)
	seen := map[any]bool{}
	for x := range img.Bounds().Dx() {
		for y := range img.Bounds().Dy() {
			seen[img.At(x, y)] = true
		}
	}
	for _, c := range colours[:2] {
		require.True(t, seen[c], "bars of both ways")
	}

	require.NoError(t, r.plot(filepath.Join(dir, "rates.svg")))
	text, err := os.ReadFile(filepath.Join(dir, "rates.svg"))
	require.NoError(t, err)
	for d := xml.NewDecoder(strings.NewReader(string(text))); ; {
		if _, err = d.Token(); err != nil {
			break
		}
	}
	require.True(t, errors.Is(err, io.EOF), "%v", err)
	require.Contains(t, string(text), "code-1")
	require.Error(t, r.plot(filepath.Join(dir, "missing", "rates.png")))
}

func TestHashFile(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "blobs"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "snapshots"), 0o755))
	plain := filepath.Join(dir, "snapshots", "config.json")
	require.NoError(t, os.WriteFile(plain, []byte("abc"), 0o600))
	f, err := hashFile(t.Context(), plain)
	require.NoError(t, err)
	// FIPS 180-4's example.
	require.Equal(t, file{"config.json", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}, f)

	// A blob of the hub's cache is not read: its name is the hash.
	name := strings.Repeat("0123456789abcdef", 4)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "blobs", name), []byte("abc"), 0o600))
	link := filepath.Join(dir, "snapshots", "model.safetensors")
	require.NoError(t, os.Symlink(filepath.Join("..", "blobs", name), link))
	f, err = hashFile(t.Context(), link)
	require.NoError(t, err)
	require.Equal(t, file{"model.safetensors", 3, name}, f)

	_, err = hashFolder(t.Context(), filepath.Join(dir, "blobs"))
	require.ErrorContains(t, err, "-hash=false")
}

// What -json wrote is read back, and then gives the same table.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	for name, r := range map[string]reporter{"pairs": example(), "shape": exampleShape()} {
		file := filepath.Join(dir, name)
		var text, want strings.Builder
		require.NoError(t, write(&text, asJSON, r))
		require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
		require.NoError(t, write(&want, asMarkdown, r))
		got := runArgs(t, "-read", file, "-markdown")
		require.Zero(t, got.status, got.stderr)
		require.Equal(t, want.String(), got.stdout)
	}
	other := filepath.Join(dir, "other")
	require.NoError(t, os.WriteFile(other, []byte("{}"), 0o600))
	got := runArgs(t, "-read", other)
	require.Equal(t, 1, got.status)
	require.Contains(t, got.stderr, "no report")
	require.Equal(t, 2, runArgs(t, "-read", filepath.Join(dir, "missing")).status)
	got = runArgs(t, "-read", other, "-repeats", "3")
	require.Equal(t, 2, got.status)
	require.Contains(t, got.stderr, "-repeats means nothing")
}
