package mlx

import (
	"math"
	"strconv"

	"github.com/godflash/godflash/internal/mlxc"
)

var (
	opRMSNorm     = newOp("RMSNorm", "mlx_fast_rms_norm", "")
	opLayerNorm   = newOp("LayerNorm", "mlx_fast_layer_norm", "")
	opRoPE        = newOp("RoPE", "mlx_fast_rope", "")
	opRoPEDynamic = newOp("RoPEDynamic", "mlx_fast_rope_dynamic", "")
	opAttention   = newOp("Attention", "mlx_fast_scaled_dot_product_attention", "")
)

// RMSNorm is x / sqrt(mean(x²) + eps) * w along the last axis of x [..., D], with
// sums in float32. w [D] may be the zero Array: no weight. (mlx_fast_rms_norm)
func (s *Scope) RMSNorm(x, w Array, eps float32) Array {
	if !s.begin(opRMSNorm) {
		return Array{}
	}
	if b, empty := s.fresh(opRMSNorm, x); empty {
		defer s.drop(b)
		x = b
	}
	h := x.use(s, opRMSNorm, 1)
	if h == 0 {
		return s.zeroInput(opRMSNorm, "", x, w)
	}
	h = mlxc.RMSNorm(h, w.use(s, opRMSNorm, 2), eps, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(opRMSNorm, h, "", x, w)
	}
	return s.put(opRMSNorm, h)
}

// LayerNorm is (x - mean) / sqrt(variance + eps) * w + b along the last axis of
// x [..., D]. w and b [D] may be the zero Array. (mlx_fast_layer_norm)
func (s *Scope) LayerNorm(x, w, b Array, eps float32) Array {
	if !s.begin(opLayerNorm) {
		return Array{}
	}
	if b, empty := s.fresh(opLayerNorm, x); empty {
		defer s.drop(b)
		x = b
	}
	h := x.use(s, opLayerNorm, 1)
	if h == 0 {
		return s.zeroInput(opLayerNorm, "", x, w, b)
	}
	h = mlxc.LayerNorm(h, w.use(s, opLayerNorm, 2), b.use(s, opLayerNorm, 3), eps, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(opLayerNorm, h, "", x, w, b)
	}
	return s.put(opLayerNorm, h)
}

// RoPEOptions of [Scope.RoPE].
type RoPEOptions struct {
	Dims        int     // how many leading features of the last axis are rotated; even
	Traditional bool    // pairs are neighbours (2i, 2i+1) instead of halves (i, i+Dims/2)
	Base        float32 // of the wavelengths; 0 = 10000. Not together with Freqs
	Scale       float32 // of the positions; 0 = 1
	Freqs       Array   // [Dims/2] wavelengths instead of Base; zero Array = none
}

func (o *RoPEOptions) text() string { return args1("dims", o.Dims) }

// check fills defaults in and gives the reason when the options are impossible.
func (o *RoPEOptions) check() string {
	if o.Scale == 0 {
		o.Scale = 1
	}
	switch {
	case o.Dims <= 0 || o.Dims%2 != 0 || !fits(o.Dims):
		return "Dims must be positive and even"
	case o.Freqs.Valid() && o.Base != 0:
		return "Base and Freqs exclude each other"
	case !o.Freqs.Valid() && o.Base == 0:
		o.Base = 10000
	}
	return ""
}

// RoPE rotates the features of x [B, ..., T, D] by their positions, which are
// offset, offset+1, … along the axis T. (mlx_fast_rope)
func (s *Scope) RoPE(x Array, o RoPEOptions, offset int) Array {
	if !s.begin(opRoPE) {
		return Array{}
	}
	h := x.use(s, opRoPE, 1)
	if h == 0 {
		return s.zeroInput(opRoPE, o.text(), x)
	}
	msg := o.check()
	if msg == "" && !fits(offset) {
		msg = limitText
	}
	if msg != "" {
		return s.refuse(opRoPE, msg, o.text(), x)
	}
	h = mlxc.RoPE(h, o.Dims, o.Traditional, !o.Freqs.Valid(), o.Base, o.Scale, offset, o.Freqs.use(s, opRoPE, 2), s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(opRoPE, h, o.text()+", "+args1("offset", offset), x)
	}
	return s.put(opRoPE, h)
}

// RoPEDynamic is RoPE with an offset that is data: a scalar or [B] of integers. (mlx_fast_rope_dynamic)
func (s *Scope) RoPEDynamic(x Array, o RoPEOptions, offset Array) Array {
	if !s.begin(opRoPEDynamic) {
		return Array{}
	}
	h, at := x.use(s, opRoPEDynamic, 1), offset.use(s, opRoPEDynamic, 2)
	if h == 0 || at == 0 {
		return s.zeroInput(opRoPEDynamic, o.text(), x, offset)
	}
	if msg := o.check(); msg != "" {
		return s.refuse(opRoPEDynamic, msg, o.text(), x, offset)
	}
	h = mlxc.RoPEDynamic(h, o.Dims, o.Traditional, !o.Freqs.Valid(), o.Base, o.Scale, at, o.Freqs.use(s, opRoPEDynamic, 3), s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(opRoPEDynamic, h, o.text(), x, offset)
	}
	return s.put(opRoPEDynamic, h)
}

// AttentionOptions of [Scope.Attention].
type AttentionOptions struct {
	Scale  float32 // of the products; 0 = 1/sqrt(D)
	Causal bool    // query i of Tq sees keys up to Tk-Tq+i; not together with Mask
	Mask   Array   // Bool (true = seen) or added to the products; broadcasts to [B, Hq, Tq, Tk]; zero Array = none
	Sinks  Array   // [Hq] products of a key without value; zero Array = none
}

// Attention is softmax(q kᵀ * Scale + mask) v for q [B, Hq, Tq, D], k [B, Hkv, Tk,
// D], v [B, Hkv, Tk, Dv], with Hq a multiple of Hkv: [B, Hq, Tq, Dv]. The softmax
// is taken in float32. (mlx_fast_scaled_dot_product_attention)
func (s *Scope) Attention(q, k, v Array, o AttentionOptions) Array {
	if !s.begin(opAttention) {
		return Array{}
	}
	hq, hk, hv := q.use(s, opAttention, 1), k.use(s, opAttention, 2), v.use(s, opAttention, 3)
	text := func() string { return "scale " + strconv.FormatFloat(float64(o.Scale), 'g', -1, 32) }
	if hq == 0 || hk == 0 || hv == 0 {
		return s.zeroInput(opAttention, text(), q, k, v)
	}
	if o.Causal && o.Mask.Valid() {
		return s.refuse(opAttention, "Causal and Mask exclude each other", text(), q, k, v)
	}
	if o.Scale == 0 {
		shape := mlxc.Describe(hq).Shape
		if len(shape) == 0 {
			return s.refuse(opAttention, "q needs 4 dimensions", text(), q, k, v)
		}
		o.Scale = float32(1 / math.Sqrt(float64(shape[len(shape)-1])))
	}
	h := mlxc.Attention(hq, hk, hv, o.Scale, o.Causal, o.Mask.use(s, opAttention, 4), o.Sinks.use(s, opAttention, 5), s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(opAttention, h, text(), q, k, v)
	}
	return s.put(opAttention, h)
}
