package dflash_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
)

// person is a schema whose values have an end even where random weights write
// them.
const person = `{"type":"object","properties":{
	"name":{"type":"string","minLength":1,"maxLength":6},
	"age":{"type":"integer","minimum":0,"maximum":130},
	"tags":{"type":"array","items":{"enum":["a","bb","ccc"]},"maxItems":3},
	"of":{"anyOf":[{"type":"null"},{"type":"boolean"},{"type":"string","pattern":"^[xyz]{2,4}$"}]}},
	"required":["name","age","of"],"additionalProperties":false}`

// valid is an independent validator's word on a text.
func valid(t testing.TB, schema, text string) error {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("test.json", parsed))
	s, err := c.Compile("test.json")
	require.NoError(t, err)
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(value)
}

func schema(s string) *dflash.Format { return &dflash.Format{Schema: json.RawMessage(s)} }

// Cases 92 and 93: random weights, whose drafts the grammar mostly refuses, write
// valid values at every block length, greedy and drawn, and the same ones with
// drafts and without.
func TestSchemaRandomWeights(t *testing.T) {
	for name, make := range map[string]func(testing.TB, string, fixture.Options) fixture.Spec{"dense": fixture.Rand, "gated delta": fixture.GDN} {
		t.Run(name, func(t *testing.T) {
			spec := make(t, t.TempDir(), fixture.Options{Seed: 51})
			s := newSession(t, fixturePair(t, spec, fixture.DraftOptions{Seed: 52, BlockSize: 16}))
			drafted := 0
			for i, sampling := range []dflash.Sampling{{}, {Temperature: 1, Seed: 5}, {Temperature: 1, Seed: 6, Rejection: true}} {
				var want string
				for _, block := range []int{1, 2, 3, 8, 16} {
					s.SetPipelined(block == 3)
					r := dflash.Request{IDs: []int{70 + i, 71}, Format: schema(person), Sampling: sampling}
					tokens, text := reply(t, s, withBlock(r, block))
					require.Equal(t, dflash.FinishStop, tokens[len(tokens)-1].Finish)
					require.NoError(t, valid(t, person, text), text)
					if want == "" || sampling.Rejection {
						want = text
					}
					require.Equal(t, want, text, "block %d", block)
					drafted += s.Stats().Drafted
				}
			}
			require.Positive(t, drafted)
		})
	}
}

// Where the budget ends a value, the reason is length and the text is the
// beginning of one.
func TestSchemaLength(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 53})
	s := newSession(t, fixturePair(t, spec, fixture.DraftOptions{Seed: 54}))
	r := dflash.Request{IDs: []int{70, 71}, Format: schema(person)}
	_, whole := run(t, s, r)
	require.NoError(t, valid(t, person, whole))
	for n := 1; n < len(whole); n += 3 { // a token is a byte
		r.MaxTokens = n
		tokens, text := reply(t, s, r)
		require.Equal(t, dflash.FinishLength, tokens[len(tokens)-1].Finish)
		require.True(t, strings.HasPrefix(whole, strings.TrimRight(text, "\uFFFD")), "%q and %q", whole, text)
	}
}

// Case 92: the grammar refuses every draft of a whole generation.
func TestSchemaDraftsAgainstGrammar(t *testing.T) {
	spec := fixture.Const(t, t.TempDir(), 'x', fixture.Options{})
	s := newSession(t, openDir(t, spec.Dir, dflash.Options{Draft: spec.Draft}))
	const letters = `{"type":"array","items":{"type":"integer","minimum":1,"maximum":99},"minItems":5,"maxItems":5}`
	// By rejection the drafter's own drafts are tried, else allowed ones in their
	// place.
	for _, sampling := range []dflash.Sampling{{}, {Temperature: 1, Seed: 2, Rejection: true}} {
		tokens, text := reply(t, s, dflash.Request{IDs: []int{1, 2, 3}, Format: schema(letters), BlockSize: 8, Sampling: sampling})
		require.NoError(t, valid(t, letters, text))
		require.Greater(t, s.Stats().Drafted, len(tokens))
		if sampling.Rejection {
			require.Zero(t, s.Stats().Accepted)
		}
	}
}

// A tiny pair writes what the schema says, its drafts help, and drafting does
// not change a token.
func TestSchemaPair(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair, func(t *testing.T) {
			s := newSession(t, open(t, pair, dflash.Options{}))
			for _, sampling := range []dflash.Sampling{{}, {Temperature: 1, Seed: 3}} {
				r := dflash.Request{Prompt: "Name a person.", Thinking: new(false), Format: schema(person), Sampling: sampling, BlockSize: 16}
				tokens, text := reply(t, s, r)
				require.NoError(t, valid(t, person, text))
				require.Equal(t, text, message(tokens).Content)
				t.Logf("%.2f tokens per cycle", s.Stats().TokensPerCycle())
				require.Greater(t, s.Stats().TokensPerCycle(), 1.1) // without Forced it is 1
				r.NoDraft, r.BlockSize = true, 0
				plain, _ := reply(t, s, r)
				require.Equal(t, idsOf(plain), idsOf(tokens))
			}
		})
	}
}

// The thought is free, the content after it is not.
func TestFormatAfterThought(t *testing.T) {
	s := newSession(t, open(t, "tiny-qwen3.5", dflash.Options{}))
	r := dflash.Request{Prompt: "Write F.", Format: &dflash.Format{JSON: true}, ThinkingBudget: 9, MaxTokens: 120}
	tokens, text := reply(t, s, r)
	thought, content, ok := strings.Cut(text, "</think>")
	require.True(t, ok)
	require.NotEmpty(t, thought)
	require.Equal(t, 9, s.Stats().ReasoningTokens-s.Stats().ForcedTokens+1, "%+v", s.Stats())
	content = strings.TrimLeft(content, "\n")
	require.True(t, strings.HasPrefix(content, "{"), content)
	require.Equal(t, content, message(tokens).Content)
	if s.Stats().Finish == dflash.FinishStop {
		require.NoError(t, json.Unmarshal([]byte(content), new(map[string]any)))
	}
	r.NoDraft, r.BlockSize = true, 0
	plain, _ := reply(t, s, r)
	require.Equal(t, idsOf(plain), idsOf(tokens))
}

var lookup = json.RawMessage(`{"type":"function","function":{"name":"lookup","parameters":{"type":"object","properties":{
	"word":{"type":"string"},"max":{"type":"integer","minimum":1,"maximum":9},"where":{"type":"string","enum":["here","there"]}},"required":["max","where"]}}}`)

// A strict call names an offered tool and has the arguments that its schema
// wants, in the form of the model's family.
func TestStrictTools(t *testing.T) {
	for _, pair := range pairs {
		t.Run(pair, func(t *testing.T) {
			s := newSession(t, open(t, pair, dflash.Options{}))
			for seed := range uint64(3) {
				r := dflash.Request{
					Prompt: "Look.", Tools: []json.RawMessage{lookup}, ToolChoice: dflash.ToolChoice{Required: true}, Format: &dflash.Format{StrictTools: true},
					Sampling: dflash.Sampling{Temperature: 1.2, Seed: seed + 1}, MaxTokens: 300, LogitBias: map[int]float64{},
				}
				tokens, text := reply(t, s, r)
				if !strings.Contains(text, "</tool_call>") {
					require.Equal(t, dflash.FinishLength, s.Stats().Finish)
					continue
				}
				m := message(tokens)
				require.NotEmpty(t, m.ToolCalls, text)
				for _, call := range m.ToolCalls {
					require.Equal(t, "lookup", call.Name)
					var args struct {
						Max   int
						Where string
					}
					require.NoError(t, json.Unmarshal(call.Arguments, &args), "%s", call.Arguments)
					require.True(t, args.Max >= 1 && args.Max <= 9, "%s", call.Arguments)
					require.Contains(t, []string{"here", "there"}, args.Where)
				}
				r.NoDraft, r.BlockSize = true, 0
				plain, _ := reply(t, s, r)
				require.Equal(t, idsOf(plain), idsOf(tokens))
			}
		})
	}
}

// What a request may not ask of the format is refused before any work.
func TestFormatRefused(t *testing.T) {
	e := open(t, "tiny-qwen3", dflash.Options{})
	s := newSession(t, e)
	run(t, s, dflash.Request{IDs: []int{70}, MaxTokens: 3})
	for i, c := range []struct {
		r    dflash.Request
		kind error
		say  string
	}{
		{dflash.Request{Prompt: "x", Format: &dflash.Format{}}, dflash.ErrRequest, "asks for nothing"},
		{dflash.Request{Prompt: "x", Format: &dflash.Format{JSON: true, Schema: json.RawMessage(`{}`)}}, dflash.ErrRequest, "both"},
		{dflash.Request{Prompt: "x", Format: schema(`{"not":{}}`)}, dflash.ErrUnsupported, `"#/not": the keyword not`},
		{dflash.Request{Prompt: "x", Format: schema(`{"type":3}`)}, dflash.ErrRequest, "type"},
		{dflash.Request{Prompt: "x", Format: schema(``)}, dflash.ErrRequest, "schema"},
		{dflash.Request{Prompt: "x", Format: schema(`{`)}, dflash.ErrRequest, "schema"},
		{dflash.Request{Prompt: "x", Format: schema(`{}`), IgnoreEOS: true}, dflash.ErrRequest, "IgnoreEOS"},
		{dflash.Request{Continue: true, Format: schema(`{}`)}, dflash.ErrUnsupported, "goes on"},
		{dflash.Request{Prompt: "x", Format: &dflash.Format{StrictTools: true}}, dflash.ErrRequest, "without Tools"},
	} {
		for _, err := range s.Generate(t.Context(), c.r) {
			require.ErrorIs(t, err, c.kind, fmt.Sprint(i))
			require.ErrorContains(t, err, c.say)
		}
	}
}

// Without calls there is nothing to be strict about; a value and strict calls go
// together.
func TestStrictToolsBeside(t *testing.T) {
	s := newSession(t, open(t, "tiny-qwen3", dflash.Options{}))
	r := dflash.Request{Prompt: "x", MaxTokens: 4, Tools: []json.RawMessage{lookup}, Format: &dflash.Format{StrictTools: true}, ToolChoice: dflash.ToolChoice{None: true}}
	none, _ := reply(t, s, r)
	r.Format = nil
	free, _ := reply(t, s, r)
	require.Equal(t, idsOf(free), idsOf(none))

	r = dflash.Request{Prompt: "x", Thinking: new(false), Tools: []json.RawMessage{lookup}, Format: &dflash.Format{StrictTools: true, Schema: json.RawMessage(person)}, MaxTokens: 200}
	tokens, text := reply(t, s, r)
	if m := message(tokens); len(m.ToolCalls) == 0 {
		require.NoError(t, valid(t, person, text), text)
	} else {
		require.Empty(t, m.Content)
	}
	r.ToolChoice.Required = true
	tokens, text = reply(t, s, r)
	require.True(t, strings.HasPrefix(text, "<tool_call>"), text)
	require.NotEmpty(t, message(tokens).ToolCalls, text)
}

// A session goes on after a value: the next prompt begins a new one.
func TestFormatContinue(t *testing.T) {
	e := open(t, "tiny-qwen3.5", dflash.Options{})
	s := newSession(t, e)
	r := dflash.Request{Prompt: "Name a person.", Thinking: new(false), Format: schema(person), BlockSize: 8}
	_, first := reply(t, s, r)
	require.NoError(t, valid(t, person, first))
	r.Prompt, r.Continue = "Another.", true
	second, text := reply(t, s, r)
	require.NoError(t, valid(t, person, text))
	fresh := newSession(t, e)
	again, _ := reply(t, fresh, dflash.Request{IDs: s.Tokens()[:len(s.Tokens())-len(second)], Format: schema(person), NoDraft: true})
	require.Equal(t, idsOf(second), idsOf(again))
}
