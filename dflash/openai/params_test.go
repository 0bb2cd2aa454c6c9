package openai_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/dflash/dflashtest"
	"github.com/godflash/godflash/dflash/openai"
)

// trial is a value of a parameter and what becomes of it: a refusal, or a
// request in which something shows.
type trial struct {
	value  string // JSON
	shows  func(r dflash.Request) any
	want   any
	status int // of a refusal
	also   object
}

func refused(values ...string) (trials []trial) {
	for _, v := range values {
		trials = append(trials, trial{value: v, status: 400})
	}
	return trials
}

func passes(values ...string) (trials []trial) {
	for _, v := range values {
		trials = append(trials, trial{value: v})
	}
	return trials
}

func shows(value string, f func(r dflash.Request) any, want any) trial {
	return trial{value: value, shows: f, want: want}
}

func with(more object, t trial) trial {
	t.also = more
	return t
}

func all(lists ...[]trial) []trial { return slices.Concat(lists...) }

var (
	fn       = `{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}`
	flat     = `{"type":"function","name":"f","parameters":{"type":"object"}}`
	maxToken = func(r dflash.Request) any { return r.MaxTokens }
	sampling = func(r dflash.Request) any { return r.Sampling }
	stop     = func(r dflash.Request) any { return r.Stop }
	choice   = func(r dflash.Request) any { return r.ToolChoice }
	thinks   = func(r dflash.Request) any {
		if r.Thinking == nil {
			return "default"
		}
		return *r.Thinking
	}
	format   = func(r dflash.Request) any { return r.Format }
	tools    = func(r dflash.Request) any { return string(slices.Concat(r.Tools...)) }
	logProbs = func(r dflash.Request) any { return []any{r.LogProbs, r.TopLogProbs} }
	toolList = object{"tools": []json.RawMessage{json.RawMessage(fn)}}
	flatList = object{"tools": []json.RawMessage{json.RawMessage(flat)}}
	claude   = `{"name":"f","input_schema":{"type":"object"}}`
	claudes  = object{"tools": []json.RawMessage{json.RawMessage(claude)}}
	rejected = func() []trial { return all(refused(`true`, `"x"`, `7`), passes(`null`, `false`, `{}`, `[]`, `""`)) }
)

// sampled are the trials of what all endpoints draw by.
func sampled() map[string][]trial {
	return map[string][]trial{
		"temperature": all(refused(`-0.1`, `2.1`, `"hot"`, `1e400`), []trial{shows(`0.5`, sampling, dflash.Sampling{Temperature: 0.5}), shows(`0`, sampling, dflash.Sampling{})}),
		"top_p":       all(refused(`-1`, `1.5`, `[]`), []trial{shows(`0.5`, sampling, dflash.Sampling{TopP: 0.5}), shows(`0`, sampling, dflash.Sampling{TopP: 1e-6})}),
	}
}

// decoding are the trials of what chat completions and completions share.
func decoding() map[string][]trial {
	penalties := func(r dflash.Request) any { return r.Penalties }
	m := map[string][]trial{
		"model":              all(passes(`"default"`, `""`, `null`), refused(`7`), []trial{{value: `"other"`, status: 404}}),
		"min_p":              all(refused(`2`), []trial{shows(`0.1`, sampling, dflash.Sampling{MinP: 0.1})}),
		"top_k":              all(refused(`-2`, `1.5`), []trial{shows(`40`, sampling, dflash.Sampling{TopK: 40}), shows(`-1`, sampling, dflash.Sampling{}), shows(`5.0`, sampling, dflash.Sampling{TopK: 5})}),
		"seed":               all(refused(`"a"`, `1.5`, `1e30`), []trial{shows(`18446744073709551615`, sampling, dflash.Sampling{Seed: 1<<64 - 1})}),
		"stop":               all(refused(`7`, `[1]`, `""`, `["a",""]`, `["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]`), []trial{shows(`"a"`, stop, []string{"a"}), shows(`["a","b"]`, stop, []string{"a", "b"}), shows(`[]`, stop, []string(nil))}),
		"frequency_penalty":  all(refused(`3`, `"x"`), []trial{shows(`1`, penalties, dflash.Penalties{Frequency: 1})}),
		"presence_penalty":   all(refused(`-3`), []trial{shows(`-1`, penalties, dflash.Penalties{Presence: -1})}),
		"repetition_penalty": all(refused(`0`, `-1`), []trial{shows(`1.1`, penalties, dflash.Penalties{Repetition: 1.1}), shows(`1`, penalties, dflash.Penalties{})}),
		"repeat_penalty":     all(refused(`0`), []trial{shows(`1.2`, penalties, dflash.Penalties{Repetition: 1.2})}),
		"logit_bias": all(refused(`{"a":1}`, `{"-1":1}`, `{"1":101}`, `[1]`), passes(`{}`), []trial{shows(`{"5":-100}`, func(r dflash.Request) any {
			return r.LogitBias
		}, map[int]float64{5: -100})}),
		"stream":         all(refused(`"yes"`, `1`), passes(`true`, `false`)),
		"stream_options": all(refused(`{"include_usage":true}`), []trial{with(object{"stream": true}, trial{value: `{"include_usage":true}`}), with(object{"stream": true}, trial{value: `{"include_usage":1}`, status: 400})}),
		"n":              all(refused(`2`, `0`), passes(`1`)),
		"stop_token_ids": all(refused(`["a"]`, `[-1]`), []trial{shows(`[7]`, func(r dflash.Request) any { return r.StopIDs }, []int{7})}),
		"ignore_eos":     all(refused(`1`), []trial{shows(`true`, func(r dflash.Request) any { return r.IgnoreEOS }, true)}),
		"cache_prompt":   {shows(`false`, func(r dflash.Request) any { return r.NoCache }, true), shows(`true`, func(r dflash.Request) any { return r.NoCache }, false)},
		"godflash":       extension(),
		"response_format": all(refused(`"json"`, `{"type":"xml"}`, `{"type":"json_schema"}`, `{"type":"json_schema","json_schema":{"name":"x"}}`, `{"type":"json_schema","json_schema":{"schema":7}}`),
			[]trial{
				shows(`{"type":"text"}`, format, (*dflash.Format)(nil)),
				shows(`{"type":"json_object"}`, format, &dflash.Format{JSON: true}),
				shows(`{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"type":"object"}}}`, format, &dflash.Format{Schema: json.RawMessage(`{"type":"object"}`)}),
			}),
		"best_of": all(refused(`2`), passes(`1`)), "min_tokens": all(refused(`1`), passes(`0`)), "length_penalty": all(refused(`2`), passes(`1`, `1.0`)),
		"typical_p": all(refused(`0.5`), passes(`1`)), "top_a": all(refused(`0.1`), passes(`0`)),
		"dry_multiplier": all(refused(`0.8`), passes(`0`)), "xtc_probability": all(refused(`0.5`), passes(`0`)),
	}
	for _, name := range []string{
		"use_beam_search", "grammar", "json_schema", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs",
		"mirostat", "dynatemp_range", "samplers", "logits_processors", "lora", "prompt_logprobs", "truncate_prompt_tokens", "echo", "suffix",
	} {
		m[name] = rejected()
	}
	maps.Copy(m, sampled())
	return m
}

func extension() []trial {
	return all(refused(`7`, `{"no_draft":1}`, `{"block_size":1}`, `{"other":true}`, `{"tokens":true}`), passes(`{"tokens":false}`), []trial{
		shows(`{"no_draft":true}`, func(r dflash.Request) any { return r.NoDraft }, true),
		shows(`{"block_size":8}`, func(r dflash.Request) any { return r.BlockSize }, 8),
	})
}

func chatTrials() map[string][]trial {
	m := decoding()
	maps.Copy(m, map[string][]trial{
		"messages": refused(
			`null`, `[]`, `{}`, `"hi"`, `[7]`, `[{}]`, `[{"role":"user","content":7}]`, `[{"role":"function","content":"x"}]`, `[{"content":"x"}]`,
			`[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]`, `[{"role":"user","content":["x"]}]`,
			`[{"role":"tool","content":"x"}]`, `[{"role":"tool","tool_call_id":"","content":"x"}]`,
			`[{"role":"user","content":"x"},{"role":"tool","tool_call_id":"a","content":"x"},{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f"}}]}]`,
			`[{"role":"assistant","tool_calls":[{"id":"a","function":{}}]}]`),
		"max_completion_tokens": all(refused(`0`, `-5`, `1.5`, `"9"`), []trial{shows(`5`, maxToken, 5)}),
		"max_tokens":            all(refused(`0`), []trial{shows(`5`, maxToken, 5), with(object{"max_completion_tokens": 3}, shows(`5`, maxToken, 3))}),
		"logprobs":              all(refused(`3`), []trial{shows(`true`, logProbs, []any{true, 0}), shows(`false`, logProbs, []any{false, 0})}),
		"top_logprobs":          all(refused(`3`), []trial{with(object{"logprobs": true}, shows(`20`, logProbs, []any{true, 20})), with(object{"logprobs": true}, trial{value: `21`, status: 400})}),
		"tools": all(refused(`[7]`, `[{"type":"web_search"}]`, `[{"type":"function"}]`, `[{"type":"function","function":{"name":"a b"}}]`, `[{"type":"function","function":{"name":"f","parameters":7}}]`, `[`+fn+`,`+fn+`]`), []trial{
			shows(`[`+fn+`]`, tools, fn), shows(`[]`, tools, ""),
			shows(`[{"type":"function","function":{"name":"f","strict":true}}]`, format, &dflash.Format{StrictTools: true}),
		}),
		"tool_choice": all(refused(`"required"`, `"maybe"`, `{"type":"function","function":{"name":"f"}}`), passes(`"auto"`, `"none"`), []trial{
			with(toolList, shows(`"none"`, choice, dflash.ToolChoice{None: true})),
			with(toolList, shows(`"required"`, choice, dflash.ToolChoice{Required: true})),
			with(toolList, shows(`{"type":"function","function":{"name":"f"}}`, choice, dflash.ToolChoice{Name: "f"})),
			with(toolList, trial{value: `{"type":"function","function":{"name":"g"}}`, status: 400}),
			with(toolList, trial{value: `{"type":"function"}`, status: 400}),
			with(toolList, trial{value: `{"type":"allowed_tools"}`, status: 400}),
		}),
		"parallel_tool_calls":  all(refused(`"no"`), passes(`true`, `false`)),
		"reasoning_effort":     all(refused(`"huge"`, `7`), []trial{shows(`"none"`, thinks, false), shows(`"minimal"`, thinks, false), shows(`"high"`, thinks, true), shows(`null`, thinks, "default")}),
		"enable_thinking":      all(refused(`"yes"`), []trial{shows(`false`, thinks, false)}),
		"chat_template_kwargs": all(refused(`{"enable_thinking":"no"}`, `{"other":1}`, `7`), []trial{shows(`{"enable_thinking":false}`, thinks, false)}),
		"thinking_budget":      all(refused(`0`), []trial{shows(`64`, func(r dflash.Request) any { return r.ThinkingBudget }, 64)}),
		"functions":            rejected(), "audio": rejected(), "web_search_options": rejected(), "continue_final_message": rejected(), "documents": rejected(), "chat_template": rejected(),
		"function_call":         all(refused(`{"name":"f"}`), passes(`"auto"`, `"none"`, `null`)),
		"modalities":            all(refused(`["text","audio"]`), passes(`["text"]`, `null`)),
		"add_generation_prompt": all(refused(`false`), passes(`true`)),
	})
	return m
}

func completionTrials() map[string][]trial {
	m := decoding()
	text := func(r dflash.Request) any { return []any{r.Text, r.IDs} }
	maps.Copy(m, map[string][]trial{
		"prompt": all(refused(`null`, `""`, `7`, `[]`, `["a","b"]`, `[[1],[2]]`, `[1,"a"]`, `{}`), []trial{
			shows(`"<|im_end|>"`, text, []any{"<|im_end|>", []int(nil)}), shows(`["a"]`, text, []any{"a", []int(nil)}),
			shows(`[1,2]`, text, []any{"", []int{1, 2}}), shows(`[[1,2]]`, text, []any{"", []int{1, 2}}),
		}),
		"max_tokens": all(refused(`0`), []trial{shows(`5`, maxToken, 5)}), "max_completion_tokens": {shows(`5`, maxToken, 5)}, "n_predict": {shows(`5`, maxToken, 5)},
		"logprobs": all(refused(`21`, `true`), []trial{shows(`3`, logProbs, []any{true, 3}), shows(`false`, logProbs, []any{false, 0})}),
		"messages": refused(`[{"role":"user"}]`), "tools": refused(`[` + fn + `]`), "tool_choice": refused(`"auto"`), "reasoning_effort": refused(`"low"`), "chat_template_kwargs": refused(`{"a":1}`),
	})
	return m
}

func responsesTrials() map[string][]trial {
	last := func(r dflash.Request) any { return r.Messages[len(r.Messages)-1].Content }
	m := map[string][]trial{
		"input": all(refused(`null`, `[]`, `7`, `[7]`, `[{"role":"user","content":[{"type":"input_image"}]}]`, `[{"type":"item_reference","id":"x"}]`, `[{"type":"function_call_output","call_id":"x","output":"y"}]`), []trial{
			shows(`"hello"`, last, "hello"), shows(`[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}]`, last, "ab"),
		}),
		"instructions":      all(refused(`7`), []trial{shows(`"be kind"`, func(r dflash.Request) any { return r.Messages[0].Content }, "be kind")}),
		"max_output_tokens": all(refused(`0`), []trial{shows(`5`, maxToken, 5)}),
		"tools":             all(refused(`[{"type":"web_search"}]`, `[{"type":"function"}]`), []trial{shows(`[`+flat+`]`, tools, fn)}),
		"tool_choice": all(refused(`"required"`), []trial{
			with(flatList, shows(`"required"`, choice, dflash.ToolChoice{Required: true})),
			with(flatList, shows(`{"type":"function","name":"f"}`, choice, dflash.ToolChoice{Name: "f"})),
		}),
		"parallel_tool_calls": passes(`true`, `false`),
		"text": all(refused(`{"format":{"type":"xml"}}`, `{"format":{"type":"json_schema"}}`), passes(`{"verbosity":"low"}`), []trial{
			shows(`{"format":{"type":"json_schema","name":"x","schema":{"type":"object"}}}`, format, &dflash.Format{Schema: json.RawMessage(`{"type":"object"}`)}),
			shows(`{"format":{"type":"json_object"}}`, format, &dflash.Format{JSON: true}),
		}),
		"reasoning":            all(refused(`{"effort":"huge"}`), []trial{shows(`{"effort":"none","summary":"auto"}`, thinks, false), shows(`{"effort":"low"}`, thinks, true)}),
		"include":              all(refused(`["file_search_call.results"]`), passes(`["reasoning.encrypted_content"]`), []trial{shows(`["message.output_text.logprobs"]`, logProbs, []any{true, 0})}),
		"top_logprobs":         all(refused(`21`), []trial{shows(`2`, logProbs, []any{true, 2})}),
		"stream":               passes(`true`, `false`),
		"previous_response_id": refused(`"resp_1"`), "conversation": refused(`"conv_1"`), "background": all(refused(`true`), passes(`false`)), "prompt": refused(`{"id":"x"}`),
		"max_tool_calls": refused(`3`), "context_management": refused(`[{"type":"compaction"}]`), "moderation": refused(`{"model":"x"}`),
		"truncation": all(refused(`"auto"`), passes(`"disabled"`)), "godflash": extension(),
	}
	maps.Copy(m, sampled())
	return m
}

func messagesTrials() map[string][]trial {
	m := map[string][]trial{
		"messages": refused(
			`null`, `[]`, `[7]`, `[{"role":"user"}]`, `[{"role":"robot","content":"x"}]`, `[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]`,
			`[{"role":"user","content":[{"type":"image"}]}]`, `[{"role":"user","content":[{"type":"tool_result","tool_use_id":"x"}]}]`),
		"system": all(refused(`7`, `[{"type":"image"}]`), []trial{
			shows(`"s"`, func(r dflash.Request) any { return r.Messages[0].Content }, "s"),
			shows(`[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"type":"ephemeral"}}]`, func(r dflash.Request) any { return r.Messages[0].Content }, "ab"),
		}),
		"max_tokens":     all(refused(`0`, `null`), []trial{shows(`5`, maxToken, 5)}),
		"top_k":          {shows(`40`, sampling, dflash.Sampling{TopK: 40})},
		"stop_sequences": all(refused(`[""]`), []trial{shows(`["a"]`, stop, []string{"a"})}),
		"stream":         passes(`true`, `false`),
		"thinking": all(refused(`{"type":"maybe"}`, `{"type":"enabled","budget_tokens":0}`), []trial{
			shows(`null`, thinks, false), shows(`{"type":"disabled"}`, thinks, false), shows(`{"type":"adaptive"}`, thinks, true),
			shows(`{"type":"enabled","budget_tokens":1024}`, func(r dflash.Request) any { return r.ThinkingBudget }, 1024),
		}),
		"tools": all(refused(`[{"type":"web_search_20250305","name":"web_search"}]`, `[{"name":"f"}]`), []trial{shows(`[`+claude+`]`, tools, fn)}),
		"tool_choice": all(refused(`{"type":"any"}`, `{"type":"tool","name":"f"}`, `{"type":"maybe"}`), []trial{
			with(claudes, shows(`{"type":"any"}`, choice, dflash.ToolChoice{Required: true})), with(claudes, shows(`{"type":"tool","name":"f"}`, choice, dflash.ToolChoice{Name: "f"})),
			with(claudes, shows(`{"type":"none"}`, choice, dflash.ToolChoice{None: true})), with(claudes, shows(`{"type":"auto"}`, choice, dflash.ToolChoice{})),
			with(claudes, trial{value: `{"type":"tool"}`, status: 400}),
		}),
		"output_config": all(refused(`{"format":{"type":"json_schema"}}`), passes(`{"effort":"low"}`), []trial{
			shows(`{"format":{"type":"json_schema","schema":{"type":"object"}}}`, format, &dflash.Format{Schema: json.RawMessage(`{"type":"object"}`)}),
		}),
		"output_format": {shows(`{"type":"json_schema","schema":{"type":"object"}}`, format, &dflash.Format{Schema: json.RawMessage(`{"type":"object"}`)})},
		"mcp_servers":   refused(`[{"name":"x"}]`), "container": refused(`"x"`), "context_management": refused(`{"edits":[1]}`), "godflash": extension(),
	}
	maps.Copy(m, sampled())
	return m
}

// Case 96, and docs/openai.md: each of its rows is tried, and nothing is tried
// that is not in it.
func TestParameters(t *testing.T) {
	doc, err := os.ReadFile("../../docs/openai.md")
	require.NoError(t, err)
	chat := rows(t, string(doc), "## Chat completions")
	for _, c := range []struct {
		heading, path string
		base          object
		trials        map[string][]trial
		rows          []string
	}{
		{"## Chat completions", chatPath, object{"messages": user("hi")}, chatTrials(), chat},
		{"## Completions", "/v1/completions", object{"prompt": "hi"}, completionTrials(), append(rows(t, string(doc), "## Completions"), shared(chat)...)},
		{"## Responses", "/v1/responses", object{"input": "hi"}, responsesTrials(), rows(t, string(doc), "## Responses")},
		{"## Messages", "/v1/messages", object{"messages": user("hi"), "max_tokens": 9}, messagesTrials(), rows(t, string(doc), "## Messages")},
	} {
		t.Run(c.path, func(t *testing.T) {
			slices.Sort(c.rows)
			require.Equal(t, slices.Sorted(maps.Keys(c.trials)), slices.Compact(c.rows), "the table under %s in docs/openai.md", c.heading)
			engine := &dflashtest.Engine{}
			w := serve(t, engine, openai.Options{})
			for name, trials := range c.trials {
				for _, trial := range trials {
					body := maps.Clone(c.base)
					maps.Copy(body, trial.also)
					body[name] = json.RawMessage(trial.value)
					text, err := json.Marshal(body)
					if err != nil { // numbers that Go does not write
						text = []byte(strings.Replace(`{"messages":[{"role":"user","content":"hi"}],"prompt":"hi","input":"hi","max_tokens":9,"NAME":VALUE}`, `"NAME":VALUE`, `"`+name+`":`+trial.value, 1))
					}
					before := len(engine.Requests())
					a := w.post(c.path, string(text))
					if trial.status != 0 {
						require.Equal(t, trial.status, a.status, "%s: %s %s", name, text, a.text)
						message := at(t, a.json(t), "error", "message").(string)
						require.NotEmpty(t, message)
						if c.path != "/v1/messages" {
							blamed, _ := at(t, a.json(t), "error", "param").(string)
							require.Regexp(t, "^("+name+`\b|max_completion_tokens|stream_options|prompt|messages|`+`$)`, blamed, "%s: %s", text, a.text)
						}
						require.Len(t, engine.Requests(), before)
						continue
					}
					require.Equal(t, 200, a.status, "%s: %s %s", name, text, a.text)
					if trial.shows != nil {
						require.EqualValues(t, trial.want, trial.shows(asked(t, engine)), "%s", text)
					}
				}
			}
		})
	}
}

// rows are the parameters in the table under a heading.
func rows(t *testing.T, doc, heading string) (names []string) {
	t.Helper()
	_, section, ok := strings.Cut(doc, heading+"\n")
	require.True(t, ok, heading)
	section, _, _ = strings.Cut(section, "\n## ")
	_, table, ok := strings.Cut(section, "| parameter | |\n| --- | --- |\n")
	require.True(t, ok, heading)
	for line := range strings.SplitSeq(table, "\n") {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cell := strings.Split(line, "|")[1]
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			names = append(names, name[1])
		}
	}
	require.NotEmpty(t, names)
	return names
}

// shared are the parameters of chat completions that completions take, too.
func shared(chat []string) (names []string) {
	own := []string{
		"messages", "tools", "tool_choice", "parallel_tool_calls", "reasoning_effort", "enable_thinking", "chat_template_kwargs", "thinking_budget", "top_logprobs",
		"functions", "function_call", "audio", "modalities", "web_search_options", "continue_final_message", "add_generation_prompt", "documents", "chat_template",
	}
	for _, name := range chat {
		if !slices.Contains(own, name) {
			names = append(names, name)
		}
	}
	return names
}

// Clients send names of their own, and null for what they do not want.
func TestUnknownParameters(t *testing.T) {
	w, engine := script(t)
	a := w.post(chatPath, ask(object{"user": "u", "store": true, "metadata": object{"a": "b"}, "prompt_cache_key": "k", "x_new": []int{1}, "tools": nil, "stop": nil, "n": nil, "response_format": nil, "max_tokens": nil}))
	require.Equal(t, 200, a.status, a.text)
	require.Zero(t, asked(t, engine).MaxTokens)
}
