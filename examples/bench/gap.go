package main

import (
	"context"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/mlx"
)

// gap runs the prompt and the text that both ways agree on through the target
// once more and gives the score of the plain id less that of the drafted one.
func gap(ctx context.Context, t dflash.Target, prompt, text []int, d *difference) (float64, error) {
	ids := append(append([]int{}, prompt...), text[:d.At]...)
	cache := t.NewCache()
	defer cache.Close()
	var out float64
	for len(ids) > 0 {
		n := min(len(ids), dflash.DefaultPrefillChunk)
		chunk := make([]int32, n)
		for i, id := range ids[:n] {
			chunk[i] = int32(id)
		}
		ids = ids[n:]
		err := t.Library().Do(ctx, func(s *mlx.Scope) error {
			hidden, _ := t.Forward(s, mlx.FromSlice(s, chunk), cache, nil)
			last := s.SliceAxis(hidden, 1, n-1, n)
			if err := cache.Commit(s, n); err != nil {
				return err
			}
			if len(ids) > 0 {
				return s.Eval(append(cache.Arrays(), last)...)
			}
			scores, err := mlx.ToSlice[float32](s.Flatten(s.AsType(t.Logits(s, last), mlx.Float32)))
			if err != nil {
				return err
			}
			out = float64(scores[d.Plain]) - float64(scores[d.Drafted])
			return s.Eval(cache.Arrays()...)
		})
		if err != nil {
			return 0, err
		}
	}
	return out, nil
}
