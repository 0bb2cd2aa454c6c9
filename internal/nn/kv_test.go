package nn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/mlx"
)

const (
	heads  = 2
	qHeads = 4
	dim    = 8
)

// row is what position p of a random sequence writes and asks for.
type row struct{ k, v, q []float32 }

func rows(seed uint64, n int) []row {
	r := rand.New(rand.NewPCG(seed, 0))
	vector := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		return v
	}
	out := make([]row, n)
	for i := range out {
		out[i] = row{vector(heads * dim), vector(heads * dim), vector(qHeads * dim)}
	}
	return out
}

// block stacks one vector of each row as [1, heads, T, dim].
func block(s *mlx.Scope, rs []row, n int, pick func(row) []float32) mlx.Array {
	var data []float32
	for h := range n {
		for _, r := range rs {
			data = append(data, pick(r)[h*dim:(h+1)*dim]...)
		}
	}
	return mlx.FromSlice(s, data, 1, n, len(rs), dim)
}

// attend is attention in float64 from its definition, for the block rs[from:to]
// over the rows of its sequence, as [heads, T, dim].
func attend(rs []row, from, to int, w nn.Window) []float64 {
	scale := 1 / math.Sqrt(dim)
	out := make([]float64, 0, qHeads*(to-from)*dim)
	for h := range qHeads {
		kv := h / (qHeads / heads) * dim
		for p := from; p < to; p++ {
			var sum float64
			y := make([]float64, dim)
			for j := range to {
				if w.Causal && j > p || w.Size > 0 && p-j >= w.Size {
					continue
				}
				var dot float64
				for d := range dim {
					dot += float64(rs[p].q[h*dim+d]) * float64(rs[j].k[kv+d])
				}
				e := math.Exp(dot * scale)
				sum += e
				for d := range dim {
					y[d] += e * float64(rs[j].v[kv+d])
				}
			}
			for d := range dim {
				out = append(out, y[d]/sum)
			}
		}
	}
	return out
}

// cache drives a KV as a model does; the position is exact or data with an
// upper bound that lies above.
type cache struct {
	t     *testing.T
	kv    *nn.KV
	owner *mlx.Scope
	over  int // by how much the bound exceeds the position; 0 is exact
	keep  func(p int) int
}

func newCache(t *testing.T, over int, keep func(p int) int) *cache {
	c := &cache{t: t, kv: nn.NewKV(heads, dim, mlx.Float32), owner: lib.NewScope("cache"), over: over, keep: keep}
	t.Cleanup(func() { require.NoError(t, c.owner.Close()) })
	return c
}

// step writes rs[from:to] at from and attends.
func (c *cache) step(rs []row, from, to int, w nn.Window) (y []float32) {
	do(c.t, func(s *mlx.Scope) {
		p := nn.At(from)
		if c.over > 0 {
			p = nn.Position{Bound: from + c.over, Array: mlx.FromSlice(s, []int32{int32(from)})}
		}
		b := rs[from:to]
		keys, vals := c.kv.Write(s, block(s, b, heads, func(r row) []float32 { return r.k }), block(s, b, heads, func(r row) []float32 { return r.v }), p, c.keep(from))
		a := c.kv.Attend(s, block(s, b, qHeads, func(r row) []float32 { return r.q }), keys, vals, p, w, nn.AttentionScale(dim))
		c.kv.Adopt(c.owner)
		require.NoError(c.t, s.Eval(append(c.kv.Arrays(), a)...))
		require.Zero(c.t, c.kv.Capacity()%nn.RowStep)
		y = values(c.t, s.Contiguous(a))
	})
	return y
}

func everything(int) int { return 0 }

// Attention over the buffers is that of the definition, and positions as data
// give the bits of positions that the host knows, for all windows, through two
// growths of the buffer and, with a window, after rows have been dropped.
func TestWriteAttend(t *testing.T) {
	const n = 600
	all := rows(1, n+16)
	for _, w := range []nn.Window{{Causal: true}, {}, {Causal: true, Size: 8}, {Size: 8}, {Causal: true, Size: 3}, {Size: 3}, {Causal: true, Size: 1}, {Causal: true, Size: 100}} {
		t.Run(fmt.Sprintf("%+v", w), func(t *testing.T) {
			keep := everything
			if w.Size > 0 {
				keep = func(p int) int { return max(0, p-(w.Size-1)) }
			}
			exact, dynamic, tight := newCache(t, 0, keep), newCache(t, 5, keep), newCache(t, 1, keep)
			r := rand.New(rand.NewPCG(7, 7))
			dropped := false
			for p := 0; p < n; {
				size := []int{1, 2, 5, 16, 100}[r.IntN(5)]
				end := min(p+size, n)
				got := exact.step(all, p, end, w)
				want := attend(all, p, end, w)
				for i := range want {
					require.InDelta(t, want[i], got[i], 2e-5, "position %d, block %d", p, end-p)
				}
				require.Equal(t, got, dynamic.step(all, p, end, w), "position %d, block %d", p, end-p)
				require.Equal(t, got, tight.step(all, p, end, w), "position %d, block %d", p, end-p)
				dropped = dropped || exact.kv.Base() > 0 && dynamic.kv.Base() > 0
				p += 1 + r.IntN(end-p) // the rest was given back
			}
			require.Equal(t, w.Size > 0, dropped)
		})
	}
}

// The buffer grows by whole steps, larger ones where it is large, holds what was written, and does not move
// without need.
func TestCapacity(t *testing.T) {
	c := newCache(t, 0, everything)
	all := rows(2, 1100)
	require.Zero(t, c.kv.Capacity())
	require.Nil(t, c.kv.Arrays())
	for _, step := range []struct{ from, to, capacity int }{
		{0, 1, 256}, {1, 256, 256}, {256, 257, 512}, {257, 512, 512}, {300, 512, 512}, {512, 1100, 1536}, {0, 10, 1536},
	} {
		c.step(all, step.from, step.to, nn.Window{Causal: true})
		do(t, func(*mlx.Scope) { require.Equal(t, step.capacity, c.kv.Capacity()) })
	}
	do(t, func(s *mlx.Scope) {
		keys := values(t, s.Contiguous(s.SliceAxis(c.kv.Arrays()[0], 2, 0, 1100)))
		for h := range heads {
			for p, r := range all {
				require.Equal(t, r.k[h*dim:(h+1)*dim], keys[(h*1100+p)*dim:][:dim])
			}
		}
		c.kv.Clear(c.owner)
		require.Zero(t, c.kv.Capacity())
	})
	require.Zero(t, c.owner.Len())
}

// Case 150: with a window the buffer stays as it is, however long the sequence.
func TestWindowIsBounded(t *testing.T) {
	const window = 64
	all := rows(3, 4016)
	for _, c := range []*cache{
		newCache(t, 0, func(p int) int { return p - (window - 1) }),
		newCache(t, 16, func(p int) int { return max(0, p-16-(window-1)) }),
	} {
		w, most := nn.Window{Causal: true, Size: window}, 0
		for p := 0; p+16 <= len(all); p += 10 {
			got := c.step(all, p, p+16, w)
			if p%250 == 0 {
				want := attend(all[max(0, p-window):p+16], min(p, window), min(p, window)+16, w)
				for i := range want {
					require.InDelta(t, want[i], got[i], 2e-5, "position %d", p)
				}
			}
			do(t, func(*mlx.Scope) { most = max(most, c.kv.Capacity()) })
		}
		require.Equal(t, nn.RowStep, most)
		require.Greater(t, c.kv.Base(), 3500)
	}
}

// What Write made and Adopt did not take is forgotten without a trace.
func TestDiscard(t *testing.T) {
	all := rows(4, 600)
	c, twin := newCache(t, 0, everything), newCache(t, 0, everything)
	w := nn.Window{Causal: true}
	for _, x := range []*cache{c, twin} {
		x.step(all, 0, 250, w)
	}
	do(t, func(s *mlx.Scope) {
		other := rows(5, 300)
		b := func(pick func(row) []float32) mlx.Array { return block(s, other, heads, pick) }
		keys, _ := c.kv.Write(s, b(func(r row) []float32 { return r.k }), b(func(r row) []float32 { return r.v }), nn.At(250), 0)
		require.NoError(t, s.Eval(keys))
		c.kv.Discard()
	})
	require.Equal(t, twin.step(all, 250, 256, w), c.step(all, 250, 256, w))
	require.Equal(t, twin.step(all, 256, 300, w), c.step(all, 256, 300, w))
}
