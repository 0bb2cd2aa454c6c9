package dflash_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/safetensors"
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
				e := openDir(t, quantisedFolder(t, filepath.Join(pairDir(pair), "target"), func(string) mlx.QuantizeOptions { return o }), dflash.Options{Draft: filepath.Join(pairDir(pair), "draft")})
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

// quantisedFolder writes a model's or drafter's folder with its matrices quantised
// as pick says (in 16 bits: not), experts as MLX's converter stacks them, the router
// and the shared expert's gate in 8 bits.
func quantisedFolder(t testing.TB, from string, pick func(name string) mlx.QuantizeOptions) string {
	t.Helper()
	dir := t.TempDir()
	data, err := os.ReadFile(filepath.Join(from, "config.json"))
	require.NoError(t, err)
	var config object
	require.NoError(t, json.Unmarshal(data, &config))
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		arrays, _, err := s.LoadSafetensors(filepath.Join(from, "model.safetensors"))
		if err != nil {
			return err
		}
		out := map[string]mlx.Array{}
		put := func(name string, a mlx.Array) {
			o := pick(name)
			if o.Bits == 16 {
				out[name+".weight"] = a
				return
			}
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
				put(p+"gate_proj", s.Contiguous(s.SliceAxis(a, 1, 0, f)))
				put(p+"up_proj", s.Contiguous(s.SliceAxis(a, 1, f, 2*f)))
			case strings.HasSuffix(name, "experts.down_proj"):
				put(strings.TrimSuffix(name, "experts.down_proj")+"switch_mlp.down_proj", a)
			case isWeight && a.NDim() == 2:
				put(module, a)
			default:
				out[name] = a
			}
		}
		return s.SaveSafetensors(filepath.Join(dir, "model.safetensors"), out, nil)
	}))
	data, err = json.Marshal(config)
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

// Drafters whose files are quantised: what they propose is what the dense ones that
// they stand for propose, and no token of the text depends on it.
func TestQuantizedDrafters(t *testing.T) {
	from, target := filepath.Join(pairDir("tiny-qwen3"), "draft"), filepath.Join(pairDir("tiny-qwen3"), "target")
	four, eight, none := mlx.QuantizeOptions{Bits: 4, GroupSize: 64}, mlx.QuantizeOptions{Bits: 8, GroupSize: 32}, mlx.QuantizeOptions{Bits: 16}
	for name, pick := range map[string]func(string) mlx.QuantizeOptions{
		"4-bit affine": func(string) mlx.QuantizeOptions { return four },
		"4-bit mxfp4":  func(string) mlx.QuantizeOptions { return mlx.QuantizeOptions{Mode: mlx.MXFP4} },
		"8-bit affine": func(name string) mlx.QuantizeOptions {
			if name == "fc" {
				return none
			}
			return eight
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := quantisedFolder(t, from, pick)
			dense := derived(t, from, func(tensors tensorMap, _ object) {
				for name, tensor := range tensors {
					o := pick(strings.TrimSuffix(name, ".weight"))
					if len(tensor.Shape) != 2 || o.Bits == 16 {
						continue
					}
					require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
						arrays, _, err := s.LoadSafetensors(filepath.Join(from, "model.safetensors"))
						if err != nil {
							return err
						}
						q := s.Quantize(arrays[name], o)
						if q.Biases.Valid() {
							q.Scales, q.Biases = s.AsType(q.Scales, mlx.Float32), s.AsType(q.Biases, mlx.Float32)
						}
						values, err := mlx.ToSlice[float32](s.Dequantize(q, mlx.Float32))
						var data []byte
						for _, x := range values {
							data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
						}
						tensors[name] = safetensors.WriteTensor{Dtype: "F32", Shape: tensor.Shape, Data: data}
						return err
					}))
				}
			})
			require.InDeltaSlice(t, proposal(t, dense), proposal(t, dir), 1e-3)

			e := openDir(t, target, dflash.Options{Draft: dir})
			require.Equal(t, name, e.Info().DraftQuantization)
			require.Zero(t, e.Info().DraftBits)
			s := newSession(t, e)
			for _, ref := range references(t, "tiny-qwen3")[:2] {
				ids, _ := run(t, s, dflash.Request{IDs: ref.Prompt, MaxTokens: 96, BlockSize: 16})
				require.Equal(t, ref.Greedy, ids)
				require.Greater(t, s.Stats().TokensPerCycle(), 2.0)
			}
			_, err := dflash.Open(t.Context(), target, &dflash.Options{Library: lib, Draft: dir, DraftBits: 4})
			require.ErrorIs(t, err, dflash.ErrRequest)
			require.ErrorContains(t, err, name)
			_, err = dflash.LoadDrafter(t.Context(), lib, dir, &dflash.DraftOptions{Bits: 8})
			require.ErrorIs(t, err, dflash.ErrRequest)
		})
	}
	// What the configuration says of a module must be what the file holds.
	dir := derived(t, quantisedFolder(t, from, func(string) mlx.QuantizeOptions { return four }), func(_ tensorMap, config object) {
		config["quantization"].(object)["layers.0.mlp.up_proj"] = object{"bits": 6, "group_size": 64}
	})
	_, err := dflash.Open(t.Context(), target, &dflash.Options{Library: lib, Draft: dir})
	require.ErrorIs(t, err, dflash.ErrUnsupported)
	require.ErrorContains(t, err, "layers.0.mlp.up_proj: the configuration says 6 bits")
}
