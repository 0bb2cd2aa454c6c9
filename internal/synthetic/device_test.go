package synthetic_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/synthetic"
	"github.com/godflash/godflash/internal/weights"
	"github.com/godflash/godflash/mlx"
)

// On CUDA a model of chains, or of mixtures in 4 bits, gives the bits of single rows in
// any block, recorded or not, through commits of a part: drafted text is then plain
// text without a near-tie. GODFLASH_GPU=1 asks for it; where kernels do not serve
// (Metal) it does not hold.
func TestExactOnGPU(t *testing.T) {
	if os.Getenv("GODFLASH_GPU") == "" {
		t.Skip("GODFLASH_GPU=1 runs it, on a machine with a GPU")
	}
	lib, err := mlx.Open(&mlx.Options{Device: mlx.DeviceGPU})
	require.NoError(t, err)
	defer lib.Close()
	for name, target := range chains() {
		t.Run(name, func(t *testing.T) { exact(t, lib, chainPair(target, 4)) })
		if target.Experts == 0 {
			t.Run(name+" in bfloat16", func(t *testing.T) { exact(t, lib, chainPair(target, 0)) })
		}
	}
}

func exact(t *testing.T, lib *mlx.Library, p *synthetic.Pair) {
	dir := t.TempDir()
	require.NoError(t, p.Write(dir))
	e, err := dflash.Open(weights.WithMaker(t.Context(), p.Maker(5)), dir, &dflash.Options{Library: lib})
	require.NoError(t, err)
	defer e.Close()
	m := e.Target()
	// run gives the scores of rows, of which keep are committed.
	run := func(c dflash.TargetCache, ids []int32, keep int) [][]mlx.BF16 {
		t.Helper()
		var rows [][]mlx.BF16
		require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
			hidden, _ := m.Forward(s, mlx.FromSlice(s, ids), c, nil)
			scores := m.Logits(s, hidden)
			if err := s.Err(); err != nil {
				return err
			}
			if err := c.Commit(s, keep); err != nil {
				return err
			}
			if err := s.Eval(append(c.Arrays(), scores)...); err != nil {
				return err
			}
			all, err := mlx.ToSlice[mlx.BF16](s.Flatten(s.AsType(scores, mlx.BFloat16)))
			for n := len(all) / len(ids); len(all) > 0; all = all[n:] {
				rows = append(rows, all[:n])
			}
			return err
		}))
		return rows
	}
	ids := make([]int32, 420)
	for i := range ids {
		ids[i] = int32(i*71%500 + 1)
	}
	single, blocks := m.NewCache(), m.NewCache()
	defer single.Close()
	defer blocks.Close()
	const prompt = 33
	run(single, ids[:prompt], prompt)
	run(blocks, ids[:prompt], prompt)
	var want [][]mlx.BF16
	for i := prompt; i < len(ids); i++ {
		want = append(want, run(single, ids[i:i+1], 1)[0])
	}
	for at, turn := prompt, 0; at+16 <= len(ids); turn++ {
		rows := []int{16, 7, 16, 1, 16, 2}[turn%6]
		keep := 1 + turn*5%rows
		block := append([]int32{}, ids[at:at+rows]...)
		for i := keep; i < rows; i++ {
			block[i] = 499 // what is rejected must not matter
		}
		got := run(blocks, block, keep)
		require.Equal(t, want[at-prompt:at-prompt+keep], got[:keep], "rows %d to %d of a block of %d", at, at+keep, rows)
		at += keep
	}
}
