// Package synthetic makes model pairs of published shapes with random weights:
// folders whose weight files have headers and holes for data, and a maker that
// fills the weights in on the device. What a step or a cycle costs can be
// measured with them, without the checkpoints.
package synthetic

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"path/filepath"
	"strings"

	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/internal/safetensors"
	"github.com/godflash/godflash/internal/weights"
	"github.com/godflash/godflash/mlx"
)

// ErrName is returned for shapes that nobody knows.
var ErrName = errors.New("unknown shape")

// Pair is a target and its drafter.
type Pair struct {
	Target fixture.Published
	Draft  fixture.PublishedDraft
	// Bits is 0 for bfloat16 or 4 for MLX's affine quantisation in groups of 64.
	Bits int
}

// small are shapes for CPUs, of no model: one of each architecture.
func small() (targets []fixture.Published, drafts []fixture.PublishedDraft) {
	dense := fixture.Published{
		Name: "tiny", Type: "qwen3", Guess: "made up", Hidden: 256, FFN: 512, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 64,
		Vocab: 2048, MaxPositions: 32768, Theta: 1e6,
	}
	hybrid := dense
	hybrid.Name, hybrid.Type, hybrid.KeyHeads, hybrid.ValueHeads = "tiny-hybrid", "qwen3_5", 1, 2
	moe := hybrid
	moe.Name, moe.Type, moe.FFN = "tiny-moe", "qwen3_5_moe", 0
	moe.Experts, moe.TopK, moe.ExpertFFN, moe.SharedFFN = 8, 2, 128, 128
	for _, t := range []fixture.Published{dense, hybrid, moe} {
		targets = append(targets, t)
		drafts = append(drafts, fixture.PublishedDraft{
			Target: t.Name, Hidden: 256, FFN: 512, Layers: 2, Heads: 2, KVHeads: 1,
			Taps: []int{0, 2}, TargetLayers: 4, Mask: 2047, Vocab: 2048, MaxPositions: 32768, Theta: 1e6,
		})
	}
	return targets, drafts
}

func shapes() ([]fixture.Published, []fixture.PublishedDraft) {
	targets, drafts := small()
	return append(targets, fixture.Targets()...), append(drafts, fixture.Drafters()...)
}

// Names are the shapes that Find knows, in lower case.
func Names() []string {
	var names []string
	targets, drafts := shapes()
	for _, t := range targets {
		for _, d := range drafts {
			if d.Target == t.Name {
				names = append(names, strings.ToLower(t.Name))
			}
		}
	}
	return names
}

// Find gives the pair of a name, in upper or lower case, with the target cut to
// layers (0: all of them). The drafter then taps fewer layers where it must.
func Find(name string, bits, layers int) (*Pair, error) {
	if bits != 0 && bits != 4 {
		return nil, fmt.Errorf("%w: %d bits; 4 and bfloat16 can be made", ErrName, bits)
	}
	targets, drafts := shapes()
	for _, t := range targets {
		for _, d := range drafts {
			if d.Target != t.Name || !strings.EqualFold(name, t.Name) {
				continue
			}
			if layers < 0 || layers > t.Layers {
				return nil, fmt.Errorf("%w: %s with %d layers, it has %d", ErrName, t.Name, layers, t.Layers)
			}
			p := &Pair{Target: t, Draft: d, Bits: bits}
			if layers > 0 {
				p.cut(layers)
			}
			return p, nil
		}
	}
	return nil, fmt.Errorf("%w %q; known are %s", ErrName, name, strings.Join(Names(), ", "))
}

// cut spreads the taps over the layers that are left.
func (p *Pair) cut(layers int) {
	p.Target.Layers, p.Draft.TargetLayers = layers, layers
	n := min(len(p.Draft.Taps), layers)
	taps := make([]int, n)
	for i := range taps {
		taps[i] = i * layers / n
	}
	p.Draft.Taps = taps
}

// Config is the target's config.json.
func (p *Pair) Config() map[string]any {
	c := p.Target.Config()
	text := c
	if nested, ok := c["text_config"].(map[string]any); ok {
		text = nested
	}
	text["eos_token_id"] = 0 // in any vocabulary
	if p.Bits > 0 {
		_, c["quantization"] = p.Target.MLX()
	}
	return c
}

func (p *Pair) tensors() []fixture.HeaderTensor {
	if p.Bits > 0 {
		list, _ := p.Target.MLX()
		return list
	}
	return p.Target.Raw()
}

const targetFolder = "target"

// Write writes the pair's folders, target and draft, into dir. The files are
// sparse: a few hundred kilobytes on the disk.
func (p *Pair) Write(dir string) error {
	return errors.Join(
		fixture.WriteFolder(filepath.Join(dir, targetFolder), p.Config(), p.tensors(), 0),
		fixture.WriteFolder(filepath.Join(dir, "draft"), p.Draft.Config(), p.Draft.Tensors(), 0),
	)
}

// Maker gives random weights that keep activations and scores finite: linear
// maps that keep the size of what they map, norms of one, decays as trained ones
// have them. The weights depend on the seed and the names.
func (p *Pair) Maker(seed uint64) weights.Maker {
	zeroNorms := p.Bits == 0 && p.Target.KeyHeads > 0 // Hugging Face's files store them less one
	return func(s *mlx.Scope, name string, t safetensors.Tensor, o mlx.QuantizeOptions) mlx.Array {
		h := fnv.New64a()
		h.Write([]byte(name))
		m := made{s: s, key: s.Key(seed ^ h.Sum64()), shape: t.Shape, dtype: dtypes[t.Dtype]}
		switch {
		case o.Bits > 0:
			return m.quantized(name, o)
		case strings.HasSuffix(name, "A_log"):
			return s.Log(m.uniform(1, 8))
		case strings.HasSuffix(name, "dt_bias"):
			return m.uniform(-4, -2)
		case strings.HasSuffix(name, "conv1d.weight"):
			return m.spread(0.5)
		case strings.HasSuffix(name, "embed_tokens.weight"):
			return m.spread(1)
		case zeroNorms && lessOne(name, t):
			return s.Zeros(m.dtype, t.Shape...)
		case len(t.Shape) == 1:
			return s.Ones(m.dtype, t.Shape...)
		}
		return m.spread(1 / math.Sqrt(float64(t.Shape[len(t.Shape)-1])))
	}
}

var dtypes = map[string]mlx.Dtype{"BF16": mlx.BFloat16, "F32": mlx.Float32, "U32": mlx.Uint32}

// lessOne tells the norms to which Load adds one: all of the target's but the
// gated delta layers' own.
func lessOne(name string, t safetensors.Tensor) bool {
	return len(t.Shape) == 1 && filepath.Base(filepath.Dir(t.File)) == targetFolder && !strings.HasSuffix(name, "linear_attn.norm.weight")
}
