package mlx

import "github.com/godflash/godflash/internal/mlxc"

var (
	opVar             = newOp("Var", "mlx_var_axes", mlxc.ClassIntsBoolInt)
	opVarAll          = newOp("Var", "mlx_var", mlxc.ClassBoolInt)
	opStd             = newOp("Std", "mlx_std_axes", mlxc.ClassIntsBoolInt)
	opStdAll          = newOp("Std", "mlx_std", mlxc.ClassBoolInt)
	opMedian          = newOp("Median", "mlx_median_axes", mlxc.IntsBool)
	opMedianAll       = newOp("Median", "mlx_median", mlxc.Bool)
	opCountNonzero    = newOp("CountNonzero", "mlx_count_nonzero_axes", mlxc.IntsBool)
	opCountNonzeroAll = newOp("CountNonzero", "mlx_count_nonzero", mlxc.Bool)
	opCumMax          = newOp("CumMax", "mlx_cummax_axis", mlxc.ClassOrderedScan)
	opCumMin          = newOp("CumMin", "mlx_cummin_axis", mlxc.ClassOrderedScan)
	opLogCumSumExp    = newOp("LogCumSumExp", "mlx_logcumsumexp_axis", mlxc.ClassOrderedScan)
	opDiff            = newOp("Diff", "mlx_diff", mlxc.Int2)
	opPartition       = newOp("Partition", "mlx_partition_axis", mlxc.Int2)
	opSearchSorted    = newOp("SearchSorted", "mlx_searchsorted", mlxc.ClassSearchsorted)
)

// Var is the variance over axes: the squares' sum divided by the number of elements
// less ddof. (mlx_var_axes, mlx_var)
func (s *Scope) Var(a Array, keepDims bool, ddof int, axes ...int) Array {
	return s.spreadOf(opVarAll, opVar, a, keepDims, ddof, axes)
}

// Std is the standard deviation, the root of [Scope.Var]. (mlx_std_axes, mlx_std)
func (s *Scope) Std(a Array, keepDims bool, ddof int, axes ...int) Array {
	return s.spreadOf(opStdAll, opStd, a, keepDims, ddof, axes)
}

func (s *Scope) spreadOf(all, some op, a Array, keepDims bool, ddof int, axes []int) Array {
	text := func() string { return "axes " + formatInts(axes) + ", " + args1("ddof", ddof) }
	p, ok := pack(axes)
	if !ok || !fits(ddof) {
		return s.stop(some, limitText, text, a)
	}
	if b, empty := s.fresh(some, a); empty {
		defer s.drop(b)
		a = b
	}
	g := &mlxc.Args{}
	g.SetBool(0, keepDims)
	g.I[1] = int32(ddof)
	if len(axes) == 0 {
		return s.call(all, g, 1, text, a)
	}
	g.L[0] = p
	return s.call(some, g, 1, text, a)
}

// Median is the middle element over axes, the mean of the two for an even number. An
// empty array is an error. (mlx_median_axes, mlx_median)
func (s *Scope) Median(a Array, keepDims bool, axes ...int) Array {
	if s.isEmpty(a, opMedian) {
		return s.stop(opMedian, emptyText, nil, a)
	}
	return s.reduce(opMedianAll, opMedian, a, keepDims, axes)
}

// CountNonzero is the number, Int32, of elements that are not 0 over axes.
// (mlx_count_nonzero_axes, mlx_count_nonzero)
func (s *Scope) CountNonzero(a Array, keepDims bool, axes ...int) Array {
	return s.reduce(opCountNonzeroAll, opCountNonzero, a, keepDims, axes)
}

// ScanFlag changes how a running sum, product or extreme is taken.
type ScanFlag uint8

// Flags of the scans.
const (
	Reverse   ScanFlag = 1 << iota // from the end towards the beginning
	Exclusive                      // without the element itself
)

// CumMax is the largest element so far along an axis, in a's shape. An empty array is
// an error. (mlx_cummax_axis)
func (s *Scope) CumMax(a Array, axis int, flags ...ScanFlag) Array {
	return s.scan(opCumMax, a, axis, flags)
}

// CumMin is the smallest element so far along an axis, in a's shape. An empty array is
// an error. (mlx_cummin_axis)
func (s *Scope) CumMin(a Array, axis int, flags ...ScanFlag) Array {
	return s.scan(opCumMin, a, axis, flags)
}

// LogCumSumExp is the log of the running sum of e^a along an axis, in a's shape. An
// empty array is an error. (mlx_logcumsumexp_axis)
func (s *Scope) LogCumSumExp(a Array, axis int, flags ...ScanFlag) Array {
	return s.scan(opLogCumSumExp, a, axis, flags)
}

func (s *Scope) scan(o op, a Array, axis int, flags []ScanFlag) Array {
	text := func() string { return args1("axis", axis) }
	if !fits(axis) {
		return s.stop(o, limitText, text, a)
	}
	if s.isEmpty(a, o) { // the CPU divides by the size
		return s.stop(o, emptyText, text, a)
	}
	f := ScanFlag(0)
	for _, x := range flags {
		f |= x
	}
	g := &mlxc.Args{I: [14]int32{int32(axis)}}
	g.SetBool(1, f&Reverse != 0)
	g.SetBool(2, f&Exclusive == 0)
	return s.call(o, g, 1, text, a)
}

// Diff is the difference of neighbours along an axis, n times over; each time the
// axis becomes shorter by 1. (mlx_diff)
func (s *Scope) Diff(a Array, n, axis int) Array {
	if n < 0 {
		return s.stop(opDiff, "n must not be negative", func() string { return args2("n", n, "axis", axis) }, a)
	}
	if i, ok := a.peek(s, opDiff, 1); ok {
		for k, d := range i.Shape {
			if k == axis || k-len(i.Shape) == axis {
				n = min(n, int(d)) // nothing is left; MLX would go on
			}
		}
	}
	return s.withInt2(opDiff, a, n, axis, "n", "axis")
}

// Partition is a rearranged along an axis such that place kth holds what sorting would
// put there, smaller elements come before it and larger ones after, in no order. (mlx_partition_axis)
func (s *Scope) Partition(a Array, kth, axis int) Array {
	return s.withInt2(opPartition, a, kth, axis, "kth", "axis")
}

// SearchSorted is, for each of values, the index, Uint32, at which it keeps the vector
// sorted in order: before equals, or after them when after is set. (mlx_searchsorted)
func (s *Scope) SearchSorted(sorted, values Array, after bool) Array {
	g := &mlxc.Args{}
	g.SetBool(0, after)
	return s.call(opSearchSorted, g, 2, nil, sorted, values)
}
