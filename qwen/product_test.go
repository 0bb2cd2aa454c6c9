package qwen_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// BenchmarkProducts is why dense weights are widened on the CPU and scales are not:
// the table of docs/loading.md.
func BenchmarkProducts(b *testing.B) {
	const in, out = 1024, 3072
	owner := lib.NewScope("products")
	defer owner.Close()
	var w, half mlx.Array
	var wide, stored mlx.Quantized
	do(b, func(s *mlx.Scope) error {
		w = s.Normal(s.Key(2), 0, 1, mlx.Float32, in, out)
		half = s.AsType(w, mlx.BFloat16)
		stored = s.Quantize(s.Contiguous(s.Transpose(half)), mlx.QuantizeOptions{Bits: 4, GroupSize: 64})
		wide = stored
		wide.Scales, wide.Biases = s.AsType(stored.Scales, mlx.Float32), s.AsType(stored.Biases, mlx.Float32)
		if err := s.Eval(w, half, stored.W, stored.Scales, stored.Biases, wide.Scales, wide.Biases); err != nil {
			return err
		}
		for _, a := range []*mlx.Array{&w, &half, &stored.W, &stored.Scales, &stored.Biases, &wide.Scales, &wide.Biases} {
			*a = owner.Move(*a)
		}
		wide.W = stored.W
		return nil
	})
	for _, rows := range []int{1, 8, 128} {
		for _, c := range []struct {
			name string
			f    func(s *mlx.Scope, x mlx.Array) mlx.Array
		}{
			{"float32", func(s *mlx.Scope, x mlx.Array) mlx.Array { return s.MatMul(x, w) }},
			{"bfloat16", func(s *mlx.Scope, x mlx.Array) mlx.Array { return s.MatMul(s.AsType(x, mlx.BFloat16), half) }},
			{"bfloat16 widened", func(s *mlx.Scope, x mlx.Array) mlx.Array { return s.MatMul(x, s.AsType(half, mlx.Float32)) }},
			{"4 bits, float32 scales", func(s *mlx.Scope, x mlx.Array) mlx.Array { return s.QuantizedMatMul(x, wide, true) }},
			{"4 bits, bfloat16 scales", func(s *mlx.Scope, x mlx.Array) mlx.Array { return s.QuantizedMatMul(x, stored, true) }},
		} {
			b.Run(fmt.Sprintf("%d rows/%s", rows, c.name), func(b *testing.B) {
				for b.Loop() {
					do(b, func(s *mlx.Scope) error {
						return s.Eval(c.f(s, s.Full(0.5, mlx.Float32, rows, in)))
					})
				}
			})
		}
	}
}

// Scales as they are stored give the bits of scales that were widened before.
func TestStoredScales(t *testing.T) {
	for _, rows := range []int{1, 5, 40} {
		do(t, func(s *mlx.Scope) error {
			x := s.Normal(s.Key(1), 0, 1, mlx.Float32, rows, 256)
			for _, bits := range []int{2, 3, 4, 5, 6, 8} {
				for _, dtype := range []mlx.Dtype{mlx.BFloat16, mlx.Float16} {
					q := s.Quantize(s.Normal(s.Key(2), 0, 1, dtype, 96, 256), mlx.QuantizeOptions{Bits: bits, GroupSize: 32})
					wide := q
					wide.Scales, wide.Biases = s.AsType(q.Scales, mlx.Float32), s.AsType(q.Biases, mlx.Float32)
					same, err := mlx.Item[bool](s.ArrayEqual(s.QuantizedMatMul(x, q, true), s.QuantizedMatMul(x, wide, true)))
					require.NoError(t, err)
					require.True(t, same, "%d bits, %v, %d rows", bits, dtype, rows)
				}
			}
			return nil
		})
	}
}
