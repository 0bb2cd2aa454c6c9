package mlx

import (
	"math"
	"strconv"

	"github.com/godflash/godflash/internal/mlxc"
)

// Decompositions work on matrices in the last two axes, of type Float32 or Float64,
// and run on CPUs only: on a GPU they fail unless [Scope.On] gives them a stream of the CPU. An empty array is an error. Those that find
// eigenvalues or singular values evaluate their input first and refuse NaN and infinities,
// over which LAPACK ends the process.

var (
	opInv             = newOp("Inv", "mlx_linalg_inv", mlxc.Unary)
	opPInv            = newOp("PInv", "mlx_linalg_pinv", mlxc.Unary)
	opTriInv          = newOp("TriInv", "mlx_linalg_tri_inv", mlxc.Bool)
	opCholesky        = newOp("Cholesky", "mlx_linalg_cholesky", mlxc.Bool)
	opCholeskyInv     = newOp("CholeskyInv", "mlx_linalg_cholesky_inv", mlxc.Bool)
	opSolve           = newOp("Solve", "mlx_linalg_solve", mlxc.Binary)
	opSolveTriangular = newOp("SolveTriangular", "mlx_linalg_solve_triangular", mlxc.BinaryBool)
	opDet             = newOp("Det", "mlx_linalg_det", mlxc.Unary)
	opSlogDet         = newOp("SlogDet", "mlx_linalg_slogdet", mlxc.ClassPair)
	opQR              = newOp("QR", "mlx_linalg_qr", mlxc.ClassPair)
	opEig             = newOp("Eig", "mlx_linalg_eig", mlxc.ClassPair)
	opEigVals         = newOp("EigVals", "mlx_linalg_eigvals", mlxc.Unary)
	opEigh            = newOp("Eigh", "mlx_linalg_eigh", mlxc.ClassPairText)
	opEigValsh        = newOp("EigValsh", "mlx_linalg_eigvalsh", mlxc.ClassText)
	opLU              = newOp("LU", "mlx_linalg_lu", mlxc.ClassMany)
	opLUFactor        = newOp("LUFactor", "mlx_linalg_lu_factor", mlxc.ClassPair)
	opSVD             = newOp("SVD", "mlx_linalg_svd", mlxc.ClassManyBool)
	opNorm            = newOp("Norm", "mlx_linalg_norm", mlxc.ClassNorm)
	opNormL2          = newOp("NormL2", "mlx_linalg_norm_l2", mlxc.IntsBool)
	opNormMatrix      = newOp("NormMatrix", "mlx_linalg_norm_matrix", mlxc.ClassNormMatrix)
)

// square calls f unless an input is empty, which LAPACK does not survive.
func (s *Scope) square(o op, f func() Array, in ...Array) Array {
	for _, a := range in {
		if s.isEmpty(a, o) {
			return s.stop(o, emptyText, nil, in...)
		}
	}
	return f()
}

// Inv is the inverse of square matrices. A singular one fails at evaluation. (mlx_linalg_inv)
func (s *Scope) Inv(a Array) Array {
	return s.square(opInv, func() Array { return s.unary(opInv, a) }, a)
}

// PInv is the Moore-Penrose inverse [..., N, M] of matrices [..., M, N]. (mlx_linalg_pinv)
func (s *Scope) PInv(a Array) Array {
	if !s.finite(opPInv, a) {
		return Array{}
	}
	return s.square(opPInv, func() Array { return s.unary(opPInv, a) }, a)
}

// TriInv is the inverse of triangular matrices, lower ones unless upper is set. (mlx_linalg_tri_inv)
func (s *Scope) TriInv(a Array, upper bool) Array {
	return s.square(opTriInv, func() Array { return s.withBool(opTriInv, a, upper) }, a)
}

// Cholesky is L with a = L Lᵀ for symmetric positive matrices, or U with a = Uᵀ U when
// upper is set. (mlx_linalg_cholesky)
func (s *Scope) Cholesky(a Array, upper bool) Array {
	return s.square(opCholesky, func() Array { return s.withBool(opCholesky, a, upper) }, a)
}

// CholeskyInv is the inverse of the matrices whose [Scope.Cholesky] factor is a. (mlx_linalg_cholesky_inv)
func (s *Scope) CholeskyInv(a Array, upper bool) Array {
	return s.square(opCholeskyInv, func() Array { return s.withBool(opCholeskyInv, a, upper) }, a)
}

// Solve is x with a x = b for square a [..., N, N] and b [..., N] or [..., N, K]. (mlx_linalg_solve)
func (s *Scope) Solve(a, b Array) Array {
	return s.square(opSolve, func() Array { return s.binary(opSolve, a, b) }, a, b)
}

// SolveTriangular is [Scope.Solve] for triangular a, lower unless upper is set. (mlx_linalg_solve_triangular)
func (s *Scope) SolveTriangular(a, b Array, upper bool) Array {
	return s.square(opSolveTriangular, func() Array {
		g := &mlxc.Args{}
		g.SetBool(0, upper)
		return s.call(opSolveTriangular, g, 2, nil, a, b)
	}, a, b)
}

// Det is the determinant of square matrices: [...]. (mlx_linalg_det)
func (s *Scope) Det(a Array) Array {
	return s.square(opDet, func() Array { return s.unary(opDet, a) }, a)
}

// SlogDet is the sign of the determinant and the logarithm of its size: [...] both. (mlx_linalg_slogdet)
func (s *Scope) SlogDet(a Array) (sign, logAbs Array) { return s.pair(opSlogDet, &mlxc.Args{}, a) }

// QR is q with orthonormal columns and upper triangular r with a = q r. (mlx_linalg_qr)
func (s *Scope) QR(a Array) (q, r Array) { return s.pair(opQR, &mlxc.Args{}, a) }

// LUFactor is both triangles of [Scope.LU] in one matrix, and the rows, Uint32, that
// were exchanged step by step. (mlx_linalg_lu_factor)
func (s *Scope) LUFactor(a Array) (lu, pivots Array) { return s.pair(opLUFactor, &mlxc.Args{}, a) }

// Eig is the eigenvalues [..., N] and, as columns, eigenvectors [..., N, N] of square
// matrices, Complex64. (mlx_linalg_eig)
func (s *Scope) Eig(a Array) (values, vectors Array) {
	if !s.finite(opEig, a) {
		return Array{}, Array{}
	}
	return s.pair(opEig, &mlxc.Args{}, a)
}

// EigVals is the eigenvalues of [Scope.Eig]. (mlx_linalg_eigvals)
func (s *Scope) EigVals(a Array) Array {
	if !s.finite(opEigVals, a) {
		return Array{}
	}
	return s.square(opEigVals, func() Array { return s.unary(opEigVals, a) }, a)
}

// finite evaluates a and fails when it holds NaN or infinities.
func (s *Scope) finite(o op, a Array) bool {
	if !s.begin(o) {
		return false
	}
	if i, ok := a.peek(s, o, 1); !ok || i.Size == 0 {
		return true // reported by the call
	}
	t := s.steps()
	defer t.close(closedByClose)
	all, err := Item[bool](t.All(t.IsFinite(a), false))
	if err == nil {
		err = t.Err()
	}
	if err != nil {
		s.Fail(&OpError{Op: ops[o].name, Inputs: describe([]Array{a}), Err: err})
		return false
	}
	if !all {
		s.refuse(o, "the matrix holds NaN or infinities", "", a)
	}
	return all
}

// Eigh is the eigenvalues, ascending, [..., N] and, as columns, eigenvectors [..., N, N]
// of symmetric matrices, of which the lower triangle is read unless upper is set.
// (mlx_linalg_eigh)
func (s *Scope) Eigh(a Array, upper bool) (values, vectors Array) {
	if !s.finite(opEigh, a) {
		return Array{}, Array{}
	}
	g := &mlxc.Args{}
	g.SetBool(0, upper)
	return s.pair(opEigh, g, a)
}

// EigValsh is the eigenvalues of [Scope.Eigh]. (mlx_linalg_eigvalsh)
func (s *Scope) EigValsh(a Array, upper bool) Array {
	if !s.finite(opEigValsh, a) {
		return Array{}
	}
	g := &mlxc.Args{}
	g.SetBool(0, upper)
	return s.square(opEigValsh, func() Array { return s.call(opEigValsh, g, 1, nil, a) }, a)
}

func (s *Scope) pair(o op, g *mlxc.Args, a Array) (Array, Array) {
	if s.isEmpty(a, o) {
		s.stop(o, emptyText, nil, a)
		return Array{}, Array{}
	}
	if parts := s.callMany(o, g, 1, 2, nil, a); len(parts) == 2 {
		return parts[0], parts[1]
	}
	return Array{}, Array{}
}

// LU is the permutation of rows [..., M], Uint32, lower triangular l with 1 on its
// diagonal and upper triangular u, with a[p] = l u. (mlx_linalg_lu)
func (s *Scope) LU(a Array) (p, l, u Array) {
	if s.isEmpty(a, opLU) {
		s.stop(opLU, emptyText, nil, a)
		return Array{}, Array{}, Array{}
	}
	if parts := s.callMany(opLU, &mlxc.Args{}, 1, 3, nil, a); len(parts) == 3 {
		return parts[0], parts[1], parts[2]
	}
	return Array{}, Array{}, Array{}
}

// SVD is u [..., M, M], the singular values, descending, [..., min(M, N)] and vᵀ
// [..., N, N] with a = u diag(values) vᵀ. (mlx_linalg_svd)
func (s *Scope) SVD(a Array) (u, values, vt Array) {
	if parts := s.svd(a, true, 3); len(parts) == 3 {
		return parts[0], parts[1], parts[2]
	}
	return Array{}, Array{}, Array{}
}

// SingularValues is the values of [Scope.SVD]. (mlx_linalg_svd)
func (s *Scope) SingularValues(a Array) Array {
	if parts := s.svd(a, false, 1); len(parts) == 1 {
		return parts[0]
	}
	return Array{}
}

func (s *Scope) svd(a Array, vectors bool, n int) []Array {
	if !s.finite(opSVD, a) {
		return nil
	}
	if s.isEmpty(a, opSVD) {
		s.stop(opSVD, emptyText, nil, a)
		return nil
	}
	g := &mlxc.Args{}
	g.SetBool(0, vectors)
	return s.callMany(opSVD, g, 1, n, nil, a)
}

// Norm is the norm of order ord of vectors along one axis, or of matrices along two:
// for vectors the number of elements that are not 0, or (sum |x|^ord)^(1/ord), or the
// largest or smallest |x| for an infinite ord; for matrices ord is ±1, ±2 or ±Inf. Without
// axes a vector or a matrix is needed. (mlx_linalg_norm)
func (s *Scope) Norm(a Array, ord float64, keepDims bool, axes ...int) Array {
	text := func() string {
		return "order " + strconv.FormatFloat(ord, 'g', -1, 64) + ", axes " + formatInts(axes)
	}
	if math.IsNaN(ord) {
		return s.stop(opNorm, "the order is no number", text, a)
	}
	if (ord == 2 || ord == -2) && len(axes) != 1 && a.Valid() && !s.finite(opNorm, a) { // goes by singular values
		return Array{}
	}
	return s.norm(opNorm, &mlxc.Args{D: [3]float64{ord}}, text, a, keepDims, axes)
}

// NormL2 is the root of the sum of squares over one or two axes, or over all without
// axes. (mlx_linalg_norm_l2)
func (s *Scope) NormL2(a Array, keepDims bool, axes ...int) Array {
	return s.norm(opNormL2, &mlxc.Args{}, func() string { return "axes " + formatInts(axes) }, a, keepDims, axes)
}

// NormFrobenius is the root of the sum of squares of matrices along two axes. (mlx_linalg_norm_matrix)
func (s *Scope) NormFrobenius(a Array, keepDims bool, axes ...int) Array {
	return s.norm(opNormMatrix, &mlxc.Args{}, func() string { return "frobenius, axes " + formatInts(axes) }, a, keepDims, axes)
}

// NormNuclear is the sum of the singular values of matrices along two axes. (mlx_linalg_norm_matrix)
func (s *Scope) NormNuclear(a Array, keepDims bool, axes ...int) Array {
	if !s.finite(opNormMatrix, a) {
		return Array{}
	}
	g := &mlxc.Args{}
	g.I[1] = 1
	return s.norm(opNormMatrix, g, func() string { return "nuclear, axes " + formatInts(axes) }, a, keepDims, axes)
}

func (s *Scope) norm(o op, g *mlxc.Args, text func() string, a Array, keepDims bool, axes []int) Array {
	p, ok := pack(axes)
	if !ok || repeats(axes) {
		return s.stop(o, "axes must differ and be at most 8", text, a)
	}
	if s.isEmpty(a, o) {
		return s.stop(o, emptyText, text, a)
	}
	g.L[0] = p
	g.SetBool(0, keepDims)
	return s.call(o, g, 1, text, a)
}
