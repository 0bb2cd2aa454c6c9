package dflash_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
)

func saved(t testing.TB, s *dflash.Session) []byte {
	t.Helper()
	var file bytes.Buffer
	require.NoError(t, s.Save(t.Context(), &file))
	return file.Bytes()
}

// signed gives a snapshot the checksum that it should have.
func signed(file []byte) []byte {
	body := file[:len(file)-sha256.Size]
	sum := sha256.Sum256(body)
	return append(slices.Clone(body), sum[:]...)
}

// withHeader replaces text in a snapshot's header.
func withHeader(t testing.TB, file []byte, old, new string) []byte {
	t.Helper()
	n := binary.LittleEndian.Uint32(file[12:])
	header := string(file[16 : 16+n])
	require.Contains(t, header, old)
	header = strings.Replace(header, old, new, 1)
	out := binary.LittleEndian.AppendUint32(slices.Clone(file[:12]), uint32(len(header)))
	return signed(slices.Concat(out, []byte(header), file[16+n:]))
}

// Cases 56 and 57: a session goes on from its snapshot in another engine, to the
// bit, however short it is and whatever the drafter's windows have dropped.
func TestSnapshot(t *testing.T) {
	eachTargetWindow(t, 6, dflash.Options{PrefixCacheBytes: -1}, func(t *testing.T, e *dflash.Engine) {
		o := dflash.Options{PrefixCacheBytes: -1, Draft: e.Info().DraftDir}
		other := openDir(t, e.Info().Dir, o)
		for _, r := range []dflash.Request{
			{},
			{IDs: []int{70}, MaxTokens: 1},
			{IDs: []int{70}, MaxTokens: 2},
			{IDs: span(1, 30), MaxTokens: 9},
			{IDs: span(1, 30), MaxTokens: 9, NoDraft: true},
		} {
			s := newSession(t, e)
			r.IgnoreEOS = true
			known := 0
			if r.IDs != nil {
				ids, _ := run(t, s, r)
				known = len(r.IDs) + len(ids) - 1
			}
			b, err := other.Restore(t.Context(), bytes.NewReader(saved(t, s)))
			require.NoError(t, err)
			require.Equal(t, s.Tokens(), b.Tokens())
			require.Equal(t, known, b.Decoder().Len())
			requireFreshState(t, other, b.Decoder(), "restored")
			next := dflash.Request{IDs: span(2, 5), Continue: true, MaxTokens: 8, IgnoreEOS: true, NoDraft: r.NoDraft}
			text := slices.Concat(s.Tokens(), next.IDs)
			ids, _ := run(t, b, next)
			require.Equal(t, fresh(t, e, text, 8), ids)
			require.Equal(t, known, b.Stats().CachedTokens)
			requireFreshState(t, other, b.Decoder(), "gone on")
			require.NoError(t, b.Close())
		}
	})
}

// What is not a snapshot of this model is refused, and says why.
func TestSnapshotRefused(t *testing.T) {
	spec := fixture.GDN(t, t.TempDir(), fixture.Options{Seed: 3})
	e := fixturePair(t, spec, fixture.DraftOptions{Seed: 4})
	s := newSession(t, e)
	run(t, s, dflash.Request{IDs: span(1, 20), MaxTokens: 5, IgnoreEOS: true})
	file := saved(t, s)
	arrays := lib.LiveArrays()
	refused := func(e *dflash.Engine, file []byte, why string) {
		t.Helper()
		_, err := e.Restore(t.Context(), bytes.NewReader(file))
		require.ErrorIs(t, err, dflash.ErrSnapshot)
		require.ErrorContains(t, err, why)
		require.Equal(t, arrays, lib.LiveArrays())
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		bad := slices.Clone(file)
		bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
		refused(e, bad, "")
		refused(e, file[:rng.IntN(len(file))], "cut short")
	}
	for i := range 16 + 200 {
		refused(e, file[:i], "cut short")
	}
	refused(e, []byte("a text, and not even a short one"), "no snapshot")
	version := slices.Clone(file)
	version[8] = 9
	refused(e, signed(version), "version 9")
	for _, c := range []struct{ old, new, why string }{
		{`"tokens":25`, `"tokens":26`, ""},
		{`"tokens":25`, `"tokens":-1`, "-1 tokens"},
		{`"tokens":25`, `"tokens":9999`, "9999 tokens"},
		{`"rows":24`, `"rows":26`, "26 rows"},
		{`"rows":24`, `"rows":23`, "rows"},
		{`"rows":24`, `"rows":0`, "no rows"},
		{`[1,2,24,16]`, `[1,2,12,32]`, "expected"},
		{`[1,2,24,16]`, `[2,24,16]`, "expected"},
		{`[1,2,24,16]`, `[1,2,24,16,1]`, "expected"},
		{`[1,2,24,16]`, `[1,1048576,1048576,1048576]`, "shape"},
		{`[1,2,24,16]`, `[1,2,24,0]`, "shape"},
		{`[1,2,24,16]`, `[]`, "shape"},
		{`"float32"`, `"int64"`, "int64"},
		{`"float32","shape":[1,2,24,16]`, `"float16","shape":[1,2,24,32]`, "float16"},
		{`{"dtype":"float32","shape":[1,3,128]}`, `{}`, ""},
		{`"keys":[`, `"keys":[{},`, ""},
		{`"states":[`, `"states":[{},`, ""},
		{`"draft":[`, `"draft":[{},`, ""},
		{`{`, `[`, "header"},
	} {
		refused(e, withHeader(t, file, c.old, c.new), c.why)
	}
	id := slices.Clone(file)
	binary.LittleEndian.PutUint32(id[16+binary.LittleEndian.Uint32(file[12:]):], uint32(spec.Vocab))
	refused(e, signed(id), "vocabulary")

	dense := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 3})
	others := map[string]*dflash.Engine{
		"another target":  fixturePair(t, dense, fixture.DraftOptions{Seed: 4}),
		"another drafter": fixturePair(t, spec, fixture.DraftOptions{Seed: 4, Layers: 3}),
		"where there is":  openDir(t, spec.Dir, dflash.Options{}),
	}
	arrays = lib.LiveArrays()
	for why, other := range others {
		refused(other, file, why)
	}
}

var errDisk = errors.New("no space left")

// breaking fails after n bytes.
type breaking struct{ n int }

func (b *breaking) Write(p []byte) (int, error) {
	if b.n -= len(p); b.n < 0 {
		return 0, errDisk
	}
	return len(p), nil
}

// A file that cannot be written or read is that error, and the session stays.
func TestSnapshotErrors(t *testing.T) {
	spec := fixture.GDN(t, t.TempDir(), fixture.Options{Seed: 3})
	e := fixturePair(t, spec, fixture.DraftOptions{Seed: 4})
	s := newSession(t, e)
	run(t, s, dflash.Request{IDs: span(1, 20), MaxTokens: 5, IgnoreEOS: true})
	file := saved(t, s)
	for _, n := range []int{0, 100, len(file) / 2, len(file) - 1} {
		require.ErrorIs(t, s.Save(t.Context(), &breaking{n}), errDisk)
		_, err := e.Restore(t.Context(), io.MultiReader(bytes.NewReader(file[:n]), errReader{}))
		require.ErrorIs(t, err, errDisk)
	}
	require.Equal(t, file, saved(t, s))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Save(ctx, io.Discard), context.Canceled)
	_, err := e.Restore(ctx, bytes.NewReader(file))
	require.ErrorIs(t, err, context.Canceled)
	for range s.Generate(t.Context(), dflash.Request{IDs: span(1, 9), MaxTokens: 2, IgnoreEOS: true}) {
		require.ErrorIs(t, s.Save(t.Context(), io.Discard), dflash.ErrBusy)
		require.ErrorIs(t, s.Trim(t.Context(), 0), dflash.ErrBusy)
		require.ErrorIs(t, s.Append(t.Context(), nil), dflash.ErrBusy)
		_, err := s.Branch(t.Context())
		require.ErrorIs(t, err, dflash.ErrBusy)
	}
	for _, n := range []int{-1, len(s.Tokens()) + 1} { // case 24
		require.ErrorIs(t, s.Trim(t.Context(), n), dflash.ErrRequest)
	}
	require.ErrorIs(t, s.Append(t.Context(), []int{spec.Vocab}), dflash.ErrRequest)
	require.ErrorIs(t, s.Append(t.Context(), make([]int, 513)), dflash.ErrContextLength)
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Save(t.Context(), io.Discard), dflash.ErrClosed)
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errDisk }

// A hostile file whose checksum is right is refused or makes a session that
// works; it never does harm.
func FuzzRestore(f *testing.F) {
	spec := fixture.GDN(f, f.TempDir(), fixture.Options{Seed: 3})
	e := fixturePair(f, spec, fixture.DraftOptions{Seed: 4})
	s := newSession(f, e)
	for _, err := range s.Generate(f.Context(), dflash.Request{IDs: span(1, 3), MaxTokens: 2, IgnoreEOS: true}) {
		require.NoError(f, err)
	}
	file := saved(f, s)
	f.Add(file)
	f.Add(withHeader(f, file, `"rows":4`, `"rows":3`))
	f.Add(withHeader(f, file, `[1,2,4,16]`, `[1,2,2,32]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > sha256.Size {
			data = signed(data)
		}
		s, err := e.Restore(t.Context(), bytes.NewReader(data))
		if err != nil {
			return
		}
		defer s.Close()
		for _, err := range s.Generate(t.Context(), dflash.Request{IDs: []int{1}, Continue: true, MaxTokens: 2, IgnoreEOS: true}) {
			if err != nil {
				require.ErrorIs(t, err, dflash.ErrNonFinite) // numbers may be anything
			}
		}
	})
}
