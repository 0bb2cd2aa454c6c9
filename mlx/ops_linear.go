package mlx

import (
	"strconv"

	"github.com/godflash/godflash/internal/mlxc"
)

var (
	opMatMul = newOp("MatMul", "mlx_matmul", mlxc.Binary)
	opAddMM  = newOp("AddMM", "mlx_addmm", "")
	opConv1d = newOp("Conv1d", "mlx_conv1d", "")
)

// MatMul is the matrix product of [..., M, K] and [..., K, N]: [..., M, N]. The
// axes before broadcast; a vector is taken as a row on the left, as a column on
// the right, and that axis is dropped again. (mlx_matmul)
func (s *Scope) MatMul(a, b Array) Array { return s.binary(opMatMul, a, b) }

// AddMM is alpha*(a @ b) + beta*c with shapes as in [Scope.MatMul]; c broadcasts to the result. (mlx_addmm)
func (s *Scope) AddMM(c, a, b Array, alpha, beta float32) Array {
	if !s.begin(opAddMM) {
		return Array{}
	}
	z, x, y := c.use(s, opAddMM, 1), a.use(s, opAddMM, 2), b.use(s, opAddMM, 3)
	if z == 0 || x == 0 || y == 0 {
		return s.zeroInput(opAddMM, "", c, a, b)
	}
	h := mlxc.AddMM(z, x, y, alpha, beta, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(opAddMM, h, "", c, a, b)
	}
	return s.put(opAddMM, h)
}

// Conv1dOptions of [Scope.Conv1d]; 0 means 1 for Stride, Dilation and Groups.
type Conv1dOptions struct {
	Stride   int
	Padding  int // zeros added at both ends
	Dilation int
	Groups   int
}

// Conv1d convolves x [N, L, Cin] with w [Cout, K, Cin/Groups]: [N, L', Cout] with
// L' = (L + 2*Padding - Dilation*(K-1) - 1)/Stride + 1. As in neural networks
// the kernel is not flipped. (mlx_conv1d)
func (s *Scope) Conv1d(x, w Array, o Conv1dOptions) Array {
	if !s.begin(opConv1d) {
		return Array{}
	}
	for _, p := range []*int{&o.Stride, &o.Dilation, &o.Groups} {
		if *p == 0 {
			*p = 1
		}
	}
	hx, hw := x.use(s, opConv1d, 1), w.use(s, opConv1d, 2)
	if hx == 0 || hw == 0 {
		return s.zeroInput(opConv1d, o.text(), x, w)
	}
	for _, v := range []int{o.Stride, o.Dilation, o.Groups} {
		if v < 1 || !fits(v) {
			return s.refuse(opConv1d, "stride, dilation and groups must be positive", o.text(), x, w)
		}
	}
	if o.Padding < 0 || !fits(o.Padding) {
		return s.refuse(opConv1d, "padding must not be negative", o.text(), x, w)
	}
	h := mlxc.Conv1d(hx, hw, o.Stride, o.Padding, o.Dilation, o.Groups, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(opConv1d, h, o.text(), x, w)
	}
	return s.put(opConv1d, h)
}

func (o Conv1dOptions) text() string {
	return "stride " + strconv.Itoa(o.Stride) + ", padding " + strconv.Itoa(o.Padding) + ", dilation " + strconv.Itoa(o.Dilation) + ", groups " + strconv.Itoa(o.Groups)
}

var opGatherMM = newOp("GatherMM", "mlx_gather_mm", mlxc.ClassGatherMM)

// GatherMM multiplies picked matrices: result i, of the shape to which LHS and RHS
// broadcast, is a[LHS[i]] [M, K] times b[RHS[i]] [K, N]: [..., M, N]. Indices number
// the batch axes flattened and are not checked. On CPUs only Float32 is
// possible. (mlx_gather_mm)
func (s *Scope) GatherMM(a, b Array, ix GatherOptions) Array {
	if s.device == DeviceCPU {
		x, ok1 := a.peek(s, opGatherMM, 1)
		y, ok2 := b.peek(s, opGatherMM, 2)
		if ok1 && ok2 && (Dtype(x.Dtype) != Float32 || Dtype(y.Dtype) != Float32) {
			return s.stop(opGatherMM, "float32 is needed on a CPU", nil, a, b)
		}
	}
	if s.isEmpty(a, opGatherMM) || s.isEmpty(b, opGatherMM) || s.isEmpty(ix.LHS, opGatherMM) || s.isEmpty(ix.RHS, opGatherMM) {
		return s.stop(opGatherMM, emptyText, nil, a, b, ix.LHS, ix.RHS)
	}
	g := &mlxc.Args{}
	g.SetBool(0, ix.Sorted)
	return s.call(opGatherMM, g, 2, nil, a, b, ix.LHS, ix.RHS)
}
