package dflash

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/mlx"
)

// Sampling says how a token is drawn from the model's scores. The zero value is
// greedy: always the largest.
//
// A token is drawn by the Gumbel trick: noise that depends on the seed, the
// token's position in the sequence and the token alone is added to the log
// probabilities, and the largest sum wins, which has the model's distribution.
// The drafter adds the same noise, so its drafts are right often, and since the
// target's choice at a position does not depend on how it came to be computed,
// the same seed gives the same text with drafts and without (on the CPU bit for
// bit).
type Sampling struct {
	// Temperature divides the scores. Below 1e-4 decoding is greedy.
	Temperature float64
	// TopK keeps the k largest scores, and what equals the last of them. 0
	// keeps all.
	TopK int
	// TopP keeps the smallest set of most probable tokens whose probabilities
	// add up to it at least. 0 and 1 keep all.
	TopP float64
	// MinP keeps tokens that are at least so probable as this share of the most
	// probable one. 0 keeps all.
	MinP float64
	// Rejection draws by rejection sampling (arXiv 2211.17192) instead of the
	// shared noise. The text of a seed then depends on the drafter and the block
	// length, its distribution does not.
	Rejection bool
	// Seed makes the draws repeatable. 0 takes a new one each time; Stats.Seed
	// says which.
	Seed uint64
}

// minTemperature is where a quotient of scores could leave float32.
const minTemperature = 1e-4

func (o Sampling) check() error {
	bad := func(name string, v float64, low, high float64) error {
		if math.IsNaN(v) || v < low || v > high {
			return fmt.Errorf("%w: %s is %g, expected %g to %g", ErrRequest, name, v, low, high)
		}
		return nil
	}
	if err := bad("Temperature", o.Temperature, 0, 100); err != nil {
		return err
	}
	if err := bad("TopP", o.TopP, 0, 1); err != nil {
		return err
	}
	if err := bad("MinP", o.MinP, 0, 1); err != nil {
		return err
	}
	if o.TopK < 0 {
		return fmt.Errorf("%w: TopK is %d", ErrRequest, o.TopK)
	}
	return nil
}

// sampler draws the tokens of one generation.
type sampler struct {
	Sampling
	key [2]uint32 // the seed, spread over all bits
}

// newSampler returns nil for greedy decoding.
func newSampler(o Sampling) *sampler {
	if o.Temperature < minTemperature {
		return nil
	}
	for o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	// Neighbouring seeds must not be neighbouring keys: a position is added to
	// the key (SplitMix64's finalizer).
	z := o.Seed + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	return &sampler{Sampling: o, key: [2]uint32{uint32(z >> 32), uint32(z)}}
}

// noise is Gumbel noise for the tokens at rows positions from p on:
// float32 [rows, vocab]. A nil sampler has none.
func (g *sampler) noise(s *mlx.Scope, p nn.Position, rows, vocab int) mlx.Array {
	if g == nil {
		return mlx.Array{}
	}
	at := p.Array
	if p.Exact() {
		at = mlx.FromSlice(s, []int32{int32(p.Bound)})
	}
	at = s.AsType(at, mlx.Uint32)
	parts := make([]mlx.Array, rows)
	for i := range rows {
		low := s.Add(at, mlx.FromSlice(s, []uint32{g.key[1] + uint32(i)}))
		key := s.Concat(0, mlx.FromSlice(s, []uint32{g.key[0]}), low)
		parts[i] = s.Gumbel(key, mlx.Float32, 1, vocab)
	}
	return s.Concat(0, parts...)
}

// draw picks a token for each row: logits [..., T, vocab] and noise [T, vocab]
// to int32 [T].
func (g *sampler) draw(s *mlx.Scope, logits, noise mlx.Array) mlx.Array {
	x := g.shape(s, s.Reshape(s.AsType(logits, mlx.Float32), noise.Dim(0), noise.Dim(1)))
	return s.AsType(s.Argmax(s.Add(x, noise), -1, false), mlx.Int32)
}

// shape applies temperature and filters to logits [T, vocab], in the order of
// Hugging Face's: temperature, top-k, top-p, min-p. What is filtered out is
// minus infinity; the rest are log probabilities up to a constant.
func (g *sampler) shape(s *mlx.Scope, logits mlx.Array) mlx.Array {
	x := s.Div(logits, s.Scalar(g.Temperature, mlx.Float32))
	below := s.Scalar(math.Inf(-1), mlx.Float32)
	keep := func(from mlx.Array) { x = s.Where(s.GreaterEqual(x, from), x, below) }
	if vocab := x.Dim(-1); g.TopK > 0 && g.TopK < vocab {
		keep(s.Min(s.TopK(x, g.TopK, -1), true, -1))
	}
	if g.TopP > 0 && g.TopP < 1 {
		// Ascending: what lies below the set is what adds up to less than 1-p.
		sorted := s.Sort(x, -1)
		sum := s.CumSum(s.Softmax(sorted, true, -1), -1)
		out := s.LessEqual(sum, s.Scalar(1-g.TopP, mlx.Float32))
		most := s.Max(x, true, -1) // rounding must not filter out everything
		from := s.Min(s.Where(out, s.Scalar(math.Inf(1), mlx.Float32), sorted), true, -1)
		keep(s.Minimum(from, most))
	}
	if g.MinP > 0 {
		keep(s.Add(s.Max(x, true, -1), s.Scalar(math.Log(g.MinP), mlx.Float32)))
	}
	return x
}
