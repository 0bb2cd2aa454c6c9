package dflash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/godflash/godflash/internal/problems"
	"github.com/godflash/godflash/internal/resolve"
	"github.com/godflash/godflash/qwen"
	"github.com/godflash/godflash/qwen/chat"
	"github.com/godflash/godflash/qwen/tokenizer"
)

// ModelError is all that is wrong with a model's folder and its drafter's, found
// before a weight is read. errors.Is and errors.As look into every problem.
type ModelError struct {
	Dir      string  // the target's folder
	Problems []error // at least one
}

// Error is the one problem's text, or a line for each of several.
func (e *ModelError) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].Error()
	}
	lines := []string{fmt.Sprintf("%d things are wrong with %s:", len(e.Problems), e.Dir)}
	for _, p := range e.Problems {
		lines = append(lines, "- "+p.Error())
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the problems.
func (e *ModelError) Unwrap() []error { return e.Problems }

// check compares everything that can be compared without weights, and gives the
// target's configuration and the drafter's headers, nil without a drafter. A
// drafter that nobody asked for and that does not fit is left out. Where something
// is wrong, memory is compared only if the caller gave a library: opening one may
// take long.
func (e *Engine) check(ctx context.Context, f *resolve.Found) (*qwen.Config, *draftFiles, error) {
	var wrong problems.List
	options := qwen.LoadOptions{IgnoreMemory: e.opts.IgnoreMemory}
	cfg, filesErr := qwen.Check(ctx, nil, f.Target.Dir, &options)
	wrong.Add(filesErr)
	wrong.Add(e.readText(f.Target.Dir, cfg))
	var draft *draftFiles
	if f.Draft.Dir != "" {
		var err error
		if draft, err = e.checkDraft(f, cfg); err != nil && !f.Asked {
			e.opts.Logger.Warn("decoding without a drafter", "model", f.Target.Dir, "drafter", f.Draft.Dir, "why", f.Why, "error", err)
			f.Draft, f.Why = resolve.Place{}, fmt.Sprintf("%s, but it cannot be used: %v", f.Why, err)
			draft, err = nil, nil
		}
		wrong.Add(err)
	}
	if e.opts.BlockSize != 0 && f.Draft.Dir == "" {
		wrong.Addf(ErrRequest, "BlockSize is %d, but there is no drafter: %s", e.opts.BlockSize, f.Why)
	}
	if len(wrong) == 0 {
		return cfg, draft, nil // the memory is loadModels' affair
	}
	if e.lib != nil && filesErr == nil {
		if draft != nil {
			options.Reserve = draft.memory(e.lib, e.draftBits(cfg, draft))
		}
		_, err := qwen.Check(ctx, e.lib, f.Target.Dir, &options)
		wrong.Add(err)
	}
	return nil, nil, &ModelError{Dir: f.Target.Dir, Problems: problems.All(wrong.Err())}
}

// checkDraft compares a drafter with its target, whose configuration is nil where
// it could not be read.
func (e *Engine) checkDraft(f *resolve.Found, cfg *qwen.Config) (*draftFiles, error) {
	draft := f.Draft.Dir
	dc, err := ReadDraftConfig(draft)
	if err != nil {
		return nil, err
	}
	var wrong problems.List
	if cfg != nil {
		if err := dc.CheckPair(qwenInfo(cfg)); err != nil {
			wrong.Add(fmt.Errorf("%s and %s: %w", draft, f.Target.Dir, err))
		}
	}
	ck, err := openDraft(draft, dc)
	wrong.Add(err)
	wrong.Add(checkBlock(e.opts.BlockSize, dc.BlockSize))
	if e.opts.DraftBits > 0 && dc.Quantization != "" {
		wrong.Addf(ErrRequest, "DraftBits is %d, but the files of %s are quantised already (%s)", e.opts.DraftBits, draft, dc.Quantization)
	}
	return ck, wrong.Err()
}

// readText reads tokenizer and chat template; cfg is nil where it is not known.
func (e *Engine) readText(dir string, cfg *qwen.Config) error {
	var wrong problems.List
	var err error
	if e.tok, err = tokenizer.Load(dir); err != nil {
		wrong.Add(err)
	} else {
		if cfg != nil {
			if n := e.tok.VocabSize(); n > cfg.VocabSize {
				wrong.Addf(ErrConfig, "%s: the tokenizer has ids up to %d, vocab_size is %d", dir, n-1, cfg.VocabSize)
			}
			e.eos = slices.Concat(cfg.EOSTokenIDs, e.tok.EOS())
		}
		slices.Sort(e.eos)
		e.eos = slices.Compact(e.eos)
		for id := range e.tok.VocabSize() {
			if token, ok := e.tok.Token(id); ok && e.tok.IsSpecial(id) {
				e.controls = append(e.controls, token)
			}
		}
	}
	e.template, err = chat.Load(dir)
	if errors.Is(err, chat.ErrNoTemplate) {
		e.noChat, err = err, nil // a base model: text and ids still work
	}
	wrong.Add(err)
	return wrong.Err()
}
