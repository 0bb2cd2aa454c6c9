package dflashtest

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/qwen/chat"
)

// Engine plays scripts. The zero value answers every request with its end. It
// may be used from any goroutine; the fields are set before it is used.
type Engine struct {
	// Script gives the steps of a reply, which ends with FinishStop after the
	// last of them. Nil: none.
	Script func(r dflash.Request) []Step
	// Check refuses requests, after the engine's own checks. Nil: none.
	Check func(r dflash.Request) error
	// About is what Info gives; a ContextLength of 0 stands for 4096.
	About dflash.Info

	mu       sync.Mutex
	requests []dflash.Request
	ids      map[string]int
	texts    []string
	running  int
	steps    int
	closed   bool
}

// Step is one token of a script.
type Step struct {
	// Text is the token's text. Empty: that of the content among Deltas.
	Text string
	// Deltas are what the token adds to the reply. Nil: Text as content.
	Deltas []chat.Delta
	// Drafted says that the token was a draft that held.
	Drafted bool
	// Drafts is the number of drafts of the token's cycle.
	Drafts int
	// LogProb and Top are handed out where the request asks for them.
	LogProb float64
	Top     []Alternative
	// Finish ends the reply with this token.
	Finish dflash.FinishReason
	// StopText is the request's text that ended it.
	StopText string

	// Delay passes before the token is known.
	Delay time.Duration
	// Gate holds the token back until something can be received from it.
	Gate <-chan struct{}
	// Err ends the generation instead of a token.
	Err error
	// Panic is thrown instead of a token.
	Panic any
}

// Alternative is a token that might have been chosen.
type Alternative struct {
	Text    string
	LogProb float64
}

// Always is a script that does not depend on the request.
func Always(steps ...Step) func(dflash.Request) []Step {
	return func(dflash.Request) []Step { return steps }
}

// Content makes one token of content of each text.
func Content(texts ...string) []Step {
	return deltas(chat.Delta{Kind: chat.DeltaContent}, texts)
}

// Reasoning makes one token of the thought of each text.
func Reasoning(texts ...string) []Step {
	return deltas(chat.Delta{Kind: chat.DeltaReasoning}, texts)
}

// Call makes the tokens of a tool call: one with its name, one for each piece of
// its arguments, and one that ends it. The first call of a reply has index 0.
func Call(index int, name string, arguments ...string) []Step {
	d := chat.Delta{Kind: chat.DeltaToolCall, Call: index}
	steps := append([]Step{{Text: "<tool_call>" + name}}, deltas(d, arguments)...)
	steps = append(steps, Step{Text: "</tool_call>"})
	d.Name = name
	steps[0].Deltas = []chat.Delta{d}
	d.Name, d.End = "", chat.CallDone
	steps[len(steps)-1].Deltas = []chat.Delta{d}
	return steps
}

func deltas(d chat.Delta, texts []string) []Step {
	steps := make([]Step, len(texts))
	for i, text := range texts {
		d.Text = text
		steps[i] = Step{Text: text, Deltas: []chat.Delta{d}}
	}
	return steps
}

// Info describes the engine.
func (e *Engine) Info() dflash.Info {
	info := e.About
	if info.ContextLength == 0 {
		info.ContextLength = 4096
	}
	return info
}

// PromptTokens counts words: those of Prompt, System, Text and the messages,
// and one for each message; or the ids. It gives the errors that depend on the
// prompt's form alone, then those of Check.
func (e *Engine) PromptTokens(r dflash.Request) (int, error) {
	forms := 0
	for _, set := range []bool{r.Prompt != "", r.Messages != nil, r.Text != "", r.IDs != nil} {
		if set {
			forms++
		}
	}
	n := len(r.IDs) + len(strings.Fields(r.Text)) + len(strings.Fields(r.Prompt)) + len(strings.Fields(r.System))
	for _, m := range r.Messages {
		text, err := m.Text()
		if err != nil {
			return 0, err
		}
		n += 1 + len(strings.Fields(text))
	}
	if r.Text != "" {
		n = max(n, 1)
	}
	context := e.Info().ContextLength
	switch {
	case forms == 0, n == 0:
		return 0, dflash.ErrEmptyPrompt
	case forms > 1:
		return 0, fmt.Errorf("%w: more than one of Prompt, Messages, Text and IDs", dflash.ErrRequest)
	case n >= context:
		return 0, fmt.Errorf("%w: the prompt has %d tokens, the model %d positions and one must be left", dflash.ErrContextLength, n, context)
	case e.Check != nil:
		if err := e.Check(r); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// Generate plays the script of a request, up to MaxTokens tokens. A token that
// ends a script has no text, like an end-of-sequence token.
func (e *Engine) Generate(ctx context.Context, r dflash.Request, stats *dflash.Stats) iter.Seq2[dflash.Token, error] {
	return func(yield func(dflash.Token, error) bool) {
		e.mu.Lock()
		e.requests = append(e.requests, r)
		e.running++
		e.mu.Unlock()
		var st dflash.Stats
		defer func() {
			e.mu.Lock()
			e.running--
			e.mu.Unlock()
			if stats != nil {
				*stats = st
			}
		}()
		if err := e.play(ctx, &r, &st, yield); err != nil {
			yield(dflash.Token{}, err)
		}
	}
}

// play returns nil when the reply is complete or the consumer broke off.
func (e *Engine) play(ctx context.Context, r *dflash.Request, st *dflash.Stats, yield func(dflash.Token, error) bool) error {
	n, err := e.PromptTokens(*r)
	if err != nil {
		return err
	}
	st.PromptTokens = n
	var steps []Step
	if e.Script != nil {
		steps = e.Script(*r)
	}
	steps = append(slices.Clip(steps), Step{Finish: dflash.FinishStop})
	limit := e.Info().ContextLength - n
	if r.MaxTokens > 0 {
		limit = min(limit, r.MaxTokens)
	}
	began := time.Now()
	held := 0 // drafts of the cycle that is not ended
	for i := range steps {
		s := &steps[i]
		if err := e.wait(ctx, s); err != nil {
			return err
		}
		if s.Panic != nil {
			panic(s.Panic)
		}
		token := e.token(r, s, n+i)
		st.CompletionTokens++
		if i == 0 {
			if r.Progress != nil {
				r.Progress(n, n)
			}
			st.Prefill = time.Since(began)
		} else {
			st.Decode = time.Since(began) - st.Prefill
			held = count(st, s, held)
		}
		if slices.ContainsFunc(token.Deltas, func(d chat.Delta) bool { return d.Kind == chat.DeltaReasoning }) {
			st.ReasoningTokens++
		}
		if token.Finish == "" && st.CompletionTokens == limit {
			token.Finish = dflash.FinishLength
		}
		st.Finish, st.StopText = token.Finish, token.StopText
		if !yield(token, nil) || token.Finish != "" {
			return nil
		}
	}
	return nil
}

// count books a token after the first: a draft that held belongs to the cycle
// that another token ends. It takes and gives the number of those in the cycle.
func count(st *dflash.Stats, s *Step, held int) int {
	st.Drafted++
	if s.Drafted {
		st.Accepted++
		return held + 1
	}
	st.Cycles++
	st.AcceptedPerCycle = append(st.AcceptedPerCycle, held)
	return 0
}

func (e *Engine) wait(ctx context.Context, s *Step) error {
	if s.Delay > 0 {
		timer := time.NewTimer(s.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if s.Gate != nil {
		select {
		case <-s.Gate:
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.Err != nil {
		return s.Err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return fmt.Errorf("engine: %w", dflash.ErrClosed)
	}
	e.steps++
	return nil
}

func (e *Engine) token(r *dflash.Request, s *Step, position int) dflash.Token {
	text := s.Text
	if text == "" {
		for _, d := range s.Deltas {
			text += d.Text
		}
	}
	t := dflash.Token{ID: e.id(text), Position: position, Text: text, Deltas: s.Deltas, Drafted: s.Drafted, Drafts: s.Drafts, Finish: s.Finish, StopText: s.StopText}
	switch chatForm := r.Prompt != "" || r.Messages != nil; {
	case !chatForm:
		t.Deltas = nil
	case t.Deltas == nil && text != "":
		t.Deltas = []chat.Delta{{Kind: chat.DeltaContent, Text: text}}
	}
	if r.LogProbs {
		t.LogProb = s.LogProb
	}
	for _, a := range s.Top[:min(len(s.Top), r.TopLogProbs)] {
		t.Top = append(t.Top, dflash.TokenLogProb{ID: e.id(a.Text), LogProb: a.LogProb})
	}
	return t
}

// id gives each text an id of its own.
func (e *Engine) id(text string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	id, ok := e.ids[text]
	if !ok {
		if e.ids == nil {
			e.ids = map[string]int{}
		}
		id = len(e.texts)
		e.ids[text] = id
		e.texts = append(e.texts, text)
	}
	return id
}

// TokenBytes are the bytes of a token that was handed out, nil for another id.
func (e *Engine) TokenBytes(id int) []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	if id < 0 || id >= len(e.texts) {
		return nil
	}
	return []byte(e.texts[id])
}

// Requests are those that Generate was called with, in order.
func (e *Engine) Requests() []dflash.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.requests)
}

// Running is the number of generations under way.
func (e *Engine) Running() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running
}

// Steps is the number of tokens made so far.
func (e *Engine) Steps() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.steps
}

// Close ends the generations that run, and those that begin later, with
// dflash.ErrClosed.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	return nil
}
