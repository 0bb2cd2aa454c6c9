package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// partSuffix is ours: huggingface_hub's own part files may have holes.
const partSuffix = ".godflash-part"

// errStalled is the cause of a request's end when no byte came for long.
var errStalled = errors.New("no data came for too long")

// watchdog cancels a request that stands still.
type watchdog struct {
	timer  *time.Timer
	limit  time.Duration
	cancel context.CancelCauseFunc
}

func (c *Client) watch(ctx context.Context) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &watchdog{
		timer:  time.AfterFunc(c.stall, func() { cancel(errStalled) }),
		limit:  c.stall,
		cancel: cancel,
	}
}

// stop ends the request too, if its body is still open.
func (w *watchdog) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

func (w *watchdog) reader(r io.Reader) io.Reader { return &watched{r, w} }

type watched struct {
	io.Reader
	w *watchdog
}

func (r *watched) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.w.timer.Reset(r.w.limit)
	}
	return n, err
}

// part is a blob on its way: an open file and the digest of what is in it.
type part struct {
	f      *os.File
	file   *file
	length int64
	sum    hash.Hash // nil where nothing is known to compare with
	want   string
}

func openPart(path string, f *file) (*part, error) {
	p := &part{file: f}
	switch {
	case f.sha256 != "":
		p.sum, p.want = sha256.New(), f.sha256
	case f.gitID != "":
		p.sum, p.want = sha1.New(), f.gitID
	}
	var err error
	if p.f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	info, err := p.f.Stat()
	if err == nil && info.Size() > f.size {
		err = p.restart()
	} else if err == nil {
		p.begin()
		p.length, err = io.Copy(p.hash(), p.f)
	}
	if err != nil {
		p.f.Close()
		return nil, err
	}
	return p, nil
}

func (p *part) hash() io.Writer {
	if p.sum == nil {
		return io.Discard
	}
	return p.sum
}

// begin starts the digest. Git's is of a header and the bytes.
func (p *part) begin() {
	if p.sum == nil {
		return
	}
	p.sum.Reset()
	if p.file.sha256 == "" {
		fmt.Fprintf(p.sum, "blob %d\x00", p.file.size)
	}
}

func (p *part) restart() error {
	p.length = 0
	p.begin()
	if err := p.f.Truncate(0); err != nil {
		return err
	}
	_, err := p.f.Seek(0, io.SeekStart)
	return err
}

// Write appends. What the file took is hashed, no more.
func (p *part) Write(b []byte) (int, error) {
	n, err := p.f.Write(b)
	p.hash().Write(b[:n]) // a hash does not fail
	p.length += int64(n)
	return n, err
}

// check compares a part of full length with the digest.
func (p *part) check() error {
	if p.sum == nil {
		return nil
	}
	if got := hex.EncodeToString(p.sum.Sum(nil)); got != p.want {
		return fmt.Errorf("%w: %s: the bytes hash to %s, announced was %s", ErrCorrupt, p.file.name, got, p.want)
	}
	return nil
}

// fetch puts a file into path, continuing at what partial holds. The caller
// has the blob's lock.
func (c *Client) fetch(ctx context.Context, r Repo, commit string, f *file, partial, path string, seen func(int64)) (err error) {
	p, err := openPart(partial, f)
	if err != nil {
		return fmt.Errorf("store %s: %w", f.name, err)
	}
	defer p.f.Close()
	seen(p.length)

	// Only bytes beyond what was ever there are progress: a server that cuts
	// and refuses ranges would keep this going for ever.
	furthest, failures := p.length, 0
	tries := 2 // with full length and wrong bytes
	if p.length > 0 {
		tries++ // what an earlier run left may be to blame
	}
	for {
		if p.length < f.size {
			err = c.more(ctx, r, commit, p, seen)
		}
		if err == nil {
			err = p.check()
		}
		if err == nil {
			break
		}
		if errors.Is(err, ErrCorrupt) {
			if e := p.restart(); e != nil {
				return errors.Join(err, e)
			}
			seen(0)
			if tries--; tries == 0 {
				p.f.Close()
				os.Remove(partial)
				return fmt.Errorf("%w; fetched again with the same result, and thrown away", err)
			}
			err = &transient{err: err}
		}
		if p.length > furthest {
			furthest, failures = p.length, 0
		}
		failures++
		if err := c.pause(ctx, err, failures, f.name); err != nil {
			return err
		}
		err = nil
	}
	if err := p.f.Sync(); err != nil {
		return fmt.Errorf("store %s: %w", f.name, err)
	}
	if err := p.f.Close(); err != nil {
		return fmt.Errorf("store %s: %w", f.name, err)
	}
	if err := os.Rename(partial, path); err != nil {
		return fmt.Errorf("store %s: %w", f.name, err)
	}
	return nil
}

// more sends one request for the rest of a part. Its error is transient, or
// wraps ErrCorrupt when the part must start over, or is final.
func (c *Client) more(ctx context.Context, r Repo, commit string, p *part, seen func(int64)) error {
	f := p.file
	u, err := c.fileAddress(r, commit, f)
	if err != nil {
		return err
	}
	ctx, watch := c.watch(ctx)
	defer watch.stop()
	header := http.Header{}
	if p.length > 0 {
		header.Set("Range", "bytes="+strconv.FormatInt(p.length, 10)+"-")
	}
	a, err := c.send(ctx, http.MethodGet, u, header, false)
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	if a.StatusCode == http.StatusRequestedRangeNotSatisfiable && p.length > 0 {
		drain(a.Body)
		return c.startOver(p, seen, "the server refuses to continue at byte "+strconv.FormatInt(p.length, 10))
	}
	if err := c.statusError(r, a); err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	defer a.Body.Close() // not drained: it may be long
	switch {
	case a.Header.Get("Content-Encoding") != "":
		return fmt.Errorf("%w: %s comes encoded as %q", ErrCorrupt, f.name, clip(a.Header.Get("Content-Encoding")))
	case a.StatusCode == http.StatusPartialContent && !continues(a.Header.Get("Content-Range"), p.length, f.size):
		return c.startOver(p, seen, fmt.Sprintf("the server sends the range %q, asked for bytes from %d of %d",
			clip(a.Header.Get("Content-Range")), p.length, f.size))
	case a.StatusCode == http.StatusOK && p.length > 0: // no ranges here
		if err := p.restart(); err != nil {
			return err
		}
		seen(0)
	case a.StatusCode != http.StatusOK && a.StatusCode != http.StatusPartialContent:
		return fmt.Errorf("%s: %s answers %s", f.name, a.Request.URL.Host, a.Status)
	}
	if left := f.size - p.length; a.ContentLength >= 0 && a.ContentLength != left {
		return fmt.Errorf("%w: %s: %d bytes come, %d were announced", ErrCorrupt, f.name, a.ContentLength, left)
	}

	body := watch.reader(a.Body)
	buf := make([]byte, 256<<10)
	for {
		n, err := body.Read(buf)
		if int64(n) > f.size-p.length {
			return fmt.Errorf("%w: %s: more than the %d bytes that were announced", ErrCorrupt, f.name, f.size)
		}
		if n > 0 {
			if _, err := p.Write(buf[:n]); err != nil {
				return fmt.Errorf("store %s: %w", f.name, err)
			}
			seen(p.length)
		}
		switch {
		case err == io.EOF && p.length == f.size:
			return nil
		case err == io.EOF:
			return &transient{err: fmt.Errorf("%s: the connection ended after %d of %d bytes", f.name, p.length, f.size)}
		case err != nil:
			return fmt.Errorf("%s: after %d of %d bytes: %w", f.name, p.length, f.size, networkError(ctx, a.Request.URL, err))
		}
	}
}

func (c *Client) startOver(p *part, seen func(int64), why string) error {
	if err := p.restart(); err != nil {
		return err
	}
	seen(0)
	return &transient{err: fmt.Errorf("%s: %s", p.file.name, why)}
}

// continues says whether a Content-Range begins at from and is of total bytes.
func continues(value string, from, total int64) bool {
	span, all, ok := strings.Cut(strings.TrimPrefix(value, "bytes "), "/")
	first, _, ok2 := strings.Cut(span, "-")
	return ok && ok2 && first == strconv.FormatInt(from, 10) && (all == "*" || all == strconv.FormatInt(total, 10))
}
