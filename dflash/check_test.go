package dflash_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/internal/safetensors"
	"github.com/godflash/godflash/mlx"
)

// Everything that is wrong with a pair is one error: the target's files, its
// tokenizer and template, the drafter's configuration and files, and the two
// against each other. No weight is read.
func TestEverythingWrong(t *testing.T) {
	closed, err := mlx.Open(&mlx.Options{Device: mlx.DeviceCPU})
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 1})
	target := derived(t, spec.Dir, func(tensors tensorMap, _ object) {
		delete(tensors, "model.layers.1.mlp.up_proj.weight")
		tensors["model.layers.0.self_attn.q_proj.bias"] = tensors["model.norm.weight"]
	})
	require.NoError(t, os.Remove(filepath.Join(target, "tokenizer.json")))
	require.NoError(t, os.WriteFile(filepath.Join(target, "chat_template.jinja"), []byte("{% for %}"), 0o644))
	draft := editDraft(t, spec, fixture.DraftOptions{}, func(tensors tensorMap, config object) {
		delete(tensors, "hidden_norm.weight")
		config["num_target_layers"], config["vocab_size"] = 77, 5000
		config["dflash_config"].(object)["target_layer_ids"] = []int{1, 2, 76}
	})
	_, err = dflash.Open(t.Context(), target, &dflash.Options{Draft: draft, Library: closed, BlockSize: 1000})
	var all *dflash.ModelError
	require.ErrorAs(t, err, &all)
	require.Equal(t, target, all.Dir)
	for _, text := range []string{
		"1 missing: layers.1.mlp.up_proj.weight", "layers.0.self_attn.q_proj.bias",
		target + " holds no tokenizer.json", "chat_template.jinja",
		"num_target_layers: drafter 77, target 4", "drafter taps layer 76", "vocab_size: drafter 5000, target",
		"fc.weight takes", "1 missing: hidden_norm.weight", "block size 1000",
	} {
		require.ErrorContains(t, err, text)
	}
	for _, kind := range []error{dflash.ErrPairMismatch, dflash.ErrRequest, os.ErrNotExist} {
		require.ErrorIs(t, err, kind)
	}
	var mismatch *safetensors.MismatchError
	require.ErrorAs(t, err, &mismatch)
	require.Greater(t, len(all.Problems), 5)
	require.Equal(t, len(all.Problems)+1, strings.Count(err.Error(), "\n")+1, "a line each")
	require.Less(t, len(err.Error()), 4000)

	// A drafter that cannot be read hides nothing of the target, nor the other way.
	require.NoError(t, os.WriteFile(filepath.Join(draft, "config.json"), []byte("{}"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(target, "config.json"), []byte(`{"model_type": "qwen3", "hidden_size": 0, "hidden_act": "gelu", "quantization": {"quant_method": "gptq"}}`), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(target, "model.safetensors"), []byte("<!doctype html><html>"), 0o644))
	_, err = dflash.Open(t.Context(), target, &dflash.Options{Draft: draft, Library: closed})
	require.ErrorAs(t, err, &all)
	for _, text := range []string{
		"architectures is missing", "missing num_hidden_layers", "hidden_size is 0", `hidden_act is "gelu"`, "gptq", "web page", "no tokenizer.json",
	} {
		require.ErrorContains(t, err, text)
	}
	require.ErrorIs(t, err, dflash.ErrUnsupported)
	require.ErrorIs(t, err, dflash.ErrConfig)

	// One thing is its own sentence, in the same type.
	_, err = dflash.Open(t.Context(), spec.Dir, &dflash.Options{Draft: pairDir("tiny-qwen3") + "/draft", Library: closed})
	require.ErrorAs(t, err, &all)
	require.Len(t, all.Problems, 1)
	require.NotContains(t, err.Error(), "\n")
	require.ErrorIs(t, err, dflash.ErrPairMismatch)
}

// Memory is part of the same error, beside whatever else is wrong.
func TestMemoryAndMore(t *testing.T) {
	closed, err := mlx.Open(&mlx.Options{Device: mlx.DeviceCPU})
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	giant := fixture.Giant()
	dir := t.TempDir()
	fixture.WriteHeaders(t, dir, giant.Config(), giant.Raw(), 64<<30)
	var all *dflash.ModelError
	_, err = dflash.Open(t.Context(), dir, &dflash.Options{Draft: filepath.Join(pairDir("tiny-qwen3"), "draft"), Library: closed})
	require.ErrorAs(t, err, &all)
	for _, kind := range []error{dflash.ErrMemory, dflash.ErrPairMismatch} {
		require.ErrorIs(t, err, kind)
	}
	_, err = dflash.Open(t.Context(), dir, &dflash.Options{Draft: filepath.Join(pairDir("tiny-qwen3"), "draft"), Library: closed, IgnoreMemory: true})
	require.ErrorIs(t, err, dflash.ErrPairMismatch)
	require.NotErrorIs(t, err, dflash.ErrMemory)
}

// Several shards that are cut are all named.
func TestEveryShard(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 1})
	dir := derived(t, spec.Dir, func(tensorMap, object) {})
	require.NoError(t, os.Remove(filepath.Join(dir, "model.safetensors")))
	for _, name := range []string{"a.safetensors", "b.safetensors"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte{1, 2, 3}, 0o644))
	}
	_, err := dflash.Open(t.Context(), dir, &dflash.Options{Library: lib})
	require.ErrorIs(t, err, safetensors.ErrTruncated)
	for _, name := range []string{"a.safetensors", "b.safetensors"} {
		require.ErrorContains(t, err, name)
	}
}

// Without a tokenizer, and with everything else right.
func TestNoTokenizer(t *testing.T) {
	dir := derived(t, filepath.Join(pairDir("tiny-qwen3"), "target"), func(tensorMap, object) {})
	require.NoError(t, os.Remove(filepath.Join(dir, "tokenizer.json")))
	var log bytes.Buffer
	_, err := dflash.Open(t.Context(), dir, &dflash.Options{Library: lib, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	var all *dflash.ModelError
	require.True(t, errors.As(err, &all))
	require.Len(t, all.Problems, 1)
	require.ErrorContains(t, err, dir+" holds no tokenizer.json")
	require.ErrorContains(t, err, "fetch that file")
}
