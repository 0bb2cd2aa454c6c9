package qwen_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen"
)

// relative is max|got − want| / max|want|.
func relative(t testing.TB, got, want mlx.Array) float64 {
	t.Helper()
	g, err := mlx.ToSlice[float32](got)
	require.NoError(t, err)
	w, err := mlx.ToSlice[float32](want)
	require.NoError(t, err)
	require.Len(t, g, len(w))
	var diff, top float64
	for i := range g {
		d := math.Abs(float64(g[i]) - float64(w[i]))
		require.False(t, math.IsNaN(d))
		diff, top = max(diff, d), max(top, math.Abs(float64(w[i])))
	}
	return diff / top
}

// Every layer's output, the logits and the first gated-delta state equal those
// of independent software within float32 rounding.
func TestGoldenTaps(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair, func(t *testing.T) {
			m, err := qwen.Load(t.Context(), lib, filepath.Join(pairDir(pair), "target"), nil)
			require.NoError(t, err)
			defer m.Close()
			cache := m.NewCache()
			defer cache.Close()
			do(t, func(s *mlx.Scope) error {
				want, _, err := golden(s, pair)
				if err != nil {
					return err
				}
				layers := m.Config().NumHiddenLayers
				all := make([]int, layers)
				for i := range all {
					all[i] = i
				}
				out := m.Forward(s, want["ids"], cache, &qwen.ForwardOptions{Taps: all})
				require.NoError(t, s.Err())
				n := want["ids"].Dim(0)
				for i := range all {
					ref := s.SliceAxis(want["layers"], 0, i, i+1)
					require.Lessf(t, relative(t, out.Taps[i], ref), 1e-4, "layer %d", i)
				}
				logits := m.Logits(s, s.SliceAxis(out.Hidden, 1, n-1, n))
				require.Less(t, relative(t, logits, want["logits_last"]), 1e-4)
				require.NoError(t, cache.Commit(s, n))
				require.Equal(t, n, cache.Len())
				if ref, ok := want["gdn0_state"]; ok {
					st, err := cache.Layer(s, 0)
					require.NoError(t, err)
					// The golden has [value dim, key dim].
					require.Less(t, relative(t, s.SwapAxes(st.Recurrent, -1, -2), ref), 1e-4)
					require.Less(t, relative(t, st.Conv, want["gdn0_conv"]), 1e-4)
				}
				return nil
			})
		})
	}
}

// Reference is one prompt of reference-f32.json.
type Reference struct {
	Prompt  []int     `json:"prompt"`
	Greedy  []int     `json:"greedy"`
	Margins []float64 `json:"margins"`
	Top     []struct {
		ID    int
		Logit float64
	} `json:"-"`
}

func references(t testing.TB, pair string) []Reference {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(pairDir(pair), "reference-f32.json"))
	require.NoError(t, err)
	var f struct {
		Prompts []Reference `json:"prompts"`
	}
	require.NoError(t, json.Unmarshal(data, &f))
	require.Len(t, f.Prompts, 12)
	return f.Prompts
}

// Greedy decoding one token at a time gives the reference's ids.
func TestGreedyReference(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair, func(t *testing.T) {
			m, err := qwen.Load(t.Context(), lib, filepath.Join(pairDir(pair), "target"), nil)
			require.NoError(t, err)
			defer m.Close()
			for i, ref := range references(t, pair)[:4] {
				cache := m.NewCache()
				ids := ref.Prompt
				var got []int
				for len(got) < len(ref.Greedy) {
					do(t, func(s *mlx.Scope) error {
						next, err := step(s, m, cache, ids)
						ids = []int{next}
						return err
					})
					got = append(got, ids[0])
				}
				require.Equalf(t, ref.Greedy, got, "prompt %d", i)
				require.NoError(t, cache.Close())
			}
		})
	}
}

// step runs ids, commits them all and returns the greedy next token.
func step(s *mlx.Scope, m *qwen.Model, c *qwen.Cache, ids []int) (int, error) {
	in := make([]int32, len(ids))
	for i, id := range ids {
		in[i] = int32(id)
	}
	out := m.Forward(s, mlx.FromSlice(s, in), c, nil)
	if s.Err() != nil {
		return 0, s.Err()
	}
	logits := m.Logits(s, s.SliceAxis(out.Hidden, 1, len(ids)-1, len(ids)))
	next := s.AsType(s.Argmax(logits, -1, false), mlx.Int32)
	if err := c.Commit(s, len(ids)); err != nil {
		return 0, err
	}
	if err := s.Eval(append(c.Arrays(), next)...); err != nil {
		return 0, err
	}
	v, err := mlx.ToSlice[int32](next)
	if err != nil {
		return 0, err
	}
	return int(v[0]), nil
}
