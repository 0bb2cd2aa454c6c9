package dflash

import (
	"slices"

	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen"
)

// TargetInfo is what a drafter must fit to.
type TargetInfo struct {
	Layers        int // decoder layers
	HiddenSize    int
	VocabSize     int // rows of the embedding
	ContextLength int // positions
	// Recurrent says that some layers keep a state that cannot be cut, so that a
	// sequence can only go back to where TargetCache.States were taken.
	Recurrent bool
}

// Target is what decoding needs of a model: the forward pass with taps, the
// embedding and the head, and a cache that takes a block and gives part of it
// back. Methods that take a scope run inside the library's Do; their errors
// are the scope's.
type Target interface {
	Library() *mlx.Library
	Info() TargetInfo
	// NewCache makes the state of an empty sequence.
	NewCache() TargetCache
	// Fork makes a second cache with the rows of c, which shares its memory until
	// one of the two is written to.
	Fork(c TargetCache) (TargetCache, error)
	// Forward runs ids int32 [T] from the end of the cache, whose T rows are
	// pending afterwards. hidden is [1, T, hidden], tapped the outputs of the
	// decoder layers in taps, in that order, each of the same shape.
	Forward(s *mlx.Scope, ids mlx.Array, c TargetCache, taps []int) (hidden mlx.Array, tapped []mlx.Array)
	// Embed gives the rows of ids int32 [T] as [T, hidden].
	Embed(s *mlx.Scope, ids mlx.Array) mlx.Array
	// Logits is the final norm and the head, [..., hidden] to [..., vocab].
	Logits(s *mlx.Scope, hidden mlx.Array) mlx.Array
	// Unembed is the head alone, which the drafter shares.
	Unembed(s *mlx.Scope, x mlx.Array) mlx.Array
}

// TargetCache is one sequence's state. qwen.Cache documents the contract of
// each method.
type TargetCache interface {
	Len() int
	Commit(s *mlx.Scope, n int) error
	CommitArray(s *mlx.Scope, n mlx.Array) error
	Settle(length, inFlight int)
	Arrays() []mlx.Array
	States(s *mlx.Scope) []mlx.Array
	Trim(n int, states []mlx.Array) error
	Rows(s *mlx.Scope, from, to int) []mlx.Array
	Restore(s *mlx.Scope, n int, parts [][]mlx.Array, states []mlx.Array) error
	Reset()
	Close() error
}

// QwenTarget makes a qwen model a Target.
func QwenTarget(m *qwen.Model) Target {
	return qwenTarget{m, m.Library().Device() == mlx.DeviceGPU}
}

type qwenTarget struct {
	*qwen.Model
	recorded bool // see qwen.ForwardOptions
}

func (t qwenTarget) Info() TargetInfo { return qwenInfo(t.Config()) }

func qwenInfo(c *qwen.Config) TargetInfo {
	return TargetInfo{
		Layers:        c.NumHiddenLayers,
		HiddenSize:    c.HiddenSize,
		VocabSize:     c.VocabSize,
		ContextLength: c.MaxPositionEmbeddings,
		Recurrent:     slices.Contains(c.LayerTypes, qwen.LinearAttention),
	}
}

func (t qwenTarget) NewCache() TargetCache { return t.Model.NewCache() }

func (t qwenTarget) Fork(c TargetCache) (TargetCache, error) {
	f, err := c.(*qwen.Cache).Fork()
	if err != nil {
		return nil, err // not a nil *Cache in an interface
	}
	return f, nil
}

func (t qwenTarget) Forward(s *mlx.Scope, ids mlx.Array, c TargetCache, taps []int) (mlx.Array, []mlx.Array) {
	out := t.Model.Forward(s, ids, c.(*qwen.Cache), &qwen.ForwardOptions{Taps: taps, Recorded: t.recorded})
	return out.Hidden, out.Taps
}
