package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

const maxListing = 64 << 20 // bytes of JSON

// file is one file of a commit.
type file struct {
	name   string
	size   int64  // -1: not said
	sha256 string // of a file in large file storage, else empty
	gitID  string // object id in Git of the others: SHA-1 of a header and the bytes
	etag   string // name of the blob
}

// listing is the hub's answer to "what is in this revision".
type listing struct {
	SHA      string `json:"sha"`
	Siblings []struct {
		Name   string `json:"rfilename"`
		Size   *int64 `json:"size"`
		BlobID string `json:"blobId"`
		LFS    *struct {
			SHA256 string `json:"sha256"`
			Size   *int64 `json:"size"`
		} `json:"lfs"`
	} `json:"siblings"`
}

// list asks for the commit of a revision and for its files that a model needs,
// config.json last.
func (c *Client) list(ctx context.Context, r Repo) (commit string, files []*file, err error) {
	u, err := c.address("/api/models/" + r.ID() + "/revision/" + url.PathEscape(r.revision()) + "?blobs=true")
	if err != nil {
		return "", nil, err
	}
	var l listing
	for failures := 1; ; failures++ {
		l = listing{}
		err := c.getJSON(ctx, r, u, &l)
		if err == nil {
			break
		}
		if err := c.pause(ctx, err, failures, "list of files"); err != nil {
			return "", nil, err
		}
	}
	if !commitPattern.MatchString(l.SHA) {
		return "", nil, fmt.Errorf("%w: the listing of %s names no commit: %q", ErrCorrupt, r, clip(l.SHA))
	}
	if commitPattern.MatchString(r.Revision) && r.Revision != l.SHA {
		return "", nil, fmt.Errorf("%w: %s was asked for, the listing is of %s", ErrCorrupt, r, l.SHA)
	}
	files, err = l.files()
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", r, err)
	}
	return l.SHA, files, nil
}

func (c *Client) address(suffix string) (*url.URL, error) {
	return url.Parse(c.endpoint.String() + suffix)
}

func (c *Client) getJSON(ctx context.Context, r Repo, u *url.URL, v any) error {
	ctx, watch := c.watch(ctx)
	defer watch.stop()
	a, err := c.send(ctx, http.MethodGet, u, nil, false)
	if err != nil {
		return err
	}
	if err := c.statusError(r, a); err != nil {
		return err
	}
	defer drain(a.Body)
	text, err := io.ReadAll(io.LimitReader(watch.reader(a.Body), maxListing+1))
	switch {
	case err != nil:
		return networkError(ctx, a.Request.URL, err)
	case len(text) > maxListing:
		return fmt.Errorf("%w: the listing of %s is longer than %d bytes", ErrCorrupt, r, maxListing)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("%w: %s answers something else than the list of files of %s; a proxy or login page may stand between: %w", ErrCorrupt, a.Request.URL.Host, r, err)
	}
	return nil
}

func (l *listing) files() ([]*file, error) {
	var files []*file
	seen := map[string]bool{}
	extensions := map[string]bool{}
	weights := false
	for _, s := range l.Siblings {
		if err := checkFile(s.Name); err != nil {
			return nil, err
		}
		extensions[path.Ext(s.Name)] = true
		if !wanted(s.Name) {
			continue
		}
		if seen[s.Name] {
			return nil, fmt.Errorf("%w: the listing has %s twice", ErrCorrupt, s.Name)
		}
		seen[s.Name] = true
		f := &file{name: s.Name, size: -1, gitID: s.BlobID}
		if s.Size != nil {
			f.size = *s.Size
		}
		if s.LFS != nil {
			f.sha256, f.gitID = s.LFS.SHA256, ""
			if s.LFS.Size != nil {
				f.size = *s.LFS.Size
			}
			if f.sha256 != "" && !isHex(f.sha256, 64) {
				return nil, fmt.Errorf("%w: the listing has %q for the SHA-256 of %s", ErrCorrupt, clip(f.sha256), f.name)
			}
		}
		if f.gitID != "" && !isHex(f.gitID, 40) {
			return nil, fmt.Errorf("%w: the listing has %q for the Git id of %s", ErrCorrupt, clip(f.gitID), f.name)
		}
		weights = weights || path.Ext(s.Name) == ".safetensors"
		files = append(files, f)
	}
	switch {
	case !seen[configName] && !seen["target/"+configName]:
		return nil, fmt.Errorf("%s %w in this repository: it holds no model that this program can open", configName, ErrNotFound)
	case !weights && extensions[".gguf"]:
		return nil, fmt.Errorf("*.safetensors %w in this repository, which has GGUF files: look for the model's original or an MLX conversion", ErrNotFound)
	case !weights:
		return nil, fmt.Errorf("*.safetensors %w in this repository", ErrNotFound)
	}
	slices.SortStableFunc(files, func(a, b *file) int { return rank(a.name) - rank(b.name) })
	return files, nil
}

func rank(name string) int {
	if path.Base(name) == configName {
		return 1
	}
	return 0
}

func isHex(s string, digits int) bool {
	return len(s) == digits && strings.Trim(s, "0123456789abcdef") == ""
}

// fileAddress is where a commit's file is.
func (c *Client) fileAddress(r Repo, commit string, f *file) (*url.URL, error) {
	var escaped []string
	for part := range strings.SplitSeq(f.name, "/") {
		escaped = append(escaped, url.PathEscape(part))
	}
	return c.address("/" + r.ID() + "/resolve/" + commit + "/" + strings.Join(escaped, "/"))
}

// head completes what the listing said of a file. The answer is the hub's own,
// not that of the storage to which it redirects.
func (c *Client) head(ctx context.Context, r Repo, commit string, f *file) error {
	u, err := c.fileAddress(r, commit, f)
	if err != nil {
		return err
	}
	for failures := 1; ; failures++ {
		err := c.headOnce(ctx, r, commit, f, u)
		if err == nil {
			return nil
		}
		if err := c.pause(ctx, err, failures, f.name); err != nil {
			return err
		}
	}
}

func (c *Client) headOnce(ctx context.Context, r Repo, commit string, f *file, u *url.URL) error {
	ctx, watch := c.watch(ctx)
	defer watch.stop()
	a, err := c.send(ctx, http.MethodHead, u, nil, true)
	if err != nil {
		return err
	}
	defer drain(a.Body)
	if !isRedirect(a.StatusCode) {
		if err := c.statusError(r, a); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if a.commit != "" && a.commit != commit {
		return fmt.Errorf("%w: %s of %s is answered from commit %q, asked for %s", ErrCorrupt, f.name, r, clip(a.commit), commit)
	}
	size, err := announced(a)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, f.name, err)
	case size >= 0 && f.size >= 0 && size != f.size && a.size != "":
		return fmt.Errorf("%w: %s has %d bytes in the listing and %d in X-Linked-Size", ErrCorrupt, f.name, f.size, size)
	case f.size < 0:
		f.size = size
	}
	if f.size < 0 {
		return fmt.Errorf("%w: nothing says how long %s is", ErrCorrupt, f.name)
	}

	etag := a.etag
	if etag == "" {
		etag = a.Header.Get("ETag")
	}
	f.etag = strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
	if !etagPattern.MatchString(f.etag) || strings.Contains(f.etag, "..") {
		return fmt.Errorf("%w: %q is the ETag of %s, which is no name for a blob", ErrCorrupt, clip(etag), f.name)
	}
	if isHex(f.etag, 64) {
		if f.sha256 != "" && f.sha256 != f.etag {
			return fmt.Errorf("%w: the SHA-256 of %s is %s in the listing and %s in the ETag", ErrCorrupt, f.name, f.sha256, f.etag)
		}
		f.sha256 = f.etag
	}
	return nil
}

func announced(a *answer) (int64, error) {
	if a.size == "" {
		if a.StatusCode == http.StatusOK && a.Header.Get("Content-Encoding") == "" {
			return a.ContentLength, nil
		}
		return -1, nil
	}
	size, err := strconv.ParseInt(a.size, 10, 64)
	if err != nil || size < 0 {
		return 0, errors.New("X-Linked-Size is no size")
	}
	return size, nil
}
