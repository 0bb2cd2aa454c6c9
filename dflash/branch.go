package dflash

import (
	"context"
	"fmt"
	"slices"

	"github.com/godflash/godflash/mlx"
)

// acquire takes the session for one call; the function it returns gives it back.
func (s *Session) acquire() (func(), error) {
	if s.closed.Load() {
		return nil, fmt.Errorf("session: %w", ErrClosed)
	}
	if !s.busy.CompareAndSwap(false, true) {
		return nil, ErrBusy
	}
	s.decoder.mu.Lock()
	return func() {
		s.decoder.mu.Unlock()
		s.busy.Store(false)
	}, nil
}

// Append adds tokens to the session's text and runs them, so that a generation
// with Request.Continue begins at once. Only the last token of the text is left
// to that generation. After an error the text is as before.
func (s *Session) Append(ctx context.Context, ids []int) error {
	release, err := s.acquire()
	if err != nil {
		return err
	}
	defer release()
	d := s.decoder
	if err := d.checkIDs("token", ids); err != nil {
		return err
	}
	text := slices.Concat(s.held(), ids)
	switch {
	case len(text) > d.info.ContextLength:
		return fmt.Errorf("%w: %d tokens, the model has %d positions", ErrContextLength, len(text), d.info.ContextLength)
	case len(ids) == 0:
		return nil
	}
	known, err := d.resume(ctx, text, resumeOptions{cache: s.engine.prefixes, scorer: d.newScorer(scoring{})})
	if err != nil {
		return err
	}
	if rest := text[known : len(text)-1]; len(rest) > 0 {
		if _, err := d.prefill(ctx, rest, prefillOptions{cache: s.engine.prefixes, quiet: true}); err != nil {
			return err
		}
	}
	s.setTokens(text)
	return nil
}

// Trim cuts the session's text to its first n tokens. The state follows as far as
// it can: a recurrent one goes back to where it was kept, and the next generation
// runs the tokens from there on again. 0 gives the memory back.
func (s *Session) Trim(ctx context.Context, n int) error {
	release, err := s.acquire()
	if err != nil {
		return err
	}
	defer release()
	text := s.held()
	if n < 0 || n > len(text) {
		return fmt.Errorf("%w: trim a text of %d tokens to %d", ErrRequest, len(text), n)
	}
	if err := s.decoder.align(ctx, text[:n]); err != nil {
		return err
	}
	s.setTokens(text[:n:n])
	return nil
}

// Branch makes a second session with the same text. Both go on independently.
// The state's memory is shared until one of the two grows.
func (s *Session) Branch(ctx context.Context) (*Session, error) {
	release, err := s.acquire()
	if err != nil {
		return nil, err
	}
	defer release()
	if err := s.decoder.align(ctx, s.held()); err != nil {
		return nil, err
	}
	d, err := s.decoder.fork(ctx)
	if err != nil {
		return nil, err
	}
	return s.engine.register(d, s.held())
}

// align makes the sequence a beginning of text, the longest that it can go back
// to.
func (d *Decoder) align(ctx context.Context, text []int) error {
	if err := d.recover(ctx); err != nil {
		return err
	}
	return d.do(ctx, func(*mlx.Scope) error {
		d.release()
		return d.trim(d.reachTarget(common(d.past.rows, text)))
	})
}

// recover reads what is in flight, and forgets everything after a failure.
func (d *Decoder) recover(ctx context.Context) error {
	if d.closed {
		return d.usable()
	}
	if d.failed == nil {
		if err := d.settle(ctx); err != nil && d.failed == nil {
			return err
		}
	}
	if d.failed != nil {
		return d.reset(ctx)
	}
	return nil
}

// fork makes a decoder with the same rows, which are all settled.
func (d *Decoder) fork(ctx context.Context) (*Decoder, error) {
	f, err := NewDecoder(d.target, d.drafter, &DecoderOptions{PrefillChunk: d.chunk})
	if err != nil {
		return nil, err
	}
	err = d.lib.Do(ctx, func(*mlx.Scope) error {
		cache, err := d.target.Fork(d.cache)
		if err != nil {
			return err
		}
		f.cache.Close()
		f.cache = cache
		if d.context != nil {
			context, err := d.context.fork()
			if err != nil {
				return err
			}
			f.context.Close()
			f.context = context
		}
		f.pipelined = d.pipelined
		f.past.rows = slices.Clone(d.past.rows)
		for _, p := range d.past.points {
			f.past.points = append(f.past.points, point{p.at, refs(f.owner, p.states)})
		}
		return f.owner.Err()
	})
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// refs makes references to arrays that belong to owner.
func refs(owner *mlx.Scope, arrays []mlx.Array) []mlx.Array {
	out := make([]mlx.Array, len(arrays))
	for i, a := range arrays {
		out[i] = owner.Ref(a)
	}
	return out
}
