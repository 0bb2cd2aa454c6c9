package mlx

import (
	"math"
	"strconv"

	"github.com/godflash/godflash/internal/mlxc"
)

var (
	opEye        = newOp("Eye", "mlx_eye", mlxc.ClassTri)
	opTri        = newOp("Tri", "mlx_tri", mlxc.ClassTri)
	opIdentity   = newOp("Identity", "mlx_identity", mlxc.ClassIdentity)
	opTril       = newOp("Tril", "mlx_tril", mlxc.Int)
	opTriu       = newOp("Triu", "mlx_triu", mlxc.Int)
	opDiag       = newOp("Diag", "mlx_diag", mlxc.Int)
	opLinspace   = newOp("Linspace", "mlx_linspace_endpoint", mlxc.ClassLinspace)
	opBartlett   = newOp("Bartlett", "mlx_bartlett", mlxc.ClassWindow)
	opBlackman   = newOp("Blackman", "mlx_blackman", mlxc.ClassWindow)
	opHamming    = newOp("Hamming", "mlx_hamming", mlxc.ClassWindow)
	opHanning    = newOp("Hanning", "mlx_hanning", mlxc.ClassWindow)
	opZerosLike  = newOp("ZerosLike", "mlx_zeros_like", mlxc.Unary)
	opOnesLike   = newOp("OnesLike", "mlx_ones_like", mlxc.Unary)
	opFullLike   = newOp("FullLike", "mlx_full_like", mlxc.ClassFullLike)
	opMeshgrid   = newOp("Meshgrid", "mlx_meshgrid", mlxc.ClassMeshgrid)
	opBroadcasts = newOp("BroadcastArrays", "mlx_broadcast_arrays", mlxc.ClassManyVector)
)

// Eye is [n, m] with 1 on diagonal k (above the main one when positive) and 0
// elsewhere. (mlx_eye)
func (s *Scope) Eye(n, m, k int, dt Dtype) Array { return s.tri(opEye, n, m, k, dt) }

// Tri is [n, m] with 1 on and below diagonal k and 0 above. (mlx_tri)
func (s *Scope) Tri(n, m, k int, dt Dtype) Array { return s.tri(opTri, n, m, k, dt) }

func (s *Scope) tri(o op, n, m, k int, dt Dtype) Array {
	if !s.begin(o) {
		return Array{}
	}
	if _, ok := s.checkShape(o, dt, []int{n, m}); !ok {
		return Array{}
	}
	text := func() string { return fillArgs(dt, []int{n, m}) + ", " + args1("k", k) }
	if !fits(k) || !fits(m-k) || !fits(n-k) || !fits(n+k) || !fits(m+k) {
		return s.stop(o, limitText, text)
	}
	if n == 0 || m == 0 { // MLX would count along the other axis
		return s.fill(opZeros, dt, []int{n, m})
	}
	return s.call(o, &mlxc.Args{I: [14]int32{int32(n), int32(m), int32(k), int32(dt)}}, 0, text)
}

// Identity is [n, n] with 1 on the main diagonal and 0 elsewhere. (mlx_identity)
func (s *Scope) Identity(n int, dt Dtype) Array {
	if !s.begin(opIdentity) {
		return Array{}
	}
	if _, ok := s.checkShape(opIdentity, dt, []int{n, n}); !ok {
		return Array{}
	}
	return s.call(opIdentity, &mlxc.Args{I: [14]int32{int32(n), int32(dt)}}, 0, func() string { return fillArgs(dt, []int{n, n}) })
}

// Tril is a [..., N, M] with 0 above diagonal k. (mlx_tril)
func (s *Scope) Tril(a Array, k int) Array { return s.number(opTril, a, k, "k") }

// Triu is a [..., N, M] with 0 below diagonal k. (mlx_triu)
func (s *Scope) Triu(a Array, k int) Array { return s.number(opTriu, a, k, "k") }

// Diag is diagonal k of a matrix, or the square matrix with a vector on diagonal
// k and 0 elsewhere. (mlx_diag)
func (s *Scope) Diag(a Array, k int) Array {
	if k > maxDiagonal || k < -maxDiagonal {
		return s.stop(opDiag, "impossible diagonal", func() string { return args1("k", k) }, a)
	}
	return s.number(opDiag, a, k, "k")
}

// A vector on a diagonal further out makes a matrix that no memory holds.
const maxDiagonal = 1 << 20

// number serves functions of one array and one number that take empty arrays, too.
func (s *Scope) number(o op, a Array, i int, what string) Array {
	text := func() string { return args1(what, i) }
	if !fits(i) {
		return s.stop(o, limitText, text, a)
	}
	return s.call(o, &mlxc.Args{I: [14]int32{int32(i)}}, 1, text, a)
}

// Linspace is n numbers at equal distances from start to stop: [n]. (mlx_linspace_endpoint)
func (s *Scope) Linspace(start, stop float64, n int, dt Dtype) Array {
	return s.linspace(start, stop, n, true, dt)
}

// LinspaceOpen is [Scope.Linspace] without stop itself: the distance is
// (stop-start)/n. (mlx_linspace_endpoint)
func (s *Scope) LinspaceOpen(start, stop float64, n int, dt Dtype) Array {
	return s.linspace(start, stop, n, false, dt)
}

func (s *Scope) linspace(start, stop float64, n int, end bool, dt Dtype) Array {
	if !s.begin(opLinspace) {
		return Array{}
	}
	text := func() string {
		f := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
		return f(start) + ", " + f(stop) + ", " + args1("n", n) + ", " + dt.String()
	}
	if !dt.valid() || dt == Bool || dt == Complex64 {
		return s.stop(opLinspace, "a real number type is needed", text)
	}
	if n < 0 || !fits(n) || math.IsNaN(start) || math.IsNaN(stop) {
		return s.stop(opLinspace, "impossible range", text)
	}
	g := &mlxc.Args{D: [3]float64{start, stop}, I: [14]int32{int32(n), 0, int32(dt)}}
	g.SetBool(1, end)
	return s.call(opLinspace, g, 0, text)
}

// Bartlett is the triangular window of n points, Float32. (mlx_bartlett)
func (s *Scope) Bartlett(n int) Array { return s.window(opBartlett, n) }

// Blackman is the Blackman window of n points, Float32. (mlx_blackman)
func (s *Scope) Blackman(n int) Array { return s.window(opBlackman, n) }

// Hamming is the Hamming window of n points, Float32. (mlx_hamming)
func (s *Scope) Hamming(n int) Array { return s.window(opHamming, n) }

// Hanning is the Hann window of n points, Float32. (mlx_hanning)
func (s *Scope) Hanning(n int) Array { return s.window(opHanning, n) }

func (s *Scope) window(o op, n int) Array {
	text := func() string { return args1("n", n) }
	if n < 1 || !fits(n) {
		return s.stop(o, "n must be positive", text)
	}
	return s.call(o, &mlxc.Args{I: [14]int32{int32(n)}}, 0, text)
}

// ZerosLike is 0 in a's shape and type. (mlx_zeros_like)
func (s *Scope) ZerosLike(a Array) Array { return s.unary(opZerosLike, a) }

// OnesLike is 1 in a's shape and type. (mlx_ones_like)
func (s *Scope) OnesLike(a Array) Array { return s.unary(opOnesLike, a) }

// FullLike is v, which broadcasts, in a's shape and in type dt. (mlx_full_like)
func (s *Scope) FullLike(a, v Array, dt Dtype) Array {
	if !dt.valid() {
		return s.stop(opFullLike, "unknown type", dt.String, a, v)
	}
	return s.call(opFullLike, &mlxc.Args{I: [14]int32{int32(dt)}}, 2, dt.String, a, v)
}

// Meshgrid makes coordinate matrices of vectors, result i holding vector i. With
// matrix indexing (i, j) the first vector runs along the first axis, otherwise
// (x, y) along the second. sparse keeps length 1 where a result is constant. It
// is nil on error. (mlx_meshgrid)
func (s *Scope) Meshgrid(matrix, sparse bool, vectors ...Array) []Array {
	g := &mlxc.Args{}
	g.SetBool(0, sparse)
	g.SetBool(1, matrix)
	return s.callVector(opMeshgrid, g, nil, vectors)
}

// BroadcastArrays gives all arrays in the shape to which they broadcast together.
// It is nil on error. (mlx_broadcast_arrays)
func (s *Scope) BroadcastArrays(arrays ...Array) []Array {
	return s.callVector(opBroadcasts, &mlxc.Args{}, nil, arrays)
}
