package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/internal/safetensors"
	"github.com/godflash/godflash/mlx"
)

// ErrQuantization is returned for quantised weights of a kind that is not read.
var ErrQuantization = errors.New("unsupported quantization")

// ownOnly is what to do about weights that other software quantised.
const ownOnly = "only MLX's own quantization is read; look on the hub for a conversion of the same model under mlx-community (names that end in 4bit, 8bit and so on), or make one of the unquantized model with mlx_lm.convert"

// marks are the names by which the methods of other software show in files whose
// configuration does not tell.
var marks = []struct{ suffix, method string }{
	{".qweight", "AWQ or GPTQ"},
	{".qzeros", "AWQ or GPTQ"},
	{".weight_packed", "compressed-tensors"},
	{".weight_scale_inv", "fp8 in blocks"},
	{".weight_scale", "fp8 or NVFP4 of another layout"},
	{".absmax", "bitsandbytes"},
}

// Foreign finds weights that other software quantised.
func Foreign(ck *safetensors.Checkpoint) error {
	for _, m := range marks {
		n, first := 0, ""
		for name := range ck.Tensors {
			if strings.HasSuffix(name, m.suffix) {
				if n++; first == "" || name < first {
					first = name
				}
			}
		}
		if n > 0 {
			return fmt.Errorf("%s: %w: %s (%s and %d more of the kind): %s", ck.Dir, ErrQuantization, m.method, first, n-1, ownOnly)
		}
	}
	return nil
}

// Quantization is the field quantization of a config.json that mlx-lm wrote:
// one scheme for all modules, and entries for modules that differ.
type Quantization struct {
	all     scheme
	modules map[string]scheme
}

// scheme is what the file says of a module; zero values say nothing.
type scheme struct {
	Off       bool
	GroupSize int    `json:"group_size"`
	Bits      int    `json:"bits"`
	Mode      string `json:"mode"`
}

// ParseQuantization reads the field. rename turns the file's module paths into
// the model's, as for tensors. Methods of other software are refused by name.
func ParseQuantization(raw json.RawMessage, rename func(string) (string, bool)) (*Quantization, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("%w: %.60s is no object", ErrQuantization, raw)
	}
	if method, ok := fields["quant_method"]; ok {
		var name string
		if json.Unmarshal(method, &name) != nil || (name != "mlx" && name != "affine") {
			return nil, fmt.Errorf("%w: quant_method %.60s: %s", ErrQuantization, method, ownOnly)
		}
	}
	q := &Quantization{modules: map[string]scheme{}}
	if err := json.Unmarshal(raw, &q.all); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrQuantization, err)
	}
	for path, value := range fields {
		value := strings.TrimSpace(string(value))
		var s scheme
		switch {
		case value == "false":
			s.Off = true
		case value == "true":
			s = q.all
		case strings.HasPrefix(value, "{"):
			if err := json.Unmarshal([]byte(value), &s); err != nil {
				return nil, fmt.Errorf("%w: module %s: %w", ErrQuantization, path, err)
			}
		default:
			continue // group_size, bits, mode and what else stands beside the modules
		}
		if to, ok := rename(path); ok {
			q.modules[to] = s
		}
	}
	return q, nil
}

// String is a short name such as "4-bit affine".
func (q *Quantization) String() string {
	if q == nil {
		return ""
	}
	mode := q.all.Mode
	if mode == "" {
		mode = "affine"
	}
	return fmt.Sprintf("%d-bit %s", q.all.Bits, mode)
}

var modes = map[string]mlx.QuantMode{"": mlx.Affine, "affine": mlx.Affine, "mxfp4": mlx.MXFP4, "mxfp8": mlx.MXFP8, "nvfp4": mlx.NVFP4}

// Plan says for every quantised module of a renamed checkpoint how to read it,
// and turns want, the shapes of dense weights, into those that the files must
// have. A module is quantised when the file has scales for it; bits and group
// size follow from the shapes, and where the configuration says something else
// that is an error. Modules that are wrong are taken out of ck and want, so that
// Check can speak of the rest.
func (q *Quantization) Plan(ck *safetensors.Checkpoint, want map[string][]int) (map[string]mlx.QuantizeOptions, error) {
	plan := map[string]mlx.QuantizeOptions{}
	var wrong, bad []string
	for name, dense := range want {
		module, isWeight := strings.CutSuffix(name, ".weight")
		scales, ok := ck.Tensors[module+".scales"]
		if !isWeight || !ok {
			continue
		}
		o, err := q.module(module, dense, ck.Tensors[name], scales, ck.Tensors[module+".biases"])
		if err != nil {
			wrong = append(wrong, module+": "+err.Error())
			bad = append(bad, module)
			continue
		}
		plan[module] = o
	}
	for module, o := range plan {
		dense := want[module+".weight"]
		k := dense[len(dense)-1]
		with := func(last int) []int { return append(append([]int(nil), dense[:len(dense)-1]...), last) }
		want[module+".weight"] = with(k * o.Bits / 32)
		want[module+".scales"] = with(k / o.GroupSize)
		if o.Mode == mlx.Affine {
			want[module+".biases"] = with(k / o.GroupSize)
		}
	}
	for _, module := range bad {
		delete(want, module+".weight")
		for _, part := range []string{".weight", ".scales", ".biases"} {
			delete(ck.Tensors, module+part)
		}
	}
	if n := len(wrong); n > 0 {
		sort.Strings(wrong)
		return plan, fmt.Errorf("%s: %w: %s (%d in all)", ck.Dir, ErrQuantization, strings.Join(wrong[:min(n, 10)], "; "), n)
	}
	return plan, nil
}

func (q *Quantization) module(module string, dense []int, weight, scales, biases safetensors.Tensor) (mlx.QuantizeOptions, error) {
	if weight.Name == "" {
		return mlx.QuantizeOptions{}, errors.New("the file has scales for it, its weight is missing")
	}
	var said scheme
	if q != nil {
		said = q.all
		if own, ok := q.modules[module]; ok {
			if own.Off {
				return mlx.QuantizeOptions{}, errors.New("the configuration says that it is not quantized, but the file has scales for it")
			}
			if own.Mode == "" {
				own.Mode = said.Mode
			}
			said = own
		}
	}
	mode, ok := modes[said.Mode]
	if !ok {
		return mlx.QuantizeOptions{}, fmt.Errorf("mode %q", said.Mode)
	}
	if hasBiases := biases.Name != ""; hasBiases != (mode == mlx.Affine) {
		if !hasBiases {
			return mlx.QuantizeOptions{}, errors.New("affine, but without biases")
		}
		mode = mlx.Affine // an entry of a mixed file that does not say its mode
	}
	if len(dense) < 2 {
		return mlx.QuantizeOptions{}, fmt.Errorf("scales for %d numbers that are no matrix; norms are never quantized", dense[0])
	}
	k := dense[len(dense)-1]
	if weight.Dtype != "U32" || len(weight.Shape) != len(dense) || len(scales.Shape) != len(dense) {
		return mlx.QuantizeOptions{}, fmt.Errorf("weight %s %v and scales %v for a matrix of %v", weight.Dtype, weight.Shape, scales.Shape, dense)
	}
	packed, groups := weight.Shape[len(dense)-1], scales.Shape[len(dense)-1]
	if groups < 1 || k%groups != 0 || packed*32%k != 0 {
		return mlx.QuantizeOptions{}, fmt.Errorf("%d words and %d groups do not divide rows of %d", packed, groups, k)
	}
	o := mlx.QuantizeOptions{Mode: mode, GroupSize: k / groups, Bits: packed * 32 / k}
	if explicit, ok := q.entry(module); ok && ((explicit.Bits != 0 && explicit.Bits != o.Bits) || (explicit.GroupSize != 0 && explicit.GroupSize != o.GroupSize)) {
		return o, fmt.Errorf("the configuration says %d bits in groups of %d, the shapes say %d in groups of %d", explicit.Bits, explicit.GroupSize, o.Bits, o.GroupSize)
	}
	return o, supported(o, scales, biases)
}

// entry is what the configuration says of this very module.
func (q *Quantization) entry(module string) (scheme, bool) {
	if q == nil {
		return scheme{}, false
	}
	s, ok := q.modules[module]
	return s, ok
}

// supported refuses what MLX has no kernels for.
func supported(o mlx.QuantizeOptions, scales, biases safetensors.Tensor) error {
	bad := false
	switch o.Mode {
	case mlx.Affine:
		bad = o.Bits < 2 || o.Bits == 7 || o.Bits > 8 || (o.GroupSize != 32 && o.GroupSize != 64 && o.GroupSize != 128)
	case mlx.MXFP4:
		bad = o.Bits != 4 || o.GroupSize != 32
	case mlx.MXFP8:
		bad = o.Bits != 8 || o.GroupSize != 32
	case mlx.NVFP4:
		bad = o.Bits != 4 || o.GroupSize != 16
	}
	if bad {
		return errors.New(describe(o, true))
	}
	if o.Mode == mlx.Affine {
		if _, ok := dtypes[scales.Dtype]; !ok || biases.Dtype != scales.Dtype {
			return fmt.Errorf("scales are %s and biases %s", scales.Dtype, biases.Dtype)
		}
	} else if scales.Dtype != "U8" {
		return fmt.Errorf("scales are %s, %s has U8", scales.Dtype, o.Mode)
	}
	return nil
}

// quantized gives the parts of a module's matrix. Without kernels of our own, on
// the CPU, they stay as they are stored: MLX widens scales and biases at every
// product, to the same bits, which costs a hundredth of the product's time and saves
// a tenth of the memory of 4-bit weights.
func (r *Reader) quantized(name string) mlx.Quantized {
	if r.Kernels != nil || r.s.Library().Device() != mlx.DeviceCPU {
		return r.widened(name)
	}
	return r.parts(name, func(part string) mlx.Array { return r.s.Ref(r.Raw(name + part)) })
}

// widened gives them with scales and biases in the compute dtype, once: that of
// kernels, and for experts, since a gathered product would widen the scales of all
// for the few that are chosen.
func (r *Reader) widened(name string) mlx.Quantized {
	return r.parts(name, func(part string) mlx.Array { return r.Array(name + part) })
}

// parts reads a module's matrix. References are its own: the reader's go with
// Release.
func (r *Reader) parts(name string, scale func(part string) mlx.Array) mlx.Quantized {
	q := mlx.Quantized{W: r.s.Ref(r.Raw(name + ".weight")), Options: r.plan[name]}
	if q.Options.Mode == mlx.Affine {
		q.Scales, q.Biases = scale(".scales"), scale(".biases")
	} else {
		q.Scales = r.s.Ref(r.Raw(name + ".scales"))
	}
	return q
}

// Embedding is the table whose weight [vocab, hidden] is NAME.weight.
func (r *Reader) Embedding(name string) nn.Embedding {
	if _, ok := r.plan[name]; ok {
		return nn.NewQuantizedEmbedding(r.quantized(name))
	}
	return nn.NewEmbedding(r.Array(name + ".weight"))
}

// Experts are the maps whose stacked weights [experts, out, in] are NAME.weight.
func (r *Reader) Experts(name string) nn.Experts {
	if _, ok := r.plan[name]; ok {
		return nn.NewQuantizedExperts(r.widened(name))
	}
	return nn.NewExperts(r.s, r.Array(name+".weight"))
}

// SingleExperts are the maps whose weights [out, in] are NAME.weight, one name an
// expert. Alike has found that they are stored in one way.
func (r *Reader) SingleExperts(names []string) nn.Experts {
	stack := func(of func(name string) mlx.Array) mlx.Array {
		all := make([]mlx.Array, len(names))
		for i, name := range names {
			all[i] = of(name)
		}
		return r.s.Stack(0, all...)
	}
	o, ok := r.plan[names[0]]
	if !ok {
		return nn.NewExperts(r.s, stack(func(name string) mlx.Array { return r.Array(name + ".weight") }))
	}
	q := mlx.Quantized{W: stack(func(name string) mlx.Array { return r.Raw(name + ".weight") }), Options: o}
	if o.Mode == mlx.Affine {
		q.Scales = stack(func(name string) mlx.Array { return r.Array(name + ".scales") })
		q.Biases = stack(func(name string) mlx.Array { return r.Array(name + ".biases") })
	} else {
		q.Scales = stack(func(name string) mlx.Array { return r.Raw(name + ".scales") })
	}
	return nn.NewQuantizedExperts(q)
}

// Alike says whether modules are quantised in one way, or none is.
func Alike(plan map[string]mlx.QuantizeOptions, names []string) error {
	first, ok := plan[names[0]]
	for _, name := range names[1:] {
		if o, quantised := plan[name]; quantised != ok || o != first {
			return fmt.Errorf("%w: %s is %s, %s is %s; the experts of a layer must be stored in one way", ErrQuantization, names[0], describe(first, ok), name, describe(o, quantised))
		}
	}
	return nil
}

func describe(o mlx.QuantizeOptions, quantised bool) string {
	if !quantised {
		return "not quantized"
	}
	return fmt.Sprintf("%s with %d bits in groups of %d", o.Mode, o.Bits, o.GroupSize)
}
