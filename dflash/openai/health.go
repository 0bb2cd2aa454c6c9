package openai

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/godflash/godflash/dflash"
)

// probeTime is how long /health waits for a token when it asks for one.
const probeTime = 2 * time.Second

// health knows whether a token can be made: one was, and since then nothing
// failed inside the engine or stands still.
type health struct {
	mu      sync.Mutex
	running map[*generation]struct{}
	good    bool      // the last outcome
	last    time.Time // of the last reply that was complete
	probe   sync.Mutex
}

func (h *health) begin(g *generation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running == nil {
		h.running = map[*generation]struct{}{}
	}
	h.running[g] = struct{}{}
}

func (h *health) end(g *generation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.running, g)
}

func (h *health) isGood() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.good
}

// outcome notes how a generation ended, e being nil for well. What the client
// did wrong or broke off, or a shutdown, says nothing.
func (h *health) outcome(e *apiError) {
	if e != nil && (e.status < 500 || errors.Is(e, errDraining)) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.good = e == nil; h.good {
		h.last = time.Now()
	}
}

// stalled says for how long the generation that has stood still the longest
// has done so.
func (h *health) stalled(now time.Time) (longest time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for g := range h.running {
		if step := g.step.Load(); step > 0 {
			longest = max(longest, now.Sub(time.Unix(0, step)))
		}
	}
	return longest
}

func (h *Handler) getHealth(c *call) {
	status, text := http.StatusOK, "ok"
	if h.Status().Draining {
		status, text = http.StatusServiceUnavailable, "draining"
	} else if h.health.stalled(time.Now()) > h.opts.Stall {
		status, text = http.StatusServiceUnavailable, "stalled"
	} else if !h.canGenerate(c) {
		status, text = http.StatusServiceUnavailable, "not ready"
	}
	if status != http.StatusOK {
		c.w.Header().Set("Retry-After", "5")
	}
	running, waiting := h.queue.status()
	body := map[string]any{"status": text, "running": running, "waiting": waiting, "last_reply_at": nil}
	h.health.mu.Lock()
	if !h.health.last.IsZero() {
		body["last_reply_at"] = h.health.last.UTC().Format(time.RFC3339)
	}
	h.health.mu.Unlock()
	c.json(status, body)
}

// canGenerate reports whether the last outcome was good, and tries it where
// there was none.
func (h *Handler) canGenerate(c *call) bool {
	if h.health.isGood() {
		return true
	}
	if !h.health.probe.TryLock() {
		return false // another request tries it
	}
	defer h.health.probe.Unlock()
	if h.enter(c) != nil {
		return false
	}
	defer h.leave(c)
	ctx, cancel := context.WithTimeout(c.ctx, probeTime)
	defer cancel()
	if err := h.makeToken(ctx); err != nil {
		h.log.Warn("no token can be made", "id", c.id, "error", err)
		return false
	}
	h.health.outcome(nil)
	return true
}

// makeToken generates two tokens: the first is the prompt's, the second that of
// a decode cycle.
func (h *Handler) makeToken(ctx context.Context) error {
	release, err := h.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	for _, err := range h.backend.Generate(ctx, dflash.Request{Text: "a", MaxTokens: 2, IgnoreEOS: true, NoCache: true}, nil) {
		if err != nil {
			return err
		}
	}
	return nil
}
