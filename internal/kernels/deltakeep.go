package kernels

import (
	"fmt"
	"strings"

	"github.com/godflash/godflash/mlx"
)

// keepTogether is the most layers whose states one launch computes on CUDA: a
// layer alone is too little for a large GPU, and a launch has so many arguments.
const keepTogether = 12

// DeltaBlock is what Keep needs of a layer: a block's rows, the state before it and
// the convolution's whole input.
type DeltaBlock struct {
	Rows          DeltaRows
	State, ConvIn mlx.Array
}

// Keep is what the first n rows of blocks, of layers of the same kind, leave, or,
// with a count, int32 [1] and at most n, as many rows as it says: for each block the
// last inputs of the convolution, cut from its ConvIn, and the state after the rows.
func (k *Delta) Keep(s *mlx.Scope, blocks []DeltaBlock, n int, count mlx.Array) (tails, after []mlx.Array) {
	if k.keep == nil {
		return k.replay(s, blocks, n, count)
	}
	if !count.Valid() {
		count = mlx.FromSlice(s, []int32{int32(n)})
	}
	for _, part := range k.divide(blocks) {
		out := k.shape.keepCall(part, count).run(s, k.keepKernel(len(part)))
		if len(out) != 2*len(part) {
			return make([]mlx.Array, len(blocks)), make([]mlx.Array, len(blocks)) // the scope has the error
		}
		after, tails = append(after, out[:len(part)]...), append(tails, out[len(part):]...)
	}
	return tails, after
}

// divide cuts blocks into the parts that one launch takes each.
func (k *Delta) divide(blocks []DeltaBlock) (parts [][]DeltaBlock) {
	most := 1
	if k.together() {
		launches := (len(blocks) + keepTogether - 1) / keepTogether
		most = (len(blocks) + launches - 1) / launches
	}
	for len(blocks) > 0 {
		n := min(most, len(blocks))
		parts, blocks = append(parts, blocks[:n]), blocks[n:]
	}
	return parts
}

// together says that there is a text for several layers.
func (k *Delta) together() bool { return k.scan.Backend() == "cuda" || k.set.composed }

func (k *Delta) keepKernel(layers int) *mlx.Kernel {
	if k.keep[layers] == nil {
		k.keep[layers] = k.set.owner.NewKernel(k.shape.keepSpec(layers), k.set.log)
	}
	return k.keep[layers]
}

// replay is Keep in operations.
func (k *Delta) replay(s *mlx.Scope, blocks []DeltaBlock, n int, count mlx.Array) (tails, after []mlx.Array) {
	kept := k.shape.Taps - 1
	for _, b := range blocks {
		var tail mlx.Array
		if count.Valid() {
			tail = k.shape.tail(s, b.ConvIn, count)
		} else {
			tail = s.Contiguous(s.SliceAxis(b.ConvIn, 1, n, n+kept))
		}
		tails, after = append(tails, tail), append(after, b.Rows.in.replay(s, b.State, n, count))
	}
	return tails, after
}

// The names of a layer's inputs and outputs in the text.
var (
	keepIn  = []string{"k", "v", "g", "beta", "state", "conv_in"}
	keepOut = []string{"after", "tail"}
)

// keepSpec is for one layer, or for several in one launch; their names end in the
// layer's number then, and blockIdx.y is that number.
func (d DeltaShape) keepSpec(layers int) mlx.KernelSpec {
	spec := mlx.KernelSpec{
		Name: "godflash_delta_keep",
		Fallback: func(s *mlx.Scope, in []mlx.Array, _ mlx.Launch) []mlx.Array {
			var after, tails []mlx.Array
			count := in[len(in)-1]
			for i := range layers {
				b := in[i*len(keepIn):]
				rows := d.input(s, b[0], b[1], b[2], b[3])
				after, tails = append(after, rows.replay(s, b[4], b[0].Dim(0), count)), append(tails, d.tail(s, b[5], count))
			}
			return append(after, tails...)
		},
	}
	if layers == 1 {
		spec.Inputs, spec.Outputs = append(spec.Inputs, keepIn...), keepOut
		spec.Metal, spec.CUDA = metal(deltaKeepText), cuda(deltaKeepText)
	} else {
		spec.Name += fmt.Sprint("_", layers)
		for i := range layers {
			for _, name := range keepIn {
				spec.Inputs = append(spec.Inputs, fmt.Sprint(name, i))
			}
		}
		for _, name := range keepOut {
			for i := range layers {
				spec.Outputs = append(spec.Outputs, fmt.Sprint(name, i))
			}
		}
		spec.CUDA = cuda(ofLayers(deltaKeepText, layers))
	}
	spec.Inputs = append(spec.Inputs, "count")
	return spec
}

// ofLayers makes the text for a layer one that finds its layer's arrays first.
func ofLayers(text string, layers int) string {
	var b strings.Builder
	names := append(append([]string{}, keepIn...), keepOut...)
	for _, name := range names {
		fmt.Fprintf(&b, "decltype(%s0) %s = %s0;\n", name, name, name)
	}
	b.WriteString("switch (blockIdx.y) {\n")
	for i := 1; i < layers; i++ {
		fmt.Fprintf(&b, "case %d:", i)
		for _, name := range names {
			fmt.Fprintf(&b, " %s = %s%d;", name, name, i)
		}
		b.WriteString(" break;\n")
	}
	b.WriteString("}\n")
	return b.String() + strings.ReplaceAll(text, "k_shape", "k0_shape")
}

func (d DeltaShape) keepCall(blocks []DeltaBlock, count mlx.Array) call {
	one := d.scanCall(blocks[0].Rows.K, &blocks[0].Rows, blocks[0].State, count)
	c := call{launch: mlx.Launch{
		Grid: [3]int{one.launch.Grid[0], len(blocks)}, Group: one.launch.Group,
		Template: d.template(mlx.TemplateArg{Name: "CH", Value: d.channels()}, mlx.TemplateArg{Name: "TAIL", Value: (d.Taps - 1) * d.channels()}),
	}}
	for _, b := range blocks {
		c.in = append(c.in, b.Rows.K, b.Rows.V, b.Rows.G, b.Rows.Beta, b.State, b.ConvIn)
		c.launch.Outputs = append(c.launch.Outputs, one.launch.Outputs[1])
	}
	for _, b := range blocks {
		c.launch.Outputs = append(c.launch.Outputs, mlx.Output{Dtype: b.ConvIn.Dtype(), Shape: d.Tail()})
	}
	c.in = append(c.in, count)
	return c
}
