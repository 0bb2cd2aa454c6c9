package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxDepth is how deep the JSON of a request may nest.
const maxDepth = 200

// readBody reads the whole body, within the limits of size and time.
func (c *call) readBody() (*params, error) {
	kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if json := kind == "application/json" || strings.HasSuffix(kind, "+json"); err != nil && c.r.Header.Get("Content-Type") != "" || kind != "" && !json {
		return nil, &apiError{status: http.StatusUnsupportedMediaType, code: "unsupported_media_type", message: "The body must be JSON, with Content-Type: application/json."}
	}
	if encoding := c.r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, &apiError{status: http.StatusUnsupportedMediaType, code: "unsupported_media_type", message: "Send the body without Content-Encoding."}
	}
	limit := c.h.opts.MaxBody
	large := &apiError{status: http.StatusRequestEntityTooLarge, code: "request_too_large", message: fmt.Sprintf("The body is larger than %d bytes.", limit)}
	if c.r.ContentLength > limit {
		c.w.Header().Set("Connection", "close")
		return nil, large
	}
	control := http.NewResponseController(c.w)
	// It must not outlive the body. net/http sees to that where the body was read
	// to its end; other servers need not.
	if control.SetReadDeadline(time.Now().Add(c.h.opts.ReadTimeout)) == nil {
		defer control.SetReadDeadline(time.Time{})
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, large
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.w.Header().Set("Connection", "close")
		return nil, &apiError{status: http.StatusRequestTimeout, code: "request_timeout", message: "The body did not arrive in time."}
	case err != nil:
		return nil, &apiError{status: http.StatusBadRequest, message: "The body could not be read to its end.", cause: err}
	}
	return parseBody(body)
}

func parseBody(body []byte) (*params, error) {
	if !utf8.Valid(body) {
		return nil, badf("", "The body is not valid UTF-8.")
	}
	if depth(body) > maxDepth {
		return nil, badf("", "The body's JSON nests deeper than %d.", maxDepth)
	}
	p := &params{}
	if err := json.Unmarshal(body, &p.fields); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) || len(body) == 0 {
			return nil, badf("", "The body is not JSON: %v.", err)
		}
		return nil, badf("", "The body must be a JSON object.")
	}
	if p.fields == nil {
		return nil, badf("", "The body must be a JSON object.")
	}
	return p, nil
}

// depth is how deep brackets nest, outside strings. It bounds the work on text
// that is not JSON as well.
func depth(text []byte) int {
	deepest, now, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			quoted = !quoted
		case '\\':
			if quoted {
				i++
			}
		case '[', '{':
			if !quoted {
				now++
				deepest = max(deepest, now)
			}
		case ']', '}':
			if !quoted {
				now--
			}
		}
	}
	return deepest
}

// params are the members of a JSON object. Its methods take one by name; null
// counts as absent. The first that is wrong is kept in err.
type params struct {
	prefix string // before names in errors
	fields map[string]json.RawMessage
	err    error
}

func (p *params) fail(err error) {
	if p.err == nil && err != nil {
		p.err = err
	}
}

// raw is a member as it stands, nil where it is absent or null.
func (p *params) raw(name string) json.RawMessage {
	if v := p.fields[name]; string(v) != "null" {
		return v
	}
	return nil
}

func (p *params) wrong(name, want string) {
	p.fail(badf(p.prefix+name, "%s must be %s, not %s.", p.prefix+name, want, clip(string(p.fields[name]))))
}

func (p *params) has(name string) bool { return p.raw(name) != nil }

func take[T any](p *params, name, want string) *T {
	raw := p.raw(name)
	if raw == nil {
		return nil
	}
	v := new(T)
	if err := json.Unmarshal(raw, v); err != nil {
		p.wrong(name, want)
		return nil
	}
	return v
}

func (p *params) text(name string) string {
	if v := take[string](p, name, "a string"); v != nil {
		return *v
	}
	return ""
}

func (p *params) flag(name string) *bool { return take[bool](p, name, "true or false") }

func (p *params) isTrue(name string) bool {
	v := p.flag(name)
	return v != nil && *v
}

// number is a number within bounds, both included.
func (p *params) number(name string, low, high float64) *float64 {
	want := fmt.Sprintf("a number from %g to %g", low, high)
	v := take[float64](p, name, want)
	if v != nil && (*v < low || *v > high) {
		p.wrong(name, want)
		return nil
	}
	return v
}

// integer is a whole number within bounds; 5.0 is one.
func (p *params) integer(name string, low, high int) *int {
	want := fmt.Sprintf("a whole number from %d to %d", low, high)
	atLeast := fmt.Sprintf("a whole number of at least %d", low)
	if high == math.MaxInt32 {
		want = atLeast
	}
	v := take[float64](p, name, want)
	if v == nil {
		return nil
	}
	if high == math.MaxInt32 && *v > float64(high) {
		want = fmt.Sprintf("%s and at most %d", atLeast, high)
	}
	if *v != math.Trunc(*v) || *v < float64(low) || *v > float64(high) {
		p.wrong(name, want)
		return nil
	}
	n := int(*v)
	return &n
}

// seed is any 64-bit number.
func (p *params) seed(name string) *uint64 {
	raw := string(p.raw(name))
	if raw == "" {
		return nil
	}
	v, err := strconv.ParseUint(raw, 10, 64)
	if err != nil {
		signed, err := strconv.ParseInt(raw, 10, 64)
		if err != nil {
			p.wrong(name, "a whole number of 64 bits")
			return nil
		}
		v = uint64(signed)
	}
	return &v
}

// texts is a string or a list of strings.
func (p *params) texts(name string, most int) []string {
	raw := p.raw(name)
	if raw == nil {
		return nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}
	}
	var list []string
	if err := json.Unmarshal(raw, &list); err != nil {
		p.wrong(name, "a string or a list of strings")
		return nil
	}
	if len(list) > most {
		p.fail(badf(p.prefix+name, "%s has %d entries; %d are possible.", p.prefix+name, len(list), most))
	}
	return list
}

// object is a member that is an object.
func (p *params) object(name string) *params {
	raw := p.raw(name)
	if raw == nil {
		return nil
	}
	inner, err := object(raw, p.prefix+name)
	p.fail(err)
	return inner
}

// object takes an object apart; name is what errors call it.
func object(raw json.RawMessage, name string) (*params, error) {
	inner := &params{prefix: name + "."}
	if err := json.Unmarshal(raw, &inner.fields); err != nil || inner.fields == nil {
		return nil, badf(name, "%s must be an object, not %s.", name, clip(string(raw)))
	}
	return inner, nil
}

// list is a member that is a list.
func (p *params) list(name string) []json.RawMessage {
	if v := take[[]json.RawMessage](p, name, "a list"); v != nil {
		return *v
	}
	return nil
}

// harmless are values that ask for nothing.
var harmless = map[string]bool{"null": true, "false": true, "{}": true, "[]": true, `""`: true}

// refuse blames parameters that are not done, unless their value asks for
// nothing.
func (p *params) refuse(why string, names ...string) {
	for _, name := range names {
		if raw, ok := p.fields[name]; ok && !harmless[strings.TrimSpace(string(raw))] {
			p.unsupported(name, why)
		}
	}
}

// unless refuses a parameter with any value but the given ones.
func (p *params) unless(name, why string, values ...string) {
	raw := strings.TrimSpace(string(p.raw(name)))
	for _, v := range append(values, "") {
		if raw == v {
			return
		}
	}
	p.unsupported(name, why)
}

func (p *params) unsupported(name, why string) {
	e := unsupportedf(p.prefix+name, "%s is not supported", p.prefix+name)
	if why != "" {
		e.message += ": " + why
	}
	e.message += "."
	p.fail(e)
}
