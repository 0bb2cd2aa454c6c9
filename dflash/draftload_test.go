package dflash_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/internal/safetensors"
	"github.com/godflash/godflash/internal/weights"
	"github.com/godflash/godflash/mlx"
)

// tensorMap is a folder's tensors in memory.
type tensorMap map[string]safetensors.WriteTensor

// editDraft writes a drafter for spec and changes its files.
func editDraft(t testing.TB, spec fixture.Spec, o fixture.DraftOptions, edit func(tensors tensorMap, config object)) string {
	t.Helper()
	dir := t.TempDir()
	fixture.Draft(t, dir, spec, o)
	return derived(t, dir, edit)
}

// proposal is what a drafter makes of made-up taps and a made-up block.
func proposal(t testing.TB, dir string) []float32 {
	t.Helper()
	d, err := dflash.LoadDrafter(t.Context(), lib, dir, nil)
	require.NoError(t, err)
	defer func() {
		require.NoError(t, d.Close())
		require.NoError(t, d.Close())
	}()
	c := d.NewContext()
	defer c.Close()
	var out []float32
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		h := d.Config().HiddenSize
		wave := func(rows int) mlx.Array {
			return s.Sin(s.Reshape(s.Arange(0, float64(rows*h), 1, mlx.Float32), 1, rows, h))
		}
		taps := slices.Repeat([]mlx.Array{wave(5)}, len(d.Config().TargetLayerIDs))
		if err := d.Append(s, c, taps, 5); err != nil {
			return err
		}
		var err error
		out, err = mlx.ToSlice[float32](s.Contiguous(d.Propose(s, c, wave(4))))
		return err
	}))
	return out
}

// Checkpoints with the prefix model., in shards and in half precision load.
func TestDraftLayouts(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 1})
	plain := editDraft(t, spec, fixture.DraftOptions{}, func(tensorMap, object) {})
	want := proposal(t, plain)
	prefixed := editDraft(t, spec, fixture.DraftOptions{}, func(tensors tensorMap, _ object) {
		for name, tensor := range maps.Clone(tensors) {
			delete(tensors, name)
			tensors["model."+name] = tensor
		}
	})
	require.Equal(t, want, proposal(t, prefixed))
	half := proposal(t, editDraft(t, spec, fixture.DraftOptions{Dtype: "BF16"}, func(tensorMap, object) {}))
	require.InDeltaSlice(t, want, half, 0.2)
	require.NotEqual(t, want, half)
}

// What is wrong with the files is said before a weight is read, and leaves
// nothing behind.
func TestDraftFilesThatDoNotFit(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 1})
	closed, err := mlx.Open(&mlx.Options{Device: mlx.DeviceCPU})
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	one := func(shape ...int) safetensors.WriteTensor {
		return safetensors.WriteTensor{Dtype: "F32", Shape: shape, Data: make([]byte, 4)}
	}
	for name, c := range map[string]struct {
		edit func(tensors tensorMap, config object)
		kind error
		says []string
	}{
		"fc for more taps": {func(_ tensorMap, config object) {
			config["dflash_config"] = object{"mask_token_id": spec.Mask, "target_layer_ids": []int{0, 1, 2}}
		}, dflash.ErrPairMismatch, []string{"fc.weight takes 96", "3 target_layer_ids", "hidden_size 48", "144"}},
		"its own embedding": {func(tensors tensorMap, _ object) {
			tensors["embed_tokens.weight"] = one(1, 1)
		}, nil, []string{"1 not part of the model", "embed_tokens.weight"}},
		"several": {func(tensors tensorMap, _ object) {
			delete(tensors, "hidden_norm.weight")
			tensors["layers.0.self_attn.q_proj.bias"] = one(1)
			norm := tensors["norm.weight"]
			norm.Shape = []int{1, 48}
			tensors["norm.weight"] = norm
		}, nil, []string{"1 missing: hidden_norm.weight", "layers.0.self_attn.q_proj.bias", "norm.weight is [1 48], want [48]"}},
		"integers": {func(tensors tensorMap, _ object) {
			w := tensors["layers.1.mlp.up_proj.weight"]
			w.Dtype = "I32"
			tensors["layers.1.mlp.up_proj.weight"] = w
		}, weights.ErrDtype, []string{"layers.1.mlp.up_proj.weight I32"}},
		"a name twice": {func(tensors tensorMap, _ object) {
			tensors["model.norm.weight"] = tensors["norm.weight"]
		}, safetensors.ErrDuplicate, []string{"norm.weight"}},
		"one layer more in the config": {func(_ tensorMap, config object) {
			config["num_hidden_layers"] = 3
			delete(config, "layer_types")
		}, nil, []string{"11 missing", "layers.2."}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := editDraft(t, spec, fixture.DraftOptions{}, c.edit)
			base := lib.LiveArrays()
			_, err := dflash.LoadDrafter(t.Context(), closed, dir, nil)
			require.Error(t, err)
			require.NotErrorIs(t, err, mlx.ErrClosed)
			if c.kind != nil {
				require.ErrorIs(t, err, c.kind)
			}
			for _, text := range append(c.says, dir) {
				require.ErrorContains(t, err, text)
			}
			// Open finds it too, before the target's weights: they may be broken.
			target := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 1})
			require.NoError(t, os.WriteFile(filepath.Join(target.Dir, "model.safetensors"), []byte("not weights"), 0o644))
			_, err = dflash.Open(t.Context(), target.Dir, &dflash.Options{Library: lib, Draft: dir})
			for _, text := range c.says {
				require.ErrorContains(t, err, text)
			}
			require.Equal(t, base, lib.LiveArrays())
		})
	}
}

// Case 69: the two folders swapped, and one given twice.
func TestFoldersSwapped(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{})
	draft := editDraft(t, spec, fixture.DraftOptions{}, func(tensorMap, object) {})
	_, err := dflash.Open(t.Context(), draft, &dflash.Options{Library: lib, Draft: spec.Dir})
	require.ErrorIs(t, err, dflash.ErrUnsupported)
	require.ErrorContains(t, err, "this is a drafter")
	require.ErrorContains(t, err, draft)
	_, err = dflash.Open(t.Context(), spec.Dir, &dflash.Options{Library: lib, Draft: spec.Dir})
	require.ErrorIs(t, err, dflash.ErrUnsupported)
	require.ErrorContains(t, err, "this is a model")
	require.ErrorContains(t, err, "Qwen3ForCausalLM")
	_, err = dflash.Open(t.Context(), spec.Dir, &dflash.Options{Library: lib, Draft: t.TempDir()})
	require.ErrorIs(t, err, dflash.ErrConfig)
	require.ErrorContains(t, err, "config.json")
}

// Without a drafter Info says why.
func TestDraftOff(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{})
	e := openDir(t, spec.Dir, dflash.Options{})
	require.Contains(t, e.Info().DraftOff, "no drafter is known")
	require.Nil(t, e.Drafter())
	fixture.Draft(t, filepath.Join(spec.Dir, "draft"), spec, fixture.DraftOptions{})
	e = openDir(t, spec.Dir, dflash.Options{NoDraft: true})
	require.Equal(t, "switched off", e.Info().DraftOff)
	require.Nil(t, e.Drafter())
	e = openDir(t, spec.Dir, dflash.Options{})
	require.Empty(t, e.Info().DraftOff)
	require.NotNil(t, e.Drafter())
	require.Equal(t, filepath.Join(spec.Dir, "draft"), e.Info().DraftDir)
}

// stepContext ends at the n-th question whether it has.
type stepContext struct {
	context.Context
	at, asked int
}

func (c *stepContext) Err() error {
	if c.asked++; c.asked == c.at {
		return context.Canceled
	}
	return nil
}

// Open given up at every point leaves nothing behind; so does a drafter alone.
func TestOpenBrokenOff(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{})
	dir := filepath.Join(spec.Dir, "draft")
	fixture.Draft(t, dir, spec, fixture.DraftOptions{})
	count := &stepContext{Context: t.Context()}
	e, err := dflash.Open(count, spec.Dir, &dflash.Options{Library: lib})
	require.NoError(t, err)
	require.NoError(t, e.Close())
	require.Greater(t, count.asked, spec.Layers+2)
	base := lib.LiveArrays()
	for at := 1; at <= count.asked; at++ {
		_, err := dflash.Open(&stepContext{Context: t.Context(), at: at}, spec.Dir, &dflash.Options{Library: lib})
		require.ErrorIs(t, err, context.Canceled, "at %d", at)
		require.Equal(t, base, lib.LiveArrays(), "at %d", at)
	}
}

// A drafter costs its size in float32 on the CPU, and one layer more while it
// loads.
func TestDraftMemory(t *testing.T) {
	dir := filepath.Join(pairDir("tiny-qwen3.5"), "draft")
	info, err := os.Stat(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	memory := func() mlx.Memory {
		require.NoError(t, lib.ClearCache(t.Context()))
		m, err := lib.Memory(t.Context())
		require.NoError(t, err)
		return m
	}
	before := memory()
	require.NoError(t, lib.ResetPeak(t.Context()))
	d, err := dflash.LoadDrafter(t.Context(), lib, dir, nil)
	require.NoError(t, err)
	after := memory()
	const slack = 1 << 19
	require.LessOrEqual(t, after.Active-before.Active, 2*info.Size()+slack)
	layer := info.Size() / 2
	require.LessOrEqual(t, after.Peak-before.Active, 2*info.Size()+3*layer+slack)
	require.NoError(t, d.Close())
	require.Equal(t, before.Active, memory().Active)
}
