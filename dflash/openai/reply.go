package openai

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/qwen/chat"
)

// job is a request of any endpoint, made ready for the engine.
type job struct {
	request dflash.Request
	// chat is a request of /v1/chat/completions.
	chat   bool
	stream bool
	// oneCall ends the reply where a second tool call begins.
	oneCall bool
	// usage asks for the usage as a last chunk.
	usage bool
	// tokens asks for the tokens behind each chunk.
	tokens bool
	// prompt is the number of the prompt's tokens, once it is known.
	prompt atomic.Int64
}

func (j *job) promptTokens() int { return int(j.prompt.Load()) }

// part is a stretch of a reply that is of one kind: reasoning, content, or a
// call, whose text is its arguments.
type part struct {
	kind chat.DeltaKind
	text strings.Builder
	// Of a call:
	id, name string
	end      chat.CallEnd
}

// reply is what a generation has given so far.
type reply struct {
	parts    []*part // in the order of their beginnings
	calls    []*part // those of parts that are calls, broken ones included
	logprobs []logprob
	finish   dflash.FinishReason
	stats    dflash.Stats
}

// add takes a token's delta in. It reports false, and keeps the delta out,
// where the job wants no more.
func (r *reply) add(d chat.Delta, oneCall bool) bool {
	if d.Kind != chat.DeltaToolCall {
		if d.Text == "" {
			return true
		}
		if n := len(r.parts); n == 0 || r.parts[n-1].kind != d.Kind {
			r.parts = append(r.parts, &part{kind: d.Kind})
		}
		r.parts[len(r.parts)-1].text.WriteString(d.Text)
		return true
	}
	if d.Call >= len(r.calls) {
		if oneCall && r.called() {
			return false
		}
		p := &part{kind: d.Kind, id: newID("call_"), name: d.Name}
		r.parts, r.calls = append(r.parts, p), append(r.calls, p)
	}
	p := r.calls[len(r.calls)-1]
	p.text.WriteString(d.Text)
	p.end = d.End
	return true
}

// text joins the parts of a kind.
func (r *reply) text(kind chat.DeltaKind) string {
	var b strings.Builder
	for _, p := range r.parts {
		if p.kind == kind {
			b.WriteString(p.text.String())
		}
	}
	return b.String()
}

// whole are the parts without what turned out to be no call.
func (r *reply) whole() (parts []*part) {
	for _, p := range r.parts {
		if p.kind != chat.DeltaToolCall || p.end == chat.CallDone {
			parts = append(parts, p)
		}
	}
	return parts
}

// called reports whether there is a call that can be made.
func (r *reply) called() bool {
	return slices.ContainsFunc(r.calls, func(p *part) bool { return p.end == chat.CallDone })
}

// reason is OpenAI's finish_reason. A reply cut in a call is not a call.
func (r *reply) reason() string {
	if r.called() && r.finish == dflash.FinishStop {
		return "tool_calls"
	}
	return string(r.finish)
}

// deltas are a token's pieces. A request without the chat template has text
// only.
func deltas(t *dflash.Token, chatForm bool) []chat.Delta {
	if !chatForm && t.Text != "" {
		return []chat.Delta{{Kind: chat.DeltaContent, Text: t.Text}}
	}
	return t.Deltas
}

// logprob is a token with its logarithm of probability, in OpenAI's form.
type logprob struct {
	Token   string    `json:"token"`
	Logprob float64   `json:"logprob"`
	Bytes   []int     `json:"bytes"`
	Top     []logprob `json:"top_logprobs,omitzero"`
}

func (h *Handler) logprob(id int, p float64) logprob {
	raw := h.backend.TokenBytes(id)
	numbers := make([]int, len(raw))
	for i, b := range raw {
		numbers[i] = int(b)
	}
	if !(p >= lowestLogprob) { // minus infinity is no JSON
		p = lowestLogprob
	}
	return logprob{Token: strings.ToValidUTF8(string(raw), "\uFFFD"), Logprob: p, Bytes: numbers}
}

const lowestLogprob = -9999

func (h *Handler) logprobs(t *dflash.Token) logprob {
	l := h.logprob(t.ID, t.LogProb)
	l.Top = []logprob{}
	for _, other := range t.Top {
		l.Top = append(l.Top, h.logprob(other.ID, other.LogProb))
	}
	return l
}

// usage is OpenAI's account of a chat completion.
type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
	PromptDetails    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

func makeUsage(st *dflash.Stats) *usage {
	u := &usage{PromptTokens: st.PromptTokens, CompletionTokens: st.CompletionTokens, TotalTokens: st.PromptTokens + st.CompletionTokens}
	u.PromptDetails.Cached, u.CompletionDetails.Reasoning = st.CachedTokens, st.ReasoningTokens
	return u
}

// timings has the names of llama.cpp's server.
type timings struct {
	CacheN              int     `json:"cache_n"`
	PromptN             int     `json:"prompt_n"`
	PromptMS            float64 `json:"prompt_ms"`
	PromptPerTokenMS    float64 `json:"prompt_per_token_ms"`
	PromptPerSecond     float64 `json:"prompt_per_second"`
	PredictedN          int     `json:"predicted_n"`
	PredictedMS         float64 `json:"predicted_ms"`
	PredictedPerTokenMS float64 `json:"predicted_per_token_ms"`
	PredictedPerSecond  float64 `json:"predicted_per_second"`
	DraftN              int     `json:"draft_n"`
	DraftNAccepted      int     `json:"draft_n_accepted"`
}

func makeTimings(st *dflash.Stats) *timings {
	// The prompt's pass gives the first token.
	prompt, decoded := st.PromptTokens-st.CachedTokens, max(st.CompletionTokens-1, 0)
	return &timings{
		CacheN: st.CachedTokens, PromptN: prompt, PromptMS: ms(st.Prefill), PromptPerTokenMS: ratio(ms(st.Prefill), prompt), PromptPerSecond: rate(prompt, st.Prefill),
		PredictedN: st.CompletionTokens, PredictedMS: ms(st.Decode), PredictedPerTokenMS: ratio(ms(st.Decode), decoded), PredictedPerSecond: rate(decoded, st.Decode),
		DraftN: st.Drafted, DraftNAccepted: st.Accepted,
	}
}

func ms(d time.Duration) float64 { return math.Round(float64(d)/1e3) / 1e3 }

func ratio(x float64, n int) float64 {
	if n <= 0 {
		return 0
	}
	return x / float64(n)
}

func rate(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// report is what only this library knows.
type report struct {
	Cycles           int     `json:"cycles"`
	TokensPerCycle   float64 `json:"tokens_per_cycle"`
	AcceptedPerCycle []int   `json:"accepted_per_cycle"`
	DraftOff         string  `json:"draft_off,omitempty"`
	Seed             string  `json:"seed,omitempty"` // as text: 64 bits are more than JavaScript's numbers hold
}

func makeReport(st *dflash.Stats) *report {
	r := &report{Cycles: st.Cycles, TokensPerCycle: st.TokensPerCycle(), AcceptedPerCycle: st.AcceptedPerCycle, DraftOff: st.DraftOff}
	if r.AcceptedPerCycle == nil {
		r.AcceptedPerCycle = []int{}
	}
	if st.Seed != 0 {
		r.Seed = strconv.FormatUint(st.Seed, 10)
	}
	return r
}
