package main

import (
	"context"
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
	a := &App{events: make(chan Event, 16), questions: make(chan dflash.Request, 1), done: make(chan struct{})}
	a.ctx, a.close = context.WithCancel(context.Background())
	go a.work(model, o)
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

func (a *App) work(model string, o *dflash.Options) {
	defer close(a.done)
	defer close(a.events)
	var options dflash.Options
	if o != nil {
		options = *o
	}
	options.Progress = func(p dflash.LoadProgress) {
		part := "model"
		if p.Drafter {
			part = "drafter"
		}
		select {
		case a.events <- Loading{part, p.Done, p.Total}:
		default: // a slow window misses some: this runs on the library's thread
		}
	}
	// The library is opened here only to learn where it lies.
	lib, err := mlx.Open(options.MLX)
	if err != nil {
		a.send(Failed{err})
		return
	}
	defer lib.Close()
	options.Library = lib
	engine, err := dflash.Open(a.ctx, model, &options)
	if err != nil {
		a.send(Failed{err})
		return
	}
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

// answer writes one answer and returns how it ended.
func (a *App) answer(session *dflash.Session, r dflash.Request) Event {
	ctx, stop := context.WithCancel(a.ctx)
	a.mu.Lock()
	a.stop = stop
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		a.stop = nil
		a.mu.Unlock()
		stop()
	}()
	for token, err := range session.Generate(ctx, r) {
		switch {
		case err != nil && ctx.Err() != nil:
			return Finished{session.Stats(), true}
		case err != nil:
			return Failed{err}
		case token.Text != "" && !a.send(Text{token.Text}):
			return Finished{session.Stats(), true}
		}
	}
	return Finished{Stats: session.Stats()}
}
