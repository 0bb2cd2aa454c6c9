package grammar

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Every supported keyword, with texts written down by hand. The validator agrees
// with what is allowed, and with what is not unless it is only left out: see
// docs/structured.md.
func TestKeywords(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, c := range []struct {
		schema     string
		yes        []string
		no         []string
		left       []string // valid, but never written
		vocabulary bool
	}{
		{schema: `true`, yes: []string{`1`, `{"a":[null]}`, `"x"`, `[]`}, no: []string{``, `x`, `[1`}},
		{schema: `{"title":"t","description":"d","default":1,"examples":[1],"$comment":"c","deprecated":true,"readOnly":true,"writeOnly":false,"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://example.org/a"}`, yes: []string{`2`}},
		{schema: `{"type":"null"}`, yes: []string{`null`}, no: []string{`0`, `"null"`, `nul`}},
		{schema: `{"type":"boolean"}`, yes: []string{`true`, `false`}, no: []string{`1`, `True`}},
		{schema: `{"type":"integer"}`, yes: []string{`0`, `-7`, `123456789012345678`}, no: []string{`1.5`, `01`, `"1"`, `-`}, left: []string{`1.0`, `1e3`, `-0`, `1234567890123456789`}},
		{schema: `{"type":"number"}`, yes: []string{`0`, `-7.25`, `1e3`, `1.5E-10`, `-0`}, no: []string{`.5`, `1.`, `+1`, `1e`}, left: []string{`1e100`, `0.12345678901234567`}},
		{schema: `{"type":["string","integer"]}`, yes: []string{`"a"`, `5`}, no: []string{`null`, `1.5`}},
		{schema: `{"type":"string"}`, yes: []string{`""`, `"aä日😀"`, `"\"\\\/\b\f\n\r\t\u00e4\ud83d\ude00"`}, no: []string{`"`, `"\x"`, `'a'`, "\"\x01\"", "\"\xc0\x80\""}, left: []string{`"\ud83d"`}},
		{schema: `{"type":"string","minLength":2,"maxLength":3}`, yes: []string{`"ab"`, `"日本語"`, `"\n\u0041"`, `"😀\ud83d\ude00"`}, no: []string{`"a"`, `"abcd"`, `"😀"`}},
		{schema: `{"minLength":2}`, yes: []string{`"ab"`, `1`, `[]`}, no: []string{`"a"`}},
		{schema: `{"type":"string","pattern":"^a+$"}`, yes: []string{`"a"`, `"aaaa"`}, no: []string{`""`, `"ab"`}, left: []string{`"\u0061"`}},
		{schema: `{"type":"string","pattern":"b"}`, yes: []string{`"b"`, `"\"ab日"`}, no: []string{`"a"`}},
		{schema: `{"type":"string","pattern":"^[ab]+$","minLength":2,"maxLength":3}`, yes: []string{`"ab"`, `"aba"`}, no: []string{`"a"`, `"abab"`, `"ac"`}},
		{schema: `{"allOf":[{"type":"string","pattern":"^a"},{"pattern":"z$"}]}`, yes: []string{`"az"`, `"abz"`}, no: []string{`"a"`, `"z"`, `1`}},
		{schema: `{"type":"string","format":"date"}`, yes: []string{`"2024-02-29"`, `"2000-02-29"`, `"2023-12-31"`}, no: []string{`"2023-02-29"`, `"1900-02-29"`, `"2023-13-01"`, `"2023-04-31"`, `"2023-1-1"`}},
		{schema: `{"type":"string","format":"time"}`, yes: []string{`"23:59:59Z"`, `"00:00:00.25+01:30"`}, no: []string{`"24:00:00Z"`, `"12:00"`, `"12:00:00"`}},
		{schema: `{"type":"string","format":"date-time"}`, yes: []string{`"2024-02-29T12:00:00Z"`}, no: []string{`"2024-02-29 12:00:00Z"`, `"2024-02-30T12:00:00Z"`}},
		{schema: `{"type":"string","format":"uuid"}`, yes: []string{`"123e4567-e89b-12d3-a456-426614174000"`}, no: []string{`"123e4567"`}},
		{schema: `{"type":"string","format":"email"}`, yes: []string{`"a.b+c@example.org"`}, no: []string{`"a"`, `"a@"`, `"a@b@c.de"`}},
		{schema: `{"type":"string","format":"ipv4"}`, yes: []string{`"127.0.0.1"`, `"255.1.0.99"`}, no: []string{`"256.0.0.1"`, `"1.2.3"`, `"01.2.3.4"`}},
		{schema: `{"type":"string","format":"hostname"}`, yes: []string{`"a-b.example.org"`, `"localhost"`}, no: []string{`"-a.org"`, `"a..b"`, `""`}},
		{schema: `{"type":"integer","minimum":-5,"maximum":12}`, yes: []string{`-5`, `0`, `12`}, no: []string{`-6`, `13`, `100`}},
		{schema: `{"type":"number","exclusiveMinimum":0.5,"exclusiveMaximum":10}`, yes: []string{`0.51`, `9.999`, `1`}, no: []string{`0.5`, `0.50`, `10`, `10.0`, `-3`}, left: []string{`1e0`}},
		{schema: `{"type":"integer","allOf":[{"minimum":1},{"exclusiveMinimum":1},{"maximum":9},{"exclusiveMaximum":9}]}`, yes: []string{`2`, `8`}, no: []string{`1`, `9`}},
		{schema: `{"enum":["a",1,null,{"b":[true]},1.50]}`, yes: []string{`"a"`, `1`, `null`, `{"b":[true]}`, `1.50`}, no: []string{`"b"`, `2`}, left: []string{`{"b": [true]}`, `1.0`, `1.5`}},
		{schema: `{"type":"string","enum":["a",1]}`, yes: []string{`"a"`}, no: []string{`1`}},
		{schema: `{"const":{"x":"\u00e4\n"}}`, yes: []string{`{"x":"ä\n"}`}, no: []string{`{"x":"a"}`}},
		{schema: `{"type":"array"}`, yes: []string{`[]`, `[1, "a", [null]]`}, no: []string{`[1,]`, `{}`}},
		{schema: `{"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":2}`, yes: []string{`[1]`, `[1,2]`}, no: []string{`[]`, `[1,2,3]`, `["a"]`}},
		{schema: `{"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false}`, yes: []string{`[]`, `[1]`, `[1,"a"]`}, no: []string{`["a"]`, `[1,"a",2]`}},
		{schema: `{"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"null"},"minItems":2,"maxItems":3}`, yes: []string{`[1,null]`, `[1,null,null]`}, no: []string{`[1]`, `[1,1]`, `[1,null,null,null]`}},
		{schema: `{"type":"array","uniqueItems":false,"maxItems":0}`, yes: []string{`[]`}, no: []string{`[1]`}},
		{schema: `{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["b"]}`, yes: []string{`{"a":1,"b":""}`, `{"b":"x"}`, "{\n  \"a\": 1,\n  \"b\": \"\"\n}"}, no: []string{`{}`, `{"a":1}`, `{"a":"x","b":""}`}, left: []string{`{"b":"","a":1}`, `{"b":"","c":1}`}},
		{schema: `{"type":"object","properties":{"a":{}},"additionalProperties":{"type":"integer"}}`, yes: []string{`{"a":"x","b":1,"c":2}`, `{"b":1}`, `{}`, `{"":1,"aa":2}`}, no: []string{`{"b":"x"}`}, left: []string{`{"b":1,"a":"x"}`}},
		{schema: `{"type":"object","properties":{"":{"type":"null"}},"additionalProperties":{"type":"integer"}}`, yes: []string{`{"":null,"b":1}`}, no: []string{`{"":1}`}},
		{schema: `{"type":"object","required":["z"]}`, yes: []string{`{"z":[]}`}, no: []string{`{}`}, left: []string{`{"y":1,"z":1}`}},
		{schema: `{"type":"object"}`, yes: []string{`{}`, `{"x":{"y":1}}`}, no: []string{`[]`}},
		{schema: `{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":false}`, yes: []string{`{}`, `{"a":1}`}, no: []string{`{"b":1}`}},
		{schema: `{"anyOf":[{"type":"integer"},{"type":"object","properties":{"a":{}},"required":["a"]}]}`, yes: []string{`1`, `{"a":2}`}, no: []string{`"x"`, `{}`}},
		{schema: `{"type":"object","properties":{"a":{},"b":{}},"anyOf":[{"required":["a"]},{"required":["b"]}]}`, yes: []string{`{"a":1}`, `{"b":1}`, `{"a":1,"b":2}`}, no: []string{`{}`}},
		{schema: `{"oneOf":[{"type":"string"},{"type":"integer"}]}`, yes: []string{`"a"`, `1`}, no: []string{`null`}},
		{schema: `{"oneOf":[{"properties":{"k":{"const":"a"},"x":{"type":"integer"}},"required":["k","x"],"type":"object"},{"properties":{"k":{"const":"b"}},"required":["k"],"type":"object"}]}`, yes: []string{`{"k":"a","x":1}`, `{"k":"b"}`}, no: []string{`{"k":"a"}`, `{"k":"c"}`}},
		{schema: `{"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"a":{"maximum":5},"b":{"type":"null"}}}]}`, yes: []string{`{"a":5}`, `{"a":-1,"b":null}`}, no: []string{`{"a":6}`, `{"b":null}`}},
		{schema: `{"allOf":[{"type":"object","properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}}}]}`, yes: []string{`{}`, `{"a":1}`}, no: []string{`{"b":1}`}},
		{schema: `{"$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["v"]}},"$ref":"#/$defs/n"}`, yes: []string{`{"v":1}`, `{"v":1,"next":{"v":2,"next":null}}`}, no: []string{`{"next":null}`, `{"v":1,"next":{}}`}},
		{schema: `{"definitions":{"a/b":{"$ref":"#/definitions/c%20~0"},"c ~":{"type":"null"}},"type":"array","items":{"$ref":"#/definitions/a~1b"}}`, yes: []string{`[null,null]`}, no: []string{`[1]`}},
		{schema: `{"$ref":"#/$defs/a","$defs":{"a":{"type":"integer"}},"maximum":3}`, yes: []string{`3`}, no: []string{`4`, `"a"`}},
		{schema: `{"type":"object","properties":{"a":false,"b":true}}`, yes: []string{`{}`, `{"b":1}`}, no: []string{`{"a":1}`}},
	} {
		validate := judge(t, c.schema)
		m := machine(t, Reply{Schema: []byte(c.schema)})
		for _, text := range c.yes {
			require.True(t, accepts(t, m, rng, text), "%s\n%s", c.schema, text)
			require.NoError(t, validate(text), "%s", c.schema)
		}
		for _, text := range c.no {
			require.False(t, accepts(t, m, rng, text), "%s\n%s", c.schema, text)
			require.Error(t, validate(text), "%s\n%s", c.schema, text)
		}
		for _, text := range c.left {
			require.False(t, accepts(t, m, rng, text), "%s\n%s", c.schema, text)
			require.NoError(t, validate(text), "%s", c.schema)
		}
		for range 20 {
			if text, ok := walk(t, m, rng, 300); ok {
				require.NoError(t, validate(text), "%s\n%s", c.schema, text)
			}
		}
	}
	m := machine(t, Reply{Schema: []byte(`{"type":"string","nullable":true}`)}) // OpenAPI's, unknown to the validator
	require.True(t, accepts(t, m, rng, `null`))
	require.False(t, accepts(t, m, rng, `1`))
}

// What is not done is refused by its name and place, what is no schema too.
func TestRefused(t *testing.T) {
	deep := strings.Repeat(`{"items":`, 200) + `true` + strings.Repeat(`}`, 200)
	for _, c := range []struct {
		schema string
		kind   error
		say    string
	}{
		{`{"type":"integer","multipleOf":3}`, ErrUnsupported, `"#/multipleOf": the keyword multipleOf`},
		{`{"properties":{"a/b":{"not":{}}}}`, ErrUnsupported, `"#/properties/a~1b/not": the keyword not`},
		{`{"if":{}}`, ErrUnsupported, "keyword if"},
		{`{"patternProperties":{}}`, ErrUnsupported, "keyword patternProperties"},
		{`{"propertyNames":{}}`, ErrUnsupported, "keyword propertyNames"},
		{`{"dependentRequired":{}}`, ErrUnsupported, "keyword dependentRequired"},
		{`{"unevaluatedProperties":false}`, ErrUnsupported, "keyword unevaluatedProperties"},
		{`{"minProperties":1}`, ErrUnsupported, "keyword minProperties"},
		{`{"contains":{}}`, ErrUnsupported, "keyword contains"},
		{`{"uniqueItems":true}`, ErrUnsupported, "uniqueItems"},
		{`{"strange":1}`, ErrUnsupported, "keyword strange"},
		{`{"items":[{}]}`, ErrUnsupported, "prefixItems"},
		{`{"type":"string","format":"idn-email"}`, ErrUnsupported, `format "idn-email"`},
		{`{"type":"string","pattern":"a(?=b)"}`, ErrUnsupported, "look-around"},
		{`{"type":"string","pattern":"(a)\\1"}`, ErrUnsupported, "back references"},
		{`{"type":"string","pattern":"\\bx"}`, ErrUnsupported, "word borders"},
		{`{"type":"string","pattern":"(?i)x"}`, ErrUnsupported, "flags"},
		{`{"type":"string","pattern":"a^b"}`, ErrUnsupported, "^ and $"},
		{`{"type":"string","pattern":"("}`, ErrUnsupported, "( without )"},
		{`{"type":"string","pattern":"a**"}`, ErrUnsupported, "repetition"},
		{`{"type":"string","pattern":"(.{1,4000}){1,4000}"}`, ErrUnsupported, "too large"},
		{`{"type":"string","pattern":"a.{200}b|(a|b)*a(a|b){24}$"}`, ErrUnsupported, "too complex"},
		{`{"enum":["a"],"minLength":3}`, ErrUnsupported, "minLength beside enum"},
		{`{"oneOf":[{"type":"string"},{"minLength":2}]}`, ErrUnsupported, "oneOf whose alternatives 0 and 1"},
		{`{"oneOf":[{"$ref":"#"},{"$ref":"#"}]}`, ErrUnsupported, "oneOf"},
		{`{"$ref":"https://example.org/x"}`, ErrUnsupported, "$ref"},
		{`{"$ref":"#name"}`, ErrUnsupported, "$ref"},
		{`{"items":{"$id":"x"}}`, ErrUnsupported, "$id"},
		{`{"exclusiveMinimum":true,"type":"integer"}`, ErrUnsupported, "exclusiveMinimum as true or false"},
		{`{"maximum":1e99}`, ErrUnsupported, "digits"},
		{`{"$ref":"#/$defs/none"}`, ErrSchema, "points at nothing"},
		{" \n", ErrSchema, "it is empty"},
		{`{"$ref":"#"}`, ErrSchema, "refers to itself"},
		{`{"allOf":[{"allOf":[{"$ref":"#"}]}]}`, ErrSchema, "refers to itself"},
		{`{"type":"text"}`, ErrSchema, "type must be"},
		{`{"type":[]}`, ErrSchema, "empty"},
		{`{"anyOf":[]}`, ErrSchema, "anyOf"},
		{`{"anyOf":{}}`, ErrSchema, "anyOf"},
		{`{"enum":[]}`, ErrSchema, "enum"},
		{`{"properties":[]}`, ErrSchema, "properties"},
		{`{"required":"a"}`, ErrSchema, "required"},
		{`{"minLength":-1}`, ErrSchema, "minLength"},
		{`{"minLength":1.5}`, ErrSchema, "minLength"},
		{`{"minimum":"1"}`, ErrSchema, "minimum"},
		{`{"pattern":1}`, ErrSchema, "pattern"},
		{`{"properties":{"a":3}}`, ErrSchema, `"#/properties/a": a schema is`},
		{`{"a":1,"a":1}`, ErrSchema, "duplicate"},
		{`{"type":"integer"} 1`, ErrSchema, "more after"},
		{`{`, ErrSchema, ""},
		{``, ErrSchema, ""},
		{deep, ErrSchema, "nested"},
		// What nothing satisfies, as far as that is plain.
		{`false`, ErrSchema, "no finite value"},
		{`{"type":"string","minLength":3,"maxLength":2}`, ErrSchema, "no finite value"},
		{`{"type":"integer","minimum":1.2,"maximum":1.9}`, ErrSchema, "no finite value"},
		{`{"allOf":[{"type":"string"},{"type":"integer"}]}`, ErrSchema, "no finite value"},
		{`{"allOf":[{"enum":[1,2]},{"enum":[3]}]}`, ErrSchema, "no finite value"},
		{`{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}`, ErrSchema, "no finite value"},
		{`{"type":"array","items":{"$ref":"#"},"minItems":1}`, ErrSchema, "no finite value"},
		{`{"type":"string","pattern":"^[]$"}`, ErrSchema, "no finite value"},
		{`{"anyOf":[{"$ref":"#"}]}`, ErrSchema, "no finite value"},
	} {
		_, err := Compile(Reply{Schema: []byte(c.schema)})
		require.ErrorIs(t, err, c.kind, c.schema)
		require.ErrorContains(t, err, c.say, c.schema)
	}
	_, err := Compile(Reply{})
	require.Error(t, err)
}

// Alternatives that cannot be completed are no alternatives: no mask leads into
// them.
func TestNoDeadEnds(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, c := range []struct{ schema, no string }{
		{`{"anyOf":[{"type":"object","properties":{"a":{"$ref":"#/anyOf/0"}},"required":["a"]},{"type":"null"}]}`, `{`},
		{`{"type":"object","properties":{"a":false,"b":{"type":"integer"}}}`, `{"a`},
		{`{"type":"array","items":{"type":"object","properties":{"x":{"$ref":"#/items"}},"required":["x"]}}`, `[{`},
		{`{"type":"object","properties":{"a":{"type":"string","minLength":2,"maxLength":1},"b":{}}}`, `{"a`},
		{`{"type":"integer","minimum":13,"maximum":14}`, `2`},
		{`{"anyOf":[{"type":"array","prefixItems":[{"type":"null"}],"items":false,"minItems":2},{"type":"null"}]}`, `[`},
		{`{"type":"string","pattern":"^(ab|a[^\\s\\S]c)$"}`, `"ac`},
	} {
		m := machine(t, Reply{Schema: []byte(c.schema)})
		s := m.Start()
		ok := true
		for i := 0; i < len(c.no) && ok; i++ {
			require.Equal(t, i < len(c.no)-1, has(m.Mask(s), int(c.no[i])), "%s at %d of %s", c.schema, i, c.no)
			s, ok = m.Advance(s, int(c.no[i]))
		}
		require.False(t, ok)
		validate := judge(t, c.schema)
		for range 20 {
			if text, ok := walk(t, m, rng, 300); ok {
				require.NoError(t, validate(text))
			}
		}
	}
}

// Ranges of numbers against the comparison of decimals, near the bounds.
func TestNumberRange(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	number := func() decimal {
		text := fmt.Sprintf("%.*f", rng.IntN(4), (rng.Float64()*2-1)*[]float64{1, 20, 2000}[rng.IntN(3)])
		d, err := parseDecimal(text)
		require.NoError(t, err)
		return d
	}
	inside, outside := 0, 0
	for range 300 {
		r := numberRange{}
		if rng.IntN(4) > 0 {
			r.low = &bound{number(), rng.IntN(2) == 0}
		}
		if rng.IntN(4) > 0 {
			r.high = &bound{number(), rng.IntN(2) == 0}
		}
		for _, integer := range []bool{true, false} {
			d := r.dfa(integer)
			candidates := []decimal{number(), number(), {whole: "0"}}
			for _, b := range []*bound{r.low, r.high} {
				if b == nil {
					continue
				}
				last := b.decimal
				candidates = append(candidates, last)
				last.fraction += "1"
				candidates = append(candidates, last)
				last.fraction = ""
				candidates = append(candidates, last)
				last.whole += "0"
				candidates = append(candidates, last)
			}
			for _, x := range candidates {
				text := x.String()
				x, err := parseDecimal(text)
				require.NoError(t, err)
				want := !integer || x.fraction == ""
				if r.low != nil {
					c := x.compare(r.low.decimal)
					want = want && (c > 0 || c == 0 && !r.low.exclusive)
				}
				if r.high != nil {
					c := x.compare(r.high.decimal)
					want = want && (c < 0 || c == 0 && !r.high.exclusive)
				}
				require.Equal(t, want, d.accepts(x.String()), "%s in %v, %v, integer %v", x, r.low, r.high, integer)
				if want {
					inside++
				} else {
					outside++
				}
			}
		}
	}
	require.Greater(t, inside, 500)
	require.Greater(t, outside, 500)
}

func (d *dfa) accepts(text string) bool {
	at := int32(0)
	if len(d.states) == 0 {
		return false
	}
next:
	for i := range len(text) {
		for _, e := range d.states[at].edges {
			if e.lo <= text[i] && text[i] <= e.hi {
				at = e.to
				continue next
			}
		}
		return false
	}
	return d.states[at].final
}

// Schemas that are made to cost much are refused, or compiled, in bounded time
// and memory; none takes as long as a second on an idle machine.
func TestHostile(t *testing.T) {
	list := func(n int, f func(i int) string) string {
		var parts []string
		for i := range n {
			parts = append(parts, f(i))
		}
		return strings.Join(parts, ",")
	}
	for name, c := range map[string]struct {
		schema string
		ok     bool
	}{
		"10 MB":             {`{"description":"` + strings.Repeat("a", 10<<20) + `"}`, false},
		"deep":              {strings.Repeat(`[`, 1<<19), false},
		"many values":       {`{"enum":[` + list(20000, func(i int) string { return fmt.Sprint(i) }) + `]}`, true},
		"large values":      {`{"enum":[` + list(40, func(i int) string { return `"` + strings.Repeat("a", 1<<13) + fmt.Sprint(i) + `"` }) + `]}`, false},
		"many properties":   {`{"type":"object","properties":{` + list(4000, func(i int) string { return fmt.Sprintf(`"p%d":{"type":"null"}`, i) }) + `}}`, true},
		"too many":          {`{"type":"object","properties":{` + list(5000, func(i int) string { return fmt.Sprintf(`"p%d":{"type":"null"}`, i) }) + `}}`, false},
		"exponential anyOf": {`{"allOf":[` + list(30, func(i int) string { return fmt.Sprintf(`{"anyOf":[{"maxLength":%d},{"minLength":%d}]}`, i+100, i) }) + `]}`, false},
		"references doubled": {`{"$defs":{` + list(60, func(i int) string {
			return fmt.Sprintf(`"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, i+1, i+1)
		}) + `,"d60":{"type":"null"}},"$ref":"#/$defs/d0"}`, true},
		"references nested": {`{"$defs":{` + list(500, func(i int) string { return fmt.Sprintf(`"d%d":{"$ref":"#/$defs/d%d"}`, i, i+1) }) + `,"d500":{"type":"null"}},"$ref":"#/$defs/d0"}`, true},
		"many oneOf":        {`{"oneOf":[` + list(256, func(i int) string { return fmt.Sprintf(`{"const":%d}`, i) }) + `]}`, true},
		"long string":       {`{"type":"string","maxLength":1000000000000}`, true},
		"long pattern":      {`{"type":"string","pattern":"^.*$","maxLength":1000000}`, false},
		"many patterns":     {`{"allOf":[` + list(40, func(i int) string { return fmt.Sprintf(`{"type":"string","pattern":"a{%d}"}`, i) }) + `]}`, false},
		"ambiguous":         {`{"anyOf":[` + list(300, func(i int) string { return fmt.Sprintf(`{"type":"array","minItems":%d}`, i) }) + `]}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			f, err := Compile(Reply{Schema: []byte(c.schema)})
			if !c.ok {
				require.Error(t, err)
			} else {
				require.NoError(t, err)
				m := NewMachine(f, testVocab)
				walk(t, m, rand.New(rand.NewPCG(1, 1)), 20)
			}
			t.Log(time.Since(start), err)
		})
	}
}

func FuzzSchema(f *testing.F) {
	for _, s := range []string{
		`{"type":"object","properties":{"a":{"$ref":"#"}}}`, `{"oneOf":[{"type":"string"},{"const":1}],"pattern":"^[^a-z]{2,3}|x$"}`,
		`{"allOf":[{"minimum":-1.5e1},{"exclusiveMaximum":0.30}],"type":["number","null"]}`, `{"prefixItems":[true,false],"minItems":1,"enum":[[1]]}`,
	} {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, schema []byte, seed uint64) {
		form, err := Compile(Reply{Schema: schema})
		if err != nil {
			return
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		m := NewMachine(form, testVocab)
		if text, ok := walk(t, m, rng, 200); ok {
			require.True(t, accepts(t, m, rng, text), "%s", text)
		}
	})
}
