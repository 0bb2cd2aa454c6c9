package mlx

import "github.com/godflash/godflash/internal/mlxc"

// Indices of gathers and scatters are integers; they count from the end when
// negative. They are not checked: one that is out of range reads or writes other
// memory, or ends the process.

var (
	opSliceStrided       = newOp("SliceStrided", "mlx_slice", mlxc.ClassSlice)
	opSliceUpdateStrided = newOp("SliceUpdateStrided", "mlx_slice_update", mlxc.ClassSliceUpdate)
	opSliceUpdateAdd     = newOp("SliceUpdateAdd", "mlx_slice_update_add", mlxc.ClassSliceUpdate)
	opSliceUpdateMax     = newOp("SliceUpdateMax", "mlx_slice_update_max", mlxc.ClassSliceUpdate)
	opSliceUpdateMin     = newOp("SliceUpdateMin", "mlx_slice_update_min", mlxc.ClassSliceUpdate)
	opSliceUpdateProd    = newOp("SliceUpdateProd", "mlx_slice_update_prod", mlxc.ClassSliceUpdate)
	opGather             = newOp("Gather", "mlx_gather", mlxc.ClassGather)
	opScatter            = newOp("Scatter", "mlx_scatter", mlxc.ClassScatter)
	opScatterAdd         = newOp("ScatterAdd", "mlx_scatter_add", mlxc.ClassScatter)
	opScatterMax         = newOp("ScatterMax", "mlx_scatter_max", mlxc.ClassScatter)
	opScatterMin         = newOp("ScatterMin", "mlx_scatter_min", mlxc.ClassScatter)
	opScatterProd        = newOp("ScatterProd", "mlx_scatter_prod", mlxc.ClassScatter)
	opPutAlong           = newOp("PutAlong", "mlx_put_along_axis", mlxc.ClassTernaryInt)
	opScatterAddAlong    = newOp("ScatterAddAlong", "mlx_scatter_add_axis", mlxc.ClassTernaryInt)
	opMaskedScatter      = newOp("MaskedScatter", "mlx_masked_scatter", mlxc.Ternary)
)

// SliceStrided is [Scope.Slice] with a step per axis. With a negative step the
// slice runs from start down to, without, stop; a stop below -length takes in the
// first element. (mlx_slice)
func (s *Scope) SliceStrided(a Array, start, stop, strides []int) Array {
	return s.slice(opSliceStrided, start, stop, strides, a)
}

// SliceUpdateStrided is [Scope.SliceUpdate] with a step per axis. (mlx_slice_update)
func (s *Scope) SliceUpdateStrided(dst, src Array, start, stop, strides []int) Array {
	return s.slice(opSliceUpdateStrided, start, stop, strides, dst, src)
}

// SliceUpdateAdd is dst with src added to a part, as in [Scope.SliceUpdate]. (mlx_slice_update_add)
func (s *Scope) SliceUpdateAdd(dst, src Array, start, stop []int) Array {
	return s.slice(opSliceUpdateAdd, start, stop, nil, dst, src)
}

// SliceUpdateMax is dst with a part raised to src where that is larger, as in
// [Scope.SliceUpdate]. (mlx_slice_update_max)
func (s *Scope) SliceUpdateMax(dst, src Array, start, stop []int) Array {
	return s.slice(opSliceUpdateMax, start, stop, nil, dst, src)
}

// SliceUpdateMin is dst with a part lowered to src where that is smaller, as in
// [Scope.SliceUpdate]. (mlx_slice_update_min)
func (s *Scope) SliceUpdateMin(dst, src Array, start, stop []int) Array {
	return s.slice(opSliceUpdateMin, start, stop, nil, dst, src)
}

// SliceUpdateProd is dst with a part multiplied by src, as in [Scope.SliceUpdate].
// (mlx_slice_update_prod)
func (s *Scope) SliceUpdateProd(dst, src Array, start, stop []int) Array {
	return s.slice(opSliceUpdateProd, start, stop, nil, dst, src)
}

// slice calls the functions of a start, a stop and a step per axis; nil steps are 1.
func (s *Scope) slice(o op, start, stop, strides []int, in ...Array) Array {
	text := func() string {
		return "start " + formatInts(start) + ", stop " + formatInts(stop) + ", strides " + formatInts(strides)
	}
	g := &mlxc.Args{}
	lo, ok1 := pack(start)
	hi, ok2 := pack(stop)
	step, ok3 := pack(strides)
	if strides == nil {
		step.N = lo.N
		for i := range lo.N {
			step.V[i] = 1
		}
	}
	if !ok1 || !ok2 || !ok3 || lo.N != hi.N || lo.N != step.N {
		return s.stop(o, "start, stop and strides need one number per axis, at most 8", text, in...)
	}
	for _, v := range strides {
		if v == 0 {
			return s.stop(o, "a stride must not be 0", text, in...)
		}
	}
	g.L[0], g.L[1], g.L[2] = lo, hi, step
	return s.call(o, g, len(in), text, in...)
}

// Gather cuts slices out of a: the arrays of indices, which broadcast against each
// other, give their starts along axes, size gives their whole shape, one length
// per axis of a. The result has the indices' shape followed by size. (mlx_gather)
func (s *Scope) Gather(a Array, indices []Array, axes, size []int) Array {
	text := func() string { return "axes " + formatInts(axes) + ", size " + formatInts(size) }
	g := &mlxc.Args{}
	ax, ok1 := pack(axes)
	sz, ok2 := pack(size)
	if _, ok := product(size); !ok1 || !ok2 || !ok || len(axes) != len(indices) {
		return s.stop(opGather, "one axis is needed per array of indices, and a possible size", text, a)
	}
	if !s.indices(opGather, g, text, indices) {
		return Array{}
	}
	if s.isEmpty(a, opGather) {
		return s.stop(opGather, emptyText, text, a)
	}
	g.L[0], g.L[1] = ax, sz
	return s.call(opGather, g, 1, text, a)
}

// Scatter is a with slices replaced by updates: the arrays of indices, which
// broadcast against each other, give their starts along axes, and updates has the
// indices' shape followed by the slices' shape, one length per axis of a. Where
// slices overlap one of them wins. (mlx_scatter)
func (s *Scope) Scatter(a Array, indices []Array, updates Array, axes []int) Array {
	return s.scatter(opScatter, a, indices, updates, axes)
}

// ScatterAdd is [Scope.Scatter] that adds; slices may overlap. (mlx_scatter_add)
func (s *Scope) ScatterAdd(a Array, indices []Array, updates Array, axes []int) Array {
	return s.scatter(opScatterAdd, a, indices, updates, axes)
}

// ScatterMax is [Scope.Scatter] that keeps the larger. (mlx_scatter_max)
func (s *Scope) ScatterMax(a Array, indices []Array, updates Array, axes []int) Array {
	return s.scatter(opScatterMax, a, indices, updates, axes)
}

// ScatterMin is [Scope.Scatter] that keeps the smaller. (mlx_scatter_min)
func (s *Scope) ScatterMin(a Array, indices []Array, updates Array, axes []int) Array {
	return s.scatter(opScatterMin, a, indices, updates, axes)
}

// ScatterProd is [Scope.Scatter] that multiplies. (mlx_scatter_prod)
func (s *Scope) ScatterProd(a Array, indices []Array, updates Array, axes []int) Array {
	return s.scatter(opScatterProd, a, indices, updates, axes)
}

func (s *Scope) scatter(o op, a Array, indices []Array, updates Array, axes []int) Array {
	text := func() string { return "axes " + formatInts(axes) }
	g := &mlxc.Args{}
	ax, ok := pack(axes)
	if !ok || len(axes) != len(indices) {
		return s.stop(o, "one axis is needed per array of indices", text, a, updates)
	}
	if !s.indices(o, g, text, indices) {
		return Array{}
	}
	if s.isEmpty(a, o) {
		return s.stop(o, emptyText, text, a, updates)
	}
	g.L[0] = ax
	return s.call(o, g, 2, text, a, updates)
}

// PutAlong is a with elements along an axis replaced: element idx along the axis by
// the one of values. idx has the number of dimensions of a, values broadcast to
// idx. (mlx_put_along_axis)
func (s *Scope) PutAlong(a, idx, values Array, axis int) Array {
	return s.along(opPutAlong, a, idx, values, axis)
}

// ScatterAddAlong is [Scope.PutAlong] that adds; the same element may be named
// several times. (mlx_scatter_add_axis)
func (s *Scope) ScatterAddAlong(a, idx, values Array, axis int) Array {
	return s.along(opScatterAddAlong, a, idx, values, axis)
}

func (s *Scope) along(o op, a, idx, values Array, axis int) Array {
	text := func() string { return args1("axis", axis) }
	if !fits(axis) {
		return s.stop(o, limitText, text, a, idx, values)
	}
	return s.call(o, &mlxc.Args{I: [14]int32{int32(axis)}}, 3, text, a, idx, values)
}

// MaskedScatter is a with the elements where mask (Bool) is true replaced by the
// elements of src in order. mask broadcasts to the leading axes of a; src must
// hold enough elements, which is not checked. (mlx_masked_scatter)
func (s *Scope) MaskedScatter(a, mask, src Array) Array {
	return s.call(opMaskedScatter, &mlxc.Args{}, 3, nil, a, mask, src)
}
