package openai

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/qwen/chat"
)

func (h *Handler) chatCompletions(c *call) {
	c.answer(func(p *params) (*job, output) {
		j := h.chatJob(p)
		return j, &chatOutput{h: h, job: j, id: newID("chatcmpl-"), created: time.Now().Unix()}
	})
}

// chatJob reads a request of /v1/chat/completions.
func (h *Handler) chatJob(p *params) *job {
	j := &job{chat: true}
	r := &j.request
	r.Messages = readMessages(p)
	r.MaxTokens = h.limit(p, "max_completion_tokens", "max_tokens")
	h.common(p, j)
	thinking(p, r, "reasoning_effort", p.text("reasoning_effort"))

	r.Format = responseFormat(p, "response_format", func(o *params) *params { return o.object("json_schema") })
	tools := readTools(p)
	offer(r, tools)
	r.ToolChoice = choose(p, tools, func(o *params) string {
		f := o.object("function")
		if f == nil {
			o.fail(badf("tool_choice.function", "tool_choice.function is missing."))
			return ""
		}
		o.fail(f.err)
		name := f.text("name")
		o.fail(f.err)
		return name
	})
	if parallel := p.flag("parallel_tool_calls"); parallel != nil {
		j.oneCall = !*parallel
	}

	r.LogProbs = p.isTrue("logprobs")
	if v := p.integer("top_logprobs", 0, dflash.MaxTopLogProbs); v != nil {
		r.TopLogProbs = *v
		if *v > 0 && !r.LogProbs {
			p.fail(badf("top_logprobs", "top_logprobs goes with logprobs: true."))
		}
	}
	p.refuse("use tools and tool_choice", "functions")
	p.unless("function_call", "use tools and tool_choice", `"none"`, `"auto"`)
	p.unless("modalities", "text is what there is", `["text"]`)
	p.refuse("", "audio", "web_search_options", "continue_final_message", "documents", "chat_template", "echo", "suffix")
	p.unless("add_generation_prompt", "", "true")
	return j
}

// readMessages reads a list of messages in OpenAI's form.
func readMessages(p *params) []chat.Message {
	list := p.list("messages")
	if len(list) == 0 {
		p.fail(badf("messages", "messages must be a list of one message at least."))
		return nil
	}
	messages := make([]chat.Message, len(list))
	for i, raw := range list {
		if err := json.Unmarshal(raw, &messages[i]); err != nil {
			p.fail(badf(fmt.Sprintf("messages[%d]", i), "messages[%d] is no message: %s", i, sentence(clip(err.Error()))))
			return nil
		}
	}
	checkTurns(p, messages)
	return messages
}

// responseFormat reads what the content must be. schema finds the object that
// has the schema, its name and strict.
func responseFormat(p *params, name string, schema func(o *params) *params) *dflash.Format {
	o := p.object(name)
	if o == nil {
		return nil
	}
	defer func() { p.fail(o.err) }()
	switch kind := o.text("type"); kind {
	case "text":
	case "json_object":
		return &dflash.Format{JSON: true}
	case "json_schema":
		s := schema(o)
		if s == nil || !s.has("schema") {
			o.fail(badf(o.prefix+"json_schema", "%s has no schema.", name))
			return nil
		}
		s.object("schema")
		o.fail(s.err)
		return &dflash.Format{Schema: s.raw("schema")}
	default:
		o.wrong("type", "text, json_object or json_schema")
	}
	return nil
}

// chatOutput writes chat completions.
type chatOutput struct {
	h       *Handler
	job     *job
	id      string
	created int64
	pending []logprob // of tokens whose text is held back
	tokens  []tokenInfo
}

type chatCompletion struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   any          `json:"usage,omitempty"` // null in chunks of a stream that has it at its end
	Timings *timings     `json:"timings,omitempty"`
	Report  any          `json:"godflash,omitempty"`
}

type chatChoice struct {
	Index    int           `json:"index"`
	Message  *chatMessage  `json:"message,omitempty"`
	Delta    *chatDelta    `json:"delta,omitempty"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`
}

type chatLogprobs struct {
	Content []logprob `json:"content"`
	Refusal *string   `json:"refusal"`
}

type chatMessage struct {
	Role      string         `json:"role"`
	Content   *string        `json:"content"`
	Refusal   *string        `json:"refusal"`
	Reasoning *string        `json:"reasoning_content,omitempty"`
	Calls     []chatToolCall `json:"tool_calls,omitempty"`
}

type chatDelta struct {
	Role      string         `json:"role,omitempty"`
	Content   *string        `json:"content,omitempty"`
	Reasoning *string        `json:"reasoning_content,omitempty"`
	Calls     []chatToolCall `json:"tool_calls,omitempty"`
}

type chatToolCall struct {
	Index    *int         `json:"index,omitempty"` // in streams
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// chunkReport is what a chunk says that only this library knows: the last one
// the account of the whole.
type chunkReport struct {
	Stats  *report     `json:"stats,omitempty"`
	Tokens []tokenInfo `json:"tokens,omitempty"`
}

// tokenInfo is a token behind a chunk, for requests that want them.
type tokenInfo struct {
	ID       int  `json:"id"`
	Position int  `json:"position"`
	Drafted  bool `json:"drafted"`
	Drafts   int  `json:"drafts"` // of its cycle
}

func (o *chatOutput) completion(object string) chatCompletion {
	return chatCompletion{ID: o.id, Object: object, Created: o.created, Model: o.h.opts.Model}
}

func (o *chatOutput) whole(r *reply) any {
	m := &chatMessage{Role: chat.RoleAssistant}
	if text := r.text(chat.DeltaContent); text != "" || !r.called() {
		m.Content = &text
	}
	if text := r.text(chat.DeltaReasoning); text != "" {
		m.Reasoning = &text
	}
	for _, p := range r.whole() {
		if p.kind == chat.DeltaToolCall {
			m.Calls = append(m.Calls, chatToolCall{ID: p.id, Type: "function", Function: chatFunction{p.name, p.text.String()}})
		}
	}
	choice := chatChoice{Message: m, Finish: new(r.reason())}
	if o.job.request.LogProbs {
		choice.Logprobs = &chatLogprobs{Content: r.logprobs}
	}
	all := o.completion("chat.completion")
	all.Choices = []chatChoice{choice}
	all.Usage, all.Timings, all.Report = makeUsage(&r.stats), makeTimings(&r.stats), makeReport(&r.stats)
	return all
}

// chunk makes the next chunk; it takes the logprobs and tokens that wait.
func (o *chatOutput) chunk(d *chatDelta) chatCompletion {
	chunk := o.completion("chat.completion.chunk")
	choice := chatChoice{Delta: d}
	if len(o.pending) > 0 {
		choice.Logprobs = &chatLogprobs{Content: o.pending}
		o.pending = nil
	}
	if len(o.tokens) > 0 {
		chunk.Report = &chunkReport{Tokens: o.tokens}
		o.tokens = nil
	}
	chunk.Choices = []chatChoice{choice}
	if o.job.usage {
		chunk.Usage = json.RawMessage("null")
	}
	return chunk
}

func (o *chatOutput) begin(s *stream) {
	s.event("", o.chunk(&chatDelta{Role: chat.RoleAssistant, Content: new("")}))
}

func (o *chatOutput) piece(s *stream, r *reply, p *piece) {
	o.pending = append(o.pending, p.logprobs...)
	if o.job.tokens {
		o.tokens = append(o.tokens, tokenInfo{p.token.ID, p.token.Position, p.token.Drafted, p.token.Drafts})
	}
	for i := range p.deltas {
		if d := o.delta(r, &p.deltas[i]); d != nil {
			s.event("", o.chunk(d))
		}
	}
}

func (o *chatOutput) delta(r *reply, d *chat.Delta) *chatDelta {
	switch {
	case d.Kind == chat.DeltaToolCall:
		index := d.Call // add has entered it
		t := chatToolCall{Index: &index, Function: chatFunction{Arguments: d.Text}}
		if d.Name != "" {
			t.ID, t.Type, t.Function.Name = r.calls[index].id, "function", d.Name
		} else if d.Text == "" {
			return nil
		}
		return &chatDelta{Calls: []chatToolCall{t}}
	case d.Text == "":
		return nil
	case d.Kind == chat.DeltaReasoning:
		return &chatDelta{Reasoning: &d.Text}
	}
	return &chatDelta{Content: &d.Text}
}

func (o *chatOutput) end(s *stream, r *reply) {
	tokens := o.tokens
	last := o.chunk(&chatDelta{})
	last.Choices[0].Finish = new(r.reason())
	last.Timings = makeTimings(&r.stats)
	last.Report = &chunkReport{makeReport(&r.stats), tokens}
	s.event("", last)
	if o.job.usage {
		u := o.completion("chat.completion.chunk")
		u.Choices, u.Usage = []chatChoice{}, makeUsage(&r.stats)
		s.event("", u)
	}
	s.data("", []byte("[DONE]"))
}

func (o *chatOutput) failed(s *stream, e *apiError) {
	s.event("", e.body(formOpenAI, s.call.id))
}

var _ output = (*chatOutput)(nil)
