package qwen_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen"
)

// counting is a dense model whose layers add nothing but this: layer i adds
// i+1 to channel 0. Its feed-forward does, with silu(8)·u as the lever; the
// embedding's channel 1 is the constant that it starts from.
func counting(t *testing.T) string {
	spec := fixture.Perm(t, t.TempDir(), fixture.Options{})
	const silu8 = 8 * 0.9996646498695336
	return copyFolder(t, spec.Dir, func(ck checkpoint, _ object) {
		h := spec.Hidden
		embed := make([]float32, spec.Vocab*h)
		for token := range spec.Vocab {
			embed[token*h+1] = 1e6 // so large that the norm hardly sees channel 0
		}
		ck["model.embed_tokens.weight"] = float32Tensor([]int{spec.Vocab, h}, embed)
		for i := range spec.Layers {
			p := "model.layers." + strconv.Itoa(i) + "."
			norm := make([]float32, h)
			norm[1] = 1
			ck[p+"post_attention_layernorm.weight"] = float32Tensor([]int{h}, norm)
			root := float32(math.Sqrt(float64(h))) // channel 1 after the norm, whatever the token
			up := ck[p+"mlp.up_proj.weight"]
			ffn := up.Shape[0]
			matrix := func(rows, columns, row, column int, v float32) []float32 {
				m := make([]float32, rows*columns)
				m[row*columns+column] = v
				return m
			}
			ck[p+"mlp.gate_proj.weight"] = float32Tensor([]int{ffn, h}, matrix(ffn, h, 0, 1, 8/root))
			ck[p+"mlp.up_proj.weight"] = float32Tensor([]int{ffn, h}, matrix(ffn, h, 0, 1, 1/root))
			ck[p+"mlp.down_proj.weight"] = float32Tensor([]int{h, ffn}, matrix(h, ffn, 0, 0, float32(i+1)/silu8))
		}
	})
}

// Case 72: the tap of layer L is that layer's output. Case 73: the last layer
// may be tapped and comes before the final norm.
func TestTapsAreOutputs(t *testing.T) {
	m := load(t, counting(t))
	cache := m.NewCache()
	defer cache.Close()
	layers := m.Config().NumHiddenLayers
	sum := func(layer int) float32 { return float32((layer + 1) * (layer + 2) / 2) } // 1+2+…
	for _, taps := range [][]int{{0}, {1, 2}, {0, 1, 2, 3}, {3}, {2, 0}, {1, 1}, {}} {
		do(t, func(s *mlx.Scope) error {
			out := m.Forward(s, mlx.FromSlice(s, prompt), cache, &qwen.ForwardOptions{Taps: taps})
			require.NoError(t, s.Err())
			require.Len(t, out.Taps, len(taps))
			for i, layer := range taps {
				require.Equal(t, []int{1, len(prompt), m.Config().HiddenSize}, out.Taps[i].Shape())
				v, err := mlx.ToSlice[float32](s.SliceAxis(out.Taps[i], 2, 0, 1))
				require.NoError(t, err)
				for _, x := range v {
					require.InDelta(t, sum(layer), x, 1e-4, "layer %d of %v", layer, taps)
				}
			}
			last, err := mlx.ToSlice[float32](s.SliceAxis(out.Hidden, 2, 0, 1))
			require.NoError(t, err)
			require.InDelta(t, sum(layers-1), last[0], 1e-4)
			return cache.Commit(s, 0)
		})
	}
	for _, taps := range [][]int{{layers}, {-1}, {0, 99}} {
		err := lib.Do(t.Context(), func(s *mlx.Scope) error {
			out := m.Forward(s, mlx.FromSlice(s, prompt), cache, &qwen.ForwardOptions{Taps: taps})
			require.False(t, out.Hidden.Valid())
			return nil
		})
		require.ErrorContains(t, err, "tap of layer")
		require.Zero(t, cache.Pending())
	}
}

// Tapping changes neither the output nor the cache.
func TestTapsLeaveNoTrace(t *testing.T) {
	m := load(t, fixture.GDN(t, t.TempDir(), fixture.Options{Seed: 2}).Dir)
	run := func(taps []int) (out []float32, state [][]float32) {
		cache := m.NewCache()
		defer cache.Close()
		do(t, func(s *mlx.Scope) error {
			o := m.Forward(s, mlx.FromSlice(s, prompt), cache, &qwen.ForwardOptions{Taps: taps})
			var err error
			out, err = mlx.ToSlice[float32](o.Hidden)
			require.NoError(t, err)
			return cache.Commit(s, 5)
		})
		return out, stateOf(t, m, cache)
	}
	plain, plainState := run(nil)
	tapped, tappedState := run([]int{0, 3, 7})
	require.Equal(t, plain, tapped)
	require.Equal(t, plainState, tappedState)
}

// stateOf reads the committed state of all layers.
func stateOf(t testing.TB, m *qwen.Model, c *qwen.Cache) (state [][]float32) {
	t.Helper()
	do(t, func(s *mlx.Scope) error {
		for i := range m.Config().NumHiddenLayers {
			l, err := c.Layer(s, i)
			require.NoError(t, err)
			for _, a := range []mlx.Array{l.Keys, l.Values, l.Conv, l.Recurrent} {
				if !a.Valid() {
					state = append(state, nil)
					continue
				}
				v, err := mlx.ToSlice[float32](s.Contiguous(a))
				require.NoError(t, err)
				state = append(state, v)
			}
		}
		return nil
	})
	return state
}
