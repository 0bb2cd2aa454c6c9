package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// asProgram makes the test binary be the program.
const asProgram = "GODFLASH_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// log is standard error that tests read while it is written.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// server is the program at work.
type server struct {
	t      *testing.T
	url    string
	log    *log
	stop   context.CancelFunc
	status chan int
	client *http.Client
}

func start(t *testing.T, args ...string) *server {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	s := &server{t: t, log: &log{}, stop: stop, status: make(chan int, 1), client: &http.Client{Transport: &http.Transport{}}}
	stdout, write := io.Pipe()
	go func() {
		s.status <- run(ctx, append([]string{"-addr", "127.0.0.1:0"}, args...), write, s.log)
		write.Close()
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err, "%s", s.log)
	s.url = strings.TrimSpace(line)
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		stop()
	})
	require.Eventually(t, func() bool { return s.get("/health").status == 200 }, time.Minute, 20*time.Millisecond, "it becomes healthy: %s", s.log)
	return s
}

func (s *server) end() int {
	s.t.Helper()
	s.client.CloseIdleConnections()
	s.stop()
	return <-s.status
}

type answer struct {
	status int
	text   string
}

func (s *server) do(method, path, body string, header ...string) answer {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := s.client.Do(r)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return answer{resp.StatusCode, string(text)}
}

func (s *server) get(path string, header ...string) answer {
	s.t.Helper()
	return s.do("GET", path, "", header...)
}

const ask = `{"messages":[{"role":"user","content":"Write F."}],"temperature":0,"max_tokens":20}`

func TestServe(t *testing.T) {
	s := start(t, "-log-level", "debug", "-pprof", "-max-tokens", "5", "-alias", "one,two")
	require.Contains(t, s.url, "http://127.0.0.1:")
	a := s.do("POST", "/v1/chat/completions", ask)
	require.Equal(t, 200, a.status, a.text)
	require.Contains(t, a.text, `"model":"tiny-qwen3.5"`)
	require.Contains(t, a.text, `"completion_tokens":5`)
	require.Equal(t, 200, s.do("POST", "/v1/chat/completions", strings.Replace(ask, "{", `{"model":"two",`, 1)).status)
	require.Contains(t, s.log.String(), "path=/v1/chat/completions status=200")

	m := s.get("/metrics").text
	require.Contains(t, m, `godflash_requests_total{path="/v1/chat/completions",status="200"} 2`)
	require.Contains(t, m, `godflash_tokens_total{kind="completion"} 10`)
	require.Contains(t, m, "godflash_model_loaded 1")
	require.Contains(t, m, "godflash_requests_running 0")
	require.Regexp(t, `godflash_time_to_first_token_seconds_count 2`, m)
	require.Contains(t, m, "go_goroutines")

	require.Contains(t, s.get("/debug/pprof/").text, "goroutine")
	require.Equal(t, 200, s.get("/").status)
	require.Equal(t, 404, s.get("/other").status)
	require.Equal(t, 404, s.get("/v1/other").status)
	require.Equal(t, 0, s.end(), "%s", s.log)
	require.Contains(t, s.log.String(), "shutting down")
}

func TestKeyOnEverything(t *testing.T) {
	s := start(t, "-api-key", "sesame", "-pprof")
	for _, path := range []string{"/v1/models", "/metrics", "/debug/pprof/"} {
		require.Equal(t, 401, s.get(path).status, path)
		require.Equal(t, 200, s.get(path, "Authorization", "Bearer sesame").status, path)
		require.Equal(t, 403, s.get(path, "Authorization", "Bearer sesame", "Origin", "https://evil.example").status, path)
	}
	require.NotContains(t, s.log.String(), "sesame")
	require.Zero(t, s.end())
}

// The model is freed when nobody uses it, health stays good, and the next
// request loads it again, while others come at the same moment.
func TestIdleUnload(t *testing.T) {
	s := start(t, "-idle-unload", "100ms")
	first := s.do("POST", "/v1/completions", `{"prompt":"package main","temperature":0,"max_tokens":5}`)
	require.Equal(t, 200, first.status)
	for round := range 2 {
		require.Eventually(t, func() bool { return strings.Count(s.log.String(), "model freed") > round }, 20*time.Second, 10*time.Millisecond)
		require.Contains(t, s.get("/metrics").text, "godflash_model_loaded 0")
		require.Equal(t, 200, s.get("/health").status)
		require.Contains(t, s.get("/v1/models").text, `"context_length":4096`)
		require.Equal(t, round+1, strings.Count(s.log.String(), "model loaded"), "looking does not load it")
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				a := s.do("POST", "/v1/completions", `{"prompt":"package main","temperature":0,"max_tokens":5}`)
				if a.status != 200 {
					t.Error(a.status, a.text)
				}
			})
		}
		group.Wait()
		require.Equal(t, round+2, strings.Count(s.log.String(), "model loaded"))
	}
	require.Zero(t, s.end())
}

func TestWrongUsage(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"unknown flag":      {[]string{"-topics"}, "-topics"},
		"argument":          {[]string{"hello"}, "hello"},
		"idle":              {[]string{"-idle-unload", "-5s"}, "-idle-unload is -5s"},
		"no port":           {[]string{"-addr", "localhost"}, "-addr"},
		"no slots":          {[]string{"-parallel", "0"}, "-parallel is 0"},
		"negative queue":    {[]string{"-max-queue", "-1"}, "-max-queue is -1"},
		"no body":           {[]string{"-max-body", "0"}, "-max-body is 0; it lies between 1 and 1048576"},
		"far too much body": {[]string{"-max-body", "17592186044417"}, "-max-body is 17592186044417; it lies between 1 and 1048576"},
		"less than none":    {[]string{"-max-body", "-17592186044417"}, "-max-body is -17592186044417"},
		"no number of body": {[]string{"-max-body", "99999999999999999999"}, "value out of range"},
		"negative time":     {[]string{"-idle-unload", "-1s"}, "-idle-unload"},
		"level":             {[]string{"-log-level", "loud"}, "log-level"},
		"empty key":         {[]string{"-api-key", ""}, "-api-key is empty"},
		"empty model":       {[]string{"-model", ""}, "-model is empty"},
		"draft, no model":   {[]string{"-draft", "x"}, "-draft needs -model"},
		"two about drafts":  {[]string{"-no-draft", "-block", "4"}, "-no-draft excludes"},
		"no scheme":         {[]string{"-cors", "chat.example"}, `"chat.example" is no origin`},
		"an address":        {[]string{"-cors", "http://localhost:3000,https://chat.example/"}, `"https://chat.example/" is no origin`},
		"block":             {[]string{"-addr", "127.0.0.1:0", "-block", "99"}, "99"},
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, 2, run(t.Context(), c.args, &stdout, &stderr), name)
		require.Contains(t, stderr.String(), c.says, name)
	}
	var stdout, stderr bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"-h"}, &stdout, &stderr))
	require.Contains(t, stderr.String(), "-idle-unload")
}

func TestFailure(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	missing := filepath.Join(t.TempDir(), "missing")
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"address taken": {[]string{"-addr", taken.Addr().String()}, "address already in use"},
		"no such model": {[]string{"-addr", "127.0.0.1:0", "-model", missing}, missing},
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, 1, run(t.Context(), c.args, &stdout, &stderr), name)
		require.Contains(t, stderr.String(), c.says, name)
	}
}

func TestOnlyHere(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "0.0.0.0:1": false, "[::]:1": false, "192.0.2.1:1": false} {
		a, err := net.ResolveTCPAddr("tcp", address)
		require.NoError(t, err)
		require.Equal(t, want, onlyHere(a), address)
	}
}

func TestEndsWhileLoading(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var stderr log
	stop()
	require.Zero(t, run(ctx, []string{"-addr", "127.0.0.1:0"}, io.Discard, &stderr), "%s", &stderr)
}

// program is the program as a process of its own, and its address.
func program(t *testing.T, env []string, args ...string) (cmd *exec.Cmd, url string, stderr *log) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, exe, append([]string{"-addr", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(append(os.Environ(), asProgram+"=1"), env...)
	stderr = &log{}
	cmd.Stderr = stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return cmd, strings.TrimSpace(line), stderr
}

// long is a stream that takes a while.
func long(t *testing.T, url string) (lines *bufio.Scanner, done func()) {
	t.Helper()
	body := `{"stream":true,"ignore_eos":true,"max_tokens":200,"temperature":0,"messages":[{"role":"user","content":"x"}]}`
	r, err := http.NewRequestWithContext(t.Context(), "POST", url+"/v1/chat/completions", strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{}}
	var resp *http.Response
	require.Eventually(t, func() bool { // 503 while the model is being loaded
		resp, err = client.Do(r.Clone(t.Context()))
		require.NoError(t, err)
		if resp.StatusCode != 200 {
			resp.Body.Close()
		}
		r.Body = io.NopCloser(strings.NewReader(body))
		return resp.StatusCode == 200
	}, time.Minute, 20*time.Millisecond)
	lines = bufio.NewScanner(resp.Body)
	require.True(t, lines.Scan())
	return lines, func() {
		resp.Body.Close()
		client.CloseIdleConnections()
	}
}

// SIGTERM lets a stream come to its end.
func TestSignalDrains(t *testing.T) {
	cmd, url, stderr := program(t, nil)
	lines, done := long(t, url)
	defer done()
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	last, tokens := "", 0
	for lines.Scan() {
		if line := lines.Text(); line != "" {
			last = line
		}
		var chunk struct {
			Choices []struct{ Delta struct{ Content *string } }
		}
		if json.Unmarshal([]byte(strings.TrimPrefix(lines.Text(), "data: ")), &chunk) == nil {
			tokens++
		}
	}
	require.Equal(t, "data: [DONE]", last, "%s", stderr)
	require.Greater(t, tokens, 10)
	require.NoError(t, cmd.Wait(), "%s", stderr)
	require.Contains(t, stderr.String(), "shutting down")
}

// A second signal does not wait.
func TestSecondSignal(t *testing.T) {
	cmd, url, stderr := program(t, nil)
	lines, done := long(t, url)
	defer done()
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Eventually(t, func() bool { return strings.Contains(stderr.String(), "shutting down") }, 10*time.Second, time.Millisecond)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	for lines.Scan() {
		require.NotEqual(t, "data: [DONE]", lines.Text())
	}
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, syscall.SIGINT, exit.Sys().(syscall.WaitStatus).Signal())
}

func TestLibraryMissing(t *testing.T) {
	cmd, _, stderr := program(t, []string{"MLXC_LIBRARY=" + filepath.Join(t.TempDir(), "libmlxc.so")})
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.Contains(t, stderr.String(), "To fix it:")
}
