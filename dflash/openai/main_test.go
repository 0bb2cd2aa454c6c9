package openai_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/dflash/dflashtest"
	"github.com/godflash/godflash/dflash/openai"
	"github.com/godflash/godflash/mlx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	_ openai.Backend = (*dflash.Engine)(nil)
	_ openai.Backend = (*dflashtest.Engine)(nil)
)

// world is a server over a backend, and what it logs.
type world struct {
	*httptest.Server
	t       testing.TB
	handler *openai.Handler
	log     *logBuffer
	client  *http.Client
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func serve(t testing.TB, backend openai.Backend, o openai.Options) *world {
	t.Helper()
	log := &logBuffer{}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	handler := openai.NewHandler(backend, &o)
	server := httptest.NewServer(handler)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		require.NoError(t, handler.Close())
		server.Close()
	})
	return &world{Server: server, t: t, handler: handler, log: log, client: client}
}

// script serves a fake engine that always says the same.
func script(t testing.TB, steps ...dflashtest.Step) (*world, *dflashtest.Engine) {
	t.Helper()
	engine := &dflashtest.Engine{Script: dflashtest.Always(steps...)}
	return serve(t, engine, openai.Options{}), engine
}

// object is decoded JSON.
type object = map[string]any

// answer is an HTTP answer read to its end.
type answer struct {
	status int
	header http.Header
	text   string
}

func (a answer) json(t testing.TB) object {
	t.Helper()
	var v object
	require.NoError(t, json.Unmarshal([]byte(a.text), &v), a.text)
	return v
}

func (w *world) do(method, path, body string, header ...string) answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.URL+path, strings.NewReader(body))
	require.NoError(w.t, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := w.client.Do(r)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	return answer{resp.StatusCode, resp.Header, string(text)}
}

func (w *world) post(path string, body any) answer {
	w.t.Helper()
	text, ok := body.(string)
	if !ok {
		data, err := json.Marshal(body)
		require.NoError(w.t, err)
		text = string(data)
	}
	return w.do(http.MethodPost, path, text)
}

// user is a conversation of one turn.
func user(text string) []object { return []object{{"role": "user", "content": text}} }

// ask is a chat request with further members.
func ask(more object) object {
	all := object{"messages": user("hi")}
	for k, v := range more {
		all[k] = v
	}
	return all
}

const chatPath = "/v1/chat/completions"

// events reads a stream of server-sent events strictly: every line is data, an
// event's name, a comment, or empty.
func events(t testing.TB, text string) (data []object, names []string, comments int) {
	t.Helper()
	require.True(t, strings.HasSuffix(text, "\n\n"), "the last event is complete: %q", text)
	name := ""
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case line == "":
		case strings.HasPrefix(line, ": "):
			comments++
		case strings.HasPrefix(line, "event: "):
			name = line[len("event: "):]
		case line == "data: [DONE]":
			names = append(names, "[DONE]")
		case strings.HasPrefix(line, "data: "):
			var v object
			require.NoError(t, json.Unmarshal([]byte(line[len("data: "):]), &v), line)
			data, names = append(data, v), append(names, name)
			name = ""
		default:
			t.Fatalf("not a line of a stream: %q", line)
		}
	}
	return data, names, comments
}

// eventually waits until something holds that another goroutine brings about.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	require.Eventually(t, f, 20*time.Second, time.Millisecond, what)
}

// at digs into decoded JSON.
func at(t testing.TB, v any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, ok := v.(object)
			require.True(t, ok, "%v in %v", step, v)
			v = m[step]
		case int:
			l, ok := v.([]any)
			require.True(t, ok && step < len(l), "%v in %v", step, v)
			v = l[step]
		}
	}
	return v
}

// What the tiny pair knows by heart.
const (
	known = "Package time. Write this Go function:\n" +
		"func loadTzinfoFromDirOrZip(dir, name string) ([]byte, error)\n" +
		"loadTzinfoFromDirOrZip returns the contents of the file with the given name in dir. " +
		"dir can either be an uncompressed zip file, or a directory."
	knownReply = "func loadTzinfoFromDirOrZip(dir, name string) ([]byte, error) {\n" +
		"\tif len(dir) > 4 && dir[len(dir)-4:] == \".zip\" {\n" +
		"\t\treturn loadTzinfoFromZip(dir, name)\n\t}\n" +
		"\tif dir != \"\" {\n\t\tname = dir + \"/\" + name\n\t}\n" +
		"\treturn readFile(name)\n}"
)

// real serves the tiny pair.
func real(t testing.TB, o openai.Options) (*world, *dflash.Engine) {
	t.Helper()
	engine, err := dflash.Open(t.Context(), "../../testdata/tiny-qwen3.5", &dflash.Options{MLX: &mlx.Options{Device: mlx.DeviceCPU}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	return serve(t, engine, o), engine
}
