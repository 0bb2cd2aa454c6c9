package dflash_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/internal/safetensors"
	"github.com/godflash/godflash/mlx"
)

// closedLibrary cannot read a weight.
func closedLibrary(t testing.TB) *mlx.Library {
	t.Helper()
	l, err := mlx.Open(&mlx.Options{Device: mlx.DeviceCPU})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l
}

// publishedPair writes a drafter and its target, headers only.
func publishedPair(t testing.TB, d fixture.PublishedDraft, quantised bool) (target, draft string) {
	t.Helper()
	targets := fixture.Targets()
	p := targets[slices.IndexFunc(targets, func(p fixture.Published) bool { return p.Name == d.Target })]
	target, draft = t.TempDir(), t.TempDir()
	config, list := p.Config(), p.Raw()
	if quantised {
		list, config["quantization"] = p.MLX()
	}
	fixture.WriteHeaders(t, target, config, list, 4<<30)
	fixture.WriteHeaders(t, draft, d.Config(), d.Tensors(), 0)
	return target, draft
}

// The published pairs pass every check up to the weights: configurations, the
// headers of both, the pair against each other, tokenizer and template.
func TestPublishedPairs(t *testing.T) {
	closed := closedLibrary(t)
	for _, d := range fixture.Drafters() {
		t.Run(d.Name, func(t *testing.T) {
			elements := int64(0)
			for _, tensor := range d.Tensors() {
				elements += tensor.Elements()
			}
			if d.Millions > 0 {
				require.Equal(t, d.Millions, int(math.Round(float64(elements)/1e6)))
			}
			for _, quantised := range []bool{false, true} {
				target, draft := publishedPair(t, d, quantised)
				c, err := dflash.ReadDraftConfig(draft)
				require.NoError(t, err)
				require.Equal(t, d.Taps, c.TargetLayerIDs)
				require.Equal(t, 16, c.BlockSize)
				require.Equal(t, d.Window, c.SlidingWindow)
				last := len(c.LayerTypes) - 1
				require.Equal(t, d.Window > 0, c.LayerTypes[0] == dflash.SlidingAttention)
				require.NotEqual(t, dflash.SlidingAttention, c.LayerTypes[last])
				require.Equal(t, d.Mask, c.MaskTokenID)

				o := dflash.Options{Draft: draft, Library: closed, IgnoreMemory: true}
				_, err = dflash.Open(t.Context(), target, &o)
				require.ErrorIs(t, err, mlx.ErrClosed)
				_, err = dflash.LoadDrafter(t.Context(), closed, draft, &dflash.DraftOptions{IgnoreMemory: true})
				require.ErrorIs(t, err, mlx.ErrClosed)
			}
		})
	}
}

// A published drafter with one wrong tensor, or under another target.
func TestPublishedDraftersThatDoNotFit(t *testing.T) {
	closed := closedLibrary(t)
	all := fixture.Drafters()
	for i, d := range all {
		target, _ := publishedPair(t, d, false)
		open := func(draft string) error {
			t.Helper()
			_, err := dflash.Open(t.Context(), target, &dflash.Options{Draft: draft, Library: closed, IgnoreMemory: true})
			require.NotErrorIs(t, err, mlx.ErrClosed)
			return err
		}
		edited := func(f func(list []fixture.HeaderTensor) []fixture.HeaderTensor) string {
			dir := t.TempDir()
			fixture.WriteHeaders(t, dir, d.Config(), f(d.Tensors()), 0)
			return dir
		}
		var mismatch *safetensors.MismatchError
		require.ErrorAs(t, open(edited(func(l []fixture.HeaderTensor) []fixture.HeaderTensor { return l[:len(l)-1] })), &mismatch)
		require.Len(t, mismatch.Missing, 1)
		require.Contains(t, mismatch.Missing[0], "mlp.down_proj.weight")
		require.ErrorAs(t, open(edited(func(l []fixture.HeaderTensor) []fixture.HeaderTensor {
			l[2].Shape = []int{d.Hidden + 1}
			return l
		})), &mismatch)
		require.Equal(t, "norm.weight", mismatch.Shapes[0].Name)
		require.ErrorIs(t, open(edited(func(l []fixture.HeaderTensor) []fixture.HeaderTensor {
			l[0].Shape = []int{d.Hidden, 4 * d.Hidden}
			return l
		})), dflash.ErrPairMismatch)

		other := all[(i+1)%len(all)]
		if other.Hidden == d.Hidden && other.TargetLayers == d.TargetLayers {
			continue // Qwen3.5 and 3.6 of one size cannot be told apart
		}
		_, draft := publishedPair(t, other, false)
		err := open(draft)
		require.ErrorIs(t, err, dflash.ErrPairMismatch, "%s under %s", other.Name, d.Target)
	}
}

// A pair that is larger than the memory is refused before the target is read,
// and a drafter that is, by itself.
func TestPairLargerThanMemory(t *testing.T) {
	closed := closedLibrary(t)
	p := fixture.Giant()
	d := fixture.PublishedDraft{
		Hidden: p.Hidden, FFN: 1 << 20, Layers: 60, Heads: 32, KVHeads: 8, Taps: []int{1, 29, 57}, TargetLayers: p.Layers,
		Mask: 248070, Vocab: p.Vocab, MaxPositions: p.MaxPositions, Theta: 1e7,
	}
	target, draft := t.TempDir(), t.TempDir()
	fixture.WriteHeaders(t, target, p.Config(), p.Raw(), 64<<30)
	fixture.WriteHeaders(t, draft, d.Config(), d.Tensors(), 0)
	gigabytes := func(list []fixture.HeaderTensor, matrix float64) string {
		total := 0.0
		for _, h := range list {
			switch {
			case strings.HasPrefix(h.Name, "mtp.") || strings.Contains(h.Name, ".visual."):
			case len(h.Shape) > 1:
				total += matrix * float64(h.Elements())
			default:
				total += 4 * float64(h.Elements())
			}
		}
		return fmt.Sprintf("%.1f GB", total/1e9)
	}
	_, err := dflash.Open(t.Context(), target, &dflash.Options{Draft: draft, Library: closed})
	require.ErrorIs(t, err, dflash.ErrMemory)
	require.ErrorContains(t, err, "the weights need "+gigabytes(p.Raw(), 4)+" and what is loaded beside them "+gigabytes(d.Tensors(), 4))
	_, err = dflash.LoadDrafter(t.Context(), closed, draft, nil)
	require.ErrorIs(t, err, dflash.ErrMemory)
	require.ErrorContains(t, err, "the weights need "+gigabytes(d.Tensors(), 4))
	_, err = dflash.LoadDrafter(t.Context(), closed, draft, &dflash.DraftOptions{Bits: 4})
	require.ErrorContains(t, err, "the weights need "+gigabytes(d.Tensors(), 0.5+2*4./64)) // and a scale and a bias for 64
	_, err = dflash.LoadDrafter(t.Context(), closed, draft, &dflash.DraftOptions{IgnoreMemory: true})
	require.ErrorIs(t, err, mlx.ErrClosed)
}
