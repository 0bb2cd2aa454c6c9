package dflash

import (
	"errors"
	"fmt"
	"slices"

	"github.com/godflash/godflash/mlx"
)

// Bounds of the search for where a model ceases to be finite: all layers'
// outputs of a chunk are looked at together, and a long text is not run again
// while other sessions wait.
const (
	searchChunk = 256
	searchRows  = 4096
)

// findNonFinite says where a model begins to compute what is not finite, after a
// block ids had such scores: it runs ids from an empty sequence and looks at each
// layer's output. Where these are sound, the fault came out of the sequence's
// state, so the rows before are run as well.
func (d *Decoder) findNonFinite(s *mlx.Scope, ids []int) error {
	block := make([]int, len(ids))
	for i, id := range ids {
		block[i] = max(id, 0)
	}
	const blame = "The weights hold NaN or infinite numbers, or are of another model"
	before := d.past.rows
	where, err := d.searchNonFinite(s.Library(), block)
	if err == nil && where == "" && len(before) > 0 && len(before) <= searchRows {
		where, err = d.searchNonFinite(s.Library(), slices.Concat(before, block))
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w, and the search for the layer failed: %w", ErrNonFinite, err)
	case where != "":
		return fmt.Errorf("%w: first in %s. %s", ErrNonFinite, where, blame)
	case len(before) > searchRows:
		return fmt.Errorf("%w: first in the state of the %d tokens before. %s", ErrNonFinite, len(before), blame)
	}
	return fmt.Errorf("%w, but they are when the same %d tokens are run again: the sequence's state was damaged, or the device computes wrongly", ErrNonFinite, len(before)+len(block))
}

// searchNonFinite runs ids from an empty sequence and names the first place
// whose output is not finite, "" where all are.
func (d *Decoder) searchNonFinite(lib *mlx.Library, ids []int) (where string, err error) {
	cache := d.target.NewCache()
	defer func() { err = errors.Join(err, cache.Close()) }()
	for start := 0; start < len(ids) && where == "" && err == nil; start += searchChunk {
		end := min(start+searchChunk, len(ids))
		where, err = d.searchChunk(lib, cache, ids[start:end], end == len(ids))
	}
	return where, err
}

// searchChunk runs ids from the end of cache. Of the head only the last chunk's
// scores count: others were not used.
func (d *Decoder) searchChunk(lib *mlx.Library, cache TargetCache, ids []int, last bool) (where string, err error) {
	s := lib.NewScope("search") // frees what the chunk needs
	defer func() { err = errors.Join(err, s.Close()) }()
	layers := make([]int, d.info.Layers)
	for i := range layers {
		layers[i] = i
	}
	in := idArray(s, ids)
	hidden, outputs := d.target.Forward(s, in, cache, layers)
	for i, x := range append([]mlx.Array{d.target.Embed(s, in)}, outputs...) {
		if ok, err := finite(s, x); err != nil {
			return "", err
		} else if !ok && i == 0 {
			return "the embedding", nil
		} else if !ok {
			return fmt.Sprintf("layer %d", i-1), nil
		}
	}
	if !last {
		if err := cache.Commit(s, len(ids)); err != nil {
			return "", err
		}
		return "", s.Eval(cache.Arrays()...)
	}
	if ok, err := finite(s, d.target.Logits(s, hidden)); err != nil || ok {
		return "", err
	}
	return "its head", nil
}

func finite(s *mlx.Scope, x mlx.Array) (bool, error) {
	return mlx.Item[bool](s.All(s.IsFinite(x), false))
}
