package mlx

import "github.com/godflash/godflash/internal/mlxc"

// Comparisons and logic; results are of type Bool.

var (
	opEqual        = newOp("Equal", "mlx_equal", mlxc.Binary)
	opNotEqual     = newOp("NotEqual", "mlx_not_equal", mlxc.Binary)
	opLess         = newOp("Less", "mlx_less", mlxc.Binary)
	opLessEqual    = newOp("LessEqual", "mlx_less_equal", mlxc.Binary)
	opGreater      = newOp("Greater", "mlx_greater", mlxc.Binary)
	opGreaterEqual = newOp("GreaterEqual", "mlx_greater_equal", mlxc.Binary)
	opLogicalAnd   = newOp("LogicalAnd", "mlx_logical_and", mlxc.Binary)
	opLogicalOr    = newOp("LogicalOr", "mlx_logical_or", mlxc.Binary)

	opLogicalNot = newOp("LogicalNot", "mlx_logical_not", mlxc.Unary)
	opIsNaN      = newOp("IsNaN", "mlx_isnan", mlxc.Unary)
	opIsFinite   = newOp("IsFinite", "mlx_isfinite", mlxc.Unary)

	opArrayEqual = newOp("ArrayEqual", "mlx_array_equal", mlxc.BinaryBool)
)

// Equal is a == b, elementwise with broadcasting. (mlx_equal)
func (s *Scope) Equal(a, b Array) Array { return s.binary(opEqual, a, b) }

// NotEqual is a != b, elementwise with broadcasting. (mlx_not_equal)
func (s *Scope) NotEqual(a, b Array) Array { return s.binary(opNotEqual, a, b) }

// Less is a < b, elementwise with broadcasting. (mlx_less)
func (s *Scope) Less(a, b Array) Array { return s.binary(opLess, a, b) }

// LessEqual is a <= b, elementwise with broadcasting. (mlx_less_equal)
func (s *Scope) LessEqual(a, b Array) Array { return s.binary(opLessEqual, a, b) }

// Greater is a > b, elementwise with broadcasting. (mlx_greater)
func (s *Scope) Greater(a, b Array) Array { return s.binary(opGreater, a, b) }

// GreaterEqual is a >= b, elementwise with broadcasting. (mlx_greater_equal)
func (s *Scope) GreaterEqual(a, b Array) Array { return s.binary(opGreaterEqual, a, b) }

// LogicalAnd is a and b, where not 0 is true, elementwise with broadcasting. (mlx_logical_and)
func (s *Scope) LogicalAnd(a, b Array) Array { return s.binary(opLogicalAnd, a, b) }

// LogicalOr is a or b, where not 0 is true, elementwise with broadcasting. (mlx_logical_or)
func (s *Scope) LogicalOr(a, b Array) Array { return s.binary(opLogicalOr, a, b) }

// LogicalNot is true where a is 0 or false, elementwise. (mlx_logical_not)
func (s *Scope) LogicalNot(a Array) Array { return s.unary(opLogicalNot, a) }

// IsNaN is true where a is NaN, elementwise. (mlx_isnan)
func (s *Scope) IsNaN(a Array) Array { return s.unary(opIsNaN, a) }

// IsFinite is true where a is neither NaN nor infinite, elementwise. (mlx_isfinite)
func (s *Scope) IsFinite(a Array) Array { return s.unary(opIsFinite, a) }

// ArrayEqual is a scalar: true when shapes and all elements are equal. A NaN
// equals nothing. (mlx_array_equal)
func (s *Scope) ArrayEqual(a, b Array) Array {
	if !s.begin(opArrayEqual) {
		return Array{}
	}
	x, y := a.use(s, opArrayEqual, 1), b.use(s, opArrayEqual, 2)
	if x == 0 || y == 0 {
		return s.zeroInput(opArrayEqual, "", a, b)
	}
	h := mlxc.CallBinaryBool(opArrayEqual.fn(), x, y, false, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(opArrayEqual, h, "", a, b)
	}
	return s.put(opArrayEqual, h)
}

var (
	opAllClose = newOp("AllClose", "mlx_allclose", mlxc.ClassClose)
	opIsClose  = newOp("IsClose", "mlx_isclose", mlxc.ClassClose)
)

// AllClose is one truth value: whether |a-b| <= atol + rtol*|b| everywhere. NaN is
// close to NaN when equalNaN is set. (mlx_allclose)
func (s *Scope) AllClose(a, b Array, rtol, atol float64, equalNaN bool) Array {
	return s.close2(opAllClose, a, b, rtol, atol, equalNaN)
}

// IsClose is [Scope.AllClose] elementwise. (mlx_isclose)
func (s *Scope) IsClose(a, b Array, rtol, atol float64, equalNaN bool) Array {
	return s.close2(opIsClose, a, b, rtol, atol, equalNaN)
}

func (s *Scope) close2(o op, a, b Array, rtol, atol float64, equalNaN bool) Array {
	g := &mlxc.Args{D: [3]float64{rtol, atol}}
	g.SetBool(0, equalNaN)
	return s.call(o, g, 2, nil, a, b)
}

var (
	opLogicalXor = newOp("LogicalXor", "mlx_logical_xor", mlxc.Binary)
	opIsInf      = newOp("IsInf", "mlx_isinf", mlxc.Unary)
	opIsPosInf   = newOp("IsPosInf", "mlx_isposinf", mlxc.Unary)
	opIsNegInf   = newOp("IsNegInf", "mlx_isneginf", mlxc.Unary)
)

// LogicalXor is true where one of a and b is and the other is not, elementwise with
// broadcasting. (mlx_logical_xor)
func (s *Scope) LogicalXor(a, b Array) Array { return s.binary(opLogicalXor, a, b) }

// IsInf is true where a is infinite, elementwise. (mlx_isinf)
func (s *Scope) IsInf(a Array) Array { return s.unary(opIsInf, a) }

// IsPosInf is true where a is +∞, elementwise. (mlx_isposinf)
func (s *Scope) IsPosInf(a Array) Array { return s.unary(opIsPosInf, a) }

// IsNegInf is true where a is -∞, elementwise. (mlx_isneginf)
func (s *Scope) IsNegInf(a Array) Array { return s.unary(opIsNegInf, a) }
