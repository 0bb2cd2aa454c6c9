package synthetic

import (
	"math"
	"strings"

	"github.com/godflash/godflash/internal/fixture"
)

// Work counts the bytes that the device must read once for a step or a cycle at
// a context length, the least that memory allows.
type Work struct {
	Step  float64 // one row through the target: weights and cache
	Cycle float64 // rows through the target, a block through the drafter, the head for both
	// Target and Drafter are the weights alone, of all layers.
	Target, Drafter float64
}

// Work is that of the pair with blocks of rows. dense is the width of a weight
// that is not quantised, 4 on the CPU; draftBits is how the drafter is stored, 0
// for dense.
func (p *Pair) Work(context, rows, dense, draftBits int) Work {
	var w Work
	head, one, block := 0.0, 0.0, 0.0
	for _, t := range p.tensors() {
		if strings.Contains(t.Name, "mtp.") || strings.Contains(t.Name, ".visual.") {
			continue
		}
		n := tensorBytes(t, dense)
		w.Target += n
		switch {
		case strings.Contains(t.Name, "lm_head."), strings.Contains(t.Name, "embed_tokens.") && p.Target.Tied:
			head += n
		case strings.Contains(t.Name, "embed_tokens."): // a few rows
		case strings.Contains(t.Name, ".experts.") || strings.Contains(t.Name, ".switch_mlp."):
			one += n * p.hit(1)
			block += n * p.hit(rows)
		default:
			one += n
			block += n
		}
	}
	for _, t := range p.Draft.Tensors() {
		n := float64(t.Elements()) * float64(dense)
		if draftBits > 0 && len(t.Shape) == 2 {
			n = float64(t.Elements()) * (float64(draftBits)/8 + 2*float64(dense)/64)
		}
		w.Drafter += n
	}
	cache := p.cache(context, dense)
	w.Step = head + one + cache
	w.Cycle = 2*head + block + cache + w.Drafter + p.draftCache(context, dense)
	return w
}

// hit is the share of the experts that rows of random choices need.
func (p *Pair) hit(rows int) float64 {
	return 1 - math.Pow(1-float64(p.Target.TopK)/float64(p.Target.Experts), float64(rows))
}

// cache is what a pass reads of the target's state, and for recurrent layers
// writes, too.
func (p *Pair) cache(context, width int) float64 {
	t := p.Target
	attention, linear := t.Layers, 0
	if t.KeyHeads > 0 {
		attention = t.Layers / 4
		linear = t.Layers - attention
	}
	state := t.ValueHeads * deltaDim * deltaDim * 4 // float32
	return float64(attention*context*2*t.KVHeads*t.HeadDim*width + linear*2*state)
}

const (
	deltaDim     = 128 // of a gated delta head
	draftHeadDim = 128
)

func (p *Pair) draftCache(context, width int) float64 {
	d := p.Draft
	rows := 0
	for i := range d.Layers {
		if d.Window > 0 && i < d.Layers-1 {
			rows += min(context, d.Window)
		} else {
			rows += context
		}
	}
	return float64(rows * 2 * d.KVHeads * draftHeadDim * width)
}

// tensorBytes is what a tensor takes in memory.
func tensorBytes(t fixture.HeaderTensor, dense int) float64 {
	width := dense
	if t.Dtype == "U32" {
		width = 4
	}
	return float64(t.Elements()) * float64(width)
}
