package openai

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/qwen/chat"
)

func (h *Handler) messages(c *call) {
	c.answer(func(p *params) (*job, output) {
		j := h.messagesJob(p)
		if !p.has("max_tokens") {
			p.fail(badf("max_tokens", "max_tokens is missing."))
		}
		return j, &messagesOutput{h: h, job: j, id: newID("msg_"), block: -1}
	})
}

// countTokens answers /v1/messages/count_tokens.
func (h *Handler) countTokens(c *call) {
	c.admit(func(string) {
		p, err := c.readBody()
		if err != nil {
			c.fail(err)
			return
		}
		j := h.messagesJob(p)
		h.checkModel(p)
		if p.err != nil {
			c.fail(p.err)
			return
		}
		release, err := h.acquire(c.ctx)
		if err != nil {
			c.fail(err)
			return
		}
		defer release()
		n, err := h.prepare(j)
		if err != nil {
			c.fail(err)
			return
		}
		c.json(http.StatusOK, map[string]any{"input_tokens": n})
	})
}

// messagesJob reads a request in Anthropic's form.
func (h *Handler) messagesJob(p *params) *job {
	j := &job{}
	r := &j.request
	if raw := p.raw("system"); raw != nil {
		if text := blocksText(p, raw, "system"); text != "" {
			r.Messages = append(r.Messages, chat.Message{Role: chat.RoleSystem, Content: text})
		}
	}
	turns := p.list("messages")
	if len(turns) == 0 {
		p.fail(badf("messages", "messages must be a list of one message at least."))
	}
	for i, raw := range turns {
		o, err := object(raw, fmt.Sprintf("messages[%d]", i))
		if err != nil {
			p.fail(err)
			return j
		}
		r.Messages = append(r.Messages, readTurn(o)...)
		p.fail(o.err)
		if i == len(turns)-1 && o.text("role") == chat.RoleAssistant {
			p.fail(badf("messages", "The last message is the assistant's; going on with it is not supported."))
		}
	}
	checkTurns(p, r.Messages)

	r.MaxTokens = h.limit(p, "max_tokens")
	r.Sampling = h.sampling(p, 2)
	r.Stop = h.stops(p, "stop_sequences")
	j.stream = p.isTrue("stream")

	r.Thinking = new(false)
	if o := p.object("thinking"); o != nil {
		switch kind := o.text("type"); kind {
		case "enabled", "adaptive":
			r.Thinking = new(true)
			if v := o.integer("budget_tokens", 1, math.MaxInt32); v != nil {
				r.ThinkingBudget = *v
			}
		case "disabled":
		default:
			o.wrong("type", "enabled, adaptive or disabled")
		}
		p.fail(o.err)
	}
	schema := func(o *params) *params { return o }
	if o := p.object("output_config"); o != nil {
		r.Format = responseFormat(o, "format", schema)
		p.fail(o.err)
	} else {
		r.Format = responseFormat(p, "output_format", schema)
	}
	tools := readAnthropicTools(p)
	offer(r, tools)
	if o := p.object("tool_choice"); o != nil {
		switch kind := o.text("type"); kind {
		case "auto":
		case "none":
			r.ToolChoice.None = len(tools) > 0
		case "any":
			r.ToolChoice.Required = true
		case "tool":
			if r.ToolChoice.Name = o.text("name"); r.ToolChoice.Name == "" {
				o.fail(badf("tool_choice.name", "tool_choice.name is missing."))
			}
		default:
			o.wrong("type", "auto, any, tool or none")
		}
		j.oneCall = o.isTrue("disable_parallel_tool_use")
		p.fail(o.err)
		checkChoice(p, r.ToolChoice, tools)
	}
	p.refuse("", "mcp_servers", "container", "context_management")
	h.extension(p, j)
	return j
}

// blocksText is a string, or the text of a list of text blocks.
func blocksText(p *params, raw json.RawMessage, name string) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var blocks []json.RawMessage
	if err := json.Unmarshal(raw, &blocks); err != nil {
		p.fail(badf(name, "%s must be a string or a list of blocks.", name))
		return ""
	}
	var all strings.Builder
	for i, raw := range blocks {
		o, err := object(raw, fmt.Sprintf("%s[%d]", name, i))
		if err != nil {
			p.fail(err)
			return ""
		}
		switch kind := o.text("type"); kind {
		case "text", "input_text", "output_text":
			all.WriteString(o.text("text"))
		case "refusal":
			all.WriteString(o.text("refusal"))
		default:
			o.notText(kind)
		}
		p.fail(o.err)
	}
	return all.String()
}

// notText refuses a part of content that is no text.
func (p *params) notText(kind string) {
	name := strings.TrimSuffix(p.prefix, ".")
	e := badf(name, "%s is of the type %q; the model reads text only.", name, clip(kind))
	e.code = "unsupported_content"
	p.fail(e)
}

// readTurn reads one message, which may hold results of several calls.
func readTurn(o *params) []chat.Message {
	m := chat.Message{Role: o.text("role")}
	if m.Role != chat.RoleUser && m.Role != chat.RoleAssistant && m.Role != chat.RoleSystem && o.err == nil {
		o.wrong("role", "user, assistant or system")
	}
	raw := o.raw("content")
	if raw == nil {
		o.fail(badf(o.prefix+"content", "%scontent is missing.", o.prefix))
		return nil
	}
	if json.Unmarshal(raw, &m.Content) == nil {
		return []chat.Message{m}
	}
	var results []chat.Message
	var texts int
	for i, raw := range o.list("content") {
		b, err := object(raw, fmt.Sprintf("%scontent[%d]", o.prefix, i))
		if err != nil {
			o.fail(err)
			return nil
		}
		switch kind := b.text("type"); kind {
		case "text":
			m.Content += b.text("text")
			texts++
		case "tool_use":
			m.ToolCalls = append(m.ToolCalls, chat.ToolCall{ID: b.text("id"), Name: b.text("name"), Arguments: b.raw("input")})
		case "tool_result":
			result := chat.Message{Role: chat.RoleTool, ToolCallID: b.text("tool_use_id")}
			if raw := b.raw("content"); raw != nil {
				result.Content = blocksText(b, raw, b.prefix+"content")
			}
			if texts > 0 {
				b.fail(badf(strings.TrimSuffix(b.prefix, "."), "Results of tools come before the text of a message."))
			}
			results = append(results, result)
		case "thinking":
			text := b.text("thinking")
			if m.ReasoningContent != nil {
				text = *m.ReasoningContent + text
			}
			m.ReasoningContent = &text
		case "redacted_thinking": // nobody here can read it
		default:
			b.notText(kind)
		}
		o.fail(b.err)
	}
	if len(results) > 0 && texts == 0 {
		return results
	}
	return append(results, m)
}

// readAnthropicTools makes OpenAI's form of the tools, which templates show.
func readAnthropicTools(p *params) []tool {
	return toolList(p, func(o *params, at string, _ json.RawMessage) tool {
		if kind := o.text("type"); kind != "" && kind != "custom" {
			o.fail(unsupportedf(at+".type", "Tools are the client's own here; %s has the type %q.", at, clip(kind)))
		}
		shown, err := functionTool(o.raw("name"), o.raw("description"), o.raw("input_schema"))
		o.fail(err)
		t := readFunction(p, o, shown)
		if !o.has("input_schema") {
			o.fail(badf(at+".input_schema", "%s.input_schema is missing.", at))
		}
		return t
	})
}

// functionTool is a function in the form of chat completions.
func functionTool(name, description, parameters json.RawMessage) (json.RawMessage, error) {
	type function struct {
		Name        json.RawMessage `json:"name"`
		Description json.RawMessage `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
	}
	return marshal(struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}{"function", function{name, description, parameters}})
}

// messagesOutput writes messages in Anthropic's form.
type messagesOutput struct {
	h     *Handler
	job   *job
	id    string
	block int    // index of the open block, -1 before the first
	kind  string // of the open block, empty for none
	call  int    // index of the open call
}

func (o *messagesOutput) message(content []any, reason, stop, usage any) map[string]any {
	return map[string]any{
		"id": o.id, "type": "message", "role": "assistant", "model": o.h.opts.Model,
		"content": content, "stop_reason": reason, "stop_sequence": stop, "usage": usage,
	}
}

func (o *messagesOutput) reason(r *reply) (reason, stop any) {
	switch {
	case r.finish == dflash.FinishLength:
		return "max_tokens", nil
	case r.stats.StopText != "":
		return "stop_sequence", r.stats.StopText
	case r.called():
		return "tool_use", nil
	}
	return "end_turn", nil
}

func anthropicUsage(st *dflash.Stats) map[string]any {
	return map[string]any{
		"input_tokens": st.PromptTokens - st.CachedTokens, "output_tokens": st.CompletionTokens,
		"cache_read_input_tokens": st.CachedTokens, "cache_creation_input_tokens": 0,
	}
}

func (o *messagesOutput) whole(r *reply) any {
	content := []any{}
	for _, p := range r.whole() {
		switch text := p.text.String(); p.kind {
		case chat.DeltaReasoning:
			content = append(content, map[string]any{"type": "thinking", "thinking": text, "signature": ""})
		case chat.DeltaContent:
			content = append(content, map[string]any{"type": "text", "text": text})
		case chat.DeltaToolCall:
			content = append(content, map[string]any{"type": "tool_use", "id": p.id, "name": p.name, "input": json.RawMessage(text)})
		}
	}
	reason, stop := o.reason(r)
	m := o.message(content, reason, stop, anthropicUsage(&r.stats))
	m["timings"], m["godflash"] = makeTimings(&r.stats), makeReport(&r.stats)
	return m
}

func (o *messagesOutput) begin(s *stream) {
	// How long the prompt is, is known; what of it was cached, at the end.
	usage := anthropicUsage(&dflash.Stats{PromptTokens: o.job.promptTokens()})
	s.event("message_start", map[string]any{"type": "message_start", "message": o.message([]any{}, nil, nil, usage)})
	s.event("ping", map[string]any{"type": "ping"})
}

func (o *messagesOutput) piece(s *stream, r *reply, p *piece) {
	for i := range p.deltas {
		d := &p.deltas[i]
		switch d.Kind {
		case chat.DeltaContent:
			if d.Text != "" {
				o.open(s, "text", map[string]any{"type": "text", "text": ""})
				o.delta(s, map[string]any{"type": "text_delta", "text": d.Text})
			}
		case chat.DeltaReasoning:
			if d.Text != "" {
				o.open(s, "thinking", map[string]any{"type": "thinking", "thinking": "", "signature": ""})
				o.delta(s, map[string]any{"type": "thinking_delta", "thinking": d.Text})
			}
		case chat.DeltaToolCall:
			index := d.Call
			if o.kind == "tool_use" && index != o.call {
				o.close(s)
			}
			o.call = index
			o.open(s, "tool_use", map[string]any{"type": "tool_use", "id": r.calls[index].id, "name": r.calls[index].name, "input": map[string]any{}})
			if d.Text != "" {
				o.delta(s, map[string]any{"type": "input_json_delta", "partial_json": d.Text})
			}
		}
	}
}

// open begins a block, unless one of its kind is open.
func (o *messagesOutput) open(s *stream, kind string, block map[string]any) {
	if o.kind == kind {
		return
	}
	o.close(s)
	o.kind = kind
	o.block++
	s.event("content_block_start", map[string]any{"type": "content_block_start", "index": o.block, "content_block": block})
}

func (o *messagesOutput) delta(s *stream, d map[string]any) {
	s.event("content_block_delta", map[string]any{"type": "content_block_delta", "index": o.block, "delta": d})
}

func (o *messagesOutput) close(s *stream) {
	if o.kind != "" {
		s.event("content_block_stop", map[string]any{"type": "content_block_stop", "index": o.block})
		o.kind = ""
	}
}

func (o *messagesOutput) end(s *stream, r *reply) {
	o.close(s)
	reason, stop := o.reason(r)
	s.event("message_delta", map[string]any{
		"type": "message_delta", "delta": map[string]any{"stop_reason": reason, "stop_sequence": stop},
		"usage": anthropicUsage(&r.stats), "timings": makeTimings(&r.stats), "godflash": makeReport(&r.stats),
	})
	s.event("message_stop", map[string]any{"type": "message_stop"})
}

func (o *messagesOutput) failed(s *stream, e *apiError) {
	s.event("error", e.body(formAnthropic, s.call.id))
}
