package dflash

import (
	"fmt"

	"github.com/godflash/godflash/mlx"
)

// nonFinite stands for the choice among scores of which one is NaN or infinite.
// It is no id, so it never equals a draft.
const nonFinite = -1

// greedy is the index of the largest score, the lowest where several are
// equal: logits [..., T, vocab] to int32 [T]. A row with a NaN or an infinity
// gives nonFinite: taken as they are, such rows choose token 0 for ever.
func greedy(s *mlx.Scope, logits mlx.Array) mlx.Array {
	best := s.AsType(s.Argmax(logits, -1, false), mlx.Int32)
	// The sum of a row is finite exactly when all of it is: float32 has room for
	// as many scores as there are tokens.
	sum := s.Sum(s.AsType(logits, mlx.Float32), false, -1)
	return s.Flatten(s.Where(s.IsFinite(sum), best, s.Scalar(nonFinite, mlx.Int32)))
}

// findNonFinite says where a model begins to compute what is not finite: it
// runs ids from an empty sequence and looks at each layer's output.
func (d *Decoder) findNonFinite(s *mlx.Scope, ids []int) error {
	for i, id := range ids {
		ids[i] = max(id, 0)
	}
	where := "its head"
	cache := d.target.NewCache()
	defer cache.Close()
	layers := make([]int, d.info.Layers)
	for i := range layers {
		layers[i] = i
	}
	in := idArray(s, ids)
	_, outputs := d.target.Forward(s, in, cache, layers)
	for i, x := range append([]mlx.Array{d.target.Embed(s, in)}, outputs...) {
		ok, err := mlx.Item[bool](s.All(s.IsFinite(x), false))
		if err != nil {
			return fmt.Errorf("%w, and the search for the layer failed: %w", ErrNonFinite, err)
		}
		if !ok && i == 0 {
			where = "the embedding"
		} else if !ok {
			where = fmt.Sprintf("layer %d", i-1)
		}
		if !ok {
			break
		}
	}
	return fmt.Errorf("%w: first in %s. The weights hold NaN or infinite numbers, or are of another model", ErrNonFinite, where)
}

// draftChoice is greedy for the drafter, whose scores cannot spoil a result: a
// row that is not finite proposes token 0, which the target will hardly choose.
func draftChoice(s *mlx.Scope, logits mlx.Array) mlx.Array {
	return s.Flatten(s.AsType(s.Argmax(logits, -1, false), mlx.Int32))
}
