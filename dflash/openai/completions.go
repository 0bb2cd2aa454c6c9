package openai

import (
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/qwen/chat"
)

func (h *Handler) completions(c *call) {
	c.answer(func(p *params) (*job, output) {
		j := h.completionJob(p)
		return j, &textOutput{h: h, job: j, id: newID("cmpl-"), created: time.Now().Unix()}
	})
}

// completionJob reads a request of /v1/completions. The prompt is taken without
// the chat template: special tokens in it are what they spell.
func (h *Handler) completionJob(p *params) *job {
	j := &job{}
	r := &j.request
	readPrompt(p, r)
	r.MaxTokens = h.limit(p, "max_tokens", "max_completion_tokens", "n_predict")
	h.common(p, j)
	if v := p.raw("logprobs"); v != nil && string(v) != "false" {
		if n := p.integer("logprobs", 0, dflash.MaxTopLogProbs); n != nil {
			r.LogProbs, r.TopLogProbs = true, *n
		}
	}
	p.refuse("", "echo", "suffix")
	p.refuse("use /v1/chat/completions", "messages", "tools", "tool_choice", "reasoning_effort", "chat_template_kwargs")
	r.Format = responseFormat(p, "response_format", func(o *params) *params { return o.object("json_schema") })
	return j
}

// readPrompt reads a text or token ids, or a list of one of these.
func readPrompt(p *params, r *dflash.Request) {
	raw := p.raw("prompt")
	if raw == nil {
		p.fail(badf("prompt", "prompt is missing."))
		return
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && len(list) > 0 && list[0][0] != '"' && list[0][0] != '[' {
		readIDs(p, raw, r)
		return
	}
	if list != nil {
		if len(list) == 0 {
			p.wrong("prompt", "a text or token ids")
			return
		}
		if len(list) != 1 {
			p.fail(unsupportedf("prompt", "prompt must be one prompt; send the others as requests of their own."))
			return
		}
		raw = list[0]
	}
	if raw[0] == '[' {
		readIDs(p, raw, r)
		return
	}
	if err := json.Unmarshal(raw, &r.Text); err != nil {
		p.wrong("prompt", "a text or token ids")
	}
}

func readIDs(p *params, raw json.RawMessage, r *dflash.Request) {
	if err := json.Unmarshal(raw, &r.IDs); err != nil {
		p.wrong("prompt", "a text or token ids")
	}
}

// textOutput writes completions.
type textOutput struct {
	h       *Handler
	job     *job
	id      string
	created int64
	pending []logprob
	offset  int // of the next token, in characters
}

type textCompletion struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []textChoice `json:"choices"`
	Usage   any          `json:"usage,omitempty"`
	Timings *timings     `json:"timings,omitempty"`
	Report  *report      `json:"godflash,omitempty"`
}

type textChoice struct {
	Index    int           `json:"index"`
	Text     string        `json:"text"`
	Logprobs *textLogprobs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`
}

type textLogprobs struct {
	Tokens   []string             `json:"tokens"`
	Logprobs []float64            `json:"token_logprobs"`
	Top      []map[string]float64 `json:"top_logprobs"`
	Offsets  []int                `json:"text_offset"`
}

// logprobs brings log probabilities into the older form.
func (o *textOutput) logprobs(list []logprob) *textLogprobs {
	if len(list) == 0 {
		return nil
	}
	l := &textLogprobs{}
	for _, p := range list {
		l.Tokens, l.Logprobs, l.Offsets = append(l.Tokens, p.Token), append(l.Logprobs, p.Logprob), append(l.Offsets, o.offset)
		o.offset += utf8.RuneCountInString(p.Token)
		top := map[string]float64{}
		for _, other := range p.Top {
			if _, twice := top[other.Token]; !twice { // parts of letters look alike
				top[other.Token] = other.Logprob
			}
		}
		l.Top = append(l.Top, top)
	}
	return l
}

func (o *textOutput) completion() textCompletion {
	return textCompletion{ID: o.id, Object: "text_completion", Created: o.created, Model: o.h.opts.Model}
}

func (o *textOutput) whole(r *reply) any {
	all := o.completion()
	all.Choices = []textChoice{{Text: r.text(chat.DeltaContent), Logprobs: o.logprobs(r.logprobs), Finish: new(r.reason())}}
	all.Usage, all.Timings, all.Report = makeUsage(&r.stats), makeTimings(&r.stats), makeReport(&r.stats)
	return all
}

func (o *textOutput) chunk(text string) textCompletion {
	chunk := o.completion()
	chunk.Choices = []textChoice{{Text: text, Logprobs: o.logprobs(o.pending)}}
	o.pending = nil
	if o.job.usage {
		chunk.Usage = json.RawMessage("null")
	}
	return chunk
}

func (o *textOutput) begin(*stream) {}

func (o *textOutput) piece(s *stream, _ *reply, p *piece) {
	o.pending = append(o.pending, p.logprobs...)
	for _, d := range p.deltas {
		if d.Text != "" {
			s.event("", o.chunk(d.Text))
		}
	}
}

func (o *textOutput) end(s *stream, r *reply) {
	last := o.chunk("")
	last.Choices[0].Finish = new(r.reason())
	last.Timings, last.Report = makeTimings(&r.stats), makeReport(&r.stats)
	s.event("", last)
	if o.job.usage {
		u := o.completion()
		u.Choices, u.Usage = []textChoice{}, makeUsage(&r.stats)
		s.event("", u)
	}
	s.data("", []byte("[DONE]"))
}

func (o *textOutput) failed(s *stream, e *apiError) {
	s.event("", e.body(formOpenAI, s.call.id))
}
