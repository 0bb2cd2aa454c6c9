package grammar

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// testVocab has every byte and longer tokens of the kind that merging makes,
// also such that begin or end inside a character or hold several of JSON's
// tokens.
var testVocab = func() *Vocab {
	texts := []string{
		`{"`, `":`, `": `, `",`, `", "`, `"}`, `"]`, `}}`, `]}`, `},`, `[{`, `[]`, `{}`, `[[`, `"a"`, `ab`, `abc`, `name`, `"name":`,
		"true", "false", "null", "tr", "ue", "\n", "\n\n", "\n  ", "\n    \"", "  ", "    ", " {", " [", ` "`, `, "`, `,"`, `\n`, `\"`, `\u`, `\ud8`, "12", "123", "0.", ".5", "-1", "e1", `1,`, `1}`, `0]`,
		"ä", "\xc3", "\xa4\"", "日", "\xe6\x97", "\xa5本", "😀", "\xf0\x9f", "</", "think", ">\n\n", ">{", "tool_call", "<tool_call", "parameter", "</parameter>\n", "\n</", "=city>\n",
	}
	texts = append(texts, strings.Repeat(" ", 16), strings.Repeat("a", 40))
	tags := []string{"<think>", "</think>", "<tool_call>", "</tool_call>"}
	return NewVocab(256+len(texts)+len(tags)+3, func(id int) Token {
		switch rest := id - 256; {
		case rest < 0:
			return Token{string([]byte{byte(id)}), Ordinary}
		case rest < len(texts):
			return Token{texts[rest], Ordinary}
		case rest < len(texts)+len(tags):
			return Token{tags[rest-len(texts)], Tag}
		case rest == len(texts)+len(tags):
			return Token{"<|im_start|>", Control}
		case rest == len(texts)+len(tags)+1:
			return Token{"<|im_end|>", End}
		}
		return Token{} // a row that stands for nothing
	})
}()

func machine(t testing.TB, r Reply) *Machine {
	t.Helper()
	f, err := Compile(r)
	require.NoError(t, err, "%s", r.Schema)
	return NewMachine(f, testVocab)
}

// judge is an independent validator.
func judge(t testing.TB, schema string) func(text string) error {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(schema))
	require.NoError(t, err, schema)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	require.NoError(t, c.AddResource("test.json", parsed))
	s, err := c.Compile("test.json")
	require.NoError(t, err, schema)
	return func(text string) error {
		if !utf8.ValidString(text) {
			return fmt.Errorf("not UTF-8: %q", text)
		}
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			return err
		}
		return s.Validate(v)
	}
}

func has(words []uint32, id int) bool { return words == nil || words[id/32]>>(id%32)&1 == 1 }

// walk draws tokens from the masks until the text ends, and says whether it did.
// Later on it prefers what closes.
func walk(t testing.TB, m *Machine, rng *rand.Rand, limit int) (text string, ended bool) {
	t.Helper()
	s := m.Start()
	var b strings.Builder
	for step := range limit {
		words := m.Mask(s)
		var allowed, closing, end []int
		for id, token := range m.vocab.tokens {
			if !has(words, id) {
				continue
			}
			switch {
			case token.Kind == End:
				end = append(end, id)
			case strings.ContainsAny(token.Bytes, `"]}>`):
				closing = append(closing, id)
				fallthrough
			default:
				allowed = append(allowed, id)
			}
		}
		require.NotZero(t, len(allowed)+len(end), "a dead end after %q", b.String())
		switch {
		case len(end) > 0 && (len(allowed) == 0 || step > 20 || rng.IntN(4) == 0):
			_, ok := m.Advance(s, end[0])
			require.True(t, ok)
			return b.String(), true
		case len(closing) > 0 && (step > 60 || rng.IntN(4) == 0):
			allowed = closing
		}
		id := allowed[rng.IntN(len(allowed))]
		b.WriteString(m.vocab.tokens[id].Bytes)
		next, ok := m.Advance(s, id)
		require.True(t, ok, "the mask has %q after %q", m.vocab.tokens[id].Bytes, b.String())
		s = next
	}
	return b.String(), false
}

// accepts reads a text in tokens drawn at random from those that fit, and says
// whether all of them and the end are in the masks.
func accepts(t testing.TB, m *Machine, rng *rand.Rand, text string) bool {
	t.Helper()
	s := m.Start()
	for rest := text; rest != ""; {
		var fit []int
		for id, token := range m.vocab.tokens {
			if token.Kind == Ordinary && strings.HasPrefix(rest, token.Bytes) {
				fit = append(fit, id)
			}
		}
		id := fit[rng.IntN(len(fit))]
		inMask := has(m.Mask(s), id)
		next, ok := m.Advance(s, id)
		require.Equal(t, inMask, ok, "mask and step disagree on %q before %q", m.vocab.tokens[id].Bytes, rest)
		if !ok {
			return false
		}
		s, rest = next, rest[len(m.vocab.tokens[id].Bytes):]
	}
	return s.Accepts()
}

// sampled is a schema together with a function that draws values of it, which
// knows nothing of the machine.
type sampled struct {
	schema string
	draw   func() string
}

// drawSchema makes a schema of random keywords. defs collects what recursive
// ones refer to.
func drawSchema(rng *rand.Rand, depth int) sampled {
	n := 12
	if depth == 0 {
		n = 7
	}
	word := func() string {
		letters := []string{"a", "b", "ab", "name", "ä", "😀", `"`, `\`, "\n", "日", " ", "x"}
		var b strings.Builder
		for range rng.IntN(5) {
			b.WriteString(letters[rng.IntN(len(letters))])
		}
		return b.String()
	}
	switch rng.IntN(n) {
	case 0:
		return sampled{`{"type":["null","boolean"],"title":"t"}`, func() string { return []string{"null", "true", "false"}[rng.IntN(3)] }}
	case 1:
		low, span := rng.IntN(2000)-1000, rng.IntN(300)
		return sampled{fmt.Sprintf(`{"type":"integer","minimum":%d,"exclusiveMaximum":%d}`, low, low+span+1), func() string { return fmt.Sprint(low + rng.IntN(span+1)) }}
	case 2:
		low := rng.Float64()*20 - 10
		return sampled{fmt.Sprintf(`{"type":"number","exclusiveMinimum":%.3f,"maximum":%.2f}`, low, low+5), func() string { return fmt.Sprintf("%.4f", low+0.01+rng.Float64()*4.9) }}
	case 3:
		low := rng.IntN(3)
		high := low + rng.IntN(4)
		return sampled{fmt.Sprintf(`{"type":"string","minLength":%d,"maxLength":%d}`, low, high), func() string {
			var b strings.Builder
			for range low + rng.IntN(high-low+1) {
				b.WriteString([]string{"a", "é", "日", "😀", `\n`, `\u00e4`, `\ud83d\ude00`, `\"`}[rng.IntN(8)])
			}
			return `"` + b.String() + `"`
		}}
	case 4:
		return sampled{`{"type":"string","pattern":"^[a-c]{1,3}(-[0-9]+)?$"}`, func() string {
			s := strings.Repeat("b", 1+rng.IntN(3))
			if rng.IntN(2) == 0 {
				s += fmt.Sprintf("-%d", rng.IntN(1000))
			}
			return `"` + s + `"`
		}}
	case 5:
		list := []string{quote(word()), "1", "null", `["x",2]`, `{"b":1,"a":[]}`, "-0.5"}[rng.IntN(3):]
		return sampled{`{"enum":[` + strings.Join(list, ",") + `]}`, func() string { return list[rng.IntN(len(list))] }}
	case 6:
		return sampled{`{"type":"string"}`, func() string { return quote(word()) }}
	case 7, 8:
		var properties, required []string
		var draws []func() string
		names := []string{"a", "name", "ab", "é\n", "z"}
		rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		names = names[:rng.IntN(5)]
		needed := map[int]bool{}
		for i, name := range names {
			inner := drawSchema(rng, depth-1)
			properties = append(properties, quote(name)+":"+inner.schema)
			draws = append(draws, inner.draw)
			if needed[i] = rng.IntN(2) == 0; needed[i] {
				required = append(required, quote(name))
			}
		}
		others := []string{`false`, `{"type":"integer"}`}[rng.IntN(2)]
		return sampled{`{"type":"object","properties":{` + strings.Join(properties, ",") + `},"required":[` + strings.Join(required, ",") + `],"additionalProperties":` + others + `}`, func() string {
			var members []string
			for i, name := range names {
				if needed[i] || rng.IntN(2) == 0 {
					members = append(members, quote(name)+": "+draws[i]())
				}
			}
			if others != "false" {
				for i := range rng.IntN(3) {
					members = append(members, quote(fmt.Sprint("n", i, word()))+":"+fmt.Sprint(i))
				}
			}
			return "{" + strings.Join(members, ", ") + "}"
		}}
	case 9:
		inner := drawSchema(rng, depth-1)
		low := rng.IntN(3)
		high := low + rng.IntN(3)
		return sampled{fmt.Sprintf(`{"type":"array","items":%s,"minItems":%d,"maxItems":%d}`, inner.schema, low, high), func() string {
			var items []string
			for range low + rng.IntN(high-low+1) {
				items = append(items, inner.draw())
			}
			return "[" + strings.Join(items, ", ") + "]"
		}}
	case 10:
		a, b, rest := drawSchema(rng, depth-1), drawSchema(rng, depth-1), drawSchema(rng, depth-1)
		low := rng.IntN(4)
		return sampled{fmt.Sprintf(`{"type":"array","prefixItems":[%s,%s],"items":%s,"minItems":%d}`, a.schema, b.schema, rest.schema, low), func() string {
			var items []string
			for i := range low + rng.IntN(3) {
				items = append(items, []func() string{a.draw, b.draw, rest.draw}[min(i, 2)]())
			}
			return "[" + strings.Join(items, ",") + "]"
		}}
	}
	a, b := drawSchema(rng, depth-1), drawSchema(rng, depth-1)
	return sampled{`{"anyOf":[` + a.schema + `,` + b.schema + `]}`, func() string {
		if rng.IntN(2) == 0 {
			return a.draw()
		}
		return b.draw()
	}}
}

// Both directions, with an independent validator between: what the masks allow
// validates, and what is drawn from the schema is allowed. A text that is changed
// a little is only allowed where it still validates.
func TestAgainstJudge(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	ended, changed, refused := 0, 0, 0
	for range 250 {
		c := drawSchema(rng, 3)
		validate := judge(t, c.schema)
		m := machine(t, Reply{Schema: []byte(c.schema)})
		for range 6 {
			if text, ok := walk(t, m, rng, 400); ok {
				ended++
				require.NoError(t, validate(text), "%s\n%s", c.schema, text)
			}
			text := c.draw()
			require.NoError(t, validate(text), "the test draws a wrong value for %s: %s", c.schema, text)
			require.True(t, accepts(t, m, rng, text), "%s\n%s", c.schema, text)
			if accepts(t, m, rng, mutate(rng, text)) {
				changed++
			}
			mutant := mutate(rng, text)
			if accepts(t, m, rng, mutant) {
				require.NoError(t, validate(mutant), "%s\n%s", c.schema, mutant)
			} else {
				refused++
			}
		}
	}
	require.Greater(t, ended, 1300)
	require.Positive(t, changed)
	require.Greater(t, refused, 500)
}

// mutate changes a text at one place.
func mutate(rng *rand.Rand, text string) string {
	at := rng.IntN(len(text))
	size := min(len(text)-at, rng.IntN(3))
	put := []string{"", "1", `"`, "}", ",", "a", " ", `\`, "-", "ä", `"a":1,`, "\x80"}
	return text[:at] + put[rng.IntN(len(put))] + text[at+size:]
}

// Masks, which are put together from parts that are kept, say the same as
// reading each token by itself.
func TestMaskIsStep(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, r := range replies(t) {
		m := machine(t, r)
		for range 6 {
			s := m.Start()
			for range 60 {
				words := m.Mask(s)
				var allowed []int
				for id := range m.vocab.tokens {
					_, ok := m.Advance(s, id)
					require.Equal(t, ok, has(words, id), "%q", m.vocab.tokens[id].Bytes)
					if ok && m.vocab.tokens[id].Kind != End {
						allowed = append(allowed, id)
					}
				}
				if len(allowed) == 0 {
					break
				}
				s, _ = m.Advance(s, allowed[rng.IntN(len(allowed))])
			}
		}
	}
}

// replies are forms of all kinds.
func replies(t testing.TB) []Reply {
	t.Helper()
	schema := []byte(`{"type":"object","properties":{"name":{"type":"string","maxLength":60},"list":{"type":"array","items":{"$ref":"#"},"maxItems":50},"x":{"type":["number","null"]}},"required":["name"],"additionalProperties":true}`)
	long := []byte(`{"type":"string","minLength":50,"maxLength":55}`) // longer than the longest token
	tools := []Tool{
		{Name: "get", Parameters: []byte(`{"type":"object","properties":{"city":{"type":"string"},"n":{"type":"integer","maximum":99},"unit":{"enum":["C","F"]}},"required":["city"]}`)},
		{Name: "time"},
	}
	var out []Reply
	for _, thought := range []Thought{NoThought, MayThink, OpenThought} {
		out = append(out, Reply{JSON: true, Thought: thought}, Reply{Schema: schema, Thought: thought})
		out = append(out, Reply{Schema: long, Thought: thought})
		for _, form := range []ToolForm{CallJSON, CallXML} {
			out = append(out, Reply{Tools: tools, ToolForm: form, Thought: thought}, Reply{Tools: tools, ToolForm: form, Thought: thought, Schema: schema})
		}
	}
	return out
}

// Random objects of any kind are JSON, and Go's own encoder agrees with the
// machine on what JSON is.
func TestJSONObject(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	m := machine(t, Reply{JSON: true})
	ended := 0
	for range 300 {
		text, ok := walk(t, m, rng, 600)
		if !ok {
			continue
		}
		ended++
		var v map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	}
	require.Greater(t, ended, 200)
	var value func(depth int) any
	value = func(depth int) any {
		switch n := rng.IntN(7); {
		case n == 0:
			return nil
		case n == 1:
			return rng.IntN(2) == 0
		case n == 2:
			return rng.NormFloat64() * 1e6
		case n == 3 || depth == 0:
			return string([]rune{rune(rng.IntN(0xd800)), rune(rng.IntN(0x80)), 0x1f600})
		case n == 4:
			list := []any{}
			for range rng.IntN(4) {
				list = append(list, value(depth-1))
			}
			return list
		}
		object := map[string]any{}
		for range rng.IntN(4) {
			object[fmt.Sprint(value(0))] = value(depth - 1)
		}
		return object
	}
	for range 300 {
		v, ok := value(4).(map[string]any)
		if !ok {
			continue
		}
		compact, err := json.Marshal(v)
		require.NoError(t, err)
		require.True(t, accepts(t, m, rng, string(compact)), "%s", compact)
		indented, err := json.MarshalIndent(v, "", "  ")
		require.NoError(t, err)
		require.True(t, accepts(t, m, rng, string(indented)), "%s", indented)
	}
	for _, text := range []string{``, `[]`, `1`, `{"a":01}`, `{"a":1,}`, `{"a" :1}`, `{a:1}`, `{"a":"\x"}`, `{"a":"\ud800"}`, `{"a":"\udc00"}`, "{\"a\":\"\n\"}", `{"a":1}}`, `{"a":1} `, "{\"a\":\"\xff\"}", "{\"a\":\"\xed\xa0\x80\"}", `{"a":1e400}`, "{  }", `{"a":tru}`} {
		require.False(t, accepts(t, m, rng, text), "%q", text)
	}
}
