package dflash_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen/chat"
)

// mixer sends requests of random features to a few sessions of an engine and
// compares each with the same request in a session that has seen nothing but the
// text before it: without drafts, without a cache, in one chunk, of an engine of
// its own.
type mixer struct {
	t        *testing.T
	rng      *rand.Rand
	e, plain *dflash.Engine
	sessions []*dflash.Session
	nested   bool
	history  []string

	seen map[string]int // what the requests have met
}

// featuresTemplate is the fixtures' template with a sign that calls are in XML.
const featuresTemplate = `{#- <tool_call> <function= -#}
{%- for message in messages -%}
    {{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\n' -}}
    {%- if enable_thinking is defined -%}{{- '<think>\n' if enable_thinking else '<think>\n\n</think>\n\n' -}}{%- endif -%}
{%- endif -%}`

// alphabet are the tokens that most requests are kept to: few, so that noise for
// drafts is right often and texts meet stop texts; é is two of them.
var alphabet = []int{'a', 'b', '\n', '{', '"', '1', '}', 0xc3, 0xa9, fixture.Think, fixture.ThinkEnd, fixture.ImEnd}

var featureTools = []json.RawMessage{
	json.RawMessage(`{"name":"f","parameters":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}`),
	json.RawMessage(`{"name":"g"}`),
}

func (m *mixer) one(of int) bool { return m.rng.IntN(of) == 0 }

func pick[T any](m *mixer, from ...T) T { return from[m.rng.IntN(len(from))] }

func (m *mixer) text(n int) string {
	out := make([]byte, n)
	for i := range out {
		out[i] = "ab1"[m.rng.IntN(3)]
	}
	return string(out)
}

func (m *mixer) ids(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = pick(m, alphabet...)
	}
	return out
}

// feature is a request and what is not in it.
type feature struct {
	dflash.Request
	even, free int // of the constraint; even 0 for none
	vocab      int
	// How it is run where the other is plain.
	block, rows int // BlockSize, or what SetRows gives: 0 for neither, -1 for random
	noDraft     bool
	noCache     bool
	end, at     int // how it is broken off
}

// request gives the request with a constraint of its own.
func (f *feature) request() dflash.Request {
	r := f.Request
	if f.even > 0 {
		dflash.Constrain(&r, &onlyEven{vocab: f.vocab, free: f.free})
	}
	return r
}

func (f *feature) String() string {
	r := f.Request
	var allowed []int
	for id := range f.vocab {
		if !slices.Contains(r.BannedIDs, id) {
			allowed = append(allowed, id)
		}
	}
	if r.BannedIDs = nil; len(allowed) == f.vocab {
		allowed = nil
	}
	format, _ := json.Marshal(r.Format)
	r.Format = nil
	thinking := "nil"
	if r.Thinking != nil {
		thinking = fmt.Sprint(*r.Thinking)
	}
	text := fmt.Sprintf("%+v, only %v, format %s, thinking %s", r, allowed, format, thinking)
	return fmt.Sprintf("%s even %d/%d, block %d, rows %d, no draft %v, no cache %v, end %d at %d", text, f.even, f.free, f.block, f.rows, f.noDraft, f.noCache, f.end, f.at)
}

func (m *mixer) prompt(r *dflash.Request, held []int) {
	switch form := m.rng.IntN(8); {
	case r.Continue && m.one(3):
	case form < 2:
		r.IDs = m.ids(1 + m.rng.IntN(12))
		if !r.Continue && len(held) > 0 && m.one(2) { // the text before, changed
			r.IDs = slices.Concat(held[:m.rng.IntN(len(held)+1)], r.IDs)
		}
	case form == 2:
		r.Text = m.text(1 + m.rng.IntN(9))
	default:
		r.Prompt = m.text(1 + m.rng.IntN(3))
		r.Thinking = pick(m, nil, new(true), new(false))
		if m.one(3) {
			r.Prompt, r.Messages = "", []chat.Message{{Role: "user", Content: r.Prompt}, {Role: "assistant", Content: m.text(2)}, {Role: "user", Content: m.text(2)}}
		}
		if m.one(2) {
			r.ThinkingBudget = 1 + m.rng.IntN(6)
		}
		if m.one(3) {
			r.Tools = featureTools[:1+m.rng.IntN(2)]
			r.ToolChoice = pick(m, dflash.ToolChoice{}, dflash.ToolChoice{Required: true}, dflash.ToolChoice{Name: "f"}, dflash.ToolChoice{None: true})
		}
	}
}

func (m *mixer) choice(r *dflash.Request) {
	if m.one(2) {
		r.Sampling = dflash.Sampling{Temperature: pick(m, 0.7, 3, 50), TopK: pick(m, 0, 0, 4), TopP: pick(m, 0, 0.9), MinP: pick(m, 0, 0, 0.05), Seed: 1 + m.rng.Uint64()%1000, Rejection: m.one(4)}
	}
	if m.one(2) {
		r.Penalties = dflash.Penalties{Repetition: pick(m, 0, 1.3), Frequency: pick(m, 0, 0.7), Presence: pick(m, 0, 1, -0.5)}
	}
	if m.one(3) {
		r.LogitBias = map[int]float64{pick(m, alphabet...): pick(m, 2.0, 8.0), pick(m, alphabet...): -2}
	}
	if !m.one(4) {
		for id := range m.e.Info().VocabSize {
			if !slices.Contains(alphabet, id) || m.one(20) {
				r.BannedIDs = append(r.BannedIDs, id)
			}
		}
	}
	r.LogProbs = m.one(2)
	r.TopLogProbs = pick(m, 0, 0, 3)
}

func (m *mixer) feature(held []int) *feature {
	f := &feature{vocab: m.e.Info().VocabSize, block: pick(m, 0, 0, 2, 5, 8), noDraft: m.one(6), noCache: m.one(8), end: pick(m, 0, 0, 0, 1, 2, 3, 4), at: m.rng.IntN(10)}
	r := &f.Request
	r.Continue = m.one(2) && len(held) > 0
	m.prompt(r, held)
	m.choice(r)
	r.MaxTokens = 1 + m.rng.IntN(16)
	if m.one(12) {
		r.MaxTokens = 0 // to the end of the context
	}
	r.IgnoreEOS = m.one(2)
	if m.one(4) {
		r.StopIDs = []int{pick(m, alphabet...)}
	}
	if m.one(2) {
		r.Stop = []string{pick(m, "a", "b", "{\"", "é", "1", "</think>"), pick(m, "ab", "b\n", "\"}", "\u007f")}[:1+m.rng.IntN(2)]
	}
	switch m.rng.IntN(6) {
	case 0:
		f.even, f.free = 1, pick(m, 6, 1000)
	case 1:
		r.Format = &dflash.Format{JSON: m.one(2)}
		if !r.Format.JSON && m.one(2) {
			r.Format.Schema = json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"},"b":{"enum":["a","ab"]}},"additionalProperties":false}`)
		}
		r.Format.StrictTools = r.Tools != nil && m.one(2)
		r.IgnoreEOS = r.IgnoreEOS && m.one(6)
		if m.one(2) {
			r.BannedIDs = nil
		}
	}
	switch {
	case r.Sampling.Rejection: // the text depends on the blocks
		f.block = pick(m, 2, 5, 8)
	case f.block == 0 && m.one(2):
		f.rows = pick(m, -1, 1, 4)
	}
	return f
}

// collect runs a request to its end or up to where end breaks it off.
func (m *mixer) collect(s *dflash.Session, r dflash.Request, end, at int, between func()) (tokens []dflash.Token, last error) {
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	if end == 4 {
		r.Progress = func(done, total int) {
			if at == 0 {
				cancel()
			}
		}
	}
	for token, err := range s.Generate(ctx, r) {
		if last = err; err != nil {
			break
		}
		token.Drafted, token.Drafts = false, 0
		tokens = append(tokens, token)
		if len(tokens) != at {
			continue
		}
		if between != nil {
			between()
		}
		switch end {
		case 1:
			return tokens, nil
		case 2:
			cancel()
		case 3:
			s.Decoder().FailNext(errPlanted)
		}
	}
	s.Decoder().FailNext(nil)
	return tokens, last
}

// want is what a fresh session makes of the request after the text held.
func (m *mixer) want(f *feature, held []int) ([]dflash.Token, dflash.Stats, error) {
	e := m.plain
	r := f.request()
	r.NoDraft, r.NoCache = true, true
	if r.Sampling.Rejection && !f.noDraft {
		e, r.NoDraft, r.BlockSize = m.e, false, f.block
	}
	s, err := e.NewSession()
	require.NoError(m.t, err)
	defer s.Close()
	s.SetText(held)
	tokens, err := m.collect(s, r, 0, 0, nil)
	return tokens, s.Stats(), err
}

func (m *mixer) step(i int) {
	t, s := m.t, m.sessions[i]
	held := s.Tokens()
	if len(held) > 70 {
		n := m.rng.IntN(30)
		require.NoError(t, s.Trim(t.Context(), n))
		held = held[:n]
	}
	f := m.feature(held)
	pipelined := m.one(2)
	m.history = append(m.history, fmt.Sprintf("session %d, holding %v, pipelined %v: %v", i, held, pipelined, f))
	want, wantStats, wantErr := m.want(f, held)

	r := f.request()
	r.NoDraft, r.NoCache = f.noDraft, f.noCache
	if !f.noDraft {
		r.BlockSize = f.block
	}
	s.SetPipelined(pipelined)
	s.SetRows(nil)
	if f.rows != 0 && !f.noDraft {
		rng := rand.New(rand.NewPCG(m.rng.Uint64(), 0))
		s.SetRows(func(limit int) int {
			if f.rows < 0 {
				return 1 + rng.IntN(limit)
			}
			return min(f.rows, limit)
		})
	}
	var between func()
	if !m.nested && m.one(3) {
		between = func() {
			m.nested = true
			m.step((i + 1) % len(m.sessions))
			m.nested = false
		}
	}
	got, err := m.collect(s, r, f.end, f.at, between)

	if wantErr != nil {
		m.seen["refused"]++
		require.True(t, errors.Is(wantErr, dflash.ErrRequest) || errors.Is(wantErr, dflash.ErrUnsupported) || errors.Is(wantErr, dflash.ErrContextLength), wantErr)
	}
	complete := err == nil && len(got) > 0 && got[len(got)-1].Finish != ""
	switch {
	case complete:
	case err == nil:
		require.True(t, f.end == 1 && len(got) == f.at)
		m.seen["broken off"]++
	case errors.Is(err, context.Canceled):
		require.True(t, f.end == 2 || f.end == 4, err)
		m.seen["cancelled"]++
	case errors.Is(err, errPlanted):
		require.Equal(t, 3, f.end)
		m.seen["failed"]++
	default:
		require.Error(t, wantErr, err)
		require.Equal(t, wantErr.Error(), err.Error())
		require.Len(t, got, len(want))
	}
	require.LessOrEqual(t, len(got), len(want))
	require.True(t, slices.EqualFunc(want[:len(got)], got, func(a, b dflash.Token) bool { return assert.ObjectsAreEqual(a, b) }), "want %+v\ngot %+v", want, got)
	m.check(f, s, got, complete, want, wantStats)
	if len(got) > 0 {
		text := s.Tokens()
		require.Equal(t, idsOf(got), text[len(text)-len(got):])
	} else {
		require.True(t, len(held) == 0 || slices.Equal(held, s.Tokens()) || f.end != 0 || wantErr != nil)
	}
	if st := s.Stats(); complete && st.DraftOff == "" && s.InFlight() == 0 {
		require.NoError(t, s.Decoder().Settle(t.Context()))
		require.True(t, s.Decoder().Drafts())
	}
	if s.InFlight() == 0 && s.Decoder().Usable() && m.one(4) {
		requireFreshState(t, m.e, s.Decoder(), "state")
	}
}

// check holds what is true of the figures of every generation.
func (m *mixer) check(f *feature, s *dflash.Session, got []dflash.Token, complete bool, want []dflash.Token, w dflash.Stats) {
	t, st := m.t, s.Stats()
	require.LessOrEqual(t, len(got), st.CompletionTokens)
	require.LessOrEqual(t, st.CompletionTokens, len(got)+1) // that of an error
	require.LessOrEqual(t, st.Accepted, st.Drafted)
	require.LessOrEqual(t, st.ReasoningTokens, st.CompletionTokens)
	require.LessOrEqual(t, st.ForcedTokens, st.CompletionTokens)
	require.Len(t, st.AcceptedPerCycle, st.Cycles)
	cycles, drafted, accepted := 0, 0, 0
	for rows, n := range st.BlockLengths {
		cycles, drafted = cycles+n, drafted+n*(rows-1)
	}
	for _, n := range st.AcceptedPerCycle {
		accepted += n
	}
	require.Equal(t, []int{st.Cycles, st.Drafted, st.Accepted}, []int{cycles, drafted, accepted})
	m.seen["accepted"] += st.Accepted
	m.seen["forced"] += st.ForcedTokens
	m.seen["reused"] += st.CachedTokens
	if !complete {
		return
	}
	require.Len(t, got, len(want))
	require.Equal(t, len(got), st.CompletionTokens)
	require.LessOrEqual(t, st.Accepted, st.CompletionTokens)
	require.Less(t, st.CachedTokens, st.PromptTokens)
	require.Equal(t, []any{w.Finish, w.StopText, w.PromptTokens, w.ReasoningTokens, w.ForcedTokens, w.Seed},
		[]any{st.Finish, st.StopText, st.PromptTokens, st.ReasoningTokens, st.ForcedTokens, st.Seed})
	if st.DraftOff == dflash.DraftContextExceeded {
		m.seen["outgrown"]++
	}
	if st.StopText != "" {
		m.seen["stopped"]++
	}
	if f.Format != nil {
		m.seen["formatted"]++
	}
}

// Requests with any mixture of features, one after the other and one inside the
// other, some of them broken off, cancelled or failed, give the tokens, texts,
// deltas and log probabilities of the same requests alone, without drafts and
// without reuse; and leave no array behind. GODFLASH_FEATURES is a number of
// steps and GODFLASH_SEED where they begin, for longer runs.
func TestFeatures(t *testing.T) {
	steps, seed := number(t, "GODFLASH_FEATURES", 60), number(t, "GODFLASH_SEED", 1)
	seen := map[string]int{}
	for name, write := range map[string]func(testing.TB, string, fixture.Options) fixture.Spec{"dense": fixture.Rand, "gated delta": fixture.GDN} {
		t.Run(name, func(t *testing.T) {
			spec := write(t, t.TempDir(), fixture.Options{Seed: 3, MaxPositions: 96})
			require.NoError(t, os.WriteFile(filepath.Join(spec.Dir, "chat_template.jinja"), []byte(featuresTemplate), 0o600))
			draft := t.TempDir()
			fixture.Draft(t, draft, spec, fixture.DraftOptions{Seed: 4, Window: 6})
			shorten(t, draft, 72)
			e := openDir(t, spec.Dir, dflash.Options{Draft: draft, PrefillChunk: 8, PrefixCacheBytes: 150 << 10, RewindBytes: 80 << 10})
			m := &mixer{t: t, rng: rand.New(rand.NewPCG(uint64(seed), 2)), e: e, seen: seen}
			m.plain = openDir(t, spec.Dir, dflash.Options{PrefixCacheBytes: -1})
			defer func() {
				if t.Failed() {
					for _, h := range m.history {
						t.Log(h)
					}
				}
			}()
			for range 2 {
				m.sessions = append(m.sessions, newSession(t, e))
			}
			live := func() int64 {
				for _, s := range m.sessions {
					require.NoError(t, s.Decoder().Reset(t.Context()))
				}
				require.NoError(t, lib.Do(t.Context(), func(*mlx.Scope) error { e.DropPrefixes(); return nil }))
				return lib.LiveArrays()
			}
			base := live()
			for k := range steps {
				m.step(k % 2)
			}
			require.Equal(t, base, live())
		})
	}
	t.Logf("%v", seen)
	for _, what := range []string{"accepted", "forced", "reused", "stopped", "formatted", "refused", "broken off", "cancelled", "failed", "outgrown"} {
		require.Positive(t, seen[what], what)
	}
}

// shorten makes a drafter know fewer positions.
func shorten(t *testing.T, dir string, positions int) {
	t.Helper()
	path := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var config map[string]any
	require.NoError(t, json.Unmarshal(text, &config))
	config["max_position_embeddings"] = positions
	text, err = json.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
}

func number(t *testing.T, name string, otherwise int) int {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}
