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
	// Temperature divides the scores. Below 1e-4 decoding is greedy, whatever the
	// other fields say: of tokens that score alike the first is taken.
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
	// length, its distribution does not; so that a seed's text can be had again,
	// all blocks have the engine's or the request's BlockSize. Without drafts it
	// changes nothing.
	Rejection bool
	// Seed makes the draws repeatable. 0 takes a new one each time; Stats.Seed
	// says which.
	Seed uint64
}

// minTemperature bounds what is drawn at. Tokens whose scores differ by 0.002
// are e^20 apart in probability there; below it a draw would choose among equal
// scores only.
const minTemperature = 1e-4

// Greedy says that nothing is drawn: Temperature is below 1e-4.
func (o Sampling) Greedy() bool { return o.Temperature < minTemperature }

func (o Sampling) check() error {
	if err := between("Temperature", o.Temperature, 0, 100); err != nil {
		return err
	}
	if err := between("TopP", o.TopP, 0, 1); err != nil {
		return err
	}
	if err := between("MinP", o.MinP, 0, 1); err != nil {
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
}

// newSampler returns nil for greedy decoding.
func newSampler(o Sampling) *sampler {
	if o.Greedy() {
		return nil
	}
	for o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	return &sampler{o}
}

// purpose keeps random numbers apart that are used for different things at the
// same position.
type purpose uint64

const (
	forTarget purpose = iota // the target's choices
	forDraft                 // the drafts, with Rejection
	forAccept                // whether a draft is taken, with Rejection
)

// keys are the random keys, uint32 [2] each, of rows positions from p on.
// Numbers of a position do not depend on those of another: what is drawn and
// thrown away, because a draft before it was wrong, has had no effect and may
// be drawn again.
func (g *sampler) keys(s *mlx.Scope, p nn.Position, rows int, why purpose) []mlx.Array {
	// Neighbouring seeds and purposes must not be neighbouring keys: a position
	// is added to the key (SplitMix64's finalizer).
	z := (g.Seed + uint64(why)*0xd1342543de82ef95) + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	at := p.Array
	if p.Exact() {
		at = mlx.FromSlice(s, []int32{int32(p.Bound)})
	}
	at = s.AsType(at, mlx.Uint32)
	high := mlx.FromSlice(s, []uint32{uint32(z >> 32)})
	keys := make([]mlx.Array, rows)
	for i := range rows {
		low := s.Add(at, mlx.FromSlice(s, []uint32{uint32(z) + uint32(i)}))
		keys[i] = s.Concat(0, high, low)
	}
	return keys
}

// gumbel is Gumbel noise for the tokens at rows positions from p on: float32
// [rows, vocab].
func (g *sampler) gumbel(s *mlx.Scope, p nn.Position, rows, vocab int, why purpose) mlx.Array {
	parts := g.keys(s, p, rows, why)
	for i, key := range parts {
		parts[i] = s.Gumbel(key, mlx.Float32, 1, vocab)
	}
	// -log(-log u) of the smallest u above 0 is about -3.1. One in 2^32 is 0, and
	// its minus infinity must not make a token like those that are filtered out.
	return s.Maximum(s.Concat(0, parts...), s.Scalar(-4, mlx.Float32))
}

// draws is the randomness of a block of T rows; the zero value for greedy
// decoding.
type draws struct {
	target mlx.Array // float32 [T, vocab]
	draft  mlx.Array // float32 [T, vocab]: target itself unless Rejection
	accept mlx.Array // float32 [T], in [0, 1): Rejection only
}

// draws is the randomness of rows positions from p on, for a block with drafts
// or a single row. A nil sampler has none.
func (g *sampler) draws(s *mlx.Scope, p nn.Position, rows, vocab int) draws {
	if g == nil {
		return draws{}
	}
	d := draws{target: g.gumbel(s, p, rows, vocab, forTarget)}
	d.draft = d.target
	if g.Rejection && rows > 1 {
		d.draft = g.gumbel(s, p, rows, vocab, forDraft)
		parts := g.keys(s, p, rows, forAccept)
		zero, one := s.Scalar(0, mlx.Float32), s.Scalar(1, mlx.Float32)
		for i, key := range parts {
			parts[i] = s.Uniform(key, zero, one, mlx.Float32, 1)
		}
		d.accept = s.Concat(0, parts...)
	}
	return d
}

// cut keeps the first n rows of what the target uses.
func (d draws) cut(s *mlx.Scope, n int) draws {
	if d.target.Valid() {
		d.target = s.SliceAxis(d.target, 0, 0, n)
	}
	return d
}

// largest picks the token with the largest sum of score and noise, both [T,
// vocab], for each row: int32 [T].
func largest(s *mlx.Scope, x, noise mlx.Array) mlx.Array {
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
