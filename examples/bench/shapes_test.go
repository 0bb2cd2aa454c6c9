package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"

	"github.com/godflash/godflash/internal/probe"
)

func TestPattern(t *testing.T) {
	for _, tokens := range []float64{1, 2, 6.5, 14} {
		p := pattern(tokens, 15, 24, 7)
		require.InDelta(t, tokens, 1+mean(p), 0.3, "%v", p)
		for _, n := range p {
			require.True(t, n >= 0 && n <= 15)
		}
	}
	require.Equal(t, []int{15, 15, 15}, pattern(99, 15, 3, 7), "a block has no more")
	require.Equal(t, pattern(6.5, 15, 24, 7), pattern(6.5, 15, 24, 7))
	require.NotEqual(t, pattern(6.5, 15, 24, 7), pattern(6.5, 15, 24, 8))
	long := pattern(6.5, 15, 4000, 7)
	at := 0
	for _, n := range long {
		if n >= 1 {
			at++
		}
	}
	none := float64(len(long)-at) / float64(len(long))
	require.InDelta(t, 0.13, none, 0.02, "a geometric pattern: one draft in eight is wrong")
}

func TestIntervals(t *testing.T) {
	begin := time.Now()
	var at []time.Time
	// The first token, then cycles of 3, 1 and 2 tokens.
	for _, ms := range []int{0, 10, 10, 10, 14, 34, 34} {
		at = append(at, begin.Add(time.Duration(ms)*time.Millisecond))
	}
	require.Equal(t, []float64{10, 4, 20}, intervals(at, []int{2, 0, 1}))
	require.Equal(t, []float64{10, 4}, intervals(at, []int{2, 0}), "a cycle that was not counted")
	require.Equal(t, []float64{10, 4, 20}, intervals(at[:6], []int{2, 0, 1}), "broken off inside a cycle")
}

// Random weights are made, the pattern is replayed, and every part is timed.
func TestSynthetic(t *testing.T) {
	plot, traced := filepath.Join(t.TempDir(), "x.png"), filepath.Join(t.TempDir(), "x.json")
	got := runArgs(t, "-synthetic", "Tiny", "-bits", "4", "-draft-bits", "4", "-layers", "2", "-block", "8", "-context", "8,16", "-cycles", "4", "-accept", "5", "-seed", "9", "-json", "-plot", plot, "-trace", traced)
	require.Zero(t, got.status, got.stderr)
	require.FileExists(t, plot)
	checkTrace(t, traced, 4)
	require.Contains(t, got.stderr, "context 16: ")
	var r shapeReport
	d := json.NewDecoder(strings.NewReader(got.stdout))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&r))
	require.Equal(t, shape{
		Name: "tiny", Guess: "made up", Layers: 2, Bits: 4, DraftBits: 4, BlockSize: 8,
		TargetBytes: r.Shape.TargetBytes, DraftBytes: r.Shape.DraftBytes, ActiveBytes: r.Shape.ActiveBytes,
	}, r.Shape)
	require.InDelta(t, 1, float64(r.Shape.ActiveBytes)/float64(r.Shape.TargetBytes+r.Shape.DraftBytes), 0.05, "what was reckoned is what MLX holds")
	require.Equal(t, 1+mean(pattern(5, 7, 4, 9)), r.TokensPerCycle)
	require.Positive(t, r.Bandwidth.Sum)
	require.Positive(t, r.Bandwidth.Copy)
	require.Len(t, r.Contexts, 2)
	for i, c := range r.Contexts {
		require.Equal(t, []int{8, 16}[i], c.Context)
		for name, s := range map[string]spread{"step": c.Step, "cycle": c.Cycle, "read": c.ReadCycle, "draft": c.Draft, "verify": c.Verify, "commit": c.Commit, "build": c.Build} {
			require.Len(t, s.Values, 4, name)
			require.Positive(t, s.Min, name)
		}
		require.Equal(t, c.Cycle, c.ReadCycle, "the CPU waits for every cycle")
		require.Nil(t, c.Dispatch)
		require.Positive(t, c.Prefill.Median)
		require.Greater(t, c.CycleBound, c.StepBound)
		require.Greater(t, c.Peak, r.Shape.TargetBytes)
	}
	require.Greater(t, r.Contexts[1].StepBound, r.Contexts[0].StepBound, "more cache")
}

func TestSyntheticRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"unknown":        {[]string{"-synthetic", "qwen9"}, "known are tiny, "},
		"empty":          {[]string{"-synthetic", ""}, "-synthetic is empty"},
		"bits":           {[]string{"-synthetic", "tiny", "-bits", "3"}, "3 bits"},
		"layers":         {[]string{"-synthetic", "tiny", "-layers", "5"}, "it has 4"},
		"accept NaN":     {[]string{"-synthetic", "tiny", "-accept", "NaN"}, "-accept is NaN"},
		"accept":         {[]string{"-synthetic", "tiny", "-accept", "0.5"}, "-accept is 0.5"},
		"no cycles":      {[]string{"-synthetic", "tiny", "-cycles", "0"}, "-cycles is 0"},
		"context":        {[]string{"-synthetic", "tiny", "-context", "32760"}, "more than tiny has positions"},
		"with a model":   {[]string{"-synthetic", "tiny", "-model", "x"}, "-synthetic and -model"},
		"without":        {[]string{"-bits", "4"}, "-bits needs -synthetic"},
		"peer's context": {[]string{"-synthetic", "tiny", "-peer-context", "20"}, "-peer-context needs -peer"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runArgs(t, tc.args...)
			require.Equal(t, 2, got.status, got.stderr)
			require.Empty(t, got.stdout)
			require.Contains(t, got.stderr, tc.want)
		})
	}
}

// exampleShape is a report of made-up numbers, of a GPU with a peer.
func exampleShape() *shapeReport {
	s := func(v float64) spread { return spreadOf([]float64{v, v, v}) }
	dispatch := s(0.25)
	first := atContext{
		Context: 1000, Prefill: s(100), DraftedPrefill: s(110), Step: s(5), Cycle: s(7.5), ReadCycle: s(9), Draft: s(1.5), Verify: s(6.5), Commit: s(0.5),
		Build: s(2), Dispatch: &dispatch, StepBound: 2.5, CycleBound: 3, TokensPerCycle: 6, Peak: 20_000_000_000, Peer: &peerAt{Step: s(10), Prefill: s(200)},
	}
	second := first
	second.Context, second.Peer, second.PeerError = 16000, nil, "ValueError: too long"
	second.Step = spreadOf([]float64{9, 10, 13})
	r := &shapeReport{
		Machine: example().Machine, Shape: shape{Name: "Qwen3-8B", Guess: "heads", Layers: 36, DraftBits: 4, BlockSize: 16, TargetBytes: 16e9, DraftBytes: 600e6},
		Bandwidth: bandwidth{Sum: 4.0e12, Copy: 4.2e12}, Seed: 3, Cycles: 3, Repeats: 1, Peer: "mlx-lm 0.32.2", Contexts: []atContext{first, second}, TokensPerCycle: 6,
	}
	return r
}

func TestShapeTable(t *testing.T) {
	var b strings.Builder
	require.NoError(t, write(&b, asMarkdown, exampleShape()))
	_, rest, _ := strings.Cut(b.String(), "\n\n")
	require.Equal(t, strings.TrimPrefix(`
Random weights in the shape of Qwen3-8B, 36 layers, bfloat16 (16.00 GB); drafter 4 bits (600 MB); blocks of 16 rows, 6.00 tokens per cycle replayed (seed 3). Medians of 3.

Not from a primary source, for the target: heads.

Memory reads 4000 GB/s and copies 4200 GB/s here; a bound is the weights and caches that must be read, at the better of the two.

| context | prefill, tok/s | step, ms | quartiles | × bound | cycle, ms | quartiles | × bound | cycle/step | plain, tok/s | drafted, tok/s | speed-up | peak | peer prefill | peer, tok/s | plain/peer |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| 1000 | 10000 | 5.00 | 5.00–5.00 | 2.00 | 7.50 | 7.50–7.50 | 2.50 | 1.50 | 200 | 800 | 4.00 × | 20.00 GB | 5000 | 100 | 2.00 × |
| 16000 | 160000 | 10.0 | 9.50–11.5 | 4.00 | 7.50 | 7.50–7.50 | 2.50 | 0.75 | 100 | 800 | 8.00 × | 20.00 GB |  |  |  |

A cycle in ms: as the library runs it, with the host waiting for each, and its parts, each waited for; the host's own share.

| context | cycle | waited for | difference | draft | verify | accept and commit | host: graph | host: dispatch |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| 1000 | 7.50 | 9.00 | 1.50 | 1.50 | 6.50 | 0.500 | 2.00 | 0.250 |
| 16000 | 7.50 | 9.00 | 1.50 | 1.50 | 6.50 | 0.500 | 2.00 | 0.250 |

The peer failed at a context of 16000: ValueError: too long
`, "\n"), rest)
}

func TestShapeBenchstat(t *testing.T) {
	var b strings.Builder
	require.NoError(t, write(&b, asBenchstat, exampleShape()))
	reader := benchfmt.NewReader(strings.NewReader(b.String()), "bench")
	n := 0
	for reader.Scan() {
		res, ok := reader.Result().(*benchfmt.Result)
		require.True(t, ok, "%v", reader.Result())
		if string(res.Name) == "Shape/context=1000/part=cycle" {
			v, ok := res.Value("sec/op")
			require.True(t, ok)
			require.InDelta(t, 0.0075, v, 1e-9)
			n++
		}
	}
	require.Equal(t, 3, n)
}

// Ctrl-C leaves the report of the lengths that were done.
func TestSyntheticInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout, stderr strings.Builder
	watch := writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), "speed-up") {
			cancel()
		}
		return stderr.Write(p)
	})
	require.Equal(t, 130, run(ctx, []string{"-synthetic", "tiny", "-layers", "1", "-context", "8,9", "-cycles", "2", "-json"}, &stdout, watch))
	var r shapeReport
	require.NoError(t, json.Unmarshal([]byte(stdout.String()), &r))
	require.Len(t, r.Contexts, 1)
	require.Equal(t, 8, r.Contexts[0].Context)
}

// checkTrace: each cycle's graph comes before its read, and nothing overlaps, for
// the host does one thing at a time.
func checkTrace(t *testing.T, path string, cycles int) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var file struct{ TraceEvents []span }
	require.NoError(t, json.Unmarshal(text, &file))
	ended := map[string]float64{}
	now := 0.0
	for _, e := range file.TraceEvents {
		require.Equal(t, "X", e.Phase)
		require.GreaterOrEqual(t, e.Start+0.001, now, e.Name)
		now = e.Start + e.Duration
		ended[e.Name] = now
	}
	for i := range cycles {
		require.Less(t, ended[fmt.Sprintf("graph of cycle %d", i)], ended[fmt.Sprintf("read cycle %d", i)])
	}
}

// With a cycle in flight the read of one comes after the next one's hand-over.
func TestTraceInFlight(t *testing.T) {
	zero := time.Now()
	at := func(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }
	ms := time.Millisecond
	got := trace(timed{
		cycles: []probe.Times{{Began: at(0), Build: 2 * ms, Dispatch: ms}, {Began: at(3), Build: 2 * ms, Dispatch: ms}},
		reads:  []probe.Read{{Began: at(6), Ended: at(9)}, {Began: at(9), Ended: at(10)}},
	})
	require.Equal(t, []span{
		{"graph of cycle 0", "X", 0, 2000, 1, 1},
		{"hand cycle 0 over", "X", 2000, 1000, 1, 1},
		{"read cycle 0", "X", 6000, 3000, 1, 1},
		{"graph of cycle 1", "X", 3000, 2000, 1, 1},
		{"hand cycle 1 over", "X", 5000, 1000, 1, 1},
		{"read cycle 1", "X", 9000, 1000, 1, 1},
	}, got)
	require.Nil(t, trace(timed{}))
}
