package hub

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	configName = "config.json"
	singleName = "model.safetensors"
	indexName  = "model.safetensors.index.json"
)

// repoDir is the model's folder in the cache; the name has been checked.
func (c *Client) repoDir(r Repo) string {
	return filepath.Join(c.opts.Cache, "models--"+r.Owner+"--"+r.Name)
}

// Cached finds a model in the cache. It uses no network.
//
// A revision is looked up in refs, or is itself a commit; main is no fallback
// for one that is not there. A snapshot counts when it has config.json and the
// weights that its index names, or some, and no link that a model needs leads
// nowhere. Errors wrap ErrName or ErrNotCached.
func (c *Client) Cached(r Repo) (Snapshot, error) {
	if err := r.check(); err != nil {
		return Snapshot{}, err
	}
	dir := c.repoDir(r)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Snapshot{}, fmt.Errorf("look for %s in the cache: %w", r, err)
		}
		return Snapshot{}, c.notCached(r, "there is no folder "+dir)
	}
	commit, err := c.resolve(r)
	if err != nil {
		return Snapshot{}, err
	}
	s := Snapshot{Repo: r, Commit: commit, Dir: filepath.Join(dir, "snapshots", commit)}
	flaw, err := incomplete(s.Dir)
	switch {
	case err != nil:
		return Snapshot{}, fmt.Errorf("look for %s in the cache: %w", r, err)
	case flaw != "":
		return Snapshot{}, c.notCached(r, flaw)
	}
	return s, nil
}

// resolve is the commit that the cache has for a revision.
func (c *Client) resolve(r Repo) (string, error) {
	dir, rev := c.repoDir(r), r.revision()
	ref := filepath.Join(dir, "refs", filepath.FromSlash(rev))
	text, err := os.ReadFile(ref)
	commit := string(bytes.TrimSpace(text))
	switch {
	case err == nil && commitPattern.MatchString(commit):
		return commit, nil
	case err == nil:
		return "", c.notCached(r, fmt.Sprintf("%s holds no commit: %q", ref, clip(commit)))
	case commitPattern.MatchString(rev):
		return rev, nil
	case !errors.Is(err, fs.ErrNotExist) && !isDir(ref):
		return "", fmt.Errorf("look for %s in the cache: %w", r, err)
	}
	flaw := fmt.Sprintf("there is no %s, which would say what %s is", ref, rev)
	if there := names(filepath.Join(dir, "snapshots")); len(there) > 0 {
		flaw += fmt.Sprintf("; the cache has %s, which %s@COMMIT names", strings.Join(there, ", "), r.ID())
	}
	return "", c.notCached(r, flaw)
}

// incomplete says what a snapshot's folder lacks, with the empty string for
// nothing.
func incomplete(dir string) (flaw string, err error) {
	if !isDir(dir) {
		return "there is no folder " + dir, nil
	}
	weights := 0
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if rel, err := filepath.Rel(dir, path); err != nil || !wanted(filepath.ToSlash(rel)) {
			return err // a README may well be missing
		}
		if _, err := os.Stat(path); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			target, _ := os.Readlink(path)
			flaw = fmt.Sprintf("broken link: %s leads to %s, which is missing", path, target)
			return fs.SkipAll
		}
		if filepath.Ext(path) == ".safetensors" {
			weights++
		}
		return nil
	})
	if err != nil || flaw != "" {
		return flaw, err
	}
	for _, base := range []string{dir, filepath.Join(dir, "target")} {
		if !isFile(filepath.Join(base, configName)) {
			continue
		}
		if weights == 0 {
			return "there are no *.safetensors in " + base, nil
		}
		return missingShard(base)
	}
	return fmt.Sprintf("there is no %s in %s", configName, dir), nil
}

// missingShard looks for the weight files that an index names. A stale index
// beside model.safetensors is the loader's affair.
func missingShard(dir string) (flaw string, err error) {
	path := filepath.Join(dir, indexName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || isFile(filepath.Join(dir, singleName)) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return "", nil //nolint:nilerr // a bad index is the loader's to explain
	}
	var missing []string
	for _, shard := range index.WeightMap {
		if checkFile(shard) == nil && !isFile(filepath.Join(dir, filepath.FromSlash(shard))) {
			missing = append(missing, shard)
		}
	}
	if len(missing) == 0 {
		return "", nil
	}
	slices.Sort(missing)
	return fmt.Sprintf("%s names %s, which is not there", path, slices.Compact(missing)[0]), nil
}

func (c *Client) notCached(r Repo, flaw string) error {
	command := "hf download " + r.ID()
	if r.Revision != "" {
		command += " --revision " + r.Revision
	}
	return fmt.Errorf("%s is %w: looked in %s: %s; this gets it: %s, or opening it with downloads allowed (Options.Download; -download of the programs)", r, ErrNotCached, c.opts.Cache, flaw, command)
}

// List is every model and every snapshot in the cache that Cached would accept
// by its commit, in the order of their names. Revision is a branch or tag that
// stands for the commit, main if it does, else the commit.
func (c *Client) List() ([]Snapshot, error) {
	entries, err := os.ReadDir(c.opts.Cache)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list the cache: %w", err)
	}
	var all []Snapshot
	for _, e := range entries {
		id, ok := strings.CutPrefix(e.Name(), "models--")
		if !ok {
			continue // datasets, locks, the store of blobs that models share
		}
		owner, name, _ := strings.Cut(id, "--")
		r := Repo{Owner: owner, Name: name}
		if r.check() != nil {
			continue // a model without an owner, which Parse does not accept either
		}
		dir := c.repoDir(r)
		refs := readRefs(filepath.Join(dir, "refs"))
		for _, commit := range names(filepath.Join(dir, "snapshots")) {
			s := Snapshot{Repo: r, Commit: commit, Dir: filepath.Join(dir, "snapshots", commit)}
			if flaw, err := incomplete(s.Dir); err != nil || flaw != "" || !commitPattern.MatchString(commit) {
				continue
			}
			s.Repo.Revision = commit
			if revs := refs[commit]; slices.Contains(revs, "main") {
				s.Repo.Revision = "main"
			} else if len(revs) > 0 {
				s.Repo.Revision = revs[0]
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// readRefs maps commits to the revisions that stand for them.
func readRefs(dir string) map[string][]string {
	refs := map[string][]string{}
	// What cannot be read names nothing; the commit does.
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if text, err := os.ReadFile(path); err == nil {
			rel, _ := filepath.Rel(dir, path)
			commit := string(bytes.TrimSpace(text))
			refs[commit] = append(refs[commit], filepath.ToSlash(rel))
		}
		return nil
	})
	return refs
}

// names are the entries of a folder, none of one that is not there.
func names(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
