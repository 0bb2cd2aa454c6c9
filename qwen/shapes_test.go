package qwen_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/internal/safetensors"
	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen"
)

const shardBytes = 4 << 30

// published writes a published model's configuration and headers, in Hugging
// Face's layout or in MLX's with 4 bits, after edit.
func published(t testing.TB, p fixture.Published, quantised bool, edit func([]fixture.HeaderTensor) []fixture.HeaderTensor) string {
	t.Helper()
	dir, config, list := t.TempDir(), p.Config(), p.Raw()
	if quantised {
		var quantization map[string]any
		list, quantization = p.MLX()
		config["quantization"], config["quantization_config"] = quantization, quantization
	}
	if edit != nil {
		list = edit(slices.Clone(list))
	}
	fixture.WriteHeaders(t, dir, config, list, shardBytes)
	return dir
}

// onHeaders loads on a closed library: everything passed if all that is wrong is
// that no weight can be read.
func onHeaders(t testing.TB, lib *mlx.Library, dir string) error {
	t.Helper()
	m, err := qwen.Load(t.Context(), lib, dir, &qwen.LoadOptions{IgnoreMemory: true})
	require.Nil(t, m)
	return err
}

// The models that people have pass every check up to the weights, in both
// layouts, and one tensor that is missing, of another shape or too many is named.
func TestPublishedShapes(t *testing.T) {
	closed := closedLibrary(t)
	for _, p := range fixture.Targets() {
		for _, quantised := range []bool{false, true} {
			name := p.Name + " as released"
			if quantised {
				name = p.Name + " in 4 bits"
			}
			t.Run(name, func(t *testing.T) {
				dir := published(t, p, quantised, nil)
				c, err := qwen.ReadConfig(dir)
				require.NoError(t, err)
				require.Equal(t, p.Layers, c.NumHiddenLayers)
				require.Equal(t, p.Type, c.ModelType)
				require.Equal(t, p.Experts > 0, c.MoeLayers[0])
				require.Equal(t, p.Tied, c.TieWordEmbeddings)
				require.Equal(t, quantised, c.Quantization == "4-bit affine")
				full := 0
				for _, kind := range c.LayerTypes {
					if kind == qwen.FullAttention {
						full++
					}
				}
				if p.KeyHeads > 0 {
					require.Equal(t, p.Layers/4, full)
					require.Equal(t, 64, c.RotaryDim())
				} else {
					require.Equal(t, p.Layers, full)
					require.Equal(t, p.HeadDim, c.RotaryDim())
				}
				require.ErrorIs(t, onHeaders(t, closed, dir), mlx.ErrClosed)

				// The last layer's last matrix, whatever its kind.
				list := p.Raw()
				if quantised {
					list, _ = p.MLX()
				}
				at := slices.IndexFunc(list, func(h fixture.HeaderTensor) bool {
					return strings.Contains(h.Name, ".layers.5.") && len(h.Shape) > 1 && strings.HasSuffix(h.Name, "o_proj.weight") || strings.Contains(h.Name, ".layers.5.linear_attn.out_proj.weight")
				})
				require.GreaterOrEqual(t, at, 0)
				victim := list[at].Name
				short := victim[strings.Index(victim, "layers."):]
				var mismatch *safetensors.MismatchError

				err = onHeaders(t, closed, published(t, p, quantised, func(l []fixture.HeaderTensor) []fixture.HeaderTensor {
					return slices.DeleteFunc(l, func(h fixture.HeaderTensor) bool { return h.Name == victim })
				}))
				if quantised {
					require.ErrorIs(t, err, qwen.ErrUnsupported)
					require.ErrorContains(t, err, strings.TrimSuffix(short, ".weight")+": the file has scales for it, its weight is missing")
				} else {
					require.ErrorAs(t, err, &mismatch)
					require.Equal(t, []string{short}, mismatch.Missing)
				}
				err = onHeaders(t, closed, published(t, p, quantised, func(l []fixture.HeaderTensor) []fixture.HeaderTensor {
					l[at].Shape = []int{l[at].Shape[0] + 64, l[at].Shape[1]}
					return l
				}))
				require.ErrorAs(t, err, &mismatch)
				require.Len(t, mismatch.Shapes, 1)
				require.Equal(t, short, mismatch.Shapes[0].Name)
				require.Empty(t, mismatch.Missing)
				err = onHeaders(t, closed, published(t, p, quantised, func(l []fixture.HeaderTensor) []fixture.HeaderTensor {
					extra := l[at]
					extra.Name = strings.Replace(victim, "layers.5.", "layers.500.", 1)
					return append(l, extra)
				}))
				require.ErrorAs(t, err, &mismatch)
				require.Equal(t, []string{strings.Replace(short, "layers.5.", "layers.500.", 1)}, mismatch.Superfluous)
			})
		}
	}
}

// The larger sibling's weights under the smaller one's configuration, and the
// other way round: one error, ten names and a count.
func TestPublishedMixedUp(t *testing.T) {
	targets := map[string]fixture.Published{}
	for _, p := range fixture.Targets() {
		targets[p.Name] = p
	}
	closed := closedLibrary(t)
	for config, weights := range map[string]string{"Qwen3-4B": "Qwen3-8B", "Qwen3.5-27B": "Qwen3.5-9B", "Qwen3.5-35B-A3B": "Qwen3.5-4B"} {
		dir := t.TempDir()
		fixture.WriteHeaders(t, dir, targets[config].Config(), targets[weights].Raw(), shardBytes)
		err := onHeaders(t, closed, dir)
		require.NotErrorIs(t, err, mlx.ErrClosed)
		require.Less(t, len(err.Error()), 8000)
	}
}

// Weights larger than the memory are refused before one is read, with both
// sizes and a way out; IgnoreMemory tries.
func TestMemoryThatIsNotThere(t *testing.T) {
	giant := fixture.Giant()
	closed := closedLibrary(t)
	for _, quantised := range []bool{false, true} {
		dir, list, need := published(t, giant, quantised, nil), giant.Raw(), int64(0)
		if quantised {
			list, _ = giant.MLX()
		}
		for _, h := range list {
			switch {
			case strings.HasPrefix(h.Name, "mtp."), strings.Contains(h.Name, ".visual."):
			case len(h.Shape) == 2 && (strings.HasSuffix(h.Name, ".scales") || strings.HasSuffix(h.Name, ".biases")):
				need += 2 * h.Elements() // as in the files; experts' are widened
			default: // words of 4 bytes either way
				need += 4 * h.Elements()
			}
		}
		_, err := qwen.Load(t.Context(), closed, dir, nil)
		require.ErrorIs(t, err, qwen.ErrMemory)
		require.Greater(t, need, int64(100e9))
		require.NotErrorIs(t, err, mlx.ErrClosed)
		for _, text := range []string{dir, fmt.Sprintf("the weights need %.1f GB", float64(need)/1e9), "but there are", "smaller model", "quantised"} {
			require.ErrorContains(t, err, text)
		}
		require.ErrorIs(t, onHeaders(t, closed, dir), mlx.ErrClosed)
	}
	// What shall be left beside the weights counts.
	small := filepath.Join(pairDir("tiny-qwen3"), "target")
	_, err := qwen.Load(t.Context(), closed, small, &qwen.LoadOptions{Reserve: 1 << 50})
	require.ErrorIs(t, err, qwen.ErrMemory)
	require.ErrorContains(t, err, "beside them 1125899.9 GB")
	_, err = qwen.Load(t.Context(), closed, small, nil)
	require.ErrorIs(t, err, mlx.ErrClosed)
}

// What is compared with the memory is what the weights then take.
func TestMemoryExpected(t *testing.T) {
	active := func() int64 {
		require.NoError(t, lib.ClearCache(t.Context()))
		m, err := lib.Memory(t.Context())
		require.NoError(t, err)
		return m.Active
	}
	for _, dir := range []string{"tiny-qwen3/target", "tiny-qwen3/target-mxfp4", "tiny-qwen3.5/target", "tiny-qwen3.5/target-4bit", "tiny-qwen3.5-moe/target", "tiny-qwen3.5-moe/target-4bit"} {
		t.Run(dir, func(t *testing.T) {
			dir = pairDir(filepath.FromSlash(dir))
			want, err := qwen.Resident(dir)
			require.NoError(t, err)
			before := active()
			m, err := qwen.Load(t.Context(), lib, dir, nil)
			require.NoError(t, err)
			defer m.Close()
			require.InEpsilon(t, want, active()-before, 0.02)
		})
	}
}
