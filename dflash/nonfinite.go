package dflash

import (
	"fmt"

	"github.com/godflash/godflash/mlx"
)

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
