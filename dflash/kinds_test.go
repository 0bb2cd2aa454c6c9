package dflash_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/mlx"
)

// kinds are the pairs with quantised targets and with mixtures of experts, and
// the ids that other software gives for them with float32 activations.
var kinds = []struct{ pair, target, reference string }{
	{"tiny-qwen3.5", "target-4bit", "reference-4bit.json"},
	{"tiny-qwen3", "target-mxfp4", "reference-mxfp4.json"},
	{"tiny-qwen3.5-moe", "target", "reference-f32.json"},
	{"tiny-qwen3.5-moe", "target-4bit", "reference-4bit.json"},
}

// Quantised weights and mixtures of experts: the reference's ids, plain and
// drafted.
func TestKinds(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.pair+"/"+k.target, func(t *testing.T) {
			dir := pairDir(k.pair)
			e := openDir(t, filepath.Join(dir, k.target), dflash.Options{Draft: filepath.Join(dir, "draft")})
			s := newSession(t, e)
			data, err := os.ReadFile(filepath.Join(dir, k.reference))
			require.NoError(t, err)
			var f struct{ Prompts []reference }
			require.NoError(t, json.Unmarshal(data, &f))
			require.Len(t, f.Prompts, 12)
			for i, ref := range f.Prompts {
				for _, block := range []int{1, 4} {
					if block == 4 && i%4 != 1 {
						continue // drafts are the same business as with other weights
					}
					r := dflash.Request{IDs: ref.Prompt, MaxTokens: 96, BlockSize: block}
					if block == 1 {
						r.BlockSize, r.NoDraft = 0, true
					}
					ids, _ := run(t, s, r)
					require.Equalf(t, ref.Greedy, ids, "prompt %d, block %d, margins %v", i, block, ref.Margins)
					checkStats(t, s.Stats(), ids, block)
				}
			}
		})
	}
}

// A drafter stored in fewer bits drafts a little worse and changes no token.
func TestDraftBits(t *testing.T) {
	ref := references(t, "tiny-qwen3")[:6]
	perCycle := map[int]float64{}
	for _, bits := range []int{dflash.KeepDraftPrecision, 0, 8, 4} {
		e := open(t, "tiny-qwen3", dflash.Options{DraftBits: bits})
		require.Equal(t, max(bits, 0), e.Info().DraftBits)
		s := newSession(t, e)
		tokens, cycles := 0, 0
		for _, r := range ref {
			ids, _ := run(t, s, dflash.Request{IDs: r.Prompt, MaxTokens: 96, BlockSize: e.Info().BlockSize})
			require.Equal(t, r.Greedy, ids)
			tokens, cycles = tokens+len(ids)-1, cycles+s.Stats().Cycles
		}
		perCycle[bits] = float64(tokens) / float64(cycles)
	}
	t.Logf("tokens per cycle by bits: %v", perCycle)
	require.InDelta(t, perCycle[dflash.KeepDraftPrecision], perCycle[0], 0)
	require.Greater(t, perCycle[8], 0.9*perCycle[0])
	require.Greater(t, perCycle[4], 0.4*perCycle[0])
	_, err := dflash.Open(t.Context(), pairDir("tiny-qwen3"), &dflash.Options{Library: lib, DraftBits: 3})
	require.ErrorIs(t, err, dflash.ErrRequest)
}

// Every way of quantisation decodes: what a drafter's blocks give is the plain
// text, for the three families.
func TestSchemes(t *testing.T) {
	affine := func(bits, group int) mlx.QuantizeOptions {
		return mlx.QuantizeOptions{Bits: bits, GroupSize: group}
	}
	for pair, schemes := range map[string][]mlx.QuantizeOptions{
		"tiny-qwen3":       {affine(2, 32), affine(3, 64), affine(5, 128), {Mode: mlx.MXFP8}, {Mode: mlx.NVFP4}},
		"tiny-qwen3.5":     {affine(6, 64), {Mode: mlx.NVFP4}},
		"tiny-qwen3.5-moe": {affine(8, 32), {Mode: mlx.MXFP4}},
	} {
		for _, o := range schemes {
			t.Run(fmt.Sprintf("%s/%s %d %d", pair, o.Mode, o.Bits, o.GroupSize), func(t *testing.T) {
				e := openDir(t, quantisedTarget(t, pair, o), dflash.Options{Draft: filepath.Join(pairDir(pair), "draft")})
				require.NotEmpty(t, e.Info().Quantization)
				s := newSession(t, e)
				prompt := references(t, pair)[1].Prompt[:12]
				r := dflash.Request{IDs: prompt, MaxTokens: 20, IgnoreEOS: true, NoDraft: true}
				plain, _ := run(t, s, r)
				require.Len(t, plain, 20)
				r.NoDraft, r.BlockSize = false, 5
				ids, _ := run(t, s, r)
				require.Equal(t, plain, ids)
				checkStats(t, s.Stats(), ids, 5)
			})
		}
	}
}

// quantisedTarget writes a pair's target with its matrices quantised, experts as
// MLX's converter stacks them, the router and the shared expert's gate in 8 bits.
func quantisedTarget(t testing.TB, pair string, o mlx.QuantizeOptions) string {
	t.Helper()
	from, dir := filepath.Join(pairDir(pair), "target"), t.TempDir()
	var config object
	readJSON(t, pair, "target/config.json", &config)
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		arrays, _, err := s.LoadSafetensors(filepath.Join(from, "model.safetensors"))
		if err != nil {
			return err
		}
		out := map[string]mlx.Array{}
		put := func(name string, a mlx.Array, o mlx.QuantizeOptions) {
			q := s.Quantize(a, o)
			if q.Biases.Valid() {
				out[name+".biases"] = q.Biases
			}
			out[name+".weight"], out[name+".scales"] = q.W, q.Scales
			config["quantization"] = object{"mode": q.Options.Mode.String(), "bits": q.Options.Bits, "group_size": q.Options.GroupSize}
		}
		for _, name := range slices.Sorted(maps.Keys(arrays)) {
			a := arrays[name]
			module, isWeight := strings.CutSuffix(name, ".weight")
			switch {
			case strings.HasSuffix(name, ".mlp.gate.weight"), strings.HasSuffix(name, ".shared_expert_gate.weight"):
				q := s.Quantize(a, mlx.QuantizeOptions{Bits: 8, GroupSize: 64})
				out[name], out[module+".scales"], out[module+".biases"] = q.W, q.Scales, q.Biases
			case strings.HasSuffix(name, "experts.gate_up_proj"):
				p, f := strings.TrimSuffix(name, "experts.gate_up_proj")+"switch_mlp.", a.Dim(1)/2
				put(p+"gate_proj", s.Contiguous(s.SliceAxis(a, 1, 0, f)), o)
				put(p+"up_proj", s.Contiguous(s.SliceAxis(a, 1, f, 2*f)), o)
			case strings.HasSuffix(name, "experts.down_proj"):
				put(strings.TrimSuffix(name, "experts.down_proj")+"switch_mlp.down_proj", a, o)
			case isWeight && a.NDim() == 2:
				put(module, a, o)
			default:
				out[name] = a
			}
		}
		return s.SaveSafetensors(filepath.Join(dir, "model.safetensors"), out, nil)
	}))
	data, err := json.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644))
	entries, err := os.ReadDir(from)
	require.NoError(t, err)
	for _, f := range entries {
		if f.Name() == "config.json" || filepath.Ext(f.Name()) == ".safetensors" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(from, f.Name()))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, f.Name()), data, 0o644))
	}
	return dir
}
