package main

import (
	"fmt"
	"log/slog"

	"github.com/godflash/godflash/dflash"
)

// downloads logs how far the models' downloads are, a line for each tenth. Calls
// come one at a time.
func downloads(log *slog.Logger) func(dflash.DownloadProgress) {
	tenths := map[string]int64{}
	return func(p dflash.DownloadProgress) {
		tenth := 10 * p.AllDone / max(p.AllSize, 1)
		if last, ok := tenths[p.Model]; ok && tenth <= last {
			return
		}
		tenths[p.Model] = tenth
		log.Info("downloading", "model", p.Model, "done", fmt.Sprintf("%d %%", 10*tenth), "bytes", p.AllDone, "of", p.AllSize)
	}
}
