package openai

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"
)

// stream writes server-sent events. After an error nothing more is written.
type stream struct {
	call  *call
	begun bool
	dirty bool // something was written since the last flush
	err   error
}

// failure says what a write that failed means for the request.
func (s *stream) failure() *apiError {
	var known *apiError
	switch {
	case errors.As(s.err, &known):
		return known
	case errors.Is(s.err, os.ErrDeadlineExceeded):
		return &apiError{status: statusGone, cause: fmt.Errorf("the client does not read: %w", s.err)}
	}
	return &apiError{status: statusGone, cause: fmt.Errorf("the client went away: %w", s.err)}
}

// begin writes the header and the events before the first token, once.
func (s *stream) begin(out output) {
	if s.begun {
		return
	}
	s.begun = true
	header := s.call.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache")
	header.Set("X-Accel-Buffering", "no") // nginx would collect the events
	s.call.deadline()
	s.call.header(http.StatusOK)
	s.dirty = true
	out.begin(s)
}

// comment is a line that clients skip.
func (s *stream) comment(text string) {
	if s.begun {
		s.write([]byte(": " + text + "\n\n"))
		s.flush()
	}
}

// event writes one event; name may be empty.
func (s *stream) event(name string, v any) {
	body, err := marshal(v)
	if err != nil {
		if s.err == nil {
			s.err = &apiError{status: http.StatusInternalServerError, cause: err}
		}
		return
	}
	s.data(name, body)
}

func (s *stream) data(name string, body []byte) {
	text := make([]byte, 0, len(name)+len(body)+20)
	if name != "" {
		text = append(append(append(text, "event: "...), name...), '\n')
	}
	text = append(append(append(text, "data: "...), body...), "\n\n"...)
	s.write(text)
}

func (s *stream) write(text []byte) {
	if s.err != nil {
		return
	}
	if !s.dirty {
		s.call.deadline()
	}
	s.dirty = true
	_, s.err = s.call.w.Write(text)
}

func (s *stream) flush() {
	if !s.dirty || s.err != nil {
		return
	}
	s.dirty = false
	s.err = http.NewResponseController(s.call.w).Flush()
}

// deadline bounds the next write. A writer that has no deadlines is its owner's
// concern.
func (c *call) deadline() {
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(c.h.opts.WriteTimeout))
}
