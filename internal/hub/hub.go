package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

// Options are the choices of New. FromEnv fills in what the environment says.
type Options struct {
	// Cache is the folder of the models--… folders. It is required and need not exist.
	Cache string
	// Endpoint is the hub's address. Empty: DefaultEndpoint.
	Endpoint string
	// Token is sent to Endpoint, and to no other scheme, host or port.
	Token string
	// Offline forbids the network: Download fails with ErrOffline.
	Offline bool
	// Connections is the number of files that are downloaded at once. 0: 4.
	Connections int
	// Progress hears of received bytes, one call at a time. It should return
	// soon, for the download waits. Nil: nobody.
	Progress func(Event)
	// Client sends the requests; its CheckRedirect is not used. Nil: one with
	// the proxy settings of net/http and limits for the time until an answer.
	Client *http.Client
	// Logger hears of retries and repairs. Nil: silent.
	Logger *slog.Logger

	tokenErr error // why FromEnv could not read the token's file
}

// Event is a step of a download.
type Event struct {
	Repo Repo
	File string // as the hub lists it
	// Done of Size bytes of the file are there. Size is -1 when the hub does
	// not say. Done can fall when a file has to start over.
	Done, Size int64
	// AllDone and AllSize are the same of all files together, those that the
	// cache had already included; unknown sizes count as what was received.
	AllDone, AllSize int64
}

// Snapshot is a model in the cache.
type Snapshot struct {
	Repo   Repo
	Commit string // 40 hexadecimal digits
	Dir    string // the folder with the model's files
}

// Client looks up and downloads models. It may be used from any goroutine.
type Client struct {
	opts     Options
	endpoint *url.URL
	http     *http.Client
	own      bool // http is ours

	// Replaced by tests.
	sleep   func(context.Context, time.Duration) error
	symlink func(target, link string) error
	stall   time.Duration // a body without a byte for so long is given up
}

// Bounds of patience.
const (
	attempts    = 5                // of a request, or of a file without a new byte
	maxWait     = 60 * time.Second // what one Retry-After may ask for
	stallLimit  = 60 * time.Second
	headerLimit = 30 * time.Second
)

// New makes a client. It touches neither files nor network.
func New(o Options) (*Client, error) {
	if o.Cache == "" {
		return nil, errors.New("hub: Options.Cache is empty: name the cache's folder, or start from FromEnv")
	}
	cache, err := filepath.Abs(o.Cache)
	if err != nil {
		return nil, fmt.Errorf("hub: cache folder: %w", err)
	}
	o.Cache = cache
	if o.Endpoint == "" {
		o.Endpoint = DefaultEndpoint
	}
	endpoint, err := url.Parse(strings.TrimRight(o.Endpoint, "/"))
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "http" && endpoint.Scheme != "https" ||
		endpoint.User != nil || endpoint.RawQuery != "" || endpoint.Fragment != "" {
		// The address is not repeated: it may hold a password.
		return nil, errors.New("hub: the endpoint (HF_ENDPOINT) must be http:// or https://, a host and perhaps a path, without user or query")
	}
	if o.Connections < 0 {
		return nil, fmt.Errorf("hub: Options.Connections is %d", o.Connections)
	}
	if o.Connections == 0 {
		o.Connections = 4
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Client{opts: o, endpoint: endpoint, sleep: sleep, symlink: symlink, stall: stallLimit}
	if o.Client != nil {
		client := *o.Client
		c.http = &client
	} else {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.ResponseHeaderTimeout = headerLimit
		c.http, c.own = &http.Client{Transport: t}, true
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

// Cache is the absolute path of the cache's folder.
func (c *Client) Cache() string { return c.opts.Cache }

// Get is Cached, and Download where that finds nothing. Offline, the error is
// ErrNotCached and ErrOffline.
func (c *Client) Get(ctx context.Context, r Repo) (Snapshot, error) {
	s, err := c.Cached(r)
	switch {
	case err == nil || !errors.Is(err, ErrNotCached):
		return s, err
	case c.opts.Offline:
		return Snapshot{}, fmt.Errorf("%w; downloads are switched off (%w, HF_HUB_OFFLINE)", err, ErrOffline)
	}
	c.opts.Logger.Info("model not cached, downloading", "model", r.String(), "reason", err)
	return c.Download(ctx, r)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
