package weights

import (
	"context"

	"github.com/godflash/godflash/internal/safetensors"
	"github.com/godflash/godflash/mlx"
)

// Maker makes a tensor of the shape and dtype that a file's header gives, under
// the model's name for it. o says how the tensor's module is quantised; its Bits
// are 0 for a dense one.
type Maker func(s *mlx.Scope, name string, t safetensors.Tensor, o mlx.QuantizeOptions) mlx.Array

type makerKey struct{}

// WithMaker has models that are loaded under ctx take their weights from m. The
// files' headers are read and checked all the same, their data is not: it may be
// a hole.
func WithMaker(ctx context.Context, m Maker) context.Context {
	return context.WithValue(ctx, makerKey{}, m)
}

func maker(ctx context.Context) Maker {
	m, _ := ctx.Value(makerKey{}).(Maker)
	return m
}
