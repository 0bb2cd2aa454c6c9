package mlx

import (
	"strconv"

	"github.com/godflash/godflash/internal/mlxc"
)

// Random operations take their key explicitly: the same key gives the same
// numbers, always, and there is no hidden state. [Scope.SplitKey] makes new keys
// of one.

var (
	opKey               = newOp("Key", "mlx_random_key", mlxc.ClassRandomKey)
	opSplitKey          = newOp("SplitKey", "mlx_random_split_num", mlxc.Int)
	opUniform           = newOp("Uniform", "mlx_random_uniform", mlxc.ClassRandomRange)
	opRandInt           = newOp("RandInt", "mlx_random_randint", mlxc.ClassRandomRange)
	opTruncatedNormal   = newOp("TruncatedNormal", "mlx_random_truncated_normal", mlxc.ClassRandomRange)
	opMultivariate      = newOp("MultivariateNormal", "mlx_random_multivariate_normal", mlxc.ClassRandomRange)
	opNormal            = newOp("Normal", "mlx_random_normal", mlxc.ClassRandomScaled)
	opLaplace           = newOp("Laplace", "mlx_random_laplace", mlxc.ClassRandomScaled)
	opGumbel            = newOp("Gumbel", "mlx_random_gumbel", mlxc.ClassRandomPlain)
	opRandomBits        = newOp("RandomBits", "mlx_random_bits", mlxc.ClassRandomBits)
	opBernoulli         = newOp("Bernoulli", "mlx_random_bernoulli", mlxc.ClassRandomShape)
	opCategorical       = newOp("Categorical", "mlx_random_categorical", mlxc.ClassRandomAxis)
	opCategoricalShape  = newOp("CategoricalShape", "mlx_random_categorical_shape", mlxc.ClassRandomAxisShape)
	opPermutation       = newOp("Permutation", "mlx_random_permutation", mlxc.ClassRandomAxis)
	opPermutationArange = newOp("PermutationN", "mlx_random_permutation_arange", mlxc.ClassRandomInt)
)

// Key makes a key of a seed: [2] Uint32. (mlx_random_key)
func (s *Scope) Key(seed uint64) Array {
	return s.call(opKey, &mlxc.Args{U: seed}, 0, func() string { return strconv.FormatUint(seed, 10) })
}

// SplitKey makes n independent keys of one: [n, 2] Uint32. (mlx_random_split_num)
func (s *Scope) SplitKey(key Array, n int) Array {
	if n < 1 {
		return s.stop(opSplitKey, "n must be positive", func() string { return args1("n", n) }, key)
	}
	return s.withInt(opSplitKey, key, n, "n")
}

// random checks shape and type and makes the call.
func (s *Scope) random(o op, g *mlxc.Args, must int, dt Dtype, shape []int, in ...Array) Array {
	if !s.begin(o) {
		return Array{}
	}
	p, ok := s.checkShape(o, dt, shape)
	if !ok {
		return Array{}
	}
	g.L[0] = p
	g.I[0] = int32(dt)
	return s.call(o, g, must, func() string { return fillArgs(dt, shape) }, in...)
}

// Uniform is numbers in [low, high), which broadcast to the shape, of a
// floating-point type. (mlx_random_uniform)
func (s *Scope) Uniform(key, low, high Array, dt Dtype, shape ...int) Array {
	return s.random(opUniform, &mlxc.Args{}, 3, dt, shape, low, high, key)
}

// RandInt is integers in [low, high), which broadcast to the shape, of an integer
// type. (mlx_random_randint)
func (s *Scope) RandInt(key, low, high Array, dt Dtype, shape ...int) Array {
	return s.random(opRandInt, &mlxc.Args{}, 3, dt, shape, low, high, key)
}

// TruncatedNormal is numbers of the standard normal distribution between lower
// and upper, which broadcast to the shape. (mlx_random_truncated_normal)
func (s *Scope) TruncatedNormal(key, lower, upper Array, dt Dtype, shape ...int) Array {
	return s.random(opTruncatedNormal, &mlxc.Args{}, 3, dt, shape, lower, upper, key)
}

// MultivariateNormal is vectors of a normal distribution with mean [..., N] and
// covariance [..., N, N], whose leading axes broadcast to the shape: [shape..., N]
// of type Float32. CPU only. (mlx_random_multivariate_normal)
func (s *Scope) MultivariateNormal(key, mean, cov Array, shape ...int) Array {
	return s.random(opMultivariate, &mlxc.Args{}, 3, Float32, shape, mean, cov, key)
}

// Normal is numbers of the normal distribution with a mean and a standard
// deviation, of a floating-point type. (mlx_random_normal)
func (s *Scope) Normal(key Array, mean, deviation float64, dt Dtype, shape ...int) Array {
	return s.random(opNormal, &mlxc.Args{D: [3]float64{mean, deviation}}, 1, dt, shape, key)
}

// Laplace is numbers of the Laplace distribution with a mean and a scale, of a
// floating-point type. (mlx_random_laplace)
func (s *Scope) Laplace(key Array, mean, scale float64, dt Dtype, shape ...int) Array {
	return s.random(opLaplace, &mlxc.Args{D: [3]float64{mean, scale}}, 1, dt, shape, key)
}

// Gumbel is numbers of the standard Gumbel distribution, of a floating-point
// type. (mlx_random_gumbel)
func (s *Scope) Gumbel(key Array, dt Dtype, shape ...int) Array {
	return s.random(opGumbel, &mlxc.Args{}, 1, dt, shape, key)
}

// RandomBits is random bits, as Uint8, Uint16 or Uint32. (mlx_random_bits)
func (s *Scope) RandomBits(key Array, dt Dtype, shape ...int) Array {
	if dt != Uint8 && dt != Uint16 && dt != Uint32 {
		return s.stop(opRandomBits, "Uint8, Uint16 or Uint32 is needed", func() string { return fillArgs(dt, shape) }, key)
	}
	if !s.begin(opRandomBits) {
		return Array{}
	}
	p, ok := s.checkShape(opRandomBits, dt, shape)
	if !ok {
		return Array{}
	}
	g := &mlxc.Args{I: [14]int32{int32(dt.Size())}}
	g.L[0] = p
	return s.call(opRandomBits, g, 1, func() string { return fillArgs(dt, shape) }, key)
}

// Bernoulli is true with probability p, which broadcasts to the shape. (mlx_random_bernoulli)
func (s *Scope) Bernoulli(key, p Array, shape ...int) Array {
	return s.random(opBernoulli, &mlxc.Args{}, 2, Bool, shape, p, key)
}

// Categorical picks one index, Uint32, along an axis of logits with the
// probabilities softmax(logits); the axis disappears. (mlx_random_categorical)
func (s *Scope) Categorical(key, logits Array, axis int) Array {
	text := func() string { return args1("axis", axis) }
	if !fits(axis) {
		return s.stop(opCategorical, limitText, text, logits, key)
	}
	if s.isEmpty(logits, opCategorical) {
		return s.stop(opCategorical, emptyText, text, logits, key)
	}
	return s.call(opCategorical, &mlxc.Args{I: [14]int32{int32(axis)}}, 2, text, logits, key)
}

// CategoricalShape is [Scope.Categorical] with a shape of its own, to which logits
// without the axis must broadcast. (mlx_random_categorical_shape)
func (s *Scope) CategoricalShape(key, logits Array, axis int, shape ...int) Array {
	text := func() string { return args1("axis", axis) + ", shape " + formatInts(shape) }
	p, ok := pack(shape)
	if _, possible := product(shape); !ok || !possible || !fits(axis) {
		return s.stop(opCategoricalShape, "impossible shape or axis", text, logits, key)
	}
	if s.isEmpty(logits, opCategoricalShape) {
		return s.stop(opCategoricalShape, emptyText, text, logits, key)
	}
	g := &mlxc.Args{I: [14]int32{int32(axis)}}
	g.L[0] = p
	return s.call(opCategoricalShape, g, 2, text, logits, key)
}

// Permutation shuffles a along an axis: whole slices change place. (mlx_random_permutation)
func (s *Scope) Permutation(key, a Array, axis int) Array {
	text := func() string { return args1("axis", axis) }
	if !fits(axis) {
		return s.stop(opPermutation, limitText, text, a, key)
	}
	if s.isEmpty(a, opPermutation) {
		return s.stop(opPermutation, emptyText, text, a, key)
	}
	return s.call(opPermutation, &mlxc.Args{I: [14]int32{int32(axis)}}, 2, text, a, key)
}

// PermutationN is the numbers 0 to n-1, Uint32, in random order. (mlx_random_permutation_arange)
func (s *Scope) PermutationN(key Array, n int) Array {
	text := func() string { return args1("n", n) }
	if n < 1 || !fits(n) {
		return s.stop(opPermutationArange, "n must be positive", text, key)
	}
	return s.call(opPermutationArange, &mlxc.Args{I: [14]int32{int32(n)}}, 1, text, key)
}
