package dflash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/mlx"
)

// DefaultPrefillChunk is the number of prompt tokens that one forward pass takes.
const DefaultPrefillChunk = 2048

// DraftContextExceeded is the reason in Stats.DraftOff when a sequence has
// grown past the positions that the drafter knows.
const DraftContextExceeded = "draft_context_exceeded"

// DecoderOptions are the choices of NewDecoder; nil and zero values are the
// defaults.
type DecoderOptions struct {
	PrefillChunk int // 0: DefaultPrefillChunk
	// Sampling draws the tokens; the zero value is greedy. A Seed of 0 is
	// replaced by one that Decoder.Seed tells.
	Sampling Sampling
}

// Decoder is one sequence of a target and, where there is one, a drafter,
// driven by hand: Prefill once, then Propose, Verify and Commit in turn.
//
//	anchor, err := d.Prefill(ctx, ids)
//	for … {
//		drafts, err := d.Propose(ctx, 15)
//		v, err := d.Verify(ctx, drafts)
//		err = d.Commit(ctx, v.Accepted+1) // v.Choices[:v.Accepted+1] are the new tokens
//	}
//
// The anchor is the newest token: chosen, but not run through the target yet.
// Drafts need not come from Propose. Whatever they are, the tokens committed
// are the target's choices.
//
// Its methods may be called from any goroutine, one at a time: a second call
// waits. After an error of the native library the state is undefined and every
// call fails until Reset.
type Decoder struct {
	target  Target
	drafter *Drafter
	lib     *mlx.Library
	info    TargetInfo
	chunk   int

	mu      sync.Mutex
	owner   *mlx.Scope // of the pending block's taps
	cache   TargetCache
	context *DraftContext // nil without a drafter
	closed  bool
	failed  error

	started  bool // Prefill gave an anchor
	anchor   int
	sampler  *sampler // nil: greedy
	drafting bool     // the drafter's context has a row for every committed token
	draftOff string   // why drafting is false
	pending  *pendingBlock

	// Cycles in flight on the device, see pipeline.go.
	pipelined   bool
	flights     []flight
	anchorArray mlx.Array // int32 [1] while cycles are in flight
	settled     int       // committed rows whose counts are read
}

// pendingBlock is a verified block that waits for Commit.
type pendingBlock struct {
	Verdict
	rows int
	taps []mlx.Array
}

// Verdict is what the target says of a block.
type Verdict struct {
	// Choices are the target's tokens after the anchor and after each
	// draft. Choices[i] is only worth something while the drafts before it are
	// right, that is for i <= Accepted.
	Choices []int
	// Accepted is the number of leading drafts that equal the target's choice.
	Accepted int
}

// NewDecoder makes an empty sequence. A nil drafter means plain decoding. The
// error wraps ErrPairMismatch where the two do not fit.
func NewDecoder(t Target, d *Drafter, o *DecoderOptions) (*Decoder, error) {
	if o == nil {
		o = &DecoderOptions{}
	}
	if o.PrefillChunk < 0 {
		return nil, fmt.Errorf("%w: PrefillChunk is %d", ErrRequest, o.PrefillChunk)
	}
	if err := o.Sampling.check(); err != nil {
		return nil, err
	}
	dec := &Decoder{sampler: newSampler(o.Sampling), target: t, drafter: d, lib: t.Library(), info: t.Info(), chunk: o.PrefillChunk}
	if dec.chunk == 0 {
		dec.chunk = DefaultPrefillChunk
	}
	if d != nil {
		if err := d.cfg.CheckPair(dec.info); err != nil {
			return nil, err
		}
		dec.context = d.NewContext()
	}
	dec.pipelined = dec.lib.Device() == mlx.DeviceGPU
	dec.cache = t.NewCache()
	dec.owner = dec.lib.NewScope("decoder")
	dec.startDrafting()
	return dec, nil
}

func (d *Decoder) startDrafting() {
	d.drafting, d.draftOff = d.drafter != nil, ""
	if d.drafter == nil {
		d.draftOff = "no drafter"
	}
}

// stopDrafting ends drafting for the rest of the sequence: the context is no
// longer extended, so it could not be taken up again.
func (d *Decoder) stopDrafting(why string) { d.drafting, d.draftOff = false, why }

// Close frees the sequence's state, more than once if need be.
func (d *Decoder) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	d.pending = nil
	err := errors.Join(d.owner.Close(), d.cache.Close())
	if d.context != nil {
		err = errors.Join(err, d.context.Close())
	}
	return err
}

// Len is the number of tokens whose state is committed: the anchor is not
// among them.
func (d *Decoder) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cache.Len()
}

// ContextLen is the number of rows in the drafter's context, 0 without one.
// While drafting it equals Len.
func (d *Decoder) ContextLen() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.context == nil {
		return 0
	}
	return d.context.Len()
}

// Anchor is the newest token. It is 0 before Prefill.
func (d *Decoder) Anchor() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.anchor
}

// Seed is what the draws depend on, 0 for greedy decoding.
func (d *Decoder) Seed() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sampler == nil {
		return 0
	}
	return d.sampler.Seed
}

// Cache is the target's state of the sequence, for inspection inside Do.
func (d *Decoder) Cache() TargetCache { return d.cache }

// Reset empties the sequence and gives its memory back.
func (d *Decoder) Reset(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reset(ctx)
}

func (d *Decoder) reset(ctx context.Context) error {
	if d.closed {
		return fmt.Errorf("decoder: %w", ErrClosed)
	}
	return d.lib.Do(ctx, func(*mlx.Scope) error {
		d.release()
		d.ground()
		d.cache.Reset()
		if d.context != nil {
			d.context.Reset()
		}
		d.failed, d.started, d.anchor = nil, false, 0
		d.startDrafting()
		return nil
	})
}

// release drops the pending block's taps.
func (d *Decoder) release() {
	if d.pending != nil {
		d.owner.Free(d.pending.taps...)
		d.pending = nil
	}
}

// usable says why a call cannot run.
func (d *Decoder) usable() error {
	switch {
	case d.closed:
		return fmt.Errorf("decoder: %w", ErrClosed)
	case d.failed != nil:
		return fmt.Errorf("decoder failed before and needs Reset: %w", d.failed)
	}
	return nil
}

// do runs one piece of work on the library's thread. An error that comes back
// from inside leaves caches that may not agree with each other.
func (d *Decoder) do(ctx context.Context, f func(s *mlx.Scope) error) error {
	ran := false
	err := d.lib.Do(ctx, func(s *mlx.Scope) error {
		ran = true
		return f(s)
	})
	if err != nil && ran {
		d.failed = err
	}
	return err
}

// checkIDs refuses ids that are no row of the embedding: an index out of range
// would read foreign memory.
func (d *Decoder) checkIDs(what string, ids []int) error {
	for i, id := range ids {
		if id < 0 || id >= d.info.VocabSize {
			return fmt.Errorf("%w: %s %d is %d, the vocabulary has %d", ErrRequest, what, i, id, d.info.VocabSize)
		}
	}
	return nil
}

// Prefill runs the tokens ids from the end of the sequence, in chunks, and
// returns the target's choice after them, which becomes the anchor. An
// anchor from before is not run: include it in ids where it belongs.
//
// Context cancellation is seen between chunks; the tokens of finished chunks
// stay, and the sequence needs Reset.
func (d *Decoder) Prefill(ctx context.Context, ids []int) (anchor int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return 0, err
	}
	return d.prefill(ctx, ids)
}

func (d *Decoder) prefill(ctx context.Context, ids []int) (int, error) {
	switch at := d.cache.Len(); {
	case len(ids) == 0:
		return 0, ErrEmptyPrompt
	case d.pending != nil:
		return 0, fmt.Errorf("%w: a verified block waits for Commit", ErrRequest)
	case at+len(ids) > d.info.ContextLength:
		return 0, fmt.Errorf("%w: %d tokens, the model has %d positions", ErrContextLength, at+len(ids), d.info.ContextLength)
	}
	if err := d.checkIDs("token", ids); err != nil {
		return 0, err
	}
	// A drafter that has no room for a block after the prompt is of no use.
	if d.drafting && d.cache.Len()+len(ids)+2 > d.drafter.cfg.MaxPositionEmbeddings {
		d.stopDrafting(DraftContextExceeded)
	}
	for start := 0; start < len(ids); start += d.chunk {
		end := min(start+d.chunk, len(ids))
		err := d.do(ctx, func(s *mlx.Scope) error { return d.prefillChunk(s, ids[start:end], end == len(ids)) })
		if err != nil {
			if start > 0 && d.failed == nil {
				d.failed = err // part of the prompt is in the caches
			}
			return 0, err
		}
	}
	d.started = true
	return d.anchor, nil
}

func (d *Decoder) prefillChunk(s *mlx.Scope, ids []int, last bool) error {
	hidden, taps := d.target.Forward(s, idArray(s, ids), d.cache, d.taps())
	if err := s.Err(); err != nil {
		return err
	}
	var first mlx.Array
	if last {
		noise := d.sampler.noise(s, nn.At(d.cache.Len()+len(ids)), 1, d.info.VocabSize)
		first = d.choose(s, d.target.Logits(s, s.SliceAxis(hidden, 1, len(ids)-1, len(ids))), noise)
	}
	if err := d.commitRows(s, taps, len(ids)); err != nil {
		return err
	}
	results := d.state()
	if last {
		results = append(results, first)
	}
	if err := s.Eval(results...); err != nil {
		return err
	}
	if last {
		choice, err := readIDs(first)
		if err != nil {
			return err
		}
		if d.anchor = choice[0]; d.anchor == nonFinite {
			return d.findNonFinite(s, ids)
		}
	}
	if !last || len(ids) >= DefaultPrefillChunk {
		return d.lib.ClearCache(context.Background())
	}
	return nil
}

// taps are the target's layers whose outputs the drafter needs.
func (d *Decoder) taps() []int {
	if !d.drafting {
		return nil
	}
	return d.drafter.cfg.TargetLayerIDs
}

// state lists the arrays that every round must evaluate.
func (d *Decoder) state() []mlx.Array {
	arrays := d.cache.Arrays()
	if d.context != nil {
		arrays = append(arrays, d.context.Arrays()...)
	}
	return arrays
}

// commitRows keeps the first n rows of the target's pending block and gives
// their taps to the drafter.
func (d *Decoder) commitRows(s *mlx.Scope, taps []mlx.Array, n int) error {
	if err := d.cache.Commit(s, n); err != nil {
		return err
	}
	if !d.drafting {
		return nil
	}
	return d.drafter.Append(s, d.context, taps, n)
}

// room is the number of rows, up to rows, that a block may have at the
// sequence's end in the target's context.
func (d *Decoder) room(rows int) int { return min(rows, d.info.ContextLength-d.cache.Len()) }

// draftRoom is room for a block that the drafter fills. Fewer than 2 rows mean
// that it cannot draft any more, which it then does not.
func (d *Decoder) draftRoom(rows int) int {
	rows = min(rows, d.drafter.cfg.BlockSize)
	left := d.drafter.cfg.MaxPositionEmbeddings - d.cache.Len()
	if left < 2 {
		d.stopDrafting(DraftContextExceeded)
	}
	return min(rows, left)
}

// Propose has the drafter fill a block after the anchor and returns n drafts
// or fewer: at most the checkpoint's block size less one, and never past the
// last position. No drafts and no error mean that there is no room, or that
// the sequence has outgrown the drafter. The sequence is as before.
func (d *Decoder) Propose(ctx context.Context, n int) ([]int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch err := d.usable(); {
	case err != nil:
		return nil, err
	case d.drafter == nil:
		return nil, fmt.Errorf("%w: Propose without a drafter", ErrRequest)
	case !d.started || d.pending != nil:
		return nil, fmt.Errorf("%w: Propose follows Prefill or Commit", ErrRequest)
	case n < 0:
		return nil, fmt.Errorf("%w: %d drafts", ErrRequest, n)
	}
	if !d.drafting {
		return nil, nil
	}
	rows := d.room(d.draftRoom(n + 1))
	if rows < 2 {
		return nil, nil
	}
	var drafts []int
	err := d.do(ctx, func(s *mlx.Scope) error {
		var err error
		drafts, err = readIDs(d.propose(s, idArray(s, []int{d.anchor}), d.noise(s, rows-1), rows))
		return err
	})
	return drafts, err
}

// propose is the drafter's block of rows after anchor int32 [1], int32
// [rows-1], drawn with the noise of those positions.
func (d *Decoder) propose(s *mlx.Scope, anchor, noise mlx.Array, rows int) mlx.Array {
	masks := s.Full(float64(d.drafter.cfg.MaskTokenID), mlx.Int32, rows-1)
	block := s.Reshape(d.target.Embed(s, s.Concat(0, anchor, masks)), 1, rows, d.info.HiddenSize)
	return d.pick(s, d.target.Unembed(s, d.drafter.Propose(s, d.context, block)), noise)
}

// Verify runs the anchor and the drafts through the target in one pass and
// says how far the drafts are right. The block is pending until Commit. No
// drafts make a plain decoding step.
func (d *Decoder) Verify(ctx context.Context, drafts []int) (Verdict, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch err := d.usable(); {
	case err != nil:
		return Verdict{}, err
	case !d.started || d.pending != nil:
		return Verdict{}, fmt.Errorf("%w: Verify follows Prefill or Commit", ErrRequest)
	case d.room(len(drafts)+1) <= len(drafts):
		return Verdict{}, fmt.Errorf("%w: a block of %d rows at position %d, the model has %d", ErrContextLength, len(drafts)+1, d.cache.Len(), d.info.ContextLength)
	}
	if err := d.checkIDs("draft", drafts); err != nil {
		return Verdict{}, err
	}
	if d.drafting && d.cache.Len()+len(drafts)+1 > d.drafter.cfg.MaxPositionEmbeddings {
		d.stopDrafting(DraftContextExceeded)
	}
	var p *pendingBlock
	err := d.do(ctx, func(s *mlx.Scope) error {
		ids := idArray(s, append([]int{d.anchor}, drafts...))
		noise := d.noise(s, len(drafts)+1)
		hidden, taps := d.target.Forward(s, ids, d.cache, d.taps())
		choices := d.choose(s, d.target.Logits(s, hidden), noise)
		if err := s.Eval(append([]mlx.Array{choices}, taps...)...); err != nil {
			return err
		}
		tokens, err := readIDs(choices)
		if err != nil {
			return err
		}
		if slices.Contains(tokens, nonFinite) {
			return d.findNonFinite(s, append([]int{d.anchor}, drafts...))
		}
		p = &pendingBlock{Verdict: Verdict{Choices: tokens, Accepted: leading(drafts, tokens)}, rows: len(tokens)}
		for _, t := range taps {
			p.taps = append(p.taps, d.owner.Move(t))
		}
		return nil
	})
	if err != nil {
		return Verdict{}, err
	}
	d.pending = p
	return p.Verdict, nil
}

// leading counts the drafts that equal the target's choice, from the first on.
func leading(drafts, choices []int) int {
	for i, id := range drafts {
		if id != choices[i] {
			return i
		}
	}
	return len(drafts)
}

// Commit keeps the first n rows of the verified block: the anchor and n-1
// drafts, 0 <= n <= Accepted+1. Choices[n-1] becomes the anchor. 0 gives the
// whole block back and leaves the sequence as before Verify.
func (d *Decoder) Commit(ctx context.Context, n int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return err
	}
	p := d.pending
	switch {
	case p == nil:
		return fmt.Errorf("%w: Commit follows Verify", ErrRequest)
	case n < 0 || n > p.Accepted+1:
		return fmt.Errorf("%w: commit of %d rows where %d drafts are right", ErrRequest, n, p.Accepted)
	}
	err := d.do(ctx, func(s *mlx.Scope) error {
		if err := d.commitRows(s, p.taps, n); err != nil {
			return err
		}
		d.release()
		return s.Eval(d.state()...)
	})
	if err != nil {
		return err
	}
	if n > 0 {
		d.anchor = p.Choices[n-1]
	}
	return nil
}

func idArray(s *mlx.Scope, ids []int) mlx.Array {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return mlx.FromSlice(s, out)
}

func readIDs(a mlx.Array) ([]int, error) {
	if !a.Valid() {
		return nil, nil // the scope's error comes back from Do
	}
	ids, err := mlx.ToSlice[int32](a)
	if err != nil {
		return nil, err
	}
	out := make([]int, len(ids))
	for i, id := range ids {
		out[i] = int(id)
	}
	return out, nil
}
