package dflash

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/godflash/godflash/mlx"
)

// Session is a text that goes on, and the model's state of it. A generation
// replaces the text, or with Request.Continue follows it; the state of what the
// new text has in common with the one before, or with one in the engine's cache
// of prefixes, is not computed again. The result is that of a fresh session, on
// the CPU bit for bit.
//
// A generation that failed, was cancelled or broken off leaves a session that can
// be used at once: its text is then the prompt and the tokens that were handed
// out, or, where there was none, the text from before.
type Session struct {
	engine  *Engine
	decoder *Decoder
	busy    atomic.Bool
	closed  atomic.Bool
	stats   atomic.Pointer[Stats]

	chooser func(*plan) chooser // the engine's

	mu     sync.Mutex
	tokens []int
}

// Tokens are the session's text: the prompt of the last generation and the
// tokens that it has handed out so far, with what was there before.
func (s *Session) Tokens() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int(nil), s.tokens...)
}

// held is Tokens without a copy, for whoever holds busy.
func (s *Session) held() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens[:len(s.tokens):len(s.tokens)]
}

func (s *Session) setTokens(tokens []int) {
	s.mu.Lock()
	s.tokens = tokens
	s.mu.Unlock()
}

// push adds a token that is about to be handed out.
func (s *Session) push(id int) {
	s.mu.Lock()
	s.tokens = append(s.tokens, id)
	s.mu.Unlock()
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
		defer g.tell()
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

// PromptTokens is the number of tokens that the request's prompt has, with
// Continue of those that are appended, which it needs: what a session holds is not
// known here. No model work is done; the errors are those that Generate would give
// for the request.
func (e *Engine) PromptTokens(r Request) (int, error) {
	p, err := e.prepare(&r, nil)
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
	text    text
	stats   Stats
	next    nextRows // rows of the cycles
}

// run returns nil when the consumer broke off.
func (g *generation) run(ctx context.Context, r *Request, yield func(Token, error) bool) error {
	e, d := g.session.engine, g.decoder
	if g.session.closed.Load() {
		return fmt.Errorf("session: %w", ErrClosed)
	}
	var err error
	if g.plan, err = e.prepare(r, g.session.held()); err != nil {
		return err
	}
	if g.text, err = e.newText(g.plan, r); err != nil {
		return err
	}
	g.next = nextRows{chooser: g.session.chooser(g.plan), most: g.plan.rows}
	g.stats.PromptTokens = len(g.plan.ids)

	first, err := g.start(ctx, r)
	if err != nil {
		return err
	}
	g.session.setTokens(g.plan.ids[:len(g.plan.ids):len(g.plan.ids)])
	c := cycle{tokens: []int{first}, probs: d.anchorProbs}
	if g.plan.begin != nil {
		if c, err = g.begin(ctx); err != nil {
			return err
		}
	}
	for {
		for i, id := range c.tokens {
			token, err := g.token(id, c.forced)
			if err != nil {
				return err
			}
			g.describe(&token, c, i)
			if i+1 == len(c.tokens) && token.Finish != "" {
				g.finish(ctx, token)
			}
			g.session.push(id)
			more := yield(token, nil)
			if token.Finish != "" {
				g.learn(ctx, r)
				return nil
			}
			if !more {
				return nil
			}
		}
		if g.overdue() {
			c, err = g.close(ctx)
		} else {
			c, err = g.cycle(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// start makes the sequence the prompt, as far as possible by going on from what
// is known, and gives the first token.
func (g *generation) start(ctx context.Context, r *Request) (int, error) {
	d, ids := g.decoder, g.plan.ids
	d.mu.Lock()
	defer d.mu.Unlock()
	start := time.Now()
	if err := d.lib.ResetPeak(ctx); err != nil {
		return 0, err
	}
	known, err := d.resume(ctx, ids, resumeOptions{
		noDraft: r.NoDraft,
		fresh:   r.NoCache && !r.Continue,
		cache:   g.session.prefixes(r),
		scorer:  d.newScorer(g.plan.scoring),
	})
	if err != nil {
		return 0, err
	}
	g.stats.CachedTokens = known
	d.constraint = g.plan.constraint
	g.stats.Seed = d.seed()
	o := prefillOptions{border: g.plan.border, instead: g.plan.begin, cache: g.session.prefixes(r)}
	if r.Progress != nil {
		o.done = func(n int) { r.Progress(known+n, len(ids)) }
	}
	first, err := d.prefill(ctx, ids[known:], o)
	g.stats.Prefill = time.Since(start)
	g.stats.DraftOff = d.draftOff
	if err == nil && d.constraint != nil && g.plan.begin == nil {
		err = d.constraint.advance([]int{first})
	}
	return first, err
}

// prefixes is the cache that a request uses, nil for none.
func (s *Session) prefixes(r *Request) *prefixCache {
	if r.NoCache {
		return nil
	}
	return s.engine.prefixes
}

// learn gives the engine's cache the text as far as it was handed out. The
// generation has ended well already, so that an error is only worth a line.
func (g *generation) learn(ctx context.Context, r *Request) {
	cache, d := g.session.prefixes(r), g.decoder
	if cache == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.usable() != nil || ctx.Err() != nil {
		return
	}
	err := d.settle(ctx)
	if err == nil {
		err = d.do(ctx, func(s *mlx.Scope) error {
			return cache.learn(s, d, d.reachTarget(common(d.past.rows, g.session.held())))
		})
	}
	if err != nil {
		g.session.engine.opts.Logger.Warn("a text was not kept for reuse", "error", err)
	}
}

// describe says what is known of the i-th token of a cycle.
func (g *generation) describe(t *Token, c cycle, i int) {
	t.Position = len(g.plan.ids) + g.stats.CompletionTokens - 1
	t.Drafted, t.Drafts = i < c.accepted, c.drafted
	if c.probs != nil {
		t.LogProb, t.Top = c.probs[i].logProb, c.probs[i].top
	}
}

// cycle runs one decode cycle and returns its tokens, cut at the first that
// ends the generation.
func (g *generation) cycle(ctx context.Context) (cycle, error) {
	c, err := g.round(func() (cycle, error) { return g.decode(ctx, g.budget()) })
	if err != nil {
		return cycle{}, err
	}
	g.stats.add(c)
	g.next.Record(c.drafted+1, c.right, c.spent.took)
	return c, nil
}

// round runs f, which gives the next tokens, counts its time and tells the
// constraint.
func (g *generation) round(f func() (cycle, error)) (cycle, error) {
	d := g.decoder
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return cycle{}, err
	}
	start := time.Now()
	c, err := f()
	if err == nil && d.constraint != nil {
		err = d.constraint.advance(c.tokens)
	}
	if err != nil {
		return cycle{}, err
	}
	g.stats.Decode += time.Since(start)
	g.stats.DraftOff = d.draftOff
	return c, nil
}

// decode runs one cycle for at most budget tokens.
func (g *generation) decode(ctx context.Context, budget int) (cycle, error) {
	d := g.decoder
	if !d.drafting {
		g.next.rows = 1
	}
	if d.pipelined {
		g.next.most = g.plan.rows
		c, ok, err := d.runPipelined(ctx, &g.next, budget)
		if err != nil {
			return cycle{}, err
		}
		if ok {
			c.keep(g.cut(c.tokens))
			return c, nil
		}
	}
	g.next.most = min(g.plan.rows, budget)
	return d.runCycle(ctx, min(g.next.take(), budget), g.cut)
}

// cut counts the choices up to the first that ends the generation. The block
// was cut at the budget already.
func (g *generation) cut(choices []int) int {
	n := len(choices)
	if i := slices.IndexFunc(choices, func(id int) bool { return g.plan.stop[id] }); i >= 0 {
		n = i + 1
	}
	if len(g.plan.stopTexts) == 0 {
		return n
	}
	if end := g.text.ends(choices[:n]); end > 0 && end < n {
		n = end
	}
	return n
}

// token counts an id as handed out and finds its text.
func (g *generation) token(id int, forced bool) (Token, error) {
	g.stats.CompletionTokens++
	t := Token{ID: id}
	if g.plan.stop[id] && !forced {
		t.Finish = FinishStop
	} else {
		thinking := g.text.thinking()
		piece, stop, err := g.text.push(id, forced)
		if err != nil {
			return Token{}, err
		}
		if thinking || g.text.thinking() {
			g.stats.ReasoningTokens++
		}
		t.Text = piece
		if stop >= 0 {
			t.Finish, t.StopText = FinishStop, g.plan.stopTexts[stop]
		}
	}
	if forced {
		g.stats.ForcedTokens++
	}
	if t.Finish == "" && g.stats.CompletionTokens == g.plan.limit {
		t.Finish = FinishLength
	}
	if t.Finish != "" && t.StopText == "" {
		t.Text += g.text.flush()
	}
	t.Deltas = g.text.split(t.Text, t.Finish != "")
	return t, nil
}

func (g *generation) finish(ctx context.Context, last Token) {
	g.stats.Finish, g.stats.StopText = last.Finish, last.StopText
	if m, err := g.decoder.lib.Memory(context.WithoutCancel(ctx)); err == nil {
		g.stats.PeakBytes = m.Peak
	}
	g.tell()
}

// tell makes the session's Stats those of now.
func (g *generation) tell() {
	g.stats.DraftPaused = g.next.paused(g.stats)
	st := g.stats
	g.session.stats.Store(&st)
}
