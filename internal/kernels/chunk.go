package kernels

import "github.com/godflash/godflash/mlx"

const (
	// chunkRows is the length of a chunk: its rows meet in products of matrices,
	// not one after the other.
	chunkRows = 32
	// chunksFrom is the number of rows from which chunks are worth two launches.
	chunksFrom = 128
	// chunkColumns is how many of a head's value columns a block takes, 16 or 32.
	chunkColumns = 16
)

// chunks runs the gated delta rule over long runs of rows, a prompt's: in each
// chunk everything that does not need the state is made for all chunks at once,
// and the state then goes from chunk to chunk (the WY form of "Parallelizing
// Linear Transformers with the Delta Rule over Sequence Length", with the decays
// of "Gated Delta Networks"). The kernels multiply in float32, without tensor
// cores, so MLX_ENABLE_TF32 does not matter to them.
type chunks struct{ prepare, scan *mlx.Kernel }

func (set *Set) chunks(d DeltaShape) chunks {
	if d.KeyDim != 128 || d.ValueDim%chunkColumns != 0 {
		return chunks{}
	}
	return chunks{prepare: set.kernel(d.chunkPrepareSpec()), scan: set.kernel(d.chunkScanSpec())}
}

// serve says that a run of rows goes by chunks: never on a CPU, where rows keep
// their order, and no longer once one of the kernels has failed.
func (c chunks) serve(rows int) bool {
	return rows >= chunksFrom && c.prepare != nil && c.scan != nil && c.prepare.Backend() == "cuda" && c.scan.Backend() == "cuda"
}

func (c chunks) run(s *mlx.Scope, d DeltaShape, q mlx.Array, r *DeltaRows, state mlx.Array) (y, after mlx.Array) {
	p := d.chunkPrepareCall(q, r).run(s, c.prepare)
	if len(p) != 3 {
		return mlx.Array{}, mlx.Array{} // the scope has the error
	}
	out := d.chunkScanCall(q, r, p, state).run(s, c.scan)
	if len(out) != 2 {
		return mlx.Array{}, mlx.Array{}
	}
	return out[0], out[1]
}

func (d DeltaShape) chunkPrepareSpec() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:    "godflash_delta_chunks",
		Inputs:  []string{"q", "k", "g", "beta"},
		Outputs: []string{"t", "a", "d"},
		CUDA:    cuda(chunkPrepareText),
		Fallback: func(s *mlx.Scope, in []mlx.Array, _ mlx.Launch) []mlx.Array {
			return d.prepareChunks(s, in[0], in[1], in[2], in[3])
		},
	}
}

func (d DeltaShape) chunkPrepareCall(q mlx.Array, r *DeltaRows) call {
	n := (q.Dim(0) + chunkRows - 1) / chunkRows
	f32 := func(shape ...int) mlx.Output { return mlx.Output{Dtype: mlx.Float32, Shape: shape} }
	return call{in: []mlx.Array{q, r.K, r.G, r.Beta}, launch: mlx.Launch{
		Outputs: []mlx.Output{f32(n, d.ValueHeads, chunkRows, chunkRows), f32(n, d.ValueHeads, chunkRows, chunkRows), f32(n, d.ValueHeads, 2, chunkRows)},
		Grid:    [3]int{n * d.KeyHeads * 128}, Group: [3]int{128},
		Template: []mlx.TemplateArg{{Name: "HK", Value: d.KeyHeads}, {Name: "HV", Value: d.ValueHeads}, {Name: "C", Value: chunkRows}},
	}}
}

// chunkMemory is the number of floats that a block of the scan shares: two chunks
// of keys, one of queries, rows padded by 4; the state; t and a, padded; three
// chunks of the value columns.
const chunkMemory = 3*chunkRows*132 + 128*chunkColumns + 2*chunkRows*(chunkRows+4) + 3*chunkRows*chunkColumns

func (d DeltaShape) chunkScanSpec() mlx.KernelSpec {
	src := cuda(chunkScanText)
	src.Header += compact(copyHeader) + compact(chunkHeader)
	return mlx.KernelSpec{
		Name:         "godflash_delta_chunk_scan",
		Inputs:       []string{"q", "k", "v", "t", "a", "d", "state"},
		Outputs:      []string{"out", "after"},
		CUDA:         src,
		SharedMemory: 4 * chunkMemory,
		Fallback: func(s *mlx.Scope, in []mlx.Array, _ mlx.Launch) []mlx.Array {
			return d.scanChunks(s, in[0], in[1], in[2], in[3], in[4], in[5], in[6])
		},
	}
}

func (d DeltaShape) chunkScanCall(q mlx.Array, r *DeltaRows, prepared []mlx.Array, state mlx.Array) call {
	return call{in: []mlx.Array{q, r.K, r.V, prepared[0], prepared[1], prepared[2], state}, launch: mlx.Launch{
		Outputs: []mlx.Output{
			{Dtype: mlx.Float32, Shape: []int{q.Dim(0), d.ValueHeads, d.ValueDim}},
			{Dtype: mlx.Float32, Shape: d.State()},
		},
		Grid: [3]int{d.ValueHeads * d.ValueDim / chunkColumns * 128}, Group: [3]int{128},
		Template: []mlx.TemplateArg{
			{Name: "HK", Value: d.KeyHeads},
			{Name: "HV", Value: d.ValueHeads},
			{Name: "DV", Value: d.ValueDim},
			{Name: "C", Value: chunkRows},
			{Name: "NS", Value: chunkColumns},
			{Name: "SHARED", Value: chunkMemory},
		},
	}}
}

// chunked cuts x [T, heads, width] into chunks [chunks, key heads, heads of each,
// rows, width], with rows of a value after the last.
func (d DeltaShape) chunked(s *mlx.Scope, x mlx.Array, value float64) mlx.Array {
	t, heads, width := x.Dim(0), x.Dim(1), x.Dim(2)
	n := (t + chunkRows - 1) / chunkRows
	if n*chunkRows > t {
		x = s.Pad(x, mlx.PadOptions{Axes: []int{0}, Low: []int{0}, High: []int{n*chunkRows - t}, Value: value})
	}
	return s.Transpose(s.Reshape(x, n, chunkRows, d.KeyHeads, heads/d.KeyHeads, width), 0, 2, 3, 1, 4)
}

// prepareChunks is chunkPrepareText in operations.
func (d DeltaShape) prepareChunks(s *mlx.Scope, q, k, g, beta mlx.Array) []mlx.Array {
	q, k = d.chunked(s, q, 0), d.chunked(s, k, 0)
	g, beta = d.chunked(s, s.ExpandDims(g, 2), 1), d.chunked(s, s.ExpandDims(beta, 2), 0)
	row := s.Reshape(s.Arange(0, chunkRows, 1, mlx.Int32), chunkRows, 1)
	col := s.Reshape(row, 1, chunkRows)
	zero, one := s.Scalar(0, mlx.Float32), s.Scalar(1, mlx.Float32)
	below, upTo := s.Less(col, row), s.LessEqual(col, row)

	keys := s.SwapAxes(k, -1, -2)
	p := s.Where(upTo, s.CumProd(s.Where(below, g, one), -2), zero)
	low := s.Where(below, s.Mul(beta, s.Mul(p, s.MatMul(k, keys))), zero)
	// The inverse of I+L block by block: that of twice the size has the two
	// inverses on its diagonal, and below them −X·L·X. Powers of L, which the
	// series of (I+L)⁻¹ adds, can be large where their sum is not.
	inverse := s.Where(s.Equal(col, row), one, zero)
	for size := 1; size < chunkRows; size *= 2 {
		inner, outer := s.Scalar(float64(size), mlx.Int32), s.Scalar(float64(2*size), mlx.Int32)
		apart := s.NotEqual(s.FloorDiv(row, inner), s.FloorDiv(col, inner))
		joined := s.LogicalAnd(apart, s.Equal(s.FloorDiv(row, outer), s.FloorDiv(col, outer)))
		inverse = s.Sub(inverse, s.MatMul(inverse, s.MatMul(s.Where(joined, low, zero), inverse)))
	}
	n := k.Dim(0)
	square := func(x mlx.Array) mlx.Array { return s.Reshape(x, n, d.ValueHeads, chunkRows, chunkRows) }
	before, since := s.SwapAxes(s.CumProd(g, -2), -1, -2), s.SliceAxis(p, -2, chunkRows-1, chunkRows)
	return []mlx.Array{
		square(s.Mul(inverse, s.SwapAxes(beta, -1, -2))), square(s.Mul(p, s.MatMul(q, keys))),
		s.Reshape(s.Concat(-2, before, since), n, d.ValueHeads, 2, chunkRows),
	}
}

// scanChunks is chunkScanText in operations.
func (d DeltaShape) scanChunks(s *mlx.Scope, q, k, v, t, a, decay, state mlx.Array) []mlx.Array {
	rows, group := k.Dim(0), d.ValueHeads/d.KeyHeads
	q, k, v = d.chunked(s, q, 0), d.chunked(s, k, 0), d.chunked(s, v, 0)
	state = s.Reshape(state, d.KeyHeads, group, d.KeyDim, d.ValueDim)
	ys := make([]mlx.Array, k.Dim(0))
	for i := range ys {
		of := func(x mlx.Array) mlx.Array { return s.Squeeze(s.SliceAxis(x, 0, i, i+1), 0) }
		square := func(x mlx.Array) mlx.Array {
			return s.Reshape(of(x), d.KeyHeads, group, chunkRows, chunkRows)
		}
		column := func(j int) mlx.Array {
			return s.Reshape(s.SliceAxis(of(decay), 1, j, j+1), d.KeyHeads, group, chunkRows, 1)
		}
		before, since := column(0), column(1)
		u := s.MatMul(square(t), s.Sub(of(v), s.Mul(before, s.MatMul(of(k), state))))
		y := s.Add(s.Mul(before, s.MatMul(of(q), state)), s.MatMul(square(a), u))
		ys[i] = s.Reshape(s.Transpose(y, 2, 0, 1, 3), chunkRows, d.ValueHeads, d.ValueDim)
		last := s.SliceAxis(before, 2, chunkRows-1, chunkRows)
		state = s.Add(s.Mul(last, state), s.MatMul(s.SwapAxes(of(k), -1, -2), s.Mul(since, u)))
	}
	return []mlx.Array{s.SliceAxis(s.Concat(0, ys...), 0, 0, rows), s.Reshape(state, d.State()...)}
}
