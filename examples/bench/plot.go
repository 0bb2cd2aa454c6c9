package main

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Colours of the ways, told apart also without red and green.
var colours = []color.Color{color.RGBA{0x99, 0x99, 0x99, 255}, color.RGBA{0x00, 0x72, 0xb2, 255}, color.RGBA{0xe6, 0x9f, 0x00, 255}}

// plot draws the rates of every prompt, side by side, into a file whose
// name ends in .png or .svg.
func (r *report) plot(name string) error {
	labels := make([]string, len(r.Prompts))
	for i, p := range r.Prompts {
		labels[i] = p.Name
	}
	rates := func(which func(result) *side) []float64 {
		out := make([]float64, len(r.Prompts))
		for i, p := range r.Prompts {
			out[i] = which(p).Rate.Median
		}
		return out
	}
	bars := []series{
		{"plain", rates(func(p result) *side { return &p.Plain })},
		{"drafted", rates(func(p result) *side { return &p.Drafted })},
	}
	if r.Settings.Peer != "" {
		bars = append(bars, series{"peer, plain", rates(func(p result) *side { return p.Peer })})
	}
	p := plot.New()
	p.Title.Text = r.Model.Name + " on " + r.Machine.hardware()
	p.Y.Label.Text, p.Y.Min = "tokens per second", 0
	return drawBars(p, name, labels, bars)
}

// series are the values of one way.
type series struct {
	name   string
	values []float64
}

func drawBars(p *plot.Plot, name string, labels []string, bars []series) error {
	width := vg.Points(12)
	for i, b := range bars {
		chart, err := plotter.NewBarChart(plotter.Values(b.values), width)
		if err != nil {
			return fmt.Errorf("plot %s: %w", b.name, err)
		}
		chart.Color, chart.LineStyle.Width = colours[i], 0
		chart.Offset = width * vg.Length(float64(i)-float64(len(bars)-1)/2)
		p.Add(chart)
		p.Legend.Add(b.name, chart)
	}
	p.Legend.Top = true
	p.Y.Max *= 1.25 // room for the legend
	p.NominalX(labels...)
	p.X.Tick.Label.Rotation, p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = math.Pi/4, -1, -0.5
	size := max(16*vg.Centimeter, vg.Length(len(labels)*(len(bars)+1))*width)
	if err := p.Save(size, 11*vg.Centimeter, name); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	return nil
}

// plot draws the times of a step and a cycle over the context.
func (r *shapeReport) plot(name string) error {
	labels := make([]string, len(r.Contexts))
	step, cycle, read := make([]float64, len(labels)), make([]float64, len(labels)), make([]float64, len(labels))
	for i, c := range r.Contexts {
		labels[i] = fmt.Sprint(c.Context)
		step[i], cycle[i], read[i] = c.Step.Median, c.Cycle.Median, c.ReadCycle.Median
	}
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%s, %s, on %s", r.Shape.Name, precision(r.Shape.Bits, r.Machine.Device), r.Machine.hardware())
	p.X.Label.Text, p.Y.Label.Text, p.Y.Min = "tokens of context", "ms", 0
	return drawBars(p, name, labels, []series{{"plain step", step}, {"cycle", cycle}, {"cycle, waited for", read}})
}
