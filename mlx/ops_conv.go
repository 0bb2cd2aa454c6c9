package mlx

import (
	"strconv"

	"github.com/godflash/godflash/internal/mlxc"
)

var (
	opConv2d          = newOp("Conv2d", "mlx_conv2d", mlxc.ClassConv2D)
	opConv3d          = newOp("Conv3d", "mlx_conv3d", mlxc.ClassConv3D)
	opConvGeneral     = newOp("ConvGeneral", "mlx_conv_general", mlxc.ClassConvGeneral)
	opConvTranspose1d = newOp("ConvTranspose1d", "mlx_conv_transpose1d", mlxc.ClassConvTranspose1d)
	opConvTranspose2d = newOp("ConvTranspose2d", "mlx_conv_transpose2d", mlxc.ClassConvTranspose2d)
	opConvTranspose3d = newOp("ConvTranspose3d", "mlx_conv_transpose3d", mlxc.ClassConvTranspose3d)
)

// ConvOptions of convolutions over N axes. Lists have one number per axis, or one
// for all; nil means 1 for Stride and Dilation and 0 for the others.
type ConvOptions struct {
	Stride        []int
	Padding       []int // zeros added at both ends
	Dilation      []int // distance of the kernel's elements
	OutputPadding []int // added to the end of the result; transposed convolutions only
	Groups        int   // 0 = 1
}

func (o ConvOptions) text() string {
	return "stride " + formatInts(o.Stride) + ", padding " + formatInts(o.Padding) + ", dilation " + formatInts(o.Dilation) +
		", output padding " + formatInts(o.OutputPadding) + ", groups " + strconv.Itoa(o.Groups)
}

// spread writes a list as n numbers, with a default, into out; false when it
// has another length or a number below low.
func spread(list []int, n, def, low int, out []int32) bool {
	if len(list) != 0 && len(list) != 1 && len(list) != n {
		return false
	}
	for i := range n {
		v := def
		switch len(list) {
		case 0:
		case 1:
			v = list[0]
		default:
			v = list[i]
		}
		if v < low || !fits(v) {
			return false
		}
		out[i] = int32(v)
	}
	return true
}

// conv writes stride, padding, dilation, then output padding for transposed
// convolutions, then groups.
func (s *Scope) conv(o op, n int, transposed bool, x, w Array, c ConvOptions) Array {
	text := func() string { return c.text() }
	if c.Groups == 0 {
		c.Groups = 1
	}
	g := &mlxc.Args{}
	ok := spread(c.Stride, n, 1, 1, g.I[0:]) && spread(c.Padding, n, 0, 0, g.I[n:]) && spread(c.Dilation, n, 1, 1, g.I[2*n:]) &&
		spread(c.OutputPadding, n, 0, 0, g.I[3*n:])
	if !ok || c.Groups < 1 || !fits(c.Groups) {
		return s.stop(o, "lists need one number or one per axis; stride, dilation and groups are positive, paddings not negative", text, x, w)
	}
	if transposed {
		g.I[4*n] = int32(c.Groups)
	} else {
		if len(c.OutputPadding) > 0 {
			return s.stop(o, "only transposed convolutions have output padding", text, x, w)
		}
		g.I[3*n] = int32(c.Groups)
	}
	if s.isEmpty(w, o) { // reaches BLAS as an illegal size, and BLAS ends the process
		return s.stop(o, emptyText, text, x, w)
	}
	return s.call(o, g, 2, text, x, w)
}

// Conv2d convolves x [N, H, W, Cin] with w [Cout, KH, KW, Cin/Groups]: [N, H', W',
// Cout] with lengths as in [Scope.Conv1d]. The kernel is not flipped. (mlx_conv2d)
func (s *Scope) Conv2d(x, w Array, o ConvOptions) Array { return s.conv(opConv2d, 2, false, x, w, o) }

// Conv3d convolves x [N, D, H, W, Cin] with w [Cout, KD, KH, KW, Cin/Groups]: [N, D',
// H', W', Cout] with lengths as in [Scope.Conv1d]. (mlx_conv3d)
func (s *Scope) Conv3d(x, w Array, o ConvOptions) Array { return s.conv(opConv3d, 3, false, x, w, o) }

// ConvTranspose1d is the transposed convolution, which undoes the shape of
// [Scope.Conv1d]: x [N, L, Cin] with w [Cout, K, Cin/Groups] gives [N, L', Cout] with
// L' = (L-1)*Stride - 2*Padding + Dilation*(K-1) + OutputPadding + 1. (mlx_conv_transpose1d)
func (s *Scope) ConvTranspose1d(x, w Array, o ConvOptions) Array {
	return s.conv(opConvTranspose1d, 1, true, x, w, o)
}

// ConvTranspose2d is [Scope.ConvTranspose1d] over two axes, with shapes as in
// [Scope.Conv2d]. (mlx_conv_transpose2d)
func (s *Scope) ConvTranspose2d(x, w Array, o ConvOptions) Array {
	return s.conv(opConvTranspose2d, 2, true, x, w, o)
}

// ConvTranspose3d is [Scope.ConvTranspose1d] over three axes, with shapes as in
// [Scope.Conv3d]. (mlx_conv_transpose3d)
func (s *Scope) ConvTranspose3d(x, w Array, o ConvOptions) Array {
	return s.conv(opConvTranspose3d, 3, true, x, w, o)
}

// ConvGeneralOptions of [Scope.ConvGeneral]. Lists as in [ConvOptions].
type ConvGeneralOptions struct {
	Stride         []int
	PaddingLow     []int // zeros added before
	PaddingHigh    []int // zeros added after; nil = as PaddingLow
	KernelDilation []int
	InputDilation  []int // distance at which x's elements are set apart, 1 = as they are
	Groups         int   // 0 = 1
	Flip           bool  // of the kernel, as in signal processing
}

// ConvGeneral convolves x [N, ..., Cin] with w [Cout, ..., Cin/Groups] over one to three
// axes between. (mlx_conv_general)
func (s *Scope) ConvGeneral(x, w Array, o ConvGeneralOptions) Array {
	text := func() string {
		return "stride " + formatInts(o.Stride) + ", padding " + formatInts(o.PaddingLow) + " and " + formatInts(o.PaddingHigh) +
			", kernel dilation " + formatInts(o.KernelDilation) + ", input dilation " + formatInts(o.InputDilation) +
			", groups " + strconv.Itoa(o.Groups) + ", flip " + strconv.FormatBool(o.Flip)
	}
	if o.Groups == 0 {
		o.Groups = 1
	}
	if o.PaddingHigh == nil {
		o.PaddingHigh = o.PaddingLow
	}
	g := &mlxc.Args{I: [14]int32{int32(o.Groups)}}
	g.SetBool(1, o.Flip)
	i, known := x.peek(s, opConvGeneral, 1)
	if n := len(i.Shape) - 2; known {
		ok := n >= 1 && n <= 3 && o.Groups >= 1 && fits(o.Groups)
		for k, l := range []struct {
			list     []int
			def, low int
		}{{o.Stride, 1, 1}, {o.PaddingLow, 0, 0}, {o.PaddingHigh, 0, 0}, {o.KernelDilation, 1, 1}, {o.InputDilation, 1, 1}} {
			ok = ok && spread(l.list, n, l.def, l.low, g.L[k].V[:])
			g.L[k].N = int32(n)
		}
		if !ok {
			return s.stop(opConvGeneral, "x needs one to three axes between first and last; lists need one number or one per axis, strides, dilations and groups positive, paddings not negative", text, x, w)
		}
	}
	if s.isEmpty(w, opConvGeneral) {
		return s.stop(opConvGeneral, emptyText, text, x, w)
	}
	return s.call(opConvGeneral, g, 2, text, x, w)
}
