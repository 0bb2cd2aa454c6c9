package mlx

import "math"

// F16 is the bits of an IEEE 754 half-precision number, the element type of [Float16] arrays.
type F16 uint16

// BF16 is the bits of a bfloat16 number, the element type of [BFloat16] arrays:
// the upper half of a float32.
type BF16 uint16

// BF16From rounds f to the nearest bfloat16, ties to even. A NaN stays a NaN.
func BF16From(f float32) BF16 {
	b := math.Float32bits(f)
	if f != f {
		return BF16(b>>16 | 0x40)
	}
	return BF16((b + 0x7fff + b>>16&1) >> 16)
}

// Float32 gives the exact value.
func (b BF16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// F16From rounds f to the nearest half, ties to even; what is too large becomes an infinity.
func F16From(f float32) F16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	switch abs := b & 0x7fffffff; {
	case abs > 0x7f800000:
		return F16(sign | 0x7e00 | uint16(abs>>13&0x3ff))
	case abs >= 0x47800000: // 65536 and above, infinity
		return F16(sign | 0x7c00)
	case abs < 0x38800000: // below the smallest normal half: a multiple of 2^-24
		return F16(sign | uint16(math.RoundToEven(float64(math.Float32frombits(abs))*(1<<24))))
	default:
		// A carry out of the mantissa raises the exponent, up to infinity, as it should.
		return F16(sign | uint16((abs-0x38000000+0xfff+abs>>13&1)>>13))
	}
}

// Float32 gives the exact value.
func (h F16) Float32() float32 {
	sign := uint32(h&0x8000) << 16
	exp, frac := uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exp {
	case 0:
		v := float32(frac) / (1 << 24)
		return math.Float32frombits(math.Float32bits(v) | sign)
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	default:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	}
}
