package qwen_test

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/safetensors"
	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen"
)

// packed is a quantised module without values: words, scales and biases of the
// shapes that bits and groups make of rows of k.
func packed(shape []int, bits, group int, dtype string) map[string]safetensors.WriteTensor {
	k := shape[len(shape)-1]
	with := func(dtype string, width, last int) safetensors.WriteTensor {
		s := append(append([]int(nil), shape[:len(shape)-1]...), last)
		n := width
		for _, d := range s {
			n *= d
		}
		return safetensors.WriteTensor{Dtype: dtype, Shape: s, Data: make([]byte, n)}
	}
	width := map[string]int{"F32": 4, "BF16": 2, "F16": 2, "U8": 1, "I32": 4, "F64": 8}[dtype]
	return map[string]safetensors.WriteTensor{
		"weight": with("U32", 4, k*bits/32), "scales": with(dtype, width, k/group), "biases": with(dtype, width, k/group),
	}
}

// Case 62: quantised weights for which there are no kernels, or that contradict
// themselves, are an error that names the module before a weight is read; no
// model ever runs on the zeros that such calls can give.
func TestHostileQuantization(t *testing.T) {
	closed := closedLibrary(t)
	dense, moe := filepath.Join(pairDir("tiny-qwen3"), "target"), filepath.Join(pairDir("tiny-qwen3.5-moe"), "target")
	affine := func(bits, group int) map[string]any { return map[string]any{"bits": bits, "group_size": group} }
	for name, c := range map[string]struct {
		from, module string
		bits, group  int
		dtype        string
		quantization map[string]any
		edit         func(ck checkpoint, module string)
		says         []string
	}{
		"groups of 16":     {dense, "layers.1.mlp.up_proj", 4, 16, "BF16", affine(4, 16), nil, []string{"affine with 4 bits in groups of 16"}},
		"groups of 8":      {dense, "layers.1.mlp.up_proj", 8, 8, "F32", nil, nil, []string{"8 bits in groups of 8"}},
		"7 bits":           {dense, "layers.0.self_attn.o_proj", 7, 64, "BF16", affine(7, 64), nil, []string{"7 bits in groups of 64"}},
		"1 bit":            {dense, "layers.0.self_attn.o_proj", 1, 64, "BF16", affine(1, 64), nil, []string{"1 bits"}},
		"16 bits":          {dense, "layers.0.self_attn.o_proj", 16, 64, "BF16", affine(16, 64), nil, []string{"16 bits"}},
		"bytes for scales": {dense, "layers.2.mlp.down_proj", 4, 64, "U8", affine(4, 64), nil, []string{"scales are U8"}},
		"wide scales":      {dense, "layers.2.mlp.down_proj", 4, 64, "F64", affine(4, 64), nil, []string{"scales are F64"}},
		"whole scales":     {dense, "layers.2.mlp.down_proj", 4, 64, "I32", affine(4, 64), nil, []string{"scales are I32"}},
		"biases of another dtype": {dense, "layers.2.mlp.down_proj", 4, 64, "BF16", affine(4, 64), func(ck checkpoint, module string) {
			f16 := ck[module+".biases"]
			f16.Dtype = "F16"
			ck[module+".biases"] = f16
		}, []string{"scales are BF16 and biases F16"}},
		"no biases": {dense, "layers.3.self_attn.k_proj", 4, 64, "BF16", affine(4, 64), func(ck checkpoint, module string) {
			delete(ck, module+".biases")
		}, []string{"affine, but without biases"}},
		"mxfp4 with biases": {dense, "layers.3.self_attn.k_proj", 7, 32, "U8", map[string]any{"bits": 4, "group_size": 32, "mode": "mxfp4"}, nil, []string{"7 bits in groups of 32"}},
		"mxfp4 in groups of 64": {dense, "layers.3.self_attn.k_proj", 4, 64, "U8", map[string]any{"bits": 4, "group_size": 64, "mode": "mxfp4"}, func(ck checkpoint, module string) {
			delete(ck, module+".biases")
		}, []string{"mxfp4 with 4 bits in groups of 64"}},
		"mxfp4 with scales in BF16": {dense, "layers.3.self_attn.k_proj", 4, 32, "BF16", map[string]any{"bits": 4, "group_size": 32, "mode": "mxfp4"}, func(ck checkpoint, module string) {
			delete(ck, module+".biases")
		}, []string{"scales are BF16, mxfp4 has U8"}},
		"nvfp4 in groups of 32": {dense, "layers.3.self_attn.k_proj", 4, 32, "U8", map[string]any{"bits": 4, "group_size": 32, "mode": "nvfp4"}, func(ck checkpoint, module string) {
			delete(ck, module+".biases")
		}, []string{"nvfp4 with 4 bits in groups of 32"}},
		"an unknown mode": {dense, "layers.3.self_attn.k_proj", 4, 64, "BF16", map[string]any{"bits": 4, "group_size": 64, "mode": "int4wo"}, nil, []string{`mode "int4wo"`}},
		"no weight": {dense, "layers.3.self_attn.k_proj", 4, 64, "BF16", affine(4, 64), func(ck checkpoint, module string) {
			delete(ck, module+".weight")
		}, []string{"its weight is missing"}},
		"a weight of words in another dtype": {dense, "layers.3.self_attn.k_proj", 4, 64, "BF16", affine(4, 64), func(ck checkpoint, module string) {
			w := ck[module+".weight"]
			w.Dtype = "I32"
			ck[module+".weight"] = w
		}, []string{"weight I32"}},
		"a norm": {dense, "layers.3.input_layernorm", 4, 64, "BF16", affine(4, 64), nil, []string{"128 numbers that are no matrix"}},
		"groups that do not divide": {dense, "layers.3.self_attn.k_proj", 4, 64, "BF16", affine(4, 64), func(ck checkpoint, module string) {
			for _, part := range []string{".scales", ".biases"} {
				s := ck[module+part]
				s.Shape = []int{s.Shape[0], s.Shape[1] + 1}
				s.Data = make([]byte, 2*s.Shape[0]*s.Shape[1])
				ck[module+part] = s
			}
		}, []string{"do not divide"}},
		"no groups": {dense, "layers.3.self_attn.k_proj", 4, 64, "BF16", affine(4, 64), func(ck checkpoint, module string) {
			for _, part := range []string{".scales", ".biases"} {
				s := ck[module+part]
				s.Shape, s.Data = []int{s.Shape[0], 0}, nil
				ck[module+part] = s
			}
		}, []string{"0 groups"}},
		"the embedding":             {dense, "embed_tokens", 4, 16, "BF16", affine(4, 16), nil, []string{"embed_tokens", "groups of 16"}},
		"the router":                {moe, "layers.0.mlp.gate", 8, 16, "BF16", affine(8, 16), nil, []string{"groups of 16"}},
		"the shared expert's gate":  {moe, "layers.0.mlp.shared_expert_gate", 7, 64, "BF16", affine(8, 64), nil, []string{"7 bits"}},
		"a shared expert":           {moe, "layers.1.mlp.shared_expert.up_proj", 4, 64, "U8", affine(4, 64), nil, []string{"scales are U8"}},
		"a gated delta rule's gate": {moe, "layers.0.linear_attn.in_proj_a", 7, 32, "BF16", affine(4, 32), nil, []string{"7 bits"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyFolder(t, c.from, func(ck checkpoint, config object) {
				full := ck.find(t, c.module+".weight")
				module := strings.TrimSuffix(full, ".weight")
				shape := ck[full].Shape
				for part, tensor := range packed(shape, c.bits, c.group, c.dtype) {
					ck[module+"."+part] = tensor
				}
				if c.edit != nil {
					c.edit(ck, module)
				}
				if c.quantization != nil {
					config["quantization"] = c.quantization
				}
			})
			base := lib.LiveArrays()
			for _, l := range []*mlx.Library{closed, lib} {
				m, err := qwen.Load(t.Context(), l, dir, nil)
				require.Nil(t, m)
				require.ErrorIs(t, err, qwen.ErrUnsupported)
				require.NotErrorIs(t, err, mlx.ErrClosed)
				for _, text := range append(c.says, c.module, dir) {
					require.ErrorContains(t, err, text)
				}
			}
			require.Equal(t, base, lib.LiveArrays())
		})
	}
}

// Quantised experts in the two layouts that only dense files have cannot be
// meant: the scales belong to no tensor of the model.
func TestHostileExperts(t *testing.T) {
	closed := closedLibrary(t)
	from := filepath.Join(pairDir("tiny-qwen3.5-moe"), "target")
	for name, edit := range map[string]func(ck checkpoint, name string){
		"scales beside fused experts": func(ck checkpoint, name string) {
			ck[name+"_scales"] = safetensors.WriteTensor{Dtype: "BF16", Shape: []int{1}, Data: make([]byte, 2)}
		},
		"packed fused experts": func(ck checkpoint, name string) {
			w := ck[name]
			w.Dtype, w.Shape = "U32", append([]int(nil), w.Shape...)
			w.Shape[2] /= 2
			ck[name] = w
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyFolder(t, from, func(ck checkpoint, _ object) { edit(ck, ck.find(t, "layers.0.mlp.experts.gate_up_proj")) })
			_, err := qwen.Load(t.Context(), closed, dir, nil)
			require.NotErrorIs(t, err, mlx.ErrClosed)
			var mismatch *safetensors.MismatchError
			require.ErrorAs(t, err, &mismatch)
			require.ErrorContains(t, err, "layers.0.mlp.experts.gate_up_proj")
		})
	}
}

// Router and shared expert's gate in 8 bits, as conversions have them beside
// 4-bit experts, give the logits of the dense weights that they stand for.
func TestQuantizedRouter(t *testing.T) {
	from := filepath.Join(pairDir("tiny-qwen3.5-moe"), "target")
	eight := mlx.QuantizeOptions{Bits: 8, GroupSize: 64}
	gate := func(name string) bool {
		return strings.HasSuffix(name, ".mlp.gate.weight") || strings.HasSuffix(name, ".shared_expert_gate.weight")
	}
	seen := 0
	small := writeModel(t, from, map[string]any{"quantization": map[string]any{"bits": 4, "group_size": 64}}, func(s *mlx.Scope, name string, a mlx.Array) map[string]mlx.Array {
		if !gate(name) {
			return map[string]mlx.Array{name: a}
		}
		seen++
		return quantised(s, name, a, eight)
	})
	require.Positive(t, seen)
	dense := writeModel(t, from, nil, func(s *mlx.Scope, name string, a mlx.Array) map[string]mlx.Array {
		if gate(name) {
			a = rounded(s, a, eight)
		}
		return map[string]mlx.Array{name: a}
	})
	requireNear(t, logitsOf(t, dense), logitsOf(t, small), 1e-4)
}

// Weights of other software whose configuration does not say so are told by their
// names, and the error says where to find a conversion.
func TestForeignQuantization(t *testing.T) {
	closed := closedLibrary(t)
	for method, parts := range map[string][]string{
		"AWQ or GPTQ":        {"qweight", "qzeros", "scales"},
		"compressed-tensors": {"weight_packed", "weight_scale", "weight_shape"},
		"fp8 in blocks":      {"weight", "weight_scale_inv"},
		"another layout":     {"weight", "weight_scale", "weight_scale_2", "input_scale"},
		"bitsandbytes":       {"weight", "weight.absmax", "weight.quant_map"},
	} {
		dir := copyFolder(t, filepath.Join(pairDir("tiny-qwen3"), "target"), func(ck checkpoint, _ object) {
			for name := range maps.Clone(ck) {
				if module, ok := strings.CutSuffix(name, "_proj.weight"); ok {
					delete(ck, name)
					for _, part := range parts {
						ck[module+"_proj."+part] = safetensors.WriteTensor{Dtype: "I32", Shape: []int{1}, Data: make([]byte, 4)}
					}
				}
			}
		})
		_, err := qwen.Load(t.Context(), closed, dir, nil)
		require.ErrorIs(t, err, qwen.ErrUnsupported)
		for _, text := range []string{dir, method, "layers.0.mlp.down_proj.", "and 41 more", "mlx-community", "mlx_lm.convert"} {
			require.ErrorContains(t, err, text, method)
		}
		require.Less(t, len(err.Error()), 500)
	}
}
