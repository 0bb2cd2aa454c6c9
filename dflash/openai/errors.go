package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/qwen/chat"
)

// statusGone is what a request is logged with whose client went away.
const statusGone = 499

var errDraining = errors.New("the server is shutting down")

// apiError is an answer that is not what was asked for.
type apiError struct {
	status  int
	code    string // OpenAI's short name, empty where there is none
	param   string // the parameter to blame
	message string // for the client; empty for what lies inside
	retry   int    // seconds, 0 for never
	cause   error  // for the log
}

func (e *apiError) Error() string {
	switch {
	case e.cause == nil:
		return e.message
	case e.message == "":
		return e.cause.Error()
	}
	return e.message + ": " + e.cause.Error()
}

func (e *apiError) Unwrap() error { return e.cause }

// badf blames a parameter.
func badf(param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, param: param, message: fmt.Sprintf(format, args...)}
}

// unsupportedf blames a parameter that asks for what is not done.
func unsupportedf(param, format string, args ...any) *apiError {
	e := badf(param, format, args...)
	e.code = "unsupported_parameter"
	return e
}

// text is what the client reads.
func (e *apiError) text(id string) string {
	if e.message == "" {
		return "Something went wrong inside the server; its log has the cause under " + id + "."
	}
	return e.message
}

// kind is OpenAI's error type.
func (e *apiError) kind() string {
	switch {
	case e.status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case e.status == http.StatusUnauthorized:
		return "authentication_error"
	case e.status == http.StatusForbidden:
		return "permission_error"
	case e.status == http.StatusServiceUnavailable:
		return "service_unavailable"
	case e.status >= 500:
		return "server_error"
	}
	return "invalid_request_error"
}

// anthropicKind is Anthropic's error type.
func (e *apiError) anthropicKind() string {
	switch e.status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable:
		return "overloaded_error"
	}
	if e.status >= 500 {
		return "api_error"
	}
	return "invalid_request_error"
}

// object is the error as the members of an "error" object in OpenAI's form.
func (e *apiError) object(id string) map[string]any {
	orNull := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return map[string]any{"message": e.text(id), "type": e.kind(), "param": orNull(e.param), "code": orNull(e.code)}
}

func (e *apiError) body(f form, id string) any {
	if f == formAnthropic {
		return map[string]any{"type": "error", "error": map[string]any{"type": e.anthropicKind(), "message": e.text(id)}, "request_id": id}
	}
	return map[string]any{"error": e.object(id)}
}

// fail answers with an error, unless an answer has begun.
func (c *call) fail(err error) {
	failure := c.failure(err)
	c.err = failure
	if c.status != 0 || failure.status == statusGone {
		return
	}
	if failure.retry > 0 {
		c.w.Header().Set("Retry-After", strconv.Itoa(failure.retry))
	}
	c.json(failure.status, failure.body(c.form, c.id))
}

// failure finds the answer to an error of the engine or of ours. It names no
// folder of this machine.
func (c *call) failure(err error) *apiError {
	e := *c.classify(err)
	info := c.h.backend.Info()
	for _, hide := range [][2]string{{info.DraftDir, "the drafter"}, {info.Dir, c.h.opts.Model}} {
		if hide[0] != "" {
			e.message = strings.ReplaceAll(e.message, hide[0], hide[1])
		}
	}
	return &e
}

func (c *call) classify(err error) *apiError {
	var known *apiError
	var refused *chat.TemplateError
	message := func() string { return sentence(err.Error()) }
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(context.Cause(c.ctx), errDraining), errors.Is(err, errDraining):
		return &apiError{status: http.StatusServiceUnavailable, code: "shutting_down", message: "The server is shutting down.", retry: 10}
	case c.ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return &apiError{status: statusGone, cause: fmt.Errorf("the client went away: %w", context.Cause(c.ctx))}
	case errors.Is(err, dflash.ErrContextLength):
		return &apiError{status: http.StatusBadRequest, code: "context_length_exceeded", message: message()}
	case errors.Is(err, dflash.ErrEmptyPrompt):
		return &apiError{status: http.StatusBadRequest, code: "empty_prompt", message: "There is no prompt: not one token to start from."}
	case errors.As(err, &refused):
		return &apiError{status: http.StatusBadRequest, param: "messages", code: "template_refused", message: "The model's chat template refuses the messages: " + refused.Message}
	case errors.Is(err, chat.ErrNoTemplate): // the error names a folder
		return &apiError{status: http.StatusBadRequest, code: "no_chat_template", message: "This model has no chat template; /v1/completions works without one."}
	case errors.Is(err, chat.ErrNotText), errors.Is(err, chat.ErrArguments), errors.Is(err, chat.ErrLimit):
		return &apiError{status: http.StatusBadRequest, param: "messages", message: message()}
	case errors.Is(err, dflash.ErrConfig):
		return &apiError{status: http.StatusInternalServerError, cause: err}
	case errors.Is(err, dflash.ErrRequest):
		return &apiError{status: http.StatusBadRequest, message: message()}
	case errors.Is(err, dflash.ErrUnsupported):
		return &apiError{status: http.StatusBadRequest, code: "unsupported_parameter", message: message()}
	case errors.Is(err, dflash.ErrClosed), errors.Is(err, dflash.ErrBusy):
		return unavailable(err)
	}
	return &apiError{status: http.StatusInternalServerError, cause: err}
}

// sentence drops what Go's errors begin with and a person need not read.
func sentence(s string) string {
	s = strings.TrimPrefix(s, dflash.ErrRequest.Error()+": ")
	if r, size := utf8.DecodeRuneInString(s); size > 0 && r < utf8.RuneSelf {
		s = strings.ToUpper(s[:size]) + s[size:]
	}
	return strings.TrimSuffix(s, ".") + "."
}

// clip shortens what a client sent before it is sent back.
func clip(s string) string {
	const most = 80
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= most {
		return s
	}
	end := most
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// json writes an answer that is complete.
func (c *call) json(status int, v any) {
	body, err := marshal(v)
	if err != nil {
		c.err = errors.Join(c.err, err)
		status, body = http.StatusInternalServerError, []byte(`{"error":{"message":"The answer could not be written as JSON.","type":"server_error","param":null,"code":null}}`)
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	c.deadline()
	c.header(status)
	if c.r.Method == http.MethodHead {
		return
	}
	if _, err := c.w.Write(body); err != nil {
		c.err = &apiError{status: statusGone, cause: err}
	}
}

// marshal is json.Marshal that leaves <, > and & as they are.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
