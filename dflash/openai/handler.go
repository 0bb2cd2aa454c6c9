package openai

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/godflash/godflash/dflash"
)

// Backend is what a handler needs of an engine. *dflash.Engine satisfies it, and
// so does *dflashtest.Engine.
type Backend interface {
	Info() dflash.Info
	Generate(ctx context.Context, r dflash.Request, stats *dflash.Stats) iter.Seq2[dflash.Token, error]
	// PromptTokens does no model work; its errors are those of a bad request.
	PromptTokens(r dflash.Request) (int, error)
	// TokenBytes are the bytes that an id stands for.
	TokenBytes(id int) []byte
}

// Acquirer is a Backend that has to be made ready before it is used, such as
// one that loads its model on demand. The handler calls Acquire once per
// request before any of the other methods but Info, which is complete from the
// start, and release when it is done. An error is answered 503.
type Acquirer interface {
	Acquire(ctx context.Context) (release func(), err error)
}

// Options are the choices of NewHandler; nil and zero values are the defaults.
type Options struct {
	// Model is the name that clients use. Empty: Info's Repo, else the last part
	// of Info's Dir, else "default".
	Model string
	// Aliases are further names for it. "*" stands for every name.
	Aliases []string
	// APIKey is what clients must send as bearer token, or as x-api-key. Empty:
	// no key is asked for.
	APIKey string
	// Origins are the web origins, such as "https://chat.example", whose pages may
	// use the API. "*" is all. Pages of the server's own and of this machine may
	// in any case.
	Origins []string

	// Parallel is the number of requests that are generated at the same time.
	// 0: 4. They take turns on the device, cycle by cycle.
	Parallel int
	// MaxQueue is the number of requests that may wait for that. 0: 64; negative:
	// none.
	MaxQueue int
	// MaxBody is the size in bytes that a request's body may have. 0: 16 MiB.
	MaxBody int64
	// MaxPromptTokens bounds prompts. 0: the model's context does.
	MaxPromptTokens int
	// MaxTokens bounds completions, whatever a request asks for. 0: the model's
	// context does.
	MaxTokens int
	// Sampling is what requests get that do not say how to draw. Nil: Info's
	// Sampling, the recommendation of the model's authors.
	Sampling *dflash.Sampling

	// KeepAlive is how often a stream that has nothing to say sends a comment.
	// 0: 5 s.
	KeepAlive time.Duration
	// ReadTimeout bounds the time in which a body arrives. 0: 30 s.
	ReadTimeout time.Duration
	// WriteTimeout bounds the time that a client takes to accept what is written;
	// a generation whose reader is slower ends. 0: 30 s.
	WriteTimeout time.Duration
	// Stall is how long a generation may go without a step before /health says
	// that no token can be made. 0: 1 minute.
	Stall time.Duration

	// Logger hears one line per request, and what went wrong inside. Nil: silent.
	Logger *slog.Logger
	// Observe is called when a request for tokens is done. It must return soon.
	Observe func(Record)
}

// Record describes a request that is done.
type Record struct {
	ID     string
	Path   string
	Status int // as logged: 499 for a client that went away, also within a stream
	Stream bool
	// Wait is the time before the request's turn came, First the time until its
	// first token, both since it arrived; Duration is the whole. First is 0 where
	// there was no token.
	Wait, First, Duration time.Duration
	Stats                 dflash.Stats
}

// Status is what goes on in a handler.
type Status struct {
	Running, Waiting int // requests
	Draining         bool
}

// Handler serves a backend. It may be mounted under a prefix with
// http.StripPrefix.
type Handler struct {
	backend Backend
	opts    Options
	log     *slog.Logger
	queue   *queue
	routes  []route
	started time.Time
	health  health

	mu       sync.Mutex
	active   map[*call]struct{}
	draining bool
	idle     chan struct{} // closed when draining and nothing is active
}

// NewHandler makes a handler. The backend stays the caller's: close it after
// the handler.
func NewHandler(backend Backend, o *Options) *Handler {
	h := &Handler{backend: backend, started: time.Now(), active: map[*call]struct{}{}, idle: make(chan struct{})}
	if o != nil {
		h.opts = *o
	}
	h.opts.setDefaults(backend.Info())
	h.log = h.opts.Logger
	h.queue = newQueue(h.opts.Parallel, h.opts.MaxQueue)
	h.routes = h.makeRoutes()
	return h
}

func (o *Options) setDefaults(info dflash.Info) {
	if o.Model == "" {
		switch {
		case info.Repo != "":
			o.Model = info.Repo
		case info.Dir != "":
			o.Model = modelName(info.Dir)
		default:
			o.Model = "default"
		}
	}
	orElse(&o.Parallel, 4)
	orElse(&o.MaxQueue, 64)
	o.MaxQueue = max(o.MaxQueue, 0)
	orElse(&o.MaxBody, 16<<20)
	orElse(&o.KeepAlive, 5*time.Second)
	orElse(&o.ReadTimeout, 30*time.Second)
	orElse(&o.WriteTimeout, 30*time.Second)
	orElse(&o.Stall, time.Minute)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// modelName is the last part of a folder's name; the folder target of a pair is
// named after the pair.
func modelName(dir string) string {
	name := filepath.Base(dir)
	if parent := filepath.Base(filepath.Dir(dir)); name == "target" && parent != "." && parent != string(filepath.Separator) {
		name = parent
	}
	return name
}

func orElse[T int | int64 | time.Duration](v *T, otherwise T) {
	if *v == 0 {
		*v = otherwise
	}
}

// Status says what goes on.
func (h *Handler) Status() Status {
	running, waiting := h.queue.status()
	h.mu.Lock()
	defer h.mu.Unlock()
	return Status{Running: running, Waiting: waiting, Draining: h.draining}
}

// Shutdown refuses new requests with 503 and waits for those that are under way.
// When the context ends, it ends them and returns the context's error.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.drain()
	select {
	case <-h.idle:
		return nil
	case <-ctx.Done():
	}
	h.cancel()
	<-h.idle
	return ctx.Err()
}

// Close is Shutdown without patience. Streams get an error as their last event.
// Where a client does not read, it returns after WriteTimeout.
func (h *Handler) Close() error {
	h.drain()
	h.cancel()
	<-h.idle
	return nil
}

func (h *Handler) drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.draining {
		h.draining = true
		if len(h.active) == 0 {
			close(h.idle)
		}
	}
}

func (h *Handler) cancel() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.active {
		c.cancel(errDraining)
	}
}

func (h *Handler) enter(c *call) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return errDraining
	}
	h.active[c] = struct{}{}
	return nil
}

func (h *Handler) leave(c *call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.active, c)
	if h.draining && len(h.active) == 0 {
		close(h.idle)
	}
}

// call is one HTTP request.
type call struct {
	h      *Handler
	w      http.ResponseWriter
	r      *http.Request
	id     string
	form   form
	ctx    context.Context
	cancel context.CancelCauseFunc
	began  time.Time
	record Record
	status int // 0 until the header is written
	err    error
}

// form is whose API a path belongs to; it decides what errors look like.
type form int

const (
	formOpenAI form = iota
	formAnthropic
)

type route struct {
	path    string // one that ends with a slash is a prefix
	form    form
	open    bool // needs no key
	methods map[string]func(*call)
}

func (h *Handler) makeRoutes() []route {
	get := func(f func(*call)) map[string]func(*call) {
		return map[string]func(*call){http.MethodGet: f, http.MethodHead: f}
	}
	post := func(f func(*call)) map[string]func(*call) { return map[string]func(*call){http.MethodPost: f} }
	return []route{
		{path: "/v1/chat/completions", methods: post(h.chatCompletions)},
		{path: "/v1/completions", methods: post(h.completions)},
		{path: "/v1/responses", methods: post(h.responses)},
		{path: "/v1/messages", form: formAnthropic, methods: post(h.messages)},
		{path: "/v1/messages/count_tokens", form: formAnthropic, methods: post(h.countTokens)},
		{path: "/v1/models", methods: get(h.listModels)},
		{path: "/v1/models/", methods: get(h.oneModel)},
		{path: "/health", open: true, methods: get(h.getHealth)},
	}
}

func (h *Handler) find(path string) (route, bool) {
	for _, r := range h.routes {
		if path == r.path || strings.HasSuffix(r.path, "/") && strings.HasPrefix(path, r.path) && len(path) > len(r.path) {
			return r, true
		}
	}
	return route{}, false
}

func (h *Handler) newCall(w http.ResponseWriter, r *http.Request) *call {
	c := &call{h: h, w: w, r: r, id: requestID(r), began: time.Now()}
	c.record = Record{ID: c.id, Path: r.URL.Path}
	c.ctx, c.cancel = context.WithCancelCause(r.Context())
	return c
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := h.newCall(w, r)
	defer c.cancel(nil)
	w.Header().Set("X-Request-Id", c.id)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	defer c.log()
	defer c.recover()

	found, ok := h.find(r.URL.Path)
	c.form = found.form
	if err := h.crossOrigin(c); err != nil {
		c.fail(err)
		return
	}
	serve := found.methods[r.Method]
	switch {
	case !ok:
		c.fail(&apiError{status: http.StatusNotFound, code: "unknown_url", message: fmt.Sprintf("There is nothing at %s %s; the API lies under /v1.", r.Method, clip(r.URL.Path))})
	case r.Method == http.MethodOptions:
		w.Header().Set("Allow", allow(found))
		c.header(http.StatusNoContent)
	case serve == nil:
		w.Header().Set("Allow", allow(found))
		c.fail(&apiError{status: http.StatusMethodNotAllowed, code: "method_not_allowed", message: fmt.Sprintf("%s takes %s, not %s.", found.path, allow(found), clip(r.Method))})
	case !found.open && !h.authorized(r):
		c.failKey()
	default:
		serve(c)
	}
}

func allow(r route) string {
	methods := []string{http.MethodOptions}
	for m := range r.methods {
		methods = append(methods, m)
	}
	slices.Sort(methods)
	return strings.Join(methods, ", ")
}

// recover answers a panic and logs where it came from.
func (c *call) recover() {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	c.h.log.Error("panic", "id", c.id, "path", c.r.URL.Path, "panic", p, "stack", string(debug.Stack()))
	c.fail(&apiError{status: http.StatusInternalServerError, cause: fmt.Errorf("panic: %v", p)})
}

func (c *call) log() {
	level, status := slog.LevelInfo, c.status
	var failure *apiError
	switch {
	case errors.As(c.err, &failure) && failure.status == statusGone:
		status = statusGone
	case errors.As(c.err, &failure) && failure.status >= 500:
		level = slog.LevelError
		status = failure.status
	}
	args := []any{
		"id", c.id, "method", c.r.Method, "path", c.r.URL.Path, "status", status, "remote", c.r.RemoteAddr,
		"ms", time.Since(c.began).Milliseconds(),
	}
	if st := c.record.Stats; st.PromptTokens > 0 {
		args = append(args, "prompt_tokens", st.PromptTokens, "cached_tokens", st.CachedTokens, "completion_tokens", st.CompletionTokens,
			"cycles", st.Cycles, "accepted", st.Accepted, "finish", string(st.Finish), "wait_ms", c.record.Wait.Milliseconds(), "first_ms", c.record.First.Milliseconds())
	}
	if c.err != nil {
		args = append(args, "error", c.err)
	}
	if c.status == http.StatusOK && c.r.URL.Path == "/health" {
		level = slog.LevelDebug
	}
	c.h.log.Log(context.WithoutCancel(c.ctx), level, "request", args...)
}

// header writes the header once.
func (c *call) header(status int) {
	if c.status == 0 {
		c.status = status
		c.w.WriteHeader(status)
	}
}

// requestID is the client's own where it is harmless, so that it finds its
// request in our log.
func requestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	ok := id != "" && len(id) <= 64 && strings.IndexFunc(id, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.')
	}) < 0
	if ok {
		return id
	}
	return newID("req_")
}

func newID(prefix string) string {
	var b [12]byte
	rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}
