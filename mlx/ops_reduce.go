package mlx

import "github.com/godflash/godflash/internal/mlxc"

// Reductions run over the named axes, or over all when none is named. Reduced axes
// disappear, or stay with length 1 when keepDims is set.

var (
	opSum          = newOp("Sum", "mlx_sum_axes", mlxc.IntsBool)
	opSumAll       = newOp("Sum", "mlx_sum", mlxc.Bool)
	opMean         = newOp("Mean", "mlx_mean_axes", mlxc.IntsBool)
	opMeanAll      = newOp("Mean", "mlx_mean", mlxc.Bool)
	opMax          = newOp("Max", "mlx_max_axes", mlxc.IntsBool)
	opMaxAll       = newOp("Max", "mlx_max", mlxc.Bool)
	opMin          = newOp("Min", "mlx_min_axes", mlxc.IntsBool)
	opMinAll       = newOp("Min", "mlx_min", mlxc.Bool)
	opProd         = newOp("Prod", "mlx_prod_axes", mlxc.IntsBool)
	opProdAll      = newOp("Prod", "mlx_prod", mlxc.Bool)
	opAll          = newOp("All", "mlx_all_axes", mlxc.IntsBool)
	opAllAll       = newOp("All", "mlx_all", mlxc.Bool)
	opAny          = newOp("Any", "mlx_any_axes", mlxc.IntsBool)
	opAnyAll       = newOp("Any", "mlx_any", mlxc.Bool)
	opLogSumExp    = newOp("LogSumExp", "mlx_logsumexp_axes", mlxc.IntsBool)
	opLogSumExpAll = newOp("LogSumExp", "mlx_logsumexp", mlxc.Bool)
	opSoftmax      = newOp("Softmax", "mlx_softmax_axes", mlxc.IntsBool)
	opSoftmaxAll   = newOp("Softmax", "mlx_softmax", mlxc.Bool)
	opArgmax       = newOp("Argmax", "mlx_argmax_axis", mlxc.IntBool)
	opArgmin       = newOp("Argmin", "mlx_argmin_axis", mlxc.IntBool)
	opCumSum       = newOp("CumSum", "mlx_cumsum_axis", mlxc.Scan)
	opCumProd      = newOp("CumProd", "mlx_cumprod_axis", mlxc.Scan)
	opSort         = newOp("Sort", "mlx_sort_axis", mlxc.Int)
	opArgsort      = newOp("Argsort", "mlx_argsort_axis", mlxc.Int)
	opArgpartition = newOp("Argpartition", "mlx_argpartition_axis", mlxc.Int2)
	opTopK         = newOp("TopK", "mlx_topk_axis", mlxc.Int2)
)

// Sum is the sum over axes. (mlx_sum_axes, mlx_sum)
func (s *Scope) Sum(a Array, keepDims bool, axes ...int) Array {
	return s.reduce(opSumAll, opSum, a, keepDims, axes)
}

// Mean is the mean; integers become Float32 over axes. (mlx_mean_axes, mlx_mean)
func (s *Scope) Mean(a Array, keepDims bool, axes ...int) Array {
	return s.reduce(opMeanAll, opMean, a, keepDims, axes)
}

// Max is the largest element over axes. (mlx_max_axes, mlx_max)
func (s *Scope) Max(a Array, keepDims bool, axes ...int) Array {
	return s.reduce(opMaxAll, opMax, a, keepDims, axes)
}

// Min is the smallest element over axes. (mlx_min_axes, mlx_min)
func (s *Scope) Min(a Array, keepDims bool, axes ...int) Array {
	return s.reduce(opMinAll, opMin, a, keepDims, axes)
}

// Prod is the product over axes. (mlx_prod_axes, mlx_prod)
func (s *Scope) Prod(a Array, keepDims bool, axes ...int) Array {
	return s.reduce(opProdAll, opProd, a, keepDims, axes)
}

// All is true where all elements are true over axes. (mlx_all_axes, mlx_all)
func (s *Scope) All(a Array, keepDims bool, axes ...int) Array {
	return s.reduce(opAllAll, opAll, a, keepDims, axes)
}

// Any is true where one element is true over axes. (mlx_any_axes, mlx_any)
func (s *Scope) Any(a Array, keepDims bool, axes ...int) Array {
	return s.reduce(opAnyAll, opAny, a, keepDims, axes)
}

// LogSumExp is log of the sum of e^a, without overflow over axes. (mlx_logsumexp_axes, mlx_logsumexp)
func (s *Scope) LogSumExp(a Array, keepDims bool, axes ...int) Array {
	return s.reduce(opLogSumExpAll, opLogSumExp, a, keepDims, axes)
}

// Softmax is e^a / sum(e^a) over axes, in a's shape. precise computes in float32
// whatever the type of a. (mlx_softmax_axes, mlx_softmax)
func (s *Scope) Softmax(a Array, precise bool, axes ...int) Array {
	return s.reduce(opSoftmaxAll, opSoftmax, a, precise, axes)
}

// Argmax is the index, Uint32, of the largest element along an axis; the first of equals. (mlx_argmax_axis)
func (s *Scope) Argmax(a Array, axis int, keepDims bool) Array {
	return s.argReduce(opArgmax, a, axis, keepDims)
}

// Argmin is the index, Uint32, of the smallest element along an axis; the first of equals. (mlx_argmin_axis)
func (s *Scope) Argmin(a Array, axis int, keepDims bool) Array {
	return s.argReduce(opArgmin, a, axis, keepDims)
}

func (s *Scope) argReduce(o op, a Array, axis int, keepDims bool) Array {
	if b, empty := s.fresh(o, a); empty {
		defer s.drop(b)
		a = b
	}
	return s.withIntBool(o, a, axis, keepDims, "axis")
}

// CumSum is the running sum along an axis, in a's shape. An empty array is an
// error. (mlx_cumsum_axis)
func (s *Scope) CumSum(a Array, axis int, flags ...ScanFlag) Array {
	return s.scan(opCumSum, a, axis, flags)
}

// CumProd is the running product along an axis, in a's shape. An empty array is
// an error. (mlx_cumprod_axis)
func (s *Scope) CumProd(a Array, axis int, flags ...ScanFlag) Array {
	return s.scan(opCumProd, a, axis, flags)
}

// Sort sorts ascending along an axis. An empty array is an error. (mlx_sort_axis)
func (s *Scope) Sort(a Array, axis int) Array { return s.withInt(opSort, a, axis, "axis") }

// Argsort is the indices, Uint32, that sort ascending along an axis. An empty
// array is an error. (mlx_argsort_axis)
func (s *Scope) Argsort(a Array, axis int) Array { return s.withInt(opArgsort, a, axis, "axis") }

// Argpartition is indices, Uint32, such that along the axis place kth holds what
// sorting would put there, smaller elements come before it and larger ones after,
// in no order. A negative kth counts from the end. (mlx_argpartition_axis)
func (s *Scope) Argpartition(a Array, kth, axis int) Array {
	return s.withInt2(opArgpartition, a, kth, axis, "kth", "axis")
}

// TopK is the k largest elements along an axis, in no order. (mlx_topk_axis)
func (s *Scope) TopK(a Array, k, axis int) Array { return s.withInt2(opTopK, a, k, axis, "k", "axis") }
