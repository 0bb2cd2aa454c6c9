package main

import (
	"fmt"
	"strings"
)

// benchstat writes the rounds in the format of Go's benchmarks: the
// configuration, then a line for each prompt, way and round. benchstat compares
// two such files, or the ways in one (-col /way).
func (r *report) benchstat() string {
	var b strings.Builder
	benchstatHead(&b, r.Machine, r.Model.Name)
	for _, p := range r.Prompts {
		for _, way := range []struct {
			name string
			side *side
		}{{"plain", &p.Plain}, {"drafted", &p.Drafted}, {"peer", p.Peer}} {
			if way.side == nil {
				continue
			}
			for i, ms := range way.side.Decode.Values {
				fmt.Fprintf(&b, "BenchmarkDecode/kind=%s/prompt=%s/way=%s %d %.0f ns/op %.2f tok/s %.3f prefill-ms",
					word(p.Kind), word(p.Name), way.name, 1, ms*1e6, way.side.Rate.Values[i], way.side.Prefill.Values[i])
				if way.side.Cycles > 0 {
					fmt.Fprintf(&b, " %.3f tok/cycle", way.side.TokensPerCycle)
				}
				if way.side.PeakBytes > 0 {
					fmt.Fprintf(&b, " %d peak-B", way.side.PeakBytes)
				}
				b.WriteString("\n")
			}
		}
	}
	return b.String()
}

// benchstatHead writes the configuration.
func benchstatHead(b *strings.Builder, m machine, model string) {
	goos, goarch, _ := strings.Cut(m.System, "/")
	for _, c := range [][2]string{
		{"goos", goos},
		{"goarch", goarch},
		{"pkg", "github.com/godflash/godflash/examples/bench"},
		{"cpu", m.CPU},
		{"device", strings.TrimSpace(m.Device + " " + m.GPU)},
		{"godflash", m.Godflash},
		{"mlx", m.MLX},
		{"model", model},
	} {
		fmt.Fprintf(b, "%s: %s\n", c[0], c[1])
	}
	b.WriteString("\n")
}

// word makes a name one that stands between slashes.
func word(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == '/' || r == '=' {
			return '_'
		}
		return r
	}, s)
}
