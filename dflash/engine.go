package dflash

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen"
	"github.com/godflash/godflash/qwen/chat"
	"github.com/godflash/godflash/qwen/tokenizer"
)

// Options are the choices of Open; nil and zero values are the defaults.
type Options struct {
	// Draft is the drafter's folder. Empty: the folder draft inside the
	// model's, or, in a pair's folder, beside target; none there means plain
	// decoding.
	Draft string
	// NoDraft loads no drafter.
	NoDraft bool
	// BlockSize is the number of rows of a block, the anchor's included: 2 to
	// the checkpoint's block_size. 0: the checkpoint's.
	BlockSize int
	// DraftBits stores the drafter's linear maps in 4 or 8 bits. 0: 4 where the
	// target is quantised and runs on a GPU, else the file's precision, which
	// KeepDraftPrecision asks for in any case. The tokens do not depend on it,
	// the number of right drafts does.
	DraftBits int
	// PrefillChunk is the number of prompt tokens that one forward pass takes.
	// 0: DefaultPrefillChunk.
	PrefillChunk int
	// Library is where to run. Nil: mlx.Open(MLX), closed with the engine.
	Library *mlx.Library
	// MLX are the options of the library that Open opens itself.
	MLX *mlx.Options
	// Logger hears what may interest an operator. Nil: silent.
	Logger *slog.Logger
}

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

	mu       sync.Mutex
	sessions map[*Session]struct{}
	closed   bool
}

// Info describes an open engine.
type Info struct {
	Dir       string // the target's folder
	ModelType string // as in config.json
	// Quantization is a short name such as "4-bit affine", empty for dense weights.
	Quantization string
	TargetInfo
	EOSTokenIDs []int // union of generation_config, config and tokenizer

	DraftDir        string // empty without a drafter
	DraftLayers     int
	DraftBits       int // of its linear maps, 0 for the file's precision
	BlockSize       int // rows of a block in use, 0 without a drafter
	TargetLayerIDs  []int
	DraftContextLen int    // positions that the drafter knows
	DraftOff        string // why there is no drafter, empty with one

	Device     mlx.DeviceType
	MLXVersion string
}

// Open opens a model folder: config.json, *.safetensors, tokenizer.json and
// the rest as Hugging Face lays them out, or a pair's folder that holds such a
// target and its drafter in target and draft.
//
// Configurations and the files' headers are checked, the pair against each
// other too, before a weight is read. Errors wrap ErrConfig, ErrUnsupported,
// ErrPairMismatch or mlx.ErrLibraryNotFound and name the file and both values.
func Open(ctx context.Context, dir string, o *Options) (*Engine, error) {
	e := &Engine{sessions: map[*Session]struct{}{}}
	if o != nil {
		e.opts = *o
	}
	if e.opts.Logger == nil {
		e.opts.Logger = slog.New(slog.DiscardHandler)
	}
	if e.opts.PrefillChunk < 0 {
		return nil, fmt.Errorf("%w: PrefillChunk is %d", ErrRequest, e.opts.PrefillChunk)
	}
	if b := e.opts.DraftBits; b != 0 && b != 4 && b != 8 && b != KeepDraftPrecision {
		return nil, fmt.Errorf("%w: DraftBits is %d; 4, 8, 0 and KeepDraftPrecision are possible", ErrRequest, b)
	}
	if e.opts.NoDraft && e.opts.Draft != "" {
		return nil, fmt.Errorf("%w: both NoDraft and a Draft folder", ErrRequest)
	}
	targetDir, draftDir, err := e.folders(dir)
	if err != nil {
		return nil, err
	}
	cfg, err := e.check(targetDir, draftDir)
	if err != nil {
		return nil, err
	}
	if err := e.loadText(targetDir, cfg); err != nil {
		return nil, err
	}
	if err := e.loadModels(ctx, targetDir, draftDir); err != nil {
		e.Close()
		return nil, err
	}
	e.describe(targetDir, draftDir, cfg)
	e.opts.Logger.Info("model open", "dir", targetDir, "model_type", cfg.ModelType, "draft", draftDir,
		"block_size", e.info.BlockSize, "draft_off", e.info.DraftOff, "device", e.info.Device, "mlx", e.info.MLXVersion)
	return e, nil
}

// folders finds the target's and the drafter's folder; draft is empty for none.
func (e *Engine) folders(dir string) (target, draft string, err error) {
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("model folder: %w", err)
	case !info.IsDir():
		return "", "", fmt.Errorf("%w: %s is a file; give the model's folder", ErrConfig, dir)
	}
	target = dir
	if !isFile(filepath.Join(dir, "config.json")) && isFile(filepath.Join(dir, "target", "config.json")) {
		target = filepath.Join(dir, "target")
	}
	switch {
	case e.opts.NoDraft:
		return target, "", nil
	case e.opts.Draft != "":
		if info, err := os.Stat(e.opts.Draft); err != nil {
			return "", "", fmt.Errorf("drafter folder: %w", err)
		} else if !info.IsDir() {
			return "", "", fmt.Errorf("%w: %s is a file; give the drafter's folder", ErrConfig, e.opts.Draft)
		}
		return target, e.opts.Draft, nil
	}
	if d := filepath.Join(dir, "draft"); isFile(filepath.Join(d, "config.json")) {
		draft = d
	}
	return target, draft, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// check compares everything that can be compared without weights.
func (e *Engine) check(target, draft string) (*qwen.Config, error) {
	cfg, err := qwen.ReadConfig(target)
	if err != nil {
		return nil, err
	}
	if draft == "" {
		if e.opts.BlockSize != 0 {
			return nil, fmt.Errorf("%w: BlockSize is %d, but there is no drafter", ErrRequest, e.opts.BlockSize)
		}
		return cfg, nil
	}
	dc, err := ReadDraftConfig(draft)
	if err != nil {
		return nil, err
	}
	if err := dc.CheckPair(qwenInfo(cfg)); err != nil {
		return nil, fmt.Errorf("%s and %s: %w", draft, target, err)
	}
	if _, err := openDraft(draft, dc); err != nil {
		return nil, err
	}
	return cfg, checkBlock(e.opts.BlockSize, dc.BlockSize)
}

// checkBlock checks a block length that somebody asked for; 0 is the default.
func checkBlock(asked, most int) error {
	if asked != 0 && (asked < 2 || asked > most) {
		return fmt.Errorf("%w: block size %d; the drafter was trained for up to %d rows and at least 2 are needed", ErrRequest, asked, most)
	}
	return nil
}

func (e *Engine) loadText(dir string, cfg *qwen.Config) error {
	var err error
	if e.tok, err = tokenizer.Load(dir); err != nil {
		return err
	}
	if n := e.tok.VocabSize(); n > cfg.VocabSize {
		return fmt.Errorf("%w: %s: the tokenizer has ids up to %d, vocab_size is %d", ErrConfig, dir, n-1, cfg.VocabSize)
	}
	e.eos = slices.Concat(cfg.EOSTokenIDs, e.tok.EOS())
	slices.Sort(e.eos)
	e.eos = slices.Compact(e.eos)
	for id := range e.tok.VocabSize() {
		if token, ok := e.tok.Token(id); ok && e.tok.IsSpecial(id) {
			e.controls = append(e.controls, token)
		}
	}
	e.template, err = chat.Load(dir)
	if errors.Is(err, chat.ErrNoTemplate) {
		e.noChat = err // a base model: text and ids still work
		return nil
	}
	return err
}

func (e *Engine) loadModels(ctx context.Context, target, draft string) error {
	e.lib = e.opts.Library
	if e.lib == nil {
		lib, err := mlx.Open(e.opts.MLX)
		if err != nil {
			return err
		}
		e.lib, e.ownLib = lib, true
	}
	var err error
	e.model, err = qwen.Load(ctx, e.lib, target, &qwen.LoadOptions{Logger: e.opts.Logger})
	if err != nil {
		return err
	}
	e.target = QwenTarget(e.model)
	if draft != "" {
		e.drafter, err = LoadDrafter(ctx, e.lib, draft, &DraftOptions{Bits: e.draftBits(), Logger: e.opts.Logger})
	}
	return err
}

// draftBits is the precision of the drafter. A quantised target on a GPU is so
// fast that a drafter in half precision would be what the cycle waits for. On
// the CPU a quantised product is slower than a dense one.
func (e *Engine) draftBits() int {
	switch {
	case e.opts.DraftBits == KeepDraftPrecision:
		return 0
	case e.opts.DraftBits != 0:
		return e.opts.DraftBits
	case e.lib.Device() == mlx.DeviceGPU && e.model.Config().Quantization != "":
		return 4
	}
	return 0
}

func (e *Engine) describe(target, draft string, cfg *qwen.Config) {
	e.info = Info{
		Dir: target, ModelType: cfg.ModelType, Quantization: cfg.Quantization, TargetInfo: e.target.Info(), EOSTokenIDs: e.eos,
		Device: e.lib.Device(), MLXVersion: e.lib.Version(),
	}
	if e.drafter == nil {
		e.info.DraftOff = "no drafter found: none was named and the model's folder has no draft folder"
		if e.opts.NoDraft {
			e.info.DraftOff = "switched off"
		}
		return
	}
	c := e.drafter.cfg
	e.info.DraftDir, e.info.DraftLayers, e.info.DraftBits = draft, c.NumHiddenLayers, e.drafter.bits
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
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, fmt.Errorf("engine: %w", ErrClosed)
	}
	d, err := e.NewDecoder()
	if err != nil {
		return nil, err
	}
	s := &Session{engine: e, decoder: d}
	e.sessions[s] = struct{}{}
	return s, nil
}

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
