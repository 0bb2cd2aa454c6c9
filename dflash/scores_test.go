package dflash_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/mlx"
)

// long says that the long versions of the proofs run: GODFLASH_LONG=1.
func long() bool { return os.Getenv("GODFLASH_LONG") != "" }

// targetRun is a target run by itself, one token at a time.
type targetRun struct {
	t      testing.TB
	target dflash.Target
	cache  dflash.TargetCache
}

func newTargetRun(t testing.TB, e *dflash.Engine) *targetRun {
	r := &targetRun{t, e.Target(), e.Target().NewCache()}
	t.Cleanup(func() { require.NoError(t, r.cache.Close()) })
	return r
}

// after runs ids and gives the scores of what follows.
func (r *targetRun) after(ids ...int) []float64 {
	var out []float64
	require.NoError(r.t, lib.Do(r.t.Context(), func(s *mlx.Scope) error {
		in := make([]int32, len(ids))
		for i, id := range ids {
			in[i] = int32(id)
		}
		h, _ := r.target.Forward(s, mlx.FromSlice(s, in), r.cache, nil)
		logits, err := mlx.ToSlice[float32](s.Flatten(r.target.Logits(s, s.SliceAxis(h, 1, len(ids)-1, len(ids)))))
		if err != nil {
			return err
		}
		for _, x := range logits {
			out = append(out, float64(x))
		}
		return r.cache.Commit(s, len(ids))
	}))
	return out
}

// from empties the cache and runs ids.
func (r *targetRun) from(ids []int) []float64 {
	require.NoError(r.t, lib.Do(r.t.Context(), func(*mlx.Scope) error {
		r.cache.Reset()
		return nil
	}))
	return r.after(ids...)
}

// adjusted is the definition of bias, bans and penalties in float64: vLLM's
// order, Hugging Face's repetition penalty, OpenAI's frequency and presence.
func adjusted(scores []float64, prompt, completion []int, r dflash.Request) []float64 {
	out := slices.Clone(scores)
	for id, v := range r.LogitBias {
		out[id] += v
	}
	for _, id := range r.BannedIDs {
		out[id] = math.Inf(-1)
	}
	times := map[int]int{}
	for _, id := range completion {
		times[id]++
	}
	seen := map[int]bool{}
	for _, id := range slices.Concat(prompt, completion) {
		seen[id] = true
	}
	if p := r.Penalties.Repetition; p != 0 {
		for id := range seen {
			if out[id] < 0 {
				out[id] *= p
			} else {
				out[id] /= p
			}
		}
	}
	for id, n := range times {
		out[id] -= float64(n)*r.Penalties.Frequency + r.Penalties.Presence
	}
	return out
}

// probabilities is the definition of temperature and filters in float64.
func probabilities(scores []float64, o dflash.Sampling) []float64 {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		}
		return 0
	})
	weight := func(id int) float64 { return math.Exp((scores[id] - scores[order[0]]) / o.Temperature) }
	kept := order
	if o.TopK > 0 {
		kept = kept[:min(o.TopK, len(kept))]
	}
	if o.TopP > 0 && o.TopP < 1 {
		all, sum := 0.0, 0.0
		for _, id := range kept {
			all += weight(id)
		}
		for i, id := range kept {
			if sum += weight(id); sum >= o.TopP*all {
				kept = kept[:i+1]
				break
			}
		}
	}
	p, all := make([]float64, len(scores)), 0.0
	for _, id := range kept {
		if w := weight(id); w >= o.MinP {
			p[id] = w
			all += w
		}
	}
	for i := range p {
		p[i] /= all
	}
	return p
}

// penalised are requests whose texts differ from the plain ones.
var penalised = []dflash.Request{
	{Penalties: dflash.Penalties{Repetition: 1.3, Presence: 2}},
	{Penalties: dflash.Penalties{Repetition: 1.3, Frequency: 1, Presence: 1}, LogitBias: map[int]float64{65: 3, 70: -100}},
	{Penalties: dflash.Penalties{Frequency: 0.7}, BannedIDs: []int{32, 10, 101}},
	{Penalties: dflash.Penalties{Repetition: 0.8, Frequency: -0.3, Presence: -0.5}, LogitBias: map[int]float64{97: 1.5}},
	{LogitBias: map[int]float64{101: -2, 110: 2}, BannedIDs: []int{116}},
}

// Greedy tokens under penalties, bias and bans are those of their definitions
// applied to the target run by itself, plain, with drafts that are noise, and
// in flight. The prompt has more than one chunk.
func TestPenaltiesDefinition(t *testing.T) {
	for name, make := range map[string]func(testing.TB, string, fixture.Options) fixture.Spec{"dense": fixture.Rand, "gated delta": fixture.GDN} {
		t.Run(name, func(t *testing.T) {
			spec := make(t, t.TempDir(), fixture.Options{Seed: 51})
			dir := t.TempDir()
			fixture.Draft(t, dir, spec, fixture.DraftOptions{Seed: 52})
			e := openDir(t, spec.Dir, dflash.Options{Draft: dir, PrefillChunk: 4})
			alone := newTargetRun(t, e)
			s := newSession(t, e)
			prompt := []int{72, 101, 108, 108, 111, 32}
			const n = 40
			for _, r := range penalised {
				var want []int
				for scores := alone.from(prompt); len(want) < n; scores = alone.after(want[len(want)-1]) {
					x := adjusted(scores, prompt, want, r)
					want = append(want, slices.Index(x, slices.Max(x)))
				}
				r.IDs, r.MaxTokens, r.IgnoreEOS = prompt, n, true
				for _, way := range []string{"plain", "drafted", "in flight"} {
					r.NoDraft, r.BlockSize = way == "plain", 0
					if !r.NoDraft {
						r.BlockSize = 8
					}
					s.SetPipelined(way == "in flight")
					ids, _ := run(t, s, r)
					require.Equalf(t, want, ids, "%s, %+v", way, r)
				}
			}
		})
	}
}

// Case 88: under penalties, bias and bans a pair that knows the prompt by heart
// gives plain decoding's ids with drafts that are often right, in any block
// length, greedy and drawn.
func TestPenaltiesEqualPlain(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair, func(t *testing.T) {
			e := open(t, pair, dflash.Options{})
			s := newSession(t, e)
			refs := references(t, pair)
			accepted, changed := 0, 0
			for i, r := range penalised {
				ref := refs[i]
				r.IDs, r.MaxTokens = ref.Prompt, 48
				if i == 3 {
					r.Sampling = dflash.Sampling{Temperature: 0.8, TopP: 0.95, Seed: 5}
				}
				r.NoDraft, r.BlockSize = true, 0
				plain, _ := run(t, s, r)
				if !slices.Equal(ref.Greedy[:min(48, len(ref.Greedy))], plain) {
					changed++
				}
				r.NoDraft = false
				for _, block := range []int{16, 5, 11} {
					r.BlockSize = block
					s.SetPipelined(block != 16)
					ids, _ := run(t, s, r)
					require.Equalf(t, plain, ids, "request %d, block %d", i, block)
					accepted += s.Stats().Accepted
				}
				s.SetPipelined(false)
			}
			require.Greater(t, accepted, 100)
			require.Greater(t, changed, 1)
		})
	}
}

// The level below the session: an oracle's drafts of which a seeded number is
// right, under penalties that depend on each of them. Rejected drafts must not
// be remembered, accepted ones must.
func TestPenaltiesOracle(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 53})
	e := openDir(t, spec.Dir, dflash.Options{})
	for _, sampling := range []dflash.Sampling{{}, {Temperature: 1, Seed: 3}} {
		o := &dflash.DecoderOptions{
			Sampling:  sampling,
			Penalties: dflash.Penalties{Repetition: 1.2, Frequency: 0.5, Presence: 1},
			LogitBias: map[int]float64{40: 2}, BannedIDs: []int{41, 42},
		}
		r := dflash.Request{IDs: []int{70, 71}, MaxTokens: 120, IgnoreEOS: true, Sampling: sampling, Penalties: o.Penalties, LogitBias: o.LogitBias, BannedIDs: o.BannedIDs}
		truth, _ := run(t, newSession(t, e), r)
		d, err := dflash.NewDecoder(e.Target(), nil, o)
		require.NoError(t, err)
		defer d.Close()
		for round := range 2 { // the second after Reset
			rng := rand.New(rand.NewPCG(uint64(round), 0))
			first, err := d.Prefill(t.Context(), r.IDs)
			require.NoError(t, err)
			got := []int{first}
			for len(got) < 100 {
				drafts := slices.Clone(truth[len(got) : len(got)+rng.IntN(9)])
				if wrong := rng.IntN(10); wrong < len(drafts) {
					drafts[wrong] = (drafts[wrong] + 1) % spec.Vocab
				}
				v, err := d.Verify(t.Context(), drafts)
				require.NoError(t, err)
				n := rng.IntN(v.Accepted + 2)
				require.NoError(t, d.Commit(t.Context(), n)) // 0 gives the block back
				got = append(got, v.Choices[:n]...)
			}
			require.Equal(t, truth[:len(got)], got)
			require.NoError(t, d.Reset(t.Context()))
		}
	}
}

// Fields out of range are refused with their names.
func TestScoreErrors(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 53})
	e := openDir(t, spec.Dir, dflash.Options{})
	all := make([]int, spec.Vocab)
	for i := range all {
		all[i] = i
	}
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		name string
		r    dflash.Request
	}{
		{"Repetition", dflash.Request{Penalties: dflash.Penalties{Repetition: -1}}},
		{"Repetition", dflash.Request{Penalties: dflash.Penalties{Repetition: nan}}},
		{"Repetition", dflash.Request{Penalties: dflash.Penalties{Repetition: 1e-9}}},
		{"Repetition", dflash.Request{Penalties: dflash.Penalties{Repetition: inf}}},
		{"Frequency", dflash.Request{Penalties: dflash.Penalties{Frequency: 2.1}}},
		{"Frequency", dflash.Request{Penalties: dflash.Penalties{Frequency: nan}}},
		{"Presence", dflash.Request{Penalties: dflash.Penalties{Presence: -2.1}}},
		{"LogitBias", dflash.Request{LogitBias: map[int]float64{spec.Vocab: 1}}},
		{"LogitBias", dflash.Request{LogitBias: map[int]float64{-1: 1}}},
		{"LogitBias of id 3", dflash.Request{LogitBias: map[int]float64{3: 101}}},
		{"LogitBias of id 3", dflash.Request{LogitBias: map[int]float64{3: nan}}},
		{"BannedIDs", dflash.Request{BannedIDs: []int{spec.Vocab}}},
		{"BannedIDs", dflash.Request{BannedIDs: []int{-1}}},
		{"whole vocabulary", dflash.Request{BannedIDs: all}},
		{"TopLogProbs", dflash.Request{TopLogProbs: -1}},
		{"TopLogProbs", dflash.Request{TopLogProbs: dflash.MaxTopLogProbs + 1}},
	} {
		c.r.IDs = []int{1}
		_, err := e.PromptTokens(c.r)
		require.ErrorIs(t, err, dflash.ErrRequest)
		require.ErrorContains(t, err, c.name)
		if c.r.TopLogProbs == 0 {
			_, err = dflash.NewDecoder(e.Target(), nil, &dflash.DecoderOptions{Penalties: c.r.Penalties, LogitBias: c.r.LogitBias, BannedIDs: c.r.BannedIDs})
			require.ErrorIs(t, err, dflash.ErrRequest)
		}
	}
	_, err := dflash.NewDecoder(e.Target(), nil, &dflash.DecoderOptions{Sampling: dflash.Sampling{Temperature: 1, Rejection: true}})
	require.ErrorIs(t, err, dflash.ErrUnsupported)
	// All but one banned leaves that one, drawn or not.
	for _, sampling := range []dflash.Sampling{{}, {Temperature: 5, TopP: 0.5, TopK: 3, MinP: 0.1}, {Temperature: 5, Rejection: true}} {
		ids, _ := run(t, newSession(t, e), dflash.Request{IDs: []int{1}, MaxTokens: 4, BannedIDs: all[1:], Sampling: sampling})
		require.Equal(t, []int{0, 0, 0, 0}, ids)
	}
}

// A score that is not finite is found under bias and bans too.
func TestNonFiniteUnderBans(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 3})
	rewrite(t, spec.Dir, func(name string, data []byte) []byte {
		if name == "lm_head.weight" {
			copy(data[4*100*spec.Hidden:], []byte{0, 0, 192, 127}) // NaN in a row that is banned
		}
		return data
	})
	s := newSession(t, fixturePair(t, spec, fixture.DraftOptions{Seed: 4}))
	var last error
	for _, err := range s.Generate(t.Context(), dflash.Request{IDs: []int{72}, MaxTokens: 8, BannedIDs: []int{100}}) {
		last = err
	}
	require.ErrorIs(t, last, dflash.ErrNonFinite)
}

// The full version draws 200 prompts × 4 settings for each pair; the short one
// does so on a small fixture with few tokens. The same seed gives the same ids
// with drafts, with cycles in flight, and without both.
func TestSeededEqualsPlainMany(t *testing.T) {
	settings := []dflash.Request{
		{Sampling: dflash.Sampling{Temperature: 1}},
		{Sampling: dflash.Sampling{Temperature: 0.7, TopP: 0.9}, Penalties: dflash.Penalties{Repetition: 1.2}},
		{Sampling: dflash.Sampling{Temperature: 2, TopK: 20, MinP: 0.02}, Penalties: dflash.Penalties{Frequency: 0.5, Presence: 0.5}},
		{Sampling: dflash.Sampling{Temperature: 1.3, TopP: 0.95}, LogitBias: map[int]float64{10: 1, 32: -1}, BannedIDs: []int{97}},
	}
	compare := func(t *testing.T, e *dflash.Engine, prompts [][]int, tokens int) {
		s := newSession(t, e)
		accepted := 0
		texts := map[string]bool{}
		for i, prompt := range prompts {
			for j, r := range settings {
				r.IDs, r.MaxTokens, r.IgnoreEOS = prompt, tokens, true
				r.Sampling.Seed = uint64(1 + 4*i + j)
				r.NoDraft, r.BlockSize = true, 0
				s.SetPipelined(false)
				plain, _ := run(t, s, r)
				r.NoDraft, r.BlockSize = false, 6
				s.SetPipelined(i%2 == 1)
				ids, _ := run(t, s, r)
				require.Equalf(t, plain, ids, "prompt %d, setting %d", i, j)
				accepted += s.Stats().Accepted
				texts[fmt.Sprint(ids)] = true
			}
		}
		require.Positive(t, accepted)
		require.Greater(t, len(texts), len(prompts)*3)
	}
	if !long() {
		spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 54})
		rng := rand.New(rand.NewPCG(1, 1))
		prompts := make([][]int, 30)
		for i := range prompts {
			for range 1 + rng.IntN(5) {
				prompts[i] = append(prompts[i], rng.IntN(spec.Vocab))
			}
		}
		compare(t, fixturePair(t, spec, fixture.DraftOptions{Seed: 55, BlockSize: 6}), prompts, 10)
		return
	}
	for _, pair := range allPairs {
		t.Run(pair, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(2, 2))
			var prompts [][]int
			for i := range 200 { // the reference prompts with some of their texts
				ref := references(t, pair)[i%12]
				prompts = append(prompts, append(slices.Clone(ref.Prompt), ref.Greedy[:rng.IntN(len(ref.Greedy))]...))
			}
			compare(t, open(t, pair, dflash.Options{}), prompts, 24)
		})
	}
}

// banAllBut lists the vocabulary without some.
func banAllBut(vocab int, ids ...int) []int {
	all := map[int]bool{}
	for id := range vocab {
		if !slices.Contains(ids, id) {
			all[id] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
