package openai

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/qwen/chat"
)

func (h *Handler) responses(c *call) {
	c.answer(func(p *params) (*job, output) {
		j := h.responsesJob(p)
		return j, &responsesOutput{h: h, job: j, asked: p, id: newID("resp_"), created: time.Now().Unix()}
	})
}

// responsesJob reads a request of /v1/responses. Nothing is stored, so it has
// the whole conversation in it.
func (h *Handler) responsesJob(p *params) *job {
	j := &job{}
	r := &j.request
	if text := p.text("instructions"); text != "" {
		r.Messages = append(r.Messages, chat.Message{Role: chat.RoleSystem, Content: text})
	}
	r.Messages = append(r.Messages, readInput(p)...)
	checkTurns(p, r.Messages)

	r.MaxTokens = h.limit(p, "max_output_tokens")
	r.Sampling = h.sampling(p, 2)
	j.stream = p.isTrue("stream")
	effort := ""
	if o := p.object("reasoning"); o != nil {
		effort = o.text("effort")
		p.fail(o.err)
	}
	thinking(p, r, "reasoning.effort", effort)
	if o := p.object("text"); o != nil {
		r.Format = responseFormat(o, "format", func(o *params) *params { return o })
		p.fail(o.err)
	}
	tools := readFlatTools(p)
	offer(r, tools)
	r.ToolChoice = choose(p, tools, func(o *params) string { return o.text("name") })
	if parallel := p.flag("parallel_tool_calls"); parallel != nil {
		j.oneCall = !*parallel
	}
	for _, name := range p.texts("include", 20) {
		switch name {
		case "message.output_text.logprobs":
			r.LogProbs = true
		case "reasoning.encrypted_content": // reasoning is sent as text
		default:
			p.fail(badf("include", "include has %q, which there is not.", clip(name)))
		}
	}
	if v := p.integer("top_logprobs", 0, dflash.MaxTopLogProbs); v != nil && *v > 0 {
		r.LogProbs, r.TopLogProbs = true, *v
	}
	p.refuse("nothing is stored; send the whole conversation as input", "previous_response_id", "conversation")
	p.refuse("", "background", "prompt", "max_tool_calls", "moderation", "context_management")
	p.unless("truncation", "a prompt that is too long is refused", `"disabled"`)
	h.extension(p, j)
	return j
}

// readInput reads a text, or a list of items, into messages.
func readInput(p *params) []chat.Message {
	raw := p.raw("input")
	var text string
	if raw == nil {
		p.fail(badf("input", "input is missing."))
		return nil
	}
	if json.Unmarshal(raw, &text) == nil {
		return []chat.Message{{Role: chat.RoleUser, Content: text}}
	}
	items := p.list("input")
	if len(items) == 0 {
		p.fail(badf("input", "input must be a text or a list of one item at least."))
	}
	c := &conversation{}
	for i, raw := range items {
		o, err := object(raw, fmt.Sprintf("input[%d]", i))
		if err != nil {
			p.fail(err)
			return nil
		}
		c.add(o)
		if p.fail(o.err); p.err != nil {
			return nil
		}
	}
	return c.messages
}

// conversation collects items. What the assistant did in one turn is several of
// them, and one message to a template.
type conversation struct {
	messages []chat.Message
}

// assistant is the assistant's message at the end; fits says whether it can
// take more.
func (c *conversation) assistant(fits func(m *chat.Message) bool) *chat.Message {
	if n := len(c.messages); n > 0 && c.messages[n-1].Role == chat.RoleAssistant && fits(&c.messages[n-1]) {
		return &c.messages[n-1]
	}
	c.messages = append(c.messages, chat.Message{Role: chat.RoleAssistant})
	return &c.messages[len(c.messages)-1]
}

func (c *conversation) add(o *params) {
	content := func(name string) string {
		if raw := o.raw(name); raw != nil {
			return blocksText(o, raw, o.prefix+name)
		}
		return ""
	}
	switch kind := o.text("type"); kind {
	case "", "message":
		m := chat.Message{Role: o.text("role"), Content: content("content")}
		if m.Role != chat.RoleAssistant {
			c.messages = append(c.messages, m)
			return
		}
		last := c.assistant(func(m *chat.Message) bool { return m.Content == "" && len(m.ToolCalls) == 0 })
		last.Content = m.Content
	case "reasoning":
		var all strings.Builder
		for _, name := range []string{"content", "summary"} {
			if all.Len() > 0 {
				break
			}
			for i, raw := range o.list(name) {
				part, err := object(raw, fmt.Sprintf("%s%s[%d]", o.prefix, name, i))
				if err != nil {
					o.fail(err)
					return
				}
				all.WriteString(part.text("text"))
				o.fail(part.err)
			}
		}
		last := c.assistant(func(*chat.Message) bool { return false })
		if all.Len() > 0 {
			last.ReasoningContent = new(all.String())
		}
	case "function_call":
		last := c.assistant(func(*chat.Message) bool { return true })
		last.ToolCalls = append(last.ToolCalls, chat.ToolCall{ID: o.text("call_id"), Name: o.text("name"), Arguments: o.raw("arguments")})
	case "function_call_output":
		c.messages = append(c.messages, chat.Message{Role: chat.RoleTool, ToolCallID: o.text("call_id"), Content: content("output")})
	default:
		e := badf(o.prefix+"type", "%stype is %q, which is not supported.", o.prefix, clip(kind))
		e.code = "unsupported_content"
		o.fail(e)
	}
}

// readFlatTools reads tools as /v1/responses has them, and makes the form that
// templates show.
func readFlatTools(p *params) []tool {
	return toolList(p, func(o *params, at string, _ json.RawMessage) tool {
		onlyFunctions(o, at)
		shown, err := functionTool(o.raw("name"), o.raw("description"), o.raw("parameters"))
		o.fail(err)
		return readFunction(p, o, shown)
	})
}

// responsesOutput writes responses. Its items follow the parts of the reply.
type responsesOutput struct {
	h       *Handler
	job     *job
	asked   *params
	id      string
	created int64

	sequence int
	items    []map[string]any // those that are done
	open     *part            // the one that is not
	openID   string
	pending  []logprob // of the open message
	sent     []logprob
}

// response is the object as it is now.
func (o *responsesOutput) response(status string, output []map[string]any, st *dflash.Stats) map[string]any {
	r := &o.job.request
	or := func(name string, otherwise any) any {
		if raw := o.asked.raw(name); raw != nil {
			return raw
		}
		return otherwise
	}
	v := map[string]any{
		"id": o.id, "object": "response", "created_at": o.created, "status": status, "model": o.h.opts.Model,
		"output": output, "error": nil, "incomplete_details": nil, "usage": nil,
		"instructions": or("instructions", nil), "max_output_tokens": or("max_output_tokens", nil), "metadata": or("metadata", map[string]any{}),
		"parallel_tool_calls": !o.job.oneCall, "previous_response_id": nil, "store": false, "background": false,
		"reasoning": or("reasoning", map[string]any{"effort": nil, "summary": nil}), "temperature": r.Sampling.Temperature, "top_p": orOne(r.Sampling.TopP),
		"text": or("text", map[string]any{"format": map[string]any{"type": "text"}}), "tool_choice": or("tool_choice", "auto"),
		"tools": or("tools", []any{}), "top_logprobs": r.TopLogProbs, "truncation": "disabled", "user": or("user", nil), "service_tier": "default",
	}
	if st != nil {
		v["usage"] = map[string]any{
			"input_tokens": st.PromptTokens, "input_tokens_details": map[string]any{"cached_tokens": st.CachedTokens},
			"output_tokens": st.CompletionTokens, "output_tokens_details": map[string]any{"reasoning_tokens": st.ReasoningTokens},
			"total_tokens": st.PromptTokens + st.CompletionTokens,
		}
		v["timings"], v["godflash"] = makeTimings(st), makeReport(st)
	}
	return v
}

// orOne is top_p as the API has it, where 1 keeps all.
func orOne(p float64) float64 {
	if p == 0 {
		return 1
	}
	return p
}

// final is the object when all is done.
func (o *responsesOutput) final(r *reply, output []map[string]any) map[string]any {
	if output == nil {
		output = []map[string]any{}
	}
	if r.finish != dflash.FinishLength {
		return o.response("completed", output, &r.stats)
	}
	v := o.response("incomplete", output, &r.stats)
	v["incomplete_details"] = map[string]any{"reason": "max_output_tokens"}
	return v
}

// item is a part as an output item.
func (o *responsesOutput) item(p *part, id, status string, logprobs []logprob) map[string]any {
	text := p.text.String()
	switch p.kind {
	case chat.DeltaReasoning:
		return map[string]any{"id": id, "type": "reasoning", "status": status, "summary": []any{}, "content": []any{o.content(p.kind, text, nil)}}
	case chat.DeltaToolCall:
		return map[string]any{"id": id, "type": "function_call", "status": status, "call_id": p.id, "name": p.name, "arguments": text}
	}
	return map[string]any{"id": id, "type": "message", "status": status, "role": chat.RoleAssistant, "content": []any{o.content(p.kind, text, logprobs)}}
}

func (o *responsesOutput) content(kind chat.DeltaKind, text string, logprobs []logprob) map[string]any {
	if kind == chat.DeltaReasoning {
		return map[string]any{"type": "reasoning_text", "text": text}
	}
	return map[string]any{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": orEmpty(logprobs)}
}

func orEmpty(l []logprob) []logprob {
	if l == nil {
		return []logprob{}
	}
	return l
}

func itemID(kind chat.DeltaKind) string {
	return newID([]string{chat.DeltaContent: "msg_", chat.DeltaReasoning: "rs_", chat.DeltaToolCall: "fc_"}[kind])
}

func (o *responsesOutput) whole(r *reply) any {
	var output []map[string]any
	parts := r.whole()
	last := -1 // the log probabilities of all tokens are the last message's
	for i, p := range parts {
		if p.kind == chat.DeltaContent {
			last = i
		}
	}
	for i, p := range parts {
		status := "completed"
		if i == len(parts)-1 && r.finish == dflash.FinishLength {
			status = "incomplete"
		}
		var logprobs []logprob
		if i == last {
			logprobs = r.logprobs
		}
		output = append(output, o.item(p, itemID(p.kind), status, logprobs))
	}
	return o.final(r, output)
}

func (o *responsesOutput) event(s *stream, name string, v map[string]any) {
	v["type"], v["sequence_number"] = name, o.sequence
	o.sequence++
	s.event(name, v)
}

func (o *responsesOutput) begin(s *stream) {
	for _, name := range []string{"response.created", "response.in_progress"} {
		o.event(s, name, map[string]any{"response": o.response("in_progress", []map[string]any{}, nil)})
	}
}

// about adds the members that say which item an event is about.
func (o *responsesOutput) about(more map[string]any) map[string]any {
	more["item_id"], more["output_index"] = o.openID, len(o.items)
	return more
}

func (o *responsesOutput) piece(s *stream, r *reply, p *piece) {
	o.pending = append(o.pending, p.logprobs...)
	for i := range p.deltas {
		d := &p.deltas[i]
		if d.Kind != chat.DeltaToolCall && d.Text == "" {
			continue
		}
		if o.open == nil || o.open.kind != d.Kind || d.Kind == chat.DeltaToolCall && d.Name != "" {
			o.finish(s, "completed")
			o.open, o.openID = &part{kind: d.Kind}, itemID(d.Kind)
			if d.Kind == chat.DeltaToolCall {
				o.open.id, o.open.name = r.calls[d.Call].id, d.Name
			}
			o.added(s)
		}
		o.open.text.WriteString(d.Text)
		switch d.Kind {
		case chat.DeltaContent:
			o.event(s, "response.output_text.delta", o.about(map[string]any{"content_index": 0, "delta": d.Text, "logprobs": orEmpty(o.pending)}))
			o.sent, o.pending = append(o.sent, o.pending...), nil
		case chat.DeltaReasoning:
			o.event(s, "response.reasoning_text.delta", o.about(map[string]any{"content_index": 0, "delta": d.Text}))
		case chat.DeltaToolCall:
			if d.Text != "" {
				o.event(s, "response.function_call_arguments.delta", o.about(map[string]any{"delta": d.Text}))
			}
			if o.open.end = d.End; d.End == chat.CallBroken {
				o.finish(s, "incomplete")
			}
		}
	}
}

func (o *responsesOutput) added(s *stream) {
	item := o.item(o.open, o.openID, "in_progress", nil)
	if o.open.kind != chat.DeltaToolCall {
		item["content"] = []any{}
	}
	o.event(s, "response.output_item.added", map[string]any{"output_index": len(o.items), "item": item})
	if o.open.kind != chat.DeltaToolCall {
		o.event(s, "response.content_part.added", o.about(map[string]any{"content_index": 0, "part": o.content(o.open.kind, "", nil)}))
	}
}

// finish ends the open item.
func (o *responsesOutput) finish(s *stream, status string) {
	p := o.open
	if p == nil {
		return
	}
	text := p.text.String()
	var logprobs []logprob
	switch p.kind {
	case chat.DeltaContent:
		logprobs, o.sent = o.sent, nil
		o.event(s, "response.output_text.done", o.about(map[string]any{"content_index": 0, "text": text, "logprobs": orEmpty(logprobs)}))
	case chat.DeltaReasoning:
		o.event(s, "response.reasoning_text.done", o.about(map[string]any{"content_index": 0, "text": text}))
	case chat.DeltaToolCall:
		o.event(s, "response.function_call_arguments.done", o.about(map[string]any{"name": p.name, "arguments": text}))
	}
	if p.kind != chat.DeltaToolCall {
		o.event(s, "response.content_part.done", o.about(map[string]any{"content_index": 0, "part": o.content(p.kind, text, logprobs)}))
	}
	item := o.item(p, o.openID, status, logprobs)
	o.event(s, "response.output_item.done", map[string]any{"output_index": len(o.items), "item": item})
	o.items = append(o.items, item)
	o.open = nil
}

func (o *responsesOutput) end(s *stream, r *reply) {
	if o.open != nil && o.open.kind == chat.DeltaContent { // tokens without text belong to the last message
		o.sent, o.pending = append(o.sent, o.pending...), nil
	}
	status, name := "completed", "response.completed"
	if r.finish == dflash.FinishLength {
		status, name = "incomplete", "response.incomplete"
	}
	o.finish(s, status)
	// What was no call stays in the stream and is not in the result.
	output := slices.DeleteFunc(slices.Clone(o.items), func(item map[string]any) bool {
		return item["type"] == "function_call" && item["status"] == "incomplete"
	})
	o.event(s, name, map[string]any{"response": o.final(r, output)})
}

func (o *responsesOutput) failed(s *stream, e *apiError) {
	v := o.response("failed", append([]map[string]any{}, o.items...), nil)
	v["error"] = map[string]any{"code": e.kind(), "message": e.text(s.call.id)}
	o.event(s, "response.failed", map[string]any{"response": v})
}
