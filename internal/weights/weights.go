// Package weights hands a checkpoint's tensors to a model under the names that
// the model uses, in the dtype in which it computes.
package weights

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/internal/safetensors"
	"github.com/godflash/godflash/mlx"
)

// ErrDtype is returned for weights in a dtype that the models do not read.
var ErrDtype = errors.New("unsupported weight dtype")

var dtypes = map[string]mlx.Dtype{"BF16": mlx.BFloat16, "F16": mlx.Float16, "F32": mlx.Float32}

// Rename turns a checkpoint into one whose tensors have a model's own names.
// rename gives the new name, or false for a tensor that the model does not
// use. Two tensors with one new name are an error.
func Rename(ck *safetensors.Checkpoint, rename func(string) (string, bool)) (*safetensors.Checkpoint, error) {
	out := &safetensors.Checkpoint{Dir: ck.Dir, Files: ck.Files, Tensors: make(map[string]safetensors.Tensor, len(ck.Tensors)), IndexStale: ck.IndexStale}
	for name, t := range ck.Tensors {
		to, ok := rename(name)
		if !ok {
			continue
		}
		if other, twice := out.Tensors[to]; twice {
			return nil, fmt.Errorf("%s: %s and %s are the same tensor of the model: %w", ck.Dir, other.Name, name, safetensors.ErrDuplicate)
		}
		out.Tensors[to] = t
	}
	return out, nil
}

// Check compares a renamed checkpoint with the shapes that a model wants and
// refuses dtypes that are not floating point, except in the modules of plan,
// before any weight is read. One error says all that is wrong.
func Check(ck *safetensors.Checkpoint, want map[string][]int, plan map[string]mlx.QuantizeOptions) error {
	shapes, types := ck.Check(want), checkDtypes(ck, plan)
	if shapes != nil && types != nil {
		return fmt.Errorf("%w; %w", shapes, types)
	}
	return errors.Join(shapes, types)
}

func checkDtypes(ck *safetensors.Checkpoint, plan map[string]mlx.QuantizeOptions) error {
	var bad []string
	for name, t := range ck.Tensors {
		module := name[:max(0, strings.LastIndexByte(name, '.'))]
		if _, quantized := plan[module]; quantized {
			continue // Plan has looked at them
		}
		if _, ok := dtypes[t.Dtype]; !ok {
			bad = append(bad, name+" "+t.Dtype)
		}
	}
	if len(bad) > 0 {
		sort.Strings(bad)
		n := len(bad)
		return fmt.Errorf("%s: %w: %s (%d in all); BF16, F16 and F32 are read", ck.Dir, ErrDtype, strings.Join(bad[:min(n, 10)], ", "), n)
	}
	return nil
}

// Reader gives out the arrays of a checked checkpoint. They are read from the
// files when they are evaluated.
type Reader struct {
	s      *mlx.Scope
	arrays map[string]mlx.Array
	dtype  mlx.Dtype
	plan   map[string]mlx.QuantizeOptions // quantised modules

	// Progress, where it is set, is called by Release with the bytes of the
	// files' tensors that are in the model by then, and their total.
	Progress    func(done, total int64)
	bytes       map[string]int64
	done, total int64

	// Kernels are given to every map and norm; nil where MLX's operations serve.
	Kernels *kernels.Set

	// Quantize, when its Bits are set, is how dense linear maps are stored at
	// load; those whose rows do not divide into groups stay dense.
	Quantize mlx.QuantizeOptions
}

// Open maps the files of a renamed and checked checkpoint into s. The compute
// dtype is float32 on the CPU, where half types are slow and inexact, and the
// dtype of the tensor named like elsewhere. plan is Quantization.Plan's. A
// Maker in ctx takes the place of the files' data.
func Open(ctx context.Context, s *mlx.Scope, ck *safetensors.Checkpoint, like string, plan map[string]mlx.QuantizeOptions) (*Reader, error) {
	r := &Reader{s: s, arrays: make(map[string]mlx.Array, len(ck.Tensors)), dtype: dtypes[ck.Tensors[like].Dtype], plan: plan, bytes: make(map[string]int64, len(ck.Tensors))}
	if s.Library().Device() == mlx.DeviceCPU {
		r.dtype = mlx.Float32
	}
	names := make(map[string]map[string]string, len(ck.Files)) // file → tensor → model's name
	for name, t := range ck.Tensors {
		if names[t.File] == nil {
			names[t.File] = map[string]string{}
		}
		names[t.File][t.Name] = name
		r.bytes[name] = t.Bytes
		r.total += t.Bytes
	}
	if m := maker(ctx); m != nil {
		for name, t := range ck.Tensors {
			module := name[:max(0, strings.LastIndexByte(name, '.'))]
			r.arrays[name] = m(s, name, t, plan[module])
		}
		return r, s.Err()
	}
	for file, own := range names {
		arrays, _, err := s.LoadSafetensors(file)
		if err != nil {
			return nil, err
		}
		for name, a := range arrays {
			if to, ok := own[name]; ok {
				r.arrays[to] = a
			} else {
				s.Free(a)
			}
		}
	}
	return r, s.Err()
}

// Part reads one part of a model into owner: f builds it with the Reader and
// scope that it is given and returns what visits its arrays. They are evaluated,
// and what they were made from (widened and transposed copies) is gone before
// the next part; the sources stay until Release.
func (r *Reader) Part(ctx context.Context, owner *mlx.Scope, f func(r *Reader, s *mlx.Scope) (each func(func(*mlx.Array)))) error {
	return r.s.Library().Do(ctx, func(s *mlx.Scope) error {
		part := *r
		part.s = s
		return nn.Keep(s, owner, f(&part, s))
	})
}

// Dtype is the dtype of activations.
func (r *Reader) Dtype() mlx.Dtype { return r.dtype }

// Has reports whether the checkpoint holds the tensor.
func (r *Reader) Has(name string) bool { return r.arrays[name].Valid() }

// Release frees the tensors whose names begin with prefix. What was built from
// them must be evaluated by then.
func (r *Reader) Release(prefix string) {
	for name, a := range r.arrays {
		if strings.HasPrefix(name, prefix) {
			r.s.Free(a)
			delete(r.arrays, name)
			r.done += r.bytes[name]
		}
	}
	if r.Progress != nil {
		r.Progress(r.done, r.total)
	}
}

// Raw is the tensor as stored.
func (r *Reader) Raw(name string) mlx.Array {
	a := r.arrays[name]
	if !a.Valid() {
		r.s.Fail(fmt.Errorf("tensor %s is not in the checkpoint", name))
	}
	return a
}

// Array is the tensor in the compute dtype.
func (r *Reader) Array(name string) mlx.Array { return r.s.AsType(r.Raw(name), r.dtype) }

// Float32 is the tensor widened to float32: norms and decay factors.
func (r *Reader) Float32(name string) mlx.Array { return r.s.AsType(r.Raw(name), mlx.Float32) }

// Linear is the map whose weight [out, in] is NAME.weight.
func (r *Reader) Linear(name string) nn.Linear {
	return r.linear(name).With(r.Kernels)
}

func (r *Reader) linear(name string) nn.Linear {
	if _, ok := r.plan[name]; ok {
		return nn.NewQuantizedLinear(r.quantized(name))
	}
	w := r.Array(name + ".weight")
	if o := r.Quantize; o.Bits > 0 && w.Valid() && w.Dim(-1)%o.GroupSize == 0 {
		return nn.NewQuantizedLinear(r.s.Quantize(w, o))
	}
	return nn.NewKernelLinear(r.s, w, r.Kernels)
}

// Norm is the norm whose weight is NAME.weight, plus offset.
func (r *Reader) Norm(name string, eps float32, offset float64) nn.RMSNorm {
	w := r.Float32(name + ".weight")
	if offset != 0 {
		w = r.s.Add(w, r.s.Scalar(offset, mlx.Float32))
	}
	return nn.RMSNorm{Weight: w, Eps: eps, Kernels: r.Kernels}
}

// SwiGLU is the feed-forward with gate_proj, up_proj and down_proj under NAME,
// of width features inside.
func (r *Reader) SwiGLU(name string, width int) nn.SwiGLU {
	return nn.NewSwiGLU(r.s, r.Linear(name+".gate_proj"), r.Linear(name+".up_proj"), r.Linear(name+".down_proj"), width)
}
