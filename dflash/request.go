package dflash

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/godflash/godflash/qwen/chat"
)

// Request is one generation. Exactly one of Prompt, Messages, Text and IDs is
// set, or with Continue none of them.
//
// In Prompt, System, Messages and Tools the model's special tokens (such as
// <|im_end|>) are ordinary text: whoever writes a message cannot end his turn
// and begin another's. In Text they are what they spell. Bytes that are not UTF-8
// count as U+FFFD, one for each maximal bad part.
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
	// Stop are texts that end the generation, wherever they are written: in the
	// thought and in tool calls too. The first of them to be complete counts, of
	// those that end at one place the longest; it and what follows are not handed
	// out.
	Stop []string
	// IgnoreEOS goes on after the model's end-of-sequence ids; StopIDs and Stop
	// still count.
	IgnoreEOS bool

	// Sampling draws tokens at random; the zero value is greedy.
	Sampling Sampling
	// Penalties lower the scores of tokens that were there before.
	Penalties Penalties
	// LogitBias is added to the scores of the ids that it names, before
	// Penalties: -100 to 100 each.
	LogitBias map[int]float64
	// BannedIDs are never chosen. They must leave one id at least.
	BannedIDs []int
	// LogProbs fills Token.LogProb. The values do not depend on drafting (on the
	// CPU bit for bit).
	LogProbs bool
	// TopLogProbs fills Token.Top with so many tokens, up to MaxTopLogProbs.
	TopLogProbs int

	// Format makes the content JSON. Nil: any text.
	Format *Format
	// ToolChoice says whether the reply may or must call one of Tools.
	ToolChoice ToolChoice
	// ThinkingBudget is the number of tokens after which a thought is closed, with
	// the tokens that the chat template closes it with, and the answer begins.
	// These tokens are handed out as well and count in MaxTokens. Stop texts do
	// not match them. It needs Prompt or Messages. 0: no bound.
	ThinkingBudget int

	// Continue appends the prompt to what the session holds, Session.Tokens,
	// instead of starting anew. With Prompt or Messages the turn that the session
	// ends with is closed first, as the template closes a reply. Without any
	// prompt the generation goes on where the last one ended.
	Continue bool
	// NoCache runs the whole prompt, but for what Continue goes on from, and leaves
	// nothing in the engine's cache of prefixes.
	NoCache bool
	// Progress is called after each chunk of the prompt with the number of its
	// tokens that are done, reused ones included, and their total. It must return
	// soon and not use the session.
	Progress func(done, total int)

	// NoDraft decodes one token at a time. It excludes BlockSize.
	NoDraft bool
	// BlockSize is the number of rows of a block for this request, which the
	// controller then leaves alone. 0: the engine's, as the controller sees fit.
	BlockSize int

	constraint constraint // beside those that the fields make; tests set it
}

// Penalties lower the scores of tokens that the sequence holds already, drafted
// ones before the row included. The zero value penalises nothing. The
// completion is what this request generates: after Continue, what the session
// held before is prompt.
type Penalties struct {
	// Repetition divides positive scores and multiplies negative ones of every
	// token of prompt and completion (CTRL, arXiv 1909.05858): 0.1 to 10. 0 and 1
	// do nothing.
	Repetition float64
	// Frequency is subtracted once for each time that the completion holds the
	// token: -2 to 2.
	Frequency float64
	// Presence is subtracted once if the completion holds the token: -2 to 2.
	Presence float64
}

// MaxTopLogProbs is the most alternatives that TopLogProbs may ask for.
const MaxTopLogProbs = 20

// Format says what the content of a reply, reasoning apart, must be.
type Format struct {
	// JSON asks for one JSON object.
	JSON bool
	// Schema is a JSON schema that the content satisfies. Features that are not
	// supported are refused by name.
	Schema json.RawMessage
	// StrictTools makes the arguments of tool calls satisfy the schemas in
	// Request.Tools.
	StrictTools bool
}

// ToolChoice says whether the reply calls tools. The zero value leaves it to the
// model.
//
// A reply that must begin with a call has no thought: where Thinking is nil it
// is switched off, and true is refused. The beginning of the call is handed out
// like the model's tokens and counts in MaxTokens. The model writes the rest,
// which may all the same turn out not to be a call, see chat.Splitter.
type ToolChoice struct {
	// None keeps the tools from the template, and nothing in the reply is a call.
	None bool
	// Required makes the reply begin with a call, of a tool that the model names
	// if there are several.
	Required bool
	// Name makes the reply begin with a call of that tool.
	Name string
}

// Token is one step of a generation.
type Token struct {
	ID int
	// Position is the token's index in the sequence, prompt included.
	Position int
	// Drafted says that the drafter proposed it and the target agreed.
	Drafted bool
	// Drafts is the number of drafts that the token's cycle verified: 0 for plain
	// steps, forced tokens and the first token, which the prompt's pass gives. A
	// cycle's last token is not a draft, unless the generation ends with it; with
	// Drafts it is the target's word where the drafter was wrong or at its end.
	Drafts int
	// Text is what is new and complete: never half a letter, and nothing that may
	// still become a stop text, so it may be empty. Control tokens and the token
	// that ends the generation have none of their own.
	Text string
	// Deltas is the new text split into reasoning, content and tool calls, for
	// requests with Prompt or Messages. See chat.Splitter for the rules.
	Deltas []chat.Delta
	// LogProb is the natural logarithm of the target's probability of the token,
	// before penalties, bias, temperature and filters. See Request.LogProbs.
	LogProb float64
	// Top are the most probable tokens at this position, in order, of equal ones
	// the lower id first. See Request.TopLogProbs.
	Top []TokenLogProb
	// Finish is set on the last token.
	Finish FinishReason
	// StopText is the one of Request.Stop that the last token completed.
	StopText string
}

// TokenLogProb is a token and the logarithm of its probability.
type TokenLogProb struct {
	ID      int
	LogProb float64
}

// plan is a request made ready.
type plan struct {
	ids []int // the whole text, with what the session holds already
	// border is a position near the end of ids, less than its length, at which
	// another text that begins alike is likely to part.
	border int
	stop   map[int]bool
	limit  int  // tokens to generate at most, at least 1
	rows   int  // of a block at most, 1 without drafting
	fixed  bool // the rows are not the controller's choice

	stopTexts []string
	chat      bool  // the prompt is a conversation
	thinking  bool  // and ends inside a thought
	thought   int   // tokens after which it is closed, 0 for no bound
	closing   []int // the tokens that close it
	begin     []int // the tokens that the reply must begin with

	scoring    scoring
	constraint constraint // nil: any token
}

// prepare checks a request and renders its prompt, which follows the tokens held
// if the request says so. No model work is done.
func (e *Engine) prepare(r *Request, held []int) (*plan, error) {
	if err := r.checkChoice(); err != nil {
		return nil, err
	}
	ids, err := e.promptIDs(r)
	if r.Continue && len(held) > 0 {
		if errors.Is(err, ErrEmptyPrompt) && r.IDs == nil {
			err = nil
		}
		if r.chatForm() {
			held = e.closeTurn(held)
		}
		ids = slices.Concat(held, ids)
	}
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
	case r.MaxTokens < 0:
		return nil, fmt.Errorf("%w: MaxTokens is %d", ErrRequest, r.MaxTokens)
	}
	scoring := scoring{r.Sampling, r.Penalties, r.LogitBias, r.BannedIDs, r.LogProbs, r.TopLogProbs}
	if err := scoring.check(vocab); err != nil {
		return nil, err
	}
	p := &plan{scoring: scoring, ids: ids, border: e.border(ids), stop: map[int]bool{}, limit: context - len(ids), rows: e.info.BlockSize}
	p.fixed = r.Sampling.Rejection && !r.Sampling.Greedy() // a controller's choices depend on time, and the text on them
	if r.MaxTokens > 0 {
		p.limit = min(p.limit, r.MaxTokens)
	}
	if r.BlockSize != 0 {
		if r.NoDraft {
			return nil, fmt.Errorf("%w: BlockSize is %d, together with NoDraft", ErrRequest, r.BlockSize)
		}
		if e.drafter == nil {
			return nil, fmt.Errorf("%w: BlockSize is %d, but there is no drafter", ErrRequest, r.BlockSize)
		}
		if err := checkBlock(r.BlockSize, e.drafter.cfg.BlockSize); err != nil {
			return nil, err
		}
		p.rows, p.fixed = r.BlockSize, true
	}
	if r.NoDraft || e.drafter == nil {
		p.rows, p.fixed = 1, true
	}
	if !r.IgnoreEOS {
		for _, id := range e.eos {
			p.stop[id] = true
		}
	}
	for _, id := range r.StopIDs {
		p.stop[id] = true
	}
	if err := e.planText(p, r); err != nil {
		return nil, err
	}
	if err := e.planFormat(p, r); err != nil {
		return nil, err
	}
	p.constrain(r.constraint)
	return p, nil
}

// borderRange is how near the end of a prompt its border is looked for.
const borderRange = 64

// border is where the last control token of a prompt stands: a chat's next turn
// has the text before it, and may have another one after it, because templates
// drop thoughts from replies that are no longer the last. Without control tokens
// near the end it is the last token, which alone is run again when the same
// prompt comes once more.
func (e *Engine) border(ids []int) int {
	for i := len(ids) - 1; i > 0 && i > len(ids)-borderRange; i-- {
		if e.tok.IsSpecial(ids[i]) {
			return i
		}
	}
	return len(ids) - 1
}

// closeTurn gives held with what the chat template writes at the end of a reply,
// as far as held does not end with it already.
func (e *Engine) closeTurn(held []int) []int {
	e.turn.once.Do(func() {
		messages := []chat.Message{{Role: "user", Content: "a"}, {Role: "assistant", Content: "b"}}
		ids, err := e.messageIDs(messages, &chat.Options{})
		if err != nil {
			return // a template that knows no replies closes none
		}
		for i := len(ids) - 1; i >= 0; i-- {
			if slices.Contains(e.eos, ids[i]) {
				e.turn.end = ids[i:]
				break
			}
		}
	})
	end := e.turn.end
	for k := min(len(end), len(held)); k >= 0; k-- {
		if slices.Equal(held[len(held)-k:], end[:k]) {
			return slices.Concat(held, end[k:])
		}
	}
	return held
}

// chatForm says whether the chat template renders the prompt.
func (r *Request) chatForm() bool { return r.Prompt != "" || r.Messages != nil }

// promptIDs turns whichever form the prompt has into token ids.
func (e *Engine) promptIDs(r *Request) ([]int, error) {
	forms := 0
	for _, set := range []bool{r.Prompt != "", r.Messages != nil, r.Text != "", r.IDs != nil} {
		if set {
			forms++
		}
	}
	switch {
	case forms == 0:
		return nil, ErrEmptyPrompt
	case forms > 1:
		return nil, fmt.Errorf("%w: more than one of Prompt, Messages, Text and IDs", ErrRequest)
	case r.System != "" && r.Prompt == "":
		return nil, fmt.Errorf("%w: System goes with Prompt; in Messages it is the first message", ErrRequest)
	case !r.chatForm() && (r.Tools != nil || r.Thinking != nil):
		return nil, fmt.Errorf("%w: Tools and Thinking are the chat template's and need Prompt or Messages", ErrRequest)
	case r.IDs != nil:
		return r.IDs, nil
	case r.Text != "":
		ids, ok := e.tok.EncodeUpTo(r.Text, e.mostTokens())
		if !ok {
			return nil, e.tooLong()
		}
		return ids, nil
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
	ids, err := e.messageIDs(messages, &chat.Options{Tools: r.offered(), AddGenerationPrompt: true, EnableThinking: r.thinks()})
	if err == nil && len(ids) == 0 {
		err = fmt.Errorf("%w: the chat template in %s makes nothing of the messages", ErrConfig, e.info.Dir)
	}
	return ids, err
}

// messageIDs renders messages. What a message spells is text, never a control
// token.
func (e *Engine) messageIDs(messages []chat.Message, o *chat.Options) ([]int, error) {
	segments, err := e.template.RenderSegments(messages, o, e.controls)
	if err != nil {
		return nil, err
	}
	var ids []int
	for _, segment := range segments {
		encode := e.tok.EncodeUpTo
		if segment.Literal {
			encode = e.tok.EncodeOrdinaryUpTo
		}
		more, ok := encode(segment.Text, e.mostTokens()-len(ids))
		if !ok {
			return nil, e.tooLong()
		}
		ids = append(ids, more...)
	}
	return ids, nil
}

// mostTokens is where counting a prompt's tokens ends. Up to there an error tells
// how many they are.
func (e *Engine) mostTokens() int { return 2 * e.info.ContextLength }

func (e *Engine) tooLong() error {
	return fmt.Errorf("%w: the prompt has more than %d tokens, the model %d positions and one must be left", ErrContextLength, e.mostTokens(), e.info.ContextLength)
}
