package openai_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/dflash/dflashtest"
	"github.com/godflash/godflash/dflash/openai"
	"github.com/godflash/godflash/qwen/chat"
)

func TestEngineErrors(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status int
		code   any
		says   string
	}{
		"context":     {fmt.Errorf("%w: 9 tokens", dflash.ErrContextLength), 400, "context_length_exceeded", "9 tokens"},
		"request":     {fmt.Errorf("%w: BlockSize is 1", dflash.ErrRequest), 400, nil, "BlockSize is 1."},
		"unsupported": {fmt.Errorf("%w: Request.Format", dflash.ErrUnsupported), 400, "unsupported_parameter", "Request.Format"},
		"template":    {&chat.TemplateError{Message: "No user query."}, 400, "template_refused", "No user query."},
		"no template": {fmt.Errorf("%w: use Text: /secret/dir: %w", dflash.ErrRequest, chat.ErrNoTemplate), 400, "no_chat_template", "/v1/completions"},
		"arguments":   {fmt.Errorf("call f: %w", chat.ErrArguments), 400, nil, "JSON object"},
		"other":       {errors.New("JSON nests deeper than 900"), 400, nil, "nests deeper"},
		"config":      {fmt.Errorf("%w: /secret/dir", dflash.ErrConfig), 500, nil, "went wrong inside"},
		"closed":      {fmt.Errorf("engine: %w", dflash.ErrClosed), 503, "model_unavailable", "not available"},
	} {
		t.Run(name, func(t *testing.T) {
			w := serve(t, &dflashtest.Engine{Check: func(dflash.Request) error { return c.err }}, openai.Options{})
			for _, stream := range []bool{false, true} {
				a := w.post(chatPath, ask(object{"stream": stream}))
				require.Equal(t, c.status, a.status, a.text)
				require.Equal(t, "application/json", a.header.Get("Content-Type"))
				e := at(t, a.json(t), "error").(object)
				require.Equal(t, c.code, e["code"])
				require.Contains(t, e["message"], c.says)
				require.NotContains(t, a.text, "secret")
				require.Contains(t, e, "param")
				require.Equal(t, c.status == 503, a.header.Get("Retry-After") != "")
			}
			if c.status == 500 {
				require.Contains(t, w.log.String(), c.err.Error(), "the log has the cause")
			}
		})
	}
}

// Cases 10, 92, 94 and 121: what fails inside is never an empty success, and
// never a client's fault.
func TestFailureInside(t *testing.T) {
	bad := fmt.Errorf("%w: layer 3", dflash.ErrNonFinite)
	for name, step := range map[string]dflashtest.Step{"error": {Err: bad}, "panic": {Panic: "layer 3"}} {
		for at3 := range 2 {
			steps := dflashtest.Content("a", "b", "c")[:3*at3]
			w, _ := script(t, append(steps, step)...)
			a := w.post(chatPath, ask(nil))
			require.Equal(t, 500, a.status, "%s: %s", name, a.text)
			require.Equal(t, "server_error", at(t, a.json(t), "error", "type"))
			a = w.post(chatPath, ask(object{"stream": true}))
			if at3 == 0 {
				require.Equal(t, 500, a.status, "what fails at once has its own status")
			} else {
				require.Equal(t, 200, a.status)
				data, names, _ := events(t, a.text)
				require.Equal(t, "server_error", at(t, data[len(data)-1], "error", "type"))
				require.NotContains(t, names, "[DONE]")
				require.NotContains(t, a.text, `"stop"`)
			}
			require.NotContains(t, a.text, "layer 3")
			require.Contains(t, w.log.String(), "layer 3")
			require.Contains(t, w.log.String(), "status=500", "also where the stream's header said 200")
		}
	}
}

func TestRoutes(t *testing.T) {
	w, _ := script(t)
	for _, c := range []struct {
		method, path, body string
		header             []string
		status             int
		code               any
	}{
		{"GET", "/v1/nothing", "", nil, 404, "unknown_url"},
		{"POST", "/chat/completions", "{}", nil, 404, "unknown_url"},
		{"GET", chatPath, "", nil, 405, "method_not_allowed"},
		{"DELETE", "/v1/models", "", nil, 405, "method_not_allowed"},
		{"POST", chatPath, "{}", []string{"Content-Type", "text/plain"}, 415, "unsupported_media_type"},
		{"POST", chatPath, "{}", []string{"Content-Type", "multipart/form-data; boundary=x"}, 415, "unsupported_media_type"},
		{"POST", chatPath, "{}", []string{"Content-Type", "application/json; charset=utf-8"}, 400, nil},
		{"POST", chatPath, "{}", []string{"Content-Encoding", "gzip"}, 415, "unsupported_media_type"},
		{"GET", "/v1/models/other/model", "", nil, 404, "model_not_found"},
	} {
		a := w.do(c.method, c.path, c.body, c.header...)
		require.Equal(t, c.status, a.status, "%s %s: %s", c.method, c.path, a.text)
		require.Equal(t, c.code, at(t, a.json(t), "error", "code"))
		require.NotEmpty(t, a.header.Get("X-Request-Id"))
	}
	require.Equal(t, "OPTIONS, POST", w.do("GET", chatPath, "").header.Get("Allow"))
	require.Empty(t, w.do("HEAD", "/v1/models", "").text)
}

func TestAPIKey(t *testing.T) {
	w := serve(t, &dflashtest.Engine{}, openai.Options{APIKey: "sesame"})
	for _, c := range []struct {
		header []string
		status int
	}{
		{nil, 401},
		{[]string{"Authorization", "Bearer sesam"}, 401},
		{[]string{"Authorization", "Bearer sesame0"}, 401},
		{[]string{"Authorization", "sesame"}, 401},
		{[]string{"Authorization", "Basic sesame"}, 401},
		{[]string{"X-Api-Key", ""}, 401},
		{[]string{"Authorization", "Bearer sesame"}, 200},
		{[]string{"Authorization", "bearer sesame"}, 200},
		{[]string{"X-Api-Key", "sesame"}, 200},
	} {
		a := w.do("GET", "/v1/models", "", c.header...)
		require.Equal(t, c.status, a.status, "%v", c.header)
		if c.status == 401 {
			require.Equal(t, "invalid_api_key", at(t, a.json(t), "error", "code"))
			require.Equal(t, "Bearer", a.header.Get("WWW-Authenticate"))
		}
	}
	require.Equal(t, 200, w.do("GET", "/health", "").status, "health needs no key")
	require.Equal(t, 204, w.do("OPTIONS", "/v1/models", "", "Origin", "http://localhost:3000", "Access-Control-Request-Method", "GET").status, "a preflight has none")
	require.NotContains(t, w.log.String(), "sesame")
}

// Case 98.
func TestCrossOrigin(t *testing.T) {
	w := serve(t, &dflashtest.Engine{}, openai.Options{Origins: []string{"https://chat.example"}})
	preflight := func(origin string) answer {
		return w.do("OPTIONS", chatPath, "", "Origin", origin, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization, content-type")
	}
	for _, origin := range []string{"https://chat.example", "http://localhost:3000", "http://127.0.0.1:1", "http://[::1]:5173", w.URL} {
		a := preflight(origin)
		require.Equal(t, 204, a.status, origin)
		require.Equal(t, origin, a.header.Get("Access-Control-Allow-Origin"))
		require.Equal(t, "authorization, content-type", a.header.Get("Access-Control-Allow-Headers"))
		require.Contains(t, a.header.Get("Access-Control-Allow-Methods"), "POST")
		a = w.do("POST", chatPath, `{"stream":true,"messages":[{"role":"user","content":"x"}]}`, "Origin", origin)
		require.Equal(t, 200, a.status)
		require.Equal(t, origin, a.header.Get("Access-Control-Allow-Origin"))
		require.Equal(t, "Origin", a.header.Get("Vary"))
	}
	for _, origin := range []string{"https://evil.example", "null", "http://localhost.evil.example", "https://chat.example.evil"} {
		require.Equal(t, 403, preflight(origin).status, origin)
		a := w.do("GET", "/v1/models", "", "Origin", origin)
		require.Equal(t, 403, a.status, origin)
		require.Empty(t, a.header.Get("Access-Control-Allow-Origin"))
	}
	// DNS rebinding: the page's own name leads here.
	a := w.do("GET", "/v1/models", "", "Host", "evil.example", "Origin", "http://evil.example")
	require.Equal(t, 403, a.status)
	require.Equal(t, "host_not_allowed", at(t, a.json(t), "error", "code"))
	require.Equal(t, 200, w.do("GET", "/v1/models", "", "Host", "chat.example").status)

	open := serve(t, &dflashtest.Engine{}, openai.Options{Origins: []string{"*"}})
	require.Equal(t, 200, open.do("GET", "/v1/models", "", "Origin", "https://any.example", "Host", "any.example").status)
}

func TestModelNames(t *testing.T) {
	engine := &dflashtest.Engine{About: dflash.Info{Repo: "Qwen/Qwen3-4B", Dir: "/secret/place", Commit: "abc", Sampling: dflash.Sampling{Temperature: 0.6, TopK: 20}}}
	w := serve(t, engine, openai.Options{Aliases: []string{"gpt-4o"}})
	for name, status := range map[string]int{"Qwen/Qwen3-4B": 200, "gpt-4o": 200, "": 200, "Qwen/Qwen3-8B": 404} {
		a := w.post(chatPath, ask(object{"model": name}))
		require.Equal(t, status, a.status, name)
		if status == 404 {
			require.Equal(t, "model_not_found", at(t, a.json(t), "error", "code"))
			require.Equal(t, "model", at(t, a.json(t), "error", "param"))
		}
	}
	require.Equal(t, 400, w.post(chatPath, ask(object{"model": 7})).status)
	a := w.do("GET", "/v1/models", "")
	list := a.json(t)
	require.Equal(t, "list", list["object"])
	m := at(t, list, "data", 0).(object)
	require.Equal(t, "Qwen/Qwen3-4B", m["id"])
	require.Equal(t, "model", m["object"])
	require.Equal(t, "abc", m["revision"])
	require.Equal(t, 0.6, at(t, m, "sampling", "temperature"))
	require.Positive(t, m["created"])
	require.NotContains(t, a.text, "secret")
	require.Equal(t, m, w.do("GET", "/v1/models/Qwen/Qwen3-4B", "").json(t))

	any := serve(t, &dflashtest.Engine{About: dflash.Info{Dir: "/models/tiny/target"}}, openai.Options{Aliases: []string{"*"}})
	require.Equal(t, "tiny", any.post(chatPath, ask(object{"model": "claude"})).json(t)["model"])
}

func TestDefaultsOfSampling(t *testing.T) {
	recommended := dflash.Sampling{Temperature: 0.6, TopK: 20, TopP: 0.95}
	for name, c := range map[string]struct {
		own  *dflash.Sampling
		ask  object
		want dflash.Sampling
	}{
		"recommended":      {nil, nil, recommended},
		"operator's":       {&dflash.Sampling{Temperature: 1}, nil, dflash.Sampling{Temperature: 1}},
		"greedy":           {nil, object{"temperature": 0}, dflash.Sampling{TopK: 20, TopP: 0.95}},
		"request's":        {nil, object{"temperature": 1.5, "top_k": -1, "top_p": 1, "min_p": 0.1, "seed": 7}, dflash.Sampling{Temperature: 1.5, TopP: 1, MinP: 0.1, Seed: 7}},
		"smallest top_p":   {nil, object{"top_p": 0}, dflash.Sampling{Temperature: 0.6, TopK: 20, TopP: 1e-6}},
		"negative seed":    {nil, object{"seed": -1}, dflash.Sampling{Temperature: 0.6, TopK: 20, TopP: 0.95, Seed: 1<<64 - 1}},
		"null is no value": {nil, object{"temperature": nil, "seed": nil}, recommended},
	} {
		t.Run(name, func(t *testing.T) {
			engine := &dflashtest.Engine{About: dflash.Info{Sampling: recommended}}
			w := serve(t, engine, openai.Options{Sampling: c.own})
			require.Equal(t, 200, w.post(chatPath, ask(c.ask)).status)
			require.Equal(t, c.want, engine.Requests()[0].Sampling)
		})
	}
	engine := &dflashtest.Engine{}
	w := serve(t, engine, openai.Options{})
	w.post(chatPath, ask(object{"seed": 0}))
	w.post(chatPath, ask(object{"seed": 0}))
	require.NotZero(t, engine.Requests()[0].Sampling.Seed, "seed 0 repeats, too")
	require.Equal(t, engine.Requests()[0].Sampling, engine.Requests()[1].Sampling)
}

func TestLimits(t *testing.T) {
	engine := &dflashtest.Engine{Script: dflashtest.Always(dflashtest.Content(strings.Split(strings.Repeat("x", 50), "")...)...)}
	w := serve(t, engine, openai.Options{MaxTokens: 10, MaxPromptTokens: 20})
	for _, c := range []struct {
		ask  object
		want float64
	}{
		{nil, 10},
		{object{"max_tokens": 3}, 3},
		{object{"max_completion_tokens": 4, "max_tokens": 3}, 4},
		{object{"max_tokens": 5000}, 10},
	} {
		v := w.post(chatPath, ask(c.ask)).json(t)
		require.Equal(t, c.want, at(t, v, "usage", "completion_tokens"), "%v", c.ask)
		require.Equal(t, "length", at(t, v, "choices", 0, "finish_reason"))
	}
	a := w.post(chatPath, object{"messages": user(strings.Repeat("a ", 30))})
	require.Equal(t, 400, a.status)
	require.Equal(t, "context_length_exceeded", at(t, a.json(t), "error", "code"))
}

// A request that takes long in the engine does not keep its log line or its
// answer from naming it.
func TestRequestID(t *testing.T) {
	w, _ := script(t)
	a := w.do("POST", chatPath, `{"messages":[]}`, "X-Request-Id", "mine-1")
	require.Equal(t, "mine-1", a.header.Get("X-Request-Id"))
	eventually(t, "logged", func() bool { return strings.Contains(w.log.String(), "id=mine-1") })
	a = w.do("POST", chatPath, `{"messages":[]}`, "X-Request-Id", strings.Repeat("x", 65))
	require.True(t, strings.HasPrefix(a.header.Get("X-Request-Id"), "req_"))
	a = w.do("GET", "/v1/models", "", "X-Request-Id", "a b")
	require.True(t, strings.HasPrefix(a.header.Get("X-Request-Id"), "req_"))
}

func TestObserve(t *testing.T) {
	records := make(chan openai.Record, 10)
	engine := &dflashtest.Engine{Script: dflashtest.Always(dflashtest.Step{Text: "a", Delay: 5 * time.Millisecond})}
	w := serve(t, engine, openai.Options{Observe: func(r openai.Record) { records <- r }})
	w.post(chatPath, ask(nil))
	r := <-records
	require.Equal(t, http.StatusOK, r.Status)
	require.Equal(t, chatPath, r.Path)
	require.Equal(t, 2, r.Stats.CompletionTokens)
	require.Equal(t, dflash.FinishStop, r.Stats.Finish)
	require.GreaterOrEqual(t, r.First, r.Wait+5*time.Millisecond)
	require.GreaterOrEqual(t, r.Duration, r.First)
}
