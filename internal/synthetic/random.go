package synthetic

import (
	"math"
	"strings"

	"github.com/godflash/godflash/mlx"
)

// made is a tensor in the making.
type made struct {
	s     *mlx.Scope
	key   mlx.Array
	shape []int
	dtype mlx.Dtype
}

func (m made) uniform(low, high float64) mlx.Array {
	s := m.s
	return s.Uniform(m.key, s.Scalar(low, m.dtype), s.Scalar(high, m.dtype), m.dtype, m.shape...)
}

// spread is uniform around 0 with that standard deviation.
func (m made) spread(deviation float64) mlx.Array {
	return m.uniform(-math.Sqrt(3)*deviation, math.Sqrt(3)*deviation)
}

// quantized is one of the three parts of a matrix whose rows have random steps:
// together they stand for numbers around 0 that keep the size of what is mapped.
func (m made) quantized(name string, o mlx.QuantizeOptions) mlx.Array {
	if strings.HasSuffix(name, ".weight") {
		return m.s.RandomBits(m.key, mlx.Uint32, m.shape...)
	}
	steps := math.Exp2(float64(o.Bits)) - 1
	// Uniform steps from 0 to steps deviate by √(((steps+1)²−1)/12).
	deviation := math.Sqrt(((steps+1)*(steps+1) - 1) / 12)
	row := m.shape[len(m.shape)-1] * o.GroupSize
	scale := 1 / math.Sqrt(float64(row)) / deviation
	if strings.HasSuffix(name, ".biases") {
		scale *= -steps / 2
	}
	return m.s.Full(scale, m.dtype, m.shape...)
}
