package dflash_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/mlx"
)

// samplings are hot: the tiny pairs are very sure of their texts.
var samplings = []dflash.Sampling{
	{Temperature: 1},
	{Temperature: 2, TopP: 0.9},
	{Temperature: 3, TopK: 20},
	{Temperature: 4, TopK: 50, TopP: 0.95, MinP: 0.02},
}

// The same seed gives the same text with drafts and without, in any block
// length and with cycles in flight; other seeds give other texts.
func TestSeededEqualsPlain(t *testing.T) {
	for _, pair := range allPairs {
		t.Run(pair, func(t *testing.T) {
			e := open(t, pair, dflash.Options{})
			s := newSession(t, e)
			texts := map[string]bool{}
			accepted := 0
			refs := references(t, pair)
			for _, i := range []int{0, 9, 11} { // known by heart, and not
				ref := refs[i]
				for j, sampling := range samplings {
					sampling.Seed = uint64(100*i + j + 1)
					r := dflash.Request{IDs: ref.Prompt, MaxTokens: 16, Sampling: sampling, NoDraft: true}
					plain, _ := run(t, s, r)
					require.Equal(t, sampling.Seed, s.Stats().Seed)
					texts[fmt.Sprint(plain)] = true
					r.NoDraft = false
					r.BlockSize = []int{16, 5, 2, 8}[j]
					for _, pipelined := range []bool{false, true} {
						s.SetPipelined(pipelined)
						ids, _ := run(t, s, r)
						require.Equalf(t, plain, ids, "%+v, pipelined %v", sampling, pipelined)
						accepted += s.Stats().Accepted
					}
					s.SetPipelined(false)
				}
			}
			require.Greater(t, len(texts), 6)
			require.Positive(t, accepted)
		})
	}
}

// Case 84, 86: a filter that leaves one token, and a temperature near zero, are
// greedy.
func TestSamplingToGreedy(t *testing.T) {
	e := open(t, "tiny-qwen3", dflash.Options{})
	s := newSession(t, e)
	ref := references(t, "tiny-qwen3")[9]
	for _, sampling := range []dflash.Sampling{
		{Temperature: 1, TopK: 1},
		{Temperature: 1, TopP: 1e-9},
		{Temperature: 1, MinP: 1},
		{Temperature: 1e-30},
		{Temperature: 1e-300}, // 0 as a float32
		{Temperature: 2e-4},
	} {
		for seed := range uint64(3) {
			sampling.Seed = seed + 1
			ids, _ := run(t, s, dflash.Request{IDs: ref.Prompt, MaxTokens: 30, Sampling: sampling, NoDraft: seed == 1})
			require.Equalf(t, ref.Greedy[:30], ids, "%+v", sampling)
		}
	}
	// Without a seed each generation has its own.
	r := dflash.Request{IDs: ref.Prompt, MaxTokens: 4, Sampling: dflash.Sampling{Temperature: 1}}
	run(t, s, r)
	first := s.Stats().Seed
	run(t, s, r)
	require.NotZero(t, first)
	require.NotEqual(t, first, s.Stats().Seed)
}

func TestSamplingErrors(t *testing.T) {
	e := open(t, "tiny-qwen3", dflash.Options{})
	s := newSession(t, e)
	for _, sampling := range []dflash.Sampling{
		{Temperature: -0.1},
		{Temperature: math.NaN()},
		{Temperature: math.Inf(1)},
		{Temperature: 1, TopK: -1},
		{Temperature: 1, TopP: -0.1},
		{Temperature: 1, TopP: 1.1},
		{Temperature: 1, MinP: math.NaN()},
		{Temperature: 1, MinP: 2},
	} {
		for _, err := range s.Generate(t.Context(), dflash.Request{Text: "func", Sampling: sampling}) {
			require.ErrorIs(t, err, dflash.ErrRequest)
		}
		_, err := dflash.NewDecoder(e.Target(), nil, &dflash.DecoderOptions{Sampling: sampling})
		require.ErrorIs(t, err, dflash.ErrRequest)
	}
}

// Case 85: the filters keep Hugging Face's set, with its probabilities, in its
// order. The numbers are worked out by hand.
func TestSamplingFilters(t *testing.T) {
	// Scores ln of 0.4, 0.3, 0.15, 0.1, 0.05, in another order.
	p := []float64{0.1, 0.4, 0.05, 0.3, 0.15}
	for _, c := range []struct {
		o    dflash.Sampling
		want []float64
	}{
		{dflash.Sampling{Temperature: 1}, p},
		{dflash.Sampling{Temperature: 0.5}, norm(0.01, 0.16, 0.0025, 0.09, 0.0225)},
		{dflash.Sampling{Temperature: 1, TopK: 2}, norm(0, 0.4, 0, 0.3, 0)},
		{dflash.Sampling{Temperature: 1, TopP: 0.6}, norm(0, 0.4, 0, 0.3, 0)},
		{dflash.Sampling{Temperature: 1, TopP: 0.71}, norm(0, 0.4, 0, 0.3, 0.15)},
		{dflash.Sampling{Temperature: 1, MinP: 0.3}, norm(0, 0.4, 0, 0.3, 0.15)},
		// After top-k the rest is 0.4, 0.3, 0.15 of 0.85; the first two are 0.82 of it.
		{dflash.Sampling{Temperature: 1, TopK: 3, TopP: 0.8}, norm(0, 0.4, 0, 0.3, 0)},
		// At half the temperature the first two are 0.88.
		{dflash.Sampling{Temperature: 0.5, TopK: 4, TopP: 0.8, MinP: 0.1}, norm(0, 0.16, 0, 0.09, 0)},
	} {
		logits := make([]float32, len(p))
		for i := range p {
			logits[i] = float32(math.Log(p[i]))
		}
		require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
			got, err := mlx.ToSlice[float32](s.Softmax(dflash.Shape(s, c.o, mlx.FromSlice(s, logits, 1, len(p))), true, -1))
			require.NoError(t, err)
			for i := range p {
				require.InDeltaf(t, c.want[i], got[i], 1e-5, "%+v, token %d", c.o, i)
			}
			return nil
		}))
	}
}

func norm(p ...float64) []float64 {
	sum := 0.0
	for _, x := range p {
		sum += x
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}
