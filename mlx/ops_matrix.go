package mlx

import (
	"slices"
	"strconv"

	"github.com/godflash/godflash/internal/mlxc"
)

var (
	opInner         = newOp("Inner", "mlx_inner", mlxc.Binary)
	opOuter         = newOp("Outer", "mlx_outer", mlxc.Binary)
	opKron          = newOp("Kron", "mlx_kron", mlxc.Binary)
	opVecDot        = newOp("VecDot", "mlx_vecdot", mlxc.BinaryInt)
	opTensorDot     = newOp("TensorDot", "mlx_tensordot", mlxc.ClassTensordot)
	opEinsum        = newOp("Einsum", "mlx_einsum", mlxc.ClassEinsum)
	opBlockMaskedMM = newOp("BlockMaskedMM", "mlx_block_masked_mm", mlxc.ClassBlockMaskedMM)
	opSegmentedMM   = newOp("SegmentedMM", "mlx_segmented_mm", mlxc.Ternary)
	opHadamard      = newOp("Hadamard", "mlx_hadamard_transform", mlxc.ClassHadamard)
	opCross         = newOp("Cross", "mlx_linalg_cross", mlxc.BinaryInt)
	opCrossEntropy  = newOp("CrossEntropy", "mlx_fast_cross_entropy", mlxc.Binary)
)

// Inner is the sum of products along the last axes of a [..., K] and b [..., K]: a's
// other axes, then b's. A scalar multiplies. (mlx_inner)
func (s *Scope) Inner(a, b Array) Array { return s.binary(opInner, a, b) }

// Outer is the product of each element of a with each of b, both taken as flat:
// [a.Size, b.Size]. (mlx_outer)
func (s *Scope) Outer(a, b Array) Array {
	x, ok1 := a.peek(s, opOuter, 1)
	y, ok2 := b.peek(s, opOuter, 2)
	if msg := grows(x.Size, y.Size); ok1 && ok2 && msg != "" {
		return s.stop(opOuter, msg, nil, a, b)
	}
	return s.binary(opOuter, a, b)
}

// Kron is the Kronecker product: b scaled by each element of a. (mlx_kron)
func (s *Scope) Kron(a, b Array) Array {
	x, ok1 := a.peek(s, opKron, 1)
	y, ok2 := b.peek(s, opKron, 2)
	if ok1 && ok2 {
		shape, other := lengths(x), lengths(y)
		if len(shape) < len(other) {
			shape, other = other, shape
		}
		for k, d := range other {
			shape[len(shape)-len(other)+k] *= d
		}
		if msg := grows(shape...); msg != "" {
			return s.stop(opKron, msg, nil, a, b)
		}
	}
	return s.binary(opKron, a, b)
}

// VecDot is the sum of products along an axis of both; other axes broadcast. Of
// complex numbers a is conjugated. (mlx_vecdot)
func (s *Scope) VecDot(a, b Array, axis int) Array {
	if c, empty := s.fresh(opVecDot, a); empty {
		defer s.drop(c)
		a = c
	}
	if c, empty := s.fresh(opVecDot, b); empty {
		defer s.drop(c)
		b = c
	}
	return s.binaryInt(opVecDot, a, b, axis, "axis")
}

// Cross is the vector product along an axis of 2 or 3 elements. (mlx_linalg_cross)
func (s *Scope) Cross(a, b Array, axis int) Array { return s.binaryInt(opCross, a, b, axis, "axis") }

// TensorDot sums the products over axesA of a and axesB of b, pair by pair; the result
// has a's other axes, then b's. (mlx_tensordot)
func (s *Scope) TensorDot(a, b Array, axesA, axesB []int) Array {
	text := func() string { return "axes " + formatInts(axesA) + " and " + formatInts(axesB) }
	pa, ok1 := pack(axesA)
	pb, ok2 := pack(axesB)
	if !ok1 || !ok2 || len(axesA) != len(axesB) || repeats(axesA) || repeats(axesB) {
		return s.stop(opTensorDot, "as many different axes are needed of both, at most 8", text, a, b)
	}
	g := &mlxc.Args{}
	g.L[0], g.L[1] = pa, pb
	return s.call(opTensorDot, g, 2, text, a, b)
}

func repeats(axes []int) bool {
	for i, x := range axes {
		if slices.Contains(axes[:i], x) {
			return true
		}
	}
	return false
}

// Einsum sums products by Einstein's convention, such as "ij,jk->ik": letters name
// axes, those missing after the arrow are summed over.
// An empty array is an error. (mlx_einsum)
func (s *Scope) Einsum(subscripts string, arrays ...Array) Array {
	if !s.begin(opEinsum) {
		return Array{}
	}
	list, ok := s.handles(opEinsum, arrays)
	if !ok {
		return s.zeroInput(opEinsum, strconv.Quote(subscripts), arrays...)
	}
	for _, a := range arrays {
		if s.isEmpty(a, opEinsum) {
			return s.refuse(opEinsum, emptyText, strconv.Quote(subscripts), arrays...)
		}
	}
	h := mlxc.Einsum(opEinsum.fn(), subscripts, list, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(opEinsum, h, strconv.Quote(subscripts), arrays...)
	}
	return s.put(opEinsum, h)
}

// BlockMask of [Scope.BlockMaskedMM]: masks of Bool or of factors, one element per
// block of the result [..., M, N] and the inputs [..., M, K] and [..., K, N]; the
// zero Array is no mask.
type BlockMask struct {
	Size          int // of a block's side: 32 or 64
	Out, LHS, RHS Array
}

// BlockMaskedMM is the matrix product of which blocks are left out or scaled. (mlx_block_masked_mm)
func (s *Scope) BlockMaskedMM(a, b Array, m BlockMask) Array {
	text := func() string { return args1("block size", m.Size) }
	if m.Size != 32 && m.Size != 64 {
		return s.stop(opBlockMaskedMM, "block size must be 32 or 64", text, a, b)
	}
	if s.isEmpty(a, opBlockMaskedMM) || s.isEmpty(b, opBlockMaskedMM) {
		return s.stop(opBlockMaskedMM, emptyText, text, a, b)
	}
	return s.call(opBlockMaskedMM, &mlxc.Args{I: [14]int32{int32(m.Size)}}, 2, text, a, b, m.Out, m.LHS, m.RHS)
}

// SegmentedMM multiplies columns of a [M, K] with rows of b [K, N] segment by segment:
// segments [..., 2], of type Uint32, holds the first and the last-but-one index of
// each: [..., M, N]. It evaluates segments to check them. (mlx_segmented_mm)
func (s *Scope) SegmentedMM(a, b, segments Array) Array {
	if s.isEmpty(a, opSegmentedMM) || s.isEmpty(b, opSegmentedMM) || s.isEmpty(segments, opSegmentedMM) {
		return s.stop(opSegmentedMM, emptyText, nil, a, b, segments)
	}
	x, ok1 := a.peek(s, opSegmentedMM, 1)
	i, ok2 := segments.peek(s, opSegmentedMM, 3)
	if ok1 && ok2 && s.begin(opSegmentedMM) {
		if Dtype(i.Dtype) != Uint32 || len(i.Shape) == 0 || i.Shape[len(i.Shape)-1] != 2 || len(x.Shape) != 2 {
			return s.stop(opSegmentedMM, "a matrix and segments [..., 2] of type uint32 are needed", nil, a, b, segments)
		}
		list, err := ToSlice[uint32](segments)
		if err != nil {
			s.Fail(err)
			return Array{}
		}
		for k := 0; k < len(list); k += 2 {
			if list[k] > list[k+1] || int(list[k+1]) > int(x.Shape[1]) {
				return s.stop(opSegmentedMM, "a segment does not lie in the matrix", nil, a, b, segments)
			}
		}
	}
	return s.call(opSegmentedMM, &mlxc.Args{}, 3, nil, a, b, segments)
}

// Hadamard is the Walsh-Hadamard transform along the last axis, whose length is m*2^k
// with m 1, 12, 20 or 28, times scale; 0 stands for 1/sqrt(length). (mlx_hadamard_transform)
func (s *Scope) Hadamard(a Array, scale float32) Array {
	g := &mlxc.Args{D: [3]float64{float64(scale)}}
	g.SetBool(0, scale != 0)
	return s.call(opHadamard, g, 1, func() string { return "scale " + strconv.FormatFloat(float64(scale), 'g', -1, 32) }, a)
}

// CrossEntropy is -log(softmax(logits)[target]) along the last axis of logits [..., V]
// for integers targets [...]: [...]. Targets are not checked. (mlx_fast_cross_entropy)
func (s *Scope) CrossEntropy(logits, targets Array) Array {
	if s.isEmpty(logits, opCrossEntropy) {
		return s.stop(opCrossEntropy, emptyText, nil, logits, targets)
	}
	return s.binary(opCrossEntropy, logits, targets)
}
