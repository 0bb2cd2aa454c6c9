package qwen

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/godflash/godflash/internal/problems"
	"github.com/godflash/godflash/internal/readfile"
	"github.com/godflash/godflash/internal/rope"
	"github.com/godflash/godflash/internal/weights"
)

// ErrUnsupported is returned for checkpoints of a kind that this package does
// not run. The message names the field and the value. Package dflash returns it
// for requests, too.
var ErrUnsupported = errors.New("not supported")

// ErrConfig is returned for a configuration that contradicts itself or lacks
// what a model needs.
var ErrConfig = errors.New("bad model configuration")

// ErrMemory is returned for weights that need more memory than there is. The
// message names both sizes.
var ErrMemory = weights.ErrMemory

// Layer types as layer_types in config.json writes them.
const (
	FullAttention   = "full_attention"
	LinearAttention = "linear_attention"
)

// Config is what config.json says of a target, with the fields of text_config
// taken from there when the file nests them. Names are Hugging Face's.
type Config struct {
	// ModelType is "qwen3", "qwen3_moe", "qwen3_5" or "qwen3_5_moe".
	ModelType string

	HiddenSize            int
	IntermediateSize      int
	NumHiddenLayers       int
	NumAttentionHeads     int
	NumKeyValueHeads      int
	HeadDim               int
	VocabSize             int // rows of the embedding, which may exceed the tokenizer's
	MaxPositionEmbeddings int
	RMSNormEps            float32
	TieWordEmbeddings     bool

	RopeTheta           float32
	PartialRotaryFactor float32
	// RopeScaling is a short name of how positions are scaled, such as "yarn,
	// factor 4", empty for not at all. MaxPositionEmbeddings is what it makes.
	RopeScaling string
	yarn        *rope.YaRN

	// LayerTypes has one of FullAttention and LinearAttention per layer.
	LayerTypes []string

	// The gated delta rule's sizes, zero for Qwen3.
	LinearConvKernelDim int
	LinearKeyHeadDim    int
	LinearValueHeadDim  int
	LinearNumKeyHeads   int
	LinearNumValueHeads int

	// The mixture of experts' sizes, zero for dense models.
	NumExperts                   int
	NumExpertsPerTok             int
	MoeIntermediateSize          int
	SharedExpertIntermediateSize int // 0 for families without a shared expert
	// NormTopkProb: the chosen experts' probabilities are divided by their sum.
	NormTopkProb bool
	// MoeLayers says of each layer whether its feed-forward is a mixture.
	MoeLayers []bool

	// Quantization is a short name such as "4-bit affine", empty for dense
	// weights.
	Quantization string
	quantization *weights.Quantization

	// AttnOutputGate: q_proj carries a gate half per head (Qwen3.5).
	AttnOutputGate bool

	// EOSTokenIDs are the end-of-sequence ids of config.json and
	// generation_config.json together, ascending.
	EOSTokenIDs []int
	// Generation is how generation_config.json recommends to draw tokens, zero
	// where it has do_sample false or does not exist.
	Generation Generation
}

// hybrid: gated-delta layers beside attention (Qwen3.5 and 3.6).
func (c *Config) hybrid() bool { return strings.HasPrefix(c.ModelType, "qwen3_5") }

// RotaryDim is the number of leading dimensions of a head that rotate.
func (c *Config) RotaryDim() int {
	return int(float32(c.HeadDim) * c.PartialRotaryFactor)
}

// rawConfig mirrors config.json. Pointers tell an absent field from a zero.
type rawConfig struct {
	ModelType     string   `json:"model_type"`
	Architectures []string `json:"architectures"`

	HiddenSize            *int     `json:"hidden_size"`
	IntermediateSize      *int     `json:"intermediate_size"`
	NumHiddenLayers       *int     `json:"num_hidden_layers"`
	NumAttentionHeads     *int     `json:"num_attention_heads"`
	NumKeyValueHeads      *int     `json:"num_key_value_heads"`
	HeadDim               *int     `json:"head_dim"`
	VocabSize             *int     `json:"vocab_size"`
	MaxPositionEmbeddings *int     `json:"max_position_embeddings"`
	RMSNormEps            *float64 `json:"rms_norm_eps"`
	TieWordEmbeddings     *bool    `json:"tie_word_embeddings"`
	HiddenAct             string   `json:"hidden_act"`
	AttentionBias         bool     `json:"attention_bias"`
	AttnOutputGate        *bool    `json:"attn_output_gate"`
	UseSlidingWindow      bool     `json:"use_sliding_window"`

	RopeTheta           *float64         `json:"rope_theta"`
	RopeScaling         *rope.Parameters `json:"rope_scaling"`
	RopeParameters      *rope.Parameters `json:"rope_parameters"`
	PartialRotaryFactor *float64         `json:"partial_rotary_factor"`

	LayerTypes            []string `json:"layer_types"`
	FullAttentionInterval *int     `json:"full_attention_interval"`

	LinearConvKernelDim *int `json:"linear_conv_kernel_dim"`
	LinearKeyHeadDim    *int `json:"linear_key_head_dim"`
	LinearValueHeadDim  *int `json:"linear_value_head_dim"`
	LinearNumKeyHeads   *int `json:"linear_num_key_heads"`
	LinearNumValueHeads *int `json:"linear_num_value_heads"`

	NumExperts                   *int  `json:"num_experts"`
	NumExpertsPerTok             *int  `json:"num_experts_per_tok"`
	MoeIntermediateSize          *int  `json:"moe_intermediate_size"`
	SharedExpertIntermediateSize *int  `json:"shared_expert_intermediate_size"`
	NormTopkProb                 *bool `json:"norm_topk_prob"`
	DecoderSparseStep            *int  `json:"decoder_sparse_step"`
	MlpOnlyLayers                []int `json:"mlp_only_layers"`

	EOSTokenID         tokenIDs        `json:"eos_token_id"`
	Quantization       json.RawMessage `json:"quantization"`
	QuantizationConfig json.RawMessage `json:"quantization_config"`
	DFlashConfig       json.RawMessage `json:"dflash_config"`

	TextConfig *rawConfig `json:"text_config"`
}

// tokenIDs reads a scalar, a list or null.
type tokenIDs []int

func (t *tokenIDs) UnmarshalJSON(data []byte) error {
	var one *int
	if json.Unmarshal(data, &one) == nil {
		*t = nil
		if one != nil {
			*t = tokenIDs{*one}
		}
		return nil
	}
	var many []int
	if err := json.Unmarshal(data, &many); err != nil {
		return fmt.Errorf("a token id or a list of them is expected, not %.40s", data)
	}
	*t = many
	return nil
}

// maxConfigBytes bounds the JSON files that are read whole.
const maxConfigBytes = 8 << 20

// ReadConfig reads DIR/config.json and, where present,
// DIR/generation_config.json. No weights are touched.
//
// Errors wrap ErrConfig or ErrUnsupported and name the file and the field.
func ReadConfig(dir string) (*Config, error) {
	path := filepath.Join(dir, "config.json")
	data, err := readSmall(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s holds no config.json; a model folder has config.json, tokenizer.json and *.safetensors in it: %w", ErrConfig, dir, err)
		}
		return nil, err
	}
	var raw rawConfig
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
	}
	var wrong problems.List
	c, err := raw.resolve()
	if err != nil {
		wrong.Add(fmt.Errorf("%s: %w", path, err))
	}
	eos, generation, err := readGeneration(filepath.Join(dir, "generation_config.json"))
	wrong.Add(err)
	if c != nil {
		c.Generation = generation
		c.EOSTokenIDs = append(c.EOSTokenIDs, eos...)
		slices.Sort(c.EOSTokenIDs)
		c.EOSTokenIDs = slices.Compact(c.EOSTokenIDs)
		if i := slices.IndexFunc(c.EOSTokenIDs, func(id int) bool { return id < 0 || id >= c.VocabSize }); i >= 0 {
			wrong.Addf(ErrConfig, "%s: eos_token_id %d (config.json and generation_config.json together) is outside the vocabulary of %d", dir, c.EOSTokenIDs[i], c.VocabSize)
		}
	}
	if err := wrong.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

func readSmall(path string) ([]byte, error) {
	data, err := readfile.Regular(path, maxConfigBytes)
	if errors.Is(err, readfile.ErrNotRegular) {
		err = fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return data, err
}

// isDrafter recognises the drafters of all vendors, which have a target's
// model_type. A model never has dflash_config.
func (r *rawConfig) isDrafter() bool {
	return says(r.DFlashConfig) || slices.ContainsFunc(r.Architectures, func(a string) bool {
		return strings.Contains(a, "DFlash") || strings.Contains(a, "DSpark") || strings.HasSuffix(a, "AssistantModel")
	})
}

// resolve turns the file's dialects into one Config and checks it.
func (r *rawConfig) resolve() (*Config, error) {
	if r.isDrafter() {
		return nil, fmt.Errorf("%w: this is a drafter (architectures %v), not a target model: pass its folder as the drafter", ErrUnsupported, r.Architectures)
	}
	eos := slices.Clone([]int(r.EOSTokenID))
	tie := r.TieWordEmbeddings
	t := r
	if r.TextConfig != nil {
		t = r.TextConfig
		eos = append(eos, t.EOSTokenID...)
		if t.TieWordEmbeddings != nil {
			tie = t.TieWordEmbeddings
		}
	}
	c := &Config{EOSTokenIDs: eos}
	switch strings.TrimSuffix(t.ModelType, "_text") {
	case "qwen3", "qwen3_moe", "qwen3_5", "qwen3_5_moe":
		c.ModelType = strings.TrimSuffix(t.ModelType, "_text")
		c.AttnOutputGate = c.hybrid()
	case "":
		return nil, fmt.Errorf("%w: model_type is missing", ErrConfig)
	default:
		return nil, fmt.Errorf("%w: model_type is %q; qwen3, qwen3_moe, qwen3_5 and qwen3_5_moe are run", ErrUnsupported, t.ModelType)
	}
	var wrong problems.List
	t.refuse(&wrong)
	var missing []string
	need := func(name string, p *int) int {
		if p == nil {
			missing = append(missing, name)
			return 0
		}
		return *p
	}
	c.HiddenSize = need("hidden_size", t.HiddenSize)
	c.NumHiddenLayers = need("num_hidden_layers", t.NumHiddenLayers)
	c.NumAttentionHeads = need("num_attention_heads", t.NumAttentionHeads)
	c.NumKeyValueHeads = c.NumAttentionHeads
	if t.NumKeyValueHeads != nil {
		c.NumKeyValueHeads = *t.NumKeyValueHeads
	}
	c.VocabSize = need("vocab_size", t.VocabSize)
	c.MaxPositionEmbeddings = need("max_position_embeddings", t.MaxPositionEmbeddings)
	if t.RMSNormEps == nil {
		missing = append(missing, "rms_norm_eps")
	} else {
		c.RMSNormEps = float32(*t.RMSNormEps)
	}
	theta, partial := t.rope()
	if theta == nil {
		missing = append(missing, "rope_theta")
	} else {
		c.RopeTheta = float32(*theta)
	}
	c.PartialRotaryFactor = 1
	if partial != nil {
		c.PartialRotaryFactor = float32(*partial)
	} else if c.hybrid() {
		c.PartialRotaryFactor = 0.25
	}
	if t.HeadDim != nil {
		c.HeadDim = *t.HeadDim
	} else if c.NumAttentionHeads > 0 {
		if c.HiddenSize%c.NumAttentionHeads != 0 {
			wrong.Addf(ErrConfig, "head_dim is missing, and hidden_size %d is no multiple of num_attention_heads %d", c.HiddenSize, c.NumAttentionHeads)
		}
		c.HeadDim = c.HiddenSize / c.NumAttentionHeads
	}
	base := c.RopeTheta
	if theta == nil {
		base = 2 // any that YaRN takes: that it is missing is said already
	}
	y, err := rope.Read(base, t.RopeScaling, t.RopeParameters, ErrUnsupported, ErrConfig)
	wrong.Add(err)
	if err == nil && y != nil {
		c.yarn, c.RopeScaling = y, y.String()
		c.MaxPositionEmbeddings = max(c.MaxPositionEmbeddings, y.Positions())
	}
	t.feedForward(c, need)
	if c.hybrid() {
		c.LinearConvKernelDim = need("linear_conv_kernel_dim", t.LinearConvKernelDim)
		c.LinearKeyHeadDim = need("linear_key_head_dim", t.LinearKeyHeadDim)
		c.LinearValueHeadDim = need("linear_value_head_dim", t.LinearValueHeadDim)
		c.LinearNumKeyHeads = need("linear_num_key_heads", t.LinearNumKeyHeads)
		c.LinearNumValueHeads = need("linear_num_value_heads", t.LinearNumValueHeads)
	}
	c.TieWordEmbeddings = tie != nil && *tie
	wrong.Add(r.quantize(c, t))
	if len(missing) > 0 {
		wrong.Addf(ErrConfig, "missing %s", strings.Join(missing, ", "))
		missing = append(missing, "head_dim", "num_key_value_heads") // which may come from others
	}
	if c.checkSizes(&wrong, missing) {
		c.setLayerTypes(&wrong, t)
	}
	if err := wrong.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// refuse names what this package cannot run.
func (t *rawConfig) refuse(wrong *problems.List) {
	if t.NumExperts != nil && *t.NumExperts > 0 && !strings.Contains(t.ModelType, "_moe") {
		wrong.Addf(ErrUnsupported, "num_experts is %d in a %s model", *t.NumExperts, t.ModelType)
	}
	if t.HiddenAct != "" && t.HiddenAct != "silu" {
		wrong.Addf(ErrUnsupported, "hidden_act is %q, only \"silu\" is run", t.HiddenAct)
	}
	if t.AttentionBias {
		wrong.Addf(ErrUnsupported, "attention_bias is true")
	}
	if t.UseSlidingWindow {
		wrong.Addf(ErrUnsupported, "use_sliding_window is true in a target")
	}
	if t.AttnOutputGate != nil && !*t.AttnOutputGate && strings.HasPrefix(t.ModelType, "qwen3_5") {
		wrong.Addf(ErrUnsupported, "attn_output_gate is false in a %s model", t.ModelType)
	}
}

// says is false for a field that is absent, null or an empty object: those say
// nothing, and the files' headers show in any case how weights are stored.
func says(value json.RawMessage) bool {
	switch strings.Join(strings.Fields(string(value)), "") {
	case "", "null", "{}":
		return false
	}
	return true
}

// rope finds theta and the rotating share under the names that files use: at
// the top, or in rope_parameters, which wins.
func (r *rawConfig) rope() (theta, partial *float64) {
	theta, partial = r.RopeTheta, r.PartialRotaryFactor
	for _, p := range []*rope.Parameters{r.RopeScaling, r.RopeParameters} {
		if p == nil {
			continue
		}
		if p.RopeTheta != nil {
			theta = p.RopeTheta
		}
		if p.PartialRotaryFactor != nil {
			partial = p.PartialRotaryFactor
		}
	}
	return theta, partial
}

// maxSize bounds every size in a configuration, so that products of a few of
// them stay inside an int64 and a hostile file cannot ask for the impossible.
const (
	maxSize   = 1 << 24
	maxLayers = 4096
)

// size is a field that must be positive.
type size struct {
	name  string
	value int
}

// checkSizes reports whether the sizes make sense, so that more can be said of
// them; fields that are missing are left out.
func (c *Config) checkSizes(wrong *problems.List, missing []string) bool {
	found := len(*wrong)
	positive := []size{
		{"hidden_size", c.HiddenSize},
		{"num_hidden_layers", c.NumHiddenLayers},
		{"num_attention_heads", c.NumAttentionHeads},
		{"num_key_value_heads", c.NumKeyValueHeads},
		{"head_dim", c.HeadDim},
		{"vocab_size", c.VocabSize},
		{"max_position_embeddings", c.MaxPositionEmbeddings},
	}
	positive = append(positive, c.feedForwardSizes()...)
	if c.hybrid() {
		positive = append(positive, []size{
			{"linear_conv_kernel_dim", c.LinearConvKernelDim},
			{"linear_key_head_dim", c.LinearKeyHeadDim},
			{"linear_value_head_dim", c.LinearValueHeadDim},
			{"linear_num_key_heads", c.LinearNumKeyHeads},
			{"linear_num_value_heads", c.LinearNumValueHeads},
		}...)
	}
	for _, p := range positive {
		if (p.value < 1 || p.value > maxSize) && (p.value != 0 || !slices.Contains(missing, p.name)) {
			wrong.Addf(ErrConfig, "%s is %d, expected 1 to %d", p.name, p.value, maxSize)
		}
	}
	if len(missing) > 0 || len(*wrong) > found {
		return false
	}
	if c.NumExperts > 0 && c.NumExpertsPerTok > c.NumExperts {
		wrong.Addf(ErrConfig, "num_experts_per_tok is %d of %d experts", c.NumExpertsPerTok, c.NumExperts)
	}
	if c.NumHiddenLayers > maxLayers {
		wrong.Addf(ErrConfig, "num_hidden_layers is %d, expected at most %d", c.NumHiddenLayers, maxLayers)
	}
	if c.NumAttentionHeads%c.NumKeyValueHeads != 0 {
		wrong.Addf(ErrConfig, "num_attention_heads %d is no multiple of num_key_value_heads %d", c.NumAttentionHeads, c.NumKeyValueHeads)
	}
	if c.RMSNormEps < 0 || c.RMSNormEps > 1 {
		wrong.Addf(ErrConfig, "rms_norm_eps is %g", c.RMSNormEps)
	}
	if !(c.RopeTheta > 0) || math.IsInf(float64(c.RopeTheta), 0) {
		wrong.Addf(ErrConfig, "rope_theta is %g", c.RopeTheta)
	}
	if !(c.PartialRotaryFactor > 0 && c.PartialRotaryFactor <= 1) || c.RotaryDim()%2 != 0 || c.RotaryDim() == 0 {
		wrong.Addf(ErrConfig, "partial_rotary_factor %g of head_dim %d gives %d rotating dimensions, expected an even number of at least 2", c.PartialRotaryFactor, c.HeadDim, c.RotaryDim())
	}
	if c.hybrid() && c.LinearConvKernelDim < 2 {
		wrong.Addf(ErrConfig, "linear_conv_kernel_dim is %d, expected at least 2", c.LinearConvKernelDim)
	}
	if c.hybrid() && c.LinearNumValueHeads%c.LinearNumKeyHeads != 0 {
		wrong.Addf(ErrConfig, "linear_num_value_heads %d is no multiple of linear_num_key_heads %d", c.LinearNumValueHeads, c.LinearNumKeyHeads)
	}
	return len(*wrong) == found
}

func (c *Config) setLayerTypes(wrong *problems.List, t *rawConfig) {
	c.LayerTypes = t.LayerTypes
	if len(c.LayerTypes) == 0 {
		interval := 4
		if t.FullAttentionInterval != nil {
			interval = *t.FullAttentionInterval
		}
		if !c.hybrid() {
			interval = 1
		}
		if interval < 1 {
			wrong.Addf(ErrConfig, "full_attention_interval is %d", interval)
			return
		}
		for i := range c.NumHiddenLayers {
			kind := LinearAttention
			if (i+1)%interval == 0 {
				kind = FullAttention
			}
			c.LayerTypes = append(c.LayerTypes, kind)
		}
	}
	if len(c.LayerTypes) != c.NumHiddenLayers {
		wrong.Addf(ErrConfig, "layer_types has %d entries, num_hidden_layers is %d", len(c.LayerTypes), c.NumHiddenLayers)
	}
	for i, kind := range c.LayerTypes {
		switch {
		case kind == FullAttention, kind == LinearAttention && c.hybrid():
		default:
			wrong.Addf(ErrUnsupported, "layer_types[%d] is %q in a %s model", i, kind, c.ModelType)
			return // it is the same for the others
		}
	}
	if c.hybrid() && !slices.Contains(c.LayerTypes, LinearAttention) {
		// The convolutions' layout alone tells whether the norms have their one.
		wrong.Addf(ErrUnsupported, "a %s model whose layer_types have no %s", c.ModelType, LinearAttention)
	}
}
