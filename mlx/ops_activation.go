package mlx

import "math"

// Activations are composed of MLX's operations, in a's type, which must be a
// floating-point type; [Scope.SiLU], [Scope.Softplus] and [Scope.Sigmoid] stand
// with the arithmetic.

var (
	opReLU        = newOp("ReLU", "composed", "")
	opReLU6       = newOp("ReLU6", "composed", "")
	opLeakyReLU   = newOp("LeakyReLU", "composed", "")
	opELU         = newOp("ELU", "composed", "")
	opSELU        = newOp("SELU", "composed", "")
	opCELU        = newOp("CELU", "composed", "")
	opGELU        = newOp("GELU", "composed", "")
	opGELUTanh    = newOp("GELUTanh", "composed", "")
	opGELUSigmoid = newOp("GELUSigmoid", "composed", "")
	opMish        = newOp("Mish", "composed", "")
	opHardSwish   = newOp("HardSwish", "composed", "")
	opSoftsign    = newOp("Softsign", "composed", "")
	opLogSigmoid  = newOp("LogSigmoid", "composed", "")
	opLogSoftmax  = newOp("LogSoftmax", "composed", "")
	opGLU         = newOp("GLU", "composed", "")
	opSwiGLU      = newOp("SwiGLU", "composed", "")
)

// like is a number in a's type.
func (s *Scope) like(v float64, a Array) Array { return s.Scalar(v, a.Dtype()) }

// activation is compose for functions of one array.
func (s *Scope) activation(o op, a Array, f func(t *Scope) Array) Array {
	if i, ok := a.peek(s, o, 1); ok && !Dtype(i.Dtype).IsFloat() {
		return s.stop(o, "a floating-point type is needed", nil, a)
	}
	return s.compose(o, f, a)
}

// ReLU is max(a, 0), elementwise.
func (s *Scope) ReLU(a Array) Array {
	return s.activation(opReLU, a, func(t *Scope) Array { return t.Maximum(a, t.like(0, a)) })
}

// ReLU6 is a cut to [0, 6], elementwise.
func (s *Scope) ReLU6(a Array) Array {
	return s.activation(opReLU6, a, func(t *Scope) Array { return t.Minimum(t.Maximum(a, t.like(0, a)), t.like(6, a)) })
}

// LeakyReLU is a where positive, slope*a elsewhere, elementwise.
func (s *Scope) LeakyReLU(a Array, slope float64) Array {
	return s.activation(opLeakyReLU, a, func(t *Scope) Array { return t.Maximum(t.Mul(a, t.like(slope, a)), a) })
}

// ELU is a where positive, alpha*(e^a-1) elsewhere, elementwise.
func (s *Scope) ELU(a Array, alpha float64) Array {
	return s.activation(opELU, a, func(t *Scope) Array {
		return t.Where(t.Greater(a, t.like(0, a)), a, t.Mul(t.like(alpha, a), t.Expm1(a)))
	})
}

// SELU is [Scope.ELU] scaled so that mean 0 and variance 1 reproduce themselves, elementwise.
func (s *Scope) SELU(a Array) Array {
	return s.activation(opSELU, a, func(t *Scope) Array { return t.Mul(t.like(1.0507009873554805, a), t.ELU(a, 1.6732632423543772)) })
}

// CELU is a where positive, alpha*(e^(a/alpha)-1) elsewhere, elementwise.
func (s *Scope) CELU(a Array, alpha float64) Array {
	return s.activation(opCELU, a, func(t *Scope) Array {
		return t.Add(t.Maximum(a, t.like(0, a)), t.Mul(t.like(alpha, a), t.Expm1(t.Div(t.Minimum(a, t.like(0, a)), t.like(alpha, a)))))
	})
}

// GELU is a times the normal distribution's probability of at most a, elementwise.
func (s *Scope) GELU(a Array) Array {
	return s.activation(opGELU, a, func(t *Scope) Array {
		return t.Mul(t.Mul(a, t.Add(t.like(1, a), t.Erf(t.Mul(a, t.like(math.Sqrt2/2, a))))), t.like(0.5, a))
	})
}

// GELUTanh is [Scope.GELU] with tanh in place of the error function, elementwise.
func (s *Scope) GELUTanh(a Array) Array {
	return s.activation(opGELUTanh, a, func(t *Scope) Array {
		return t.Mul(t.Mul(a, t.like(0.5, a)), t.Add(t.like(1, a), t.Tanh(t.Mul(t.like(math.Sqrt(2/math.Pi), a), t.Add(a, t.Mul(t.like(0.044715, a), t.Mul(a, t.Square(a))))))))
	})
}

// GELUSigmoid is [Scope.GELU] as a*sigmoid(1.702a), elementwise.
func (s *Scope) GELUSigmoid(a Array) Array {
	return s.activation(opGELUSigmoid, a, func(t *Scope) Array { return t.Mul(a, t.Sigmoid(t.Mul(t.like(1.702, a), a))) })
}

// Mish is a*tanh(log(1+e^a)), elementwise.
func (s *Scope) Mish(a Array) Array {
	return s.activation(opMish, a, func(t *Scope) Array { return t.Mul(a, t.Tanh(t.Softplus(a))) })
}

// HardSwish is a*min(max(a+3, 0), 6)/6, elementwise.
func (s *Scope) HardSwish(a Array) Array {
	return s.activation(opHardSwish, a, func(t *Scope) Array { return t.Div(t.Mul(a, t.ReLU6(t.Add(a, t.like(3, a)))), t.like(6, a)) })
}

// Softsign is a/(1+|a|), elementwise.
func (s *Scope) Softsign(a Array) Array {
	return s.activation(opSoftsign, a, func(t *Scope) Array { return t.Div(a, t.Add(t.like(1, a), t.Abs(a))) })
}

// LogSigmoid is log(1/(1+e^-a)) without overflow, elementwise.
func (s *Scope) LogSigmoid(a Array) Array {
	return s.activation(opLogSigmoid, a, func(t *Scope) Array { return t.Neg(t.Softplus(t.Neg(a))) })
}

// LogSoftmax is a less the logarithm of the sum of e^a over axes, over all without axes, in a's shape.
func (s *Scope) LogSoftmax(a Array, axes ...int) Array {
	return s.activation(opLogSoftmax, a, func(t *Scope) Array { return t.Sub(a, t.LogSumExp(a, true, axes...)) })
}

// GLU halves an axis and gives the first half times the sigmoid of the second.
func (s *Scope) GLU(a Array, axis int) Array {
	return s.activation(opGLU, a, func(t *Scope) Array {
		halves := t.Split(a, 2, axis)
		if halves == nil {
			return Array{}
		}
		return t.Mul(halves[0], t.Sigmoid(halves[1]))
	})
}

// SwiGLU is x times [Scope.SiLU] of gate, elementwise.
func (s *Scope) SwiGLU(gate, x Array) Array {
	return s.compose(opSwiGLU, func(t *Scope) Array { return t.Mul(t.SiLU(gate), x) }, gate, x)
}
