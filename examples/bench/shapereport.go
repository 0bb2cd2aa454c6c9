package main

import (
	"fmt"
	"strings"
	"time"
)

// shapeReport is what -synthetic measured; -json prints it as it is. Times are
// in milliseconds, sizes in bytes.
type shapeReport struct {
	Machine   machine     `json:"machine"`
	Shape     shape       `json:"shape"`
	Bandwidth bandwidth   `json:"bandwidth_bytes_per_second"`
	Seed      uint64      `json:"seed"`
	Cycles    int         `json:"cycles"`
	Repeats   int         `json:"repeats"`
	Peer      string      `json:"peer,omitempty"` // its versions
	Contexts  []atContext `json:"contexts"`

	// Asked is the tokens per cycle asked for, TokensPerCycle what the pattern
	// that was replayed has.
	Asked          float64 `json:"asked_tokens_per_cycle"`
	TokensPerCycle float64 `json:"tokens_per_cycle"`
}

// shape is the pair that was made.
type shape struct {
	Name string `json:"name"`
	// Guesses are the numbers of the shape that no primary source gave.
	Guess      string `json:"guess,omitempty"`
	DraftGuess string `json:"draft_guess,omitempty"`
	Layers     int    `json:"layers"`
	Bits       int    `json:"bits"` // 0: bfloat16, on the CPU float32
	DraftBits  int    `json:"draft_bits"`
	BlockSize  int    `json:"block_size"`

	TargetBytes int64 `json:"target_bytes"` // weights, reckoned from the shape
	DraftBytes  int64 `json:"draft_bytes"`
	ActiveBytes int64 `json:"active_bytes"` // what MLX holds once both are made
}

// atContext is one context length.
type atContext struct {
	Context int `json:"context"`

	Prefill        spread `json:"prefill_ms"`         // of a plain run
	DraftedPrefill spread `json:"drafted_prefill_ms"` // with the drafter's context
	Step           spread `json:"step_ms"`            // of plain decoding
	// Cycle is the time from one cycle to the next as the library runs them: on a
	// GPU with the next one in flight. ReadCycle waits for each.
	Cycle     spread `json:"cycle_ms"`
	ReadCycle spread `json:"read_cycle_ms"`

	// Draft, Verify and Commit are the parts of a cycle, each waited for.
	Draft  spread `json:"draft_ms"`
	Verify spread `json:"verify_ms"`
	Commit spread `json:"commit_ms"`
	// Build is the host's time to make a cycle's graph, Dispatch to hand it to a
	// GPU.
	Build    spread  `json:"build_ms"`
	Dispatch *spread `json:"dispatch_ms,omitempty"`

	// StepBound and CycleBound are the bytes that must be read, at the bandwidth
	// measured.
	StepBound  float64 `json:"step_bound_ms"`
	CycleBound float64 `json:"cycle_bound_ms"`

	TokensPerCycle float64 `json:"tokens_per_cycle"`
	PlainPeak      int64   `json:"plain_peak_bytes"` // the drafter's weights included
	Peak           int64   `json:"peak_bytes"`

	Peer      *peerAt `json:"peer,omitempty"`
	PeerError string  `json:"peer_error,omitempty"` // why Peer is missing
}

// peerAt is the other software at a context length.
type peerAt struct {
	Step    spread `json:"step_ms"`
	Prefill spread `json:"prefill_ms"`
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// speedup is the rate of drafted decoding over that of plain decoding.
func (c atContext) speedup() float64 { return c.TokensPerCycle * c.Step.Median / c.Cycle.Median }

// gap is what waiting for each cycle costs.
func (c atContext) gap() float64 { return c.ReadCycle.Median - c.Cycle.Median }

// line is the result in short.
func (c atContext) line() string {
	text := fmt.Sprintf("context %d: prefill %.0f tok/s, step %s ms, cycle %s ms (%.2f steps, %.2f × bound), read %s ms, speed-up %.2f",
		c.Context, perSecond(c.Context, c.Prefill), ms(c.Step), ms(c.Cycle), c.Cycle.Median/c.Step.Median, c.Cycle.Median/c.CycleBound, ms(c.ReadCycle), c.speedup())
	if c.Peer != nil {
		text += fmt.Sprintf("; peer: prefill %.0f tok/s, step %s ms", perSecond(c.Context, c.Peer.Prefill), ms(c.Peer.Step))
	}
	if c.PeerError != "" {
		text += "; peer: " + c.PeerError
	}
	return text
}

func perSecond(tokens int, ms spread) float64 { return float64(tokens) / ms.Median * 1e3 }

// ms writes a median with three digits.
func ms(s spread) string { return digits(s.Median) }

func digits(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// middle writes the quartiles.
func middle(s spread) string {
	return digits(quantile(s.Values, 0.25)) + "–" + digits(quantile(s.Values, 0.75))
}

func (r *shapeReport) text(table grid) string {
	var b strings.Builder
	s := r.Shape
	fmt.Fprintf(&b, "%s\n\n", machineLine(r.Machine))
	fmt.Fprintf(&b, "Random weights in the shape of %s, %d layers, %s (%s); drafter %s (%s); blocks of %d rows, %.2f tokens per cycle replayed (seed %d). Medians of %d.\n",
		s.Name, s.Layers, precision(s.Bits, r.Machine.Device), size(s.TargetBytes), precision(s.DraftBits, r.Machine.Device), size(s.DraftBytes), s.BlockSize, r.TokensPerCycle, r.Seed, r.Cycles*r.Repeats)
	for _, g := range []struct{ of, what string }{{"target", s.Guess}, {"drafter", s.DraftGuess}} {
		if g.what != "" {
			fmt.Fprintf(&b, "\nNot from a primary source, for the %s: %s.\n", g.of, g.what)
		}
	}
	fmt.Fprintf(&b, "\nMemory reads %.0f GB/s and copies %.0f GB/s here; a bound is the weights and caches that must be read, at the better of the two.\n\n", r.Bandwidth.Sum/1e9, r.Bandwidth.Copy/1e9)
	table(&b, 0, r.rateRows())
	b.WriteString("\nA cycle in ms: as the library runs it, with the host waiting for each, and its parts, each waited for; the host's own share.\n\n")
	table(&b, 0, r.phaseRows())
	for _, c := range r.Contexts {
		if c.PeerError != "" {
			fmt.Fprintf(&b, "\nThe peer failed at a context of %d: %s\n", c.Context, c.PeerError)
		}
	}
	return b.String()
}

func precision(bits int, device string) string {
	switch {
	case bits > 0:
		return fmt.Sprintf("%d bits", bits)
	case device == "cpu":
		return "float32"
	}
	return "bfloat16"
}

func (r *shapeReport) rateRows() [][]string {
	head := []string{"context", "prefill, tok/s", "step, ms", "quartiles", "× bound", "cycle, ms", "quartiles", "× bound", "cycle/step", "plain, tok/s", "drafted, tok/s", "speed-up", "peak"}
	if r.Peer != "" {
		head = append(head, "peer prefill", "peer, tok/s", "plain/peer")
	}
	rows := [][]string{head}
	for _, c := range r.Contexts {
		row := []string{
			fmt.Sprint(c.Context), fmt.Sprintf("%.0f", perSecond(c.Context, c.Prefill)),
			ms(c.Step), middle(c.Step), fmt.Sprintf("%.2f", c.Step.Median/c.StepBound),
			ms(c.Cycle), middle(c.Cycle), fmt.Sprintf("%.2f", c.Cycle.Median/c.CycleBound), fmt.Sprintf("%.2f", c.Cycle.Median/c.Step.Median),
			digits(1e3 / c.Step.Median), digits(c.TokensPerCycle * 1e3 / c.Cycle.Median), fmt.Sprintf("%.2f ×", c.speedup()), size(c.Peak),
		}
		if r.Peer != "" {
			if c.Peer == nil {
				row = append(row, "", "", "")
			} else {
				row = append(row, fmt.Sprintf("%.0f", perSecond(c.Context, c.Peer.Prefill)), digits(1e3/c.Peer.Step.Median), fmt.Sprintf("%.2f ×", c.Peer.Step.Median/c.Step.Median))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func (r *shapeReport) phaseRows() [][]string {
	rows := [][]string{{"context", "cycle", "waited for", "difference", "draft", "verify", "accept and commit", "host: graph", "host: dispatch"}}
	for _, c := range r.Contexts {
		dispatch := "–"
		if c.Dispatch != nil {
			dispatch = ms(*c.Dispatch)
		}
		rows = append(rows, []string{
			fmt.Sprint(c.Context), ms(c.Cycle), ms(c.ReadCycle), digits(c.gap()), ms(c.Draft), ms(c.Verify), ms(c.Commit), ms(c.Build), dispatch,
		})
	}
	return rows
}

// benchstat writes a line for every step and cycle.
func (r *shapeReport) benchstat() string {
	var b strings.Builder
	benchstatHead(&b, r.Machine, fmt.Sprintf("%s %s", r.Shape.Name, precision(r.Shape.Bits, r.Machine.Device)))
	for _, c := range r.Contexts {
		parts := []struct {
			name   string
			spread spread
		}{{"step", c.Step}, {"cycle", c.Cycle}, {"read-cycle", c.ReadCycle}, {"draft", c.Draft}, {"verify", c.Verify}, {"commit", c.Commit}, {"build", c.Build}, {"prefill", c.Prefill}}
		if c.Peer != nil {
			parts = append(parts, struct {
				name   string
				spread spread
			}{"peer-step", c.Peer.Step})
		}
		for _, p := range parts {
			for _, v := range p.spread.Values {
				fmt.Fprintf(&b, "BenchmarkShape/context=%d/part=%s 1 %.0f ns/op\n", c.Context, p.name, v*1e6)
			}
		}
	}
	return b.String()
}
