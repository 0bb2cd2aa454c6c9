package main

import (
	"io"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/godflash/godflash/dflash"
)

// bars show downloads, one bar a model. Off a terminal mpb draws nothing.
type bars struct {
	out  io.Writer
	all  *mpb.Progress // made by the first event
	bars map[string]*mpb.Bar
}

func newBars(out io.Writer) *bars { return &bars{out: out, bars: map[string]*mpb.Bar{}} }

// progress is told of each step, one call at a time.
func (b *bars) progress(p dflash.DownloadProgress) {
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

// close ends the bars, also those of a download that broke off.
func (b *bars) close() {
	if b.all == nil {
		return
	}
	for _, bar := range b.bars {
		bar.Abort(false)
	}
	b.all.Wait()
}
