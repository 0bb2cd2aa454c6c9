package hub

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// Repo names a model on the hub.
type Repo struct {
	Owner, Name string
	// Revision is a branch, a tag or a commit. Empty is the branch main.
	Revision string
}

// ID is owner/name.
func (r Repo) ID() string { return r.Owner + "/" + r.Name }

func (r Repo) String() string {
	if r.Revision == "" {
		return r.ID()
	}
	return r.ID() + "@" + r.Revision
}

func (r Repo) revision() string {
	if r.Revision == "" {
		return "main"
	}
	return r.Revision
}

var (
	// The hub's own rules, of which huggingface_hub's validate_repo_id says:
	// letters, digits, "-", "_" and ".", none of "-" and "." at an end, no "--"
	// and no "..", at most 96 characters.
	partPattern     = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$`)
	revisionPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*$`)
	commitPattern   = regexp.MustCompile(`^[0-9a-f]{40}$`)
	etagPattern     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
)

const (
	maxPart     = 96
	maxRevision = 200
)

// Parse reads owner/name or owner/name@revision. It accepts what the hub does
// and nothing that could lead out of the cache's folder. Errors wrap ErrName.
func Parse(name string) (Repo, error) {
	id, revision, pinned := strings.Cut(name, "@")
	owner, model, ok := strings.Cut(id, "/")
	if !ok {
		return Repo{}, fmt.Errorf("%w: %q is not of the form owner/name or owner/name@revision", ErrName, clip(name))
	}
	r := Repo{Owner: owner, Name: model, Revision: revision}
	if pinned && revision == "" {
		return Repo{}, fmt.Errorf("%w: %q names no revision after @", ErrName, clip(name))
	}
	return r, r.check()
}

// check is for a Repo that did not come from Parse as much as for one that did.
func (r Repo) check() error {
	for _, part := range []string{r.Owner, r.Name} {
		switch {
		case len(part) > maxPart:
			return fmt.Errorf("%w: %q has more than %d characters", ErrName, clip(part), maxPart)
		case !partPattern.MatchString(part) || strings.Contains(part, "--") || strings.Contains(part, ".."):
			return fmt.Errorf("%w: %q in %q: letters, digits, \"-\", \"_\" and \".\" make a name, without \"--\", \"..\", or \"-\" and \".\" at an end",
				ErrName, clip(part), clip(r.String()))
		}
	}
	if strings.HasSuffix(r.Name, ".git") {
		return fmt.Errorf("%w: %q: leave out .git", ErrName, r.ID())
	}
	if rev := r.Revision; rev != "" && (len(rev) > maxRevision || !revisionPattern.MatchString(rev) || strings.Contains(rev, "..")) {
		return fmt.Errorf("%w: %q is no branch, tag or commit", ErrName, clip(rev))
	}
	return nil
}

// checkFile refuses names that a hostile or broken listing could use to write
// outside the snapshot's folder, on any system.
func checkFile(name string) error {
	bad := name == "" || len(name) > 500 || !filepath.IsLocal(filepath.FromSlash(name)) || path.Clean(name) != name
	for _, c := range name {
		bad = bad || c < ' ' || c >= 0x7f && c < 0xa0 || strings.ContainsRune(`\:*?"<>|`, c)
	}
	for part := range strings.SplitSeq(name, "/") {
		// Windows drops a dot or space at an end: "x/.. " would be "x/..".
		bad = bad || part == "" || part == ".." || strings.TrimRight(part, ". ") != part
	}
	if bad {
		return fmt.Errorf("%w: the listing has a file %q, which is no plain relative path", ErrName, clip(name))
	}
	return nil
}

// wanted says whether a model needs a file: configuration, templates,
// tokenizer and safetensors weights of the folder itself, or of the folders
// target and draft of a pair.
func wanted(name string) bool {
	dir, base := path.Split(name)
	if dir != "" && dir != "target/" && dir != "draft/" || strings.HasPrefix(base, ".") {
		return false
	}
	switch path.Ext(base) {
	case ".json", ".jinja", ".safetensors", ".tiktoken":
		return true
	}
	return base == "merges.txt" || base == "vocab.txt" || base == "tokenizer.model"
}

// clip keeps a message short whatever the input.
func clip(s string) string {
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}
