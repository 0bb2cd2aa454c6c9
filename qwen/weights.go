package qwen

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/internal/problems"
	"github.com/godflash/godflash/internal/replay"
	"github.com/godflash/godflash/internal/safetensors"
	"github.com/godflash/godflash/internal/weights"
	"github.com/godflash/godflash/mlx"
)

// LoadOptions are the choices of Load; nil and zero values are the defaults.
type LoadOptions struct {
	// Reserve is memory in bytes that must be left beside the weights, for what
	// is loaded after them.
	Reserve int64
	// IgnoreMemory loads weights that need more memory than there is. The
	// machine then swaps or ends the process.
	IgnoreMemory bool
	Logger       *slog.Logger // nil: silent
	// Progress is called after each layer with the bytes of the files that are
	// loaded by then, and their total. It runs on the library's thread: it must
	// return soon and not use the library.
	Progress func(done, total int64)
}

// Load reads a model folder: configuration and the files' headers first, so
// that everything wrong with them is said before a weight is read, then the
// weights. On the CPU they are widened to float32. Weights that need more memory
// than the device has are refused with ErrMemory.
//
// Two layouts are read: Hugging Face's, with raw norms and the convolution as
// [channels, 1, kernel], and MLX's, with the norms' one added and the
// convolution as [channels, kernel, 1].
func Load(ctx context.Context, lib *mlx.Library, dir string, o *LoadOptions) (*Model, error) {
	if o == nil {
		o = &LoadOptions{}
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	cfg, ck, err := check(ctx, lib, dir, o, log)
	if err != nil {
		return nil, err
	}
	m := &Model{cfg: cfg, lib: lib, weights: lib.NewScope("weights of " + dir), steps: replay.New(lib)}
	err = lib.Do(ctx, func(s *mlx.Scope) error { return m.read(ctx, s, ck, log, o.Progress) })
	if err != nil {
		m.weights.Close()
		return nil, fmt.Errorf("load %s: %w", dir, err)
	}
	return m, nil
}

// Check finds everything wrong with a model folder that Load would find before it
// reads a weight: in its configuration, in the files' headers, and, unless lib is
// nil, in the memory that there is. The error wraps all of it.
func Check(ctx context.Context, lib *mlx.Library, dir string, o *LoadOptions) (*Config, error) {
	if o == nil {
		o = &LoadOptions{}
	}
	cfg, _, err := check(ctx, lib, dir, o, slog.New(slog.DiscardHandler))
	return cfg, err
}

// check gives the configuration even where something else is wrong, unless it is
// wrong itself.
func check(ctx context.Context, lib *mlx.Library, dir string, o *LoadOptions, log *slog.Logger) (*Config, *checkpoint, error) {
	cfg, err := ReadConfig(dir)
	if err != nil {
		wrong := problems.List{err}
		_, err := safetensors.Open(dir)
		wrong.Add(err)
		return nil, nil, wrong.Err()
	}
	ck, err := openCheckpoint(dir, cfg, log)
	if err != nil {
		return cfg, nil, err
	}
	if lib != nil && !o.IgnoreMemory {
		need := weights.Resident(ck.Checkpoint, lib.Device(), normName, ck.plan, mlx.QuantizeOptions{})
		if err := weights.CheckMemory(ctx, lib, dir, need, o.Reserve); err != nil {
			return cfg, nil, err
		}
	}
	return cfg, ck, nil
}

// normName is the tensor whose dtype is that of the activations on a GPU.
const normName = "norm.weight"

// openCheckpoint reads the headers and compares them with the configuration.
func openCheckpoint(dir string, cfg *Config, log *slog.Logger) (*checkpoint, error) {
	files, err := safetensors.Open(dir)
	if err != nil {
		return nil, err
	}
	if files.IndexStale {
		log.Warn("model.safetensors.index.json names files that are not there; the tensors are all in the others", "dir", dir)
	}
	var ignored int
	ck, err := weights.Rename(files, func(name string) (string, bool) {
		to, ok := canonicalName(name)
		if ok && strings.HasPrefix(to, "lm_head.") && cfg.TieWordEmbeddings {
			ok = false // a left-over copy of the tied embedding
		}
		if !ok {
			ignored++
		}
		return to, ok
	})
	if err != nil {
		return nil, err
	}
	if ignored > 0 {
		log.Info("tensors that text generation does not use are left out", "dir", dir, "tensors", ignored)
	}
	if err := weights.Foreign(ck); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err) // all the names are others
	}
	c := &checkpoint{Checkpoint: ck}
	c.raw = !cfg.hybrid() || slices.ContainsFunc(slices.Collect(maps.Keys(ck.Tensors)), func(name string) bool {
		// MLX's layout ends in 1, a raw one in the kernel's length, which is
		// more. A mixture fails the check of shapes.
		shape := ck.Tensors[name].Shape
		return strings.HasSuffix(name, ".conv1d.weight") && len(shape) == 3 && shape[2] != 1
	})
	want := cfg.tensors(c)
	var wrong problems.List
	if !cfg.TieWordEmbeddings && !c.has("lm_head.weight") && !c.has("lm_head.scales") {
		wrong.Addf(ErrConfig, "%s: tie_word_embeddings is false or missing, but the files hold no lm_head.weight", dir)
		delete(want, "lm_head.weight")
	}
	if c.plan, err = cfg.quantization.Plan(ck, want); err != nil {
		wrong.Add(fmt.Errorf("%w: %w", ErrUnsupported, err))
	}
	wrong.Add(weights.Check(ck, want, c.plan))
	if len(wrong) == 0 {
		if err := cfg.checkExperts(c); err != nil {
			wrong.Addf(ErrUnsupported, "%s: %w", dir, err)
		}
	}
	if err := wrong.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// checkpoint is a folder's tensors under the model's names.
type checkpoint struct {
	*safetensors.Checkpoint
	raw  bool // Hugging Face's layout, not MLX's
	plan map[string]mlx.QuantizeOptions
}

func (c *checkpoint) has(name string) bool {
	_, ok := c.Tensors[name]
	return ok
}

// canonicalName strips the prefixes under which the text model lies in the
// various layouts; false for vision towers and multi-token prediction heads.
func canonicalName(name string) (string, bool) {
	for _, skip := range []string{"mtp.", "visual.", "vision_tower", "vision_model", "multi_modal_projector", "audio_tower"} {
		if strings.HasPrefix(name, skip) || strings.Contains(name, "."+skip) {
			return "", false
		}
	}
	for _, p := range []string{"model.language_model.model.", "language_model.model.", "model.language_model.", "language_model.", "model."} {
		if rest, ok := strings.CutPrefix(name, p); ok {
			return rest, true
		}
	}
	return name, true
}

// tensors lists every tensor of the model with its shape.
func (c *Config) tensors(ck *checkpoint) map[string][]int {
	h := c.HiddenSize
	want := map[string][]int{
		"embed_tokens.weight": {c.VocabSize, h},
		"norm.weight":         {h},
	}
	if !c.TieWordEmbeddings {
		want["lm_head.weight"] = []int{c.VocabSize, h}
	}
	for i, kind := range c.LayerTypes {
		p := layerPrefix(i)
		want[p+"input_layernorm.weight"] = []int{h}
		want[p+"post_attention_layernorm.weight"] = []int{h}
		if c.MoeLayers[i] {
			c.moeTensors(want, p+"mlp.", ck)
		} else {
			swigluTensors(want, p+"mlp.", h, c.IntermediateSize)
		}
		if kind == FullAttention {
			c.attentionTensors(want, p+"self_attn.")
		} else {
			c.deltaTensors(want, p+"linear_attn.", ck.raw)
		}
	}
	return want
}

func swigluTensors(want map[string][]int, p string, hidden, intermediate int) {
	want[p+"gate_proj.weight"] = []int{intermediate, hidden}
	want[p+"up_proj.weight"] = []int{intermediate, hidden}
	want[p+"down_proj.weight"] = []int{hidden, intermediate}
}

func (c *Config) attentionTensors(want map[string][]int, p string) {
	q := c.NumAttentionHeads * c.HeadDim
	kv := c.NumKeyValueHeads * c.HeadDim
	gate := 1
	if c.AttnOutputGate {
		gate = 2
	}
	want[p+"q_proj.weight"] = []int{gate * q, c.HiddenSize}
	want[p+"k_proj.weight"] = []int{kv, c.HiddenSize}
	want[p+"v_proj.weight"] = []int{kv, c.HiddenSize}
	want[p+"o_proj.weight"] = []int{c.HiddenSize, q}
	want[p+"q_norm.weight"] = []int{c.HeadDim}
	want[p+"k_norm.weight"] = []int{c.HeadDim}
}

func (c *Config) deltaTensors(want map[string][]int, p string, raw bool) {
	key := c.LinearNumKeyHeads * c.LinearKeyHeadDim
	value := c.LinearNumValueHeads * c.LinearValueHeadDim
	want[p+"in_proj_qkv.weight"] = []int{2*key + value, c.HiddenSize}
	want[p+"in_proj_z.weight"] = []int{value, c.HiddenSize}
	want[p+"in_proj_a.weight"] = []int{c.LinearNumValueHeads, c.HiddenSize}
	want[p+"in_proj_b.weight"] = []int{c.LinearNumValueHeads, c.HiddenSize}
	want[p+"out_proj.weight"] = []int{c.HiddenSize, value}
	want[p+"A_log"] = []int{c.LinearNumValueHeads}
	want[p+"dt_bias"] = []int{c.LinearNumValueHeads}
	want[p+"norm.weight"] = []int{c.LinearValueHeadDim}
	want[p+"conv1d.weight"] = []int{2*key + value, c.LinearConvKernelDim, 1}
	if raw {
		want[p+"conv1d.weight"] = []int{2*key + value, 1, c.LinearConvKernelDim}
	}
}

func (c *Config) headsShape() kernels.HeadsShape {
	return kernels.HeadsShape{
		Queries: c.NumAttentionHeads, Keys: c.NumKeyValueHeads, Dim: c.HeadDim, Rotated: c.RotaryDim(),
		Gated: c.AttnOutputGate, Eps: c.RMSNormEps,
	}
}

func (c *Config) deltaShape() kernels.DeltaShape {
	return kernels.DeltaShape{
		KeyHeads: c.LinearNumKeyHeads, ValueHeads: c.LinearNumValueHeads, KeyDim: c.LinearKeyHeadDim, ValueDim: c.LinearValueHeadDim,
		Taps: c.LinearConvKernelDim, Eps: c.RMSNormEps,
	}
}

func layerPrefix(i int) string { return "layers." + strconv.Itoa(i) + "." }

// read builds the head and the layers one by one: each is evaluated and its
// sources are given back before the next, so the peak is one layer above the
// result.
func (m *Model) read(ctx context.Context, s *mlx.Scope, ck *checkpoint, log *slog.Logger, progress func(done, total int64)) error {
	r, err := weights.Open(ctx, s, ck.Checkpoint, normName, ck.plan)
	if err != nil {
		return err
	}
	r.Progress = progress
	m.dtype = r.Dtype()
	set := kernels.New(ctx, m.weights, log)
	r.Kernels, m.set, m.choice = set, set, set.Choice()
	normOffset := 0.0
	if ck.raw && m.cfg.hybrid() {
		normOffset = 1
	}
	// The largest matrices come first: while they are widened and transposed
	// little else is there.
	err = r.Part(ctx, m.weights, func(r *weights.Reader, s *mlx.Scope) func(func(*mlx.Array)) {
		m.norm = r.Norm("norm", m.cfg.RMSNormEps, normOffset)
		if m.cfg.TieWordEmbeddings {
			m.head = r.Linear("embed_tokens")
		} else {
			m.head = r.Linear("lm_head")
			m.table = r.Embedding("embed_tokens")
		}
		m.head.Alone(s)
		return func(f func(*mlx.Array)) {
			m.norm.Each(f)
			m.head.Each(f)
			m.table.Each(f)
		}
	})
	if err != nil {
		return err
	}
	for _, name := range []string{"norm.", "embed_tokens.", "lm_head."} {
		r.Release(name)
	}
	m.layers = make([]layer, m.cfg.NumHiddenLayers)
	m.heads = set.Heads(m.cfg.headsShape())
	var rule *kernels.Delta
	if m.cfg.hybrid() {
		rule = set.Delta(m.cfg.deltaShape())
	}
	m.linked = set != nil
	for i := range m.layers {
		err := r.Part(ctx, m.weights, func(r *weights.Reader, s *mlx.Scope) func(func(*mlx.Array)) {
			b := builder{cfg: m.cfg, ck: ck, r: r, s: s, normOffset: normOffset, rule: rule, heads: m.heads}
			m.layers[i] = b.layer(i)
			m.linked = m.linked && m.layers[i].link(s)
			return m.layers[i].each
		})
		if err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
		r.Release(layerPrefix(i))
	}
	r.Release("")
	return nil
}

func (l *layer) each(f func(*mlx.Array)) {
	l.inputNorm.Each(f)
	l.postNorm.Each(f)
	if l.moe != nil {
		l.moe.Each(f)
	} else {
		l.mlp.Each(f)
	}
	if a := l.attention; a != nil {
		a.in.Each(f)
		a.o.Each(f)
		a.qNorm.Each(f)
		a.kNorm.Each(f)
		f(&a.rope.Freqs)
		f(&a.invFreq)
	}
	if d := l.delta; d != nil {
		d.in.Each(f)
		d.out.Each(f)
		f(&d.conv)
		for i := range d.taps {
			f(&d.taps[i])
		}
		f(&d.negA)
		f(&d.dtBias)
		d.norm.Each(f)
	}
}

// builder turns tensors into layers.
type builder struct {
	cfg *Config
	ck  *checkpoint
	r   *weights.Reader
	s   *mlx.Scope
	// normOffset is 1 where the file stores norms without their one. The
	// gated-delta layers' own norm and the drafter's norms never have it.
	normOffset float64
	rule       *kernels.Delta // of all gated-delta layers, nil where there are none
	heads      *kernels.Heads // of all attention layers, nil where operations serve
}

func (b *builder) norm(name string) nn.RMSNorm {
	return b.r.Norm(name, b.cfg.RMSNormEps, b.normOffset)
}

func (b *builder) layer(i int) layer {
	p := layerPrefix(i)
	l := layer{
		inputNorm: b.norm(p + "input_layernorm"),
		postNorm:  b.norm(p + "post_attention_layernorm"),
	}
	if b.cfg.MoeLayers[i] {
		l.moe = b.moe(p + "mlp.")
	} else {
		l.mlp = b.r.SwiGLU(p+"mlp", b.cfg.IntermediateSize)
	}
	if b.cfg.LayerTypes[i] == FullAttention {
		l.attention = b.attention(p + "self_attn.")
	} else {
		l.delta = b.delta(p + "linear_attn.")
	}
	return l
}

func (b *builder) attention(p string) *attention {
	c := b.cfg
	query := c.NumAttentionHeads * c.HeadDim
	if c.AttnOutputGate {
		query *= 2
	}
	key := c.NumKeyValueHeads * c.HeadDim
	a := &attention{
		in: nn.Pack(b.s, nn.Part{Linear: b.r.Linear(p + "q_proj"), Out: query},
			nn.Part{Linear: b.r.Linear(p + "k_proj"), Out: key}, nn.Part{Linear: b.r.Linear(p + "v_proj"), Out: key}),
		o:     b.r.Linear(p + "o_proj"),
		qNorm: b.norm(p + "q_norm"), kNorm: b.norm(p + "k_norm"),
		split: b.heads,
		gated: c.AttnOutputGate,
		heads: c.NumAttentionHeads, kvHeads: c.NumKeyValueHeads, dim: c.HeadDim,
		scale: nn.AttentionScale(c.HeadDim),
	}
	a.rope = nn.Rotation(b.s, c.RotaryDim(), c.RopeTheta, c.yarn, &a.qNorm, &a.kNorm)
	if a.split != nil {
		a.invFreq = kernels.InvFreq(b.s, a.rope)
	}
	return a
}

func (b *builder) delta(p string) *gatedDelta {
	c, s := b.cfg, b.s
	key, value := c.LinearNumKeyHeads*c.LinearKeyHeadDim, c.LinearNumValueHeads*c.LinearValueHeadDim
	d := &gatedDelta{
		in: nn.Pack(s,
			nn.Part{Linear: b.r.Linear(p + "in_proj_qkv"), Out: 2*key + value}, nn.Part{Linear: b.r.Linear(p + "in_proj_z"), Out: value},
			nn.Part{Linear: b.r.Linear(p + "in_proj_b"), Out: c.LinearNumValueHeads}, nn.Part{Linear: b.r.Linear(p + "in_proj_a"), Out: c.LinearNumValueHeads}),
		out:    b.r.Linear(p + "out_proj"),
		negA:   s.Neg(s.Exp(b.r.Float32(p + "A_log"))),
		dtBias: b.r.Float32(p + "dt_bias"),
		norm:   b.r.Norm(p+"norm", c.RMSNormEps, 0),
		rule:   b.rule,
	}
	kernel := s.Reshape(b.r.Array(p+"conv1d.weight"), 2*key+value, c.LinearConvKernelDim)
	if d.rule.OnDevice() {
		d.conv = s.Contiguous(s.Transpose(kernel))
		return d
	}
	for i := range c.LinearConvKernelDim {
		d.taps = append(d.taps, s.Contiguous(s.Reshape(s.SliceAxis(kernel, 1, i, i+1), 2*key+value)))
	}
	return d
}
