package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
)

// children finds the processes that this one has started.
func children(t *testing.T) (pids []int) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	require.NoError(t, err)
	if tasks == nil {
		t.Skip("no /proc here to find the child in")
	}
	for _, file := range tasks {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(field)
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

// The engine's process is ended as a fault of a GPU would end it: in an answer,
// and again while nobody asks. The answer fails with the reason; the next ones
// come from a new process.
func TestChildDies(t *testing.T) {
	app := StartIsolated(pair(t))
	defer app.Close()
	r := dflash.Request{Prompt: "Write a function.", MaxTokens: 400}
	require.True(t, app.Ask(r))
	kill := func() int {
		pids := children(t)
		require.Len(t, pids, 1)
		require.NoError(t, syscall.Kill(pids[0], syscall.SIGABRT))
		return pids[0]
	}
	ready, failed, killed := 0, 0, 0
	for event := range app.Events() {
		switch e := event.(type) {
		case Ready:
			switch ready++; ready {
			case 2:
				require.Equal(t, 1, failed)
				killed = kill() // while nobody asks
			case 3:
				r.MaxTokens = 7
				require.True(t, app.Ask(r))
			}
		case Text:
			if killed == 0 {
				killed = kill()
			}
		case Failed:
			failed++
			require.ErrorIs(t, e.Err, errChild)
			require.ErrorContains(t, e.Err, "SIGABRT")
		case Finished:
			require.Equal(t, 3, ready)
			require.Equal(t, 7, e.Stats.CompletionTokens)
			require.False(t, e.Stopped)
			app.Close()
			require.Empty(t, children(t), "the child ends with the app")
			return
		}
	}
	t.Fatal("the events ended")
}

func TestIsolated(t *testing.T) {
	run := func(args ...string) (int, string, string) {
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), append([]string{"-isolate", "-prompt", "Write a function.", "-model"}, args...), &stdout, &stderr)
		return status, stdout.String(), stderr.String()
	}
	status, stdout, stderr := run(pair(t), "-max-tokens", "9")
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "loading the model")
	require.Contains(t, stdout, "complete after 9 tokens")
	status, stdout, stderr = run(pair(t), "-max-tokens", "500", "-stop-after", "2")
	require.Zero(t, status, stderr)
	require.Regexp(t, `stopped after [1-9]`, stdout)
	status, stdout, stderr = run(pair(t), "-max-tokens", "0", "-stop-after", "12")
	require.Zero(t, status, stderr)
	require.GreaterOrEqual(t, strings.Count(stdout, "text: "), 12, "0 is no bound: %s", stdout)
	status, _, stderr = run(filepath.Join(t.TempDir(), "none"))
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "none")
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "embed-*"))
	require.NoError(t, err)
	require.Empty(t, left)

	app := StartIsolated(pair(t))
	time.Sleep(30 * time.Millisecond)
	app.Close() // while it opens
	require.Empty(t, children(t))
}
