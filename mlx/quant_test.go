package mlx_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

func TestQuantize(t *testing.T) {
	for _, o := range []mlx.QuantizeOptions{
		{},
		{Bits: 2},
		{Bits: 3},
		{Bits: 5},
		{Bits: 6, GroupSize: 128},
		{Bits: 8, GroupSize: 32},
		{Mode: mlx.MXFP4},
		{Mode: mlx.MXFP8},
		{Mode: mlx.NVFP4},
	} {
		do(t, func(s *mlx.Scope) {
			key := s.Key(7)
			w := s.Normal(key, 0, 1, mlx.Float32, 3, 8, 128)
			x := s.Normal(s.Key(8), 0, 1, mlx.Float32, 2, 128)
			q := s.Quantize(w, o)
			require.NoError(t, s.Err(), o)
			require.Equal(t, o.Mode == mlx.Affine, q.Biases.Valid())
			require.Equal(t, 128*q.Options.Bits/32, q.W.Dim(-1))
			d := s.Dequantize(q, mlx.Float32)
			err, e := mlx.Item[float32](s.Max(s.Abs(s.Sub(d, w)), false))
			require.NoError(t, e)
			limit := float32(5) / float32(int(1)<<(q.Options.Bits-1))
			if o.Mode != mlx.Affine {
				limit = 1 // the steps between large numbers are coarse
			}
			require.Less(t, err, limit, "%v", q.Options)
			require.Positive(t, err)

			// The product is that with the matrix read back.
			part := func(a mlx.Array, i int) mlx.Array {
				if !a.Valid() {
					return a
				}
				return s.Squeeze(s.SliceAxis(a, 0, i, i+1), 0)
			}
			q1 := mlx.Quantized{W: part(q.W, 1), Scales: part(q.Scales, 1), Biases: part(q.Biases, 1), Options: q.Options}
			got := s.QuantizedMatMul(x, q1, true)
			want := s.MatMul(x, s.Transpose(part(d, 1)))
			require.Equal(t, []int{2, 8}, got.Shape())
			ok, e := mlx.Item[bool](s.AllClose(got, want, 1e-4, 1e-4, false))
			require.NoError(t, e)
			require.True(t, ok, "%v\n%v", got, want)

			many := s.GatherQMM(s.Reshape(x, 2, 1, 128), q, true, mlx.GatherOptions{RHS: mlx.FromSlice(s, []uint32{1, 1}), LHS: mlx.FromSlice(s, []uint32{0, 1})})
			require.Equal(t, []int{2, 1, 8}, many.Shape())
			ok, e = mlx.Item[bool](s.AllClose(s.Squeeze(many), want, 1e-4, 1e-4, false))
			require.NoError(t, e)
			require.True(t, ok, "%v\n%v", many, want)
		})
	}
}

func TestGatherMM(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		a := s.Normal(s.Key(1), 0, 1, mlx.Float32, 3, 2, 4)
		b := s.Normal(s.Key(2), 0, 1, mlx.Float32, 5, 4, 3)
		got := s.GatherMM(a, b, mlx.GatherOptions{LHS: mlx.FromSlice(s, []uint32{2, 0}), RHS: mlx.FromSlice(s, []uint32{4, 4})})
		want := s.MatMul(s.Take(a, ints(s, 2, 0), 0), s.Take(b, ints(s, 4, 4), 0))
		ok, err := mlx.Item[bool](s.AllClose(got, want, 1e-5, 1e-5, false))
		require.NoError(t, err)
		require.True(t, ok)
	})
}
