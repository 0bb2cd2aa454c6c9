package kernels

import "github.com/godflash/godflash/mlx"

// The kernels of grouped.go in operations, as in expertsops.go for tests alone.

func orderSpec() mlx.KernelSpec {
	src := cuda(groupText)
	src.Header += compact(groupMacros)
	return mlx.KernelSpec{
		Name:     "godflash_experts_order",
		Inputs:   []string{"chosen", "x"},
		Outputs:  []string{"order", "tiles", "lined"},
		CUDA:     src,
		Fallback: composeOrder,
	}
}

func composeOrder(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
	chosen, experts, rows := s.Flatten(in[0]), templateInt(l, "E"), templateInt(l, "M")
	number := func(n int) mlx.Array { return s.Scalar(float64(n), mlx.Int32) }
	upTo := func(n int) mlx.Array { return s.Arange(0, float64(n), 1, mlx.Int32) }
	ints := func(a mlx.Array) mlx.Array { return s.AsType(a, mlx.Int32) }
	pairs := chosen.Dim(0)
	// No two keys are equal, so the order is that of the rows whatever the sort.
	order := ints(s.Argsort(s.Add(s.Mul(chosen, number(pairs)), upTo(pairs)), 0))

	each := upTo(experts)
	count := ints(s.Sum(ints(s.Equal(s.Reshape(chosen, -1, 1), each)), false, 0))
	first := s.Sub(s.CumSum(count, 0), count)
	begin := s.Add(s.FloorDiv(first, number(rows)), each)
	tile := upTo(l.Outputs[1].Shape[0])
	expert := s.Sub(ints(s.Sum(ints(s.LessEqual(begin, s.Reshape(tile, -1, 1))), false, 1)), number(1))
	row := s.Mul(s.Sub(tile, s.Take(begin, expert, 0)), number(rows))
	here := s.Clip(s.Sub(s.Take(count, expert, 0), row), number(0), number(rows))
	tiles := s.Stack(1, expert, s.Add(s.Take(first, expert, 0), row), here, s.Zeros(mlx.Int32, tile.Dim(0)))
	return []mlx.Array{order, tiles, inLine(s, s.Reshape(in[1], -1, in[1].Dim(2)), 2, 4)}
}

// inLine puts columns of x [T, width] in the order of packed weights, and back with
// 4 and 2.
func inLine(s *mlx.Scope, x mlx.Array, a, b int) mlx.Array {
	return s.Reshape(s.SwapAxes(s.Reshape(x, x.Dim(0), -1, a, b), 2, 3), x.Dim(0), -1)
}

func groupedSpec(gpu mlx.GPU) mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:    "godflash_experts_grouped",
		Inputs:  []string{"x", "order", "tiles", "gate_w", "gate_scales", "gate_biases", "w", "scales", "biases"},
		Outputs: []string{"out"},
		CUDA: mlx.KernelSource{
			Header: compact(cudaHeader) + compact(q4Macros) + compact(mmaHeader) + compact(copyHeader) + compact(attentionMacros) + compact(chainMacros) + compact(groupHeader),
			Source: cudaWaits + compact(groupedText),
		},
		SharedMemory: groupStagesOf(gpu)*groupStage + groupScales,
		Fallback:     composeGrouped,
	}
}

// composeGrouped has weights in the type of x, as they are where they are written out.
func composeGrouped(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
	x, order, dt := inLine(s, in[0], 4, 2), in[1], in[0].Dtype()
	column := func(i int) mlx.Array { return s.SliceAxis(in[2], 1, i, i+1) }
	at := s.Arange(0, float64(order.Dim(0)), 1, mlx.Int32)
	inside := s.LogicalAnd(s.LessEqual(column(1), at), s.Less(at, s.Add(column(1), column(2))))
	expert := s.AsType(s.Sum(s.Mul(s.AsType(inside, mlx.Int32), column(0)), false, 0), mlx.Int32)
	up := templateBool(l, "UP")
	if up {
		x = s.Take(x, s.FloorDiv(order, s.Scalar(float64(templateInt(l, "TOPK")), mlx.Int32)), 0)
	}
	product := func(w []mlx.Array) mlx.Array {
		q := mlx.Quantized{W: w[0], Scales: w[1], Biases: w[2], Options: q4Options}
		whole := s.AsType(s.AsType(wide(s, q), dt), mlx.Float32)
		y := s.GatherMM(s.Reshape(s.AsType(x, mlx.Float32), order.Dim(0), 1, -1), s.SwapAxes(whole, 1, 2), mlx.GatherOptions{RHS: expert})
		return s.AsType(s.AsType(s.Reshape(y, order.Dim(0), -1), dt), mlx.Float32)
	}
	y := product(in[6:9])
	if up {
		gate := product(in[3:6])
		return []mlx.Array{s.AsType(inLine(s, s.Mul(s.Mul(gate, s.Sigmoid(gate)), y), 2, 4), dt)}
	}
	return []mlx.Array{s.AsType(s.Take(y, s.Argsort(order, 0), 0), dt)}
}

func groupSumSpec() mlx.KernelSpec {
	src := cuda(groupSumText)
	src.Header += compact(q4Macros) + compact(attentionMacros)
	return mlx.KernelSpec{
		Name:     "godflash_experts_sum",
		Inputs:   []string{"pairs", "weights"},
		Outputs:  []string{"y"},
		CUDA:     src,
		Fallback: composeGroupSum,
	}
}

func composeGroupSum(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
	t, k := in[1].Dim(0), in[1].Dim(1)
	y := s.Mul(s.Reshape(s.AsType(in[0], mlx.Float32), t, k, -1), s.Reshape(in[1], t, k, 1))
	return []mlx.Array{s.AsType(s.Reshape(s.Sum(y, false, 1), 1, t, -1), in[0].Dtype())}
}
