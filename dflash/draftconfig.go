package dflash

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/godflash/godflash/internal/problems"
	"github.com/godflash/godflash/internal/readfile"
	"github.com/godflash/godflash/internal/rope"
	"github.com/godflash/godflash/internal/weights"
	"github.com/godflash/godflash/qwen"
)

// SlidingAttention is the layer type of a draft layer that sees a window.
const SlidingAttention = "sliding_attention"

// DraftConfig is a drafter's config.json. Names are the file's.
type DraftConfig struct {
	HiddenSize        int
	IntermediateSize  int
	NumHiddenLayers   int
	NumAttentionHeads int
	NumKeyValueHeads  int
	HeadDim           int
	VocabSize         int
	RMSNormEps        float32
	RopeTheta         float32
	// RopeScaling is a short name of how positions are scaled, such as "yarn,
	// factor 4", empty for not at all. MaxPositionEmbeddings is what it makes.
	RopeScaling string
	yarn        *rope.YaRN

	// Quantization is a short name such as "4-bit affine", empty for dense weights.
	Quantization string
	quantization *weights.Quantization

	// MaxPositionEmbeddings is the number of positions that the drafter knows;
	// past it generation goes on without drafting.
	MaxPositionEmbeddings int

	// BlockSize is the number of rows of a block, the anchor's included.
	BlockSize int
	// MaskTokenID is the embedding row of the mask token, which the tokenizer
	// need not know.
	MaskTokenID int
	// TargetLayerIDs are the target's decoder layers, counted from 0 and
	// ascending, whose outputs condition the drafter.
	TargetLayerIDs []int
	// NumTargetLayers is the target's depth, 0 where the file does not say.
	NumTargetLayers int

	// LayerTypes has FullAttention or SlidingAttention for each layer.
	LayerTypes []string
	// SlidingWindow is the number of positions, its own included, that a row
	// of a sliding layer sees.
	SlidingWindow int
	// Causal forces the mask inside the block for all layers. Nil is the
	// training's rule: sliding layers causal, full layers not.
	Causal *bool
}

// causal is the mask inside the block of a layer (dflash section 2.4 of the
// training code: sliding layers were trained with a causal block).
func (c *DraftConfig) causal(layer int) bool {
	if c.Causal != nil {
		return *c.Causal
	}
	return c.LayerTypes[layer] == SlidingAttention
}

type rawDraftConfig struct {
	Architectures []string `json:"architectures"`
	ModelType     string   `json:"model_type"`

	HiddenSize            *int     `json:"hidden_size"`
	IntermediateSize      *int     `json:"intermediate_size"`
	NumHiddenLayers       *int     `json:"num_hidden_layers"`
	NumAttentionHeads     *int     `json:"num_attention_heads"`
	NumKeyValueHeads      *int     `json:"num_key_value_heads"`
	HeadDim               *int     `json:"head_dim"`
	VocabSize             *int     `json:"vocab_size"`
	RMSNormEps            *float64 `json:"rms_norm_eps"`
	MaxPositionEmbeddings *int     `json:"max_position_embeddings"`
	HiddenAct             string   `json:"hidden_act"`
	AttentionBias         bool     `json:"attention_bias"`

	RopeTheta           *float64         `json:"rope_theta"`
	RopeScaling         *rope.Parameters `json:"rope_scaling"`
	RopeParameters      *rope.Parameters `json:"rope_parameters"`
	RopeInterleaved     bool             `json:"rope_interleaved"`
	RopeNeox            *bool            `json:"rope_is_neox_style"`
	PartialRotaryFactor *float64         `json:"partial_rotary_factor"`
	UseSWA              bool             `json:"use_swa"`

	BlockSize       *int     `json:"block_size"`
	NumTargetLayers *int     `json:"num_target_layers"`
	LayerTypes      []string `json:"layer_types"`
	SlidingWindow   *int     `json:"sliding_window"`
	IsCausal        *bool    `json:"is_causal"`

	// DeepSpec's names: its drafters' rows predict the token after their own.
	TopTargetLayerIDs []int `json:"target_layer_ids"`
	SampleFromAnchor  bool  `json:"sample_from_anchor"`

	Quantization       json.RawMessage `json:"quantization"`
	QuantizationConfig json.RawMessage `json:"quantization_config"`

	DFlash struct {
		BlockSize           *int     `json:"block_size"`
		MaskTokenID         *int     `json:"mask_token_id"`
		TargetLayerIDs      []int    `json:"target_layer_ids"`
		Causal              *bool    `json:"causal"`
		SampleFromAnchor    bool     `json:"sample_from_anchor"`
		FinalLogitSoftcap   *float64 `json:"final_logit_softcapping"`
		InputEmbeddingScale *float64 `json:"input_embedding_scale"`
		OutputMultiplier    *float64 `json:"output_multiplier"`
		SelectorRank        *int     `json:"selector_rank"`
		ConvKernelSize      *int     `json:"conv_kernel_size"`
	} `json:"dflash_config"`
}

// draftArchitecture is the architecture that this package runs.
const draftArchitecture = "DFlashDraftModel"

// ReadDraftConfig reads DIR/config.json of a drafter. No weights are touched.
// Errors wrap ErrConfig or ErrUnsupported and name the file and the field.
func ReadDraftConfig(dir string) (*DraftConfig, error) {
	path := filepath.Join(dir, "config.json")
	data, err := readfile.Regular(path, 8<<20)
	if err != nil {
		return nil, fmt.Errorf("%w: the drafter's folder needs config.json and *.safetensors: %w", ErrConfig, err)
	}
	var raw rawDraftConfig
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
	}
	c, err := raw.resolve()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func (r *rawDraftConfig) resolve() (*DraftConfig, error) {
	if err := r.kind(); err != nil {
		return nil, err
	}
	var wrong problems.List
	r.refuse(&wrong)
	var missing []string
	need := func(name string, ps ...*int) int {
		for _, p := range ps {
			if p != nil {
				return *p
			}
		}
		missing = append(missing, name)
		return 0
	}
	c := &DraftConfig{
		HiddenSize:            need("hidden_size", r.HiddenSize),
		IntermediateSize:      need("intermediate_size", r.IntermediateSize),
		NumHiddenLayers:       need("num_hidden_layers", r.NumHiddenLayers),
		NumAttentionHeads:     need("num_attention_heads", r.NumAttentionHeads),
		NumKeyValueHeads:      need("num_key_value_heads", r.NumKeyValueHeads, r.NumAttentionHeads),
		VocabSize:             need("vocab_size", r.VocabSize),
		MaxPositionEmbeddings: need("max_position_embeddings", r.MaxPositionEmbeddings),
		BlockSize:             need("block_size", r.DFlash.BlockSize, r.BlockSize),
		MaskTokenID:           need("dflash_config.mask_token_id", r.DFlash.MaskTokenID),
		TargetLayerIDs:        r.DFlash.TargetLayerIDs,
		LayerTypes:            r.LayerTypes,
		Causal:                r.IsCausal,
	}
	if len(c.TargetLayerIDs) == 0 {
		missing = append(missing, "dflash_config.target_layer_ids")
	}
	if c.Causal == nil {
		c.Causal = r.DFlash.Causal
	}
	if r.NumTargetLayers != nil {
		if c.NumTargetLayers = *r.NumTargetLayers; c.NumTargetLayers < 1 {
			wrong.Addf(ErrConfig, "num_target_layers is %d", c.NumTargetLayers)
			c.NumTargetLayers = 0
		}
	}
	if r.SlidingWindow != nil {
		c.SlidingWindow = *r.SlidingWindow
	}
	if r.HeadDim != nil {
		c.HeadDim = *r.HeadDim
	} else if c.NumAttentionHeads > 0 {
		if c.HiddenSize%c.NumAttentionHeads != 0 {
			wrong.Addf(ErrConfig, "head_dim is missing, and hidden_size %d is no multiple of num_attention_heads %d", c.HiddenSize, c.NumAttentionHeads)
		}
		c.HeadDim = c.HiddenSize / c.NumAttentionHeads
	}
	if r.RMSNormEps == nil {
		missing = append(missing, "rms_norm_eps")
	} else {
		c.RMSNormEps = float32(*r.RMSNormEps)
	}
	theta := r.RopeTheta
	for _, p := range []*rope.Parameters{r.RopeScaling, r.RopeParameters} {
		if p != nil && p.RopeTheta != nil {
			theta = p.RopeTheta
		}
	}
	if theta == nil {
		missing = append(missing, "rope_theta")
	} else {
		c.RopeTheta = float32(*theta)
	}
	base := c.RopeTheta
	if theta == nil {
		base = 2 // any that YaRN takes: that it is missing is said below
	}
	y, err := rope.Read(base, r.RopeScaling, r.RopeParameters, ErrUnsupported, ErrConfig)
	wrong.Add(err)
	if err == nil && y != nil {
		c.yarn, c.RopeScaling = y, y.String()
		c.MaxPositionEmbeddings = max(c.MaxPositionEmbeddings, y.Positions())
	}
	wrong.Add(r.quantize(c))
	if len(missing) > 0 {
		wrong.Addf(ErrConfig, "missing %s", strings.Join(missing, ", "))
		missing = append(missing, "head_dim") // which may come from others
	}
	if len(c.LayerTypes) == 0 {
		c.LayerTypes = slices.Repeat([]string{qwen.FullAttention}, min(max(c.NumHiddenLayers, 0), maxDraftLayers))
	}
	if c.checkSizes(&wrong, missing) {
		c.check(&wrong)
	}
	if err := wrong.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// quantize reads the field quantization, or its copy quantization_config.
func (r *rawDraftConfig) quantize(c *DraftConfig) error {
	for _, q := range []json.RawMessage{r.Quantization, r.QuantizationConfig} {
		if !says(q) {
			continue
		}
		parsed, err := weights.ParseQuantization(q, draftName)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		c.quantization, c.Quantization = parsed, parsed.String()
		return nil
	}
	return nil
}

// draftName is a tensor's or a module's name without the prefix that some files
// have.
func draftName(name string) (string, bool) { return strings.TrimPrefix(name, "model."), true }

// kind refuses everything but the one architecture, by its name.
func (r *rawDraftConfig) kind() error {
	switch {
	case slices.Contains(r.Architectures, draftArchitecture):
		return nil
	case slices.ContainsFunc(r.Architectures, func(a string) bool {
		return strings.Contains(a, "DFlash") || strings.Contains(a, "DSpark") || strings.HasSuffix(a, "AssistantModel")
	}):
		return fmt.Errorf("%w: a drafter with architectures %v, only %s is run", ErrUnsupported, r.Architectures, draftArchitecture)
	case len(r.Architectures) == 0:
		return fmt.Errorf("%w: architectures is missing; a drafter has [%q]", ErrConfig, draftArchitecture)
	}
	return fmt.Errorf("%w: this is a model with architectures %v, not a drafter (%s): pass its folder as the model", ErrUnsupported, r.Architectures, draftArchitecture)
}

// refuse names what this package cannot run.
func (r *rawDraftConfig) refuse(wrong *problems.List) {
	d := &r.DFlash
	if r.SampleFromAnchor || d.SampleFromAnchor || len(r.TopTargetLayerIDs) > 0 && len(d.TargetLayerIDs) == 0 {
		wrong.Addf(ErrUnsupported, "a drafter of DeepSpec's kind (sample_from_anchor, or target_layer_ids outside dflash_config): its rows predict the token after their own, which is not run")
	}
	if r.HiddenAct != "" && r.HiddenAct != "silu" {
		wrong.Addf(ErrUnsupported, "hidden_act is %q, only \"silu\" is run", r.HiddenAct)
	}
	if r.AttentionBias {
		wrong.Addf(ErrUnsupported, "attention_bias is true")
	}
	if r.RopeInterleaved || (r.RopeNeox != nil && !*r.RopeNeox) {
		wrong.Addf(ErrUnsupported, "interleaved rotary positions (rope_interleaved true or rope_is_neox_style false)")
	}
	if r.UseSWA {
		wrong.Addf(ErrUnsupported, "use_swa is true; windows are read from layer_types and sliding_window")
	}
	scale := func(field string, p *float64, neutral float64, more string) {
		if p != nil && *p != neutral {
			wrong.Addf(ErrUnsupported, "%s is %g%s", field, *p, more)
		}
	}
	const whole = ", drafters rotate whole heads"
	scale("partial_rotary_factor", r.PartialRotaryFactor, 1, whole)
	if r.RopeScaling != nil {
		scale("rope_scaling.partial_rotary_factor", r.RopeScaling.PartialRotaryFactor, 1, whole)
	}
	if r.RopeParameters != nil {
		scale("rope_parameters.partial_rotary_factor", r.RopeParameters.PartialRotaryFactor, 1, whole)
	}
	scale("dflash_config.final_logit_softcapping", d.FinalLogitSoftcap, 0, "")
	scale("dflash_config.input_embedding_scale", d.InputEmbeddingScale, 1, "")
	scale("dflash_config.output_multiplier", d.OutputMultiplier, 1, "")
	if d.SelectorRank != nil || d.ConvKernelSize != nil {
		wrong.Addf(ErrUnsupported, "a DFlash 2 head (selector_rank or conv_kernel_size) under the name %s", draftArchitecture)
	}
}

// says is false for a field that is absent, null or an empty object.
func says(value json.RawMessage) bool {
	switch strings.Join(strings.Fields(string(value)), "") {
	case "", "null", "{}":
		return false
	}
	return true
}

const (
	maxDraftSize   = 1 << 24
	maxDraftLayers = 256
	maxBlockSize   = 256
)

// checkSizes reports whether the sizes make sense, so that more can be said of
// them; fields that are missing are left out.
func (c *DraftConfig) checkSizes(wrong *problems.List, missing []string) bool {
	found := len(*wrong)
	for _, p := range []struct {
		name            string
		value, min, max int
	}{
		{"hidden_size", c.HiddenSize, 1, maxDraftSize},
		{"intermediate_size", c.IntermediateSize, 1, maxDraftSize},
		{"num_hidden_layers", c.NumHiddenLayers, 1, maxDraftLayers},
		{"num_attention_heads", c.NumAttentionHeads, 1, maxDraftSize},
		{"num_key_value_heads", c.NumKeyValueHeads, 1, maxDraftSize},
		{"head_dim", c.HeadDim, 2, maxDraftSize},
		{"vocab_size", c.VocabSize, 1, maxDraftSize},
		{"max_position_embeddings", c.MaxPositionEmbeddings, 1, maxDraftSize},
		{"block_size", c.BlockSize, 2, maxBlockSize},
	} {
		if (p.value < p.min || p.value > p.max) && (p.value != 0 || !slices.Contains(missing, p.name)) {
			wrong.Addf(ErrConfig, "%s is %d, expected %d to %d", p.name, p.value, p.min, p.max)
		}
	}
	return len(missing) == 0 && len(*wrong) == found
}

// check finds contradictions inside the file.
func (c *DraftConfig) check(wrong *problems.List) {
	if c.NumAttentionHeads%c.NumKeyValueHeads != 0 {
		wrong.Addf(ErrConfig, "num_attention_heads %d is no multiple of num_key_value_heads %d", c.NumAttentionHeads, c.NumKeyValueHeads)
	}
	if c.HeadDim%2 != 0 {
		wrong.Addf(ErrConfig, "head_dim is %d, expected an even number", c.HeadDim)
	}
	if c.RMSNormEps < 0 || c.RMSNormEps > 1 {
		wrong.Addf(ErrConfig, "rms_norm_eps is %g", c.RMSNormEps)
	}
	if !(c.RopeTheta > 0) || math.IsInf(float64(c.RopeTheta), 0) {
		wrong.Addf(ErrConfig, "rope_theta is %g", c.RopeTheta)
	}
	if len(c.LayerTypes) != c.NumHiddenLayers {
		wrong.Addf(ErrConfig, "layer_types has %d entries, num_hidden_layers is %d", len(c.LayerTypes), c.NumHiddenLayers)
	}
	if c.MaskTokenID < 0 || c.MaskTokenID >= c.VocabSize {
		wrong.Addf(ErrConfig, "dflash_config.mask_token_id is %d, vocab_size is %d", c.MaskTokenID, c.VocabSize)
	}
	for i, kind := range c.LayerTypes {
		switch {
		case kind == qwen.FullAttention:
			continue
		case kind != SlidingAttention:
			wrong.Addf(ErrUnsupported, "layer_types[%d] is %q", i, kind)
		case c.SlidingWindow < 1 || c.SlidingWindow > maxDraftSize:
			wrong.Addf(ErrConfig, "layer_types[%d] is %s, but sliding_window is %d, expected 1 to %d", i, kind, c.SlidingWindow, maxDraftSize)
		default:
			continue
		}
		break // it is the same for the others
	}
	for i, id := range c.TargetLayerIDs {
		switch {
		case id < 0:
			wrong.Addf(ErrConfig, "dflash_config.target_layer_ids has %d", id)
		case i > 0 && id <= c.TargetLayerIDs[i-1]:
			wrong.Addf(ErrConfig, "dflash_config.target_layer_ids %v are not ascending", c.TargetLayerIDs)
			return
		case c.NumTargetLayers > 0 && id >= c.NumTargetLayers:
			wrong.Addf(ErrConfig, "dflash_config.target_layer_ids has %d, num_target_layers is %d", id, c.NumTargetLayers)
		}
	}
}

// CheckPair compares a drafter with the target that it shall draft for. The
// error wraps ErrPairMismatch and names every difference with both numbers.
func (c *DraftConfig) CheckPair(t TargetInfo) error {
	var wrong []string
	differ := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if c.HiddenSize != t.HiddenSize {
		differ("hidden_size: drafter %d, target %d", c.HiddenSize, t.HiddenSize)
	}
	if c.NumTargetLayers > 0 && c.NumTargetLayers != t.Layers {
		differ("num_target_layers: drafter %d, target %d", c.NumTargetLayers, t.Layers)
	}
	if last := c.TargetLayerIDs[len(c.TargetLayerIDs)-1]; last >= t.Layers {
		differ("target_layer_ids: drafter taps layer %d, target has %d layers", last, t.Layers)
	}
	if c.VocabSize > t.VocabSize {
		differ("vocab_size: drafter %d, target %d", c.VocabSize, t.VocabSize)
	}
	if c.MaskTokenID >= t.VocabSize {
		differ("mask_token_id: drafter %d, target's vocabulary %d", c.MaskTokenID, t.VocabSize)
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%w: %s", ErrPairMismatch, strings.Join(wrong, "; "))
	}
	return nil
}

// tensors lists every tensor of the drafter with its shape.
func (c *DraftConfig) tensors() map[string][]int {
	h, q, kv := c.HiddenSize, c.NumAttentionHeads*c.HeadDim, c.NumKeyValueHeads*c.HeadDim
	want := map[string][]int{
		"fc.weight":          {h, len(c.TargetLayerIDs) * h},
		"hidden_norm.weight": {h},
		"norm.weight":        {h},
	}
	for i := range c.NumHiddenLayers {
		p := fmt.Sprintf("layers.%d.", i)
		want[p+"input_layernorm.weight"] = []int{h}
		want[p+"post_attention_layernorm.weight"] = []int{h}
		want[p+"self_attn.q_proj.weight"] = []int{q, h}
		want[p+"self_attn.k_proj.weight"] = []int{kv, h}
		want[p+"self_attn.v_proj.weight"] = []int{kv, h}
		want[p+"self_attn.o_proj.weight"] = []int{h, q}
		want[p+"self_attn.q_norm.weight"] = []int{c.HeadDim}
		want[p+"self_attn.k_norm.weight"] = []int{c.HeadDim}
		want[p+"mlp.gate_proj.weight"] = []int{c.IntermediateSize, h}
		want[p+"mlp.up_proj.weight"] = []int{c.IntermediateSize, h}
		want[p+"mlp.down_proj.weight"] = []int{h, c.IntermediateSize}
	}
	return want
}
