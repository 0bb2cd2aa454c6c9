package dflash_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/internal/safetensors"
)

// derived writes a model folder with another's text files and the tensors and
// configuration that edit makes of its own.
func derived(t testing.TB, from string, edit func(tensors tensorMap, config object)) string {
	t.Helper()
	dir := t.TempDir()
	tensors, config := fixture.ReadTensors(t, from), object{}
	entries, err := os.ReadDir(from)
	require.NoError(t, err)
	for _, f := range entries {
		data, err := os.ReadFile(filepath.Join(from, f.Name()))
		require.NoError(t, err)
		switch {
		case f.Name() == "config.json":
			require.NoError(t, json.Unmarshal(data, &config))
		case filepath.Ext(f.Name()) != ".safetensors":
			require.NoError(t, os.WriteFile(filepath.Join(dir, f.Name()), data, 0o644))
		}
	}
	edit(tensors, config)
	data, err := json.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644))
	fixture.WriteTensors(t, filepath.Join(dir, "model.safetensors"), tensors)
	return dir
}

// scaled multiplies bfloat16 values by a power of two.
func scaled(data []byte, by float64) []byte {
	out := make([]byte, 0, len(data))
	for ; len(data) > 0; data = data[2:] {
		x := math.Float32frombits(uint32(binary.LittleEndian.Uint16(data)) << 16)
		out = binary.LittleEndian.AppendUint16(out, uint16(math.Float32bits(x*float32(by))>>16))
	}
	return out
}

// columns are the values of bfloat16 columns i to j of a matrix with width columns.
func columns(data []byte, width, i, j int) []byte {
	var out []byte
	for ; len(data) > 0; data = data[2*width:] {
		out = append(out, data[2*i:2*j]...)
	}
	return out
}

// Qwen3's mixture of experts, in Hugging Face's files, where each expert lies by
// itself. A dense feed-forward can be written as a mixture in several ways; the
// ids must stay those that transformers computes for the dense model.
func TestQwen3Mixture(t *testing.T) {
	const hidden, ffn, experts = 128, 384, 4
	from, draft := filepath.Join(pairDir("tiny-qwen3"), "target"), filepath.Join(pairDir("tiny-qwen3"), "draft")
	refs := references(t, "tiny-qwen3")
	rng := rand.New(rand.NewPCG(1, 2))
	for name, c := range map[string]struct {
		config object
		parts  int     // of the inner width that an expert has one of
		scale  float64 // of what experts give
		router float64 // deviation of its weights
	}{
		// Each expert a quarter of the width, all of them chosen alike.
		"all experts": {object{"num_experts_per_tok": experts, "norm_topk_prob": true}, experts, experts, 0},
		// Each expert the whole, any two of them: divided by their sum they are one.
		"two of four, normalised": {object{"num_experts_per_tok": 2, "norm_topk_prob": true, "mlp_only_layers": []int{1}}, 1, 1, 0.5},
		// As they are, two of four equal ones make a half.
		"two of four, as they are": {object{"num_experts_per_tok": 2, "norm_topk_prob": false, "decoder_sparse_step": 2}, 1, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			width := ffn / c.parts
			dir := derived(t, from, func(tensors tensorMap, config object) {
				maps.Copy(config, object{"architectures": []string{"Qwen3MoeForCausalLM"}, "model_type": "qwen3_moe", "num_experts": experts, "moe_intermediate_size": width})
				maps.Copy(config, c.config)
				for layer := range 6 {
					if config["mlp_only_layers"] != nil && layer == 1 || config["decoder_sparse_step"] != nil && layer%2 == 0 {
						continue
					}
					p := fmt.Sprintf("model.layers.%d.mlp.", layer)
					dense := tensorMap{}
					for name, tensor := range maps.Clone(tensors) {
						if part, ok := strings.CutPrefix(name, p); ok {
							dense[part] = tensor
							delete(tensors, name)
						}
					}
					var router []byte
					for range experts * hidden {
						router = binary.LittleEndian.AppendUint16(router, uint16(math.Float32bits(float32(c.router*rng.NormFloat64()))>>16))
					}
					tensors[p+"gate.weight"] = safetensors.WriteTensor{Dtype: "BF16", Shape: []int{experts, hidden}, Data: router}
					for e := range experts {
						from := e % c.parts * width
						q := fmt.Sprintf("%sexperts.%d.", p, e)
						for _, name := range []string{"gate_proj.weight", "up_proj.weight"} {
							tensors[q+name] = safetensors.WriteTensor{Dtype: "BF16", Shape: []int{width, hidden}, Data: dense[name].Data[2*hidden*from : 2*hidden*(from+width)]}
						}
						down := columns(dense["down_proj.weight"].Data, ffn, from, from+width)
						tensors[q+"down_proj.weight"] = safetensors.WriteTensor{Dtype: "BF16", Shape: []int{hidden, width}, Data: scaled(down, c.scale)}
					}
				}
			})
			e := openDir(t, dir, dflash.Options{Draft: draft})
			require.Equal(t, "qwen3_moe", e.Info().ModelType)
			s := newSession(t, e)
			for i, block := range []int{1, 16, 5} {
				r := dflash.Request{IDs: refs[i].Prompt, MaxTokens: 96, BlockSize: block}
				if block == 1 {
					r.BlockSize, r.NoDraft = 0, true
				}
				ids, _ := run(t, s, r)
				require.Equalf(t, refs[i].Greedy, ids, "prompt %d, block %d, margins %v", i, block, refs[i].Margins)
				checkStats(t, s.Stats(), ids, block)
			}
		})
	}
}
