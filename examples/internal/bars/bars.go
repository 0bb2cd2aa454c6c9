// Package bars shows the programs' downloads.
package bars

import (
	"io"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/godflash/godflash/dflash"
)

// Bars show downloads, one bar a model. Off a terminal mpb draws nothing.
type Bars struct {
	out  io.Writer
	all  *mpb.Progress // made by the first event
	bars map[string]*mpb.Bar
}

// New makes bars on a terminal. Close them when the download is over.
func New(out io.Writer) *Bars { return &Bars{out: out, bars: map[string]*mpb.Bar{}} }

// Progress is told of each step, one call at a time.
func (b *Bars) Progress(p dflash.DownloadProgress) {
	if b.all == nil {
		b.all = mpb.New(mpb.WithOutput(b.out))
	}
	bar := b.bars[p.Model]
	if bar == nil {
		bar = b.all.AddBar(p.AllSize,
			mpb.PrependDecorators(decor.Name(p.Model+" ")),
			mpb.AppendDecorators(decor.CountersKibiByte("% .1f / % .1f")))
		b.bars[p.Model] = bar
	}
	bar.SetTotal(p.AllSize, p.AllDone >= p.AllSize)
	bar.SetCurrent(p.AllDone)
}

// Close ends the bars, also those of a download that broke off.
func (b *Bars) Close() {
	if b.all == nil {
		return
	}
	for _, bar := range b.bars {
		bar.Abort(false)
	}
	b.all.Wait()
}
