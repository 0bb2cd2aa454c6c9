package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const maxRedirects = 10

// transient marks an error that another try may not meet.
type transient struct {
	err  error
	wait time.Duration // what the server asked for, 0 for nothing
}

func (t *transient) Error() string { return t.err.Error() }
func (t *transient) Unwrap() error { return t.err }

func backoff(failures int) time.Duration { return 500 * time.Millisecond << min(failures, 5) }

// pause waits before another try after the failures-th error, or returns the
// error if there should be none.
func (c *Client) pause(ctx context.Context, err error, failures int, what string) error {
	var t *transient
	if !errors.As(err, &t) {
		return err
	}
	if failures >= attempts {
		return fmt.Errorf("%w (tried %d times)", err, failures)
	}
	wait := t.wait
	if wait == 0 {
		wait = backoff(failures - 1)
	}
	c.opts.Logger.Warn("hub: trying again", "what", what, "error", err, "wait", wait, "failures", failures)
	return c.sleep(ctx, wait)
}

// linked is what the hub says of a file in its own answer, before the storage
// that it redirects to has its say.
type linked struct {
	commit, etag, size string
}

func (l *linked) collect(h http.Header) {
	for _, field := range []struct {
		to  *string
		key string
	}{{&l.commit, "X-Repo-Commit"}, {&l.etag, "X-Linked-Etag"}, {&l.size, "X-Linked-Size"}} {
		if *field.to == "" {
			*field.to = h.Get(field.key)
		}
	}
}

// answer is the last response of a chain of redirects.
type answer struct {
	*http.Response
	linked
	foreign bool // from another host than the endpoint, or through one
}

// send sends a request to the endpoint and follows redirects, or with
// relativeOnly those that name no host. The token accompanies it only while
// it has not left the endpoint's scheme, host and port. Addresses of other
// hosts may hold signatures: messages have their host only.
func (c *Client) send(ctx context.Context, method string, u *url.URL, header http.Header, relativeOnly bool) (*answer, error) {
	a := &answer{}
	for range maxRedirects + 1 {
		req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
		if err != nil {
			return nil, fmt.Errorf("make a request to %s: bad address", u.Host)
		}
		for key, values := range header {
			req.Header[key] = values
		}
		req.Header.Set("User-Agent", "godflash")
		// Sizes and ranges are those of the file, not of a compressed form.
		req.Header.Set("Accept-Encoding", "identity")
		if c.opts.Token != "" && !a.foreign {
			req.Header.Set("Authorization", "Bearer "+c.opts.Token)
		}
		resp, err := c.http.Do(req)
		if err != nil {
			return nil, networkError(ctx, u, err)
		}
		if !a.foreign {
			a.collect(resp.Header)
		}
		location := resp.Header.Get("Location")
		if !isRedirect(resp.StatusCode) || location == "" {
			a.Response = resp
			return a, nil
		}
		next, err := url.Parse(location)
		if err == nil && relativeOnly && (next.Host != "" || next.Scheme != "") {
			a.Response = resp
			return a, nil
		}
		drain(resp.Body)
		if err != nil {
			return nil, fmt.Errorf("%s redirects to a bad address", u.Host)
		}
		next = u.ResolveReference(next)
		switch {
		case next.Scheme != "https" && next.Scheme != "http" || next.Host == "":
			return nil, fmt.Errorf("%s redirects to an address that is not http or https", u.Host)
		case u.Scheme == "https" && next.Scheme == "http":
			return nil, fmt.Errorf("%s redirects from https to http at %s: refused", u.Host, next.Host)
		}
		a.foreign = a.foreign || !sameOrigin(next, c.endpoint)
		u = next
	}
	return nil, fmt.Errorf("%s: more than %d redirects", c.endpoint.Host, maxRedirects)
}

func isRedirect(status int) bool {
	switch status {
	case 301, 302, 303, 307, 308:
		return true
	}
	return false
}

func sameOrigin(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		if u.Port() == "" {
			return map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		return u.Port()
	}
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// drain lets the connection be used again, without reading much for it.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	_ = body.Close()
}

// networkError drops the address that url.Error repeats with its query.
func networkError(ctx context.Context, u *url.URL, err error) error {
	if ctx.Err() != nil {
		if cause := context.Cause(ctx); cause != errStalled {
			return cause
		}
		return &transient{err: fmt.Errorf("reach %s: %w", u.Host, errStalled)}
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	err = fmt.Errorf("reach %s: %w", u.Host, err)
	var cert *tls.CertificateVerificationError
	var dns *net.DNSError
	if errors.As(err, &cert) || errors.As(err, &dns) && dns.IsNotFound {
		return err
	}
	return &transient{err: err}
}

// statusError is nil for an answer that carries what was asked for. It drains
// the body of the others.
func (c *Client) statusError(r Repo, a *answer) error {
	if a.StatusCode >= 200 && a.StatusCode < 300 {
		return nil
	}
	drain(a.Body)
	host := a.Request.URL.Host
	said := ""
	if text := strings.TrimSpace(a.Header.Get("X-Error-Message")); text != "" && !a.foreign {
		said = fmt.Sprintf(" (it says %q)", clip(text))
	}
	code := a.Header.Get("X-Error-Code")
	page := c.endpoint.String() + "/" + r.ID()
	switch status := a.StatusCode; {
	case status == http.StatusTooManyRequests:
		return rateLimit(host, a.Header.Get("Retry-After"))
	case status >= 500 || status == http.StatusRequestTimeout:
		return &transient{err: fmt.Errorf("%s answers %s%s", host, a.Status, said)}
	case a.foreign:
		// The storage's signature ran out, as it does on long downloads: the
		// next request to the hub gets another.
		return &transient{err: fmt.Errorf("the storage at %s answers %s", host, a.Status)}
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fmt.Errorf("%s: %w: %s answers %s%s: %s", r, denied(status, code), host, a.Status, said, c.hint(status, code, page))
	case status == http.StatusNotFound || status == http.StatusGone:
		what := "the model or its revision " + r.revision()
		switch code {
		case "RepoNotFound":
			what = "the model"
		case "RevisionNotFound":
			what = "the revision " + r.revision()
		case "EntryNotFound":
			what = "the file"
		}
		return fmt.Errorf("%s: %s is %w on %s%s: compare the name with %s", r, what, ErrNotFound, host, said, page)
	default:
		return fmt.Errorf("%s: %s answers %s%s", r, host, a.Status, said)
	}
}

// denied is ErrAuth, and ErrNotFound too where the hub answers 401 to whoever
// asks for a model that is private or does not exist.
func denied(status int, code string) error {
	if status == http.StatusUnauthorized && code == "RepoNotFound" {
		return fmt.Errorf("%w or %w", ErrNotFound, ErrAuth)
	}
	return ErrAuth
}

func (c *Client) hint(status int, code, page string) string {
	switch {
	case code == "GatedRepo" && c.opts.Token != "":
		return "accept the model's licence at " + page + " with the account of the token in use"
	case code == "GatedRepo":
		return "accept the model's licence at " + page + ", then set HF_TOKEN to a token of that account"
	case c.opts.tokenErr != nil:
		return "the file of the token could not be read: " + c.opts.tokenErr.Error()
	case c.opts.Token == "":
		return "check the name at " + page + "; a private or gated model needs HF_TOKEN"
	case status == http.StatusUnauthorized:
		return "the token (HF_TOKEN, or the file token in HF_HOME) is not valid here, or the model does not exist: " + page
	}
	return "the token (HF_TOKEN, or the file token in HF_HOME) gives no access to this model, or its licence is not accepted: " + page
}

// rateLimit honours Retry-After, seconds or a date (RFC 9110, 10.2.3), within
// maxWait.
func rateLimit(host, after string) error {
	err := fmt.Errorf("%w by %s; HF_TOKEN raises the limit", ErrRateLimited, host)
	if after == "" {
		return &transient{err: err}
	}
	var wait time.Duration
	if seconds, e := strconv.ParseUint(after, 10, 31); e == nil {
		wait = time.Duration(seconds) * time.Second
	} else if date, e := http.ParseTime(after); e == nil {
		wait = time.Until(date)
	} else {
		return &transient{err: err}
	}
	if wait > maxWait {
		return fmt.Errorf("%w; it says to come back in %s", err, wait.Round(time.Second))
	}
	return &transient{err: err, wait: max(wait, time.Millisecond)}
}
