package openai_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/dflash/dflashtest"
	"github.com/godflash/godflash/dflash/openai"
)

// BenchmarkOverhead runs the same generation by the library and as a stream of
// the server, in turn; "overhead-%" is the median of how much longer a stream
// took than the run just before it. In pairs, since what else the machine does
// changes more from run to run than the server costs; ask for 20 of them. It
// decodes plainly, one flush a token: drafted tokens come many at a time, and
// the controller's choices would be part of the difference.
func BenchmarkOverhead(b *testing.B) {
	const tokens = 100
	w, engine := real(b, openai.Options{})
	off := false
	request := dflash.Request{Prompt: known, Thinking: &off, MaxTokens: tokens, IgnoreEOS: true, NoDraft: true}
	body, err := json.Marshal(object{"messages": user(known), "reasoning_effort": "none", "temperature": 0, "max_tokens": tokens, "ignore_eos": true, "stream": true, "godflash": object{"no_draft": true}})
	require.NoError(b, err)
	library := func() {
		for _, err := range engine.Generate(b.Context(), request, nil) {
			require.NoError(b, err)
		}
	}
	server := func() {
		resp, err := w.client.Post(w.URL+chatPath, "application/json", strings.NewReader(string(body)))
		require.NoError(b, err)
		defer resp.Body.Close()
		require.Equal(b, 200, resp.StatusCode)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(b, err)
	}
	library()
	server()
	var more []float64
	var longer []time.Duration
	for b.Loop() {
		own, served := timed(library), timed(server)
		more = append(more, 100*(float64(served)/float64(own)-1))
		longer = append(longer, (served-own)/tokens)
	}
	b.ReportMetric(median(more), "overhead-%")
	b.ReportMetric(float64(median(longer)), "ns/token")
}

// BenchmarkHandler streams 3,000 tokens that cost nothing: "ns/token" is what the
// handler, the network and the client add to a token.
func BenchmarkHandler(b *testing.B) {
	const tokens = 3000
	engine := &dflashtest.Engine{Script: dflashtest.Always(dflashtest.Content(strings.Split(strings.Repeat("word ", tokens), " ")...)...)}
	w := serve(b, engine, openai.Options{})
	b.ReportAllocs()
	for b.Loop() {
		resp, err := w.client.Post(w.URL+chatPath, "application/json", strings.NewReader(`{"messages":[{"role":"user","content":"x"}],"stream":true}`))
		require.NoError(b, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(b, err)
		require.NoError(b, resp.Body.Close())
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*tokens), "ns/token")
}

// BenchmarkFirstToken asks for one token while another request's prompt of 4,000
// tokens is run. "first/prefill" is the time until the first token has come, as
// a share of what that prompt takes alone, "byte/prefill" until the first byte.
func BenchmarkFirstToken(b *testing.B) {
	w, engine := real(b, openai.Options{})
	ids := make([]int, 4000)
	for i := range ids {
		ids[i] = 300 + i*7%3000
	}
	prefill := func() {
		for _, err := range engine.Generate(b.Context(), dflash.Request{IDs: ids, MaxTokens: 1, NoCache: true}, nil) {
			require.NoError(b, err)
		}
	}
	prefill()
	alone := timed(prefill)
	var bytes, tokens []time.Duration
	for b.Loop() {
		started, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			first := true
			r := dflash.Request{IDs: ids, MaxTokens: 1, NoCache: true, Progress: func(int, int) {
				if first {
					first = false
					close(started)
				}
			}}
			for range engine.Generate(b.Context(), r, nil) {
			}
		}()
		<-started
		began := time.Now()
		resp, err := w.client.Post(w.URL+chatPath, "application/json", strings.NewReader(`{"messages":[{"role":"user","content":"Write F."}],"max_tokens":1,"stream":true,"cache_prompt":false}`))
		require.NoError(b, err)
		bytes = append(bytes, time.Since(began))
		require.Equal(b, http.StatusOK, resp.StatusCode)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(b, err)
		require.NoError(b, resp.Body.Close())
		tokens = append(tokens, time.Since(began))
		<-done
	}
	b.ReportMetric(float64(median(bytes))/float64(alone), "byte/prefill")
	b.ReportMetric(float64(median(tokens))/float64(alone), "first/prefill")
}

func timed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

func median[T time.Duration | float64](d []T) T {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}
