package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakePeer stands for Python with mlx-lm: it takes the script as Python does and
// answers by the same protocol.
func fakePeer(how string) int {
	if len(os.Args) != 3 || os.Args[1] != "-c" || !strings.Contains(os.Args[2], "generate_step") {
		fmt.Fprintln(os.Stderr, "not called as python -c SCRIPT")
		return 3
	}
	if how == "dies" {
		fmt.Fprintln(os.Stderr, "No module named mlx_lm")
		return 1
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	loaded := false
	for in.Scan() {
		var r struct {
			Dir     string
			Float32 bool
			IDs     []int
			Max     int `json:"max_tokens"`
			EOS     []int
		}
		switch err := json.Unmarshal(in.Bytes(), &r); {
		case err != nil:
			return 4
		case !loaded && r.Dir != "" && r.Float32:
			loaded = true
			fmt.Println(`{"versions": "mlx-lm of the test"}`)
		case how == "fails":
			fmt.Println(`{"error": "ValueError: no such model"}`)
		case len(r.EOS) == 0:
			fmt.Println(`{"error": "no end of sequence"}`)
		default:
			ids, _ := json.Marshal(make([]int, r.Max))
			fmt.Printf(`{"ids": %s, "prefill_ms": 5, "decode_ms": 1000, "peak_bytes": %d}`+"\n", ids, len(r.IDs))
		}
	}
	return 0
}

func TestPeer(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	t.Setenv(asPeer, "works")
	got := runArgs(t, "-json", "-max-tokens", "5", "-repeats", "1", "-warm-up", "0", "-hash=false", "-kinds", "chat", "-peer", exe)
	require.Zero(t, got.status, got.stderr)
	var r report
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &r))
	require.Equal(t, "mlx-lm of the test", r.Settings.Peer)
	require.Len(t, r.Prompts, 3)
	for _, p := range r.Prompts {
		require.Equal(t, 5, p.Peer.Tokens)
		require.Equal(t, 4.0, p.Peer.Rate.Median, "4 tokens in a second")
		require.Equal(t, int64(p.PromptTokens), p.Peer.PeakBytes, "it had the same ids")
		require.InDelta(t, p.Plain.Rate.Median/4, p.OverPeer.Median, 1e-9)
	}
	require.InDelta(t, 4.0, r.Kinds[0].Peer.Median, 1e-9)

	t.Setenv(asPeer, "dies")
	got = runArgs(t, "-hash=false", "-peer", exe)
	require.Equal(t, 1, got.status)
	require.Contains(t, got.stderr, "No module named mlx_lm", "what it says is passed on")
	require.Contains(t, got.stderr, "pip install mlx-lm")

	t.Setenv(asPeer, "fails")
	got = runArgs(t, "-hash=false", "-max-tokens", "4", "-repeats", "1", "-peer", exe)
	require.Equal(t, 1, got.status)
	require.Contains(t, got.stderr, "no such model")
}
