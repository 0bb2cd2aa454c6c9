package bars

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/godflash/godflash/dflash"
)

// A bar for each model, with the bytes of all its files; whatever the download
// came to, Close returns and leaves no goroutine.
func TestBars(t *testing.T) {
	defer goleak.VerifyNone(t)
	b := New(io.Discard)
	b.Close()
	b = New(io.Discard)
	for done := int64(0); done <= 100; done += 25 {
		b.Progress(dflash.DownloadProgress{Model: "a/whole", File: "x", Done: done, Size: 100, AllDone: done, AllSize: 100})
	}
	b.Progress(dflash.DownloadProgress{Model: "a/broken", File: "y", Done: 3, Size: -1, AllDone: 3, AllSize: 7})
	require.Len(t, b.bars, 2)
	require.True(t, b.bars["a/whole"].Completed())
	require.EqualValues(t, 3, b.bars["a/broken"].Current())
	require.False(t, b.bars["a/broken"].Completed())
	b.Close()
}
