package qwen_test

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/qwen"
)

// toMLX makes of Hugging Face's layout what MLX's converter makes: names under
// language_model, convolutions as [channels, kernel, 1], the norms' one added.
func toMLX(ck checkpoint) {
	hybrid := slices.ContainsFunc(slices.Collect(maps.Keys(ck)), func(n string) bool { return strings.HasSuffix(n, "conv1d.weight") })
	ck.rename(func(name string) string {
		if rest, ok := strings.CutPrefix(name, "model.language_model."); ok {
			return "language_model.model." + rest
		}
		return "language_model." + name
	})
	for name, tensor := range ck {
		if strings.HasSuffix(name, "conv1d.weight") {
			s := tensor.Shape
			tensor.Shape = []int{s[0], s[2], s[1]}
			ck[name] = tensor
		}
		for _, norm := range []string{".input_layernorm.weight", ".post_attention_layernorm.weight", "model.norm.weight", ".q_norm.weight", ".k_norm.weight"} {
			if hybrid && strings.HasSuffix(name, norm) {
				v := floats(tensor.Data)
				for i := range v {
					v[i]++
				}
				ck[name] = float32Tensor(tensor.Shape, v)
			}
		}
	}
}

// The two layouts of one model, and every prefix, give the same bits.
func TestLayouts(t *testing.T) {
	for name, dir := range map[string]string{
		"gated delta": fixture.GDN(t, t.TempDir(), fixture.Options{Seed: 1}).Dir,
		"dense":       fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 1}).Dir,
	} {
		t.Run(name, func(t *testing.T) {
			want := bits(logits(t, dir))
			mlxDir := copyFolder(t, dir, func(ck checkpoint, _ object) { toMLX(ck) })
			require.Equal(t, want, bits(logits(t, mlxDir)))
			for _, prefix := range []string{"", "model.", "language_model.", "language_model.model.", "model.language_model.", "model.language_model.model."} {
				got := copyFolder(t, dir, func(ck checkpoint, _ object) {
					ck.rename(func(name string) string {
						if name == "lm_head.weight" {
							return name
						}
						name = strings.TrimPrefix(name, "model.")
						return prefix + strings.TrimPrefix(name, "language_model.")
					})
				})
				require.Equal(t, want, bits(logits(t, got)), "prefix %q", prefix)
			}
		})
	}
}

// One name under two prefixes is the same tensor twice.
func TestTwoPrefixes(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{})
	dir := copyFolder(t, spec.Dir, func(ck checkpoint, _ object) { ck["language_model.model.norm.weight"] = ck["model.norm.weight"] })
	_, err := qwen.Load(t.Context(), lib, dir, nil)
	require.ErrorContains(t, err, "language_model.model.norm.weight")
	require.ErrorContains(t, err, "same tensor")
}

// logged loads a model and returns what was logged.
func logged(t *testing.T, dir string) []string {
	t.Helper()
	var text strings.Builder
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	m, err := qwen.Load(t.Context(), lib, dir, &qwen.LoadOptions{Logger: log})
	require.NoError(t, err)
	require.NoError(t, m.Close())
	return strings.Split(strings.TrimSpace(text.String()), "\n")
}

// Case 78: vision towers and multi-token prediction heads are left out with one
// line; quantized or integer ones among them do not matter.
func TestOtherTowers(t *testing.T) {
	spec := fixture.GDN(t, t.TempDir(), fixture.Options{Seed: 1})
	want := bits(logits(t, spec.Dir))
	require.Equal(t, []string{""}, logged(t, spec.Dir))
	dir := copyFolder(t, spec.Dir, func(ck checkpoint, _ object) {
		extra := float32Tensor([]int{2}, []float32{1, 2})
		for _, name := range []string{
			"model.visual.blocks.0.attn.qkv.weight", "visual.patch_embed.proj.weight", "vision_tower.blocks.0.norm.weight",
			"model.vision_tower.x", "mtp.fc.weight", "mtp.layers.0.input_layernorm.weight", "model.mtp.norm.weight", "language_model.mtp.norm.weight",
		} {
			ck[name] = extra
		}
		extra.Dtype = "U32"
		ck["mtp.layers.0.mlp.down_proj.weight"] = extra
	})
	require.Equal(t, want, bits(logits(t, dir)))
	lines := logged(t, dir)
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "level=INFO")
	require.Contains(t, lines[0], "tensors=9")
}

// Cases 64 and 65: shards with their index, with another's, and without.
func TestShards(t *testing.T) {
	spec := fixture.GDN(t, t.TempDir(), fixture.Options{Seed: 1})
	want := bits(logits(t, spec.Dir))
	ck := readCheckpoint(t, spec.Dir)
	first := func(name string) bool { return len(name)%2 == 0 }
	second := func(name string) bool { return !first(name) }
	sharded := func(a, b string, index map[string]string) string {
		dir := copyFolder(t, spec.Dir, nil)
		require.NoError(t, os.Remove(filepath.Join(dir, "model.safetensors")))
		ck.write(t, filepath.Join(dir, a), first)
		if b != "" {
			ck.write(t, filepath.Join(dir, b), second)
		}
		if index != nil {
			writeJSON(t, filepath.Join(dir, "model.safetensors.index.json"), object{"weight_map": index})
		}
		return dir
	}
	index := func(a, b string) map[string]string {
		m := map[string]string{}
		for name := range ck {
			if m[name] = b; first(name) {
				m[name] = a
			}
		}
		return m
	}
	a, b := "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
	for name, dir := range map[string]string{
		"index":           sharded(a, b, index(a, b)),
		"no index":        sharded(a, b, nil),
		"any names":       sharded("a.safetensors", "b.safetensors", nil),
		"one is a subset": sharded("model-a.safetensors", "model-b.safetensors", nil),
	} {
		require.Equal(t, want, bits(logits(t, dir)), name)
		require.Equal(t, []string{""}, logged(t, dir), name)
	}
	stale := copyFolder(t, spec.Dir, nil)
	writeJSON(t, filepath.Join(stale, "model.safetensors.index.json"), object{"weight_map": index("model-00001-of-00009.safetensors", "model-00009-of-00009.safetensors")})
	require.Equal(t, want, bits(logits(t, stale)))
	lines := logged(t, stale)
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "level=WARN")
	require.Contains(t, lines[0], "model.safetensors.index.json")

	for name, dir := range map[string]string{"by index": sharded(a, "", index(a, b)), "by number": sharded(a, "", nil)} {
		_, err := qwen.Load(t.Context(), lib, dir, nil)
		require.ErrorContains(t, err, b, name)
	}
}

// The half types are widened exactly, the norms' one is added after that.
func TestDtypes(t *testing.T) {
	spec := fixture.GDN(t, t.TempDir(), fixture.Options{Seed: 1})
	full := bits(logits(t, spec.Dir))
	for _, dtype := range []string{"BF16", "F16"} {
		var rounded checkpoint
		half := copyFolder(t, spec.Dir, func(ck checkpoint, _ object) { rounded = ck.convert(t, dtype) })
		wide := copyFolder(t, spec.Dir, func(ck checkpoint, _ object) { maps.Copy(ck, rounded) })
		got := bits(logits(t, half))
		require.Equal(t, bits(logits(t, wide)), got, dtype)
		require.NotEqual(t, full, got)
	}
}

// F-tied: a left-over head is not read; the output is the embedding's.
func TestTiedHead(t *testing.T) {
	spec := fixture.Tied(t, t.TempDir(), true, fixture.Options{Seed: 1})
	want := bits(logits(t, spec.Dir))
	lines := logged(t, spec.Dir)
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "tensors=1")

	without := copyFolder(t, spec.Dir, func(ck checkpoint, _ object) { delete(ck, "lm_head.weight") })
	require.Equal(t, want, bits(logits(t, without)))

	untied := func(head string) string {
		return copyFolder(t, spec.Dir, func(ck checkpoint, config object) {
			config["tie_word_embeddings"] = false
			ck["lm_head.weight"] = ck[head]
		})
	}
	require.Equal(t, want, bits(logits(t, untied("model.embed_tokens.weight"))), "a head that equals the embedding")
	require.NotEqual(t, want, bits(logits(t, untied("lm_head.weight"))))
}

// Case 68: the flag at the top or nested, true or false, without a head.
func TestUntiedWithoutHead(t *testing.T) {
	spec := fixture.GDN(t, t.TempDir(), fixture.Options{Seed: 1})
	for _, c := range []struct {
		top, nested any
		fits        bool
	}{
		{true, true, true},
		{true, nil, true},
		{nil, true, true},
		{false, true, true},
		{true, false, false},
		{false, nil, false},
		{nil, false, false},
		{nil, nil, false},
	} {
		dir := copyFolder(t, spec.Dir, func(ck checkpoint, config object) {
			delete(ck, "lm_head.weight")
			text := config["text_config"].(object)
			delete(config, "tie_word_embeddings")
			delete(text, "tie_word_embeddings")
			if c.top != nil {
				config["tie_word_embeddings"] = c.top
			}
			if c.nested != nil {
				text["tie_word_embeddings"] = c.nested
			}
		})
		m, err := qwen.Load(t.Context(), lib, dir, nil)
		if c.fits {
			require.NoError(t, err, "%v", c)
			require.NoError(t, m.Close())
			continue
		}
		require.ErrorIs(t, err, qwen.ErrConfig, "%v", c)
		require.ErrorContains(t, err, "lm_head.weight")
		require.ErrorContains(t, err, "tie_word_embeddings")
	}
}
