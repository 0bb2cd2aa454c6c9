package synthetic_test

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/safetensors"
	"github.com/godflash/godflash/internal/synthetic"
	"github.com/godflash/godflash/internal/weights"
	"github.com/godflash/godflash/mlx"
)

// Every small shape loads, dense and quantised, and its scores are those of a
// sane model: finite, and of the size that norms of one give.
func TestShapes(t *testing.T) {
	lib, err := mlx.Open(nil)
	require.NoError(t, err)
	defer lib.Close()
	for _, name := range []string{"tiny", "tiny-hybrid", "tiny-moe"} {
		for _, bits := range []int{0, 4} {
			p, err := synthetic.Find(name, bits, 0)
			require.NoError(t, err)
			dir := t.TempDir()
			require.NoError(t, p.Write(dir))
			e, err := dflash.Open(weights.WithMaker(t.Context(), p.Maker(3)), dir, &dflash.Options{Library: lib})
			require.NoError(t, err, name)
			require.Empty(t, e.Info().DraftOff)
			target := e.Target()
			cache := target.NewCache()
			var scores []float32
			err = lib.Do(t.Context(), func(s *mlx.Scope) error {
				hidden, _ := target.Forward(s, mlx.FromSlice(s, []int32{5, 900, 2000, 17}), cache, nil)
				var err error
				scores, err = mlx.ToSlice[float32](s.Flatten(s.AsType(target.Logits(s, hidden), mlx.Float32)))
				return err
			})
			require.NoError(t, err, name)
			var square float64
			for _, v := range scores {
				square += float64(v) * float64(v)
			}
			deviation := math.Sqrt(square / float64(len(scores)))
			require.InDelta(t, 1, deviation, 0.2, "%s in %d bits", name, bits)
			require.NoError(t, cache.Close())
			require.NoError(t, e.Close())
		}
	}
}

func TestFind(t *testing.T) {
	require.Contains(t, synthetic.Names(), "qwen3.6-27b")
	_, err := synthetic.Find("Qwen9", 0, 0)
	require.ErrorIs(t, err, synthetic.ErrName)
	require.ErrorContains(t, err, "qwen3-8b")
	_, err = synthetic.Find("tiny", 8, 0)
	require.ErrorIs(t, err, synthetic.ErrName)
	_, err = synthetic.Find("tiny", 0, 5)
	require.ErrorContains(t, err, "it has 4")
	p, err := synthetic.Find("QWEN3-8B", 4, 3)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2}, p.Draft.Taps, "a tap for each of the layers that are left")
	require.Equal(t, 3, p.Target.Layers)
}

// The figures follow from the shape, by hand: a layer of Qwen3-8B has 192,937,984
// weights in its matrices, its head and its table 622,329,856 each; the drafter
// is published with 1,049 million.
func TestWork(t *testing.T) {
	p, err := synthetic.Find("qwen3-8b", 0, 0)
	require.NoError(t, err)
	const layers, head, drafter = 36 * 192_937_984.0, 622_329_856.0, 1049e6
	w := p.Work(1000, 16, 2, 0)
	cache, draftCache := 36*1000*2*8*128*2.0, 5*1000*2*8*128*2.0
	require.InEpsilon(t, 2*(layers+2*head), w.Target, 1e-3)
	require.InEpsilon(t, 2*drafter, w.Drafter, 1e-3)
	require.InEpsilon(t, 2*(layers+head)+cache, w.Step, 1e-3)
	require.InEpsilon(t, 2*(layers+2*head+drafter)+cache+draftCache, w.Cycle, 1e-3)

	// 4 bits and 2 × 16 bits for each group of 64.
	quarter, err := synthetic.Find("qwen3-8b", 4, 0)
	require.NoError(t, err)
	w = quarter.Work(1000, 16, 2, 4)
	require.InEpsilon(t, 0.5625*(layers+head)+cache, w.Step, 1e-3)
	require.InEpsilon(t, 0.5625*(layers+2*head+drafter)+cache+draftCache, w.Cycle, 1e-3)

	// One row reads 8 of 256 experts, 16 rows those that they hit: 1−(1−1/32)^16.
	moe, err := synthetic.Find("qwen3.6-35b-a3b", 0, 0)
	require.NoError(t, err)
	experts := 40 * 256 * 3 * 2048 * 512.0
	one, many := moe.Work(0, 1, 2, 0), moe.Work(0, 16, 2, 0)
	require.InEpsilon(t, 2*experts*(0.398317-0.03125), many.Cycle-one.Cycle, 1e-3)
	require.Equal(t, one.Step, many.Step)

	// Recurrent state is read and written, whatever the context.
	hybrid, err := synthetic.Find("qwen3.6-27b", 4, 0)
	require.NoError(t, err)
	short, long := hybrid.Work(1000, 16, 2, 4), hybrid.Work(11000, 16, 2, 4)
	require.Equal(t, 16*10000*2*4*256*2.0, long.Step-short.Step)
	require.Equal(t, 16*10000*2*4*256*2.0+(4*1048+10000)*2*8*128*2, long.Cycle-short.Cycle, "the drafter's windows of 2048 are full")
}

// A tensor depends on the seed and its name, and the files hold nothing.
func TestMaker(t *testing.T) {
	p, err := synthetic.Find("tiny", 0, 0)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, p.Write(dir))
	ck, err := safetensors.Open(filepath.Join(dir, "target"))
	require.NoError(t, err)
	lib, err := mlx.Open(nil)
	require.NoError(t, err)
	defer lib.Close()
	make := func(seed uint64, name string) (out []float32) {
		tensor, ok := ck.Tensors["model."+name]
		require.True(t, ok, name)
		require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
			var err error
			out, err = mlx.ToSlice[float32](s.Flatten(s.AsType(p.Maker(seed)(s, name, tensor, mlx.QuantizeOptions{}), mlx.Float32)))
			return err
		}))
		return out
	}
	q, k := "layers.0.self_attn.k_proj.weight", "layers.1.self_attn.k_proj.weight"
	require.Equal(t, make(1, q), make(1, q))
	require.NotEqual(t, make(1, q), make(2, q))
	require.NotEqual(t, make(1, q), make(1, k))
	for _, v := range make(1, "norm.weight") {
		require.Equal(t, float32(1), v)
	}
}
