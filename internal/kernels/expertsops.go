package kernels

import "github.com/godflash/godflash/mlx"

// The kernels of a mixture with the same computation in operations: in float32, of
// weights that are written out, so for tests alone. Where a kernel fails the layer
// goes back to MLX's own operations.

func scoresSpec() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:    "godflash_experts_scores",
		Inputs:  []string{"x", "w", "scales", "biases", "gate_w", "gate_scales", "gate_biases", "norm", "sums"},
		Outputs: []string{"scores", "normed"},
		// MLX's gathered products on Metal serve one row as well as many.
		CUDA:     mlx.KernelSource{Header: compact(cudaHeader) + compact(q4Macros) + compact(attentionMacros) + compact(chainMacros) + compact(scoresMacros), Source: cudaIndex + compact(scoresText)},
		Fallback: composeScores,
	}
}

func composeScores(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
	x, normed := in[0], s.Zeros(in[0].Dtype(), 1)
	if templateBool(l, "NORM") {
		x = normBySums(s, x, in[7], in[8], templateFloat(l, "EPS"))
		normed = x
	}
	weight := func(w []mlx.Array) mlx.Array {
		if templateInt(l, "BITS") == 8 {
			return wide(s, mlx.Quantized{W: w[0], Scales: w[1], Biases: w[2], Options: mlx.QuantizeOptions{Mode: mlx.Affine, GroupSize: 64, Bits: 8}})
		}
		return s.AsType(w[0], mlx.Float32)
	}
	w := weight(in[1:4])
	if templateBool(l, "GATE") {
		w = s.Concat(0, w, weight(in[4:7]))
	}
	y := s.MatMul(s.AsType(s.Reshape(x, -1, x.Dim(2)), mlx.Float32), s.Transpose(w))
	return []mlx.Array{s.AsType(s.AsType(y, x.Dtype()), mlx.Float32), normed}
}

func chooseSpec() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:     "godflash_experts_choose",
		Inputs:   []string{"scores"},
		Outputs:  []string{"chosen", "weights"},
		CUDA:     cuda(chooseText),
		Fallback: composeChoice,
	}
}

func composeChoice(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
	experts, k := templateInt(l, "E"), templateInt(l, "K")
	p := s.Softmax(s.SliceAxis(in[0], 1, 0, experts), true, -1)
	chosen := s.SliceAxis(s.Argsort(s.Neg(p), -1), 1, 0, k)
	weights := s.TakeAlong(p, chosen, -1)
	if templateBool(l, "NORM") {
		weights = s.Div(weights, s.Sum(weights, true, -1))
	}
	if templateBool(l, "GATE") {
		weights = s.Concat(1, weights, s.Sigmoid(s.SliceAxis(in[0], 1, experts, experts+1)))
	}
	return []mlx.Array{s.AsType(chosen, mlx.Int32), weights}
}

// expertsHeader is what the products with experts' weights need.
func expertsHeader(bounds string) string {
	return compact(cudaHeader) + compact(q4Macros) + compact(mmaHeader) + compact(streamHeader) + compact(attentionMacros) + compact(chainMacros) + compact(expertsMacros) + compact(bounds)
}

func upSpec() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:     "godflash_experts_up",
		Inputs:   []string{"x", "chosen", "gate_w", "gate_scales", "gate_biases", "up_w", "up_scales", "up_biases", "shared_w", "shared_scales", "shared_biases"},
		Outputs:  []string{"h"},
		CUDA:     mlx.KernelSource{Header: expertsHeader(upHeader), Source: cudaWaits + compact(upText)},
		Fallback: composeUp,
	}
}

// wide is a weight written out.
func wide(s *mlx.Scope, q mlx.Quantized) mlx.Array {
	q.Scales, q.Biases = s.AsType(q.Scales, mlx.Float32), s.AsType(q.Biases, mlx.Float32)
	return s.Dequantize(q, mlx.Float32)
}

// through is row i of x [T, K, in] by expert chosen[i] of w, in float32.
func through(s *mlx.Scope, x, chosen mlx.Array, w []mlx.Array) mlx.Array {
	t, k := chosen.Dim(0), chosen.Dim(1)
	id := s.Flatten(chosen)
	q := mlx.Quantized{W: s.Take(w[0], id, 0), Scales: s.Take(w[1], id, 0), Biases: s.Take(w[2], id, 0), Options: q4Options}
	return s.Reshape(s.MatMul(s.Reshape(s.AsType(x, mlx.Float32), t*k, 1, -1), s.SwapAxes(wide(s, q), 1, 2)), t, k, -1)
}

// dense is x [T, 1, in] by a weight.
func dense(s *mlx.Scope, x mlx.Array, w []mlx.Array) mlx.Array {
	return s.MatMul(s.AsType(x, mlx.Float32), s.Transpose(wide(s, mlx.Quantized{W: w[0], Scales: w[1], Biases: w[2], Options: q4Options})))
}

func composeUp(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
	x, chosen, dt := s.Reshape(in[0], -1, 1, in[0].Dim(2)), in[1], in[0].Dtype()
	t, k, f, half := chosen.Dim(0), chosen.Dim(1), templateInt(l, "F"), templateInt(l, "HALF")
	each := s.BroadcastTo(x, t, k, x.Dim(2))
	gate, up := through(s, each, chosen, in[2:5]), through(s, each, chosen, in[5:8])
	if templateBool(l, "SHARED") {
		tiles := s.Reshape(dense(s, x, in[8:11]), t, -1, 2, half)
		gate = s.Concat(1, gate, s.Reshape(s.SliceAxis(tiles, 2, 0, 1), t, 1, f))
		up = s.Concat(1, up, s.Reshape(s.SliceAxis(tiles, 2, 1, 2), t, 1, f))
	}
	round := func(a mlx.Array) mlx.Array { return s.AsType(s.AsType(a, dt), mlx.Float32) }
	gate, up = round(gate), round(up)
	return []mlx.Array{s.AsType(s.Mul(s.Mul(gate, s.Sigmoid(gate)), up), dt)}
}

func downSpec() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:     "godflash_experts_down",
		Inputs:   []string{"h", "chosen", "weights", "down_w", "down_scales", "down_biases", "shared_w", "shared_scales", "shared_biases", "residual"},
		Outputs:  []string{"y", "squares"},
		CUDA:     mlx.KernelSource{Header: expertsHeader(downHeader), Source: cudaWaits + compact(downText)},
		Fallback: composeDown,
	}
}

func composeDown(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
	h, chosen, weights := in[0], in[1], in[2]
	t, k, dt := chosen.Dim(0), chosen.Dim(1), h.Dtype()
	y := through(s, s.SliceAxis(h, 1, 0, k), chosen, in[3:6])
	if templateBool(l, "SHARED") {
		y = s.Concat(1, y, dense(s, s.SliceAxis(h, 1, k, k+1), in[6:9]))
	}
	y = s.Sum(s.Mul(y, s.Reshape(weights, t, -1, 1)), false, 1)
	y = s.AsType(s.Reshape(y, 1, t, -1), dt)
	if templateBool(l, "RES") {
		y = s.Add(y, in[9])
	}
	squares := s.Zeros(mlx.Float32, nearSize)
	if templateBool(l, "SQ") {
		squares = s.Sum(s.Square(s.Reshape(s.AsType(y, mlx.Float32), t, -1, 16)), false, 2)
	}
	return []mlx.Array{y, squares}
}
