package kernels

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// loads are ways in which rows can be divided among experts: the i-th of a row's
// experts, of so many. Scales come for 4, 2 and 1 stages at once: 1536 columns, 768
// and 256, 640 and 128.
var loads = []struct {
	name   string
	shape  MixShape
	rows   int
	expert func(row, i int) int
}{
	{"rows by turns, long columns", MixShape{Experts: 2, TopK: 1, Hidden: 1536, Width: 768}, 9, func(row, _ int) int { return row % 2 }},
	{"one expert all rows", MixShape{Experts: 3, TopK: 1, Hidden: 256, Width: 640}, 130, func(int, int) int { return 1 }},
	{"one each, the last all", MixShape{Experts: 40, TopK: 2, Hidden: 256, Width: 128}, 39, func(row, i int) int { return row + i*(39-row) }},
	// 200 rows, beside 1, none, 17, 64, 65 and 53.
	{"tiles that are full, and one row more", MixShape{Experts: 7, TopK: 2, Hidden: 256, Width: 128}, 200, func(row, i int) int {
		if i == 0 {
			return 3
		}
		for e, to := range []int{1, 1, 18, 18, 82, 147} {
			if row*7%200 < to { // 7 and 200 have no factor in common: every place once
				return e
			}
		}
		return 6
	}},
}

// groupCalls are the launches after the choice, each on results of the operations.
func groupCalls(s *mlx.Scope, d MixShape, m MixMaps, x, chosen, weights mlx.Array) []trial {
	gpu := gpuOf(s.Library())
	var out []trial
	next := func(name string, spec mlx.KernelSpec, c call, tolerance float64) []mlx.Array {
		out = append(out, trial{name, spec, c, tolerance})
		return spec.Fallback(s, c.in, c.launch)
	}
	at := next("order", orderSpec(), d.orderCall(x, chosen), 0)
	h := next("gate and up", groupedSpec(gpu), d.groupUpCall(gpu, at, m), 0.03)
	pairs := next("down", groupedSpec(gpu), d.groupDownCall(gpu, h[0], at, m), 0.03)
	next("sum", groupSumSpec(), d.groupSumCall(pairs[0], weights), 0.01)
	return out
}

// chosen are the experts of a load's rows.
func chosenOf(s *mlx.Scope, rows, k int, expert func(row, i int) int) mlx.Array {
	ids := make([]int32, 0, rows*k)
	for row := range rows {
		for i := range k {
			ids = append(ids, int32(expert(row, i)))
		}
	}
	return mlx.FromSlice(s, ids, rows, k)
}

func groupedTrials(s *mlx.Scope) []trial {
	var out []trial
	r := newSource(s, 41)
	for _, l := range loads {
		l.shape.Router = 8
		m, x := l.shape.maps(r), r.normal(mlx.BFloat16, 0, 1, 1, l.rows, l.shape.Hidden)
		weights := s.Abs(r.normal(mlx.Float32, 0, 0.5, l.rows, l.shape.TopK))
		for _, tr := range groupCalls(s, l.shape, m, x, chosenOf(s, l.rows, l.shape.TopK, l.expert), weights) {
			tr.name = l.name + ": " + tr.name
			out = append(out, tr)
		}
	}
	return out
}

// The order is the experts', and within an expert the rows'; every pair lies in one
// tile, with its expert. The expected numbers are counted here.
func TestGroupOrder(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		for _, l := range loads {
			d := l.shape
			chosen := chosenOf(s, l.rows, d.TopK, l.expert)
			c := d.orderCall(s.Zeros(mlx.BFloat16, 1, l.rows, d.Hidden), chosen)
			out := runner(t, s, orderSpec(), c)(c)
			ints := func(i int) []int32 {
				v, err := mlx.ToSlice[int32](array(t, s, out[i], c.launch.Outputs[i]))
				require.NoError(t, err)
				return v
			}
			var want []int32
			count := make([]int, d.Experts)
			for e := range d.Experts {
				for pair := range l.rows * d.TopK {
					if l.expert(pair/d.TopK, pair%d.TopK) == e {
						want, count[e] = append(want, int32(pair)), count[e]+1
					}
				}
			}
			require.Equal(t, want, ints(0), l.name)
			next := 0
			for tile := range d.tiles(l.rows) {
				v := ints(1)[4*tile : 4*tile+4]
				if v[2] == 0 {
					continue
				}
				require.Equal(t, int32(next), v[1], "%s: tile %d", l.name, tile)
				require.LessOrEqual(t, v[2], int32(groupRows))
				for range v[2] {
					pair := int(want[next])
					require.Equal(t, int32(l.expert(pair/d.TopK, pair%d.TopK)), v[0], "%s: tile %d", l.name, tile)
					next++
				}
			}
			require.Equal(t, len(want), next, l.name)
		}
	})
}

// A row has the same bits in a longer prompt, where its experts have other rows before
// and behind it.
func TestGroupedRowByRow(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		const some, all = 20, 70
		d := MixShape{Experts: 4, TopK: 2, Hidden: 256, Width: 128, Router: 8}
		r := newSource(s, 42)
		m, x := d.maps(r), r.normal(mlx.BFloat16, 0, 1, 1, all, d.Hidden)
		weights := s.Abs(r.normal(mlx.Float32, 0, 0.5, all, d.TopK))
		// Of the longer prompt the short one is the end.
		expert := func(row, i int) int { return (row*row + i*3) % 4 }
		part := func(from int) []trial {
			return groupCalls(s, d, m, s.Contiguous(s.SliceAxis(x, 1, from, all)),
				chosenOf(s, all-from, d.TopK, func(row, i int) int { return expert(row+from, i) }), s.Contiguous(s.SliceAxis(weights, 0, from, all)))
		}
		long, short := part(0), part(all-some)
		run := launcher(t, s, append(long, short...))
		// through runs all launches on what the launches before made.
		through := func(trials []trial) []byte {
			var order, h, pairs []mlx.Array
			of := func(tr trial, in ...mlx.Array) (out []mlx.Array) {
				copy(tr.call.in, in)
				for i, raw := range run(tr) {
					out = append(out, array(t, s, raw, tr.call.launch.Outputs[i]))
				}
				return out
			}
			order = of(trials[0])
			h = of(trials[1], order[2], order[0], order[1])
			pairs = of(trials[2], h[0], order[0], order[1])
			trials[3].call.in[0] = pairs[0]
			return run(trials[3])[0]
		}
		whole, end := through(long), through(short)
		require.Equal(t, whole[len(whole)-len(end):], end)
		require.NotEqual(t, whole[:len(end)], end)
	})
}

// What the texts do not cover, or a Set has no kernel for, goes to the operations.
func TestGroups(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		set := &Set{group: &grouped{}}
		d := MixShape{Experts: 8, TopK: 2, Hidden: 512, Width: 384}
		x := s.Zeros(mlx.BFloat16, 1, BlockRows+1, d.Hidden)
		require.True(t, set.Groups(s, x, d))
		require.False(t, set.Groups(s, s.Zeros(mlx.BFloat16, 1, BlockRows, d.Hidden), d), "a block")
		require.False(t, set.Groups(s, s.AsType(x, mlx.Float32), d))
		for _, other := range []MixShape{{Hidden: 384, Width: 384}, {Hidden: 512, Width: 320}} {
			require.False(t, set.Groups(s, x, other), fmt.Sprint(other))
		}
		var none *Set
		require.False(t, none.Groups(s, x, d))
		require.False(t, (&Set{}).Groups(s, x, d))
		require.Nil(t, (&Set{gpu: mlx.GPU{SharedMemory: 48 << 10}}).groupKernels(), "too little shared memory")
		require.Equal(t, 2, groupStagesOf(mlx.GPU{SharedMemory: 99 << 10}))
		require.Equal(t, 3, groupStagesOf(largeGPU))
	})
}

// Where a kernel fails, here because there is no GPU, Grouped says so, and the Set
// does without from then on.
func TestGroupedFails(t *testing.T) {
	if lib.Device() == mlx.DeviceGPU {
		t.Skip("the kernels work there")
	}
	do(t, func(s *mlx.Scope) {
		set := &Set{owner: s, gpu: largeGPU, none: s.Zeros(mlx.Float32, 1)}
		require.Nil(t, set.groupKernels())
		k := func(spec mlx.KernelSpec) *mlx.Kernel { return s.NewKernel(spec, nil) }
		set.group = &grouped{k(chooseSpec()), k(orderSpec()), k(groupedSpec(set.gpu)), k(groupSumSpec())}
		d := MixShape{Experts: 3, TopK: 2, Hidden: 256, Width: 128, Router: 8}
		r := newSource(s, 43)
		x := r.normal(mlx.BFloat16, 0, 1, 1, BlockRows+1, d.Hidden)
		require.True(t, set.Groups(s, x, d))
		_, ok := set.Grouped(s, x, r.normal(mlx.Float32, 0, 1, BlockRows+1, 3), d, d.maps(r))
		require.False(t, ok)
		require.NoError(t, s.Err())
		require.False(t, set.Groups(s, x, d))
	})
}
