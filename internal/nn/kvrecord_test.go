package nn_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/mlx"
)

// into writes rows as a kernel does that writes in place: behind MLX's back.
func into(t *testing.T, s *mlx.Scope, c *nn.KV, rs []row, from, to int) {
	t.Helper()
	for i, buffer := range list(c.Open(s, nn.At(from), to-from, 0)) {
		data, err := mlx.ViewSlice[float32](buffer)
		require.NoError(t, err)
		capacity := buffer.Dim(2)
		for h := range buffer.Dim(1) {
			for p := from; p < to; p++ {
				copy(data[(h*capacity+p)*dim:][:dim], [][]float32{rs[p].k, rs[p].v}[i][h*dim:])
			}
		}
	}
}

func list(a, b mlx.Array) []mlx.Array { return []mlx.Array{a, b} }

// holds asserts what rows the cache has.
func holds(t *testing.T, s *mlx.Scope, c *nn.KV, rs []row, n int) {
	t.Helper()
	keys, vals := c.Rows(s, 0, n)
	require.Equal(t, values(t, block(s, rs[:n], heads, func(r row) []float32 { return r.k })), values(t, keys))
	require.Equal(t, values(t, block(s, rs[:n], heads, func(r row) []float32 { return r.v })), values(t, vals))
}

// Buffers are written in place where they have room and nobody shares them, and
// copied otherwise: a fork never sees what the other writes.
func TestWrittenInPlace(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		owner := lib.NewScope("cache")
		defer owner.Close()
		ours := rows(1, 600)
		theirs := append(append([]row{}, ours[:40]...), rows(2, 600)...)
		c := nn.NewKV(heads, dim, mlx.Float32)
		require.False(t, c.Fits(nn.At(0), 1))
		into(t, s, c, ours, 0, 30)
		c.Adopt(owner)
		before := c.Arrays()
		require.True(t, c.Fits(nn.At(30), 10))
		into(t, s, c, ours, 30, 40)
		c.Adopt(owner)
		require.Equal(t, before, c.Arrays(), "in place")
		holds(t, s, c, ours, 40)

		f := c.Fork(owner)
		require.False(t, c.Fits(nn.At(40), 1))
		require.False(t, f.Fits(nn.At(40), 1))
		into(t, s, f, theirs, 40, 44)
		f.Adopt(owner)
		require.True(t, f.Fits(nn.At(44), 1), "it has buffers of its own now")
		into(t, s, c, ours, 40, 42)
		c.Discard() // a pass that failed leaves the cache as it was
		require.False(t, c.Fits(nn.At(40), 1))
		into(t, s, c, ours, 40, 50)
		c.Adopt(owner)
		require.True(t, c.Fits(nn.At(50), 1))
		holds(t, s, f, theirs, 44)
		holds(t, s, c, ours, 50)

		// A write by operations after one in place, and the other way round.
		g := f.Fork(owner)
		k, v := block(s, theirs[44:46], heads, func(r row) []float32 { return r.k }), block(s, theirs[44:46], heads, func(r row) []float32 { return r.v })
		f.Write(s, k, v, nn.At(44), 0)
		f.Adopt(owner)
		require.NoError(t, s.Eval(f.Arrays()...))
		require.True(t, f.Fits(nn.At(46), 1))
		into(t, s, f, theirs, 46, 48)
		f.Adopt(owner)
		holds(t, s, f, theirs, 48)
		into(t, s, g, ours, 44, 47)
		g.Adopt(owner)
		holds(t, s, f, theirs, 48)

		for at := 50; at+10 <= 600; at += 10 { // the buffers grow
			into(t, s, c, ours, at, at+10)
			c.Adopt(owner)
		}
		holds(t, s, c, ours, 600)
		require.Equal(t, 768, c.Capacity())
		c.Clear(owner)
		require.False(t, c.Fits(nn.At(0), 1))
	})
}

// Rows that were handed out, and rows that were taken in, stay what they are when
// the cache goes back and writes in place: MLX hands whole buffers on as they are.
func TestWrittenInPlaceAfterRows(t *testing.T) {
	const n, cut = 256, 100 // whole buffers
	for _, heads := range []int{1, 2} {
		do(t, func(s *mlx.Scope) {
			owner := lib.NewScope("cache")
			defer owner.Close()
			ours, theirs := rows(1, n), rows(2, n)
			key := func(rs []row, n int) mlx.Array { return block(s, rs[:n], heads, func(r row) []float32 { return r.k }) }
			value := func(rs []row, n int) mlx.Array { return block(s, rs[:n], heads, func(r row) []float32 { return r.v }) }
			for _, last := range []int{n, n - 3} {
				c := nn.NewKV(heads, dim, mlx.Float32)
				c.Write(s, key(ours, last), value(ours, last), nn.At(0), 0)
				c.Adopt(owner)
				require.NoError(t, s.Eval(c.Arrays()...))
				k, v := c.Rows(s, 0, last)
				require.NoError(t, s.Eval(k, v))

				from := nn.NewKV(heads, dim, mlx.Float32)
				from.Load(s, owner, []mlx.Array{k}, []mlx.Array{v}, last)
				require.NoError(t, s.Eval(from.Arrays()...))
				for _, c := range []*nn.KV{c, from} {
					into(t, s, c, theirs, cut, cut+9)
					c.Adopt(owner)
					require.Equal(t, values(t, key(ours, last)), values(t, k), "%d heads, %d rows", heads, last)
					require.Equal(t, values(t, value(ours, last)), values(t, v), "%d heads, %d rows", heads, last)
					have, _ := c.Rows(s, cut, cut+9)
					require.Equal(t, values(t, s.SliceAxis(key(theirs, n), 2, cut, cut+9)), values(t, have))
				}
			}
		})
	}
}
