package openai

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/qwen/chat"
)

// headerDelay is how long a stream waits for its first token before the header
// goes out: what fails at once is then answered with its own status.
const headerDelay = 50 * time.Millisecond

// output writes a reply in one endpoint's form.
type output interface {
	// whole is the answer of a request that does not stream.
	whole(r *reply) any
	// begin writes the events before the first token, piece those of one token,
	// end those after the last, and failed what ends a stream early.
	begin(s *stream)
	piece(s *stream, r *reply, p *piece)
	end(s *stream, r *reply)
	failed(s *stream, e *apiError)
}

// piece is what one token adds.
type piece struct {
	token    *dflash.Token
	deltas   []chat.Delta
	logprobs []logprob // one, or none where they are not asked for
}

// event is what the generating goroutine tells the writing one. Exactly one of
// its fields is set.
type event struct {
	token *dflash.Token
	err   error
}

// admit runs f for a request that has a place in the queue.
func (c *call) admit(f func(name string)) {
	if err := c.h.enter(c); err != nil {
		c.fail(err)
		return
	}
	defer c.h.leave(c)
	name := c.clientName()
	if err := c.h.queue.enter(name); err != nil {
		c.fail(err)
		return
	}
	defer c.h.queue.leave(name)
	f(name)
}

// clientName is whose turns a request takes: its address.
func (c *call) clientName() string {
	if host, _, err := net.SplitHostPort(c.r.RemoteAddr); err == nil {
		return host
	}
	return c.r.RemoteAddr
}

// answer reads a request, generates and writes the reply.
func (c *call) answer(read func(p *params) (*job, output)) {
	c.admit(func(name string) {
		p, err := c.readBody()
		if err != nil {
			c.fail(err)
			return
		}
		j, out := read(p)
		c.h.checkModel(p)
		if p.err != nil {
			c.fail(p.err)
			return
		}
		c.generate(name, j, out)
	})
}

// generate runs the job in a goroutine of its own and writes what it gives. When
// it returns, that goroutine has ended.
func (c *call) generate(name string, j *job, out output) {
	h := c.h
	c.record.Stream = j.stream
	// Many tokens become known at the same moment: the buffer lets them be
	// written with one flush.
	events := make(chan event, 64)
	g := &generation{call: c, job: j, name: name, events: events}
	r := &reply{}
	s := &stream{call: c}
	h.health.begin(g)
	defer h.health.end(g)
	go g.run(&r.stats)
	defer func() { // whatever happens here, it does not stay behind
		c.cancel(nil)
		for range events {
		}
	}()

	var grace, alive <-chan time.Time
	if j.stream {
		timer, ticker := time.NewTimer(headerDelay), time.NewTicker(h.opts.KeepAlive)
		defer timer.Stop()
		defer ticker.Stop()
		grace, alive = timer.C, ticker.C
	}
	var failure error
	for open := true; open; {
		var e event
		select {
		case e, open = <-events:
		default: // nothing more is known now
			s.flush()
			select {
			case e, open = <-events:
			case <-grace:
				s.begin(out)
			case <-alive:
				s.comment("keep-alive")
			}
		}
		switch {
		case e.err != nil && r.finish == "": // what was cut off on purpose has its error, too
			failure = e.err
		case e.token != nil && failure == nil && r.finish == "":
			if c.record.First == 0 {
				c.record.First = time.Since(c.began)
			}
			c.take(e.token, j, r, s, out)
		}
		// net/http cancels the request where a write fails: the generation may
		// say so first, but the write is the reason.
		if s.err != nil && (failure == nil || errors.Is(failure, context.Canceled)) {
			failure = s.failure()
			c.cancel(failure)
		}
	}
	if r.finish != "" {
		r.stats.Finish = r.finish
	}
	c.record.Stats, c.record.Wait = r.stats, g.wait
	if r.finish == "" && failure == nil {
		failure = c.ctx.Err()
		if failure == nil {
			failure = errors.New("the generation ended without a reason")
		}
	}
	c.finish(j, r, s, out, failure)
	if failure == nil {
		h.health.outcome(nil)
	} else {
		h.health.outcome(c.failure(failure))
	}
	if h.opts.Observe != nil {
		c.record.Status, c.record.Duration = c.status, time.Since(c.began)
		var e *apiError
		if errors.As(c.err, &e) {
			c.record.Status = e.status
		}
		h.opts.Observe(c.record)
	}
}

// take adds one token to the reply and writes it where the request streams.
func (c *call) take(t *dflash.Token, j *job, r *reply, s *stream, out output) {
	p := &piece{token: t}
	if j.request.LogProbs {
		p.logprobs = []logprob{c.h.logprobs(t)}
		r.logprobs = append(r.logprobs, p.logprobs[0])
	}
	finish := t.Finish
	for _, d := range deltas(t, j.request.Messages != nil) {
		if !r.add(d, j.oneCall) {
			finish = dflash.FinishStop
			c.cancel(errComplete)
			break
		}
		p.deltas = append(p.deltas, d)
	}
	if j.stream {
		s.begin(out)
		out.piece(s, r, p)
	}
	r.finish = finish
}

// errComplete ends a generation whose reply is complete before its end.
var errComplete = errors.New("the reply is complete")

func (c *call) finish(j *job, r *reply, s *stream, out output, failure error) {
	if failure != nil && !s.begun {
		c.fail(failure)
		return
	}
	if failure != nil {
		e := c.failure(failure)
		c.err = e
		if e.status != statusGone {
			out.failed(s, e)
			s.flush()
		}
		return
	}
	if !j.stream {
		c.json(http.StatusOK, out.whole(r))
		return
	}
	out.end(s, r)
	s.flush()
	if s.err != nil {
		c.err = s.failure()
	}
}

// generation is a job on its way through the queue and the engine.
type generation struct {
	call   *call
	job    *job
	name   string
	events chan<- event
	wait   time.Duration
	// step is when the engine last did something, in Unix nanoseconds; 0 while
	// the request waits for its turn.
	step atomic.Int64
}

// run does the whole job. The channel is closed when all of it is done, and
// stats is set then.
func (g *generation) run(stats *dflash.Stats) {
	defer close(g.events)
	defer func() {
		if p := recover(); p != nil {
			g.call.h.log.Error("panic", "id", g.call.id, "panic", p, "stack", string(debug.Stack()))
			g.send(event{err: fmt.Errorf("panic: %v", p)})
		}
	}()
	if err := g.generate(stats); err != nil {
		g.send(event{err: err})
	}
}

// send hands an event over unless nobody waits for it any more. An error is
// always waited for.
func (g *generation) send(e event) bool {
	if e.err != nil {
		g.events <- e
		return true
	}
	select {
	case g.events <- e:
		return true
	case <-g.call.ctx.Done():
		return false
	}
}

func (g *generation) generate(stats *dflash.Stats) error {
	c := g.call
	h, ctx := c.h, c.ctx
	release, err := h.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	if _, err := h.prepare(g.job); err != nil {
		return err
	}
	leave, err := h.queue.wait(ctx, g.name)
	if err != nil {
		return err
	}
	defer leave()
	g.wait = time.Since(c.began)
	g.stepped()
	g.job.request.Progress = func(int, int) { g.stepped() }
	for token, err := range h.backend.Generate(ctx, g.job.request, stats) {
		if err != nil {
			return err
		}
		g.stepped()
		if !g.send(event{token: &token}) {
			break
		}
	}
	return nil
}

func (g *generation) stepped() { g.step.Store(time.Now().UnixNano()) }

// acquire makes the backend ready where that is needed.
func (h *Handler) acquire(ctx context.Context) (release func(), err error) {
	a, ok := h.backend.(Acquirer)
	if !ok {
		return func() {}, nil
	}
	release, err = a.Acquire(ctx)
	switch {
	case err == nil:
		return release, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, unavailable(err)
}

func unavailable(err error) *apiError {
	return &apiError{status: http.StatusServiceUnavailable, code: "model_unavailable", message: "The model is not available now.", retry: 5, cause: err}
}

// prepare checks the prompt before it waits for its turn, and settles what
// depends on the template.
func (h *Handler) prepare(j *job) (tokens int, err error) {
	n, err := h.backend.PromptTokens(j.request)
	var refused *chat.TemplateError
	if errors.As(err, &refused) && laterSystem(j.request.Messages) {
		j.request.Messages = mergeSystem(j.request.Messages)
		n, err = h.backend.PromptTokens(j.request)
	}
	if err != nil {
		if e := unsorted(err); e != nil {
			return 0, e
		}
		return 0, err
	}
	if most := h.opts.MaxPromptTokens; most > 0 && n > most {
		return 0, &apiError{status: http.StatusBadRequest, code: "context_length_exceeded", message: fmt.Sprintf("The prompt has %d tokens; this server takes %d.", n, most)}
	}
	j.prompt.Store(int64(n))
	return n, nil
}

// unsorted blames the request for an error of a prompt's preparation that is
// none of the known ones: no model work was done.
func unsorted(err error) *apiError {
	for _, known := range []error{
		dflash.ErrRequest, dflash.ErrContextLength, dflash.ErrEmptyPrompt, dflash.ErrUnsupported, dflash.ErrConfig, dflash.ErrClosed,
		chat.ErrNoTemplate, chat.ErrArguments, chat.ErrNotText, chat.ErrLimit,
	} {
		if errors.Is(err, known) {
			return nil
		}
	}
	var refused *chat.TemplateError
	if errors.As(err, &refused) {
		return nil
	}
	return &apiError{status: http.StatusBadRequest, message: "The prompt cannot be made: " + err.Error() + "."}
}

// laterSystem reports whether a system message stands behind another message.
func laterSystem(messages []chat.Message) bool {
	return len(messages) > 1 && slices.ContainsFunc(messages[1:], func(m chat.Message) bool { return m.Role == chat.RoleSystem })
}

// mergeSystem moves all system messages to the front, as one.
func mergeSystem(messages []chat.Message) []chat.Message {
	var texts []string
	rest := []chat.Message{{Role: chat.RoleSystem}}
	for _, m := range messages {
		if m.Role != chat.RoleSystem {
			rest = append(rest, m)
		} else if text, err := m.Text(); err == nil && text != "" {
			texts = append(texts, text)
		}
	}
	rest[0].Content = strings.Join(texts, "\n\n")
	return rest
}
