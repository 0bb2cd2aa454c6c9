package replay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// Steps that have much memory go when they have not been used for long, and only then.
func TestMemoryOfSteps(t *testing.T) {
	lib, err := mlx.Open(&mlx.Options{Device: mlx.DeviceCPU})
	require.NoError(t, err)
	defer lib.Close()
	steps := New(lib)
	defer steps.Close()
	use := func(size int) (p *Step) {
		require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
			for p == nil {
				p = steps.Of("pass", size, func(*Step) mlx.Func {
					return func(_ *mlx.Scope, in []mlx.Array) []mlx.Array { return in }
				})
			}
			out := p.Run(s, []mlx.Array{s.Ones(mlx.Float32, 1)})
			require.Len(t, out, 1)
			return s.Err()
		}))
		return p
	}
	// On the CPU a step has none: the figures are ours.
	has := func(p *Step, bytes int) {
		require.NoError(t, lib.Do(t.Context(), func(*mlx.Scope) error {
			steps.has(p, bytes)
			return nil
		}))
	}
	p := use(1)
	require.Zero(t, steps.limit)
	has(p, 1)
	limit, err := lib.MemoryLimit(t.Context())
	require.NoError(t, err)
	require.Equal(t, int(limit/share), steps.limit)
	steps.limit = 100
	has(p, 60)
	has(use(2), 60)
	require.Equal(t, 2, steps.Len(), "both are in use")
	require.Equal(t, 120, steps.bytes)
	for range idle {
		p = use(3)
	}
	has(p, 30)
	require.Equal(t, 2, steps.Len(), "the oldest is gone")
	require.Equal(t, 90, steps.bytes)
	has(p, 500)
	require.Equal(t, 1, steps.Len(), "what runs stays, however large")
	require.Equal(t, 500, steps.bytes)
	has(p, 20)
	require.Equal(t, 20, steps.bytes)
}
