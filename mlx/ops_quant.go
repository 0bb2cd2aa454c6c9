package mlx

import (
	"slices"
	"strconv"

	"github.com/godflash/godflash/internal/mlxc"
)

var (
	opQuantize        = newOp("Quantize", "mlx_quantize", mlxc.ClassQuantize)
	opDequantize      = newOp("Dequantize", "mlx_dequantize", mlxc.ClassDequantize)
	opQuantizedMatMul = newOp("QuantizedMatMul", "mlx_quantized_matmul", mlxc.ClassQuantizedMatmul)
	opGatherQMM       = newOp("GatherQMM", "mlx_gather_qmm", mlxc.ClassGatherQMM)
	opQQMM            = newOp("QQMM", "mlx_qqmm", mlxc.ClassQQMM)
	opGatherQQMM      = newOp("GatherQQMM", "mlx_gather_qqmm", mlxc.ClassGatherQQMM)
	opToFP8           = newOp("ToFP8", "mlx_to_fp8", mlxc.Unary)
	opFromFP8         = newOp("FromFP8", "mlx_from_fp8", mlxc.DtypeOnly)
)

// QuantMode is a way to store numbers in few bits.
type QuantMode uint8

// The modes of MLX. Scales of the last three are Uint8 and there are no biases.
const (
	Affine QuantMode = iota // 2 to 6 or 8 bits; scale and bias in the matrix's type for each group of 32, 64 or 128
	MXFP4                   // 4-bit floats (E2M1), groups of 32, scales are powers of two (E8M0)
	MXFP8                   // 8-bit floats (E4M3), groups of 32, scales are powers of two (E8M0)
	NVFP4                   // 4-bit floats (E2M1), groups of 16, scales are 8-bit floats (E4M3)
)

var quantModes = [...]struct {
	name        string
	group, bits int
}{Affine: {"affine", 64, 4}, MXFP4: {"mxfp4", 32, 4}, MXFP8: {"mxfp8", 32, 8}, NVFP4: {"nvfp4", 16, 4}}

// String is MLX's name, such as "mxfp4".
func (m QuantMode) String() string {
	if int(m) >= len(quantModes) {
		return "QuantMode(" + strconv.Itoa(int(m)) + ")"
	}
	return quantModes[m].name
}

// QuantizeOptions say how a matrix is quantised. The zero value is Affine with
// 4 bits in groups of 64.
type QuantizeOptions struct {
	Mode      QuantMode
	GroupSize int // along the last axis; 0 = 64 for Affine, else the mode's only size
	Bits      int // of one element; 0 = 4 for Affine, else the mode's only number
}

// fill writes defaults in; the reason is not empty when the options are impossible.
func (o *QuantizeOptions) fill() string {
	if int(o.Mode) >= len(quantModes) {
		return "unknown mode"
	}
	d := quantModes[o.Mode]
	if o.GroupSize == 0 {
		o.GroupSize = d.group
	}
	if o.Bits == 0 {
		o.Bits = d.bits
	}
	switch {
	case o.Mode != Affine && (o.GroupSize != d.group || o.Bits != d.bits):
		return d.name + " has groups of " + strconv.Itoa(d.group) + " and " + strconv.Itoa(d.bits) + " bits"
	case o.GroupSize != 16 && o.GroupSize != 32 && o.GroupSize != 64 && o.GroupSize != 128:
		return "group size must be 32, 64 or 128"
	case o.Bits < 2 || o.Bits == 7 || o.Bits > 8:
		return "bits must be 2, 3, 4, 5, 6 or 8"
	}
	return ""
}

func (o QuantizeOptions) text() string {
	return "mode " + o.Mode.String() + ", " + args2("group size", o.GroupSize, "bits", o.Bits)
}

func (o QuantizeOptions) args() *mlxc.Args {
	return &mlxc.Args{I: [14]int32{int32(o.GroupSize), int32(o.Bits), int32(o.Mode)}}
}

// Quantized is a matrix in few bits with what is needed to read it back.
type Quantized struct {
	W       Array // [..., N, K*Bits/32] Uint32, elements packed from the low bits up
	Scales  Array // [..., N, K/GroupSize]
	Biases  Array // as Scales; the zero Array for modes other than Affine
	Options QuantizeOptions
}

// Quantize stores w [..., N, K] in few bits; K must be a multiple of the group
// size. (mlx_quantize)
func (s *Scope) Quantize(w Array, o QuantizeOptions) Quantized {
	text := func() string { return o.text() }
	if msg := o.fill(); msg != "" {
		s.stop(opQuantize, msg, text, w)
		return Quantized{}
	}
	if i, ok := w.peek(s, opQuantize, 1); ok && i.Size == 0 {
		s.stop(opQuantize, emptyText, text, w)
		return Quantized{}
	}
	parts := s.callMany(opQuantize, o.args(), 1, 3, text, w)
	switch len(parts) {
	case 2:
		return Quantized{W: parts[0], Scales: parts[1], Options: o}
	case 3:
		return Quantized{W: parts[0], Scales: parts[1], Biases: parts[2], Options: o}
	}
	return Quantized{}
}

const emptyText = "the array is empty"

// Dequantize is the matrix [..., N, K] that q stands for, in type dt. (mlx_dequantize)
func (s *Scope) Dequantize(q Quantized, dt Dtype) Array {
	o := q.Options
	text := func() string { return dt.String() + ", " + o.text() }
	msg := o.fill()
	if msg == "" && !dt.IsFloat() {
		msg = "a floating-point type is needed"
	}
	if msg == "" {
		msg = q.check(s, opDequantize)
	}
	if msg != "" {
		return s.stop(opDequantize, msg, text, q.W, q.Scales, q.Biases)
	}
	g := o.args()
	g.I[3], g.I[4] = int32(dt), 1
	return s.call(opDequantize, g, q.must(), text, q.W, q.Scales, q.Biases, Array{})
}

// must is how many of W, Scales and Biases are mandatory.
func (q Quantized) must() int {
	if q.Options.Mode == Affine {
		return 3
	}
	return 2
}

// check finds what MLX does not: empty matrices, and scales that would be read beyond their end.
func (q Quantized) check(s *Scope, o op) string {
	w, ok := q.W.peek(s, o, 1)
	if !ok {
		return ""
	}
	opts := q.Options
	_ = opts.fill()
	switch {
	case w.Size == 0:
		return emptyText
	case opts.Mode != Affine && q.Biases.Valid():
		return "only affine has biases"
	case Dtype(w.Dtype) != Uint32 || len(w.Shape) < 2:
		return "the matrix must be uint32 with at least 2 dimensions"
	}
	for _, a := range []Array{q.Scales, q.Biases} {
		i, ok := a.peek(s, o, 2)
		if !ok {
			continue
		}
		last := len(w.Shape) - 1
		if len(i.Shape) != len(w.Shape) || !slices.Equal(i.Shape[:last], w.Shape[:last]) ||
			int(i.Shape[last])*opts.GroupSize*opts.Bits != int(w.Shape[last])*32 {
			return "scales and biases do not fit the matrix, its group size and bits"
		}
	}
	return ""
}

// QuantizedMatMul is x [..., M, K] times the matrix [N, K] that q stands for,
// transposed: [..., M, N]. With transpose false q stands for [K, N] and is taken
// as it is. It accumulates in x's type on CPUs. (mlx_quantized_matmul)
func (s *Scope) QuantizedMatMul(x Array, q Quantized, transpose bool) Array {
	o := q.Options
	text := func() string { return "transpose " + strconv.FormatBool(transpose) + ", " + o.text() }
	msg := o.fill()
	if msg == "" {
		msg = q.check(s, opQuantizedMatMul)
	}
	if msg == "" && s.isEmpty(x, opQuantizedMatMul) {
		msg = emptyText
	}
	if msg != "" {
		return s.stop(opQuantizedMatMul, msg, text, x, q.W, q.Scales, q.Biases)
	}
	g := o.args()
	g.SetBool(3, transpose)
	return s.call(opQuantizedMatMul, g, 1+q.must(), text, x, q.W, q.Scales, q.Biases)
}

func (s *Scope) isEmpty(a Array, o op) bool {
	i, ok := a.peek(s, o, 1)
	return ok && i.Size == 0
}

// GatherOptions of [Scope.GatherMM] and its relatives.
type GatherOptions struct {
	LHS    Array // integers that pick matrices from the left input's batch axes; zero Array = each in turn
	RHS    Array // integers that pick matrices from the right input's batch axes; zero Array = each in turn
	Sorted bool  // RHS is ascending, which can be faster
}

// GatherQMM multiplies picked matrices: result i, of the shape to which LHS and RHS
// broadcast, is x[LHS[i]] [M, K] times the quantised matrix q[RHS[i]] [N, K]
// transposed: [..., M, N]. Indices number the batch axes flattened and are not
// checked. (mlx_gather_qmm)
func (s *Scope) GatherQMM(x Array, q Quantized, transpose bool, ix GatherOptions) Array {
	o := q.Options
	text := func() string { return "transpose " + strconv.FormatBool(transpose) + ", " + o.text() }
	msg := o.fill()
	if msg == "" {
		msg = q.check(s, opGatherQMM)
	}
	if msg == "" && (s.isEmpty(x, opGatherQMM) || s.isEmpty(ix.LHS, opGatherQMM) || s.isEmpty(ix.RHS, opGatherQMM)) {
		msg = emptyText
	}
	if msg != "" {
		return s.stop(opGatherQMM, msg, text, x, q.W, q.Scales, q.Biases, ix.LHS, ix.RHS)
	}
	g := o.args()
	g.SetBool(3, transpose)
	g.SetBool(4, ix.Sorted)
	return s.call(opGatherQMM, g, 1+q.must(), text, x, q.W, q.Scales, q.Biases, ix.LHS, ix.RHS)
}

// QQMM is x [..., M, K] times the matrix [N, K] that q stands for, transposed, with
// x quantised, too, in q's mode, which is MXFP8 or NVFP4: [..., M, N]. CPUs do not
// have it. (mlx_qqmm)
func (s *Scope) QQMM(x Array, q Quantized) Array {
	o := q.Options
	text := func() string { return o.text() }
	msg := o.fill()
	if msg == "" {
		msg = q.check(s, opQQMM)
	}
	if msg == "" && s.isEmpty(x, opQQMM) {
		msg = emptyText
	}
	if msg != "" {
		return s.stop(opQQMM, msg, text, x, q.W, q.Scales)
	}
	return s.call(opQQMM, o.args(), 3, text, x, q.W, q.Scales, Array{}, Array{})
}

// GatherQQMM is [Scope.GatherQMM] with x quantised, too, as in [Scope.QQMM].
// (mlx_gather_qqmm)
func (s *Scope) GatherQQMM(x Array, q Quantized, ix GatherOptions) Array {
	o := q.Options
	text := func() string { return o.text() }
	msg := o.fill()
	if msg == "" {
		msg = q.check(s, opGatherQQMM)
	}
	if msg == "" && (s.isEmpty(x, opGatherQQMM) || s.isEmpty(ix.LHS, opGatherQQMM) || s.isEmpty(ix.RHS, opGatherQQMM)) {
		msg = emptyText
	}
	if msg != "" {
		return s.stop(opGatherQQMM, msg, text, x, q.W, q.Scales, ix.LHS, ix.RHS)
	}
	g := o.args()
	g.SetBool(3, ix.Sorted)
	return s.call(opGatherQQMM, g, 3, text, x, q.W, q.Scales, ix.LHS, ix.RHS, Array{}, Array{})
}

// ToFP8 rounds to 8-bit floats (E4M3), which are held as Uint8. (mlx_to_fp8)
func (s *Scope) ToFP8(a Array) Array { return s.unary(opToFP8, a) }

// FromFP8 reads 8-bit floats (E4M3) held as Uint8 in type dt. (mlx_from_fp8)
func (s *Scope) FromFP8(a Array, dt Dtype) Array {
	if dt == Float64 { // MLX leaves elements of this type as they were in memory
		return s.compose(opFromFP8, func(t *Scope) Array { return t.AsType(t.FromFP8(a, Float32), Float64) }, a)
	}
	return s.withDtype(opFromFP8, a, dt)
}
