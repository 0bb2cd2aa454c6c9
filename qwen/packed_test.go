package qwen_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/safetensors"
	"github.com/godflash/godflash/qwen"
)

// code is a scheme as the formats define it, without MLX: how numbers of so many
// bits lie in words, and what they stand for.
type code struct {
	mode        string // "affine", "mxfp4", "mxfp8" or "nvfp4"
	bits, group int
}

func (c code) String() string { return fmt.Sprintf("%s-%d-%d", c.mode, c.bits, c.group) }

// e2m1 is a number of OCP's 4-bit format.
func e2m1(q uint32) float64 {
	v := []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}[q&7]
	if q&8 != 0 {
		return -v
	}
	return v
}

// e4m3 is a number of OCP's 8-bit format, which has no infinities.
func e4m3(q uint32) float64 {
	exponent, mantissa := int(q>>3&15), float64(q&7)
	v := math.Ldexp(mantissa/8, -6)
	if exponent > 0 {
		v = math.Ldexp(1+mantissa/8, exponent-7)
	}
	if q&0x80 != 0 {
		return -v
	}
	return v
}

// bfloat is the upper half of a float32, and its value.
func bfloat(x float64) (uint16, float64) {
	bits := math.Float32bits(float32(x)) &^ 0xffff
	return uint16(bits >> 16), float64(math.Float32frombits(bits))
}

// matrix makes up a quantised matrix under name, of small numbers, and the dense
// one that it stands for.
func (c code) matrix(r *rand.Rand, name string, shape []int) (packed, dense checkpoint) {
	module := strings.TrimSuffix(name, ".weight")
	k, rows := shape[len(shape)-1], 1
	for _, n := range shape[:len(shape)-1] {
		rows *= n
	}
	words := make([]byte, rows*k*c.bits/8)
	var scales, biases []byte
	values := make([]float32, 0, rows*k)
	at := 0 // in bits: numbers lie one after the other, low bits first
	for range rows * k / c.group {
		var value func(q uint32) float64
		switch c.mode {
		case "affine":
			s, scale := bfloat((0.5 + r.Float64()) * 0.2 / float64(int(1)<<c.bits))
			b, bias := bfloat(-0.1 + 0.01*r.Float64())
			scales, biases = binary.LittleEndian.AppendUint16(scales, s), binary.LittleEndian.AppendUint16(biases, b)
			value = func(q uint32) float64 { return scale*float64(q) + bias }
		case "nvfp4":
			s := uint32(12 + r.IntN(8)) // about 2^-5
			scales = append(scales, byte(s))
			value = func(q uint32) float64 { return e4m3(s) * e2m1(q) }
		default:
			e := 127 - 6 + r.IntN(3)
			element := e2m1
			if c.mode == "mxfp8" {
				element, e = e4m3, e-7
			}
			scales = append(scales, byte(e))
			value = func(q uint32) float64 { return math.Ldexp(element(q), e-127) }
		}
		for range c.group {
			q := uint32(r.IntN(1 << c.bits))
			if c.mode == "mxfp8" && q&0x7f == 0x7f {
				q = 0 // not a number
			}
			for b := range c.bits {
				if q>>b&1 == 1 {
					words[(at+b)/8] |= 1 << ((at + b) % 8)
				}
			}
			at += c.bits
			values = append(values, float32(value(q)))
		}
	}
	with := func(last int) []int { return append(slices.Clone(shape[:len(shape)-1]), last) }
	dtype := "BF16"
	if c.mode != "affine" {
		dtype = "U8"
	}
	packed = checkpoint{
		name:               {Dtype: "U32", Shape: with(k * c.bits / 32), Data: words},
		module + ".scales": {Dtype: dtype, Shape: with(k / c.group), Data: scales},
	}
	if c.mode == "affine" {
		packed[module+".biases"] = safetensors.WriteTensor{Dtype: dtype, Shape: with(k / c.group), Data: biases}
	}
	return packed, checkpoint{name: float32Tensor(shape, values)}
}

// entry is what a configuration says of the scheme.
func (c code) entry() object {
	return object{"mode": c.mode, "bits": c.bits, "group_size": c.group}
}

// twins writes a folder whose matrices are quantised as pick says, and the dense
// one that it stands for. Each matrix is made up.
func twins(t *testing.T, from string, quantization object, pick func(name string) (code, bool)) (small, dense string) {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 6))
	of := map[string]checkpoint{}
	small = copyFolder(t, from, func(ck checkpoint, config object) {
		config["quantization"] = quantization
		for _, name := range slices.Sorted(maps.Keys(ck)) {
			c, ok := pick(name)
			if !ok || !strings.HasSuffix(name, ".weight") || len(ck[name].Shape) < 2 {
				continue
			}
			packed, whole := c.matrix(r, name, ck[name].Shape)
			delete(ck, name)
			maps.Copy(ck, packed)
			of[name] = whole
		}
	})
	require.NotEmpty(t, of)
	dense = copyFolder(t, from, func(ck checkpoint, _ object) {
		for _, whole := range of {
			maps.Copy(ck, whole)
		}
	})
	return small, dense
}

// Every scheme gives the logits of the dense model that it stands for by the
// format's definition, the embedding and the tied head included.
func TestQuantizedSchemes(t *testing.T) {
	from := filepath.Join(pairDir("tiny-qwen3"), "target")
	codes := []code{{"mxfp4", 4, 32}, {"mxfp8", 8, 32}, {"nvfp4", 4, 16}}
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, group := range []int{32, 64, 128} {
			codes = append(codes, code{"affine", bits, group})
		}
	}
	for _, c := range codes {
		t.Run(c.String(), func(t *testing.T) {
			small, dense := twins(t, from, c.entry(), func(string) (code, bool) { return c, true })
			cfg, err := qwen.ReadConfig(small)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("%d-bit %s", c.bits, c.mode), cfg.Quantization)
			requireNear(t, logitsOf(t, dense), logitsOf(t, small), 1e-4)
		})
	}
}

// Case 61: one module of another mode than the rest, whichever is the rule.
func TestQuantizedModes(t *testing.T) {
	from := filepath.Join(pairDir("tiny-qwen3"), "target")
	codes := []code{{"affine", 4, 64}, {"mxfp4", 4, 32}, {"mxfp8", 8, 32}, {"nvfp4", 4, 16}}
	for i, rule := range codes {
		for _, other := range []code{codes[(i+1)%4], codes[(i+2)%4]} {
			t.Run(rule.String()+" with "+other.String(), func(t *testing.T) {
				quantization := rule.entry()
				quantization["model.layers.2.mlp.up_proj"] = other.entry()
				small, dense := twins(t, from, quantization, func(name string) (code, bool) {
					if strings.Contains(name, "layers.2.mlp.up_proj") {
						return other, true
					}
					return rule, true
				})
				requireNear(t, logitsOf(t, dense), logitsOf(t, small), 1e-4)
			})
		}
	}
}

// Experts of every scheme, stacked as MLX's converter does and one by one, are
// those of the dense mixture.
func TestQuantizedExperts(t *testing.T) {
	const experts, top, width, hidden = 4, 2, 96, 128
	from := filepath.Join(pairDir("tiny-qwen3"), "target")
	r := rand.New(rand.NewPCG(7, 8))
	for _, c := range []code{{"affine", 4, 32}, {"affine", 8, 32}, {"affine", 3, 32}, {"mxfp4", 4, 32}, {"mxfp8", 8, 32}, {"nvfp4", 4, 16}} {
		t.Run(c.String(), func(t *testing.T) {
			folder := func(edit func(ck checkpoint, config object)) string {
				return copyFolder(t, from, func(ck checkpoint, config object) {
					maps.Copy(config, object{
						"model_type": "qwen3_moe", "num_experts": experts, "num_experts_per_tok": top,
						"moe_intermediate_size": width, "norm_topk_prob": true,
					})
					for name := range maps.Clone(ck) {
						if strings.Contains(name, ".mlp.") {
							delete(ck, name)
						}
					}
					edit(ck, config)
				})
			}
			dense, stacked, single := checkpoint{}, checkpoint{}, checkpoint{}
			for layer := range 6 {
				p := fmt.Sprintf("model.layers.%d.mlp.", layer)
				router := make([]float32, experts*hidden)
				for i := range router {
					router[i] = float32(r.NormFloat64())
				}
				for _, all := range []checkpoint{dense, stacked, single} {
					all[p+"gate.weight"] = float32Tensor([]int{experts, hidden}, router)
				}
				for _, m := range []struct {
					name  string
					shape []int
				}{{"gate", []int{width, hidden}}, {"up", []int{width, hidden}}, {"down", []int{hidden, width}}} {
					stack, whole := c.matrix(r, p+"switch_mlp."+m.name+"_proj.weight", append([]int{experts}, m.shape...))
					maps.Copy(stacked, stack)
					maps.Copy(dense, whole)
					for name, tensor := range stack {
						part := name[strings.LastIndexByte(name, '.'):]
						for e := range experts {
							n := len(tensor.Data) / experts
							single[fmt.Sprintf("%sexperts.%d.%s_proj%s", p, e, m.name, part)] = safetensors.WriteTensor{
								Dtype: tensor.Dtype, Shape: tensor.Shape[1:], Data: tensor.Data[e*n : (e+1)*n],
							}
						}
					}
				}
			}
			want := logitsOf(t, folder(func(ck checkpoint, _ object) { maps.Copy(ck, dense) }))
			got := logitsOf(t, folder(func(ck checkpoint, config object) {
				maps.Copy(ck, stacked)
				config["quantization"] = c.entry()
			}))
			requireNear(t, want, got, 1e-4)
			require.Equal(t, got, logitsOf(t, folder(func(ck checkpoint, config object) {
				maps.Copy(ck, single)
				config["quantization"] = c.entry()
			})))
		})
	}
}

// Experts of one layer in two schemes have no stack: an error that names both,
// before a weight is read.
func TestExpertsOfTwoSchemes(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	closed := closedLibrary(t)
	for name, other := range map[string]*code{"affine with 8 bits in groups of 32": {"affine", 8, 32}, "not quantized": nil} {
		dir := copyFolder(t, filepath.Join(pairDir("tiny-qwen3"), "target"), func(ck checkpoint, config object) {
			maps.Copy(config, object{"model_type": "qwen3_moe", "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 32, "quantization": object{"bits": 4, "group_size": 32}})
			for name := range maps.Clone(ck) {
				if strings.Contains(name, ".mlp.") {
					delete(ck, name)
				}
			}
			for layer := range 6 {
				p := fmt.Sprintf("model.layers.%d.mlp.", layer)
				ck[p+"gate.weight"] = float32Tensor([]int{2, 128}, make([]float32, 256))
				for e := range 2 {
					for m, shape := range map[string][]int{"gate": {32, 128}, "up": {32, 128}, "down": {128, 32}} {
						packed, dense := code{"affine", 4, 32}.matrix(r, fmt.Sprintf("%sexperts.%d.%s_proj.weight", p, e, m), shape)
						if layer == 4 && e == 1 && m == "up" {
							if packed = dense; other != nil {
								packed, _ = other.matrix(r, fmt.Sprintf("%sexperts.%d.%s_proj.weight", p, e, m), shape)
							}
						}
						maps.Copy(ck, packed)
					}
				}
			}
		})
		_, err := qwen.Load(t.Context(), closed, dir, nil)
		require.ErrorIs(t, err, qwen.ErrUnsupported)
		for _, text := range []string{dir, "layers.4.mlp.experts.0.up_proj is affine with 4 bits in groups of 32", "layers.4.mlp.experts.1.up_proj is " + name} {
			require.ErrorContains(t, err, text)
		}
	}
}
