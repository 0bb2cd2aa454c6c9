package mlx

import "github.com/godflash/godflash/internal/mlxc"

// Elementwise operations. The result has the shape of the input, or for two
// inputs the shape they broadcast to, and the type they promote to as MLX has it.

var (
	opNeg     = newOp("Neg", "mlx_negative", mlxc.Unary)
	opAbs     = newOp("Abs", "mlx_abs", mlxc.Unary)
	opExp     = newOp("Exp", "mlx_exp", mlxc.Unary)
	opLog     = newOp("Log", "mlx_log", mlxc.Unary)
	opLog1p   = newOp("Log1p", "mlx_log1p", mlxc.Unary)
	opSqrt    = newOp("Sqrt", "mlx_sqrt", mlxc.Unary)
	opRsqrt   = newOp("Rsqrt", "mlx_rsqrt", mlxc.Unary)
	opSquare  = newOp("Square", "mlx_square", mlxc.Unary)
	opSin     = newOp("Sin", "mlx_sin", mlxc.Unary)
	opCos     = newOp("Cos", "mlx_cos", mlxc.Unary)
	opTanh    = newOp("Tanh", "mlx_tanh", mlxc.Unary)
	opErf     = newOp("Erf", "mlx_erf", mlxc.Unary)
	opSigmoid = newOp("Sigmoid", "mlx_sigmoid", mlxc.Unary)

	opAdd       = newOp("Add", "mlx_add", mlxc.Binary)
	opSub       = newOp("Sub", "mlx_subtract", mlxc.Binary)
	opMul       = newOp("Mul", "mlx_multiply", mlxc.Binary)
	opDiv       = newOp("Div", "mlx_divide", mlxc.Binary)
	opFloorDiv  = newOp("FloorDiv", "mlx_floor_divide", mlxc.Binary)
	opRemainder = newOp("Remainder", "mlx_remainder", mlxc.Binary)
	opPower     = newOp("Power", "mlx_power", mlxc.Binary)
	opMaximum   = newOp("Maximum", "mlx_maximum", mlxc.Binary)
	opMinimum   = newOp("Minimum", "mlx_minimum", mlxc.Binary)
	opLogAddExp = newOp("LogAddExp", "mlx_logaddexp", mlxc.Binary)

	opClip = newOp("Clip", "mlx_clip", mlxc.Ternary)
)

// Neg is -a, elementwise. (mlx_negative)
func (s *Scope) Neg(a Array) Array { return s.unary(opNeg, a) }

// Abs is |a|, elementwise. (mlx_abs)
func (s *Scope) Abs(a Array) Array { return s.unary(opAbs, a) }

// Exp is e^a, elementwise. (mlx_exp)
func (s *Scope) Exp(a Array) Array { return s.unary(opExp, a) }

// Log is the natural logarithm of a, elementwise. (mlx_log)
func (s *Scope) Log(a Array) Array { return s.unary(opLog, a) }

// Log1p is log(1+a), exact near 0, elementwise. (mlx_log1p)
func (s *Scope) Log1p(a Array) Array { return s.unary(opLog1p, a) }

// Sqrt is the square root of a, elementwise. (mlx_sqrt)
func (s *Scope) Sqrt(a Array) Array { return s.unary(opSqrt, a) }

// Rsqrt is 1/sqrt(a), elementwise. (mlx_rsqrt)
func (s *Scope) Rsqrt(a Array) Array { return s.unary(opRsqrt, a) }

// Square is a*a, elementwise. (mlx_square)
func (s *Scope) Square(a Array) Array { return s.unary(opSquare, a) }

// Sin is the sine of a, in radians, elementwise. (mlx_sin)
func (s *Scope) Sin(a Array) Array { return s.unary(opSin, a) }

// Cos is the cosine of a, in radians, elementwise. (mlx_cos)
func (s *Scope) Cos(a Array) Array { return s.unary(opCos, a) }

// Tanh is the hyperbolic tangent of a, elementwise. (mlx_tanh)
func (s *Scope) Tanh(a Array) Array { return s.unary(opTanh, a) }

// Erf is the error function of a, elementwise. (mlx_erf)
func (s *Scope) Erf(a Array) Array { return s.unary(opErf, a) }

// Sigmoid is 1/(1+e^-a), elementwise. (mlx_sigmoid)
func (s *Scope) Sigmoid(a Array) Array { return s.unary(opSigmoid, a) }

// Add is a+b, elementwise with broadcasting. (mlx_add)
func (s *Scope) Add(a, b Array) Array { return s.binary(opAdd, a, b) }

// Sub is a-b, elementwise with broadcasting. (mlx_subtract)
func (s *Scope) Sub(a, b Array) Array { return s.binary(opSub, a, b) }

// Mul is a*b, elementwise with broadcasting. (mlx_multiply)
func (s *Scope) Mul(a, b Array) Array { return s.binary(opMul, a, b) }

// Div is a/b; integers become Float32, elementwise with broadcasting. (mlx_divide)
func (s *Scope) Div(a, b Array) Array { return s.binary(opDiv, a, b) }

// FloorDiv is a/b rounded down, for integers towards zero, elementwise with
// broadcasting. An integer divided by 0 is 0. (mlx_floor_divide)
func (s *Scope) FloorDiv(a, b Array) Array { return s.divide(opFloorDiv, a, b) }

// Remainder is the remainder of a/b with the sign of b, elementwise with
// broadcasting. The remainder of an integer and 0 is 0. (mlx_remainder)
func (s *Scope) Remainder(a, b Array) Array { return s.divide(opRemainder, a, b) }

// divide calls MLX directly where it can. On the CPU MLX divides integers by the
// processor's instruction, which ends the process for a divisor of 0, and for
// the smallest number divided by -1; GPUs give what they give. These divisors are
// replaced and their results filled in.
func (s *Scope) divide(o op, a, b Array) Array {
	if !s.begin(o) || !a.Valid() || !b.Valid() || !mlxc.OnWorker() ||
		!a.Dtype().isWhole() || !b.Dtype().isWhole() {
		return s.binary(o, a, b)
	}
	t := Scope{lib: s.lib, stream: s.stream, device: s.device, name: s.name} // for the steps between
	defer t.close(closedByClose)
	zero := t.Scalar(0, Int32)
	byZero := t.Equal(b, zero)
	special := byZero
	byMinusOne := Array{}
	if b.Dtype().isSigned() {
		byMinusOne = t.Equal(b, t.Scalar(-1, Int32))
		special = t.LogicalOr(byZero, byMinusOne)
	}
	safe := t.Where(special, t.Scalar(1, b.Dtype()), b)
	r := t.binary(o, a, safe)
	if err := t.Err(); err != nil {
		s.Fail(err)
		return Array{}
	}
	dt := r.Dtype()
	r = t.Where(special, t.AsType(zero, dt), r)
	if o == opFloorDiv && byMinusOne.Valid() {
		r = t.Where(byMinusOne, t.Neg(t.AsType(a, dt)), r)
	}
	if err := t.Err(); err != nil {
		s.Fail(err)
		return Array{}
	}
	r.made = o
	return s.Move(r)
}

// Power is a^b, elementwise with broadcasting. (mlx_power)
func (s *Scope) Power(a, b Array) Array { return s.binary(opPower, a, b) }

// Maximum is the larger of a and b; NaN where one is, elementwise with broadcasting. (mlx_maximum)
func (s *Scope) Maximum(a, b Array) Array { return s.binary(opMaximum, a, b) }

// Minimum is the smaller of a and b; NaN where one is, elementwise with broadcasting. (mlx_minimum)
func (s *Scope) Minimum(a, b Array) Array { return s.binary(opMinimum, a, b) }

// LogAddExp is log(e^a+e^b) without overflow, elementwise with broadcasting. (mlx_logaddexp)
func (s *Scope) LogAddExp(a, b Array) Array { return s.binary(opLogAddExp, a, b) }

// Clip is a with what is below lo raised to it and what is above hi lowered to
// it, elementwise with broadcasting. One bound may be the zero Array: none. (mlx_clip)
func (s *Scope) Clip(a, lo, hi Array) Array {
	if !s.begin(opClip) {
		return Array{}
	}
	x := a.use(s, opClip, 1)
	if x == 0 {
		return s.zeroInput(opClip, "", a, lo, hi)
	}
	h := mlxc.CallTernary(opClip.fn(), x, lo.use(s, opClip, 2), hi.use(s, opClip, 3), s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(opClip, h, "", a, lo, hi)
	}
	return s.put(opClip, h)
}

// SiLU is a*sigmoid(a), elementwise. (mlx_sigmoid, mlx_multiply)
func (s *Scope) SiLU(a Array) Array {
	g := s.Sigmoid(a)
	if !g.Valid() {
		return Array{}
	}
	r := s.Mul(a, g)
	s.drop(g)
	return r
}

// Softplus is log(1+e^a) without overflow, elementwise. (mlx_logaddexp)
func (s *Scope) Softplus(a Array) Array {
	if !s.begin(opSoftplus) {
		return Array{}
	}
	if a.use(s, opSoftplus, 1) == 0 {
		return s.zeroInput(opSoftplus, "", a)
	}
	if !mlxc.OnWorker() {
		return s.failed(opSoftplus, mlxc.OffWorker, "")
	}
	zero := s.Scalar(0, a.Dtype())
	if !zero.Valid() {
		return Array{}
	}
	r := s.LogAddExp(a, zero)
	s.drop(zero)
	return r
}

var opSoftplus = newOp("Softplus", "mlx_logaddexp", "")
