package mlx

import "github.com/godflash/godflash/internal/mlxc"

var (
	opSlice              = newOp("Slice", "mlx_slice", "")
	opSliceAxis          = newOp("SliceAxis", "mlx_slice", "")
	opSliceDynamic       = newOp("SliceDynamic", "mlx_slice_dynamic", "")
	opSliceUpdate        = newOp("SliceUpdate", "mlx_slice_update", "")
	opSliceUpdateDynamic = newOp("SliceUpdateDynamic", "mlx_slice_update_dynamic", "")
	opTake               = newOp("Take", "mlx_take_axis", mlxc.BinaryInt)
	opTakeAlong          = newOp("TakeAlong", "mlx_take_along_axis", mlxc.BinaryInt)
	opWhere              = newOp("Where", "mlx_where", mlxc.Ternary)
)

// Slice is the view [start[i], stop[i]) of every axis i; both lists have one
// number per axis. Numbers count from the end when negative and are cut to the
// axis; where stop is not above start the axis becomes empty. (mlx_slice)
func (s *Scope) Slice(a Array, start, stop []int) Array {
	if !s.begin(opSlice) {
		return Array{}
	}
	x := a.use(s, opSlice, 1)
	if x == 0 {
		return s.zeroInput(opSlice, "start "+formatInts(start)+", stop "+formatInts(stop), a)
	}
	lo, ok1 := pack(start)
	hi, ok2 := pack(stop)
	if !ok1 || !ok2 || lo.N != hi.N {
		return s.refuse(opSlice, "start and stop need one number per axis, at most 8", "start "+formatInts(start)+", stop "+formatInts(stop), a)
	}
	h := mlxc.Slice(x, lo, hi, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(opSlice, h, "start "+formatInts(start)+", stop "+formatInts(stop), a)
	}
	return s.put(opSlice, h)
}

// SliceAxis is the view [start, stop) of one axis and all of the others. Numbers
// as in [Scope.Slice]. (mlx_slice)
func (s *Scope) SliceAxis(a Array, axis, start, stop int) Array {
	if !s.begin(opSliceAxis) {
		return Array{}
	}
	x := a.use(s, opSliceAxis, 1)
	if x == 0 {
		return s.zeroInput(opSliceAxis, args1("axis", axis), a)
	}
	if !fits(axis) || !fits(start) || !fits(stop) {
		return s.refuse(opSliceAxis, limitText, args1("axis", axis), a)
	}
	h := mlxc.SliceAxis(x, axis, start, stop, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(opSliceAxis, h, args1("axis", axis)+", "+args2("start", start, "stop", stop), a)
	}
	return s.put(opSliceAxis, h)
}

// SliceDynamic is a slice whose start is data: start holds, as integers of shape
// [len(axes)], the first index along each of axes; other axes start at 0. size
// is the whole shape of the result, one length per axis of a. A start that would
// run over the end is not checked: other memory is read, or the process ends. (mlx_slice_dynamic)
func (s *Scope) SliceDynamic(a, start Array, axes, size []int) Array {
	if !s.begin(opSliceDynamic) {
		return Array{}
	}
	x, at := a.use(s, opSliceDynamic, 1), start.use(s, opSliceDynamic, 2)
	if x == 0 || at == 0 {
		return s.zeroInput(opSliceDynamic, "axes "+formatInts(axes)+", size "+formatInts(size), a, start)
	}
	ax, ok1 := pack(axes)
	sz, ok2 := pack(size)
	if _, ok := product(size); !ok1 || !ok2 || !ok {
		return s.refuse(opSliceDynamic, "impossible size or axes", "axes "+formatInts(axes)+", size "+formatInts(size), a, start)
	}
	h := mlxc.SliceDynamic(x, at, ax, sz, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(opSliceDynamic, h, "axes "+formatInts(axes)+", size "+formatInts(size), a, start)
	}
	return s.put(opSliceDynamic, h)
}

// SliceUpdate is dst with the part [start, stop) replaced by src, which must
// have, or broadcast to, the part's shape. When dst's data has no other user at
// evaluation, it is written in place. (mlx_slice_update)
func (s *Scope) SliceUpdate(dst, src Array, start, stop []int) Array {
	if !s.begin(opSliceUpdate) {
		return Array{}
	}
	x, y := dst.use(s, opSliceUpdate, 1), src.use(s, opSliceUpdate, 2)
	if x == 0 || y == 0 {
		return s.zeroInput(opSliceUpdate, "start "+formatInts(start)+", stop "+formatInts(stop), dst, src)
	}
	lo, ok1 := pack(start)
	hi, ok2 := pack(stop)
	if !ok1 || !ok2 || lo.N != hi.N {
		return s.refuse(opSliceUpdate, "start and stop need one number per axis, at most 8", "start "+formatInts(start)+", stop "+formatInts(stop), dst, src)
	}
	h := mlxc.SliceUpdate(x, y, lo, hi, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(opSliceUpdate, h, "start "+formatInts(start)+", stop "+formatInts(stop), dst, src)
	}
	return s.put(opSliceUpdate, h)
}

// SliceUpdateDynamic is SliceUpdate with a start that is data, as in
// [Scope.SliceDynamic]. src has as many axes as dst and is no longer along any;
// the part has src's shape. A start that would run over the end is not checked:
// other memory is written, or the process ends. (mlx_slice_update_dynamic)
func (s *Scope) SliceUpdateDynamic(dst, src, start Array, axes []int) Array {
	if !s.begin(opSliceUpdateDynamic) {
		return Array{}
	}
	x, y, at := dst.use(s, opSliceUpdateDynamic, 1), src.use(s, opSliceUpdateDynamic, 2), start.use(s, opSliceUpdateDynamic, 3)
	if x == 0 || y == 0 || at == 0 {
		return s.zeroInput(opSliceUpdateDynamic, "axes "+formatInts(axes), dst, src, start)
	}
	ax, ok := pack(axes)
	if !ok {
		return s.refuse(opSliceUpdateDynamic, limitText, "axes "+formatInts(axes), dst, src, start)
	}
	h := mlxc.SliceUpdateDynamic(x, y, at, ax, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(opSliceUpdateDynamic, h, "axes "+formatInts(axes), dst, src, start)
	}
	return s.put(opSliceUpdateDynamic, h)
}

// Take picks slices of a along an axis by the integers of idx: the axis is
// replaced by idx's shape. Indices count from the end when negative and are not
// checked: one that is out of range reads other memory, or ends the process. (mlx_take_axis)
func (s *Scope) Take(a, idx Array, axis int) Array { return s.binaryInt(opTake, a, idx, axis, "axis") }

// TakeAlong picks elements along an axis by the integers of idx, which has the
// number of dimensions of a; other axes broadcast. Indices as in [Scope.Take].
// (mlx_take_along_axis)
func (s *Scope) TakeAlong(a, idx Array, axis int) Array {
	return s.binaryInt(opTakeAlong, a, idx, axis, "axis")
}

// Where picks from x where c is true and from y elsewhere; all three broadcast
// against each other. (mlx_where)
func (s *Scope) Where(c, x, y Array) Array {
	if !s.begin(opWhere) {
		return Array{}
	}
	hc, hx, hy := c.use(s, opWhere, 1), x.use(s, opWhere, 2), y.use(s, opWhere, 3)
	if hc == 0 || hx == 0 || hy == 0 {
		return s.zeroInput(opWhere, "", c, x, y)
	}
	h := mlxc.CallTernary(opWhere.fn(), hc, hx, hy, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(opWhere, h, "", c, x, y)
	}
	return s.put(opWhere, h)
}
