package openai

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/qwen/chat"
)

// maxStops is the number of stop texts that a request may have.
const maxStops = 16

// checkModel refuses other models' names. A request without one means ours.
func (h *Handler) checkModel(p *params) {
	name := p.text("model")
	if p.err == nil && name != "" && !h.isModel(name) {
		p.fail(h.noModel(name))
	}
}

func (h *Handler) noModel(name string) *apiError {
	return &apiError{
		status: http.StatusNotFound, param: "model", code: "model_not_found",
		message: fmt.Sprintf("There is no model %q here; this server has %q.", clip(name), h.opts.Model),
	}
}

func (h *Handler) isModel(name string) bool {
	return name == h.opts.Model || slices.Contains(h.opts.Aliases, name) || slices.Contains(h.opts.Aliases, "*")
}

// sampling reads how tokens are drawn. What a request leaves out is the
// server's default; a temperature below 1e-4 is greedy whatever else there is.
func (h *Handler) sampling(p *params, hottest float64) dflash.Sampling {
	s := h.backend.Info().Sampling
	if h.opts.Sampling != nil {
		s = *h.opts.Sampling
	}
	if v := p.number("temperature", 0, hottest); v != nil {
		s.Temperature = *v
	}
	if v := p.number("top_p", 0, 1); v != nil {
		s.TopP = max(*v, 1e-6) // 0 is the smallest set, and to the engine no filter
	}
	if v := p.integer("top_k", -1, math.MaxInt32); v != nil {
		s.TopK = max(*v, 0)
	}
	if v := p.number("min_p", 0, 1); v != nil {
		s.MinP = *v
	}
	if v := p.seed("seed"); v != nil {
		s.Seed = *v
		if *v == 0 { // to the engine, none
			s.Seed = zeroSeed
		}
	}
	return s
}

// zeroSeed stands for a client's seed 0.
const zeroSeed = 0x9e3779b97f4a7c15

// limit reads the most tokens of a completion.
func (h *Handler) limit(p *params, names ...string) int {
	limit := 0
	for _, name := range names {
		if v := p.integer(name, 1, math.MaxInt32); v != nil {
			limit = *v
			break
		}
	}
	if most := h.opts.MaxTokens; most > 0 && (limit == 0 || limit > most) {
		limit = most
	}
	return limit
}

// common reads what chat completions and completions share.
func (h *Handler) common(p *params, j *job) {
	r := &j.request
	r.Sampling = h.sampling(p, 2)
	r.Penalties = dflash.Penalties{}
	if v := p.number("frequency_penalty", -2, 2); v != nil {
		r.Penalties.Frequency = *v
	}
	if v := p.number("presence_penalty", -2, 2); v != nil {
		r.Penalties.Presence = *v
	}
	for _, name := range []string{"repetition_penalty", "repeat_penalty"} { // vLLM's name, llama.cpp's
		if v := p.number(name, 0.1, 10); v != nil && *v != 1 {
			r.Penalties.Repetition = *v
		}
	}
	r.LogitBias = logitBias(p)
	r.Stop = h.stops(p, "stop")
	for _, id := range p.list("stop_token_ids") {
		n, err := strconv.Atoi(string(id))
		if err != nil || n < 0 {
			p.wrong("stop_token_ids", "a list of token ids")
			break
		}
		r.StopIDs = append(r.StopIDs, n)
	}
	r.IgnoreEOS = p.isTrue("ignore_eos")
	if cache := p.flag("cache_prompt"); cache != nil {
		r.NoCache = !*cache
	}
	if n := p.integer("n", 1, math.MaxInt32); n != nil && *n > 1 {
		p.unsupported("n", "a request has one reply; send it "+strconv.Itoa(*n)+" times, with other seeds")
	}
	p.unless("best_of", "", "1")
	p.unless("min_tokens", "", "0")
	p.refuse("", "use_beam_search", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "grammar", "json_schema",
		"logits_processors", "prompt_logprobs", "truncate_prompt_tokens", "structured_outputs", "dynatemp_range", "mirostat", "samplers", "lora")
	p.unless("typical_p", "", "1", "1.0")
	p.unless("length_penalty", "", "1", "1.0")
	p.unless("dry_multiplier", "", "0", "0.0")
	p.unless("xtc_probability", "", "0", "0.0")
	p.unless("top_a", "", "0", "0.0")

	j.stream = p.isTrue("stream")
	if o := p.object("stream_options"); o != nil {
		j.usage = o.isTrue("include_usage")
		p.fail(o.err)
		if !j.stream {
			p.fail(badf("stream_options", "stream_options goes with stream: true."))
		}
	}
	h.extension(p, j)
}

// extension reads the object of our own parameters.
// Only chunks of chat completions carry tokens: elsewhere they are refused.
func (h *Handler) extension(p *params, j *job) {
	o := p.object("godflash")
	if o == nil {
		return
	}
	j.request.NoDraft = o.isTrue("no_draft")
	if v := o.integer("block_size", 2, math.MaxInt32); v != nil {
		j.request.BlockSize = *v
	}
	if j.tokens = o.isTrue("tokens"); j.tokens && !(j.chat && j.stream) {
		o.unsupported("tokens", "it goes with stream: true of /v1/chat/completions")
	}
	for name := range o.fields {
		if !slices.Contains([]string{"no_draft", "block_size", "tokens"}, name) {
			o.unsupported(name, "")
		}
	}
	p.fail(o.err)
}

func (h *Handler) stops(p *params, name string) []string {
	stops := p.texts(name, maxStops)
	if slices.Contains(stops, "") {
		p.fail(badf(name, "%s has an empty text.", name))
	}
	if len(stops) == 0 {
		return nil
	}
	return stops
}

func logitBias(p *params) map[int]float64 {
	given := take[map[string]float64](p, "logit_bias", "an object of token ids and numbers")
	if given == nil || len(*given) == 0 {
		return nil
	}
	bias := map[int]float64{}
	for key, value := range *given {
		id, err := strconv.Atoi(key)
		if err != nil || id < 0 || value < -100 || value > 100 {
			p.fail(badf("logit_bias", "logit_bias must have token ids and numbers from -100 to 100, not %s: %g.", clip(key), value))
			return nil
		}
		bias[id] = value
	}
	return bias
}

// toolName is what a function may be called.
var toolName = regexp.MustCompile(`^[a-zA-Z0-9_.:/-]{1,128}$`)

// tool is a function that a request offers.
type tool struct {
	name   string
	schema json.RawMessage // as the template shows it
	strict bool
}

// toolList reads a list of tools, each with one; at is what errors call it.
func toolList(p *params, one func(o *params, at string, raw json.RawMessage) tool) []tool {
	var tools []tool
	seen := map[string]bool{}
	for i, raw := range p.list("tools") {
		at := fmt.Sprintf("tools[%d]", i)
		o, err := object(raw, at)
		if err != nil {
			p.fail(err)
			return nil
		}
		t := one(o, at, raw)
		if p.fail(o.err); p.err != nil {
			return nil
		}
		if seen[t.name] {
			p.fail(badf("tools", "Two tools are called %q.", t.name))
		}
		seen[t.name] = true
		tools = append(tools, t)
	}
	return tools
}

// readTools reads OpenAI's list of tools.
func readTools(p *params) []tool {
	return toolList(p, func(o *params, at string, raw json.RawMessage) tool {
		onlyFunctions(o, at)
		f := o.object("function")
		if f == nil {
			o.fail(badf(at+".function", "%s.function is missing.", at))
		}
		if o.err != nil {
			return tool{}
		}
		return readFunction(p, f, raw)
	})
}

// onlyFunctions refuses a tool of another type.
func onlyFunctions(o *params, at string) {
	if kind := o.text("type"); kind != "function" {
		o.fail(unsupportedf(at+".type", "Tools are functions here; %s has the type %q.", at, clip(kind)))
	}
}

// readFunction reads a function's own members. shown is what the template shows.
func readFunction(p, f *params, shown json.RawMessage) tool {
	t := tool{name: f.text("name"), schema: shown, strict: f.isTrue("strict")}
	if f.err == nil && !toolName.MatchString(t.name) {
		f.fail(badf(f.prefix+"name", "%sname must have 1 to 128 letters, digits and _ - . : /, not %q.", f.prefix, clip(t.name)))
	}
	f.object("parameters")
	f.text("description")
	p.fail(f.err)
	return t
}

// offer puts the tools into the request.
func offer(r *dflash.Request, tools []tool) {
	for _, t := range tools {
		r.Tools = append(r.Tools, t.schema)
		if t.strict {
			strictTools(r)
		}
	}
}

func strictTools(r *dflash.Request) {
	if r.Format == nil {
		r.Format = &dflash.Format{}
	}
	r.Format.StrictTools = true
}

// choose reads tool_choice: auto, none, required, or an object that names a
// function, in which name finds it.
func choose(p *params, tools []tool, name func(o *params) string) dflash.ToolChoice {
	raw := p.raw("tool_choice")
	var word string
	var choice dflash.ToolChoice
	switch {
	case raw == nil:
		return choice
	case json.Unmarshal(raw, &word) == nil:
		switch word {
		case "auto":
		case "none":
			choice.None = len(tools) > 0
		case "required":
			choice.Required = true
		default:
			p.wrong("tool_choice", "auto, none, required or a function")
		}
	default:
		o := p.object("tool_choice")
		if o == nil {
			return choice
		}
		if kind := o.text("type"); kind != "function" && o.err == nil {
			o.unsupported("type", "a function can be chosen")
		}
		choice.Name = name(o)
		p.fail(o.err)
	}
	checkChoice(p, choice, tools)
	return choice
}

func checkChoice(p *params, choice dflash.ToolChoice, tools []tool) {
	switch {
	case p.err != nil:
	case (choice.Required || choice.Name != "") && len(tools) == 0:
		p.fail(badf("tool_choice", "tool_choice asks for a call, and there are no tools."))
	case choice.Name != "" && !slices.ContainsFunc(tools, func(t tool) bool { return t.name == choice.Name }):
		p.fail(badf("tool_choice", "tool_choice names %q, which is none of the tools.", clip(choice.Name)))
	}
}

// thinking reads the parameters that switch or bound the reasoning; name is
// the effort's. The model's own switch counts more than an effort.
func thinking(p *params, r *dflash.Request, name, effort string) {
	switch effort {
	case "":
	case "none", "minimal":
		r.Thinking = new(false)
	case "low", "medium", "high", "xhigh", "max":
		r.Thinking = new(true)
	default:
		p.fail(badf(name, "%s must be none, minimal, low, medium, high, xhigh or max, not %q.", name, clip(effort)))
	}
	if v := p.flag("enable_thinking"); v != nil {
		r.Thinking = v
	}
	if o := p.object("chat_template_kwargs"); o != nil {
		if v := o.flag("enable_thinking"); v != nil {
			r.Thinking = v
		}
		for name := range o.fields {
			if name != "enable_thinking" {
				o.unsupported(name, "")
			}
		}
		p.fail(o.err)
	}
	if v := p.integer("thinking_budget", 1, math.MaxInt32); v != nil {
		r.ThinkingBudget = *v
	}
}

// checkTurns refuses roles that no template knows, and results of calls that
// nobody made. It makes developer turns system turns, and leaves out what
// templates do not read.
func checkTurns(p *params, messages []chat.Message) {
	calls := map[string]bool{}
	for i := range messages {
		m := &messages[i]
		at := fmt.Sprintf("messages[%d]", i)
		switch m.Role {
		case "developer":
			m.Role = chat.RoleSystem
		case chat.RoleSystem, chat.RoleUser, chat.RoleAssistant:
		case chat.RoleTool:
			if !calls[m.ToolCallID] {
				p.fail(badf(at+".tool_call_id", "%s answers the call %q, which no message before it makes.", at, clip(m.ToolCallID)))
			}
		case "":
			p.fail(badf(at+".role", "%s has no role.", at))
		default:
			p.fail(badf(at+".role", "%s has the role %q; system, developer, user, assistant and tool are known.", at, clip(m.Role)))
		}
		if m.ReasoningContent == nil { // other servers' name of it
			var text string
			if json.Unmarshal(m.Fields["reasoning"], &text) == nil && text != "" {
				m.ReasoningContent = &text
			}
		}
		m.Fields = nil
		for k := range m.Parts {
			part := &m.Parts[k]
			switch part.Type {
			case "text":
			case "refusal":
				var text string
				if json.Unmarshal(part.Fields["refusal"], &text) == nil {
					*part = chat.TextPart(text)
				}
			default:
				e := badf(fmt.Sprintf("%s.content[%d]", at, k), "%s has a part of the type %q; the model reads text only.", at, clip(part.Type))
				e.code = "unsupported_content"
				p.fail(e)
			}
			part.Fields = nil
		}
		for _, c := range m.ToolCalls {
			if c.Name == "" {
				p.fail(badf(at+".tool_calls", "%s has a call without a function's name.", at))
			}
			if c.ID != "" {
				calls[c.ID] = true
			}
		}
	}
}
