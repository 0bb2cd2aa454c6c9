package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
)

// A line at the beginning and for each tenth, for each model; a file that starts
// over is no news.
func TestDownloads(t *testing.T) {
	var out bytes.Buffer
	hear := downloads(slog.New(slog.NewTextHandler(&out, nil)))
	for _, model := range []string{"a/target", "a/draft"} {
		hear(dflash.DownloadProgress{Model: model})
		for done := int64(1); done <= 1000; done++ {
			hear(dflash.DownloadProgress{Model: model, AllDone: done, AllSize: 1000})
			if done == 500 {
				hear(dflash.DownloadProgress{Model: model, AllDone: 10, AllSize: 1000})
			}
		}
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 22)
	require.Contains(t, lines[0], `model=a/target done="0 %"`)
	require.Contains(t, lines[10], `model=a/target done="100 %" bytes=1000 of=1000`)
	require.Contains(t, lines[11], "model=a/draft")
}
