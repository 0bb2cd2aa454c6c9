package mlx_test

import (
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

func roundTrip[T mlx.Element](t *testing.T, s *mlx.Scope, dt mlx.Dtype, v ...T) {
	t.Helper()
	require.Equal(t, dt, mlx.DtypeOf[T]())
	a := mlx.FromSlice(s, v)
	require.Equal(t, dt, a.Dtype())
	require.Equal(t, []int{len(v)}, a.Shape())
	require.Equal(t, len(v)*dt.Size(), a.NBytes())
	same(t, a, v)
	same(t, s.Transpose(mlx.FromSlice(s, v, 1, len(v))), v)
	one, err := mlx.Item[T](mlx.FromSlice(s, v[:1], 1, 1))
	require.NoError(t, err)
	require.Equal(t, v[0], one)
}

func TestElementTypes(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		roundTrip(t, s, mlx.Bool, true, false)
		roundTrip(t, s, mlx.Uint8, uint8(255), 0)
		roundTrip(t, s, mlx.Uint16, uint16(65535), 1)
		roundTrip(t, s, mlx.Uint32, uint32(math.MaxUint32), 1)
		roundTrip(t, s, mlx.Uint64, uint64(math.MaxUint64), 1)
		roundTrip(t, s, mlx.Int8, int8(-128), 1)
		roundTrip(t, s, mlx.Int16, int16(-32768), 1)
		roundTrip(t, s, mlx.Int32, int32(math.MinInt32), 1)
		roundTrip(t, s, mlx.Int64, int64(math.MinInt64), 1)
		roundTrip(t, s, mlx.Int64, math.MaxInt64, 1)
		roundTrip(t, s, mlx.Float16, mlx.F16From(1.5), mlx.F16From(-2))
		roundTrip(t, s, mlx.Float32, float32(math.SmallestNonzeroFloat32), -1)
		if s.Library().Device() == mlx.DeviceCPU {
			roundTrip(t, s, mlx.Float64, math.SmallestNonzeroFloat64, -1)
		}
		roundTrip(t, s, mlx.BFloat16, mlx.BF16From(1.5), mlx.BF16From(-2))
		roundTrip(t, s, mlx.Complex64, complex64(complex(1, 2)), 3)
	})
}

func TestConversionErrors(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		a := s.Ones(mlx.Float32, 2, 3)
		_, err := mlx.ToSlice[int32](a)
		require.EqualError(t, err, "mlx: ToSlice(float32[2,3]): the elements are float32, asked for were int32; convert with AsType")
		_, err = mlx.Item[float32](a)
		require.EqualError(t, err, "mlx: Item(float32[2,3]): the array has 6 elements, not one")
		_, err = mlx.ToSlice[float32](mlx.Array{})
		require.ErrorIs(t, err, mlx.ErrZeroArray)
		require.NoError(t, s.Err(), "reading is no operation: the scope goes on")

		same(t, mlx.FromSlice(s, []float32{}), []float32{})
		same(t, mlx.FromSlice[float32](s, nil, 0, 7), []float32{})
		same(t, s.BroadcastTo(s.Scalar(2, mlx.Int32), 3), []int32{2, 2, 2})
		same(t, s.SliceAxis(mlx.FromSlice(s, []int32{1, 2, 3, 4, 5, 6}, 2, 3), 1, 1, 3), []int32{2, 3, 5, 6})
	})
}

func TestFromSliceCopies(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		v := []int32{1, 2}
		a := mlx.FromSlice(s, v)
		v[0] = 9
		got, err := mlx.ToSlice[int32](a)
		require.NoError(t, err)
		got[1] = 9
		same(t, a, []int32{1, 2})
	})
}

// The Go conversions of halves must be those of MLX, for every bit pattern.
func TestHalvesAgainstMLX(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		halves, brains := make([]mlx.F16, 1<<16), make([]mlx.BF16, 1<<16)
		for i := range halves {
			halves[i], brains[i] = mlx.F16(i), mlx.BF16(i)
		}
		h, err := mlx.ToSlice[float32](s.AsType(mlx.FromSlice(s, halves), mlx.Float32))
		require.NoError(t, err)
		b, err := mlx.ToSlice[float32](s.AsType(mlx.FromSlice(s, brains), mlx.Float32))
		require.NoError(t, err)
		// Rounding: exact values, the ties between neighbours, and both sides of them.
		var in []float32
		for i := range halves {
			if x := halves[i].Float32(); x == x {
				require.Equal(t, h[i], x, "half %#x", i)
				require.Equal(t, halves[i], mlx.F16From(x))
				if y := mlx.F16(i + 1).Float32(); i < 0x7bff {
					in = append(in, x, (x+y)/2, math.Nextafter32((x+y)/2, 0), math.Nextafter32((x+y)/2, y))
				}
			} else {
				require.True(t, h[i] != h[i])
			}
			if x := brains[i].Float32(); x == x {
				require.Equal(t, b[i], x, "bfloat16 %#x", i)
				require.Equal(t, brains[i], mlx.BF16From(x))
				if i&0x7f80 != 0x7f80 {
					in = append(in, math.Float32frombits(uint32(i)<<16|0x8000), math.Float32frombits(uint32(i)<<16|0x7fff), math.Float32frombits(uint32(i)<<16|0x8001))
				}
			} else {
				require.True(t, b[i] != b[i])
			}
		}
		in = append(in, 65504, 65519, 65520, 65536, 1e30, float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32)
		toHalf, err := mlx.ToSlice[mlx.F16](s.AsType(mlx.FromSlice(s, in), mlx.Float16))
		require.NoError(t, err)
		toBrain, err := mlx.ToSlice[mlx.BF16](s.AsType(mlx.FromSlice(s, in), mlx.BFloat16))
		require.NoError(t, err)
		for i, x := range in {
			if toHalf[i] != mlx.F16From(x) {
				t.Fatalf("F16From(%v, bits %#x) = %#x, MLX has %#x", x, math.Float32bits(x), mlx.F16From(x), toHalf[i])
			}
			if toBrain[i] != mlx.BF16From(x) {
				t.Fatalf("BF16From(%v, bits %#x) = %#x, MLX has %#x", x, math.Float32bits(x), mlx.BF16From(x), toBrain[i])
			}
		}
		n := float32(math.NaN())
		require.True(t, mlx.F16From(n).Float32() != mlx.F16From(n).Float32())
		require.True(t, mlx.BF16From(n).Float32() != mlx.BF16From(n).Float32())
		low := math.Float32frombits(0x7f800001) // a NaN whose upper half would be infinity
		require.True(t, mlx.BF16From(low).Float32() != mlx.BF16From(low).Float32())
		require.True(t, mlx.F16From(low).Float32() != mlx.F16From(low).Float32())
	})
}

func TestDtype(t *testing.T) {
	require.Equal(t, "bfloat16", mlx.BFloat16.String())
	require.Equal(t, "Dtype(77)", mlx.Dtype(77).String())
	require.Equal(t, []int{1, 2, 4, 8, 0}, []int{mlx.Bool.Size(), mlx.BFloat16.Size(), mlx.Float32.Size(), mlx.Complex64.Size(), mlx.Dtype(77).Size()})
	require.True(t, mlx.BFloat16.IsFloat())
	require.False(t, mlx.Int8.IsFloat())
	// The names are those MLX prints.
	do(t, func(s *mlx.Scope) {
		for dt := mlx.Bool; dt <= mlx.Complex64; dt++ {
			if dt == mlx.Float64 && s.Library().Device() != mlx.DeviceCPU {
				continue
			}
			require.Contains(t, s.Zeros(dt, 1).String(), "dtype="+dt.String()+")")
		}
	})
}

// Reading nothing: on CUDA some empty arrays have no memory at all.
func TestReadEmptyResults(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		for name, a := range map[string]mlx.Array{
			"arange": s.Arange(2, 2, 1, mlx.Float32),
			"matmul": s.MatMul(s.Zeros(mlx.Float32, 0, 3), s.Ones(mlx.Float32, 3, 2)),
			"zeros":  s.Zeros(mlx.Float32, 0),
		} {
			v, err := mlx.ToSlice[float32](a)
			require.NoError(t, err, name)
			require.Empty(t, v)
			require.NotNil(t, v)
			v, err = mlx.ViewSlice[float32](a)
			require.NoError(t, err, name)
			require.Empty(t, v)
			require.Contains(t, a.String(), "dtype=float32")
			require.NoError(t, s.SaveNPYTo(io.Discard, a))
			require.NoError(t, s.SaveSafetensorsTo(io.Discard, map[string]mlx.Array{"a": a}, nil))
		}
	})
}
