package qwen_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/qwen"
)

// object is a JSON object to edit.
type object = map[string]any

// denseConfig is a Qwen3 config.json, flat.
func denseConfig() object {
	return object{
		"architectures": []string{"Qwen3ForCausalLM"}, "model_type": "qwen3",
		"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
		"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
		"vocab_size": 100, "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
		"hidden_act": "silu", "rope_parameters": object{"rope_theta": 1e6, "rope_type": "default"},
		"tie_word_embeddings": true, "eos_token_id": 7,
	}
}

// hybridText is a Qwen3.5 text configuration.
func hybridText() object {
	c := denseConfig()
	delete(c, "architectures")
	maps.Copy(c, object{
		"model_type": "qwen3_5_text", "full_attention_interval": 4,
		"linear_conv_kernel_dim": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
		"linear_num_key_heads": 2, "linear_num_value_heads": 4,
		"rope_parameters": object{"rope_theta": 1e7, "rope_type": "default", "partial_rotary_factor": 0.5},
	})
	return c
}

func nested(text object) object {
	return object{"architectures": []string{"Qwen3_5ForConditionalGeneration"}, "model_type": "qwen3_5", "text_config": text}
}

// with is c with changes; the value nil deletes the key.
func with(c object, changes object) object {
	c = maps.Clone(c)
	for k, v := range changes {
		if v == nil {
			delete(c, k)
		} else {
			c[k] = v
		}
	}
	return c
}

func writeJSON(t testing.TB, path string, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o644))
}

func readConfig(t testing.TB, config any, generation any) (*qwen.Config, error) {
	t.Helper()
	dir := t.TempDir()
	writeJSON(t, filepath.Join(dir, "config.json"), config)
	if generation != nil {
		writeJSON(t, filepath.Join(dir, "generation_config.json"), generation)
	}
	return qwen.ReadConfig(dir)
}

const (
	full   = qwen.FullAttention
	linear = qwen.LinearAttention
)

func TestConfigDialects(t *testing.T) {
	null := json.RawMessage("null")
	for name, c := range map[string]struct {
		config     object
		generation any
		check      func(t *testing.T, c *qwen.Config)
	}{
		"dense": {config: denseConfig(), check: func(t *testing.T, c *qwen.Config) {
			require.Equal(t, &qwen.Config{
				ModelType: "qwen3", HiddenSize: 64, IntermediateSize: 96, NumHiddenLayers: 4,
				NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 16, VocabSize: 100, MaxPositionEmbeddings: 512,
				RMSNormEps: 1e-6, TieWordEmbeddings: true, RopeTheta: 1e6, PartialRotaryFactor: 1,
				LayerTypes: []string{full, full, full, full}, EOSTokenIDs: []int{7}, MoeLayers: make([]bool, 4),
			}, c)
			require.Equal(t, 16, c.RotaryDim())
		}},
		"hybrid nested": {config: nested(hybridText()), check: func(t *testing.T, c *qwen.Config) {
			require.Equal(t, &qwen.Config{
				ModelType: "qwen3_5", HiddenSize: 64, IntermediateSize: 96, NumHiddenLayers: 4,
				NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 16, VocabSize: 100, MaxPositionEmbeddings: 512,
				RMSNormEps: 1e-6, TieWordEmbeddings: true, RopeTheta: 1e7, PartialRotaryFactor: 0.5,
				LayerTypes:          []string{linear, linear, linear, full},
				LinearConvKernelDim: 4, LinearKeyHeadDim: 16, LinearValueHeadDim: 16, LinearNumKeyHeads: 2, LinearNumValueHeads: 4,
				AttnOutputGate: true, EOSTokenIDs: []int{7}, MoeLayers: make([]bool, 4),
			}, c)
			require.Equal(t, 8, c.RotaryDim())
		}},
		"hybrid flat": {config: with(hybridText(), object{"model_type": "qwen3_5"}), check: func(t *testing.T, c *qwen.Config) {
			require.Equal(t, "qwen3_5", c.ModelType)
			require.Equal(t, 2, c.LinearNumKeyHeads)
		}},
		"moe": {config: with(denseConfig(), object{"model_type": "qwen3_moe", "intermediate_size": nil, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}), check: func(t *testing.T, c *qwen.Config) {
			require.Equal(t, []bool{true, true, true, true}, c.MoeLayers)
			require.False(t, c.NormTopkProb)
			require.Equal(t, 32, c.MoeIntermediateSize)
		}},
		"moe with dense layers": {config: with(denseConfig(), object{"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "decoder_sparse_step": 2, "mlp_only_layers": []int{3}, "norm_topk_prob": true}), check: func(t *testing.T, c *qwen.Config) {
			require.Equal(t, []bool{false, true, false, false}, c.MoeLayers)
			require.True(t, c.NormTopkProb)
			require.Equal(t, 96, c.IntermediateSize)
		}},
		"hybrid moe": {config: nested(with(hybridText(), object{"model_type": "qwen3_5_moe_text", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48})), check: func(t *testing.T, c *qwen.Config) {
			require.Equal(t, "qwen3_5_moe", c.ModelType)
			require.True(t, c.NormTopkProb)
			require.Equal(t, 48, c.SharedExpertIntermediateSize)
		}},
		"quantization": {config: with(denseConfig(), object{"quantization": object{"group_size": 64, "bits": 4}, "quantization_config": object{"group_size": 64, "bits": 4}}), check: func(t *testing.T, c *qwen.Config) {
			require.Equal(t, "4-bit affine", c.Quantization)
		}},
		"nested quantization": {config: nested(with(hybridText(), object{"quantization": object{"group_size": 32, "bits": 8, "mode": "mxfp8", "lm_head": false}})), check: func(t *testing.T, c *qwen.Config) {
			require.Equal(t, "8-bit mxfp8", c.Quantization)
		}},
		"text_config null": {config: with(denseConfig(), object{"text_config": null}), check: func(t *testing.T, c *qwen.Config) {
			require.Equal(t, "qwen3", c.ModelType)
		}},
		"theta at the top": {config: with(denseConfig(), object{"rope_parameters": nil, "rope_theta": 5e5, "rope_scaling": null}), check: func(t *testing.T, c *qwen.Config) {
			require.EqualValues(t, 5e5, c.RopeTheta)
		}},
		"yarn lengthens": {config: with(denseConfig(), object{"rope_parameters": object{"rope_theta": 1e6}, "rope_scaling": object{"type": "yarn", "factor": 4, "original_max_position_embeddings": 1024}}), check: func(t *testing.T, c *qwen.Config) {
			require.Equal(t, "yarn, factor 4", c.RopeScaling)
			require.Equal(t, 4096, c.MaxPositionEmbeddings)
		}},
		"theta in rope_scaling": {config: with(denseConfig(), object{"rope_parameters": nil, "rope_scaling": object{"type": "default", "rope_theta": 4e5}}), check: func(t *testing.T, c *qwen.Config) {
			require.EqualValues(t, 4e5, c.RopeTheta)
		}},
		"rope_parameters win": {config: with(denseConfig(), object{"rope_theta": 5e5}), check: func(t *testing.T, c *qwen.Config) {
			require.EqualValues(t, 1e6, c.RopeTheta)
		}},
		"partial factor at the top": {config: nested(with(hybridText(), object{"rope_parameters": object{"rope_theta": 1e7}, "partial_rotary_factor": 0.5})), check: func(t *testing.T, c *qwen.Config) {
			require.Equal(t, 8, c.RotaryDim())
		}},
		"partial factor missing": {config: nested(with(hybridText(), object{"rope_parameters": object{"rope_theta": 1e7, "mrope_section": []int{11, 11, 10}}})), check: func(t *testing.T, c *qwen.Config) {
			require.Equal(t, 4, c.RotaryDim(), "a quarter is Qwen3.5's default")
		}},
		"interval of 2": {config: nested(with(hybridText(), object{"full_attention_interval": 2})), check: func(t *testing.T, c *qwen.Config) {
			require.Equal(t, []string{linear, full, linear, full}, c.LayerTypes)
		}},
		"interval missing": {config: nested(with(hybridText(), object{"full_attention_interval": nil, "num_hidden_layers": 5})), check: func(t *testing.T, c *qwen.Config) {
			require.Equal(t, []string{linear, linear, linear, full, linear}, c.LayerTypes)
		}},
		"layer_types beat the interval": {config: nested(with(hybridText(), object{"layer_types": []string{full, linear, full, linear}})), check: func(t *testing.T, c *qwen.Config) {
			require.Equal(t, []string{full, linear, full, linear}, c.LayerTypes)
		}},
		"key heads missing": {config: with(denseConfig(), object{"num_key_value_heads": nil}), check: func(t *testing.T, c *qwen.Config) {
			require.Equal(t, 4, c.NumKeyValueHeads)
		}},
		"head_dim missing": {config: with(denseConfig(), object{"head_dim": nil, "hidden_size": 48}), check: func(t *testing.T, c *qwen.Config) {
			require.Equal(t, 12, c.HeadDim)
		}},
		"tie missing": {config: with(denseConfig(), object{"tie_word_embeddings": nil}), check: func(t *testing.T, c *qwen.Config) {
			require.False(t, c.TieWordEmbeddings)
		}},
		"tie at the top only": {config: with(nested(with(hybridText(), object{"tie_word_embeddings": nil})), object{"tie_word_embeddings": true}), check: func(t *testing.T, c *qwen.Config) {
			require.True(t, c.TieWordEmbeddings)
		}},
		"nested tie wins": {config: with(nested(with(hybridText(), object{"tie_word_embeddings": false})), object{"tie_word_embeddings": true}), check: func(t *testing.T, c *qwen.Config) {
			require.False(t, c.TieWordEmbeddings)
		}},
		"eos missing": {config: with(denseConfig(), object{"eos_token_id": nil}), check: eos()},
		"eos null":    {config: with(denseConfig(), object{"eos_token_id": null}), generation: object{"eos_token_id": null}, check: eos()},
		"eos list":    {config: with(denseConfig(), object{"eos_token_id": []int{9, 3, 9}}), check: eos(3, 9)},
		"eos in all places": {
			config:     with(nested(with(hybridText(), object{"eos_token_id": []int{5, 6}})), object{"eos_token_id": 4}),
			generation: object{"eos_token_id": []int{3, 5}, "temperature": 0.6}, check: eos(3, 4, 5, 6),
		},
		"eos in generation_config only": {config: with(denseConfig(), object{"eos_token_id": nil}), generation: object{"eos_token_id": 8}, check: eos(8)},
		"quantization null or empty":    {config: with(denseConfig(), object{"quantization": null, "quantization_config": object{}}), check: eos(7)},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readConfig(t, c.config, c.generation)
			require.NoError(t, err)
			c.check(t, got)
		})
	}
}

func eos(ids ...int) func(*testing.T, *qwen.Config) {
	return func(t *testing.T, c *qwen.Config) { require.ElementsMatch(t, ids, c.EOSTokenIDs) }
}

func TestConfigRefusals(t *testing.T) {
	hybrid := func(changes object) object { return nested(with(hybridText(), changes)) }
	dense := func(changes object) object { return with(denseConfig(), changes) }
	for name, c := range map[string]struct {
		config object
		kind   error
		says   []string
	}{
		"quantization of others":      {dense(object{"quantization_config": object{"quant_method": "awq", "bits": 4}}), qwen.ErrUnsupported, []string{"quant_method", "awq", "mlx-community"}},
		"gptq":                        {dense(object{"quantization_config": object{"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": true}}), qwen.ErrUnsupported, []string{"gptq", "mlx-community", "mlx_lm.convert"}},
		"fp8 in blocks":               {dense(object{"quantization_config": object{"quant_method": "fp8", "weight_block_size": []int{128, 128}, "modules_to_not_convert": []string{"lm_head"}}}), qwen.ErrUnsupported, []string{"fp8", "mlx-community"}},
		"compressed-tensors":          {dense(object{"quantization_config": object{"quant_method": "compressed-tensors", "config_groups": object{"group_0": object{"targets": []string{"Linear"}}}}}), qwen.ErrUnsupported, []string{"compressed-tensors", "mlx-community"}},
		"nested, of others":           {hybrid(object{"quantization_config": object{"quant_method": "compressed-tensors"}}), qwen.ErrUnsupported, []string{"compressed-tensors"}},
		"quantization as a text":      {dense(object{"quantization": "4bit"}), qwen.ErrUnsupported, []string{"4bit"}},
		"an entry of another kind":    {dense(object{"quantization": object{"bits": 4, "model.layers.0.mlp.up_proj": object{"bits": "four"}}}), qwen.ErrUnsupported, []string{"mlp.up_proj"}},
		"moe without its sizes":       {dense(object{"model_type": "qwen3_moe"}), qwen.ErrConfig, []string{"missing num_experts, num_experts_per_tok, moe_intermediate_size"}},
		"hybrid moe without":          {hybrid(object{"model_type": "qwen3_5_moe_text", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}), qwen.ErrConfig, []string{"missing shared_expert_intermediate_size"}},
		"more experts than there are": {dense(object{"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 5, "moe_intermediate_size": 32}), qwen.ErrConfig, []string{"num_experts_per_tok is 5 of 4"}},
		"no experts":                  {dense(object{"model_type": "qwen3_moe", "num_experts": 0, "num_experts_per_tok": 2, "moe_intermediate_size": 32}), qwen.ErrConfig, []string{"num_experts is 0"}},
		"experts under another name":  {dense(object{"num_experts": 8}), qwen.ErrUnsupported, []string{"num_experts is 8"}},
		"another family":              {dense(object{"model_type": "llama"}), qwen.ErrUnsupported, []string{"model_type", "llama"}},
		"an older one":                {dense(object{"model_type": "qwen2"}), qwen.ErrUnsupported, []string{"qwen2"}},
		"no model_type":               {dense(object{"model_type": nil}), qwen.ErrConfig, []string{"model_type is missing"}},
		"sliding window":              {dense(object{"use_sliding_window": true}), qwen.ErrUnsupported, []string{"use_sliding_window is true"}},
		"sliding layers":              {dense(object{"layer_types": []string{full, "sliding_attention", full, full}}), qwen.ErrUnsupported, []string{"layer_types[1]", "sliding_attention"}},
		"linear layers in qwen3":      {dense(object{"layer_types": []string{full, linear, full, full}}), qwen.ErrUnsupported, []string{"layer_types[1]", linear, "qwen3"}},
		"attention_bias":              {dense(object{"attention_bias": true}), qwen.ErrUnsupported, []string{"attention_bias is true"}},
		"activation":                  {dense(object{"hidden_act": "gelu"}), qwen.ErrUnsupported, []string{"hidden_act", "gelu"}},
		"ungated attention":           {hybrid(object{"attn_output_gate": false}), qwen.ErrUnsupported, []string{"attn_output_gate is false"}},
		"yarn":                        {dense(object{"rope_scaling": object{"rope_type": "yarn", "factor": 4.0}}), qwen.ErrConfig, []string{"rope_scaling", "yarn"}},
		"yarn by its older name":      {dense(object{"rope_scaling": object{"type": "yarn"}}), qwen.ErrConfig, []string{"rope_scaling", "yarn"}},
		"yarn without a base":         {dense(object{"rope_parameters": object{"rope_theta": 1, "rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 64}}), qwen.ErrConfig, []string{"rope_theta is 1"}},
		"another scaling":             {dense(object{"rope_scaling": object{"rope_type": "longrope", "factor": 4}}), qwen.ErrUnsupported, []string{"rope_scaling.rope_type", "longrope"}},
		"yarn in rope_parameters":     {dense(object{"rope_parameters": object{"rope_theta": 1e6, "rope_type": "yarn"}}), qwen.ErrConfig, []string{"rope_parameters", "yarn"}},
		"two types that differ":       {dense(object{"rope_scaling": object{"rope_type": "default", "type": "linear"}}), qwen.ErrUnsupported, []string{"rope_scaling.type", "linear"}},
		"a factor without a type":     {dense(object{"rope_scaling": object{"factor": 2}}), qwen.ErrUnsupported, []string{"rope_scaling.factor is 2"}},
		"an unknown rope type":        {hybrid(object{"rope_parameters": object{"rope_theta": 1e6, "type": "spiral"}}), qwen.ErrUnsupported, []string{"spiral"}},
		"a drafter":                   {dense(object{"architectures": []string{"DFlashDraftModel"}}), qwen.ErrUnsupported, []string{"drafter", "DFlashDraftModel"}},
		"a later drafter":             {dense(object{"architectures": []string{"DFlash2DraftModel"}}), qwen.ErrUnsupported, []string{"drafter", "DFlash2DraftModel"}},
		"another vendor's":            {dense(object{"architectures": []string{"Qwen3DSparkModel"}}), qwen.ErrUnsupported, []string{"drafter", "Qwen3DSparkModel"}},
		"an assistant":                {dense(object{"architectures": []string{"MuseGlimmerAssistantModel"}}), qwen.ErrUnsupported, []string{"drafter"}},
		"a drafter without a name":    {dense(object{"architectures": nil, "dflash_config": object{"mask_token_id": 3}}), qwen.ErrUnsupported, []string{"drafter"}},
		"missing fields":              {dense(object{"hidden_size": nil, "vocab_size": nil, "rms_norm_eps": nil}), qwen.ErrConfig, []string{"missing", "hidden_size", "vocab_size", "rms_norm_eps"}},
		"missing theta":               {dense(object{"rope_parameters": nil}), qwen.ErrConfig, []string{"missing rope_theta"}},
		"missing linear fields":       {hybrid(object{"linear_key_head_dim": nil}), qwen.ErrConfig, []string{"missing linear_key_head_dim"}},
		"zero size":                   {dense(object{"hidden_size": 0}), qwen.ErrConfig, []string{"hidden_size is 0"}},
		"negative size":               {dense(object{"num_hidden_layers": -1}), qwen.ErrConfig, []string{"num_hidden_layers is -1"}},
		"huge size":                   {dense(object{"vocab_size": 1 << 40}), qwen.ErrConfig, []string{"vocab_size is 1099511627776"}},
		"beyond an integer":           {dense(object{"vocab_size": json.RawMessage("99999999999999999999")}), qwen.ErrConfig, []string{"vocab_size"}},
		"a broken size":               {dense(object{"hidden_size": 64.5}), qwen.ErrConfig, []string{"hidden_size", "64.5"}},
		"a size in quotes":            {dense(object{"hidden_size": "64"}), qwen.ErrConfig, []string{"hidden_size"}},
		"too many layers":             {dense(object{"num_hidden_layers": 5000}), qwen.ErrConfig, []string{"num_hidden_layers is 5000"}},
		"layer_types too short":       {dense(object{"layer_types": []string{full}}), qwen.ErrConfig, []string{"layer_types has 1 entries", "num_hidden_layers is 4"}},
		"interval of 0":               {hybrid(object{"full_attention_interval": 0}), qwen.ErrConfig, []string{"full_attention_interval is 0"}},
		"no linear layer at all":      {hybrid(object{"full_attention_interval": 1}), qwen.ErrUnsupported, []string{"layer_types", linear}},
		"heads and key heads":         {dense(object{"num_key_value_heads": 3}), qwen.ErrConfig, []string{"num_attention_heads 4", "num_key_value_heads 3"}},
		"linear heads":                {hybrid(object{"linear_num_value_heads": 3}), qwen.ErrConfig, []string{"linear_num_value_heads 3", "linear_num_key_heads 2"}},
		"a kernel of one":             {hybrid(object{"linear_conv_kernel_dim": 1}), qwen.ErrConfig, []string{"linear_conv_kernel_dim is 1"}},
		"head_dim that does not come": {dense(object{"head_dim": nil, "hidden_size": 50}), qwen.ErrConfig, []string{"head_dim is missing", "hidden_size 50", "num_attention_heads 4"}},
		"odd rotation":                {hybrid(object{"rope_parameters": object{"rope_theta": 1e7, "partial_rotary_factor": 0.2}}), qwen.ErrConfig, []string{"partial_rotary_factor 0.2", "head_dim 16", "3 rotating"}},
		"rotation beyond the head":    {hybrid(object{"rope_parameters": object{"rope_theta": 1e7, "partial_rotary_factor": 2}}), qwen.ErrConfig, []string{"partial_rotary_factor 2"}},
		"theta of zero":               {dense(object{"rope_parameters": object{"rope_theta": 0}}), qwen.ErrConfig, []string{"rope_theta is 0"}},
		"theta beyond float32":        {dense(object{"rope_parameters": object{"rope_theta": 1e200}}), qwen.ErrConfig, []string{"rope_theta is +Inf"}},
		"negative eps":                {dense(object{"rms_norm_eps": -1e-6}), qwen.ErrConfig, []string{"rms_norm_eps is -1e-06"}},
		"eos outside":                 {dense(object{"eos_token_id": []int{7, 100}}), qwen.ErrConfig, []string{"eos_token_id 100", "of 100"}},
		"negative eos":                {dense(object{"eos_token_id": -1}), qwen.ErrConfig, []string{"eos_token_id -1"}},
		"eos of another kind":         {dense(object{"eos_token_id": "stop"}), qwen.ErrConfig, []string{"token id", "stop"}},
		"layer_types of numbers":      {dense(object{"layer_types": []int{1, 2, 3, 4}}), qwen.ErrConfig, []string{"layer_types"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readConfig(t, c.config, nil)
			require.Nil(t, got)
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, "config.json")
			for _, text := range c.says {
				require.ErrorContains(t, err, text)
			}
			require.Less(t, len(err.Error()), 600)
		})
	}
}

// Case 18's files in broken form, and what may lie under the names.
func TestConfigFiles(t *testing.T) {
	good, err := json.Marshal(denseConfig())
	require.NoError(t, err)
	write := func(name string, data []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
		}
	}
	isDir := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755)) }
	}
	pipe := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { require.NoError(t, syscall.Mkfifo(filepath.Join(dir, name), 0o644)) }
	}
	sparse := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			f, err := os.Create(filepath.Join(dir, name))
			require.NoError(t, err)
			require.NoError(t, f.Truncate(1<<30))
			require.NoError(t, f.Close())
		}
	}
	deep := []byte(strings.Repeat(`{"text_config":`, 400_000) + "1" + strings.Repeat("}", 400_000))
	config, generation := "config.json", "generation_config.json"
	for name, c := range map[string]struct {
		make []func(*testing.T, string)
		says []string
	}{
		"nothing":                   {nil, []string{"holds no config.json", "tokenizer.json"}},
		"a folder":                  {[]func(*testing.T, string){isDir(config)}, []string{config, "no regular file"}},
		"a pipe":                    {[]func(*testing.T, string){pipe(config)}, []string{config, "no regular file"}},
		"a gigabyte":                {[]func(*testing.T, string){sparse(config)}, []string{config, "8388608"}},
		"nesting":                   {[]func(*testing.T, string){write(config, deep)}, []string{config}},
		"empty":                     {[]func(*testing.T, string){write(config, nil)}, []string{config}},
		"cut short":                 {[]func(*testing.T, string){write(config, good[:len(good)/2])}, []string{config}},
		"two objects":               {[]func(*testing.T, string){write(config, slices.Concat(good, good))}, []string{config}},
		"a list":                    {[]func(*testing.T, string){write(config, []byte("[]"))}, []string{config}},
		"null":                      {[]func(*testing.T, string){write(config, []byte("null"))}, []string{config, "model_type is missing"}},
		"a web page":                {[]func(*testing.T, string){write(config, []byte("<!doctype html>"))}, []string{config}},
		"generation: cut":           {[]func(*testing.T, string){write(config, good), write(generation, []byte(`{"eos`))}, []string{generation}},
		"generation: a folder":      {[]func(*testing.T, string){write(config, good), isDir(generation)}, []string{generation, "no regular file"}},
		"generation: a pipe":        {[]func(*testing.T, string){write(config, good), pipe(generation)}, []string{generation, "no regular file"}},
		"generation: a gigabyte":    {[]func(*testing.T, string){write(config, good), sparse(generation)}, []string{generation}},
		"generation: eos of text":   {[]func(*testing.T, string){write(config, good), write(generation, []byte(`{"eos_token_id":["a"]}`))}, []string{generation, "token id"}},
		"generation: eos too large": {[]func(*testing.T, string){write(config, good), write(generation, []byte(`{"eos_token_id":[3,100]}`))}, []string{"eos_token_id 100"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range c.make {
				f(t, dir)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := qwen.ReadConfig(dir)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
			require.ErrorIs(t, err, qwen.ErrConfig)
			for _, text := range c.says {
				require.ErrorContains(t, err, text)
			}
		})
	}
	_, err = qwen.ReadConfig(filepath.Join(t.TempDir(), "nowhere"))
	require.ErrorIs(t, err, qwen.ErrConfig)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// FuzzReadConfig: no panic, and what passes holds what the rest relies on.
func FuzzReadConfig(f *testing.F) {
	for _, c := range []object{
		denseConfig(), nested(hybridText()), with(denseConfig(), object{"layer_types": []string{full, full, full, full}}),
		with(denseConfig(), object{"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "decoder_sparse_step": 2, "mlp_only_layers": []int{1}}),
		with(denseConfig(), object{"quantization": object{"bits": 4, "group_size": 64, "mode": "affine", "lm_head": false, "model.layers.0.mlp.up_proj": object{"bits": 8}}}),
		with(denseConfig(), object{"rope_scaling": object{"type": "yarn", "factor": 4, "original_max_position_embeddings": 1024}}),
	} {
		data, err := json.Marshal(c)
		require.NoError(f, err)
		f.Add(data, []byte(`{"eos_token_id":[1,2]}`))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, config, generation []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), generation, 0o644))
		c, err := qwen.ReadConfig(dir)
		if err != nil {
			require.True(t, errors.Is(err, qwen.ErrConfig) || errors.Is(err, qwen.ErrUnsupported), "%v", err)
			return
		}
		require.Len(t, c.LayerTypes, c.NumHiddenLayers)
		require.LessOrEqual(t, c.NumHiddenLayers, 4096)
		require.Zero(t, c.NumAttentionHeads%c.NumKeyValueHeads)
		require.Zero(t, c.RotaryDim()%2)
		require.Positive(t, c.RotaryDim())
		require.LessOrEqual(t, c.RotaryDim(), c.HeadDim)
		sizes := []int{c.HiddenSize, c.HeadDim, c.VocabSize, c.MaxPositionEmbeddings}
		if slices.Contains(c.MoeLayers, false) {
			sizes = append(sizes, c.IntermediateSize)
		}
		if slices.Contains(c.MoeLayers, true) {
			sizes = append(sizes, c.NumExperts, c.NumExpertsPerTok, c.MoeIntermediateSize)
			require.LessOrEqual(t, c.NumExpertsPerTok, c.NumExperts)
		}
		for _, n := range sizes {
			require.Positive(t, n)
			require.LessOrEqual(t, n, 1<<24)
		}
		for _, id := range c.EOSTokenIDs {
			require.True(t, id >= 0 && id < c.VocabSize)
		}
		if c.ModelType == "qwen3_5" {
			require.Zero(t, c.LinearNumValueHeads%c.LinearNumKeyHeads)
			require.Contains(t, c.LayerTypes, linear)
		}
	})
}
