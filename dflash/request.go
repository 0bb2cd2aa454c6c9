package dflash

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/godflash/godflash/qwen/chat"
)

// Request is one generation. Exactly one of Prompt, Messages, Text and IDs is
// set.
//
// In Prompt, System, Messages and Tools the model's special tokens (such as
// <|im_end|>) are ordinary text: whoever writes a message cannot end his turn
// and begin another's. In Text they are what they spell.
type Request struct {
	// Prompt is a user's turn, rendered by the model's chat template.
	Prompt string
	// System is a system turn before Prompt.
	System string
	// Messages are a whole conversation, rendered by the chat template.
	Messages []chat.Message
	// Tools are JSON schemas of functions that the template offers to the
	// model, with Prompt or Messages.
	Tools []json.RawMessage
	// Thinking switches the model's reasoning where the template knows
	// enable_thinking. Nil: the template's default.
	Thinking *bool

	// Text is encoded as it stands, without a template.
	Text string
	// IDs are token ids, taken as they stand.
	IDs []int

	// MaxTokens bounds the completion. 0: up to the end of the model's context.
	MaxTokens int
	// StopIDs end the generation like the model's own end-of-sequence ids.
	StopIDs []int
	// IgnoreEOS goes on after the model's end-of-sequence ids; StopIDs still
	// count.
	IgnoreEOS bool

	// Sampling draws tokens at random; the zero value is greedy.
	Sampling Sampling

	// NoDraft decodes one token at a time.
	NoDraft bool
	// BlockSize is the number of rows of a block for this request. 0: the
	// engine's.
	BlockSize int
}

// Token is one step of a generation.
type Token struct {
	ID int
	// Text is what is new and complete: never half a letter, so it may be
	// empty. Control tokens and the token that ends the generation have none.
	Text string
	// Finish is set on the last token.
	Finish FinishReason
}

// plan is a request made ready.
type plan struct {
	ids   []int
	stop  map[int]bool
	limit int // tokens to generate at most, at least 1
	rows  int // of a block, 1 without drafting
}

// prepare checks a request and renders its prompt. No model work is done.
func (e *Engine) prepare(r *Request) (*plan, error) {
	ids, err := e.promptIDs(r)
	if err != nil {
		return nil, err
	}
	vocab, context := e.info.VocabSize, e.info.ContextLength
	outside := func(id int) bool { return id < 0 || id >= vocab }
	if i := slices.IndexFunc(ids, outside); i >= 0 {
		return nil, fmt.Errorf("%w: prompt id %d at %d is outside the vocabulary of %d", ErrRequest, ids[i], i, vocab)
	}
	if i := slices.IndexFunc(r.StopIDs, outside); i >= 0 {
		return nil, fmt.Errorf("%w: stop id %d is outside the vocabulary of %d", ErrRequest, r.StopIDs[i], vocab)
	}
	switch {
	case len(ids) == 0:
		return nil, ErrEmptyPrompt
	case len(ids) >= context:
		return nil, fmt.Errorf("%w: the prompt has %d tokens, the model %d positions and one must be left", ErrContextLength, len(ids), context)
	case r.Sampling.check() != nil:
		return nil, r.Sampling.check()
	case r.MaxTokens < 0:
		return nil, fmt.Errorf("%w: MaxTokens is %d", ErrRequest, r.MaxTokens)
	}
	p := &plan{ids: ids, stop: map[int]bool{}, limit: context - len(ids), rows: e.info.BlockSize}
	if r.MaxTokens > 0 {
		p.limit = min(p.limit, r.MaxTokens)
	}
	if r.BlockSize != 0 {
		if e.drafter == nil {
			return nil, fmt.Errorf("%w: BlockSize is %d, but there is no drafter", ErrRequest, r.BlockSize)
		}
		if err := checkBlock(r.BlockSize, e.drafter.cfg.BlockSize); err != nil {
			return nil, err
		}
		p.rows = r.BlockSize
	}
	if r.NoDraft || e.drafter == nil {
		p.rows = 1
	}
	if !r.IgnoreEOS {
		for _, id := range e.eos {
			p.stop[id] = true
		}
	}
	for _, id := range r.StopIDs {
		p.stop[id] = true
	}
	return p, nil
}

// promptIDs turns whichever form the prompt has into token ids.
func (e *Engine) promptIDs(r *Request) ([]int, error) {
	forms := 0
	for _, set := range []bool{r.Prompt != "", r.Messages != nil, r.Text != "", r.IDs != nil} {
		if set {
			forms++
		}
	}
	chatForm := r.Prompt != "" || r.Messages != nil
	switch {
	case forms == 0:
		return nil, ErrEmptyPrompt
	case forms > 1:
		return nil, fmt.Errorf("%w: more than one of Prompt, Messages, Text and IDs", ErrRequest)
	case r.System != "" && r.Prompt == "":
		return nil, fmt.Errorf("%w: System goes with Prompt; in Messages it is the first message", ErrRequest)
	case !chatForm && (r.Tools != nil || r.Thinking != nil):
		return nil, fmt.Errorf("%w: Tools and Thinking are the chat template's and need Prompt or Messages", ErrRequest)
	case r.IDs != nil:
		return r.IDs, nil
	case r.Text != "":
		return e.tok.Encode(r.Text), nil
	case e.template == nil:
		return nil, fmt.Errorf("%w: use Text for a model without a chat template: %w", ErrRequest, e.noChat)
	}
	messages := r.Messages
	if r.Prompt != "" {
		if r.System != "" {
			messages = append(messages, chat.Message{Role: "system", Content: r.System})
		}
		messages = append(messages, chat.Message{Role: "user", Content: r.Prompt})
	}
	segments, err := e.template.RenderSegments(messages, &chat.Options{Tools: r.Tools, AddGenerationPrompt: true, EnableThinking: r.Thinking}, e.controls)
	if err != nil {
		return nil, err
	}
	var ids []int
	for _, segment := range segments {
		if segment.Literal {
			ids = append(ids, e.tok.EncodeOrdinary(segment.Text)...)
		} else {
			ids = append(ids, e.tok.Encode(segment.Text)...)
		}
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%w: the chat template in %s makes nothing of the messages", ErrConfig, e.info.Dir)
	}
	return ids, nil
}
