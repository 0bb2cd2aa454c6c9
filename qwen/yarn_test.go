package qwen_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen"
)

// Logits under YaRN are those of mlx-lm, computed in float32, inside the
// original length and past it, in one piece, in pieces and token by token.
func TestYaRN(t *testing.T) {
	for _, pair := range []string{"tiny-qwen3", "tiny-qwen3.5"} {
		t.Run(pair, func(t *testing.T) {
			var ids, rows []int32
			var want []float32
			do(t, func(s *mlx.Scope) error {
				g, meta, err := s.LoadSafetensors(filepath.Join("testdata", "yarn-"+pair+".safetensors"))
				require.NoError(t, err)
				require.Equal(t, "32", meta["original"])
				require.Equal(t, "4.0", meta["factor"])
				ids, rows, want = must(mlx.ToSlice[int32](g["ids"])), must(mlx.ToSlice[int32](g["rows"])), must(mlx.ToSlice[float32](g["logits"]))
				return nil
			})
			from := filepath.Join(pairDir(pair), "target")
			run := func(dir string, piece int) []float32 {
				m, err := qwen.Load(t.Context(), lib, dir, nil)
				require.NoError(t, err)
				defer m.Close()
				cache := m.NewCache()
				defer cache.Close()
				var all, out []float32
				for at := 0; at < len(ids); at += piece {
					do(t, func(s *mlx.Scope) error {
						h := m.Forward(s, mlx.FromSlice(s, ids[at:at+piece]), cache, nil)
						if err := s.Err(); err != nil {
							return err
						}
						all = append(all, must(mlx.ToSlice[float32](s.Contiguous(m.Logits(s, h.Hidden))))...)
						return cache.Commit(s, piece)
					})
				}
				vocab := len(all) / len(ids)
				for _, row := range rows {
					out = append(out, all[int(row)*vocab:(int(row)+1)*vocab]...)
				}
				return out
			}
			dir := copyFolder(t, from, func(_ checkpoint, config object) {
				text := config
				if nested, ok := config["text_config"].(map[string]any); ok {
					text = nested
				}
				parameters := text["rope_parameters"].(map[string]any)
				parameters["rope_type"], parameters["factor"], parameters["original_max_position_embeddings"] = "yarn", 4, 32
			})
			c, err := qwen.ReadConfig(dir)
			require.NoError(t, err)
			require.Equal(t, "yarn, factor 4", c.RopeScaling)
			for _, piece := range []int{100, 20, 1} {
				requireNear(t, want, run(dir, piece), 1e-4)
			}
			plain := run(from, 100)
			var diff float64
			for i := range plain {
				diff = max(diff, abs(float64(plain[i])-float64(want[i])))
			}
			require.Greater(t, diff, 0.1, "the scaling must be seen")
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
