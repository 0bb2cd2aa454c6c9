package openai

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// authorized compares in a time that does not depend on where keys differ, or
// on their length.
func (h *Handler) authorized(r *http.Request) bool {
	if h.opts.APIKey == "" {
		return true
	}
	key := r.Header.Get("X-Api-Key")
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		key = strings.TrimSpace(token)
	}
	got, want := sha256.Sum256([]byte(key)), sha256.Sum256([]byte(h.opts.APIKey))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// Protect puts the handler's checks of key, origin and host before another
// handler, such as one of metrics.
func (h *Handler) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := h.newCall(w, r)
		defer c.cancel(nil)
		if err := h.crossOrigin(c); err != nil {
			c.fail(err)
			return
		}
		if !h.authorized(r) {
			c.failKey()
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (c *call) failKey() {
	c.w.Header().Set("WWW-Authenticate", "Bearer")
	c.fail(&apiError{status: http.StatusUnauthorized, code: "invalid_api_key", message: "This server needs its API key, as Authorization: Bearer KEY or x-api-key: KEY."})
}

// crossOrigin answers preflights, sets the headers that let allowed pages read
// the answer, and refuses the others: a page from anywhere could otherwise use
// a server on the visitor's machine.
func (h *Handler) crossOrigin(c *call) error {
	if err := h.checkHost(c.r); err != nil {
		return err
	}
	origin := c.r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	if !h.allowed(origin, c.r.Host) {
		return &apiError{
			status: http.StatusForbidden, code: "origin_not_allowed",
			message: fmt.Sprintf("Pages of %s may not use this server; whoever runs it can allow the origin.", clip(origin)),
		}
	}
	header := c.w.Header()
	header.Set("Access-Control-Allow-Origin", origin)
	header.Add("Vary", "Origin")
	header.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After")
	if asked := c.r.Header.Get("Access-Control-Request-Method"); c.r.Method == http.MethodOptions && asked != "" {
		header.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS")
		if names := c.r.Header.Get("Access-Control-Request-Headers"); names != "" {
			header.Set("Access-Control-Allow-Headers", names)
		}
		header.Set("Access-Control-Max-Age", "600")
	}
	return nil
}

func (h *Handler) allowed(origin, host string) bool {
	if slices.Contains(h.opts.Origins, "*") || slices.Contains(h.opts.Origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	return u.Host == host || loopback(u.Hostname())
}

// checkHost stops DNS rebinding: a page whose name is made to point at this
// machine. A key, which such a page does not have, makes the check needless.
func (h *Handler) checkHost(r *http.Request) error {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if h.opts.APIKey != "" || !ok || slices.Contains(h.opts.Origins, "*") {
		return nil
	}
	if here, err := netip.ParseAddrPort(local.String()); err != nil || !here.Addr().Unmap().IsLoopback() {
		return nil
	}
	host := (&url.URL{Host: r.Host}).Hostname()
	if host == "" || loopback(host) {
		return nil
	}
	for _, origin := range h.opts.Origins {
		if u, err := url.Parse(origin); err == nil && u.Hostname() == host {
			return nil
		}
	}
	return &apiError{
		status: http.StatusForbidden, code: "host_not_allowed",
		message: fmt.Sprintf("This server listens on this machine only and is not known as %s; allow its origin, or set an API key.", clip(host)),
	}
}

func loopback(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
