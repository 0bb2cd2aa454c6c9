package dflash_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/mlx"
)

// lib is the CPU library: the tests assert bits.
var lib *mlx.Library

func TestMain(m *testing.M) {
	var err error
	if lib, err = mlx.Open(&mlx.Options{Device: mlx.DeviceCPU}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	lib.Close()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// pairs are the embedded dense pairs, one of each family; allPairs has the
// mixture of experts too, whose drafter has a sliding layer.
var (
	pairs    = []string{"tiny-qwen3.5", "tiny-qwen3"}
	allPairs = append(pairs[:2:2], "tiny-qwen3.5-moe")
)

func pairDir(pair string) string { return filepath.Join("..", "testdata", pair) }

// open opens an embedded pair on the shared library.
func open(t testing.TB, pair string, o dflash.Options) *dflash.Engine {
	t.Helper()
	o.Library = lib
	e, err := dflash.Open(t.Context(), pairDir(pair), &o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func newSession(t testing.TB, e *dflash.Engine) *dflash.Session {
	t.Helper()
	s, err := e.NewSession()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// run collects a generation.
func run(t testing.TB, s *dflash.Session, r dflash.Request) (ids []int, text string) {
	t.Helper()
	for token, err := range s.Generate(t.Context(), r) {
		require.NoError(t, err)
		ids = append(ids, token.ID)
		text += token.Text
	}
	return ids, text
}

// reference is one prompt of reference-f32.json, made with transformers.
type reference struct {
	Prompt  []int     `json:"prompt"`
	Greedy  []int     `json:"greedy"`
	Margins []float64 `json:"margins"`
}

func references(t testing.TB, pair string) []reference {
	t.Helper()
	var f struct {
		Prompts []reference `json:"prompts"`
	}
	readJSON(t, pair, "reference-f32.json", &f)
	require.Len(t, f.Prompts, 12)
	return f.Prompts
}

// draftGolden is golden-draft.json, made by an independent implementation.
type draftGolden struct {
	Mean    float64 `json:"mean_tokens_per_cycle_all_12_prompts"`
	Block   int     `json:"block"`
	Prompts []struct {
		Index          int     `json:"index"`
		TokensPerCycle float64 `json:"tokens_per_cycle"`
		Tokens         []int   `json:"tokens"`
		Cycles         []struct {
			Draft    []int   `json:"draft"`
			Accepted int     `json:"accepted"`
			Emitted  []int   `json:"emitted"`
			Margin   float64 `json:"margin"`
		} `json:"cycles"`
	} `json:"prompts"`
}

func draftGoldens(t testing.TB, pair string) draftGolden {
	t.Helper()
	var g draftGolden
	readJSON(t, pair, "golden-draft.json", &g)
	require.NotEmpty(t, g.Prompts)
	return g
}

func readJSON(t testing.TB, pair, name string, v any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(pairDir(pair), name))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, v))
}
