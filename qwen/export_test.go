package qwen

import (
	"log/slog"

	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/internal/weights"
	"github.com/godflash/godflash/mlx"
)

// BreakLayer makes the layer fail after its mixer has written to the cache,
// until restore is called.
func (m *Model) BreakLayer(i int) (restore func()) {
	whole := m.layers[i].mlp
	m.layers[i].mlp = nn.SwiGLU{}
	return func() { m.layers[i].mlp = whole }
}

// Resident is what Load expects dir's weights to take on the CPU.
func Resident(dir string) (int64, error) {
	cfg, err := ReadConfig(dir)
	if err != nil {
		return 0, err
	}
	ck, err := openCheckpoint(dir, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return 0, err
	}
	return weights.Resident(ck.Checkpoint, mlx.DeviceCPU, normName, ck.plan, mlx.QuantizeOptions{}), nil
}

// Steps is the number of recorded graphs.
func (m *Model) Steps() int { return m.steps.Len() }

// SetLast makes a what a pass with writes in place leaves.
func (c *Cache) SetLast(a mlx.Array) { c.last = c.owner.Ref(a) }
