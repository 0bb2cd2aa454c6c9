package openai_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash/dflashtest"
	"github.com/godflash/godflash/dflash/openai"
)

// Cases 102 and 104: bodies that are too large, too deep, no text, no JSON.
func TestHostileBodies(t *testing.T) {
	w := serve(t, &dflashtest.Engine{}, openai.Options{MaxBody: 1 << 20})
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"empty":             {"", 400},
		"no JSON":           {"{", 400},
		"a list":            {"[]", 400},
		"null":              {"null", 400},
		"two values":        {`{"messages":[{"role":"user","content":"x"}]} {}`, 400},
		"deep lists":        {`{"messages":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "}", 400},
		"deep, not closed":  {strings.Repeat(`{"a":`, 100_000), 400},
		"deep schema":       {`{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":` + strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300) + `}}]}`, 400},
		"brackets in text":  {`{"messages":[{"role":"user","content":"` + strings.Repeat("[", 1000) + `"}]}`, 200},
		"invalid UTF-8":     {"{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}", 400},
		"half a surrogate":  {`{"messages":[{"role":"user","content":"\ud800"}]}`, 200},
		"NUL":               {`{"messages":[{"role":"user","content":"\u0000"}]}`, 200},
		"too large":         {`{"x":"` + strings.Repeat("a", 1<<20) + `"}`, 413},
		"twice the same":    {`{"messages":7,"messages":[{"role":"user","content":"x"}]}`, 200},
		"10,000 messages":   {`{"messages":[{"role":"user","content":"x"}` + strings.Repeat(`,{"role":"user","content":"x"}`, 9_999) + "]}", 400},
		"a number of 1 MB":  {`{"temperature":1` + strings.Repeat("0", 1_000_000) + `,"messages":[{"role":"user","content":"x"}]}`, 400},
		"long model's name": {`{"model":"` + strings.Repeat("é", 100_000) + `","messages":[{"role":"user","content":"x"}]}`, 404},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.do("POST", chatPath, c.body, "Content-Type", "application/json")
			require.Equal(t, c.status, a.status, a.text)
			require.Less(t, len(a.text), 2000, "what came is not sent back")
			if c.status != 200 {
				require.NotEmpty(t, at(t, a.json(t), "error", "message"))
			}
		})
	}
	for body, want := range map[string]string{
		`{"prompt":[]}`:                        "prompt must be a text or token ids, not [].",
		`{"prompt":"x","max_tokens":1e10}`:     "max_tokens must be a whole number of at least 1 and at most 2147483647, not 1e10.",
		`{"prompt":"x","max_tokens":0}`:        "max_tokens must be a whole number of at least 1, not 0.",
		`{"prompt":["x","y"],"temperature":1}`: "prompt must be one prompt; send the others as requests of their own.",
	} {
		a := w.do("POST", "/v1/completions", body, "Content-Type", "application/json")
		require.Equal(t, want, at(t, a.json(t), "error", "message"), body)
	}
	// Without a length.
	r, err := http.NewRequestWithContext(t.Context(), "POST", w.URL+chatPath, io.MultiReader(strings.NewReader(strings.Repeat(" ", 2<<20))))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	resp, err := w.client.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 413, resp.StatusCode)
}

func dial(t *testing.T, w *world) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// A body that does not come, and one that was promised longer than it is.
func TestHalfARequest(t *testing.T) {
	w := serve(t, &dflashtest.Engine{}, openai.Options{ReadTimeout: 50 * time.Millisecond})
	conn := dial(t, w)
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", chatPath)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, 408, resp.StatusCode)
	require.True(t, resp.Close)
	require.NoError(t, resp.Body.Close())

	conn = dial(t, w)
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", chatPath)
	require.NoError(t, conn.Close())
	eventually(t, "its place is free", func() bool { return strings.Count(w.log.String(), "path="+chatPath) == 2 })
	require.Equal(t, 200, w.post(chatPath, ask(nil)).status)
}

// A generation that takes longer than the body may does not end by that limit.
func TestReadTimeoutIsTheBodys(t *testing.T) {
	engine := &dflashtest.Engine{Script: dflashtest.Always(dflashtest.Step{Text: "a", Delay: 150 * time.Millisecond})}
	w := serve(t, engine, openai.Options{ReadTimeout: 50 * time.Millisecond, WriteTimeout: 50 * time.Millisecond})
	require.Equal(t, 200, w.post(chatPath, ask(nil)).status)
	_, names, _ := events(t, w.post(chatPath, ask(object{"stream": true})).text)
	require.Equal(t, "[DONE]", names[len(names)-1])
}

// Someone who asks and never reads is cut off; others do not notice.
func TestSlowReader(t *testing.T) {
	long := strings.Repeat("x", 4000)
	engine := &dflashtest.Engine{Script: dflashtest.Always(dflashtest.Content(strings.Split(strings.Repeat(long+" ", 3900), " ")...)...)}
	w := serve(t, engine, openai.Options{WriteTimeout: 100 * time.Millisecond})
	body := `{"stream":true,"messages":[{"role":"user","content":"x"}]}`
	conn := dial(t, w)
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(body), body)
	eventually(t, "it runs", func() bool { return engine.Running() == 1 })
	require.Equal(t, 200, w.post(chatPath, ask(object{"max_tokens": 1})).status)
	eventually(t, "it is cut off", func() bool { return strings.Contains(w.log.String(), "status=499") })
	require.Zero(t, engine.Running())
	require.Less(t, engine.Steps(), 3900)
	require.Contains(t, w.log.String(), "does not read")
}

// A handler whose writer fails in some other way, or panics, leaves nothing
// behind.
func TestWriterPanics(t *testing.T) {
	engine := &dflashtest.Engine{Script: dflashtest.Always(dflashtest.Content("a", "b", "c")...)}
	h := openai.NewHandler(engine, nil)
	defer h.Close()
	r, err := http.NewRequestWithContext(t.Context(), "POST", chatPath, strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"x"}]}`))
	require.NoError(t, err)
	h.ServeHTTP(&badWriter{header: http.Header{}}, r)
	require.Zero(t, engine.Running())
	require.Equal(t, openai.Status{}, h.Status())
}

// badWriter panics on the third write.
type badWriter struct {
	header http.Header
	writes int
}

func (b *badWriter) Header() http.Header { return b.header }
func (b *badWriter) WriteHeader(int)     {}
func (b *badWriter) Flush()              {}
func (b *badWriter) Write(p []byte) (int, error) {
	if b.writes++; b.writes == 3 {
		panic("the writer")
	}
	return len(p), nil
}
