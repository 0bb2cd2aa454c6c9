package dflash_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
)

// player does one random thing after another with sessions of an engine and
// knows what each of their texts must be.
type player struct {
	t        *testing.T
	e        *dflash.Engine
	rng      *rand.Rand
	sessions []*dflash.Session
	texts    [][]int
	history  []string
}

const longest = 60 // of a text

func (p *player) add(s *dflash.Session, text []int) {
	if len(p.sessions) == 4 {
		i := p.rng.IntN(4)
		require.NoError(p.t, p.sessions[i].Close())
		p.sessions, p.texts = slices.Delete(p.sessions, i, i+1), slices.Delete(p.texts, i, i+1)
	}
	p.sessions, p.texts = append(p.sessions, s), append(p.texts, slices.Clone(text))
}

// ids are a few tokens out of few, so that texts begin alike often.
func (p *player) ids(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = 65 + p.rng.IntN(2)
	}
	return out
}

// generate runs a request, breaks it off somewhere or not, and checks what came.
func (p *player) generate(i int) string {
	t, s := p.t, p.sessions[i]
	r := dflash.Request{MaxTokens: 1 + p.rng.IntN(12), IgnoreEOS: true, NoDraft: p.rng.IntN(4) == 0, NoCache: p.rng.IntN(8) == 0}
	if !r.NoDraft && p.rng.IntN(2) == 0 {
		r.BlockSize = 2 + p.rng.IntN(6)
	}
	s.SetPipelined(p.rng.IntN(2) == 0)
	text := p.texts[i]
	r.Continue = p.rng.IntN(2) == 0 && len(text) > 0
	switch {
	case r.Continue && p.rng.IntN(4) == 0:
	case r.Continue:
		r.IDs = p.ids(1 + p.rng.IntN(6))
		text = slices.Concat(text, r.IDs)
	case p.rng.IntN(3) > 0: // another's text, changed near its end
		text = slices.Clone(p.texts[p.rng.IntN(len(p.texts))])
		text = append(text[:p.rng.IntN(len(text)+1)], p.ids(1+p.rng.IntN(4))...)
		r.IDs = text
	default:
		text = p.ids(1 + p.rng.IntN(20))
		r.IDs = text
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stop, way := p.rng.IntN(20), p.rng.IntN(3)
	if stop == 0 {
		r.Progress = func(int, int) { cancel() }
	}
	var got []int
	var last error
	for token, err := range s.Generate(ctx, r) {
		if last = err; err != nil {
			break
		}
		got = append(got, token.ID)
		if len(got) == stop && way == 0 {
			break
		}
		if len(got) == stop && way == 1 {
			cancel()
		}
		if len(got) == stop && way == 2 {
			s.Decoder().FailNext(errPlanted)
		}
	}
	s.Decoder().FailNext(nil)
	if last != nil && ctx.Err() == nil {
		require.ErrorIs(t, last, errPlanted)
	} else if last != nil {
		require.ErrorIs(t, last, context.Canceled)
	}
	if last == nil && !r.NoDraft && s.InFlight() == 0 {
		require.NoError(t, s.Decoder().Settle(t.Context()))
		require.True(t, s.Decoder().Drafts())
	}
	if len(got) > 0 {
		require.Equal(t, fresh(t, p.e, text, len(got)), got)
		p.texts[i] = slices.Concat(text, got)
	}
	return fmt.Sprintf("generate %v, continue %v, no draft %v, no cache %v, block %d, limit %d, stop %d/%d: %d tokens, %v",
		r.IDs, r.Continue, r.NoDraft, r.NoCache, r.BlockSize, r.MaxTokens, stop, way, len(got), last)
}

func (p *player) step() {
	t, ctx := p.t, p.t.Context()
	i := p.rng.IntN(len(p.sessions))
	s := p.sessions[i]
	var did string
	switch op := p.rng.IntN(12); {
	case len(p.texts[i]) > longest:
		n := p.rng.IntN(longest / 2)
		did = fmt.Sprint("trim to ", n)
		require.NoError(t, s.Trim(ctx, n))
		p.texts[i] = p.texts[i][:n]
	case op < 7:
		did = p.generate(i)
	case op == 7:
		n := p.rng.IntN(len(p.texts[i]) + 1)
		did = fmt.Sprint("trim to ", n)
		require.NoError(t, s.Trim(ctx, n))
		p.texts[i] = p.texts[i][:n]
	case op == 8:
		ids := p.ids(p.rng.IntN(12))
		did = fmt.Sprint("append ", len(ids))
		require.NoError(t, s.Append(ctx, ids))
		p.texts[i] = slices.Concat(p.texts[i], ids)
	case op == 9:
		did = "branch"
		b, err := s.Branch(ctx)
		require.NoError(t, err)
		p.add(b, p.texts[i])
	case op == 10:
		did = "save and restore"
		var file bytes.Buffer
		require.NoError(t, s.Save(ctx, &file))
		file.WriteString("more")
		b, err := p.e.Restore(ctx, &file)
		require.NoError(t, err)
		require.Equal(t, "more", file.String())
		p.add(b, p.texts[i])
	default:
		did = "new"
		b, err := p.e.NewSession()
		require.NoError(t, err)
		p.add(b, nil)
	}
	p.history = append(p.history, fmt.Sprint("session ", i, ": ", did))
	for k, s := range p.sessions {
		require.Truef(t, slices.Equal(p.texts[k], s.Tokens()), "text of session %d", k)
		if (k == i || k == len(p.sessions)-1) && s.InFlight() == 0 && s.Decoder().Usable() {
			requireFreshState(t, p.e, s.Decoder(), fmt.Sprint("state of session ", k))
		}
	}
}

// Case 50: whatever is done with sessions in whatever order, texts are what they
// would be in fresh ones, and so is every array of state, to the bit. The cache
// and the states to go back to have so little room that they come and go.
func TestRandomSequences(t *testing.T) {
	const seed, steps = 1, 60
	o := dflash.Options{PrefixCacheBytes: 150 << 10, RewindBytes: 80 << 10}
	eachTargetWindow(t, 6, o, func(t *testing.T, e *dflash.Engine) {
		p := &player{t: t, e: e, rng: rand.New(rand.NewPCG(seed, 6))}
		first, err := e.NewSession()
		require.NoError(t, err)
		p.add(first, nil)
		defer func() {
			if t.Failed() {
				t.Log("seed", seed)
				for _, h := range p.history {
					t.Log(h)
				}
			}
		}()
		for range steps {
			p.step()
		}
		st := e.CacheStats()
		require.Positive(t, st.Hits)
		require.Positive(t, st.Evicted)
		require.LessOrEqual(t, st.Bytes, st.Limit)
	})
}
