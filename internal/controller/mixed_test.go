package controller

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// mixed is the time per token, in plain steps, of texts of n tokens that the drafter
// knows and of others, by turns at random, one in four, through one controller.
func mixed(cost curve, known, unknown float64, n int) (k, u float64) {
	var times, tokens [2]float64
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 11))
		ctl := New(Options{Block: 16})
		for i := range uint64(48) {
			kind := 0
			if rng.IntN(4) == 0 {
				kind = 1
			}
			w := world{cost: cost, text: always([]float64{known, unknown}[kind]), n: n, noise: 0.05, seed: seed*1000 + i}
			run := ctl.Start()
			times[kind] += w.run(func(limit, _ int) int { return run.Next(limit) }, run.Record)
			tokens[kind] += float64(n)
		}
	}
	return times[0] / tokens[0], times[1] / tokens[1]
}

// Texts that the drafter knows and texts that it does not, by turns: the former lose
// little against the best fixed number of rows, the latter against plain decoding, the
// less the longer they are.
func TestMixedTexts(t *testing.T) {
	for name, cost := range curves {
		for _, c := range []struct {
			n              int
			unknown, known float64
		}{{80, 1.105, 1.055}, {300, 1.04, 1.01}} {
			for _, p := range []float64{0, 0.3} {
				t.Run(fmt.Sprintf("%s/%d tokens, unknown %.1f", name, c.n, p), func(t *testing.T) {
					k, u := mixed(cost, 0.97, p, c.n)
					best := 0.0
					for seed := range uint64(10) {
						w := world{cost: cost, text: always(0.97), n: c.n, seed: seed}
						best += w.bestFixed() / float64(10*c.n)
					}
					t.Logf("known %.3f of the best fixed length's time, unknown %.3f of plain decoding's", k/best, u)
					require.Less(t, k/best, c.known)
					require.Less(t, u, c.unknown)
				})
			}
		}
	}
}
