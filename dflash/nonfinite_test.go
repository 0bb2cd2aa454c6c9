package dflash_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/mlx"
)

// Case 94: one NaN or infinity in the weights is an error that names the place,
// not an endless run of token 0; plain, drafted and in flight.
func TestNonFinite(t *testing.T) {
	for name, c := range map[string]struct {
		tensor string
		value  float64
		where  string
	}{
		"nan in the head":          {"lm_head.weight", math.NaN(), "its head"},
		"infinity in a layer":      {"model.layers.2.mlp.down_proj.weight", math.Inf(1), "layer 2"},
		"nan in the embedding":     {"model.embed_tokens.weight", math.NaN(), "the embedding"},
		"minus infinity in a norm": {"model.norm.weight", math.Inf(-1), "its head"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 3})
			rewrite(t, spec.Dir, func(name string, data []byte) []byte {
				if name == c.tensor {
					at := 0
					if c.where == "the embedding" {
						at = 4 * 72 * spec.Hidden // the prompt's row
					}
					binary.LittleEndian.PutUint32(data[at:], math.Float32bits(float32(c.value)))
				}
				return data
			})
			s := newSession(t, fixturePair(t, spec, fixture.DraftOptions{Seed: 4}))
			for _, noDraft := range []bool{true, false} {
				var last error
				for _, err := range s.Generate(t.Context(), dflash.Request{IDs: []int{72}, MaxTokens: 8, NoDraft: noDraft}) {
					last = err
				}
				require.ErrorIs(t, last, dflash.ErrNonFinite)
				require.ErrorContains(t, last, c.where)
			}
		})
	}
}

// A row that only a later token reaches is found in the cycle that reaches it.
func TestNonFiniteLater(t *testing.T) {
	spec := fixture.Perm(t, t.TempDir(), fixture.Options{Seed: 1})
	bad := spec.Follow(7, 10)[9]
	rewrite(t, spec.Dir, func(name string, data []byte) []byte {
		if name == "model.embed_tokens.weight" {
			binary.LittleEndian.PutUint32(data[4*bad*spec.Hidden:], math.Float32bits(float32(math.NaN())))
		}
		return data
	})
	s := newSession(t, fixturePair(t, spec, fixture.DraftOptions{Seed: 2}))
	for _, pipelined := range []bool{false, true} {
		s.SetPipelined(pipelined)
		n, last := 0, error(nil)
		for _, err := range s.Generate(t.Context(), dflash.Request{IDs: []int{7}, MaxTokens: 40, IgnoreEOS: true}) {
			if last = err; err == nil {
				n++
			}
		}
		require.ErrorIs(t, last, dflash.ErrNonFinite)
		require.ErrorContains(t, last, "the embedding")
		require.LessOrEqual(t, n, 10)
	}
	// A healthy start in the same session still works.
	s.SetPipelined(false)
	ids, _ := run(t, s, dflash.Request{IDs: []int{bad + 1}, MaxTokens: 2, IgnoreEOS: true})
	require.Len(t, ids, 2)
}

// A token of the prompt whose row spoils the state long before any scores are
// looked at: the place is still found, by running what was before.
func TestNonFiniteBefore(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 3})
	rewrite(t, spec.Dir, func(name string, data []byte) []byte {
		if name == "model.embed_tokens.weight" {
			binary.LittleEndian.PutUint32(data[4*9*spec.Hidden:], math.Float32bits(float32(math.NaN())))
		}
		return data
	})
	draft := t.TempDir()
	fixture.Draft(t, draft, spec, fixture.DraftOptions{Seed: 4})
	e := openDir(t, spec.Dir, dflash.Options{Draft: draft, PrefillChunk: 4})
	long := make([]int, 340) // the search runs it in two pieces
	for i := range long {
		long[i] = 1 + i%8
	}
	long[300] = 9
	for _, prompt := range [][]int{{1, 9, 3, 4, 5, 6, 7, 8, 2}, long} {
		for _, noDraft := range []bool{true, false} {
			var last error
			for _, err := range newSession(t, e).Generate(t.Context(), dflash.Request{IDs: prompt, MaxTokens: 4, NoDraft: noDraft}) {
				last = err
			}
			require.ErrorIs(t, last, dflash.ErrNonFinite)
			require.ErrorContains(t, last, "first in the embedding")
		}
	}
}

// spoiled is a target whose output is not finite at one pass.
type spoiled struct {
	dflash.Target
	passes, at int
}

func (p *spoiled) Forward(s *mlx.Scope, ids mlx.Array, c dflash.TargetCache, taps []int) (mlx.Array, []mlx.Array) {
	hidden, tapped := p.Target.Forward(s, ids, c, taps)
	if p.passes++; p.passes == p.at {
		hidden = s.Mul(hidden, s.Scalar(math.NaN(), hidden.Dtype()))
	}
	return hidden, tapped
}

// What running the tokens again does not show is not put on the model's head.
func TestNonFiniteOnce(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 3})
	e := fixturePair(t, spec, fixture.DraftOptions{Seed: 4})
	for at := 1; at <= 2; at++ {
		d, err := dflash.NewDecoder(&spoiled{Target: e.Target(), at: at}, nil, nil)
		require.NoError(t, err)
		_, err = d.Prefill(t.Context(), []int{1, 2, 3})
		if at == 2 {
			require.NoError(t, err)
			_, err = d.Verify(t.Context(), nil)
		}
		require.ErrorIs(t, err, dflash.ErrNonFinite)
		require.ErrorContains(t, err, fmt.Sprintf("the same %d tokens are run again", at+2))
		require.NoError(t, d.Close())
	}
}

// Forced tokens whose probabilities are asked for are looked at, too: a NaN is
// never handed out as a logarithm.
func TestNonFiniteForced(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 3})
	rewrite(t, spec.Dir, func(name string, data []byte) []byte {
		if name == "model.embed_tokens.weight" {
			binary.LittleEndian.PutUint32(data[4*fixture.ThinkEnd*spec.Hidden:], math.Float32bits(float32(math.NaN())))
		}
		return data
	})
	s := newSession(t, fixturePair(t, spec, fixture.DraftOptions{Seed: 4}))
	for _, r := range []dflash.Request{{LogProbs: true}, {TopLogProbs: 2}, {}} {
		r.Prompt, r.MaxTokens, r.ThinkingBudget, r.NoDraft = "a", 20, 2, true
		r.BannedIDs = append([]int{fixture.ThinkEnd}, spec.EOS...)
		var last error
		n := 0
		for token, err := range s.Generate(t.Context(), r) {
			if last = err; err == nil {
				n++
				require.False(t, math.IsNaN(token.LogProb))
			}
		}
		require.ErrorIs(t, last, dflash.ErrNonFinite)
		if r.LogProbs || r.TopLogProbs > 0 {
			require.ErrorContains(t, last, "the embedding")
			require.Equal(t, 2, n)
		}
	}
}
