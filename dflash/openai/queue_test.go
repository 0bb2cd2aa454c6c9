package openai_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/dflash/dflashtest"
	"github.com/godflash/godflash/dflash/openai"
)

// gated is an engine whose replies wait until the test lets one token pass.
func gated() (*dflashtest.Engine, chan struct{}) {
	gate := make(chan struct{})
	return &dflashtest.Engine{Script: dflashtest.Always(dflashtest.Step{Text: "a", Gate: gate})}, gate
}

// local asks a handler directly, as a client of the given address.
func local(ctx context.Context, h http.Handler, address, content string) *httptest.ResponseRecorder {
	body := `{"messages":[{"role":"user","content":"` + content + `"}]}`
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, chatPath, strings.NewReader(body))
	r.RemoteAddr = address + ":1"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestQueueFull(t *testing.T) {
	engine, gate := gated()
	w := serve(t, engine, openai.Options{Parallel: 1, MaxQueue: 2})
	var done sync.WaitGroup
	for range 3 {
		done.Go(func() { require.Equal(t, 200, w.post(chatPath, ask(nil)).status) })
	}
	eventually(t, "one runs, two wait", func() bool { return w.handler.Status() == openai.Status{Running: 1, Waiting: 2} })
	for _, stream := range []bool{false, true} {
		a := w.post(chatPath, ask(object{"stream": stream}))
		require.Equal(t, 429, a.status)
		require.Equal(t, "queue_full", at(t, a.json(t), "error", "code"))
		require.Equal(t, "2", a.header.Get("Retry-After"))
	}
	require.Equal(t, 1, engine.Running())
	close(gate)
	done.Wait()
	require.Equal(t, openai.Status{}, w.handler.Status())
	require.Equal(t, 200, w.post(chatPath, ask(nil)).status, "the places are free again")

	none := serve(t, &dflashtest.Engine{}, openai.Options{Parallel: 1, MaxQueue: -1})
	require.Equal(t, 200, none.post(chatPath, ask(nil)).status)
}

// A client with many requests does not keep another waiting until all of them
// are done; among its own the first comes first.
func TestFairTurns(t *testing.T) {
	engine, gate := gated()
	h := openai.NewHandler(engine, &openai.Options{Parallel: 1})
	defer h.Close()
	var done sync.WaitGroup
	start := func(address, content string) {
		waiting := h.Status().Waiting
		done.Go(func() { require.Equal(t, 200, local(t.Context(), h, address, content).Code) })
		eventually(t, "it waits", func() bool {
			return h.Status().Waiting == waiting+1 || engine.Running() == 1 && waiting == 0 && content == "a0"
		})
	}
	for _, content := range []string{"a0", "a1", "a2", "a3"} {
		start("10.0.0.1", content)
	}
	start("10.0.0.2", "b0")
	start("10.0.0.2", "b1")
	start("10.0.0.3", "c0")
	for range 7 {
		gate <- struct{}{}
	}
	done.Wait()
	var order []string
	for _, r := range engine.Requests() {
		order = append(order, r.Messages[0].Content)
	}
	require.Equal(t, []string{"a0", "b0", "c0", "a1", "b1", "a2", "a3"}, order)
}

// Case 118: whoever goes away ends the generation, before, within and after its
// first token, streaming or not, and leaves the queue.
func TestClientGone(t *testing.T) {
	for _, stream := range []bool{false, true} {
		for _, after := range []int{0, 3} {
			steps := dflashtest.Content(strings.Split(strings.Repeat("x", 1000), "")...)
			for i := range steps {
				steps[i].Delay = time.Millisecond
			}
			gate := make(chan struct{})
			steps[after].Gate = gate
			w, engine := script(t, steps...)
			ctx, leave := context.WithCancel(t.Context())
			body := `{"stream":false,"messages":[{"role":"user","content":"x"}]}`
			if stream {
				body = strings.Replace(body, "false", "true", 1)
			}
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL+chatPath, strings.NewReader(body))
			require.NoError(t, err)
			done := make(chan struct{})
			go func() {
				defer close(done)
				if resp, err := w.client.Do(r); err == nil {
					resp.Body.Close()
				}
			}()
			eventually(t, "it runs", func() bool { return engine.Running() == 1 && engine.Steps() == after })
			leave()
			eventually(t, "it ends", func() bool { return engine.Running() == 0 })
			require.Equal(t, after, engine.Steps())
			<-done
			eventually(t, "it is logged", func() bool { return strings.Contains(w.log.String(), "status=499") })
			close(gate)
		}
	}
}

func TestGoneWhileWaiting(t *testing.T) {
	engine, gate := gated()
	h := openai.NewHandler(engine, &openai.Options{Parallel: 1})
	defer h.Close()
	var done sync.WaitGroup
	done.Go(func() { local(t.Context(), h, "a", "first") })
	eventually(t, "it runs", func() bool { return engine.Running() == 1 })
	ctx, leave := context.WithCancel(t.Context())
	done.Go(func() { local(ctx, h, "b", "gone") })
	done.Go(func() { local(t.Context(), h, "c", "last") })
	eventually(t, "two wait", func() bool { return h.Status().Waiting == 2 })
	leave()
	eventually(t, "one waits", func() bool { return h.Status().Waiting == 1 })
	gate <- struct{}{}
	gate <- struct{}{}
	done.Wait()
	require.Len(t, engine.Requests(), 2)
	require.Equal(t, openai.Status{}, h.Status())

	// Someone whose slot comes at the moment in which he leaves does not keep it.
	close(gate)
	for range 50 {
		local(ctx, h, "d", "gone")
	}
	require.Equal(t, openai.Status{}, h.Status())
	require.Equal(t, 200, local(t.Context(), h, "e", "after").Code)
}

// Case 120: a stream says at once that it is one, and then that it is alive.
func TestKeepAlive(t *testing.T) {
	engine, gate := gated()
	w := serve(t, engine, openai.Options{KeepAlive: 20 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL+chatPath, strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"x"}]}`))
	require.NoError(t, err)
	resp, err := w.client.Do(r)
	require.NoError(t, err, "the header comes before the first token")
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	var text strings.Builder
	buffer := make([]byte, 1000)
	for strings.Count(text.String(), ": keep-alive\n\n") < 3 {
		n, err := resp.Body.Read(buffer)
		require.NoError(t, err)
		text.Write(buffer[:n])
	}
	require.Zero(t, engine.Steps())
	close(gate)
	for {
		n, err := resp.Body.Read(buffer)
		text.Write(buffer[:n])
		if err != nil {
			break
		}
	}
	data, names, comments := events(t, text.String())
	require.GreaterOrEqual(t, comments, 3)
	require.Equal(t, "[DONE]", names[len(names)-1])
	require.Equal(t, "a", at(t, data[1], "choices", 0, "delta", "content"))
}

func TestShutdown(t *testing.T) {
	engine, gate := gated()
	h := openai.NewHandler(engine, nil)
	var done sync.WaitGroup
	done.Go(func() { require.Equal(t, 200, local(t.Context(), h, "a", "x").Code) })
	eventually(t, "it runs", func() bool { return engine.Running() == 1 })
	result := make(chan error)
	go func() { result <- h.Shutdown(t.Context()) }()
	eventually(t, "it drains", func() bool { return h.Status().Draining })
	refused := local(t.Context(), h, "b", "x")
	require.Equal(t, 503, refused.Code)
	require.Contains(t, refused.Body.String(), "shutting_down")
	require.NotEmpty(t, refused.Header().Get("Retry-After"))
	health := httptest.NewRecorder()
	h.ServeHTTP(health, httptest.NewRequest(http.MethodGet, "/health", nil))
	require.Equal(t, 503, health.Code)
	require.Contains(t, health.Body.String(), "draining")
	gate <- struct{}{}
	require.NoError(t, <-result)
	done.Wait()
	require.NoError(t, h.Shutdown(t.Context()), "a second time")
	require.NoError(t, h.Close())
}

// What does not end in time is ended: a whole reply is 503, a stream has an
// error as its last event.
func TestShutdownImpatient(t *testing.T) {
	steps := dflashtest.Content("a", "b")
	steps[1].Gate = make(chan struct{})
	engine := &dflashtest.Engine{Script: dflashtest.Always(steps...)}
	w := serve(t, engine, openai.Options{})
	var done sync.WaitGroup
	done.Go(func() {
		a := w.post(chatPath, ask(nil))
		require.Equal(t, 503, a.status, a.text)
	})
	done.Go(func() {
		data, names, _ := events(t, w.post(chatPath, ask(object{"stream": true})).text)
		require.Equal(t, "shutting_down", at(t, data[len(data)-1], "error", "code"))
		require.NotContains(t, names, "[DONE]")
	})
	eventually(t, "both run", func() bool { return engine.Steps() == 2 })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, w.handler.Shutdown(ctx), context.DeadlineExceeded)
	require.Zero(t, engine.Running())
	done.Wait()
}

// Cases 10 and 101.
func TestHealth(t *testing.T) {
	health := func(w *world) (int, string) {
		a := w.do("GET", "/health", "")
		return a.status, at(t, a.json(t), "status").(string)
	}
	engine := &dflashtest.Engine{Script: dflashtest.Always(dflashtest.Content("a", "b")...)}
	w := serve(t, engine, openai.Options{})
	status, text := health(w)
	require.Equal(t, []any{200, "ok"}, []any{status, text})
	require.Equal(t, 2, engine.Steps(), "a token was made to know it")
	health(w)
	require.Equal(t, 2, engine.Steps(), "and is remembered")

	broken, _ := script(t, dflashtest.Step{Err: dflash.ErrNonFinite})
	status, text = health(broken)
	require.Equal(t, []any{503, "not ready"}, []any{status, text})

	// It works, then it does not, then it does again.
	var mu sync.Mutex
	fails := false
	engine = &dflashtest.Engine{Script: func(dflash.Request) []dflashtest.Step {
		mu.Lock()
		defer mu.Unlock()
		if fails {
			return []dflashtest.Step{{Err: dflash.ErrNonFinite}}
		}
		return nil
	}}
	set := func(to bool) {
		mu.Lock()
		defer mu.Unlock()
		fails = to
	}
	w = serve(t, engine, openai.Options{})
	require.Equal(t, 200, w.post(chatPath, ask(nil)).status)
	set(true)
	require.Equal(t, 500, w.post(chatPath, ask(nil)).status)
	status, _ = health(w)
	require.Equal(t, 503, status)
	set(false)
	status, _ = health(w)
	require.Equal(t, 200, status)
	require.Equal(t, 400, w.post(chatPath, ask(object{"n": 2})).status)
	status, _ = health(w)
	require.Equal(t, 200, status, "a bad request says nothing of the engine")

	// A generation that stands still.
	engine, gate := gated()
	w = serve(t, engine, openai.Options{Stall: 30 * time.Millisecond})
	var done sync.WaitGroup
	done.Go(func() { w.post(chatPath, ask(nil)) })
	eventually(t, "it stands still", func() bool {
		status, text := health(w)
		return status == 503 && text == "stalled"
	})
	close(gate)
	done.Wait()
	status, _ = health(w)
	require.Equal(t, 200, status)
}

// A backend that is made ready on demand.
type lazy struct {
	dflashtest.Engine
	mu       sync.Mutex
	err      error
	acquired int
	most     int
}

func (l *lazy) Acquire(context.Context) (func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	l.acquired++
	l.most = max(l.most, l.acquired)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.acquired--
	}, nil
}

func TestAcquirer(t *testing.T) {
	backend := &lazy{}
	w := serve(t, backend, openai.Options{})
	require.Equal(t, 200, w.post(chatPath, ask(nil)).status)
	require.Equal(t, 200, w.post("/v1/messages/count_tokens", claudeAsk(nil)).status)
	require.Equal(t, 200, w.do("GET", "/health", "").status)
	backend.mu.Lock()
	require.Equal(t, 1, backend.most)
	require.Zero(t, backend.acquired)
	backend.err = dflash.ErrMemory
	backend.mu.Unlock()
	for _, path := range []string{chatPath, "/v1/messages", "/v1/messages/count_tokens"} {
		a := w.post(path, claudeAsk(nil))
		require.Equal(t, 503, a.status)
		require.NotEmpty(t, a.header.Get("Retry-After"))
	}
	require.Equal(t, 503, w.do("GET", "/health", "").status)
}
