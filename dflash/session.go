package dflash

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/godflash/godflash/qwen/tokenizer"
)

// Session runs generations one after the other. Each starts from an empty
// sequence; the memory of the one before serves again.
type Session struct {
	engine  *Engine
	decoder *Decoder
	busy    atomic.Bool
	closed  atomic.Bool
	stats   atomic.Pointer[Stats]
}

// Close frees the session's state. A running generation ends with ErrClosed.
func (s *Session) Close() error {
	s.closed.Store(true)
	s.engine.forget(s)
	return s.decoder.Close()
}

// Stats describe the last generation, complete or broken off; while one runs,
// the one before.
func (s *Session) Stats() Stats {
	if st := s.stats.Load(); st != nil {
		return *st
	}
	return Stats{}
}

// Generate runs a request and yields its tokens as they are known. The last
// token has Finish set; an error ends the sequence and comes with a zero
// Token. Breaking out of the loop ends the generation at once and leaves the
// session ready for the next.
//
// A cancelled context ends it with the context's error within one cycle or one
// chunk of the prompt. A second Generate while one runs yields ErrBusy.
func (s *Session) Generate(ctx context.Context, r Request) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		if !s.busy.CompareAndSwap(false, true) {
			yield(Token{}, ErrBusy)
			return
		}
		defer s.busy.Store(false)
		g := &generation{session: s, decoder: s.decoder}
		defer func() {
			st := g.stats
			s.stats.Store(&st)
		}()
		if err := g.run(ctx, &r, yield); err != nil {
			if s.closed.Load() && !errors.Is(err, ErrClosed) {
				err = fmt.Errorf("session: %w", ErrClosed)
			}
			yield(Token{}, err)
		}
	}
}

// Generate runs one request in a session of its own. Where stats is not nil, it
// is filled when the sequence ends, however it ends.
func (e *Engine) Generate(ctx context.Context, r Request, stats *Stats) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		s, err := e.NewSession()
		if err != nil {
			yield(Token{}, err)
			return
		}
		defer s.Close()
		for token, err := range s.Generate(ctx, r) {
			if !yield(token, err) {
				break
			}
		}
		if stats != nil {
			*stats = s.Stats()
		}
	}
}

// PromptTokens is the number of tokens that the request's prompt has. No model
// work is done; the errors are those that Generate would give for the request.
func (e *Engine) PromptTokens(r Request) (int, error) {
	p, err := e.prepare(&r)
	if err != nil {
		return 0, err
	}
	return len(p.ids), nil
}

// generation is one request in a session.
type generation struct {
	session *Session
	decoder *Decoder
	plan    *plan
	stream  *tokenizer.Stream
	stats   Stats
}

// run returns nil when the consumer broke off.
func (g *generation) run(ctx context.Context, r *Request, yield func(Token, error) bool) error {
	e, d := g.session.engine, g.decoder
	if g.session.closed.Load() {
		return fmt.Errorf("session: %w", ErrClosed)
	}
	var err error
	if g.plan, err = e.prepare(r); err != nil {
		return err
	}
	g.stream = e.tok.Stream(tokenizer.StreamOptions{SkipSpecial: true})
	g.stats.PromptTokens = len(g.plan.ids)

	d.mu.Lock()
	first, err := g.prefill(ctx, r)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	c := cycle{tokens: []int{first}, probs: d.anchorProbs}
	for {
		for i, id := range c.tokens {
			token, err := g.token(id)
			if err != nil {
				return err
			}
			g.describe(&token, c, i)
			if i+1 == len(c.tokens) && token.Finish != "" {
				g.finish(ctx, token.Finish)
			}
			if !yield(token, nil) || token.Finish != "" {
				return nil
			}
		}
		if c, err = g.cycle(ctx); err != nil {
			return err
		}
	}
}

// prefill starts an empty sequence and gives the first token.
func (g *generation) prefill(ctx context.Context, r *Request) (int, error) {
	d := g.decoder
	start := time.Now()
	if err := d.reset(ctx); err != nil {
		return 0, err
	}
	d.scorer = newScorer(g.plan.scoring, d.info.VocabSize, d.owner)
	d.constraint = g.plan.constraint
	g.stats.Seed = d.seed()
	if r.NoDraft {
		d.stopDrafting("switched off")
	}
	if err := d.lib.ResetPeak(ctx); err != nil {
		return 0, err
	}
	first, err := d.prefill(ctx, g.plan.ids)
	g.stats.Prefill = time.Since(start)
	g.stats.DraftOff = d.draftOff
	if err == nil && d.constraint != nil {
		err = d.constraint.advance([]int{first})
	}
	return first, err
}

// describe says what is known of the i-th token of a cycle.
func (g *generation) describe(t *Token, c cycle, i int) {
	t.Position = len(g.plan.ids) + g.stats.CompletionTokens - 1
	t.Drafted = i < c.accepted
	if c.probs != nil {
		t.LogProb, t.Top = c.probs[i].logProb, c.probs[i].top
	}
}

// cycle runs one decode cycle and returns its tokens, cut at the first that
// ends the generation.
func (g *generation) cycle(ctx context.Context) (cycle, error) {
	d := g.decoder
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return cycle{}, err
	}
	start := time.Now()
	c, err := g.decode(ctx, g.plan.limit-g.stats.CompletionTokens)
	if err == nil && d.constraint != nil {
		err = d.constraint.advance(c.tokens)
	}
	if err != nil {
		return cycle{}, err
	}
	g.stats.Decode += time.Since(start)
	g.stats.DraftOff = d.draftOff
	g.stats.Cycles++
	g.stats.Drafted += c.drafted
	g.stats.Accepted += c.accepted
	g.stats.AcceptedPerCycle = append(g.stats.AcceptedPerCycle, c.accepted)
	return c, nil
}

// decode runs one cycle for at most budget tokens.
func (g *generation) decode(ctx context.Context, budget int) (cycle, error) {
	d := g.decoder
	if d.pipelined {
		c, ok, err := d.runPipelined(ctx, g.plan.rows, budget)
		if err != nil {
			return cycle{}, err
		}
		if ok {
			c.keep(g.cut(c.tokens))
			return c, nil
		}
	}
	return d.runCycle(ctx, min(g.plan.rows, budget), g.cut)
}

// cut counts the choices up to the first that ends the generation. The block
// was cut at the budget already.
func (g *generation) cut(choices []int) int {
	for i, id := range choices {
		if g.plan.stop[id] {
			return i + 1
		}
	}
	return len(choices)
}

// token counts an id as handed out and finds its text.
func (g *generation) token(id int) (Token, error) {
	g.stats.CompletionTokens++
	t := Token{ID: id}
	switch {
	case g.plan.stop[id]:
		t.Finish = FinishStop
	case g.stats.CompletionTokens == g.plan.limit:
		t.Finish = FinishLength
	}
	if t.Finish != FinishStop {
		text, err := g.stream.Push(id)
		// Rows of a padded vocabulary stand for no text.
		if err != nil && !errors.Is(err, tokenizer.ErrUnknownID) {
			return Token{}, err
		}
		t.Text = text
	}
	if t.Finish != "" {
		t.Text += g.stream.Flush()
	}
	return t, nil
}

func (g *generation) finish(ctx context.Context, why FinishReason) {
	g.stats.Finish = why
	if m, err := g.decoder.lib.Memory(context.WithoutCancel(ctx)); err == nil {
		g.stats.PeakBytes = m.Peak
	}
	st := g.stats
	g.session.stats.Store(&st)
}
