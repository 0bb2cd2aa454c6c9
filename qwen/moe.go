package qwen

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/internal/weights"
)

// feedForward reads the sizes of dense and mixed layers. Which layers are
// mixtures follows Hugging Face: all, but for mlp_only_layers and where
// decoder_sparse_step leaves some out.
func (t *rawConfig) feedForward(c *Config, need func(string, *int) int) {
	mixed := c.ModelType == "qwen3_moe" || c.ModelType == "qwen3_5_moe"
	step := 1
	if t.DecoderSparseStep != nil {
		step = *t.DecoderSparseStep
	}
	dense := false
	for i := range min(max(c.NumHiddenLayers, 0), maxLayers) {
		moe := mixed && !slices.Contains(t.MlpOnlyLayers, i) && step > 0 && (i+1)%step == 0
		c.MoeLayers = append(c.MoeLayers, moe)
		dense = dense || !moe
	}
	if dense {
		c.IntermediateSize = need("intermediate_size", t.IntermediateSize)
	}
	if !mixed {
		return
	}
	c.NumExperts = need("num_experts", t.NumExperts)
	c.NumExpertsPerTok = need("num_experts_per_tok", t.NumExpertsPerTok)
	c.MoeIntermediateSize = need("moe_intermediate_size", t.MoeIntermediateSize)
	// The families' own defaults.
	c.NormTopkProb = c.hybrid()
	if t.NormTopkProb != nil {
		c.NormTopkProb = *t.NormTopkProb
	}
	if c.hybrid() {
		c.SharedExpertIntermediateSize = need("shared_expert_intermediate_size", t.SharedExpertIntermediateSize)
	}
}

func (c *Config) feedForwardSizes() []size {
	var out []size
	if slices.Contains(c.MoeLayers, false) {
		out = append(out, size{"intermediate_size", c.IntermediateSize})
	}
	if c.NumExperts != 0 || slices.Contains(c.MoeLayers, true) {
		out = append(out, size{"num_experts", c.NumExperts}, size{"num_experts_per_tok", c.NumExpertsPerTok}, size{"moe_intermediate_size", c.MoeIntermediateSize})
		if c.hybrid() {
			out = append(out, size{"shared_expert_intermediate_size", c.SharedExpertIntermediateSize})
		}
	}
	return out
}

// quantize reads the field quantization, or its copy quantization_config,
// beside the text configuration or in it.
func (r *rawConfig) quantize(c *Config, t *rawConfig) error {
	for _, q := range []json.RawMessage{r.Quantization, r.QuantizationConfig, t.Quantization, t.QuantizationConfig} {
		if !says(q) {
			continue
		}
		parsed, err := weights.ParseQuantization(q, canonicalName)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		c.quantization, c.Quantization = parsed, parsed.String()
		return nil
	}
	return nil
}

// Experts lie in files in three ways: Hugging Face's newer fused tensors, its
// older ones with one expert each, and MLX's stacks.
const (
	fusedExperts   = "experts.gate_up_proj"       // [experts, 2·intermediate, hidden]
	fusedDown      = "experts.down_proj"          // [experts, hidden, intermediate]
	singleExpert   = "experts.%d."                // + gate_proj.weight and so on
	stackedExperts = "switch_mlp.%s_proj"         // + .weight
	firstExpert    = "experts.0.gate_proj.weight" // tells the second way
)

func (c *Config) moeTensors(want map[string][]int, p string, ck *checkpoint) {
	e, h, f := c.NumExperts, c.HiddenSize, c.MoeIntermediateSize
	want[p+"gate.weight"] = []int{e, h}
	if c.SharedExpertIntermediateSize > 0 {
		swigluTensors(want, p+"shared_expert.", h, c.SharedExpertIntermediateSize)
		want[p+"shared_expert_gate.weight"] = []int{1, h}
	}
	switch {
	case ck.has(p + fusedExperts):
		want[p+fusedExperts] = []int{e, 2 * f, h}
		want[p+fusedDown] = []int{e, h, f}
	case ck.has(p + firstExpert):
		for i := range e {
			swigluTensors(want, p+fmt.Sprintf(singleExpert, i), h, f)
		}
	default:
		want[p+fmt.Sprintf(stackedExperts, "gate")+".weight"] = []int{e, f, h}
		want[p+fmt.Sprintf(stackedExperts, "up")+".weight"] = []int{e, f, h}
		want[p+fmt.Sprintf(stackedExperts, "down")+".weight"] = []int{e, h, f}
	}
}

// singleExperts are the modules of a layer's experts, one each.
func (c *Config) singleExperts(p, name string) []string {
	all := make([]string, c.NumExperts)
	for i := range all {
		all[i] = p + fmt.Sprintf(singleExpert, i) + name
	}
	return all
}

// checkExperts finds experts of one layer that are stored in different ways.
func (c *Config) checkExperts(ck *checkpoint) error {
	for i, moe := range c.MoeLayers {
		p := layerPrefix(i) + "mlp."
		if !moe || !ck.has(p+firstExpert) {
			continue
		}
		for _, name := range []string{"gate_proj", "up_proj", "down_proj"} {
			if err := weights.Alike(ck.plan, c.singleExperts(p, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *builder) moe(p string) *nn.MoE {
	c, s := b.cfg, b.s
	m := &nn.MoE{Router: b.r.Linear(p + "gate"), TopK: c.NumExpertsPerTok, NormTopK: c.NormTopkProb}
	if c.SharedExpertIntermediateSize > 0 {
		shared := b.r.SwiGLU(p+"shared_expert", c.SharedExpertIntermediateSize)
		m.Shared, m.SharedGate = &shared, b.r.Linear(p+"shared_expert_gate")
	}
	switch {
	case b.ck.has(p + fusedExperts):
		both := b.r.Array(p + fusedExperts)
		f := c.MoeIntermediateSize
		m.Gate = nn.NewExperts(s, s.Contiguous(s.SliceAxis(both, 1, 0, f)))
		m.Up = nn.NewExperts(s, s.Contiguous(s.SliceAxis(both, 1, f, 2*f)))
		m.Down = nn.NewExperts(s, b.r.Array(p+fusedDown))
	case b.ck.has(p + firstExpert):
		stack := func(name string) nn.Experts { return b.r.SingleExperts(c.singleExperts(p, name)) }
		m.Gate, m.Up, m.Down = stack("gate_proj"), stack("up_proj"), stack("down_proj")
	default:
		stacked := func(name string) nn.Experts { return b.r.Experts(p + fmt.Sprintf(stackedExperts, name)) }
		m.Gate, m.Up, m.Down = stacked("gate"), stacked("up"), stacked("down")
	}
	m.Link(b.r.Kernels, kernels.MixShape{Experts: c.NumExperts, Hidden: c.HiddenSize, Width: c.MoeIntermediateSize})
	return m
}
