package kernels

import "github.com/godflash/godflash/mlx"

// Choice takes tokens from scores, and compares them with drafts, on CUDA: one
// launch each, where operations need a dozen.
type Choice struct {
	set             *Set
	largest, accept *mlx.Kernel
	counter         mlx.Array // int32 [BlockRows], see largestText
	none            mlx.Array // int32 [1], below 0
}

// Choice makes the kernels; nil without a Set, and where there are none.
func (set *Set) Choice() *Choice {
	if set == nil {
		return nil
	}
	c := &Choice{set: set, largest: set.kernel(largestSpec()), accept: set.kernel(acceptSpec())}
	if c.largest == nil || c.accept == nil {
		return nil
	}
	c.counter = set.owner.Zeros(mlx.Int32, BlockRows)
	c.none = Near(set.owner, set.owner.Full(-1, mlx.Int32, 1))
	return c
}

// NotFinite stands for the choice of a row whose scores are not all finite.
const NotFinite = -1

// Takes reports whether Largest takes scores [..., T, vocab]: bfloat16, of up to
// BlockRows rows.
func (c *Choice) Takes(s *mlx.Scope, scores mlx.Array) bool {
	return c != nil && s.Err() == nil && rowsOf(scores.Shape()) <= BlockRows && scores.Dim(-1)%8 == 0 && c.set.tensorType(scores.Dtype())
}

// Largest is the index of each row's largest score, int32 [T], the lowest where
// several are equal. checked has NotFinite for rows that hold NaN or infinity. With
// first, int32 [1], the result begins with its element: int32 [1+T].
func (c *Choice) Largest(s *mlx.Scope, scores, first mlx.Array, checked bool) mlx.Array {
	out := c.largestCall(scores, first, checked).run(s, c.largest)
	if len(out) != 3 {
		return mlx.Array{}
	}
	n := rowsOf(scores.Shape())
	if first.Valid() {
		n++
	}
	return s.SliceAxis(out[0], 0, 0, n)
}

// Accepted is what a block's choices say of its drafts.
type Accepted struct {
	Count mlx.Array // int32 [1]: leading drafts that are the choice of the row before
	Kept  mlx.Array // int32 [1]: Count and the anchor
	Next  mlx.Array // int32 [1]: the choice of the last row that is kept
	// Packed is Count, the choices and the block, int32 [1+2T].
	Packed mlx.Array
}

// Compares reports whether Accept takes a block of rows.
func (c *Choice) Compares(rows int) bool { return c != nil && rows <= 32 }

// Accept compares block, int32 [T], the anchor and up to 31 drafts, with choices,
// int32 [T]. A valid instead, int32 [1], takes the place of the count that they give.
func (c *Choice) Accept(s *mlx.Scope, block, choices, instead mlx.Array) Accepted {
	if !instead.Valid() {
		instead = c.none
	}
	out := acceptCall(block, choices, instead).run(s, c.accept)
	if len(out) != 2 {
		return Accepted{}
	}
	at := func(i int) mlx.Array { return s.SliceAxis(out[0], 0, i, i+1) }
	return Accepted{Count: at(0), Kept: at(1), Next: at(2), Packed: out[1]}
}

func largestSpec() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:    "godflash_largest",
		Inputs:  []string{"scores", "first", "counter"},
		Outputs: []string{"ids", "tops", "places"},
		// Metal's argmax is one launch as well.
		CUDA: mlx.KernelSource{Header: compact(cudaHeader) + compact(largestMacros), Source: cudaWaits + compact(largestText)},
		Fallback: func(s *mlx.Scope, in []mlx.Array, l mlx.Launch) []mlx.Array {
			x := s.Reshape(s.AsType(in[0], mlx.Float32), -1, in[0].Dim(-1))
			ids := s.AsType(s.Argmax(x, -1, false), mlx.Int32)
			if templateBool(l, "CHECKED") {
				ids = s.Where(s.All(s.IsFinite(x), false, -1), ids, s.Scalar(NotFinite, mlx.Int32))
			}
			if templateBool(l, "LED") {
				ids = s.Concat(0, in[1], ids)
			}
			if n := ids.Dim(0); n < nearSize {
				ids = s.Concat(0, ids, s.Zeros(mlx.Int32, nearSize-n))
			}
			shape := l.Outputs[1].Shape
			return []mlx.Array{ids, s.Zeros(mlx.Uint32, shape...), s.Zeros(mlx.Int32, shape...)}
		},
	}
}

// largestPart is the number of scores of a row that a block of threads looks at.
const largestPart = 4096

func (c *Choice) largestCall(scores, first mlx.Array, checked bool) call {
	rows, vocab, led := rowsOf(scores.Shape()), scores.Dim(-1), first.Valid()
	parts, n := (vocab+largestPart-1)/largestPart, rows
	if led {
		n++
	} else {
		first = c.none
	}
	return call{
		in: []mlx.Array{scores, first, c.counter},
		launch: mlx.Launch{
			Outputs: []mlx.Output{
				{Dtype: mlx.Int32, Shape: []int{max(n, nearSize)}}, // see Near
				{Dtype: mlx.Uint32, Shape: []int{rows, parts}},
				{Dtype: mlx.Int32, Shape: []int{rows, parts}},
			},
			Grid: [3]int{parts * 256, rows}, Group: [3]int{256},
			Template: []mlx.TemplateArg{
				{Name: "V", Value: vocab},
				{Name: "PARTS", Value: parts},
				{Name: "EACH", Value: largestPart / 2048},
				{Name: "CHECKED", Value: checked},
				{Name: "LED", Value: led},
			},
		},
		writes: []int{2},
	}
}

func acceptSpec() mlx.KernelSpec {
	return mlx.KernelSpec{
		Name:    "godflash_accept",
		Inputs:  []string{"block", "choices", "instead"},
		Outputs: []string{"accepted", "packed"},
		CUDA:    cuda(acceptText),
		Fallback: func(s *mlx.Scope, in []mlx.Array, _ mlx.Launch) []mlx.Array {
			block, choices, instead := in[0], in[1], in[2]
			zero, one := s.Zeros(mlx.Int32, 1), s.Ones(mlx.Int32, 1)
			count := zero
			if t := block.Dim(0); t > 1 {
				right := s.AsType(s.Equal(s.SliceAxis(block, 0, 1, t), s.SliceAxis(choices, 0, 0, t-1)), mlx.Int32)
				count = s.Sum(s.CumProd(right, 0), true, 0)
			}
			count = s.Where(s.Less(instead, zero), count, instead)
			return []mlx.Array{s.Concat(0, count, s.Add(count, one), s.Take(choices, count, 0), zero), s.Concat(0, count, choices, block)}
		},
	}
}

func acceptCall(block, choices, instead mlx.Array) call {
	return call{in: []mlx.Array{block, choices, instead}, launch: mlx.Launch{
		Outputs: []mlx.Output{{Dtype: mlx.Int32, Shape: []int{nearSize}}, {Dtype: mlx.Int32, Shape: []int{1 + 2*block.Dim(0)}}},
		Grid:    [3]int{32}, Group: [3]int{32},
	}}
}
