package kernels

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// Into leaves in the caches what an update with Split's keys and values makes,
// and not one byte elsewhere; its outputs are checked as every kernel's are.
func TestInto(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		r := newSource(s, 11)
		type test struct {
			name string
			d    HeadsShape
			c    call
			want []mlx.Array // the caches
			at   int
			rows int
		}
		var tests []test
		var calls []call
		for i, d := range []HeadsShape{
			{Queries: 4, Keys: 2, Dim: 64, Rotated: 64, Eps: 1e-6},
			{Queries: 6, Keys: 1, Dim: 256, Rotated: 64, Gated: true, Eps: 1e-6},
		} {
			for _, alone := range []bool{false, true} {
				for _, rows := range []int{1, 7, 16} {
					nq, nk := d.Queries*d.queryWidth(), d.Keys*d.Dim
					whole := r.normal(mlx.BFloat16, 0, 1, 1, rows, nq+2*nk)
					q, k, v := Cols{whole, 0, nq}, Cols{whole, nq, nk}, Cols{whole, nq + nk, nk}
					if alone {
						q = Cols{}
					}
					qn, kn, inv := r.normal(mlx.Float32, 1, 0.3, d.Dim), r.normal(mlx.Float32, 1, 0.3, d.Dim), InvFreq(s, mlx.RoPEOptions{Dims: d.Rotated, Base: 1e6})
					at := 30 + rows
					position, row := mlx.FromSlice(s, []int32{int32(at)}), mlx.FromSlice(s, []int32{int32(at)})
					place := Place{Position: position}
					if rows == 7 {
						position = mlx.FromSlice(s, []int32{int32(at + 90)})
						place = Place{position, mlx.FromSlice(s, []int32{90})}
					}
					keys, values := r.normal(mlx.BFloat16, 0, 1, 1, d.Keys, 64, d.Dim), r.normal(mlx.BFloat16, 0, 1, 1, d.Keys, 64, d.Dim)
					c := d.intoCall(q, k, v, qn, kn, place, inv, keys, values)
					_, newKeys, newValues := d.compose(s, c.in, c.launch)
					want := []mlx.Array{
						s.SliceUpdateDynamic(s.Copy(keys), newKeys, row, []int{2}),
						s.SliceUpdateDynamic(s.Copy(values), newValues, row, []int{2}),
					}
					require.NoError(t, s.Eval(want...))
					require.NoError(t, s.Eval(c.in...))
					tests = append(tests, test{fmt.Sprintf("shape %d, %d rows, without queries %v", i, rows, alone), d, c, want, at, rows})
					calls = append(calls, c)
				}
			}
		}
		run := runner(t, s, tests[0].d.intoSpec(), calls...)
		for _, x := range tests {
			if lib.Device() == mlx.DeviceGPU {
				run = runner(t, s, x.d.intoSpec())
			}
			fallback := x.d.intoSpec().Fallback(s, x.c.in, x.c.launch)
			var before [][]byte
			for _, i := range x.c.writes {
				before = append(before, rawBytes(t, x.c.in[i]))
			}
			out := run(x.c)
			for i, o := range x.c.launch.Outputs {
				if o.Dtype == mlx.Int32 || len(o.Shape) == 4 {
					near(t, s, fallback[i], array(t, s, out[i], o), 0.03, "%s: output %d", x.name, i)
				}
			}
			width := 2 * x.d.Dim
			for i, want := range x.want {
				got := out[len(x.c.launch.Outputs)+i]
				near(t, s, want, array(t, s, got, mlx.Output{Dtype: mlx.BFloat16, Shape: want.Shape()}), 0.03, "%s: cache %d", x.name, i)
				for row := range len(got) / width {
					if p := row % 64; p < x.at || p >= x.at+x.rows {
						require.Equal(t, before[i][row*width:(row+1)*width], got[row*width:(row+1)*width], "%s: cache %d, row %d", x.name, i, row)
					}
				}
			}
		}
	})
}
