package kernels

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// Scores of a few parts, with the largest in each, twice, in all lanes' places, and
// with rows that are not finite, minus infinity throughout, or hold both zeros.
func TestLargest(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		const vocab = 2*largestPart + 1008
		inf := math.Inf(1)
		type row struct {
			at      []int // of the values
			values  []float64
			want    int32
			checked int32
		}
		rows := []row{
			{nil, nil, 0, 0}, // random
			{[]int{0}, []float64{50}, 0, 0},
			{[]int{vocab - 1}, []float64{50}, vocab - 1, vocab - 1},
			{[]int{largestPart + 77, 2*largestPart + 5}, []float64{50, 50}, largestPart + 77, largestPart + 77},
			{[]int{300, 301}, []float64{50, 50}, 300, 300},
			{[]int{33, 260}, []float64{50, 50}, 33, 33},
			{[]int{9000, 17}, []float64{51, 50}, 9000, 9000},
			{[]int{5}, []float64{math.NaN()}, 0, NotFinite},
			{[]int{largestPart}, []float64{inf}, largestPart, NotFinite},
			{[]int{4, 900}, []float64{-inf, 50}, 900, NotFinite},
			{[]int{vocab - 2, 12}, []float64{math.NaN(), 50}, 12, NotFinite},
		}
		{
			r := newSource(s, 31)
			v := make([]float32, 0, len(rows)*vocab)
			for i := range rows {
				one := make([]float32, vocab)
				for j := range one {
					one[j] = mlx.BF16From(float32(r.r.NormFloat64())).Float32() // exact in both types
				}
				for j, at := range rows[i].at {
					one[at] = float32(rows[i].values[j])
				}
				if w := &rows[i]; len(w.at) == 0 || math.IsNaN(w.values[0]) && len(w.at) == 1 {
					best := -1
					for j, x := range one {
						if best < 0 && x == x || best >= 0 && x > one[best] {
							best = j
						}
					}
					w.want = int32(best)
					if w.checked != NotFinite {
						w.checked = w.want
					}
				}
				v = append(v, one...)
			}
			low := slices.Repeat([]float32{float32(-inf)}, vocab)
			zeros := make([]float32, vocab)
			for j := range 40 {
				zeros[j] = float32(math.Copysign(0, -1))
			}
			v = append(append(v, low...), zeros...)
			n := len(rows) + 2
			scores := s.AsType(mlx.FromSlice(s, v, 1, n, vocab), mlx.BFloat16)
			c := &Choice{counter: s.Zeros(mlx.Int32, BlockRows), none: s.Full(-1, mlx.Int32, 1)}
			for _, checked := range []bool{false, true} {
				var want []int32
				for _, r := range rows {
					want = append(want, map[bool]int32{false: r.want, true: r.checked}[checked])
				}
				want = append(want, map[bool]int32{false: 0, true: NotFinite}[checked], 0)
				for _, first := range []mlx.Array{{}, mlx.FromSlice(s, []int32{42})} {
					call := c.largestCall(scores, first, checked)
					run := runner(t, s, largestSpec(), call)
					for range 2 { // the counters are 0 again
						out := run(call)
						expected := want
						if first.Valid() {
							expected = append([]int32{42}, want...)
						}
						require.Equal(t, expected, ints(t, s, array(t, s, out[0], call.launch.Outputs[0])), "checked %v", checked)
						require.Equal(t, make([]byte, 4*BlockRows), out[3])
						composed := ints(t, s, largestSpec().Fallback(s, call.in, call.launch)[0])
						if !checked { // of rows with NaN the operation takes anything
							composed[7+len(expected)-n], composed[10+len(expected)-n] = want[7], want[10]
						}
						require.Equal(t, expected, composed)
					}
				}
			}
		}
	})
}

func ints(t testing.TB, s *mlx.Scope, a mlx.Array) []int32 {
	t.Helper()
	v, err := mlx.ToSlice[int32](s.Contiguous(a))
	require.NoError(t, err)
	return v
}

func TestAccept(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		c := &Choice{none: s.Full(-1, mlx.Int32, 1), accept: s.NewKernel(acceptSpec(), nil)}
		long := make([]int32, BlockRows+1)
		for i := range long {
			long[i] = int32(i)
		}
		var run func(c call) [][]byte
		for _, x := range []struct {
			block, choices []int32
			instead        int32
			count          int32
		}{
			{[]int32{7}, []int32{5}, -1, 0},
			{[]int32{7, 5}, []int32{5, 6}, -1, 1},
			{[]int32{7, 5}, []int32{4, 6}, -1, 0},
			{[]int32{7, 5, 6, 9, 1}, []int32{5, 6, 8, 1, 2}, -1, 2},
			{[]int32{7, 5, 6, 9, 1}, []int32{5, 6, 9, 1, 2}, -1, 4},
			{[]int32{7, 5, 6, 9, 1}, []int32{5, NotFinite, 9, 1, 2}, -1, 1},
			{[]int32{7, 5, 6, 9, 1}, []int32{5, 6, 9, 1, 2}, 3, 3},
			{[]int32{7, 5, 6, 9, 1}, []int32{0, 6, 9, 1, 2}, 0, 0},
			{long[:BlockRows], long[1:], -1, BlockRows - 1},
		} {
			block, choices, instead := mlx.FromSlice(s, x.block), mlx.FromSlice(s, x.choices), mlx.FromSlice(s, []int32{x.instead})
			call := acceptCall(block, choices, instead)
			if run == nil {
				run = runner(t, s, acceptSpec(), call)
			}
			want := [][]int32{{x.count, x.count + 1, x.choices[x.count], 0}, slices.Concat([]int32{x.count}, x.choices, x.block)}
			raw, composed := run(call), acceptSpec().Fallback(s, call.in, call.launch)
			for i := range want {
				require.Equal(t, want[i], ints(t, s, array(t, s, raw[i], call.launch.Outputs[i])), "%+v", x)
				require.Equal(t, want[i], ints(t, s, composed[i]), "%+v", x)
			}
			if x.instead < 0 {
				instead = mlx.Array{}
			}
			a := c.Accept(s, block, choices, instead)
			for i, part := range []mlx.Array{a.Count, a.Kept, a.Next} {
				require.Equal(t, want[0][i:i+1], ints(t, s, part))
			}
			require.Equal(t, want[1], ints(t, s, a.Packed))
		}
	})
}
