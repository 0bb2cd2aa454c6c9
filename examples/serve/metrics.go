package main

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/godflash/godflash/dflash/openai"
)

// metrics are what /metrics tells.
type metrics struct {
	registry                    *prometheus.Registry
	requests, tokens            *prometheus.CounterVec
	cycles, drafted, accepted   prometheus.Counter
	duration, first, wait, rate prometheus.Histogram
}

func newMetrics(model *backend) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "godflash_" + name, Help: help})
		m.registry.MustRegister(c)
		return c
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "godflash_" + name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "godflash_" + name, Help: help, Buckets: buckets})
		m.registry.MustRegister(h)
		return h
	}
	m.requests = counters("requests_total", "Requests for tokens, by path and status; 499 is a client that went away.", "path", "status")
	m.tokens = counters("tokens_total", "Tokens, by kind: prompt, those of it that were cached, completion, those of it that are reasoning.", "kind")
	m.cycles = counter("decode_cycles_total", "Forward passes of the model after prompts.")
	m.drafted = counter("draft_tokens_total", "Tokens that the drafter proposed.")
	m.accepted = counter("draft_tokens_accepted_total", "Proposed tokens that were handed out.")
	seconds := prometheus.ExponentialBuckets(0.01, 2, 15)
	m.duration = histogram("request_duration_seconds", "From a request's arrival to its end.", seconds)
	m.first = histogram("time_to_first_token_seconds", "From a request's arrival to its first token.", seconds)
	m.wait = histogram("queue_wait_seconds", "From a request's arrival to its turn.", seconds)
	m.rate = histogram("tokens_per_cycle", "Tokens that a decode cycle gave, mean of a request.", prometheus.LinearBuckets(1, 1, 16))
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("model_loaded", "1 while the model is in memory.", func() float64 {
			if model.loaded() {
				return 1
			}
			return 0
		}),
	)
	return m
}

func gauge(name, help string, value func() float64) prometheus.GaugeFunc {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "godflash_" + name, Help: help}, value)
}

// watch adds what goes on in a handler.
func (m *metrics) watch(api *openai.Handler) {
	m.registry.MustRegister(
		gauge("requests_running", "Requests that generate now.", func() float64 { return float64(api.Status().Running) }),
		gauge("requests_waiting", "Requests that wait for their turn.", func() float64 { return float64(api.Status().Waiting) }),
	)
}

// observe counts a request that is done.
func (m *metrics) observe(r openai.Record) {
	m.requests.WithLabelValues(r.Path, strconv.Itoa(r.Status)).Inc()
	m.duration.Observe(r.Duration.Seconds())
	st := r.Stats
	if st.PromptTokens == 0 {
		return // it did not get to the model
	}
	for kind, n := range map[string]int{"prompt": st.PromptTokens, "cached": st.CachedTokens, "completion": st.CompletionTokens, "reasoning": st.ReasoningTokens} {
		m.tokens.WithLabelValues(kind).Add(float64(n))
	}
	m.cycles.Add(float64(st.Cycles))
	m.drafted.Add(float64(st.Drafted))
	m.accepted.Add(float64(st.Accepted))
	m.wait.Observe(r.Wait.Seconds())
	if r.First > 0 {
		m.first.Observe(r.First.Seconds())
	}
	if st.Cycles > 0 {
		m.rate.Observe(st.TokensPerCycle())
	}
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}
