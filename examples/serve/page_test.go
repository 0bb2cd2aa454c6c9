package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/fixture"
)

// screenshots is where TestPage leaves pictures of the page, when the variable is
// set: how the ones in docs were made.
const screenshots = "GODFLASH_SCREENSHOTS"

// browser starts a headless Chromium.
func browser(t *testing.T) context.Context {
	t.Helper()
	var path string
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("no Chromium here (Debian and Ubuntu: apt-get install chromium-headless-shell)")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx)) // starts it, without the deadline of what follows
	ctx, cancel = context.WithTimeout(ctx, 90*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// scripted answers as the API does: a thought, a cycle of three accepted drafts and
// the model's own token, one without drafts. Its second answer does not end.
type scripted struct {
	asked   atomic.Pointer[map[string]any]
	answers atomic.Int32
	gone    chan struct{} // closed when the reader of the second answer has gone
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.asked.Store(&body)
	n := s.answers.Add(1)
	if n == 3 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"error":{"message":"The queue is full.","type":"rate_limit_error"}}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(format string, args ...any) {
		fmt.Fprintf(w, "data: "+format+"\n\n", args...)
		_ = http.NewResponseController(w).Flush()
	}
	fmt.Fprint(w, ": waiting\n\n")
	token := func(field, text string, drafted bool, drafts int) {
		send(`{"choices":[{"index":0,"delta":{%q:%q}}],"godflash":{"tokens":[{"drafted":%t,"drafts":%d}]}}`, field, text, drafted, drafts)
	}
	send(`{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"usage":null}`)
	token("reasoning_content", "Hm.", false, 0)
	token("content", "<b>x</b>", true, 3)
	token("content", " é", true, 3)
	token("content", "漢", true, 3)
	token("content", "!", false, 3)
	token("content", " end", false, 0)
	if n == 2 {
		<-r.Context().Done()
		close(s.gone)
		return
	}
	send(`{"choices":[{"index":0,"delta":{},"finish_reason":"length"}],"timings":{"predicted_per_second":321}}`)
	send(`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":4}}}`)
	send(`[DONE]`)
}

// tab is a browser's page that tests use as a person does.
type tab struct {
	t   *testing.T
	ctx context.Context
}

func (b tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, actions...))
}

func (b tab) eval(script string) string {
	b.t.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+script+")"))
	require.NoError(b.t, err)
	return out
}

// until waits for a script to be true; the page's policy forbids scripts that
// wait inside it.
func (b tab) until(script string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.eval(script) == "true" }, 30*time.Second, 20*time.Millisecond, script)
}

// shot checks that nothing hangs out of a window so wide, and takes a picture.
func (b tab) shot(name string, width int64) {
	b.t.Helper()
	b.run(chromedp.EmulateViewport(width, 800))
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	require.NoError(b.t, err)
	require.Equal(b.t, "true", b.eval("document.documentElement.scrollWidth <= innerWidth"), "%s: a width of %d", name, width)
	if dir := os.Getenv(screenshots); dir != "" {
		require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644))
	}
}

// The page in a browser, as a person uses it.
func TestPage(t *testing.T) {
	b := tab{t, browser(t)}
	run, eval, until := b.run, b.eval, b.until
	api := &scripted{gone: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle("/", pageHandler())
	mux.Handle("POST /v1/chat/completions", api)
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"data":[{"id":"tiny"}]}`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()

	run(chromedp.EmulateViewport(1100, 800), chromedp.Navigate(server.URL), chromedp.WaitVisible("#question"))
	until(`document.getElementById("model").textContent === "tiny"`)
	run(chromedp.Click("#open-settings"), chromedp.WaitVisible("#settings"),
		chromedp.SetValue("#system", "Be short."), chromedp.SetValue("#temperature", "0.5"), chromedp.SetValue("#seed", "7"), chromedp.SetValue("#think", "on"),
		chromedp.Click("#open-settings"))
	run(chromedp.SendKeys("#question", "Why?\r"), chromedp.WaitVisible(".assistant .foot"))

	require.Equal(t, "<b>x</b> é漢! end", eval(`document.querySelector(".assistant > .text").textContent`), "what a model writes is text")
	require.Equal(t, "Hm.", eval(`document.querySelector(".assistant details .text").textContent`))
	require.Equal(t, "false", eval(`document.querySelector(".assistant details").open`), "the thought is folded")
	require.Equal(t, "plain draft draft draft correction plain", eval(`[...document.querySelectorAll(".assistant .token")].map(e => e.className.split(" ")[1]).join(" ")`))
	require.Equal(t, "bar b4,bar b1", eval(`[...document.querySelectorAll(".bar")].map(e => e.className)`))
	require.Equal(t, "321 tok/s", eval(`document.getElementById("rate-draft").textContent`))
	foot := eval(`document.querySelector(".foot").textContent`)
	for _, want := range []string{"6 tokens", "2.50 per cycle", "4 of 9 prompt tokens reused", "cut at the limit"} {
		require.Contains(t, foot, want)
	}
	asked := *api.asked.Load()
	require.Equal(t, "tiny", asked["model"])
	require.Equal(t, 0.5, asked["temperature"])
	require.Equal(t, 7.0, asked["seed"])
	require.Equal(t, map[string]any{"enable_thinking": true}, asked["chat_template_kwargs"])
	require.Equal(t, map[string]any{"tokens": true, "no_draft": false}, asked["godflash"])
	require.Len(t, asked["messages"], 2)
	require.NotEqual(t, eval(`getComputedStyle(document.querySelector(".draft")).backgroundColor`), eval(`getComputedStyle(document.querySelector(".correction")).backgroundColor`))

	// Escape stops an answer; what was said stays in the conversation.
	run(chromedp.SendKeys("#question", "And then?\r"), chromedp.WaitVisible("#stop"))
	until(`document.querySelectorAll(".assistant")[1]?.textContent.includes("end")`)
	run(chromedp.KeyEvent("\x1b"), chromedp.WaitVisible("#send"))
	require.Contains(t, eval(`document.querySelectorAll(".foot")[1].textContent`), "stopped")
	select {
	case <-api.gone:
	case <-time.After(10 * time.Second):
		t.Fatal("the server still writes")
	}

	// An error is shown, and the question can be sent again.
	run(chromedp.SetValue("#question", "More"), chromedp.Click("#send"), chromedp.WaitVisible(".error"))
	require.Equal(t, "The queue is full.", eval(`document.querySelector(".error").textContent`))
	require.Equal(t, "More", eval(`document.getElementById("question").value`))
	require.Len(t, (*api.asked.Load())["messages"], 6, "system, two questions with their answers, the new question")

	b.shot("errors", 390)
	run(chromedp.Click("#reset"), chromedp.WaitVisible("#hint"))
	require.Equal(t, "0", eval(`document.querySelectorAll(".turn").length`))
}

// The page over the engine itself: the same answer with the drafter and without, and
// colours that tell which is which.
func TestPageOverEngine(t *testing.T) {
	b := tab{t, browser(t)}
	s := start(t)
	b.run(chromedp.EmulateViewport(1100, 800), chromedp.Navigate(s.url), chromedp.WaitVisible("#question"))
	b.until(`document.getElementById("model").textContent === "tiny-qwen3.5"`)
	question := demoQuestion(t)
	ask := func() {
		b.run(chromedp.SetValue("#question", question), chromedp.Click("#send"))
		b.until(`document.querySelectorAll(".assistant .foot").length === 1`)
	}
	b.run(chromedp.Click("#open-settings"), chromedp.WaitVisible("#settings"), chromedp.SetValue("#max-tokens", "120"), chromedp.Click("#open-settings"))
	text := func() string { return b.eval(`document.querySelector(".assistant > .text").textContent`) }
	ask()
	drafted := text()
	require.NotEmpty(t, drafted)
	// The first block is a whole one; how many follow is the controller's choice,
	// which goes by durations.
	require.Equal(t, "true", b.eval(`document.querySelectorAll(".token.draft").length > 5`))
	require.Equal(t, "true", b.eval(`document.querySelectorAll(".bar").length > 2`))
	require.Regexp(t, `^\d+ tok/s$`, b.eval(`document.getElementById("rate-draft").textContent`))
	b.shot("narrow", 390)
	b.run(chromedp.EmulateViewport(1100, 800), chromedp.Click("#reset"), chromedp.WaitVisible("#hint"),
		chromedp.Click("#open-settings"), chromedp.WaitVisible("#settings"), chromedp.Click("#draft"), chromedp.Click("#open-settings"))
	ask()
	require.Equal(t, drafted, text())
	require.Equal(t, "0", b.eval(`document.querySelectorAll(".token.draft, .token.correction").length - 2`), "the hint's two alone")
	require.Regexp(t, `^\d+ tok/s$`, b.eval(`document.getElementById("rate-plain").textContent`))
	b.run(chromedp.Click("#open-settings"), chromedp.WaitVisible("#settings"), chromedp.Click("#draft"), chromedp.Click("#open-settings"))
	b.run(chromedp.Click("#reset"), chromedp.WaitVisible("#hint"))
	ask()
	b.shot("wide", 1100)
	require.Zero(t, s.end())
}

// The page needs nothing from elsewhere and lets nothing in.
func TestPageFiles(t *testing.T) {
	server := httptest.NewServer(pageHandler())
	defer server.Close()
	client := server.Client()
	for path, kind := range map[string]string{"/": "text/html", "/app.js": "javascript", "/style.css": "text/css", "/icon.svg": "image/svg+xml"} {
		r, err := client.Get(server.URL + path)
		require.NoError(t, err)
		data, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		r.Body.Close()
		text := string(data)
		require.Equal(t, http.StatusOK, r.StatusCode)
		require.Contains(t, r.Header.Get("Content-Type"), kind)
		require.Contains(t, r.Header.Get("Content-Security-Policy"), "default-src 'none'")
		require.NotContains(t, strings.ReplaceAll(text, "http://www.w3.org/2000/svg", ""), "://", path)
		require.NotContains(t, text, "innerHTML")
	}
	for _, path := range []string{"/../page.go", "/page.go", "/nothing"} {
		r, err := client.Get(server.URL + path)
		require.NoError(t, err)
		r.Body.Close()
		require.Equal(t, http.StatusNotFound, r.StatusCode, path)
	}
}

// demoQuestion is one that the demo pair knows by heart, which it drafts well.
func demoQuestion(t *testing.T) string {
	t.Helper()
	dir, err := fixture.Dir()
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(dir, "tiny-qwen3.5", "prompts.json"))
	require.NoError(t, err)
	var prompts []struct{ Name, Prompt string }
	require.NoError(t, json.Unmarshal(data, &prompts))
	for _, p := range prompts {
		if p.Name == "PutUvarint" {
			return p.Prompt
		}
	}
	t.Fatal("the demo pair has no such prompt")
	return ""
}
