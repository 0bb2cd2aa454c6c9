package kernels

import "github.com/godflash/godflash/mlx"

// splits is the number of parts into which the attention kernel cuts the keys:
// with a few key heads enough blocks for a large GPU, and as many as a warp has
// lanes to join them. It must not depend on the number of keys, or a row's bits
// would.
const splits = 32

// See says which keys a row of a block may see.
type See struct {
	Causal bool // none after the row's own position
	Size   int  // when positive, none that lie so many positions before the row
}

const (
	// attentionTile is the number of keys of a tile, which divides a cache's capacity.
	attentionTile = 32
	// attentionStages are those of a block's ring of tiles. More were no faster.
	attentionStages = 2
)

// attentionMemory is the bytes of shared memory that attentionText needs.
func (d HeadsShape) attentionMemory() int {
	keys, values := d.Dim, d.Dim+8
	if d.Dim%64 == 0 {
		keys += 32
	}
	return attentionStages * attentionTile * (keys + values) * 2
}

// attends says that the text fits: every query head of a group has its warp, and
// matrix fragments and tiles divide.
func (d HeadsShape) attends() bool {
	return d.Keys > 0 && d.Queries%d.Keys == 0 && d.Queries/d.Keys <= 16 && d.Dim%32 == 0 && d.Dim <= 256
}

func (d HeadsShape) attentionSpec() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:    "godflash_attention",
		Inputs:  []string{"q", "keys", "values", "position", "base"},
		Outputs: []string{"sums", "weights"},
		// Metal's own attention of few rows takes a mask and is as fast.
		CUDA:         mlx.KernelSource{Header: compact(cudaHeader) + compact(mmaHeader) + compact(loadHeader) + compact(copyHeader) + compact(attentionMacros), Source: cudaWaits + compact(attentionText)},
		SharedMemory: d.attentionMemory(),
		Fallback:     d.attendParts,
	}
}

// attendParts is the kernel's result in operations: all in the first part.
func (d HeadsShape) attendParts(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
	f := func(a mlx.Array) mlx.Array { return s.AsType(a, mlx.Float32) }
	t, n, capacity := in[0].Dim(2), d.Queries/d.Keys, in[1].Dim(2)
	key := s.Reshape(s.Arange(0, float64(capacity), 1, mlx.Int32), 1, capacity)
	at := in[3]
	if templateBool(l, "BASED") {
		at = s.Sub(at, in[4])
	}
	row := s.Add(s.Reshape(s.Arange(0, float64(t), 1, mlx.Int32), t, 1), at)
	last := row
	if !templateBool(l, "CAUSAL") {
		last = s.Add(at, s.Scalar(float64(t-1), mlx.Int32))
	}
	seen := s.LessEqual(key, last)
	if w := templateInt(l, "WINDOW"); w > 0 {
		seen = s.LogicalAnd(seen, s.Greater(key, s.Sub(row, s.Scalar(float64(w), mlx.Int32))))
	}
	q := s.Reshape(f(in[0]), 1, d.Keys, n*t, d.Dim)
	score := s.Reshape(s.MatMul(q, s.SwapAxes(f(in[1]), 2, 3)), 1, d.Keys, n, t, capacity)
	score = s.Where(seen, s.Mul(score, s.Scalar(float64(templateFloat(l, "SCALE"))*log2e, mlx.Float32)), s.Scalar(-1e30, mlx.Float32))
	top := s.Max(score, true, -1)
	p := s.Where(seen, s.Exp(s.Mul(s.Sub(score, top), s.Scalar(1/log2e, mlx.Float32))), s.Scalar(0, mlx.Float32))
	sum := s.Reshape(s.MatMul(s.Reshape(p, 1, d.Keys, n*t, capacity), f(in[2])), 1, d.Queries, t, d.Dim)
	weights := s.Reshape(s.Concat(-1, top, s.Sum(p, true, -1)), 1, d.Queries, t, 2)
	none := mlx.FromSlice(s, []float32{-1e30, 0}) // no score, no weight
	return []mlx.Array{
		s.Concat(0, s.SwapAxes(sum, 1, 2), s.Zeros(mlx.Float32, splits-1, t, d.Queries, d.Dim)),
		s.Concat(0, s.SwapAxes(weights, 1, 2), s.BroadcastTo(none, splits-1, t, d.Queries, 2)),
	}
}

const log2e = 1.4426950408889634

func (d HeadsShape) joinSpec() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:    "godflash_attention_join",
		Inputs:  []string{"sums", "weights", "q"},
		Outputs: []string{"y"},
		CUDA:    cuda(joinText),
		Fallback: func(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
			t := in[0].Dim(1)
			top, sum := s.SliceAxis(in[1], -1, 0, 1), s.SliceAxis(in[1], -1, 1, 2)
			live := s.Greater(sum, s.Scalar(0, mlx.Float32))
			top = s.Where(live, top, s.Scalar(-1e30, mlx.Float32))
			share := s.Where(live, s.Exp(s.Mul(s.Sub(top, s.Max(top, true, 0)), s.Scalar(1/log2e, mlx.Float32))), s.Scalar(0, mlx.Float32))
			sums := s.Where(live, in[0], s.Scalar(0, mlx.Float32)) // the others were never written
			y := s.Div(s.Sum(s.Mul(sums, share), false, 0), s.Sum(s.Mul(sum, share), false, 0))
			if d.Gated {
				q := s.Reshape(Cols{in[2], templateInt(l, "QAT"), 2 * d.Queries * d.Dim}.Take(s), t, d.Queries, 2*d.Dim)
				y = s.Mul(y, s.Sigmoid(s.AsType(s.SliceAxis(q, 2, d.Dim, 2*d.Dim), mlx.Float32)))
			}
			return []mlx.Array{s.Reshape(s.AsType(y, in[2].Dtype()), 1, t, d.Queries*d.Dim)}
		},
	}
}

// Attends reports whether Attend serves a block of rows over keys: on CUDA, for
// bfloat16 and up to BlockRows rows.
func (k *Heads) Attends(s *mlx.Scope, q, keys mlx.Array) bool {
	return k != nil && k.attention != nil && s.Err() == nil && q.Dim(2) <= BlockRows && k.set.tensorType(q.Dtype()) && keys.Dim(2)%attentionTile == 0
}

// Attend is attention of queries [1, heads, T, dim] at a place in a cache over its
// whole buffers [1, key heads, capacity, dim], heads side by side and through the
// gates behind the queries in qCols: [1, T, heads · dim].
func (k *Heads) Attend(s *mlx.Scope, q, keys, values mlx.Array, at Place, see See, scale float32, qCols Cols) mlx.Array {
	parts := k.shape.attentionCall(q, keys, values, at, see, scale).run(s, k.attention)
	if k.InPlace(q.Dtype()) && k.attention.Backend() == "fallback" && s.Err() == nil {
		// Operations read the keys without waiting for q.
		k.into = nil
		s.Fail(s.AsyncEval(q))
	}
	if len(parts) != 2 {
		return mlx.Array{}
	}
	out := k.shape.joinCall(parts[0], parts[1], qCols).run(s, k.join)
	if len(out) != 1 {
		return mlx.Array{}
	}
	return out[0]
}

func (d HeadsShape) attentionCall(q, keys, values mlx.Array, at Place, see See, scale float32) call {
	base, based := at.based()
	t, threads := q.Dim(2), d.Queries/d.Keys*32
	parts := func(width int) mlx.Output {
		return mlx.Output{Dtype: mlx.Float32, Shape: []int{splits, t, d.Queries, width}}
	}
	return call{in: []mlx.Array{q, keys, values, at.Position, base}, launch: mlx.Launch{
		Outputs: []mlx.Output{parts(d.Dim), parts(2)},
		Grid:    [3]int{splits * threads, d.Keys}, Group: [3]int{threads},
		Template: []mlx.TemplateArg{
			{Name: "HQ", Value: d.Queries},
			{Name: "HK", Value: d.Keys},
			{Name: "D", Value: d.Dim},
			{Name: "BK", Value: attentionTile},
			{Name: "STAGES", Value: attentionStages},
			{Name: "SPLITS", Value: splits},
			{Name: "CAUSAL", Value: see.Causal},
			{Name: "WINDOW", Value: see.Size},
			{Name: "SCALE", Value: floatBits(scale)},
			{Name: "BASED", Value: based},
		},
	}}
}

func (d HeadsShape) joinCall(sums, weights mlx.Array, q Cols) call {
	t := sums.Dim(1)
	return call{in: []mlx.Array{sums, weights, q.Array}, launch: mlx.Launch{
		Outputs: []mlx.Output{{Dtype: q.Array.Dtype(), Shape: []int{1, t, d.Queries * d.Dim}}},
		Grid:    [3]int{t * d.Queries * 128}, Group: [3]int{128},
		Template: []mlx.TemplateArg{
			{Name: "T", Value: q.Array.Dtype()},
			{Name: "HQ", Value: d.Queries},
			{Name: "D", Value: d.Dim},
			{Name: "SPLITS", Value: splits},
			{Name: "GATED", Value: d.Gated},
			{Name: "QROW", Value: q.Array.Dim(2)},
			{Name: "QAT", Value: q.At},
		},
	}}
}
