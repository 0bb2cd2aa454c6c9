// Package rope reads how a configuration wants positions rotated, and computes
// the wavelengths of YaRN (Peng et al., arXiv 2309.00071), by which a model runs
// on longer texts than it was trained on.
package rope

import (
	"fmt"
	"math"
	"slices"
)

// Parameters is the object rope_parameters, or rope_scaling in older files, of a
// config.json. Names are Hugging Face's.
type Parameters struct {
	RopeTheta           *float64 `json:"rope_theta"`
	RopeType            string   `json:"rope_type"`
	Type                string   `json:"type"`
	Factor              *float64 `json:"factor"`
	PartialRotaryFactor *float64 `json:"partial_rotary_factor"`

	Original        *float64 `json:"original_max_position_embeddings"`
	BetaFast        *float64 `json:"beta_fast"`
	BetaSlow        *float64 `json:"beta_slow"`
	AttentionFactor *float64 `json:"attention_factor"`
	Mscale          *float64 `json:"mscale"`
	MscaleAllDim    *float64 `json:"mscale_all_dim"`
	Truncate        *bool    `json:"truncate"`
}

// Error is what is wrong with the parameters.
type Error struct {
	Unsupported bool // a kind that is not run; else a contradiction
	Text        string
}

func (e *Error) Error() string { return e.Text }

func wrong(format string, args ...any) *Error { return &Error{Text: fmt.Sprintf(format, args...)} }

// YaRN is the scaling of a model's positions. Frequencies between the bounds
// blend from as trained to divided by Factor.
type YaRN struct {
	Factor   float64 // of the length
	Original float64 // positions that the model was trained on
	// BetaFast and BetaSlow are the rotations over Original positions above
	// which a frequency stays and below which it is divided.
	BetaFast, BetaSlow float64
	// Attention multiplies rotated queries and keys alike.
	Attention float64
	// Truncate rounds the blend's bounds outwards to whole dimensions.
	Truncate bool
}

// Bounds of a plausible file.
const (
	maxFactor   = 1 << 10
	maxOriginal = 1 << 24
)

// Scaling says how the two objects, each of them possibly absent, scale
// positions: nil for not at all.
func Scaling(scaling, parameters *Parameters) (*YaRN, *Error) {
	older, err := scaling.yarn("rope_scaling")
	if err != nil {
		return nil, err
	}
	newer, err := parameters.yarn("rope_parameters")
	switch {
	case err != nil:
		return nil, err
	case older == nil && scaling.says() && newer != nil, newer == nil && parameters.says() && older != nil,
		older != nil && newer != nil && *older != *newer:
		return nil, wrong("rope_scaling and rope_parameters scale positions in different ways")
	case newer != nil:
		return newer, nil
	}
	return older, nil
}

// Read is Scaling for a model whose base is theta, with errors that wrap
// unsupported for a kind that is not run and bad for a contradiction.
func Read(theta float32, scaling, parameters *Parameters, unsupported, bad error) (*YaRN, error) {
	y, err := Scaling(scaling, parameters)
	switch {
	case err != nil && err.Unsupported:
		return nil, fmt.Errorf("%w: %w", unsupported, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", bad, err)
	case y != nil && theta <= 1:
		return nil, fmt.Errorf("%w: rope_theta is %g, positions scaled by yarn need more than 1", bad, theta)
	}
	return y, nil
}

func (p *Parameters) says() bool { return p != nil && (p.RopeType != "" || p.Type != "") }

// yarn reads one object; field is its name. Other kinds of scaling are refused
// by name.
func (p *Parameters) yarn(field string) (*YaRN, *Error) {
	if p == nil {
		return nil, nil
	}
	kind := "default"
	for _, k := range []struct{ key, value string }{{"type", p.Type}, {"rope_type", p.RopeType}} {
		switch {
		case k.value == "":
		case k.value != "default" && k.value != "yarn":
			return nil, &Error{true, fmt.Sprintf("%s.%s is %q, only \"default\" and \"yarn\" are run", field, k.key, k.value)}
		case k.key == "rope_type" && p.Type != "" && p.Type != k.value:
			return nil, wrong("%s.type is %q and %s.rope_type is %q", field, p.Type, field, k.value)
		default:
			kind = k.value
		}
	}
	if kind == "default" {
		if p.Factor != nil && *p.Factor != 1 {
			return nil, &Error{true, fmt.Sprintf("%s.factor is %g, positions are scaled with rope_type \"yarn\" only", field, *p.Factor)}
		}
		return nil, nil
	}
	if p.Factor == nil || p.Original == nil {
		return nil, wrong("%s is \"yarn\" without factor or original_max_position_embeddings", field)
	}
	y := &YaRN{
		Factor: *p.Factor, Original: *p.Original,
		BetaFast: positive(p.BetaFast, 32), BetaSlow: positive(p.BetaSlow, 1),
		Truncate: p.Truncate == nil || *p.Truncate,
	}
	switch m, all := positive(p.Mscale, 0), positive(p.MscaleAllDim, 0); {
	case p.AttentionFactor != nil:
		y.Attention = *p.AttentionFactor
	case m != 0 && all != 0:
		y.Attention = y.magnitude(m) / y.magnitude(all)
	default:
		y.Attention = y.magnitude(1)
	}
	return y, y.check(field)
}

// positive reads a number for which 0 stands for the default, as in Hugging
// Face's code.
func positive(p *float64, otherwise float64) float64 {
	if p == nil || *p == 0 {
		return otherwise
	}
	return *p
}

// magnitude is the paper's temperature, 0.1·ln(factor)+1, with a weight.
func (y *YaRN) magnitude(weight float64) float64 {
	if y.Factor <= 1 {
		return 1
	}
	return 0.1*weight*math.Log(y.Factor) + 1
}

func (y *YaRN) check(field string) *Error {
	switch {
	case !(y.Factor >= 1 && y.Factor <= maxFactor):
		return wrong("%s.factor is %g, expected 1 to %d", field, y.Factor, maxFactor)
	case !(y.Original >= 1 && y.Original <= maxOriginal) || y.Original != math.Trunc(y.Original):
		return wrong("%s.original_max_position_embeddings is %g, expected 1 to %d", field, y.Original, maxOriginal)
	case y.Factor*y.Original > maxOriginal:
		return wrong("%s: factor %g of original_max_position_embeddings %g makes more than %d positions", field, y.Factor, y.Original, maxOriginal)
	case !(y.BetaSlow > 0 && y.BetaFast > y.BetaSlow) || math.IsInf(y.BetaFast, 0):
		return wrong("%s.beta_fast is %g and beta_slow %g, expected the first above the second and both above 0", field, y.BetaFast, y.BetaSlow)
	case !(y.Attention > 0 && y.Attention <= 1e3):
		return wrong("%s: attention_factor (or mscale and mscale_all_dim) makes %g, expected more than 0 and at most 1000", field, y.Attention)
	}
	return nil
}

// Positions is the length that the scaling makes of the original one.
func (y *YaRN) Positions() int { return int(y.Factor * y.Original) }

// Wavelengths are those of dims rotating dimensions with the base theta: dims/2
// numbers by which a position is divided to get an angle, as MLX wants them. A
// blend of frequencies is meant, so of the wavelengths' reciprocals.
func (y *YaRN) Wavelengths(dims int, theta float64) []float32 {
	// The dimension whose frequency makes that many rotations over the original
	// positions.
	dimension := func(rotations float64) float64 {
		return float64(dims) * math.Log(y.Original/(rotations*2*math.Pi)) / (2 * math.Log(theta))
	}
	low, high := dimension(y.BetaFast), dimension(y.BetaSlow)
	if y.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(dims-1))
	if low == high {
		high += 0.001
	}
	out := make([]float32, dims/2)
	for i := range out {
		trained := math.Pow(theta, -float64(2*i)/float64(dims))
		divided := min(max((float64(i)-low)/(high-low), 0), 1)
		out[i] = float32(1 / (trained*(1-divided) + trained/y.Factor*divided))
	}
	return out
}

// Magnify multiplies the rotating part of a norm's weight, which all queries or
// keys of a head pass just before they rotate: the same as to multiply what
// comes out of the rotation.
func (y *YaRN) Magnify(dims, size int) []float32 {
	out := slices.Repeat([]float32{1}, size)
	for i := range dims {
		out[i] = float32(y.Attention)
	}
	return out
}

// String is a short name such as "yarn, factor 4".
func (y *YaRN) String() string {
	if y == nil {
		return ""
	}
	return fmt.Sprintf("yarn, factor %g", y.Factor)
}
