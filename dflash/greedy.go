package dflash

import (
	"fmt"

	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/mlx"
)

// nonFinite stands for the choice among scores of which one is NaN or infinite.
// It is no id, so it never equals a draft.
const nonFinite = -1

// choose is the target's token for each row of logits [..., T, vocab], int32
// [T]: greedy, the largest score and the lowest index where several are equal,
// or drawn with noise [T, vocab]. A row with a NaN or an infinity gives
// nonFinite: taken as they are, such rows choose token 0 for ever.
func (d *Decoder) choose(s *mlx.Scope, logits, noise mlx.Array) mlx.Array {
	best := d.pick(s, logits, noise)
	// The sum of a row is finite exactly when all of it is: float32 has room for
	// as many scores as there are tokens.
	sum := s.Flatten(s.Sum(s.AsType(logits, mlx.Float32), false, -1))
	return s.Where(s.IsFinite(sum), best, s.Scalar(nonFinite, mlx.Int32))
}

// pick is choose without the check. The drafter uses it as it is: its scores
// cannot spoil a result, only propose what the target will not choose.
func (d *Decoder) pick(s *mlx.Scope, logits, noise mlx.Array) mlx.Array {
	if d.sampler != nil {
		return d.sampler.draw(s, logits, noise)
	}
	return s.Flatten(s.AsType(s.Argmax(logits, -1, false), mlx.Int32))
}

// noise is the noise of the tokens that rows block rows from the end of the
// sequence choose; the zero Array for greedy decoding.
func (d *Decoder) noise(s *mlx.Scope, rows int) mlx.Array {
	at := nn.At(d.cache.Len())
	if d.drafting && !d.context.at.Exact() {
		at = d.context.at // the host has only an upper bound
	}
	return d.sampler.noise(s, at.Advance(s, nn.Rows{N: 1}), rows, d.info.VocabSize)
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
