package qwen

import "github.com/godflash/godflash/internal/nn"

// BreakLayer makes the layer fail after its mixer has written to the cache,
// until restore is called.
func (m *Model) BreakLayer(i int) (restore func()) {
	whole := m.layers[i].mlp
	m.layers[i].mlp = nn.SwiGLU{}
	return func() { m.layers[i].mlp = whole }
}
