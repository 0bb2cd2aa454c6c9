package openai_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/godflash/godflash/dflash/dflashtest"
	"github.com/godflash/godflash/dflash/openai"
)

var paths = []string{chatPath, "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"}

// Whatever is sent, the answer is a reply or blames the request; it is JSON or a
// stream, and nothing panics.
func FuzzRequest(f *testing.F) {
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"x"}],"max_tokens":5}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":null}],"tools":[` + fn + `],"tool_choice":{"type":"function","function":{"name":"f"}},"stream":true,"stream_options":{"include_usage":true}}`,
		`{"input":[{"role":"user","content":"x"},{"type":"reasoning","content":[{"type":"reasoning_text","text":"y"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"z"}],"tools":[` + flat + `],"stream":true}`,
		`{"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[]}]}],"max_tokens":1,"tools":[` + claude + `],"tool_choice":{"type":"any"}}`,
		`{"prompt":[1,2,3],"logprobs":3,"logit_bias":{"1":-100},"stop":["a"],"seed":-1}`,
		`{"messages":[{"role":"system","content":"a"},{"role":"user"},{"role":"developer"}],"response_format":{"type":"json_schema","json_schema":{"schema":{}}},"temperature":1e-300,"n":1.0}`,
		`{`, `[]`, `{"messages":{}}`, `{"model":[]}`, `{"input":null,"prompt":"","godflash":{"block_size":2}}`,
	} {
		f.Add([]byte(body))
	}
	var log bytes.Buffer
	engine := &dflashtest.Engine{Script: dflashtest.Always(weather...)}
	h := openai.NewHandler(engine, &openai.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	f.Cleanup(func() { h.Close() })
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range paths {
			log.Reset()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("POST", path, bytes.NewReader(body)))
			switch w.Code {
			case 200, 400, 404:
			default:
				t.Fatalf("%s: %d %s\n%s", path, w.Code, w.Body, &log)
			}
			if strings.Contains(log.String(), "panic") {
				t.Fatalf("%s\n%s", path, &log)
			}
			if w.Header().Get("Content-Type") == "text/event-stream" {
				events(t, w.Body.String())
			} else if !json.Valid(w.Body.Bytes()) {
				t.Fatalf("%s: %s", path, w.Body)
			}
		}
	})
}
