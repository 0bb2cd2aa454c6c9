package dflash

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/godflash/godflash/internal/controller"
	"github.com/godflash/godflash/internal/resolve"
	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen"
	"github.com/godflash/godflash/qwen/chat"
	"github.com/godflash/godflash/qwen/tokenizer"
)

// Options are the choices of Open; nil and zero values are the defaults.
type Options struct {
	// Draft is the drafter's folder or its owner/name[@revision] on the hub.
	// Empty: see Open.
	Draft string
	// Download allows Open to fetch from the hub what is neither a folder nor in
	// the hub's cache.
	Download bool
	// Hub says where models named owner/name are looked up. Nil: what the
	// environment says.
	Hub *HubOptions
	// NoDraft loads no drafter.
	NoDraft bool
	// BlockSize is the most rows of a block, the anchor's included: 2 to the
	// checkpoint's block_size. 0: the checkpoint's. Within it each cycle has as
	// many rows as promise the most tokens per second by the durations and the
	// acceptance of cycles before, 1 where drafting does not pay;
	// Request.BlockSize fixes them.
	BlockSize int
	// DraftBits stores the drafter's linear maps in 4 or 8 bits. 0: 4 where the
	// target is quantised and runs on a GPU, else the file's precision, which
	// KeepDraftPrecision asks for in any case. The tokens do not depend on it,
	// the number of right drafts does. Files that are quantised already stay as they
	// are; 4 and 8 are refused for them.
	DraftBits int
	// PrefillChunk is the number of prompt tokens that one forward pass takes.
	// 0: DefaultPrefillChunk.
	PrefillChunk int
	// PrefixCacheBytes bounds the memory of the engine's cache of prefixes, from
	// which a prompt takes up the state of a text that begins alike, whichever
	// session ran it. 0: DefaultPrefixCacheBytes. Negative: no cache.
	PrefixCacheBytes int64
	// RewindBytes bounds the memory of the recurrent states that each session of a
	// hybrid model keeps, so that a prompt that parts from the session's text can
	// go on from near there. 0: DefaultRewindBytes. Negative: none are kept.
	RewindBytes int64
	// IgnoreMemory loads weights that need more memory than there is. The
	// machine then swaps or ends the process.
	IgnoreMemory bool
	// Progress hears how far Open is in reading the weights: after each layer.
	// It must return soon and not use the library. HubOptions.Progress is that of
	// downloads.
	Progress func(LoadProgress)
	// Library is where to run. Nil: mlx.Open(MLX), closed with the engine.
	Library *mlx.Library
	// MLX are the options of the library that Open opens itself.
	MLX *mlx.Options
	// Logger hears what may interest an operator. Nil: silent.
	Logger *slog.Logger
}

// LoadProgress says how far Open is.
type LoadProgress struct {
	// Drafter is false for the target, which is read first.
	Drafter bool
	// Done and Total are bytes of the files of the one that is being read.
	Done, Total int64
}

// Bounds of memory.
const (
	DefaultPrefixCacheBytes = 1 << 30
	DefaultRewindBytes      = 512 << 20
)

// KeepDraftPrecision in Options.DraftBits keeps the drafter's precision.
const KeepDraftPrecision = -1

// Engine is a target with its drafter, tokenizer and chat template. It may be
// used from any goroutine.
type Engine struct {
	lib      *mlx.Library
	ownLib   bool
	model    *qwen.Model
	target   Target
	drafter  *Drafter
	tok      *tokenizer.Tokenizer
	template *chat.Template
	noChat   error // why template is nil
	eos      []int
	controls []string // special tokens, which messages may not spell
	opts     Options
	info     Info
	identity [2]string    // of the target's files and the drafter's, see identity
	prefixes *prefixCache // nil for none
	turn     struct {     // see closeTurn
		once sync.Once
		end  []int
	}

	formats formats

	mu          sync.Mutex
	sessions    map[*Session]struct{}
	controllers map[workload]*controller.Controller
	closed      bool
}

// Info describes an open engine.
type Info struct {
	Dir       string // the target's folder
	Repo      string // owner/name of a model from the hub, else empty
	Commit    string // its revision, resolved
	ModelType string // as in config.json
	// Quantization is a short name such as "4-bit affine", empty for dense weights.
	Quantization string
	TargetInfo
	EOSTokenIDs []int // union of generation_config, config and tokenizer
	// Sampling is what generation_config.json recommends, greedy where it
	// recommends nothing. No request takes it unless it says so.
	Sampling Sampling

	DraftDir    string // empty without a drafter
	DraftRepo   string
	DraftCommit string
	DraftWhy    string // how the drafter was chosen
	DraftLayers int
	DraftBits   int // of its linear maps, 0 for the file's precision
	// DraftQuantization is a short name of how the drafter's files are quantised,
	// empty for dense weights.
	DraftQuantization string
	BlockSize         int // the most rows of a block, 0 without a drafter
	TargetLayerIDs    []int
	DraftContextLen   int    // positions that the drafter knows
	DraftOff          string // why there is no drafter, empty with one

	Device     mlx.DeviceType
	MLXVersion string
}

// Open opens a model: a folder with config.json, *.safetensors, tokenizer.json
// and the rest as Hugging Face lays them out, or a pair's folder that holds such
// a target and its drafter in target and draft, or owner/name[@revision] on the
// hub. What is in the hub's cache is used without any network; nothing is
// downloaded unless Options.Download says so.
//
// The drafter is Options.Draft, else the folder draft, else the one that the
// library knows for the model's name, where a folder of its name lies beside the
// model's, or it is cached or may be downloaded; Info says which and why. Without
// one decoding is plain.
//
// Configurations, tokenizer, template and the files' headers are checked, the pair
// against each other too, and memory, before a weight is read. All that is wrong is
// one *ModelError, which wraps ErrConfig, ErrUnsupported, ErrPairMismatch or
// ErrMemory and names the file and both values. Without a native library the error
// wraps mlx.ErrLibraryNotFound.
func Open(ctx context.Context, model string, o *Options) (*Engine, error) {
	e := &Engine{sessions: map[*Session]struct{}{}, controllers: map[workload]*controller.Controller{}}
	if o != nil {
		e.opts = *o
	}
	if e.opts.Logger == nil {
		e.opts.Logger = slog.New(slog.DiscardHandler)
	}
	e.lib = e.opts.Library
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if e.opts.PrefillChunk < 0 {
		return nil, fmt.Errorf("%w: PrefillChunk is %d", ErrRequest, e.opts.PrefillChunk)
	}
	if b := e.opts.DraftBits; b != 0 && b != 4 && b != 8 && b != KeepDraftPrecision {
		return nil, fmt.Errorf("%w: DraftBits is %d; 4, 8, 0 and KeepDraftPrecision are possible", ErrRequest, b)
	}
	if e.opts.NoDraft && (e.opts.Draft != "" || e.opts.DraftBits != 0) {
		return nil, fmt.Errorf("%w: NoDraft together with Draft or DraftBits", ErrRequest)
	}
	found, err := e.find(ctx, model)
	if err != nil {
		return nil, err
	}
	cfg, draft, err := e.check(ctx, &found)
	if err != nil {
		return nil, err
	}
	if err := e.loadModels(ctx, &found, cfg, draft); err != nil {
		e.Close()
		if errors.Is(err, ErrMemory) {
			err = &ModelError{Dir: found.Target.Dir, Problems: []error{err}}
		}
		return nil, err
	}
	e.describe(&found, cfg)
	e.opts.Logger.Info("model open", "dir", e.info.Dir, "commit", e.info.Commit, "model_type", cfg.ModelType, "quantization", cfg.Quantization,
		"draft", e.info.DraftDir, "draft_commit", e.info.DraftCommit, "draft_why", found.Why,
		"block_size", e.info.BlockSize, "draft_off", e.info.DraftOff, "device", e.info.Device, "mlx", e.info.MLXVersion)
	return e, nil
}

// checkBlock checks a block length that somebody asked for; 0 is the default.
func checkBlock(asked, most int) error {
	if asked != 0 && (asked < 2 || asked > most) {
		return fmt.Errorf("%w: block size %d; the drafter was trained for up to %d rows and at least 2 are needed", ErrRequest, asked, most)
	}
	return nil
}

func (e *Engine) loadModels(ctx context.Context, f *resolve.Found, cfg *qwen.Config, draft *draftFiles) error {
	if e.lib == nil {
		lib, err := mlx.Open(e.opts.MLX)
		if err != nil {
			return err
		}
		e.lib, e.ownLib = lib, true
	}
	bits := e.draftBits(cfg, draft)
	var reserve int64 // for the drafter, so that the pair is refused before the larger half of it is read
	if draft != nil {
		reserve = draft.memory(e.lib, bits)
	}
	var err error
	e.model, err = qwen.Load(ctx, e.lib, f.Target.Dir, &qwen.LoadOptions{Reserve: reserve, IgnoreMemory: e.opts.IgnoreMemory, Logger: e.opts.Logger, Progress: e.progress(false)})
	if err != nil {
		return err
	}
	e.target = QwenTarget(e.model)
	if limit := orDefault(e.opts.PrefixCacheBytes, DefaultPrefixCacheBytes); limit > 0 {
		e.prefixes = newPrefixCache(e.lib, limit)
	}
	if f.Draft.Dir != "" {
		e.drafter, err = LoadDrafter(ctx, e.lib, f.Draft.Dir, &DraftOptions{Bits: bits, IgnoreMemory: e.opts.IgnoreMemory, Logger: e.opts.Logger, Progress: e.progress(true)})
		if err != nil {
			return err
		}
		if e.identity[1], err = identity(f.Draft.Dir); err != nil {
			return err
		}
		e.identity[1] += fmt.Sprintf("/%d bits", bits)
	}
	e.identity[0], err = identity(f.Target.Dir)
	return err
}

func (e *Engine) progress(drafter bool) func(done, total int64) {
	if e.opts.Progress == nil {
		return nil
	}
	return func(done, total int64) { e.opts.Progress(LoadProgress{Drafter: drafter, Done: done, Total: total}) }
}

// draftBits is the precision of the drafter. A quantised target on a GPU is so
// fast that a drafter in half precision would be what the cycle waits for. On
// the CPU a quantised product is slower than a dense one.
func (e *Engine) draftBits(cfg *qwen.Config, draft *draftFiles) int {
	switch {
	case draft != nil && len(draft.plan) > 0:
		return 0 // the files' own
	case e.opts.DraftBits == KeepDraftPrecision:
		return 0
	case e.opts.DraftBits != 0:
		return e.opts.DraftBits
	case e.lib.Device() == mlx.DeviceGPU && cfg.Quantization != "":
		return 4
	}
	return 0
}

func (e *Engine) describe(f *resolve.Found, cfg *qwen.Config) {
	e.info = Info{
		Dir: f.Target.Dir, Repo: f.Target.Repo, Commit: f.Target.Commit, ModelType: cfg.ModelType, Quantization: cfg.Quantization, TargetInfo: e.target.Info(), EOSTokenIDs: e.eos,
		Device: e.lib.Device(), MLXVersion: e.lib.Version(),
	}
	g := cfg.Generation
	e.info.Sampling = Sampling{Temperature: g.Temperature, TopK: g.TopK, TopP: g.TopP, MinP: g.MinP}
	if e.drafter == nil {
		e.info.DraftOff = f.Why
		return
	}
	c := e.drafter.cfg
	e.info.DraftDir, e.info.DraftRepo, e.info.DraftCommit, e.info.DraftWhy = f.Draft.Dir, f.Draft.Repo, f.Draft.Commit, f.Why
	e.info.DraftLayers, e.info.DraftBits, e.info.DraftQuantization = c.NumHiddenLayers, e.drafter.bits, c.Quantization
	e.info.BlockSize = c.BlockSize
	if e.opts.BlockSize != 0 {
		e.info.BlockSize = e.opts.BlockSize
	}
	e.info.TargetLayerIDs, e.info.DraftContextLen = c.TargetLayerIDs, c.MaxPositionEmbeddings
}

// Info describes the engine. Treat its slices as read-only.
func (e *Engine) Info() Info { return e.info }

// Tokenizer is the model's tokenizer.
func (e *Engine) Tokenizer() *tokenizer.Tokenizer { return e.tok }

// TokenBytes are the bytes that a token stands for, which need not be whole
// characters; nil for an id outside the vocabulary.
func (e *Engine) TokenBytes(id int) []byte { return e.tok.Bytes(id) }

// Template is the model's chat template, nil for a model without one.
func (e *Engine) Template() *chat.Template { return e.template }

// Target is the loaded model, for use below the session.
func (e *Engine) Target() Target { return e.target }

// Drafter is the loaded drafter, nil without one.
func (e *Engine) Drafter() *Drafter { return e.drafter }

// NewDecoder makes a sequence to be driven by hand. Close it before the engine.
func (e *Engine) NewDecoder() (*Decoder, error) {
	return NewDecoder(e.target, e.drafter, &DecoderOptions{PrefillChunk: e.opts.PrefillChunk})
}

// NewSession makes a session. Close it when done; closing the engine closes
// the sessions that are left.
func (e *Engine) NewSession() (*Session, error) {
	d, err := e.NewDecoder()
	if err != nil {
		return nil, err
	}
	return e.register(d, nil)
}

// register makes a session of a decoder whose text is tokens. After an error the
// decoder is closed.
func (e *Engine) register(d *Decoder, tokens []int) (*Session, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		d.Close()
		return nil, fmt.Errorf("engine: %w", ErrClosed)
	}
	d.past.budget = max(0, orDefault(e.opts.RewindBytes, DefaultRewindBytes))
	s := &Session{engine: e, decoder: d, chooser: e.chooser, tokens: tokens}
	e.sessions[s] = struct{}{}
	return s, nil
}

func orDefault(v, other int64) int64 {
	if v == 0 {
		return other
	}
	return v
}

// CacheStats describe the cache of prefixes; the zero value where there is none.
func (e *Engine) CacheStats() CacheStats { return e.prefixes.snapshot() }

// Close ends the sessions and frees the weights; a running generation ends
// with ErrClosed after its cycle. It may be called more than once.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	var sessions []*Session
	for s := range e.sessions {
		sessions = append(sessions, s)
	}
	e.mu.Unlock()

	var errs []error
	for _, s := range sessions {
		errs = append(errs, s.Close())
	}
	errs = append(errs, e.prefixes.close())
	if e.drafter != nil {
		errs = append(errs, e.drafter.Close())
	}
	if e.model != nil {
		errs = append(errs, e.model.Close())
	}
	if e.ownLib {
		errs = append(errs, e.lib.Close())
	}
	return errors.Join(errs...)
}

func (e *Engine) forget(s *Session) {
	e.mu.Lock()
	delete(e.sessions, s)
	e.mu.Unlock()
}
