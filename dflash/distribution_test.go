package dflash_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
)

// continuations is the exact distribution of some tokens after a prompt,
// worked out in float64 from the scores of the target alone.
type continuations struct {
	run    *targetRun
	prompt []int
	tokens int
	scores map[string][]float64      // after a completion
	allows func(before, id int) bool // a constraint, or nil
}

// exact gives the probability of each completion under a request.
func (c *continuations) exact(r dflash.Request) map[string]float64 {
	out := map[string]float64{}
	var walk func(completion []int, p float64)
	walk = func(completion []int, p float64) {
		key := fmt.Sprint(completion)
		if len(completion) == c.tokens {
			out[key] = p
			return
		}
		scores, ok := c.scores[key]
		if !ok {
			scores = c.run.from(slices.Concat(c.prompt, completion))
			c.scores[key] = scores
		}
		x := adjusted(scores, c.prompt, completion, r)
		if c.allows != nil {
			text := slices.Concat(c.prompt, completion)
			for id := range x {
				if !c.allows(text[len(text)-1], id) {
					x[id] = math.Inf(-1)
				}
			}
		}
		for id, q := range probabilities(x, r.Sampling) {
			if q > 0 {
				walk(append(slices.Clone(completion), id), p*q)
			}
		}
	}
	walk(nil, 1)
	return out
}

// deviation compares counts with their exact distribution: the chi-square
// statistic as a number of standard deviations (Wilson and Hilferty: the cube
// root of chi²/k is nearly normal). 4 are one false alarm in 30,000, and the
// seeds are fixed.
func deviation(t testing.TB, exact map[string]float64, count map[string]int) float64 {
	t.Helper()
	n := 0
	for key, c := range count {
		if _, possible := exact[key]; !possible {
			return math.Inf(1)
		}
		n += c
	}
	chi, bins, rest, restCount := 0.0, 0, 0.0, 0
	for key, p := range exact {
		want := p * float64(n)
		if want < 6 { // too few to be compared alone
			rest, restCount = rest+want, restCount+count[key]
			continue
		}
		chi += math.Pow(float64(count[key])-want, 2) / want
		bins++
	}
	if rest > 0 {
		chi += math.Pow(float64(restCount)-rest, 2) / rest
		bins++
	}
	require.Greater(t, bins, 4)
	k := float64(bins - 1)
	return (math.Cbrt(chi/k) - (1 - 2/(9*k))) / math.Sqrt(2/(9*k))
}

// fewTokens are what TestDistribution leaves of the vocabulary.
var fewTokens = []int{65, 72, 100, 105, 200}

// oneOfTwo allows the next two of fewTokens after the token before.
type oneOfTwo struct{ vocab, last int }

func (*oneOfTwo) allows(before, id int) bool {
	i := slices.Index(fewTokens, before)
	return id == fewTokens[(i+1)%5] || id == fewTokens[(i+2)%5]
}

func (c *oneOfTwo) Free(int) bool { return false }

func (c *oneOfTwo) Masks(drafts []int) ([]uint32, error) {
	var out []uint32
	before := c.last
	for i := 0; ; i++ {
		row := make([]uint32, (c.vocab+31)/32)
		for _, id := range fewTokens {
			if c.allows(before, id) {
				row[id/32] |= 1 << (id % 32)
			}
		}
		out = append(out, row...)
		if i == len(drafts) || !c.allows(before, drafts[i]) {
			return out, nil
		}
		before = drafts[i]
	}
}

func (c *oneOfTwo) Advance(tokens []int) error {
	c.last = tokens[len(tokens)-1]
	return nil
}

// marginal keeps the second and third of four tokens, those that have drafts.
func marginal[V int | float64](of map[string]V) map[string]V {
	out := map[string]V{}
	for key, v := range of {
		f := strings.Fields(key)
		out[f[1]+" "+f[2]] += v
	}
	return out
}

// Case 82: many continuations drawn with drafts have the target's exact
// distribution, by shared noise and by rejection, under filters, penalties,
// bias, bans and masks. The vocabulary is banned down to five tokens, so that a
// drafter that knows nothing is right often and all of a continuation's values
// are met. The first token follows the prompt, the next two have a draft, the
// last has none.
//
// The same statistic on draws of a slightly higher temperature is beyond doubt,
// so a bias would be seen. GODFLASH_LONG=1 draws 20,000 instead of 300 to 1,000.
func TestDistribution(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 61})
	e := fixturePair(t, spec, fixture.DraftOptions{Seed: 62, BlockSize: 3})
	n, hotter := 500, 1.4
	if long() {
		n, hotter = 20000, 1.1
	}
	c := &continuations{run: newTargetRun(t, e), prompt: []int{72, 105}, tokens: 4, scores: map[string][]float64{}}
	bans := banAllBut(spec.Vocab, fewTokens...)
	for name, r := range map[string]dflash.Request{
		"plain":     {Sampling: dflash.Sampling{Temperature: 1}},
		"filters":   {Sampling: dflash.Sampling{Temperature: 1.5, TopK: 4, TopP: 0.9, MinP: 0.05}},
		"penalties": {Sampling: dflash.Sampling{Temperature: 0.8}, Penalties: dflash.Penalties{Repetition: 1.5, Frequency: 0.4, Presence: 0.6}},
		"masks":     {Sampling: dflash.Sampling{Temperature: 1}},
		"bias":      {Sampling: dflash.Sampling{Temperature: 1.2, TopP: 0.95}, Penalties: dflash.Penalties{Frequency: 0.5}, LogitBias: map[int]float64{65: 1, 100: -1.5}},
	} {
		r.BannedIDs = bans
		c.allows = nil
		if name == "masks" {
			c.allows = (*oneOfTwo)(nil).allows
		}
		exact := c.exact(r)
		sum := 0.0
		for _, p := range exact {
			sum += p
		}
		require.InDelta(t, 1, sum, 1e-9)
		r.IDs, r.MaxTokens, r.IgnoreEOS, r.BlockSize = c.prompt, c.tokens, true, 3
		s := newSession(t, e)
		draw := func(r dflash.Request) (map[string]int, dflash.Stats) {
			n := n
			count := map[string]int{}
			var all dflash.Stats
			switch {
			case name == "masks":
				n *= 2 // the fault to be seen is a small one
			case !r.Sampling.Rejection && !long():
				n = n * 3 / 5
			}
			for i := range n {
				r.Sampling.Seed = uint64(i + 1)
				s.SetPipelined(i%3 == 0)
				one := r
				if name == "masks" {
					dflash.Constrain(&one, &oneOfTwo{vocab: spec.Vocab, last: 105})
				}
				ids, _ := run(t, s, one)
				count[fmt.Sprint(ids)]++
				all.Drafted += s.Stats().Drafted
				all.Accepted += s.Stats().Accepted
			}
			return count, all
		}
		for _, rejection := range []bool{false, true} {
			if name == "masks" && !rejection {
				continue // equal to plain decoding, see TestConstraint
			}
			t.Run(fmt.Sprintf("%s, rejection %v", name, rejection), func(t *testing.T) {
				r.Sampling.Rejection = rejection
				count, stats := draw(r)
				z, middle := deviation(t, exact, count), deviation(t, marginal(exact), marginal(count))
				t.Logf("%d of %d drafts taken, %d values, deviation %.2f, of the drafted tokens %.2f", stats.Accepted, stats.Drafted, len(exact), z, middle)
				require.Less(t, z, 4.0)
				require.Less(t, middle, 4.0)
				require.Positive(t, stats.Accepted)
				require.Less(t, stats.Accepted, stats.Drafted)
			})
		}
		if name == "plain" {
			t.Run("a planted bias", func(t *testing.T) {
				r.Sampling.Temperature *= hotter
				count, _ := draw(r)
				z := deviation(t, exact, count)
				t.Logf("deviation %.2f", z)
				require.Greater(t, z, 4.0)
			})
		}
	}
}

// Rejection without a drafter is plain sampling: the same ids for the same
// seed. With one it is greedy where one token is left.
func TestRejectionLimits(t *testing.T) {
	e := open(t, "tiny-qwen3", dflash.Options{})
	s := newSession(t, e)
	ref := references(t, "tiny-qwen3")[9]
	r := dflash.Request{IDs: ref.Prompt, MaxTokens: 30, NoDraft: true, Sampling: dflash.Sampling{Temperature: 2, Seed: 4}}
	plain, _ := run(t, s, r)
	r.Sampling.Rejection = true
	ids, _ := run(t, s, r)
	require.Equal(t, plain, ids)
	for _, greedy := range []float64{0, 5e-5} { // nothing is drawn, so the controller may choose
		fixed, err := e.FixesRows(dflash.Request{IDs: ref.Prompt, Sampling: dflash.Sampling{Temperature: greedy, Rejection: true}})
		require.NoError(t, err)
		require.False(t, fixed)
	}
	fixed, err := e.FixesRows(dflash.Request{IDs: ref.Prompt, Sampling: dflash.Sampling{Temperature: 2e-4, Rejection: true}})
	require.NoError(t, err)
	require.True(t, fixed)
	for _, sampling := range []dflash.Sampling{{}, {Temperature: 1, TopK: 1}, {Temperature: 2e-4}, {Temperature: 1, TopP: 1e-9}} {
		sampling.Rejection = true
		for _, pipelined := range []bool{false, true} {
			s.SetPipelined(pipelined)
			ids, _ := run(t, s, dflash.Request{IDs: ref.Prompt, MaxTokens: 30, Sampling: sampling, BlockSize: 16})
			require.Equal(t, ref.Greedy[:30], ids)
			require.Positive(t, s.Stats().Accepted)
		}
	}
}
