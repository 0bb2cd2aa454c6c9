package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asProgram makes the test binary be the program.
const asProgram = "GODFLASH_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// outcome is what a run left.
type outcome struct {
	status         int
	stdout, stderr string
}

func runArgs(t *testing.T, args ...string) outcome {
	t.Helper()
	return runIn(t, t.Context(), "", args...)
}

func runIn(t *testing.T, ctx context.Context, stdin string, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status := run(ctx, args, strings.NewReader(stdin), &stdout, &stderr)
	return outcome{status, stdout.String(), stderr.String()}
}

// program is the program as a process of its own.
func program(t *testing.T, dir string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), asProgram+"=1"), env...)
	return cmd
}

func TestWrongUsage(t *testing.T) {
	pair, err := demoPair()
	require.NoError(t, err)
	empty := filepath.Join(t.TempDir(), "empty.txt")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o600))
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"unknown flag":          {[]string{"-topics", "1"}, "-topics"},
		"argument":              {[]string{"hello"}, `unexpected argument "hello"`},
		"no number":             {[]string{"-max-tokens", "many"}, "max-tokens"},
		"negative budget":       {[]string{"-max-tokens", "-1"}, "-max-tokens is -1"},
		"negative block":        {[]string{"-block", "-2"}, "-block is -2"},
		"block of one":          {[]string{"-block", "1"}, "-no-draft"},
		"block too long":        {[]string{"-block", "17"}, "17"},
		"ids with a letter":     {[]string{"-prompt-ids", "1,x"}, `"x" is no token id`},
		"ids with a gap":        {[]string{"-prompt-ids", "1,,2"}, `"" is no token id`},
		"ids empty":             {[]string{"-prompt-ids", ""}, "prompt-ids"},
		"ids negative":          {[]string{"-prompt-ids", "1,-2"}, `"-2" is no token id`},
		"id past vocabulary":    {[]string{"-prompt-ids", "4096"}, "4096"},
		"think neither way":     {[]string{"-think=perhaps"}, "think"},
		"file missing":          {[]string{"-prompt-file", "no/such/file"}, "no/such/file"},
		"file empty":            {[]string{"-prompt-file", empty}, "the prompt is empty"},
		"prompt empty":          {[]string{"-prompt", ""}, "the prompt is empty"},
		"not UTF-8":             {[]string{"-prompt", "\ufffdcaf\xe9", "-model", t.TempDir()}, "byte 6 is 0xe9"},
		"system not UTF-8":      {[]string{"-prompt", "a", "-system", "\xe9", "-model", t.TempDir()}, "-system is not UTF-8"},
		"stop not UTF-8":        {[]string{"-prompt", "a", "-stop", "\xe9", "-model", t.TempDir()}, "byte 0 is 0xe9"},
		"stdin empty":           {[]string{"-prompt-file", "-"}, "the prompt is empty"},
		"two prompts":           {[]string{"-prompt", "a", "-prompt-file", "b"}, "-prompt and -prompt-file"},
		"prompt and ids":        {[]string{"-prompt", "a", "-prompt-ids", "1"}, "-prompt and -prompt-ids"},
		"file and ids":          {[]string{"-prompt-file", "a", "-prompt-ids", "1"}, "-prompt-file and -prompt-ids"},
		"raw ids":               {[]string{"-raw", "-prompt-ids", "1"}, "-raw and -prompt-ids"},
		"raw with system":       {[]string{"-raw", "-prompt", "a", "-system", "b"}, "-raw and -system"},
		"raw with think":        {[]string{"-raw", "-prompt", "a", "-think"}, "-raw and -think"},
		"raw without prompt":    {[]string{"-raw"}, "-raw needs"},
		"ids with system":       {[]string{"-prompt-ids", "1", "-system", "b"}, "-prompt-ids and -system"},
		"ids with think":        {[]string{"-prompt-ids", "1", "-think=false"}, "-prompt-ids and -think"},
		"no draft and draft":    {[]string{"-model", pair, "-prompt", "a", "-no-draft", "-draft", "d"}, "-no-draft and -draft"},
		"no draft and block":    {[]string{"-no-draft", "-block", "4"}, "-no-draft and -block"},
		"no draft and compare":  {[]string{"-no-draft", "-compare"}, "-no-draft and -compare"},
		"draft without model":   {[]string{"-draft", "d"}, "-draft needs -model"},
		"model without prompt":  {[]string{"-model", pair}, "-model needs a prompt"},
		"model empty":           {[]string{"-model", "", "-prompt", "a"}, "-model is empty"},
		"draft empty":           {[]string{"-model", pair, "-prompt", "a", "-draft", ""}, "-draft is empty"},
		"block without drafter": {[]string{"-model", filepath.Join(pair, "target"), "-prompt", "a", "-block", "4"}, "no drafter"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runArgs(t, tc.args...)
			require.Equal(t, 2, got.status, got.stderr)
			require.Empty(t, got.stdout)
			require.Contains(t, got.stderr, tc.want)
		})
	}
}

func TestHelp(t *testing.T) {
	got := runArgs(t, "-h")
	require.Zero(t, got.status)
	require.Empty(t, got.stdout)
	for _, name := range []string{"model", "draft", "no-draft", "block", "prompt", "prompt-file", "prompt-ids", "system", "think", "raw", "max-tokens", "json", "compare"} {
		require.Contains(t, got.stderr, "\n  -"+name)
	}
}

func TestFailure(t *testing.T) {
	pair, err := demoPair()
	require.NoError(t, err)
	missing := filepath.Join(t.TempDir(), "missing")
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no such model":           {[]string{"-model", missing, "-prompt", "a", "-json"}, missing},
		"no such drafter":         {[]string{"-model", pair, "-draft", missing, "-prompt", "a"}, missing},
		"drafter of another size": {[]string{"-model", pair, "-draft", filepath.Join(pair, "..", "tiny-qwen3", "draft"), "-prompt", "a"}, "256"},
		"prompt too long":         {[]string{"-prompt", strings.Repeat("word ", 5000), "-json"}, "4096"},
		"nothing to compare":      {[]string{"-model", filepath.Join(pair, "target"), "-prompt", "a", "-compare"}, "-compare needs a drafter"},
	} {
		t.Run(name, func(t *testing.T) {
			got := runArgs(t, tc.args...)
			require.Equal(t, 1, got.status, got.stderr)
			require.Empty(t, got.stdout)
			require.Contains(t, got.stderr, tc.want)
			require.True(t, strings.HasPrefix(got.stderr, "generate: "), "%q", got.stderr)
		})
	}
	got := runArgs(t, "-prompt-ids", "4096")
	require.Equal(t, 2, got.status)
	require.True(t, strings.HasPrefix(got.stderr, "generate: bad request: prompt id 4096"), "no empty line where no text came before: %q", got.stderr)
}

// writerFunc is standard output that a test watches.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestStandardOutputBroken(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		status int
		said   string
	}{
		"reader gone": {&os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}, 141, ""},
		"disk full":   {errors.New("no space left"), 1, "no space left"},
	} {
		t.Run(name, func(t *testing.T) {
			writes := 0
			stdout := writerFunc(func(p []byte) (int, error) {
				if writes++; writes == 3 {
					return 0, tc.err
				}
				return len(p), nil
			})
			var stderr strings.Builder
			status := run(t.Context(), nil, strings.NewReader(""), stdout, &stderr)
			require.Equal(t, tc.status, status)
			require.Equal(t, 3, writes, "nothing is written after the error")
			if tc.said == "" {
				require.NotContains(t, stderr.String(), "EPIPE")
				require.NotContains(t, stderr.String(), "broken")
			}
			require.Contains(t, stderr.String(), tc.said)
		})
	}
}

func TestInterrupted(t *testing.T) {
	whole := runArgs(t)
	require.Zero(t, whole.status, whole.stderr)
	ctx, interrupt := context.WithCancel(t.Context())
	var text, stderr strings.Builder
	stdout := writerFunc(func(p []byte) (int, error) {
		interrupt()
		return text.Write(p)
	})
	require.Equal(t, 130, run(ctx, nil, strings.NewReader(""), stdout, &stderr))
	require.NotEmpty(t, text.String())
	require.Less(t, text.Len(), len(whole.stdout))
	require.True(t, strings.HasPrefix(whole.stdout, text.String()))
	require.Contains(t, stderr.String(), "tokens per cycle")
	require.Contains(t, stderr.String(), "interrupted")

	got := runIn(t, ctx, "", "-json")
	require.Equal(t, 130, got.status, got.stderr)
	require.Empty(t, got.stdout, "-json prints complete objects only")
}

func TestInterruptedWhileReading(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	stdin, feed := io.Pipe()
	defer feed.Close()
	go func() {
		feed.Write([]byte("half a prom")) // returns when it has been read
		interrupt()
	}()
	var stdout, stderr strings.Builder
	require.Equal(t, 130, run(ctx, []string{"-prompt-file", "-"}, stdin, &stdout, &stderr))
	require.Empty(t, stdout.String())
}

func TestSignal(t *testing.T) {
	cmd := program(t, "", nil, "-no-draft", "-max-tokens", "0", "-raw", "-prompt", "package")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	first := make([]byte, 1)
	_, err = io.ReadFull(stdout, first)
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_, err = io.ReadAll(stdout)
	require.NoError(t, err)
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, 130, exit.ExitCode(), stderr.String())
	require.Contains(t, stderr.String(), "interrupted")
	require.NotContains(t, stderr.String(), "goroutine")
}

func TestReaderGone(t *testing.T) {
	read, write, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, read.Close())
	cmd := program(t, "", nil)
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = write, &stderr
	err = cmd.Run()
	require.NoError(t, write.Close())
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 141, exit.ExitCode(), stderr.String())
	require.NotContains(t, stderr.String(), "broken pipe")
}

func TestLibraryMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libmlxc.so")
	cmd := program(t, "", []string{"MLXC_LIBRARY=" + path}, "-json")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Run(), &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.Empty(t, stdout.String())
	require.Contains(t, stderr.String(), path)
	require.Contains(t, stderr.String(), "To fix it:")
	require.NotContains(t, stderr.String(), "goroutine")
}

func TestOutsideAClone(t *testing.T) {
	cmd := program(t, t.TempDir(), nil)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.Contains(t, string(out), "name a model with -model")
}
