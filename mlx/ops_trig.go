package mlx

import "github.com/godflash/godflash/internal/mlxc"

var (
	opArccos     = newOp("Arccos", "mlx_arccos", mlxc.Unary)
	opArcsin     = newOp("Arcsin", "mlx_arcsin", mlxc.Unary)
	opArctan     = newOp("Arctan", "mlx_arctan", mlxc.Unary)
	opArccosh    = newOp("Arccosh", "mlx_arccosh", mlxc.Unary)
	opArcsinh    = newOp("Arcsinh", "mlx_arcsinh", mlxc.Unary)
	opArctanh    = newOp("Arctanh", "mlx_arctanh", mlxc.Unary)
	opTan        = newOp("Tan", "mlx_tan", mlxc.Unary)
	opSinh       = newOp("Sinh", "mlx_sinh", mlxc.Unary)
	opCosh       = newOp("Cosh", "mlx_cosh", mlxc.Unary)
	opDegrees    = newOp("Degrees", "mlx_degrees", mlxc.Unary)
	opRadians    = newOp("Radians", "mlx_radians", mlxc.Unary)
	opCeil       = newOp("Ceil", "mlx_ceil", mlxc.Unary)
	opFloor      = newOp("Floor", "mlx_floor", mlxc.Unary)
	opTrunc      = newOp("Trunc", "mlx_trunc", mlxc.Unary)
	opSign       = newOp("Sign", "mlx_sign", mlxc.Unary)
	opReciprocal = newOp("Reciprocal", "mlx_reciprocal", mlxc.Unary)
	opExpm1      = newOp("Expm1", "mlx_expm1", mlxc.Unary)
	opLog2       = newOp("Log2", "mlx_log2", mlxc.Unary)
	opLog10      = newOp("Log10", "mlx_log10", mlxc.Unary)
	opErfInv     = newOp("ErfInv", "mlx_erfinv", mlxc.Unary)
	opConjugate  = newOp("Conjugate", "mlx_conjugate", mlxc.Unary)
	opReal       = newOp("Real", "mlx_real", mlxc.Unary)
	opImag       = newOp("Imag", "mlx_imag", mlxc.Unary)
	opArctan2    = newOp("Arctan2", "mlx_arctan2", mlxc.Binary)
	opBitAnd     = newOp("BitAnd", "mlx_bitwise_and", mlxc.Binary)
	opBitOr      = newOp("BitOr", "mlx_bitwise_or", mlxc.Binary)
	opBitXor     = newOp("BitXor", "mlx_bitwise_xor", mlxc.Binary)
	opShiftLeft  = newOp("ShiftLeft", "mlx_left_shift", mlxc.Binary)
	opShiftRight = newOp("ShiftRight", "mlx_right_shift", mlxc.Binary)
	opBitNot     = newOp("BitNot", "mlx_bitwise_invert", mlxc.Unary)
	opRound      = newOp("Round", "mlx_round", mlxc.Int)
	opNaNToNum   = newOp("NaNToNum", "mlx_nan_to_num", mlxc.ClassNanToNum)
)

// Arccos is the angle whose cosine is a, in radians, elementwise. (mlx_arccos)
func (s *Scope) Arccos(a Array) Array { return s.unary(opArccos, a) }

// Arcsin is the angle whose sine is a, in radians, elementwise. (mlx_arcsin)
func (s *Scope) Arcsin(a Array) Array { return s.unary(opArcsin, a) }

// Arctan is the angle whose tangent is a, in radians, elementwise. (mlx_arctan)
func (s *Scope) Arctan(a Array) Array { return s.unary(opArctan, a) }

// Arccosh is the inverse hyperbolic cosine of a, elementwise. (mlx_arccosh)
func (s *Scope) Arccosh(a Array) Array { return s.unary(opArccosh, a) }

// Arcsinh is the inverse hyperbolic sine of a, elementwise. (mlx_arcsinh)
func (s *Scope) Arcsinh(a Array) Array { return s.unary(opArcsinh, a) }

// Arctanh is the inverse hyperbolic tangent of a, elementwise. (mlx_arctanh)
func (s *Scope) Arctanh(a Array) Array { return s.unary(opArctanh, a) }

// Tan is the tangent of a, in radians, elementwise. (mlx_tan)
func (s *Scope) Tan(a Array) Array { return s.unary(opTan, a) }

// Sinh is the hyperbolic sine of a, elementwise. (mlx_sinh)
func (s *Scope) Sinh(a Array) Array { return s.unary(opSinh, a) }

// Cosh is the hyperbolic cosine of a, elementwise. (mlx_cosh)
func (s *Scope) Cosh(a Array) Array { return s.unary(opCosh, a) }

// Degrees is a, in radians, in degrees, elementwise. (mlx_degrees)
func (s *Scope) Degrees(a Array) Array { return s.unary(opDegrees, a) }

// Radians is a, in degrees, in radians, elementwise. (mlx_radians)
func (s *Scope) Radians(a Array) Array { return s.unary(opRadians, a) }

// Ceil is the least whole number not below a, elementwise. (mlx_ceil)
func (s *Scope) Ceil(a Array) Array { return s.unary(opCeil, a) }

// Floor is the largest whole number not above a, elementwise. (mlx_floor)
func (s *Scope) Floor(a Array) Array { return s.unary(opFloor, a) }

// Trunc is a without its fraction, elementwise. (mlx_trunc)
func (s *Scope) Trunc(a Array) Array { return s.unary(opTrunc, a) }

// Sign is -1, 0 or 1, elementwise. (mlx_sign)
func (s *Scope) Sign(a Array) Array { return s.unary(opSign, a) }

// Reciprocal is 1/a, elementwise. (mlx_reciprocal)
func (s *Scope) Reciprocal(a Array) Array { return s.unary(opReciprocal, a) }

// Expm1 is e^a-1, exact near 0, elementwise. (mlx_expm1)
func (s *Scope) Expm1(a Array) Array { return s.unary(opExpm1, a) }

// Log2 is the logarithm of a to base 2, elementwise. (mlx_log2)
func (s *Scope) Log2(a Array) Array { return s.unary(opLog2, a) }

// Log10 is the logarithm of a to base 10, elementwise. (mlx_log10)
func (s *Scope) Log10(a Array) Array { return s.unary(opLog10, a) }

// ErfInv is the inverse of the error function, elementwise. (mlx_erfinv)
func (s *Scope) ErfInv(a Array) Array { return s.unary(opErfInv, a) }

// Conjugate is the complex conjugate, elementwise. (mlx_conjugate)
func (s *Scope) Conjugate(a Array) Array { return s.unary(opConjugate, a) }

// Real is the real part, elementwise. (mlx_real)
func (s *Scope) Real(a Array) Array { return s.unary(opReal, a) }

// Imag is the imaginary part, elementwise. (mlx_imag)
func (s *Scope) Imag(a Array) Array { return s.unary(opImag, a) }

// Arctan2 is the angle of the point (b, a), in radians, in [-π, π], elementwise with broadcasting. (mlx_arctan2)
func (s *Scope) Arctan2(a, b Array) Array { return s.binary(opArctan2, a, b) }

// BitAnd is the bits set in both, for integers and Bool, elementwise with broadcasting. (mlx_bitwise_and)
func (s *Scope) BitAnd(a, b Array) Array { return s.binary(opBitAnd, a, b) }

// BitOr is the bits set in one or both, for integers and Bool, elementwise with broadcasting. (mlx_bitwise_or)
func (s *Scope) BitOr(a, b Array) Array { return s.binary(opBitOr, a, b) }

// BitXor is the bits set in one, not both, for integers and Bool, elementwise with broadcasting. (mlx_bitwise_xor)
func (s *Scope) BitXor(a, b Array) Array { return s.binary(opBitXor, a, b) }

// BitNot is the bits not set, for integers and Bool, elementwise. (mlx_bitwise_invert)
func (s *Scope) BitNot(a Array) Array { return s.unary(opBitNot, a) }

// ShiftLeft moves a's bits b places up, elementwise with broadcasting, for integers.
// The result is not defined where b is negative or not below the number of bits. (mlx_left_shift)
func (s *Scope) ShiftLeft(a, b Array) Array { return s.binary(opShiftLeft, a, b) }

// ShiftRight moves a's bits b places down, elementwise with broadcasting, for integers.
// The result is not defined where b is negative or not below the number of bits. (mlx_right_shift)
func (s *Scope) ShiftRight(a, b Array) Array { return s.binary(opShiftRight, a, b) }

// Round rounds to decimals places after the point, ties to even, elementwise; a
// negative number rounds before the point. (mlx_round)
func (s *Scope) Round(a Array, decimals int) Array { return s.number(opRound, a, decimals, "decimals") }

// DivMod is [Scope.FloorDiv] and [Scope.Remainder] at once. (mlx_floor_divide, mlx_remainder)
func (s *Scope) DivMod(a, b Array) (quotient, remainder Array) {
	return s.FloorDiv(a, b), s.Remainder(a, b)
}

// NaNToNum replaces NaN by 0 and infinities by the type's largest and smallest
// numbers, elementwise. (mlx_nan_to_num)
func (s *Scope) NaNToNum(a Array) Array { return s.call(opNaNToNum, &mlxc.Args{}, 1, nil, a) }

// NaNInfToNum replaces NaN and the two infinities by numbers, elementwise. (mlx_nan_to_num)
func (s *Scope) NaNInfToNum(a Array, nan, posInf, negInf float32) Array {
	g := &mlxc.Args{D: [3]float64{float64(nan), float64(posInf), float64(negInf)}}
	g.SetBool(0, true)
	g.SetBool(1, true)
	return s.call(opNaNToNum, g, 1, nil, a)
}
