package dflash_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
)

// A drafter under YaRN is the naive one that rotates by the frequencies and the
// factor of Hugging Face's own function.
func TestDraftYaRN(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "internal", "rope", "testdata", "yarn.json"))
	require.NoError(t, err)
	var table struct {
		Cases []struct {
			Dims       int
			Theta      float64
			Parameters map[string]any
			InvFreq    []float64 `json:"inv_freq"`
			Attention  float64
		}
	}
	require.NoError(t, json.Unmarshal(data, &table))
	tried := 0
	for _, c := range table.Cases {
		if c.Dims != 16 {
			continue // the fixture's heads
		}
		tried++
		for _, types := range [][]string{{full, full}, {sliding, full}} {
			spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 1})
			dir := editDraft(t, spec, fixture.DraftOptions{Seed: 2, Taps: []int{0, 1, 3}}, func(_ tensorMap, config object) {
				config["layer_types"], config["sliding_window"] = types, 8
				config["rope_theta"], config["rope_scaling"] = c.Theta, c.Parameters
			})
			cfg, err := dflash.ReadDraftConfig(dir)
			require.NoError(t, err)
			require.Equal(t, "yarn, factor 8", cfg.RopeScaling)
			u := newDuo(t, dir)
			u.n.frequencies, u.n.magnitude = c.InvFreq, c.Attention
			for _, size := range []int{1, 5, 16, 40} {
				u.add(t, size, 0)
				u.compare(t, 8)
			}
		}
	}
	require.Positive(t, tried)
}

// A pair under YaRN: the drafted text is the plain one, past the original
// length, with the host's positions and with the device's.
func TestPairYaRN(t *testing.T) {
	scaled := func(part string) string {
		dir, from := t.TempDir(), filepath.Join(pairDir("tiny-qwen3"), part)
		require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
		path := filepath.Join(dir, "config.json")
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		config := object{}
		require.NoError(t, json.Unmarshal(data, &config))
		config["rope_parameters"] = object{"rope_type": "yarn", "rope_theta": 1e6, "factor": 4, "original_max_position_embeddings": 32}
		delete(config, "rope_theta")
		delete(config, "rope_scaling")
		data, err = json.Marshal(config)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, data, 0o644))
		return dir
	}
	target, draft := scaled("target"), scaled("draft")
	prompt := make([]int, 40)
	for i := range prompt {
		prompt[i] = (i*37 + 11) % 4000
	}
	r := dflash.Request{IDs: prompt, MaxTokens: 80, IgnoreEOS: true}
	want, _ := run(t, newSession(t, openDir(t, target, dflash.Options{NoDraft: true})), r)
	other, _ := run(t, newSession(t, open(t, "tiny-qwen3", dflash.Options{NoDraft: true})), r)
	require.NotEqual(t, other, want, "the scaling must be seen")
	for _, pipelined := range []bool{false, true} {
		s := newSession(t, openDir(t, target, dflash.Options{Draft: draft}))
		s.SetPipelined(pipelined)
		got, _ := run(t, s, r)
		require.Equal(t, want, got)
		require.Positive(t, s.Stats().Drafted)
	}
}
