package dflash

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/godflash/godflash/internal/probe"
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
	// replaced by one that Decoder.Seed tells. Rejection is refused: Verify does
	// not know what its drafts were drawn from.
	Sampling Sampling
	// Penalties, LogitBias and BannedIDs are as in Request. The prompt is what
	// Prefill runs, the completion what is committed after it.
	Penalties Penalties
	LogitBias map[int]float64
	BannedIDs []int
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

	past        past
	started     bool // Prefill gave an anchor
	anchor      int
	anchorProbs []tokenProbs // of the anchor that Prefill chose, nil where nobody asked
	scorer      *scorer
	constraint  constraint // nil: any token
	drafting    bool       // the drafter's context has, with waiting, a row for every committed token
	draftOff    string     // why drafting is false
	pending     *pendingBlock
	waiting     [][]mlx.Array // taps of the newest committed rows, see waiting.go

	// Cycles in flight on the device, see pipeline.go.
	pipelined   bool
	flights     []flight
	anchorArray mlx.Array // int32 [1] while cycles are in flight
	settled     int       // committed rows whose counts are read
	clock       landings

	probe *probe.Probe // nil but for measurements
}

// pendingBlock is a verified block that waits for Commit.
type pendingBlock struct {
	Verdict
	ids  []int // the anchor and the drafts
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
	score := scoring{Sampling: o.Sampling, Penalties: o.Penalties, LogitBias: o.LogitBias, BannedIDs: o.BannedIDs}
	if err := score.check(t.Info().VocabSize); err != nil {
		return nil, err
	}
	if o.Sampling.Rejection {
		return nil, fmt.Errorf("%w: DecoderOptions.Sampling.Rejection; Session does it", ErrUnsupported)
	}
	dec := &Decoder{target: t, drafter: d, lib: t.Library(), info: t.Info(), chunk: o.PrefillChunk}
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
	dec.scorer = dec.newScorer(score)
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

// limitDraft ends drafting where the drafter does not know the first end
// positions: those of rows that are about to come, after a prompt also of the
// smallest block, 2.
func (d *Decoder) limitDraft(end int) {
	if d.drafting && end > d.drafter.cfg.MaxPositionEmbeddings {
		d.stopDrafting(DraftContextExceeded)
	}
}

// Close frees the sequence's state, more than once if need be.
func (d *Decoder) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	d.pending = nil
	end := func() error {
		err := errors.Join(d.owner.Close(), d.cache.Close())
		if d.context != nil {
			err = errors.Join(err, d.context.Close())
		}
		return err
	}
	// One turn on the library's thread instead of three. Where the library is
	// closed there is nothing left to end.
	_ = d.lib.Do(context.Background(), func(*mlx.Scope) error { return end() })
	return end()
}

// Len is the number of tokens whose state is committed: the anchor is not
// among them.
func (d *Decoder) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cache.Len()
}

// ContextLen is the number of rows in the drafter's context, 0 without one.
// While drafting it equals Len, rows that wait to be projected included.
func (d *Decoder) ContextLen() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.context == nil {
		return 0
	}
	return d.context.Len() + len(d.waiting)
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
	return d.seed()
}

func (d *Decoder) seed() uint64 {
	if d.scorer.sampler == nil {
		return 0
	}
	return d.scorer.sampler.Seed
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
		d.empty()
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

// taps are the target's layers whose outputs the drafter needs.
func (d *Decoder) taps() []int {
	if !d.drafting {
		return nil
	}
	return d.drafter.cfg.TargetLayerIDs
}

// state lists the arrays that every round must evaluate.
func (d *Decoder) state() []mlx.Array {
	arrays := append(d.cache.Arrays(), d.scorer.arrays()...)
	if d.context != nil {
		arrays = append(arrays, d.context.Arrays()...)
	}
	if n := len(d.waiting); n > 0 {
		arrays = append(arrays, d.waiting[n-1]...) // the older ones were listed before
	}
	return arrays
}

// commitRows keeps the first n rows of the target's pending block and gives
// their taps to the drafter. The scorer counts them by itself.
func (d *Decoder) commitRows(s *mlx.Scope, taps []mlx.Array, n int) error {
	if err := d.cache.Commit(s, n); err != nil {
		return err
	}
	if !d.drafting {
		return nil
	}
	// A block verified by hand keeps its taps itself until the commit is done.
	if n == 1 && taps[0].Dim(1) == 1 && d.pending == nil {
		return d.wait(s, taps)
	}
	if err := d.flush(s); err != nil {
		return err
	}
	return d.drafter.Append(s, d.context, taps, n)
}

// room is the number of rows, up to rows, that a block may have at the
// sequence's end in the target's context.
func (d *Decoder) room(rows int) int { return min(rows, d.info.ContextLength-d.cache.Len()) }

// draftRoom is room for a block that the drafter fills. Fewer than 2 rows mean
// that it cannot draft any more, which it then does not.
func (d *Decoder) draftRoom(rows int) int {
	d.limitDraft(d.cache.Len() + 2)
	return min(rows, d.drafter.cfg.BlockSize, d.drafter.cfg.MaxPositionEmbeddings-d.cache.Len())
}

func idArray(s *mlx.Scope, ids []int) mlx.Array {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return mlx.FromSlice(s, out)
}

func readIDs(a mlx.Array) ([]int, error) { return readPosted(mlx.Posted{Array: a}) }

func readPosted(p mlx.Posted) ([]int, error) {
	if !p.Array.Valid() {
		return nil, nil // the scope's error comes back from Do
	}
	ids, err := p.Read()
	if err != nil {
		return nil, err
	}
	out := make([]int, len(ids))
	for i, id := range ids {
		out[i] = int(id)
	}
	return out, nil
}
