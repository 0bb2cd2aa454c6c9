package qwen_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen"
)

// promptIDs are some ids of the tiny pairs' vocabulary.
var promptIDs = []int32{4033, 2810, 198, 1957, 920, 13, 1805, 670, 1212, 797, 373, 306}

// logitsOf runs the promptIDs through a model folder.
func logitsOf(t testing.TB, dir string) []float32 {
	t.Helper()
	m, err := qwen.Load(t.Context(), lib, dir, nil)
	require.NoError(t, err)
	defer m.Close()
	c := m.NewCache()
	defer c.Close()
	var out []float32
	do(t, func(s *mlx.Scope) error {
		h := m.Forward(s, mlx.FromSlice(s, promptIDs), c, nil)
		var err error
		out, err = mlx.ToSlice[float32](m.Logits(s, h.Hidden))
		return err
	})
	return out
}

// writeModel writes a folder with the tensors that edit makes of a target's and
// with the fields added to its configuration.
func writeModel(t testing.TB, from string, config map[string]any, edit func(s *mlx.Scope, name string, a mlx.Array) map[string]mlx.Array) string {
	t.Helper()
	dir := t.TempDir()
	data, err := os.ReadFile(filepath.Join(from, "config.json"))
	require.NoError(t, err)
	var c map[string]any
	require.NoError(t, json.Unmarshal(data, &c))
	maps.Copy(c, config)
	data, err = json.Marshal(c)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644))
	do(t, func(s *mlx.Scope) error {
		arrays, _, err := s.LoadSafetensors(filepath.Join(from, "model.safetensors"))
		if err != nil {
			return err
		}
		out := map[string]mlx.Array{}
		for name, a := range arrays {
			maps.Copy(out, edit(s, name, a))
		}
		return s.SaveSafetensors(filepath.Join(dir, "model.safetensors"), out, map[string]string{"format": "mlx"})
	})
	return dir
}

// quantised writes a matrix in MLX's layout.
func quantised(s *mlx.Scope, name string, a mlx.Array, o mlx.QuantizeOptions) map[string]mlx.Array {
	q := s.Quantize(a, o)
	module := strings.TrimSuffix(name, ".weight")
	out := map[string]mlx.Array{name: q.W, module + ".scales": q.Scales}
	if q.Biases.Valid() {
		out[module+".biases"] = q.Biases
	}
	return out
}

// rounded is the dense matrix that the quantised one stands for, computed in
// float32: with bfloat16 scales MLX rounds every element once more.
func rounded(s *mlx.Scope, a mlx.Array, o mlx.QuantizeOptions) mlx.Array {
	q := s.Quantize(a, o)
	if q.Biases.Valid() {
		q.Scales, q.Biases = s.AsType(q.Scales, mlx.Float32), s.AsType(q.Biases, mlx.Float32)
	}
	return s.Dequantize(q, mlx.Float32)
}

func isMatrix(name string, a mlx.Array) bool {
	return strings.HasSuffix(name, ".weight") && a.NDim() == 2
}

func requireNear(t testing.TB, want, got []float32, tolerance float64) {
	t.Helper()
	require.Len(t, got, len(want))
	var diff, top float64
	for i := range want {
		diff, top = max(diff, abs(float64(got[i])-float64(want[i]))), max(top, abs(float64(want[i])))
	}
	require.Less(t, diff/top, tolerance)
}

func abs(x float64) float64 { return max(x, -x) }

// Cases 60 and 61: modules with a scheme of their own, under any prefix, and
// modules that are not quantised.
func TestQuantizedMixture(t *testing.T) {
	from := filepath.Join(pairDir("tiny-qwen3"), "target")
	four, eight := mlx.QuantizeOptions{Bits: 4, GroupSize: 64}, mlx.QuantizeOptions{Bits: 8, GroupSize: 32}
	scheme := func(name string) (mlx.QuantizeOptions, bool) {
		switch {
		case strings.Contains(name, "layers.1.") || strings.Contains(name, "embed_tokens"):
			return eight, true
		case strings.Contains(name, "layers.2."):
			return four, false
		}
		return four, true
	}
	dense := writeModel(t, from, nil, func(s *mlx.Scope, name string, a mlx.Array) map[string]mlx.Array {
		if o, ok := scheme(name); ok && isMatrix(name, a) {
			a = rounded(s, a, o)
		}
		return map[string]mlx.Array{name: a}
	})
	want := logitsOf(t, dense)
	modules := []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}
	for _, prefix := range []string{"", "model.", "language_model.model.", "model.language_model."} {
		quantization := map[string]any{"bits": 4, "group_size": 64, prefix + "embed_tokens": map[string]any{"bits": 8, "group_size": 32}}
		for _, m := range modules {
			quantization[prefix+"layers.1."+m] = map[string]any{"bits": 8, "group_size": 32, "mode": "affine"}
			quantization[prefix+"layers.2."+m] = false
		}
		edit := func(s *mlx.Scope, name string, a mlx.Array) map[string]mlx.Array {
			if o, ok := scheme(name); ok && isMatrix(name, a) {
				return quantised(s, name, a, o)
			}
			return map[string]mlx.Array{name: a}
		}
		dir := writeModel(t, from, map[string]any{"quantization": quantization}, edit)
		requireNear(t, want, logitsOf(t, dir), 1e-4)

		// What the configuration says of a module must be what the file holds.
		quantization[prefix+"layers.1.mlp.up_proj"] = map[string]any{"bits": 6, "group_size": 32}
		_, err := qwen.Load(t.Context(), lib, writeModel(t, from, map[string]any{"quantization": quantization}, edit), nil)
		require.ErrorIs(t, err, qwen.ErrUnsupported)
		require.ErrorContains(t, err, "layers.1.mlp.up_proj")
		require.ErrorContains(t, err, "6 bits in groups of 32")
		require.ErrorContains(t, err, "8 in groups of 32")
		quantization[prefix+"layers.1.mlp.up_proj"] = false
		_, err = qwen.Load(t.Context(), lib, writeModel(t, from, map[string]any{"quantization": quantization}, edit), nil)
		require.ErrorContains(t, err, "not quantized, but the file has scales")
	}
}

// Experts in the three layouts that files have are the same experts.
func TestExpertLayouts(t *testing.T) {
	from := filepath.Join(pairDir("tiny-qwen3.5-moe"), "target")
	want := logitsOf(t, from)
	const f = 64
	for name, edit := range map[string]func(s *mlx.Scope, p string, a mlx.Array, fused bool) map[string]mlx.Array{
		"one by one": func(s *mlx.Scope, p string, a mlx.Array, fused bool) map[string]mlx.Array {
			out := map[string]mlx.Array{}
			for i := range a.Dim(0) {
				one := s.Squeeze(s.SliceAxis(a, 0, i, i+1), 0)
				e := fmt.Sprintf("%sexperts.%d.", p, i)
				if fused {
					out[e+"gate_proj.weight"] = s.Contiguous(s.SliceAxis(one, 0, 0, f))
					out[e+"up_proj.weight"] = s.Contiguous(s.SliceAxis(one, 0, f, 2*f))
				} else {
					out[e+"down_proj.weight"] = s.Contiguous(one)
				}
			}
			return out
		},
		"stacked": func(s *mlx.Scope, p string, a mlx.Array, fused bool) map[string]mlx.Array {
			if !fused {
				return map[string]mlx.Array{p + "switch_mlp.down_proj.weight": a}
			}
			return map[string]mlx.Array{
				p + "switch_mlp.gate_proj.weight": s.Contiguous(s.SliceAxis(a, 1, 0, f)),
				p + "switch_mlp.up_proj.weight":   s.Contiguous(s.SliceAxis(a, 1, f, 2*f)),
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeModel(t, from, nil, func(s *mlx.Scope, name string, a mlx.Array) map[string]mlx.Array {
				if p, ok := strings.CutSuffix(name, "experts.gate_up_proj"); ok {
					return edit(s, p, a, true)
				}
				if p, ok := strings.CutSuffix(name, "experts.down_proj"); ok {
					return edit(s, p, a, false)
				}
				return map[string]mlx.Array{name: a}
			})
			require.Equal(t, want, logitsOf(t, dir))
		})
	}
}
