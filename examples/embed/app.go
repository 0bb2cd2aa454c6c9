package main

import (
	"context"
	"errors"
	"sync"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/mlx"
)

// Event is one of Loading, Ready, Text, Finished and Failed.
type Event any

// Loading says how far the model is read.
type Loading struct {
	Part        string // "model" or "drafter"
	Done, Total int64  // bytes
}

// Ready comes once, before the first text.
type Ready struct {
	Info    dflash.Info
	Library string // the file of the native library
}

// Text is the next piece of an answer.
type Text struct{ Piece string }

// Finished ends an answer.
type Finished struct {
	Stats   dflash.Stats
	Stopped bool // by Stop
}

// Failed ends an answer, or all of it where the model could not be opened.
type Failed struct{ Err error }

// App is a model as a program with a window sees it. No method blocks but Close;
// what happens arrives on Events. A window's code forwards events to its own
// thread, with glib's idle_add, Cocoa's dispatch_async or what its toolkit has.
type App struct {
	events    chan Event
	questions chan dflash.Request
	ctx       context.Context
	close     context.CancelFunc
	done      chan struct{}

	mu   sync.Mutex
	stop context.CancelFunc // of the answer that is being written
}

// Start opens the model in the background. nil options are the defaults.
func Start(model string, o *dflash.Options) *App {
	return start(func(a *App) { a.work(model, o) })
}

// StartIsolated is Start with the engine in a process of its own, see child.go.
// An executable that uses it calls childMain where childSocket is set.
func StartIsolated(model string) *App {
	return start(func(a *App) { a.supervise(model) })
}

func start(work func(a *App)) *App {
	a := &App{events: make(chan Event, 16), questions: make(chan dflash.Request, 1), done: make(chan struct{})}
	a.ctx, a.close = context.WithCancel(context.Background())
	go func() {
		defer close(a.done)
		defer close(a.events)
		work(a)
	}()
	return a
}

// Events is closed after Close, or when the model could not be opened. Read it
// until then: text waits for its reader.
func (a *App) Events() <-chan Event { return a.events }

// Ask queues a question and reports whether it was taken: one may wait while
// another is answered or the model opens.
func (a *App) Ask(r dflash.Request) bool {
	select {
	case a.questions <- r:
		return true
	default:
		return false
	}
}

// Stop ends the answer that is being written, within one decode cycle. The model
// stays ready for the next question.
func (a *App) Stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stop != nil {
		a.stop()
	}
}

// Close ends what is running, gives the model's memory back and waits for both.
// It may be called more than once.
func (a *App) Close() {
	a.close()
	<-a.done
}

// send reports whether anybody is still there to listen.
func (a *App) send(e Event) bool {
	if a.ctx.Err() != nil {
		return false // nothing follows Close, not even the error that it caused
	}
	select {
	case a.events <- e:
		return true
	case <-a.ctx.Done():
		return false
	}
}

// openEngine opens a model. The library is opened apart only to learn where it
// lies; it is closed after the engine.
func openEngine(ctx context.Context, model string, o *dflash.Options, progress func(Loading)) (*dflash.Engine, *mlx.Library, error) {
	var options dflash.Options
	if o != nil {
		options = *o
	}
	options.Progress = func(p dflash.LoadProgress) {
		part := "model"
		if p.Drafter {
			part = "drafter"
		}
		progress(Loading{part, p.Done, p.Total})
	}
	lib, err := mlx.Open(options.MLX)
	if err != nil {
		return nil, nil, err
	}
	options.Library = lib
	engine, err := dflash.Open(ctx, model, &options)
	if err != nil {
		return nil, nil, errors.Join(err, lib.Close())
	}
	return engine, lib, nil
}

func (a *App) work(model string, o *dflash.Options) {
	engine, lib, err := openEngine(a.ctx, model, o, func(l Loading) {
		select {
		case a.events <- l:
		default: // a slow window misses some: this runs on the library's thread
		}
	})
	if err != nil {
		a.send(Failed{err})
		return
	}
	defer lib.Close()
	defer engine.Close()
	session, err := engine.NewSession()
	if err != nil {
		a.send(Failed{err})
		return
	}
	if !a.send(Ready{engine.Info(), lib.Path()}) {
		return
	}
	for {
		select {
		case r := <-a.questions:
			if !a.send(a.answer(session, r)) {
				return
			}
		case <-a.ctx.Done():
			return
		}
	}
}

// supervise keeps a child running and answers through it.
func (a *App) supervise(model string) {
	var c *child
	for deaths := 0; ; {
		if c == nil || !c.alive() {
			if c != nil {
				c.stop()
			}
			var err error
			c, err = startChild(a.ctx, model, a.send)
			if errors.Is(err, errChild) && deaths < maxDeaths {
				deaths++
				continue
			}
			if err != nil {
				a.send(Failed{err})
				return
			}
		}
		deaths = 0
		select {
		case r := <-a.questions:
			if !c.alive() { // died while nobody asked
				a.questions <- r
				continue
			}
			ctx, end := a.begin()
			stats, err := c.generate(ctx, r, func(piece string) bool { return a.send(Text{piece}) })
			stopped := ctx.Err() != nil
			end()
			var e Event = Finished{stats, stopped}
			if err != nil && !stopped {
				e = Failed{err}
			}
			if !a.send(e) {
				c.stop()
				return
			}
		case <-c.ended:
		case <-a.ctx.Done():
			c.stop()
			return
		}
	}
}

// begin gives the context of an answer, which Stop cancels, and its end.
func (a *App) begin() (ctx context.Context, end func()) {
	ctx, stop := context.WithCancel(a.ctx)
	a.mu.Lock()
	a.stop = stop
	a.mu.Unlock()
	return ctx, func() {
		a.mu.Lock()
		a.stop = nil
		a.mu.Unlock()
		stop()
	}
}

// answer writes one answer and returns how it ended.
func (a *App) answer(session *dflash.Session, r dflash.Request) Event {
	ctx, end := a.begin()
	defer end()
	var failure error
	stopped := false
	for token, err := range session.Generate(ctx, r) {
		if err != nil || token.Text != "" && !a.send(Text{token.Text}) {
			failure, stopped = err, ctx.Err() != nil
			break
		}
	}
	if failure != nil && !stopped {
		return Failed{failure}
	}
	return Finished{session.Stats(), stopped} // in the loop they would be those of the answer before
}
