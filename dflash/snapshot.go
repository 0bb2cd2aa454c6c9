package dflash

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"

	"github.com/godflash/godflash/mlx"
)

// A snapshot is, in little-endian order:
//
//	magic      8 bytes
//	version    uint32
//	length     uint32, of the header
//	header     JSON, snapshotHeader
//	tokens     int32 each
//	arrays     their elements, row by row, in the header's order
//	checksum   SHA-256 of all before
const (
	snapshotMagic   = "godflash"
	snapshotVersion = 1

	maxSnapshotHeader = 1 << 20
	maxSnapshotDims   = 8
)

type snapshotHeader struct {
	Target  string `json:"target"`  // identity of the target's files
	Drafter string `json:"drafter"` // and of the drafter's, empty without one
	Tokens  int    `json:"tokens"`
	Rows    int    `json:"rows"` // tokens, from the first on, whose state follows

	Keys   []snapshotArray `json:"keys"`   // TargetCache.Rows
	States []snapshotArray `json:"states"` // TargetCache.States
	Draft  []snapshotArray `json:"draft"`  // DraftContext.rows, or none
}

func (h *snapshotHeader) arrays() []snapshotArray {
	return slices.Concat(h.Keys, h.States, h.Draft)
}

// snapshotArray is an array's type and shape; without a type it stands for no
// array.
type snapshotArray struct {
	Dtype string `json:"dtype,omitempty"`
	Shape []int  `json:"shape,omitempty"`
}

// snapshotDtypes are the types that a state may have.
var snapshotDtypes = []mlx.Dtype{mlx.Float32, mlx.Float16, mlx.BFloat16}

func (a *snapshotArray) dtype() (mlx.Dtype, bool) {
	for _, dt := range snapshotDtypes {
		if dt.String() == a.Dtype {
			return dt, true
		}
	}
	return 0, false
}

// bytes is the array's size; it checks everything that the size depends on.
func (a *snapshotArray) bytes() (int64, error) {
	if a.Dtype == "" && len(a.Shape) == 0 {
		return 0, nil
	}
	dt, ok := a.dtype()
	if !ok || len(a.Shape) == 0 || len(a.Shape) > maxSnapshotDims {
		return 0, fmt.Errorf("%w: an array of type %q and shape %v", ErrSnapshot, a.Dtype, a.Shape)
	}
	n := int64(dt.Size())
	for _, dim := range a.Shape {
		if dim < 1 || n > (1<<40)/int64(dim) {
			return 0, fmt.Errorf("%w: an array of shape %v", ErrSnapshot, a.Shape)
		}
		n *= int64(dim)
	}
	return n, nil
}

// Save writes the session's text and its state to w, for Engine.Restore. The
// session stays as it is. What it takes is the size of the keys, values and
// recurrent states; points to which a recurrent state could go back are not
// saved.
//
// The file says which models it belongs to and has a checksum of all its bytes.
// It holds the text, as ids, and anybody who can read it can read that.
func (s *Session) Save(ctx context.Context, w io.Writer) error {
	release, err := s.acquire()
	if err != nil {
		return err
	}
	defer release()
	d, text := s.decoder, s.held()
	if err := d.align(ctx, text); err != nil {
		return err
	}
	h := snapshotHeader{Target: s.engine.identity[0], Drafter: s.engine.identity[1], Tokens: len(text), Rows: len(d.past.rows)}
	count := 0
	err = d.lib.Do(ctx, func(sc *mlx.Scope) error {
		keys, states, draft := d.arrays(sc)
		h.Keys, h.States, h.Draft = describe(keys), describe(states), describe(draft)
		count = len(keys) + len(states) + len(draft)
		return sc.Err()
	})
	if err != nil {
		return err
	}
	out := &hashed{w: w, sum: sha256.New()}
	if err := writeSnapshotHead(out, &h, text); err != nil {
		return err
	}
	for i := range count {
		var data []byte
		err := d.lib.Do(ctx, func(sc *mlx.Scope) error {
			keys, states, draft := d.arrays(sc)
			a := slices.Concat(keys, states, draft)[i]
			if !a.Valid() {
				return sc.Err()
			}
			var err error
			data, err = mlx.ToSlice[uint8](sc.View(sc.Contiguous(a), mlx.Uint8))
			return err
		})
		if err != nil {
			return err
		}
		if err := out.write(data); err != nil {
			return err
		}
	}
	if _, err := w.Write(out.sum.Sum(nil)); err != nil {
		return fmt.Errorf("write a snapshot: %w", err)
	}
	return nil
}

// arrays are the state of the committed rows.
func (d *Decoder) arrays(s *mlx.Scope) (keys, states, draft []mlx.Array) {
	n := len(d.past.rows)
	if n == 0 {
		return nil, nil, nil
	}
	if d.context != nil && d.context.Len() == n && d.context.reaches(n) {
		draft = d.context.rows(s, 0, n)
	}
	return d.cache.Rows(s, 0, n), d.cache.States(s), draft
}

func describe(arrays []mlx.Array) []snapshotArray {
	out := make([]snapshotArray, len(arrays))
	for i, a := range arrays {
		if a.Valid() {
			out[i] = snapshotArray{a.Dtype().String(), a.Shape()}
		}
	}
	return out
}

// hashed is a writer whose bytes are summed.
type hashed struct {
	w   io.Writer
	sum hash.Hash
}

func (h *hashed) write(data []byte) error {
	h.sum.Write(data)
	if _, err := h.w.Write(data); err != nil {
		return fmt.Errorf("write a snapshot: %w", err)
	}
	return nil
}

func writeSnapshotHead(out *hashed, h *snapshotHeader, text []int) error {
	header, err := json.Marshal(h)
	if err != nil {
		return err
	}
	head := []byte(snapshotMagic)
	head = binary.LittleEndian.AppendUint32(head, snapshotVersion)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(header)))
	head = append(head, header...)
	for _, id := range text {
		head = binary.LittleEndian.AppendUint32(head, uint32(id))
	}
	return out.write(head)
}

// Restore makes a session of what Session.Save wrote. A file for other models or
// of another version, a damaged or a cut one is refused with ErrSnapshot before
// anything is computed; memory grows with what r gives, whatever the file claims.
// Bytes after the snapshot are not read.
func (e *Engine) Restore(ctx context.Context, r io.Reader) (*Session, error) {
	h, text, arrays, err := e.readSnapshot(ctx, r)
	if err != nil {
		return nil, err
	}
	d, err := e.NewDecoder()
	if err != nil {
		return nil, err
	}
	if h.Rows > 0 {
		err = d.lib.Do(ctx, func(s *mlx.Scope) error { return d.restore(s, h, text, arrays) })
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return e.register(d, text)
}

func (d *Decoder) restore(s *mlx.Scope, h *snapshotHeader, text []int, data [][]byte) error {
	var arrays []mlx.Array
	for i, a := range h.arrays() {
		arrays = append(arrays, mlx.Array{})
		if a.Dtype == "" {
			continue
		}
		dt, _ := a.dtype()
		shape := append([]int(nil), a.Shape...)
		shape[len(shape)-1] *= dt.Size()
		arrays[i] = s.View(mlx.FromSlice(s, data[i], shape...), dt)
		data[i] = nil
	}
	if err := s.Err(); err != nil {
		return err
	}
	keys, states, draft := arrays[:len(h.Keys)], arrays[len(h.Keys):len(h.Keys)+len(h.States)], arrays[len(h.Keys)+len(h.States):]
	if err := d.cache.Restore(s, h.Rows, [][]mlx.Array{keys}, states); err != nil {
		return fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	if d.context != nil && len(draft) > 0 {
		if err := d.context.restore(s, h.Rows, [][]mlx.Array{draft}); err != nil {
			return fmt.Errorf("%w: %w", ErrSnapshot, err)
		}
	}
	d.past.rows = append(d.past.rows, text[:h.Rows]...)
	return s.Eval(d.state()...)
}

// readSnapshot reads and checks all that can be checked without the models'
// library.
func (e *Engine) readSnapshot(ctx context.Context, r io.Reader) (*snapshotHeader, []int, [][]byte, error) {
	fail := func(format string, args ...any) (*snapshotHeader, []int, [][]byte, error) {
		return nil, nil, nil, fmt.Errorf("%w: "+format, append([]any{ErrSnapshot}, args...)...)
	}
	sum := sha256.New()
	in := io.TeeReader(r, sum)
	start, err := readBytes(ctx, in, int64(len(snapshotMagic)+8))
	if err != nil {
		return nil, nil, nil, err
	}
	version, length := binary.LittleEndian.Uint32(start[8:]), binary.LittleEndian.Uint32(start[12:])
	switch {
	case string(start[:8]) != snapshotMagic:
		return fail("it is no snapshot of a session")
	case version != snapshotVersion:
		return fail("it has version %d, this library reads version %d", version, snapshotVersion)
	case length > maxSnapshotHeader:
		return fail("its header has %d bytes", length)
	}
	text, err := readBytes(ctx, in, int64(length))
	if err != nil {
		return nil, nil, nil, err
	}
	var h snapshotHeader
	if err := json.Unmarshal(text, &h); err != nil {
		return fail("its header: %v", err)
	}
	switch {
	case h.Target != e.identity[0]:
		return fail("it is of another target than the one in %s", e.info.Dir)
	case h.Drafter != e.identity[1]:
		return fail("it was saved with another drafter, or with one where there is none now")
	case h.Tokens < 0 || h.Tokens > e.info.ContextLength || h.Rows < 0 || h.Rows > h.Tokens:
		return fail("%d tokens and %d rows, the model has %d positions", h.Tokens, h.Rows, e.info.ContextLength)
	case h.Rows == 0 && len(h.arrays()) > 0:
		return fail("%d arrays of no rows", len(h.arrays()))
	}
	raw, err := readBytes(ctx, in, 4*int64(h.Tokens))
	if err != nil {
		return nil, nil, nil, err
	}
	ids := make([]int, h.Tokens)
	for i := range ids {
		if ids[i] = int(int32(binary.LittleEndian.Uint32(raw[4*i:]))); ids[i] < 0 || ids[i] >= e.info.VocabSize {
			return fail("token %d is %d, the vocabulary has %d", i, ids[i], e.info.VocabSize)
		}
	}
	var arrays [][]byte
	for _, a := range h.arrays() {
		n, err := a.bytes()
		if err != nil {
			return nil, nil, nil, err
		}
		data, err := readBytes(ctx, in, n)
		if err != nil {
			return nil, nil, nil, err
		}
		arrays = append(arrays, data)
	}
	want := sum.Sum(nil)
	got, err := readBytes(ctx, r, sha256.Size)
	if err != nil {
		return nil, nil, nil, err
	}
	if !bytes.Equal(want, got) {
		return fail("its checksum is wrong: it is damaged")
	}
	return &h, ids, arrays, nil
}

// readBytes reads n bytes in pieces, so that a file that claims more than it has
// costs no memory.
func readBytes(ctx context.Context, r io.Reader, n int64) ([]byte, error) {
	const piece = 1 << 20
	var out []byte
	for int64(len(out)) < n {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		at := len(out)
		out = append(out, make([]byte, min(piece, n-int64(at)))...)
		if _, err := io.ReadFull(r, out[at:]); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, fmt.Errorf("%w: it is cut short", ErrSnapshot)
			}
			return nil, fmt.Errorf("read a snapshot: %w", err)
		}
	}
	return out, nil
}
