package kernels

import (
	"slices"

	"github.com/godflash/godflash/mlx"
)

// A prompt through a mixture of experts: its rows are put in the order of their
// experts, and each expert's 4-bit weights are unpacked once for up to groupRows of
// them. Five launches: choice, order, gate and up, down, sum.

const (
	// groupRows is the most rows of a tile, groupedText's M.
	groupRows = 64
	// groupUp and groupDown are the outputs of a block with gate and up, and with down.
	groupUp, groupDown = 128, 256
	// groupStage is the bytes of a stage of groupedText's ring, groupStages the most
	// stages, and groupScales the most bytes of scales and biases beside them.
	groupStage  = (256*4 + groupRows*16) * 16
	groupStages = 3
	groupScales = 2 * 256 * 2 * 4 * 4
)

// grouped is the kernels of a Set.
type grouped struct{ choose, order, product, sum *mlx.Kernel }

// groupKernels is nil where one of the texts is not for the device.
func (set *Set) groupKernels() *grouped {
	if groupStagesOf(set.gpu) < 2 {
		return nil
	}
	g := &grouped{set.kernel(chooseSpec()), set.kernel(orderSpec()), set.kernel(groupedSpec(set.gpu)), set.kernel(groupSumSpec())}
	if g.choose == nil || g.order == nil || g.product == nil || g.sum == nil {
		return nil
	}
	return g
}

// groupStagesOf is the number of stages for a device.
func groupStagesOf(gpu mlx.GPU) int {
	return min((gpu.SharedMemory-groupScales)/groupStage, groupStages)
}

// groups says that the sizes divide, of weights that Mix takes.
func (d MixShape) groups() bool {
	return d.Width%groupUp == 0 && d.Hidden%groupDown == 0
}

// Groups reports whether Grouped serves rows like x [1, T, hidden].
func (set *Set) Groups(s *mlx.Scope, x mlx.Array, d MixShape) bool {
	return set != nil && set.group != nil && s.Err() == nil && x.Dim(1) > BlockRows && set.tensorType(x.Dtype()) && d.groups()
}

// Grouped is the experts' part of the mixture's result for x [1, T, hidden], of the
// same shape, from the router's scores, float32 [T, experts]. A shared expert is not
// in it. ok is false where a kernel failed: the caller goes another way, and the Set
// does without from then on.
func (set *Set) Grouped(s *mlx.Scope, x, scores mlx.Array, d MixShape, m MixMaps) (y mlx.Array, ok bool) {
	g := set.group
	d.Shared = false
	ok = true
	run := set.inTurn(s, func() { set.group, ok = nil, false })
	choice := run(g.choose, func() call { return d.chooseCall(scores) })
	at := run(g.order, func() call { return d.orderCall(x, choice[0]) })
	h := run(g.product, func() call { return d.groupUpCall(set.gpu, at, m) })
	pairs := run(g.product, func() call { return d.groupDownCall(set.gpu, h[0], at, m) })
	if out := run(g.sum, func() call { return d.groupSumCall(pairs[0], choice[1]) }); len(out) == 1 {
		y = out[0]
	}
	s.Free(slices.Concat(choice, at, h, pairs)...) // or the scope would keep them until it closes
	return y, ok
}

// tiles is the number of tiles that hold t rows' experts, see groupText.
func (d MixShape) tiles(t int) int { return t*d.TopK/groupRows + d.Experts }

func (d MixShape) orderCall(x, chosen mlx.Array) call {
	t := chosen.Dim(0)
	return call{in: []mlx.Array{chosen, x}, launch: mlx.Launch{
		Outputs: []mlx.Output{
			{Dtype: mlx.Int32, Shape: []int{t * d.TopK}},
			{Dtype: mlx.Int32, Shape: []int{d.tiles(t), 4}},
			{Dtype: x.Dtype(), Shape: []int{t, d.Hidden}},
		},
		Grid: [3]int{d.Experts * 512}, Group: [3]int{512},
		Template: []mlx.TemplateArg{
			{Name: "E", Value: d.Experts},
			{Name: "K", Value: d.TopK},
			{Name: "H", Value: d.Hidden},
			{Name: "M", Value: groupRows},
		},
	}}
}

// groupUpCall takes what orderCall gives.
func (d MixShape) groupUpCall(gpu mlx.GPU, at []mlx.Array, m MixMaps) call {
	return d.groupedCall(gpu, at[2], at, m.Gate, m.Up, d.Hidden, d.Width, true)
}

// groupDownCall takes groupUpCall's result.
func (d MixShape) groupDownCall(gpu mlx.GPU, h mlx.Array, at []mlx.Array, m MixMaps) call {
	return d.groupedCall(gpu, h, at, m.Down, m.Down, d.Width, d.Hidden, false)
}

func (d MixShape) groupedCall(gpu mlx.GPU, x mlx.Array, at []mlx.Array, gate, w mlx.Quantized, in, out int, up bool) call {
	block := groupDown
	if up {
		block = groupUp
	}
	return call{in: []mlx.Array{x, at[0], at[1], gate.W, gate.Scales, gate.Biases, w.W, w.Scales, w.Biases}, launch: mlx.Launch{
		Outputs: []mlx.Output{{Dtype: x.Dtype(), Shape: []int{at[0].Dim(0), out}}},
		Grid:    [3]int{out / block * 256, at[1].Dim(0)}, Group: [3]int{256},
		Template: []mlx.TemplateArg{
			{Name: "K", Value: in},
			{Name: "N", Value: out},
			{Name: "M", Value: groupRows},
			{Name: "TOPK", Value: d.TopK},
			{Name: "UP", Value: up},
			{Name: "STAGES", Value: groupStagesOf(gpu)},
		},
	}}
}

func (d MixShape) groupSumCall(pairs, weights mlx.Array) call {
	t := weights.Dim(0)
	return call{in: []mlx.Array{pairs, weights}, launch: mlx.Launch{
		Outputs: []mlx.Output{{Dtype: pairs.Dtype(), Shape: []int{1, t, d.Hidden}}},
		Grid:    [3]int{(t*d.Hidden/8 + 255) / 256 * 256}, Group: [3]int{256},
		Template: []mlx.TemplateArg{
			{Name: "K", Value: d.TopK},
			{Name: "H", Value: d.Hidden},
		},
	}}
}
