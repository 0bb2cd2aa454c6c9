package dflash_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/qwen"
)

// draftObject is a drafter's config.json.
func draftObject() object {
	return object{
		"architectures": []string{"DFlashDraftModel"}, "model_type": "qwen3", "block_size": 16,
		"dflash_config":     object{"mask_token_id": 90, "target_layer_ids": []int{1, 2, 4}},
		"num_target_layers": 6, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
		"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100,
		"rms_norm_eps": 1e-6, "rope_theta": 1e6, "rope_scaling": nil, "max_position_embeddings": 512,
		"hidden_act": "silu", "attention_bias": false,
	}
}

// with is c with changes; the value nil deletes the key.
func with(c, changes object) object {
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

// inner is the draft object with changes to dflash_config.
func inner(changes object) object {
	c := draftObject()
	c["dflash_config"] = with(c["dflash_config"].(object), changes)
	return c
}

func readDraft(t testing.TB, config any) (*dflash.DraftConfig, error) {
	t.Helper()
	dir := t.TempDir()
	data, err := json.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644))
	return dflash.ReadDraftConfig(dir)
}

const full, sliding = qwen.FullAttention, dflash.SlidingAttention

func TestDraftConfigDialects(t *testing.T) {
	base := func() *dflash.DraftConfig {
		return &dflash.DraftConfig{
			HiddenSize: 64, IntermediateSize: 96, NumHiddenLayers: 2, NumAttentionHeads: 4, NumKeyValueHeads: 2,
			HeadDim: 16, VocabSize: 100, RMSNormEps: 1e-6, RopeTheta: 1e6, MaxPositionEmbeddings: 512,
			BlockSize: 16, MaskTokenID: 90, TargetLayerIDs: []int{1, 2, 4}, NumTargetLayers: 6,
			LayerTypes: []string{full, full},
		}
	}
	no, yes := false, true
	top := func(changes object) object { return with(draftObject(), changes) }
	windowed := object{"layer_types": []string{sliding, full}, "sliding_window": 8}
	for name, c := range map[string]struct {
		config object
		want   func(*dflash.DraftConfig)
	}{
		"plain":                     {draftObject(), nil},
		"block_size nested":         {with(inner(object{"block_size": 8}), object{"block_size": nil}), func(c *dflash.DraftConfig) { c.BlockSize = 8 }},
		"block_size in both":        {inner(object{"block_size": 8}), func(c *dflash.DraftConfig) { c.BlockSize = 8 }},
		"depth not said":            {top(object{"num_target_layers": nil}), func(c *dflash.DraftConfig) { c.NumTargetLayers = 0 }},
		"theta in rope_parameters":  {top(object{"rope_theta": nil, "rope_parameters": object{"rope_theta": 1e7, "rope_type": "default"}}), func(c *dflash.DraftConfig) { c.RopeTheta = 1e7 }},
		"theta in rope_scaling":     {top(object{"rope_theta": nil, "rope_scaling": object{"rope_theta": 1e5, "type": "default"}}), func(c *dflash.DraftConfig) { c.RopeTheta = 1e5 }},
		"rope_parameters win":       {top(object{"rope_parameters": object{"rope_theta": 1e7}, "rope_scaling": object{"rope_theta": 1e5}}), func(c *dflash.DraftConfig) { c.RopeTheta = 1e7 }},
		"key heads missing":         {top(object{"num_key_value_heads": nil}), func(c *dflash.DraftConfig) { c.NumKeyValueHeads = 4 }},
		"head_dim missing":          {top(object{"head_dim": nil, "hidden_size": 48}), func(c *dflash.DraftConfig) { c.HeadDim, c.HiddenSize = 12, 48 }},
		"one tap, the last layer":   {inner(object{"target_layer_ids": []int{5}}), func(c *dflash.DraftConfig) { c.TargetLayerIDs = []int{5} }},
		"sliding":                   {top(windowed), func(c *dflash.DraftConfig) { c.LayerTypes, c.SlidingWindow = []string{sliding, full}, 8 }},
		"window without such layer": {top(object{"sliding_window": 8, "use_sliding_window": true}), func(c *dflash.DraftConfig) { c.SlidingWindow = 8 }},
		"is_causal":                 {top(object{"is_causal": true}), func(c *dflash.DraftConfig) { c.Causal = &yes }},
		"causal nested":             {inner(object{"causal": false}), func(c *dflash.DraftConfig) { c.Causal = &no }},
		"is_causal wins":            {with(inner(object{"causal": true}), object{"is_causal": false}), func(c *dflash.DraftConfig) { c.Causal = &no }},
		"neutral scales":            {inner(object{"final_logit_softcapping": 0, "input_embedding_scale": 1, "output_multiplier": 1.0}), nil},
		"neutral rope":              {top(object{"rope_interleaved": false, "rope_is_neox_style": true, "partial_rotary_factor": 1}), nil},
		"quantization":              {top(object{"quantization": object{"bits": 4, "group_size": 64}}), func(c *dflash.DraftConfig) { c.Quantization = "4-bit affine" }},
		"quantization empty":        {top(object{"quantization": object{}, "quantization_config": json.RawMessage("null")}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readDraft(t, c.config)
			require.NoError(t, err)
			want := base()
			if c.want != nil {
				c.want(want)
			}
			got.ForgetQuantization()
			require.Equal(t, want, got)
		})
	}
}

func TestDraftConfigRefusals(t *testing.T) {
	top := func(changes object) object { return with(draftObject(), changes) }
	kind := func(name string) object { return top(object{"architectures": []string{name}}) }
	unsupported, broken := dflash.ErrUnsupported, dflash.ErrConfig
	for name, c := range map[string]struct {
		config object
		kind   error
		says   []string
	}{
		"DFlash 2":               {kind("DFlash2DraftModel"), unsupported, []string{"a drafter", "DFlash2DraftModel", "DFlashDraftModel"}},
		"DSpark":                 {kind("Qwen3DSparkModel"), unsupported, []string{"a drafter", "Qwen3DSparkModel"}},
		"an assistant":           {kind("MuseGlimmerAssistantModel"), unsupported, []string{"a drafter", "MuseGlimmerAssistantModel"}},
		"an unknown DFlash":      {kind("NewDFlashModel"), unsupported, []string{"a drafter", "NewDFlashModel"}},
		"a model":                {kind("Qwen3ForCausalLM"), unsupported, []string{"this is a model", "Qwen3ForCausalLM", "as the model"}},
		"a hybrid model":         {kind("Qwen3_5ForConditionalGeneration"), unsupported, []string{"this is a model"}},
		"no architecture":        {top(object{"architectures": nil}), broken, []string{"architectures is missing", "DFlashDraftModel"}},
		"DFlash 2 in disguise":   {inner(object{"selector_rank": 256}), unsupported, []string{"selector_rank"}},
		"convolutions":           {inner(object{"conv_kernel_size": 2}), unsupported, []string{"conv_kernel_size"}},
		"DeepSpec":               {top(object{"dflash_config": nil, "target_layer_ids": []int{1, 2}, "mask_token_id": 90}), unsupported, []string{"DeepSpec", "target_layer_ids outside dflash_config"}},
		"rows from the anchor":   {inner(object{"sample_from_anchor": true}), unsupported, []string{"sample_from_anchor"}},
		"softcap":                {inner(object{"final_logit_softcapping": 20}), unsupported, []string{"final_logit_softcapping is 20"}},
		"embedding scale":        {inner(object{"input_embedding_scale": 2}), unsupported, []string{"input_embedding_scale is 2"}},
		"output multiplier":      {inner(object{"output_multiplier": 0.196116}), unsupported, []string{"output_multiplier is 0.196116"}},
		"another quantization":   {top(object{"quantization_config": object{"quant_method": "fp8"}}), unsupported, []string{"quant_method", "fp8", "mlx-community"}},
		"quantization as a text": {top(object{"quantization": "4bit"}), unsupported, []string{"4bit"}},
		"bias":                   {top(object{"attention_bias": true}), unsupported, []string{"attention_bias is true"}},
		"activation":             {top(object{"hidden_act": "relu"}), unsupported, []string{"hidden_act", "relu"}},
		"interleaved":            {top(object{"rope_interleaved": true}), unsupported, []string{"rope_interleaved"}},
		"not neox":               {top(object{"rope_is_neox_style": false}), unsupported, []string{"rope_is_neox_style"}},
		"partial rotation":       {top(object{"partial_rotary_factor": 0.25}), unsupported, []string{"partial_rotary_factor is 0.25"}},
		"partial, nested":        {top(object{"rope_parameters": object{"partial_rotary_factor": 0.25}}), unsupported, []string{"rope_parameters.partial_rotary_factor is 0.25"}},
		"yarn":                   {top(object{"rope_scaling": object{"rope_type": "yarn", "factor": 4}}), broken, []string{"rope_scaling", "original_max_position_embeddings"}},
		"yarn beside default":    {top(object{"rope_scaling": object{"rope_type": "yarn", "type": "default"}}), broken, []string{"rope_scaling.rope_type", "yarn"}},
		"another scaling":        {top(object{"rope_scaling": object{"rope_type": "dynamic", "factor": 4}}), unsupported, []string{"rope_scaling.rope_type", "dynamic"}},
		"factor without a type":  {top(object{"rope_parameters": object{"factor": 4}}), unsupported, []string{"rope_parameters.factor is 4"}},
		"another window's name":  {top(object{"use_swa": true}), unsupported, []string{"use_swa"}},
		"no mask":                {inner(object{"mask_token_id": nil}), broken, []string{"missing dflash_config.mask_token_id"}},
		"mask outside":           {inner(object{"mask_token_id": 100}), broken, []string{"mask_token_id is 100", "vocab_size is 100"}},
		"negative mask":          {inner(object{"mask_token_id": -1}), broken, []string{"mask_token_id is -1"}},
		"no taps":                {inner(object{"target_layer_ids": nil}), broken, []string{"missing dflash_config.target_layer_ids"}},
		"empty taps":             {inner(object{"target_layer_ids": []int{}}), broken, []string{"missing dflash_config.target_layer_ids"}},
		"no dflash_config":       {top(object{"dflash_config": nil}), broken, []string{"mask_token_id", "target_layer_ids"}},
		"taps not in order":      {inner(object{"target_layer_ids": []int{2, 1}}), broken, []string{"[2 1]", "ascending"}},
		"a tap twice":            {inner(object{"target_layer_ids": []int{1, 1}}), broken, []string{"[1 1]", "ascending"}},
		"negative tap":           {inner(object{"target_layer_ids": []int{-1, 1}}), broken, []string{"target_layer_ids has -1"}},
		"tap too deep":           {inner(object{"target_layer_ids": []int{1, 6}}), broken, []string{"target_layer_ids has 6", "num_target_layers is 6"}},
		"taps of text":           {inner(object{"target_layer_ids": []string{"1"}}), broken, []string{"target_layer_ids"}},
		"no block_size":          {top(object{"block_size": nil}), broken, []string{"missing block_size"}},
		"block of one":           {top(object{"block_size": 1}), broken, []string{"block_size is 1"}},
		"huge block":             {inner(object{"block_size": 100000}), broken, []string{"block_size is 100000"}},
		"negative depth":         {top(object{"num_target_layers": -1}), broken, []string{"num_target_layers is -1"}},
		"no theta":               {top(object{"rope_theta": nil}), broken, []string{"missing rope_theta"}},
		"infinite theta":         {top(object{"rope_theta": 1e300}), broken, []string{"rope_theta is +Inf"}},
		"negative theta":         {top(object{"rope_theta": -1}), broken, []string{"rope_theta is -1"}},
		"several missing":        {top(object{"hidden_size": nil, "max_position_embeddings": nil, "rms_norm_eps": nil}), broken, []string{"hidden_size", "max_position_embeddings", "rms_norm_eps"}},
		"zero hidden":            {top(object{"hidden_size": 0}), broken, []string{"hidden_size is 0"}},
		"huge vocabulary":        {top(object{"vocab_size": 1 << 40}), broken, []string{"vocab_size is 1099511627776"}},
		"many layers":            {top(object{"num_hidden_layers": 1000}), broken, []string{"num_hidden_layers is 1000"}},
		"negative layers":        {top(object{"num_hidden_layers": -3}), broken, []string{"num_hidden_layers is -3"}},
		"broken size":            {top(object{"hidden_size": 1.5}), broken, []string{"hidden_size"}},
		"heads":                  {top(object{"num_key_value_heads": 3}), broken, []string{"num_attention_heads 4", "num_key_value_heads 3"}},
		"odd head":               {top(object{"head_dim": 15}), broken, []string{"head_dim is 15"}},
		"head that does not fit": {top(object{"head_dim": nil, "hidden_size": 50}), broken, []string{"hidden_size 50", "num_attention_heads 4"}},
		"eps":                    {top(object{"rms_norm_eps": 2}), broken, []string{"rms_norm_eps is 2"}},
		"layer_types short":      {top(object{"layer_types": []string{full}}), broken, []string{"layer_types has 1 entries", "num_hidden_layers is 2"}},
		"unknown layer":          {top(object{"layer_types": []string{full, "linear_attention"}}), unsupported, []string{"layer_types[1]", "linear_attention"}},
		"sliding, no window":     {top(object{"layer_types": []string{sliding, full}}), broken, []string{"layer_types[0]", "sliding_window is 0"}},
		"sliding, window of -1":  {top(object{"layer_types": []string{full, sliding}, "sliding_window": -1}), broken, []string{"layer_types[1]", "sliding_window is -1"}},
		"sliding, window 2^40":   {top(object{"layer_types": []string{full, sliding}, "sliding_window": 1 << 40}), broken, []string{"sliding_window is 1099511627776"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readDraft(t, c.config)
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

func TestDraftConfigFiles(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"nothing": func(string) error { return nil },
		"folder":  func(path string) error { return os.Mkdir(path, 0o755) },
		"pipe":    func(path string) error { return syscall.Mkfifo(path, 0o644) },
		"gigabyte": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, 1<<30))
		},
		"nesting": func(path string) error {
			return os.WriteFile(path, []byte(`{"dflash_config":`+strings.Repeat("[", 1_000_000)), 0o644)
		},
		"empty": func(path string) error { return os.WriteFile(path, nil, 0o644) },
		"text":  func(path string) error { return os.WriteFile(path, []byte("hello"), 0o644) },
		"null":  func(path string) error { return os.WriteFile(path, []byte("null"), 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, put(filepath.Join(dir, "config.json")))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := dflash.ReadDraftConfig(dir)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
			require.ErrorIs(t, err, dflash.ErrConfig)
			require.ErrorContains(t, err, "config.json")
		})
	}
}

// Case 70: every field that must fit, with both values; all differences at once.
func TestCheckPair(t *testing.T) {
	target := dflash.TargetInfo{Layers: 6, HiddenSize: 64, VocabSize: 100, ContextLength: 512}
	for name, c := range map[string]struct {
		edit func(*dflash.TargetInfo)
		says []string
	}{
		"fits":              {func(*dflash.TargetInfo) {}, nil},
		"larger vocabulary": {func(t *dflash.TargetInfo) { t.VocabSize = 128 }, nil},
		"longer context":    {func(t *dflash.TargetInfo) { t.ContextLength = 1 << 20 }, nil},
		"hidden":            {func(t *dflash.TargetInfo) { t.HiddenSize = 128 }, []string{"hidden_size: drafter 64, target 128"}},
		"depth":             {func(t *dflash.TargetInfo) { t.Layers = 8 }, []string{"num_target_layers: drafter 6, target 8"}},
		"tap":               {func(t *dflash.TargetInfo) { t.Layers = 4 }, []string{"drafter taps layer 4, target has 4 layers"}},
		"vocabulary":        {func(t *dflash.TargetInfo) { t.VocabSize = 95 }, []string{"vocab_size: drafter 100, target 95"}},
		"mask":              {func(t *dflash.TargetInfo) { t.VocabSize = 90 }, []string{"mask_token_id: drafter 90, target's vocabulary 90"}},
		"all": {func(t *dflash.TargetInfo) { *t = dflash.TargetInfo{Layers: 2, HiddenSize: 32, VocabSize: 50} }, []string{
			"hidden_size: drafter 64, target 32", "num_target_layers: drafter 6, target 2", "layer 4", "vocab_size: drafter 100, target 50", "mask_token_id",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := readDraft(t, draftObject())
			require.NoError(t, err)
			info := target
			c.edit(&info)
			err = d.CheckPair(info)
			if c.says == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, dflash.ErrPairMismatch)
			for _, text := range c.says {
				require.ErrorContains(t, err, text)
			}
		})
	}
}

// FuzzReadDraftConfig: no panic, and what passes holds what the rest relies on.
func FuzzReadDraftConfig(f *testing.F) {
	for _, c := range []object{draftObject(), inner(object{"block_size": 8, "causal": true}), with(draftObject(), object{"layer_types": []string{sliding, full}, "sliding_window": 8}), with(draftObject(), object{"quantization": object{"bits": 4, "fc": false}})} {
		data, err := json.Marshal(c)
		require.NoError(f, err)
		f.Add(data)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, config []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644))
		c, err := dflash.ReadDraftConfig(dir)
		if err != nil {
			require.True(t, errors.Is(err, dflash.ErrConfig) || errors.Is(err, dflash.ErrUnsupported), "%v", err)
			return
		}
		require.Len(t, c.LayerTypes, c.NumHiddenLayers)
		require.LessOrEqual(t, c.NumHiddenLayers, 256)
		require.NotEmpty(t, c.TargetLayerIDs)
		require.Zero(t, c.NumAttentionHeads%c.NumKeyValueHeads)
		require.True(t, c.MaskTokenID >= 0 && c.MaskTokenID < c.VocabSize)
		require.True(t, c.BlockSize >= 2 && c.BlockSize <= 256)
		for i, id := range c.TargetLayerIDs {
			require.True(t, id >= 0 && (i == 0 || id > c.TargetLayerIDs[i-1]))
		}
		_ = c.CheckPair(dflash.TargetInfo{Layers: 6, HiddenSize: 64, VocabSize: 100})
	})
}
