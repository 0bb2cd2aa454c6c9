package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Forms of a report.
const (
	asTable     = "table" // for a terminal
	asJSON      = "json"
	asMarkdown  = "markdown"
	asBenchstat = "benchstat"
)

// reporter is what was measured, of pairs or of a shape.
type reporter interface {
	text(table grid) string
	benchstat() string
	plot(name string) error
}

// write writes a report in the form asked for.
func write(w io.Writer, form string, r reporter) error {
	var text string
	switch form {
	case asTable:
		text = r.text(plainGrid)
	case asMarkdown:
		text = r.text(markdownGrid)
	case asBenchstat:
		text = r.benchstat()
	case asJSON:
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	default:
		return fmt.Errorf("no form %q of a report", form)
	}
	_, err := io.WriteString(w, text)
	return err
}

// grid writes rows of cells, the first of them the heads. The first left columns
// are text, the rest numbers.
type grid func(w *strings.Builder, left int, rows [][]string)

func plainGrid(w *strings.Builder, left int, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		line := ""
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < left {
				line += cell + pad + "  "
			} else {
				line += pad + cell + "  "
			}
		}
		w.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

func markdownGrid(w *strings.Builder, left int, rows [][]string) {
	for i, row := range rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
		if i > 0 {
			continue
		}
		line := make([]string, len(row))
		for j := range line {
			if line[j] = "---:"; j < left {
				line[j] = "---"
			}
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(line, " | "))
	}
}

func (r *report) text(table grid) string {
	var text strings.Builder
	writeHead(&text, r)
	table(&text, 2, promptRows(r))
	text.WriteString("\n")
	table(&text, 1, kindRows(r))
	writeNotes(&text, r)
	return text.String()
}

func writeHead(w *strings.Builder, r *report) {
	m, s := r.Machine, r.Settings
	fmt.Fprintln(w, machineLine(m))
	fmt.Fprintf(w, "\n%s\n", modelLine(r.Model))
	fmt.Fprintf(w, "\nRounds: %d, after %d that do not count, up to %d tokens, %s.", s.Repeats, s.WarmUp, s.MaxTokens, drawn(s))
	if s.Peer != "" {
		fmt.Fprintf(w, " Peer: %s.", s.Peer)
	}
	fmt.Fprint(w, "\nMedians; rates from the first token to the last, in tokens per second; the prompt's pass in ms.\n\n")
}

func machineLine(m machine) string {
	return fmt.Sprintf("%s, on %s (%s), %d CPUs, %s, power: %s, load %s before and %s after. godflash %s, %s, MLX %s, mlx-c %s.",
		m.Time, m.hardware(), m.Device, m.CPUs, m.System, m.Power, m.Load, m.LoadAfter, m.Godflash, m.Go, m.MLX, m.MLXC)
}

func modelLine(m model) string {
	kind := m.Quantization
	if kind == "" {
		kind = "dense"
	}
	text := fmt.Sprintf("%s (%s, %s", m.Name, m.ModelType, kind)
	if m.Target.Commit != "" {
		text += ", revision " + m.Target.Commit
	}
	text += "), drafter"
	if m.Draft != nil && m.Draft.Repo != "" {
		text += " " + m.Draft.Repo
	}
	precision := "in the file's precision"
	if m.DraftBits > 0 {
		precision = fmt.Sprintf("in %d bits", m.DraftBits)
	}
	return fmt.Sprintf("%s %s, blocks of up to %d rows; weights of both take %s.", text, precision, m.BlockSize, size(m.WeightBytes))
}

func drawn(s settings) string {
	text := "greedy"
	if s.Temperature != 0 {
		text = fmt.Sprintf("temperature %g, seed %d", s.Temperature, s.Seed)
	}
	if s.BlockSize > 0 {
		text += fmt.Sprintf(", blocks of %d rows throughout", s.BlockSize)
	}
	return text
}

func promptRows(r *report) [][]string {
	head := []string{"prompt", "kind", "tokens", "prefill", "new", "plain", "drafted", "speed-up", "least–most", "tokens/cycle", "peak", "equal"}
	if r.Settings.Peer != "" {
		head = append(head, "peer", "plain/peer")
	}
	rows := [][]string{head}
	for _, p := range r.Prompts {
		equal := "yes"
		if !p.Equal {
			equal = "no"
		}
		row := []string{
			p.Name, p.Kind, fmt.Sprint(p.PromptTokens), fmt.Sprintf("%.0f", p.Drafted.Prefill.Median), fmt.Sprint(p.Drafted.Tokens),
			rate(p.Plain.Rate), rate(p.Drafted.Rate), times(p.Speedup), fmt.Sprintf("%.2f–%.2f", p.Speedup.Min, p.Speedup.Max),
			fmt.Sprintf("%.2f", p.Drafted.TokensPerCycle), size(p.Drafted.PeakBytes), equal,
		}
		if p.Peer != nil {
			row = append(row, rate(p.Peer.Rate), times(*p.OverPeer))
		}
		rows = append(rows, row)
	}
	return rows
}

func kindRows(r *report) [][]string {
	head := []string{"kind", "prompts", "plain", "drafted", "speed-up", "least–most", "tokens/cycle", "equal"}
	if r.Settings.Peer != "" {
		head = append(head, "peer", "plain/peer")
	}
	rows := [][]string{head}
	for _, k := range r.Kinds {
		row := []string{
			k.Name, fmt.Sprint(k.Prompts), rate(k.Plain), rate(k.Drafted), times(k.Speedup),
			fmt.Sprintf("%.2f–%.2f", k.Speedup.Min, k.Speedup.Max), fmt.Sprintf("%.2f", k.TokensPerCycle), fmt.Sprintf("%d of %d", k.Equal, k.Prompts),
		}
		if k.Peer != nil {
			row = append(row, rate(*k.Peer), times(*k.OverPeer))
		}
		rows = append(rows, row)
	}
	return rows
}

// writeNotes says what the tables have no room for: doubts, differences,
// acceptance by position, hashes.
func writeNotes(w *strings.Builder, r *report) {
	if r.Settings.Repeats < trusted {
		fmt.Fprintf(w, "\nTake the speed-ups with care: fewer than %d rounds.\n", trusted)
	}
	for _, k := range r.Kinds {
		if k.Doubt != "" && r.Settings.Repeats >= trusted {
			fmt.Fprintf(w, "\nTake the speed-up of %q with care: %s.\n", k.Name, k.Doubt)
		}
	}
	for _, p := range r.Prompts {
		for _, s := range []struct {
			name   string
			steady bool
		}{{"plain", p.Plain.Steady}, {"drafted", p.Drafted.Steady}} {
			if !s.steady {
				fmt.Fprintf(w, "\n%s: the rounds of %s decoding gave different ids.\n", p.Name, s.name)
			}
		}
		if d := p.First; d != nil && d.Scored {
			fmt.Fprintf(w, "\n%s: after %d equal tokens plain decoding chose %d and drafted decoding %d; the model's scores for them differ by %.4g.\n", p.Name, d.At, d.Plain, d.Drafted, d.Gap)
		} else if d != nil {
			fmt.Fprintf(w, "\n%s: after %d equal tokens one of the texts ended.\n", p.Name, d.At)
		}
	}
	fmt.Fprintf(w, "\nShare of the cycles that took a draft, by its place in the block: %s.\n", acceptance(r.Prompts))
	fmt.Fprintln(w, "\nSHA-256 of the ids, drafted:")
	for _, p := range r.Prompts {
		fmt.Fprintf(w, "- %s %s\n", p.Drafted.SHA256, p.Name)
	}
	for _, f := range []*folder{&r.Model.Target, r.Model.Draft} {
		if f == nil || len(f.Files) == 0 {
			continue
		}
		what := "target"
		if f == r.Model.Draft {
			what = "drafter"
		}
		fmt.Fprintf(w, "\nSHA-256 of the %s's files:\n", what)
		for _, x := range f.Files {
			fmt.Fprintf(w, "- %s %s\n", x.SHA256, x.Name)
		}
	}
}

// acceptance gives, for each place in the block, the share of all cycles that
// took the draft there.
func acceptance(prompts []result) string {
	var at []int
	cycles := 0
	for _, p := range prompts {
		cycles += p.Drafted.Cycles
		for i, n := range p.Drafted.AcceptedAt {
			if i == len(at) {
				at = append(at, 0)
			}
			at[i] += n
		}
	}
	if len(at) == 0 {
		return "none was taken"
	}
	text := make([]string, len(at))
	for i, n := range at {
		text[i] = fmt.Sprintf("%.2f", float64(n)/float64(cycles))
	}
	return strings.Join(text, " ")
}

// rate writes tokens per second with three digits at least.
func rate(s spread) string {
	if s.Median >= 100 {
		return fmt.Sprintf("%.0f", s.Median)
	}
	return fmt.Sprintf("%.1f", s.Median)
}

func times(s spread) string { return fmt.Sprintf("%.2f ×", s.Median) }

// size writes bytes in units of 10^6 or 10^9 bytes.
func size(n int64) string {
	if n < 1e9 {
		return fmt.Sprintf("%.0f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2f GB", float64(n)/1e9)
}
