package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
)

func TestMain(m *testing.M) {
	if os.Getenv(childSocket) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

func pair(t *testing.T) string {
	t.Helper()
	dir, err := fixture.Dir()
	require.NoError(t, err)
	return filepath.Join(dir, "tiny-qwen3.5")
}

func TestWrongUsage(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"nothing":  {nil, "-model and -prompt"},
		"argument": {[]string{"-model", "x", "-prompt", "y", "z"}, `"z"`},
		"budget":   {[]string{"-model", "x", "-prompt", "y", "-max-tokens", "-1"}, "0 or more"},
		"flag":     {[]string{"-topics"}, "-topics"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			require.Equal(t, 2, run(t.Context(), tc.args, &stdout, &stderr))
			require.Contains(t, stderr.String(), tc.want)
		})
	}
	var stdout, stderr bytes.Buffer
	require.Equal(t, 1, run(t.Context(), []string{"-model", filepath.Join(t.TempDir(), "none"), "-prompt", "x"}, &stdout, &stderr))
	require.Contains(t, stderr.String(), "none")
}

func TestRun(t *testing.T) {
	var stdout, stderr bytes.Buffer
	require.Equal(t, 0, run(t.Context(), []string{"-model", pair(t), "-prompt", "Write a function.", "-max-tokens", "20"}, &stdout, &stderr), stderr.String())
	require.Contains(t, stdout.String(), "loading the model: ")
	require.Contains(t, stdout.String(), "ready: qwen3_5")
	require.Contains(t, stdout.String(), "complete after 20 tokens")

	stdout.Reset()
	require.Equal(t, 0, run(t.Context(), []string{"-model", pair(t), "-prompt", "Write a function.", "-stop-after", "2"}, &stdout, &stderr), stderr.String())
	require.Regexp(t, `stopped after [1-9]\d* tokens`, stdout.String())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, 130, run(ctx, []string{"-model", pair(t), "-prompt", "Write a function."}, &stdout, &stderr))
}

// A window may close at any moment: while the model opens, while text is
// written, with events that nobody reads.
func TestClose(t *testing.T) {
	for _, after := range []time.Duration{0, 20 * time.Millisecond, 200 * time.Millisecond} {
		app := Start(pair(t), nil)
		require.True(t, app.Ask(dflash.Request{Prompt: "Write a function."}))
		require.False(t, app.Ask(dflash.Request{Prompt: "Another."}) && app.Ask(dflash.Request{Prompt: "A third."}), "the queue has an end")
		time.Sleep(after)
		app.Close()
		app.Close()
		app.Stop()
		for range app.Events() { // what was on its way; then it is closed
		}
	}
}

// A stopped answer leaves the model ready.
func TestStop(t *testing.T) {
	app := Start(pair(t), nil)
	defer app.Close()
	require.True(t, app.Ask(dflash.Request{Prompt: "Write a function."}))
	finished := 0
	for event := range app.Events() {
		switch e := event.(type) {
		case Text:
			if finished == 0 {
				app.Stop()
			}
		case Failed:
			require.NoError(t, e.Err)
		case Finished:
			if finished++; finished == 2 {
				require.False(t, e.Stopped)
				require.Equal(t, 5, e.Stats.CompletionTokens)
				return
			}
			require.True(t, e.Stopped)
			require.True(t, app.Ask(dflash.Request{Prompt: "Write a function.", MaxTokens: 5}))
		}
	}
	t.Fatal("the events ended")
}

func TestHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	require.Equal(t, 0, run(t.Context(), []string{"-h"}, &stdout, &stderr))
	for _, flag := range []string{"-model", "-prompt", "-max-tokens", "-stop-after"} {
		require.True(t, strings.Contains(stderr.String(), flag), flag)
	}
}
