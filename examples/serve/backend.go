package main

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/godflash/godflash/dflash"
)

// backend is an engine that is freed when nobody used it for a while, and
// loaded again when somebody needs it. It satisfies openai.Backend and
// openai.Acquirer.
type backend struct {
	open func(ctx context.Context) (*dflash.Engine, error)
	idle time.Duration // 0: never freed
	log  *slog.Logger
	ctx  context.Context // ends loading
	stop context.CancelFunc

	mu     sync.Mutex
	engine *dflash.Engine // nil: not loaded
	info   dflash.Info    // of the last one that was
	users  int
	timer  *time.Timer   // frees the engine; nil while there are users
	busy   chan struct{} // closed when loading or freeing is done; nil when neither is under way
	err    error         // of the last loading
	closed bool
}

func newBackend(open func(ctx context.Context) (*dflash.Engine, error), idle time.Duration, log *slog.Logger) *backend {
	b := &backend{open: open, idle: idle, log: log}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// Acquire waits until the model is loaded, and keeps it so until release.
func (b *backend) Acquire(ctx context.Context) (release func(), err error) {
	for waited := false; ; waited = true {
		b.mu.Lock()
		switch {
		case b.closed:
			b.mu.Unlock()
			return nil, fmt.Errorf("engine: %w", dflash.ErrClosed)
		case b.engine != nil && b.busy == nil:
			b.users++
			if b.timer != nil {
				b.timer.Stop()
				b.timer = nil
			}
			b.mu.Unlock()
			return b.release, nil
		case b.busy == nil && waited && b.err != nil:
			err := b.err
			b.mu.Unlock()
			return nil, err
		case b.busy == nil:
			b.begin(b.load)
		}
		busy := b.busy
		b.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// begin runs f in a goroutine, during which the backend is busy. The lock is
// held.
func (b *backend) begin(f func()) {
	done := make(chan struct{})
	b.busy = done
	go func() {
		defer func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.busy = nil
			close(done)
		}()
		f()
	}()
}

func (b *backend) load() {
	began := time.Now()
	engine, err := b.open(b.ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.engine, b.err = engine, err
	if err != nil {
		b.engine = nil
		b.log.Error("the model cannot be loaded", "error", err)
		return
	}
	b.info = engine.Info()
	b.log.Info("model loaded", "seconds", time.Since(began).Seconds())
	b.rest()
}

func (b *backend) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users--; b.users == 0 {
		b.rest()
	}
}

// rest frees the engine after a while, unless it is used before. The lock is
// held.
func (b *backend) rest() {
	if b.idle > 0 && b.engine != nil && !b.closed {
		b.timer = time.AfterFunc(b.idle, b.unload)
	}
}

func (b *backend) unload() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.users > 0 || b.engine == nil || b.busy != nil || b.closed {
		return
	}
	engine := b.engine
	b.engine, b.timer = nil, nil
	b.begin(func() {
		if err := engine.Close(); err != nil {
			b.log.Error("freeing the model", "error", err)
			return
		}
		b.log.Info("model freed", "unused_for", b.idle.String())
	})
}

// loaded reports whether the model is in memory.
func (b *backend) loaded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.engine != nil
}

// Close ends loading and frees the model. Nobody may hold it.
func (b *backend) Close() error {
	b.stop()
	b.mu.Lock()
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
	}
	busy := b.busy
	b.mu.Unlock()
	if busy != nil {
		<-busy
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.engine == nil {
		return nil
	}
	err := b.engine.Close()
	b.engine = nil
	return err
}

// current is the engine, which its user has acquired.
func (b *backend) current() *dflash.Engine {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.engine
}

// Info describes the engine, or the one that was loaded last.
func (b *backend) Info() dflash.Info {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.info
}

func (b *backend) Generate(ctx context.Context, r dflash.Request, stats *dflash.Stats) iter.Seq2[dflash.Token, error] {
	return b.current().Generate(ctx, r, stats)
}

func (b *backend) PromptTokens(r dflash.Request) (int, error) { return b.current().PromptTokens(r) }

func (b *backend) TokenBytes(id int) []byte { return b.current().TokenBytes(id) }
