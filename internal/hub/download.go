package hub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sync/errgroup"
)

// Download brings a model into the cache, or up to date there, and returns it.
// It asks the hub which commit the revision is now, once, and fetches the
// files of that commit which the cache lacks: *.json, *.jinja, *.safetensors
// and the tokenizer's, of the repository itself and its folders target and
// draft. A commit that is cached needs no network.
//
// Several programs may download at once; each file is fetched by one of them.
// After an error or a cancelled context what was received stays, and the next
// call continues there. Errors wrap ErrName, ErrOffline, ErrAuth, ErrNotFound,
// ErrRateLimited or ErrCorrupt where one fits.
func (c *Client) Download(ctx context.Context, r Repo) (Snapshot, error) {
	if err := r.check(); err != nil {
		return Snapshot{}, err
	}
	if commitPattern.MatchString(r.Revision) {
		if s, err := c.Cached(r); err == nil || !errors.Is(err, ErrNotCached) {
			return s, err
		}
	}
	if c.opts.Offline {
		return Snapshot{}, fmt.Errorf("download %s: %w: downloads are switched off (HF_HUB_OFFLINE)", r, ErrOffline)
	}
	if c.own {
		defer c.http.CloseIdleConnections()
	}
	s, err := c.download(ctx, r)
	if err != nil {
		return Snapshot{}, fmt.Errorf("download %s: %w", r, err)
	}
	c.opts.Logger.Info("model downloaded", "model", r.String(), "commit", s.Commit, "dir", s.Dir)
	return s, nil
}

func (c *Client) download(ctx context.Context, r Repo) (Snapshot, error) {
	commit, files, err := c.list(ctx, r)
	if err != nil {
		return Snapshot{}, err
	}
	dir := c.repoDir(r)
	s := Snapshot{Repo: r, Commit: commit, Dir: filepath.Join(dir, "snapshots", commit)}
	blobs := filepath.Join(dir, "blobs")
	for _, d := range []string{blobs, c.lockDir(r)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return Snapshot{}, err
		}
	}

	t := newTracker(r, files, c.opts.Progress)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(c.opts.Connections)
	for i, f := range files {
		group.Go(func() error { return c.blob(groupCtx, r, commit, f, blobs, func(done int64) { t.set(i, done) }) })
	}
	if err := group.Wait(); err != nil {
		return Snapshot{}, err
	}
	for _, f := range files {
		if err := c.link(filepath.Join(blobs, f.etag), s.Dir, f.name); err != nil {
			return Snapshot{}, fmt.Errorf("put %s into the snapshot: %w", f.name, err)
		}
	}
	if r.revision() != commit {
		if err := writeRef(dir, r.revision(), commit); err != nil {
			return Snapshot{}, fmt.Errorf("note the commit of %s: %w", r.revision(), err)
		}
	}
	return s, nil
}

// blob makes sure that a file's bytes are in blobs, under its etag.
func (c *Client) blob(ctx context.Context, r Repo, commit string, f *file, blobs string, seen func(int64)) error {
	// The hub's etag is the digest that the listing has: no need to ask.
	for _, etag := range []string{f.sha256, f.gitID} {
		if etag != "" && f.size >= 0 && hasSize(filepath.Join(blobs, etag), f.size) {
			f.etag = etag
			seen(f.size)
			return nil
		}
	}
	if err := c.head(ctx, r, commit, f); err != nil {
		return err
	}
	path := filepath.Join(blobs, f.etag)
	if hasSize(path, f.size) {
		seen(f.size)
		return nil
	}
	unlock, err := c.lock(ctx, r, f.etag)
	if err != nil {
		return err
	}
	defer unlock()
	if hasSize(path, f.size) { // another process was faster
		seen(f.size)
		return nil
	}
	return c.fetch(ctx, r, commit, f, path+partSuffix, path, seen)
}

func hasSize(path string, size int64) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() == size
}

func (c *Client) lockDir(r Repo) string {
	return filepath.Join(c.opts.Cache, ".locks", filepath.Base(c.repoDir(r)))
}

// lock takes the lock of a blob, the one that huggingface_hub takes too. The
// system drops it when the process ends, however it ends.
func (c *Client) lock(ctx context.Context, r Repo, etag string) (unlock func(), err error) {
	path := filepath.Join(c.lockDir(r), etag+".lock")
	for waiting := false; ; {
		l := flock.New(path)
		got, err := l.TryLock()
		if err == nil && !got && !waiting {
			waiting = true
			c.opts.Logger.Info("hub: another process downloads this file, waiting", "model", r.String(), "lock", path)
		}
		if err == nil && !got {
			_, err = l.TryLockContext(ctx, 100*time.Millisecond)
		}
		if err != nil {
			l.Close()
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// Others may remove lock files: a lock on one that is gone excludes nobody.
		held, err1 := l.Stat()
		there, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(held, there) {
			return func() { l.Close() }, nil
		}
		l.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// tracker adds up the progress of all files and tells it, one at a time.
type tracker struct {
	mu    sync.Mutex
	repo  Repo
	files []*file
	done  []int64
	size  []int64
	tell  func(Event)
}

func newTracker(r Repo, files []*file, tell func(Event)) *tracker {
	t := &tracker{repo: r, files: files, done: make([]int64, len(files)), size: make([]int64, len(files)), tell: tell}
	for i, f := range files {
		t.size[i] = f.size
	}
	return t
}

// set is called by the one goroutine that works on the file.
func (t *tracker) set(i int, done int64) {
	if t.tell == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.files[i]
	t.done[i], t.size[i] = done, f.size
	e := Event{Repo: t.repo, File: f.name, Done: done, Size: f.size}
	for j, size := range t.size {
		e.AllDone += t.done[j]
		e.AllSize += max(size, t.done[j])
	}
	t.tell(e)
}
