package dflash

import (
	"context"
	"fmt"

	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/internal/problems"
	"github.com/godflash/godflash/internal/replay"
	"github.com/godflash/godflash/internal/safetensors"
	"github.com/godflash/godflash/internal/weights"
	"github.com/godflash/godflash/mlx"
)

// LoadDrafter reads a drafter's folder: configuration and headers first, then
// the weights, unless they need more memory than there is (ErrMemory). Compare
// DraftConfig.CheckPair with the target before.
func LoadDrafter(ctx context.Context, lib *mlx.Library, dir string, o *DraftOptions) (*Drafter, error) {
	if o == nil {
		o = &DraftOptions{}
	}
	if o.Bits != 0 && o.Bits != 4 && o.Bits != 8 {
		return nil, fmt.Errorf("%w: a drafter in %d bits, 4 and 8 are possible", ErrRequest, o.Bits)
	}
	cfg, err := ReadDraftConfig(dir)
	if err != nil {
		return nil, err
	}
	if cfg.Quantization != "" && o.Bits != 0 {
		return nil, fmt.Errorf("%w: %s: a drafter in %d bits, but its files are quantised already (%s)", ErrRequest, dir, o.Bits, cfg.Quantization)
	}
	ck, err := openDraft(dir, cfg)
	if err != nil {
		return nil, err
	}
	if ck.IndexStale && o.Logger != nil {
		o.Logger.Warn("model.safetensors.index.json names files that are not there; the tensors are all in the others", "dir", dir)
	}
	if !o.IgnoreMemory {
		if err := weights.CheckMemory(ctx, lib, dir, ck.memory(lib, o.Bits), 0); err != nil {
			return nil, err
		}
	}
	d := &Drafter{cfg: cfg, lib: lib, weights: lib.NewScope("drafter " + dir), steps: replay.New(lib)}
	if err := lib.Do(ctx, func(s *mlx.Scope) error { return d.read(ctx, s, ck, o) }); err != nil {
		d.weights.Close()
		return nil, fmt.Errorf("load %s: %w", dir, err)
	}
	return d, nil
}

// draftFiles are the headers of a drafter's files, which fit its configuration.
type draftFiles struct {
	*safetensors.Checkpoint
	plan map[string]mlx.QuantizeOptions // modules that are quantised in the files
}

// memory is what the weights take, in bytes.
func (f *draftFiles) memory(lib *mlx.Library, bits int) int64 {
	return weights.Resident(f.Checkpoint, lib.Device(), f.like(), f.plan, draftQuantization(bits))
}

// like is the tensor whose dtype is that of the activations on a GPU.
func (f *draftFiles) like() string {
	o, quantised := f.plan["fc"]
	switch {
	case !quantised:
		return "fc.weight"
	case o.Mode == mlx.Affine:
		return "fc.scales"
	}
	return "norm.weight"
}

func draftQuantization(bits int) mlx.QuantizeOptions {
	return mlx.QuantizeOptions{Bits: bits, GroupSize: 64}
}

// openDraft compares the files' headers with the configuration.
func openDraft(dir string, cfg *DraftConfig) (*draftFiles, error) {
	files, err := safetensors.Open(dir)
	if err != nil {
		return nil, err
	}
	ck, err := weights.Rename(files, draftName)
	if err != nil {
		return nil, err
	}
	var wrong problems.List
	want := cfg.tensors()
	if t, ok := ck.Tensors["fc.weight"]; ok && len(t.Shape) == 2 {
		_, quantised := ck.Tensors["fc.scales"]
		if taps := len(cfg.TargetLayerIDs) * cfg.HiddenSize; t.Shape[1] != taps && !quantised {
			wrong.Addf(ErrPairMismatch, "%s: fc.weight takes %d values a row, but %d target_layer_ids of hidden_size %d make %d",
				dir, t.Shape[1], len(cfg.TargetLayerIDs), cfg.HiddenSize, taps)
			want["fc.weight"] = t.Shape // that is said
		}
	}
	plan, err := cfg.quantization.Plan(ck, want)
	if err != nil {
		wrong.Add(fmt.Errorf("%w: %w", ErrUnsupported, err))
	}
	wrong.Add(weights.Check(ck, want, plan))
	if err := wrong.Err(); err != nil {
		return nil, err
	}
	return &draftFiles{ck, plan}, nil
}

// read builds the parts one by one, as qwen's Load does.
func (d *Drafter) read(ctx context.Context, s *mlx.Scope, ck *draftFiles, o *DraftOptions) error {
	r, err := weights.Open(ctx, s, ck.Checkpoint, ck.like(), ck.plan)
	if err != nil {
		return err
	}
	r.Progress = o.Progress
	r.Quantize = draftQuantization(o.Bits)
	c := d.cfg
	d.dtype, d.bits = r.Dtype(), o.Bits
	set := kernels.New(ctx, d.weights, o.Logger)
	r.Kernels, d.set = set, set
	heads := set.Heads(kernels.HeadsShape{Queries: c.NumAttentionHeads, Keys: c.NumKeyValueHeads, Dim: c.HeadDim, Rotated: c.HeadDim, Eps: c.RMSNormEps})
	err = r.Part(ctx, d.weights, func(r *weights.Reader, s *mlx.Scope) func(func(*mlx.Array)) {
		d.fc = r.Linear("fc")
		d.hiddenNorm = r.Norm("hidden_norm", c.RMSNormEps, 0)
		d.norm = r.Norm("norm", c.RMSNormEps, 0)
		d.linked = d.fc.Link(s)
		return func(f func(*mlx.Array)) {
			d.fc.Each(f)
			d.hiddenNorm.Each(f)
			d.norm.Each(f)
		}
	})
	if err != nil {
		return err
	}
	r.Release("fc.")
	d.layers = make([]draftLayer, c.NumHiddenLayers)
	for i := range d.layers {
		p := fmt.Sprintf("layers.%d.", i)
		err := r.Part(ctx, d.weights, func(r *weights.Reader, s *mlx.Scope) func(func(*mlx.Array)) {
			d.layers[i] = newDraftLayer(r, s, c, heads, i, p)
			d.linked = d.layers[i].link(s) && d.linked
			return d.layers[i].each
		})
		if err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
		r.Release(p)
	}
	r.Release("")
	return nil
}

func newDraftLayer(r *weights.Reader, s *mlx.Scope, c *DraftConfig, heads *kernels.Heads, i int, p string) draftLayer {
	norm := func(name string) nn.RMSNorm { return r.Norm(p+name, c.RMSNormEps, 0) }
	kv := c.NumKeyValueHeads * c.HeadDim
	l := draftLayer{
		inputNorm: norm("input_layernorm"), postNorm: norm("post_attention_layernorm"),
		in: nn.Pack(s, nn.Part{Linear: r.Linear(p + "self_attn.q_proj"), Out: c.NumAttentionHeads * c.HeadDim},
			nn.Part{Linear: r.Linear(p + "self_attn.k_proj"), Out: kv}, nn.Part{Linear: r.Linear(p + "self_attn.v_proj"), Out: kv}),
		o:     r.Linear(p + "self_attn.o_proj"),
		qNorm: norm("self_attn.q_norm"), kNorm: norm("self_attn.k_norm"),
		mlp:    r.SwiGLU(p+"mlp", c.IntermediateSize),
		split:  heads,
		window: nn.Window{Causal: c.causal(i)},
	}
	if l.in.Whole() {
		l.kv = l.in.Range(s, 1, 3)
	}
	l.rope = nn.Rotation(s, c.HeadDim, c.RopeTheta, c.yarn, &l.qNorm, &l.kNorm)
	if heads != nil {
		l.invFreq = kernels.InvFreq(s, l.rope)
	}
	if c.LayerTypes[i] == SlidingAttention {
		l.window.Size = c.SlidingWindow
	}
	return l
}

func (l *draftLayer) each(f func(*mlx.Array)) {
	for _, n := range []*nn.RMSNorm{&l.inputNorm, &l.postNorm, &l.qNorm, &l.kNorm} {
		n.Each(f)
	}
	l.in.Each(f)
	l.kv.Each(f)
	l.o.Each(f)
	l.mlp.Each(f)
	f(&l.rope.Freqs)
	f(&l.invFreq)
}
