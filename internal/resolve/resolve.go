// Package resolve turns what a user calls a model into folders: the model's
// and its drafter's.
package resolve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/godflash/godflash/internal/hub"
	"github.com/godflash/godflash/internal/registry"
)

// ErrNoModel: the name is no folder, no id of the hub, and no name of a cached
// model.
var ErrNoModel = errors.New("no such model")

// Options are the choices of Find.
type Options struct {
	// Hub looks names up. Nil: names are folders only.
	Hub *hub.Client
	// Download allows Hub to fetch what the cache lacks, the drafter too.
	Download bool
	// Draft names the drafter, as a model is named. Empty: it is looked for.
	Draft string
	// NoDraft looks for none.
	NoDraft bool
	// Logger hears what was chosen. Nil: silent.
	Logger *slog.Logger
}

// Place is where a model or drafter is.
type Place struct {
	Dir string
	// Repo and Commit are of a snapshot in the hub's cache, else empty.
	Repo   string
	Commit string
}

// Found is the answer of Find.
type Found struct {
	Target Place
	// Draft.Dir is empty without a drafter.
	Draft Place
	// Asked: the user named the drafter, or laid it into the model's folder. One
	// that the registry chose may turn out not to fit; then plain decoding is
	// the better answer than an error.
	Asked bool
	// Why says how the drafter was chosen, or why there is none.
	Why string
}

// Find resolves a model's name, which is, in this order:
//
//   - a folder, with ~ for the home folder; of a pair's folder, which holds
//     target and draft, the two
//   - owner/name or owner/name@revision on the hub
//   - the last part of such a name, if the cache has one model of that name;
//     letter case does not count
//
// The drafter is the one that Options name, else the folder draft inside the
// model's or beside target, else the registry's for the model's name: from a folder
// of its name beside the model's, or of owner/name beside the model's owner, or from
// the cache, or downloaded where that is allowed, else none, which is no error.
//
// Errors wrap ErrNoModel, or are those of package hub.
func Find(ctx context.Context, name string, o *Options) (Found, error) {
	var r resolver
	if o != nil {
		r.Options = *o
	}
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	if r.NoDraft && r.Draft != "" {
		return Found{}, errors.New("both NoDraft and a drafter")
	}
	root, err := r.place(ctx, name)
	if err != nil {
		return Found{}, fmt.Errorf("model %q: %w", name, err)
	}
	f := Found{Target: root}
	if target := filepath.Join(root.Dir, "target"); !exists(root.Dir, "config.json") && exists(target) {
		f.Target.Dir = target
	}
	if err := r.draft(ctx, root, &f); err != nil {
		return Found{}, err
	}
	r.Logger.Info("model found", "model", name, "dir", f.Target.Dir, "repo", f.Target.Repo, "commit", f.Target.Commit,
		"draft", f.Draft.Dir, "draft_repo", f.Draft.Repo, "draft_commit", f.Draft.Commit, "why", f.Why)
	return f, nil
}

type resolver struct{ Options }

func (r *resolver) place(ctx context.Context, name string) (Place, error) {
	if name == "" {
		return Place{}, fmt.Errorf("%w: the name is empty", ErrNoModel)
	}
	dir := name
	if name == "~" || strings.HasPrefix(name, "~/") {
		home, err := os.UserHomeDir()
		if err != nil {
			return Place{}, fmt.Errorf("%w: %s: %w", ErrNoModel, name, err)
		}
		dir = filepath.Join(home, name[1:])
	}
	switch info, err := os.Stat(dir); {
	case err == nil && info.IsDir():
		return r.known(filepath.Clean(dir)), nil
	case err == nil:
		return Place{}, fmt.Errorf("%w: %s is a file; give the model's folder", ErrNoModel, dir)
	case isPath(name):
		return Place{}, fmt.Errorf("%w: %w", ErrNoModel, err)
	case r.Hub == nil:
		return Place{}, fmt.Errorf("%w: there is no folder %s, and no hub to look it up in", ErrNoModel, dir)
	}
	if !strings.Contains(name, "/") {
		return r.short(name)
	}
	repo, err := hub.Parse(name)
	if err != nil {
		return Place{}, fmt.Errorf("%w: there is no folder %s: %w", ErrNoModel, dir, err)
	}
	return r.get(ctx, repo)
}

// isPath says whether a name can only be meant as a path.
func isPath(name string) bool {
	id, _, _ := strings.Cut(name, "@")
	return filepath.IsAbs(name) || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "~") || strings.HasPrefix(name, "/") ||
		strings.Contains(id, `\`) || strings.HasSuffix(name, "/") || strings.Count(id, "/") > 1
}

func (r *resolver) get(ctx context.Context, repo hub.Repo) (Place, error) {
	get := func() (hub.Snapshot, error) { return r.Hub.Cached(repo) }
	if r.Download {
		get = func() (hub.Snapshot, error) { return r.Hub.Get(ctx, repo) }
	}
	s, err := get()
	if err != nil {
		return Place{}, err
	}
	return Place{Dir: s.Dir, Repo: repo.ID(), Commit: s.Commit}, nil
}

// known adds what the path of a snapshot in the cache tells.
func (r *resolver) known(dir string) Place {
	p := Place{Dir: dir}
	if r.Hub == nil {
		return p
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return p
	}
	rel, err := filepath.Rel(r.Hub.Cache(), abs)
	if err != nil {
		return p
	}
	parts := strings.Split(filepath.ToSlash(rel), "/")
	if len(parts) == 3 && parts[1] == "snapshots" {
		if id := strings.Split(parts[0], "--"); len(id) == 3 && id[0] == "models" {
			p.Repo, p.Commit = id[1]+"/"+id[2], parts[2]
		}
	}
	return p
}

// short looks for a model by the last part of its name, in the cache.
func (r *resolver) short(name string) (Place, error) {
	want, revision, _ := strings.Cut(name, "@")
	all, err := r.Hub.List()
	if err != nil {
		return Place{}, err
	}
	ids := map[string]hub.Repo{}
	var cached []string
	for _, s := range all {
		if id := s.Repo.ID(); strings.EqualFold(s.Repo.Name, want) {
			ids[id] = hub.Repo{Owner: s.Repo.Owner, Name: s.Repo.Name, Revision: revision}
		} else if !slices.Contains(cached, id) {
			cached = append(cached, id)
		}
	}
	switch len(ids) {
	case 1:
		for _, repo := range ids {
			s, err := r.Hub.Cached(repo)
			if err != nil {
				return Place{}, err
			}
			return Place{Dir: s.Dir, Repo: repo.ID(), Commit: s.Commit}, nil
		}
	case 0:
		if len(cached) > 20 {
			cached = append(cached[:20], "…")
		}
		there := "nothing"
		if len(cached) > 0 {
			there = strings.Join(cached, ", ")
		}
		return Place{}, fmt.Errorf("%w: there is no folder %s, and the cache %s has no model of that name; it has %s. Give a folder, or owner/name as on the hub",
			ErrNoModel, name, r.Hub.Cache(), there)
	}
	var several []string
	for id := range ids {
		several = append(several, id)
	}
	slices.Sort(several)
	return Place{}, fmt.Errorf("%w: the cache has several models of that name: give one of %s", ErrNoModel, strings.Join(several, ", "))
}

// draft fills in the drafter.
func (r *resolver) draft(ctx context.Context, root Place, f *Found) error {
	if r.NoDraft {
		f.Why = "switched off"
		return nil
	}
	if r.Draft != "" {
		p, err := r.place(ctx, r.Draft)
		if err != nil {
			return fmt.Errorf("drafter %q: %w", r.Draft, err)
		}
		f.Draft, f.Asked, f.Why = p, true, "named by the caller"
		return nil
	}
	// Whatever lies there under that name is meant: if it is no drafter, that is
	// an error, not a reason to go on without one.
	if dir := filepath.Join(root.Dir, "draft"); exists(dir) {
		f.Draft, f.Asked, f.Why = Place{Dir: dir, Repo: root.Repo, Commit: root.Commit}, true, "the folder draft of the model"
		return nil
	}

	name, beside := root.Repo, ""
	if name == "" {
		abs, err := filepath.Abs(root.Dir) // for "."
		if err != nil {
			return err
		}
		name, beside = abs, filepath.Dir(abs)
	}
	m, ok := registry.Find(name)
	switch {
	case !ok:
		f.Why = fmt.Sprintf("no drafter is known for %s, and %s has no folder draft", registry.NameOf(name), root.Dir)
		return nil
	case m.Unsupported != "":
		f.Why = m.Why
		return nil
	}
	repo, err := hub.Parse(m.Drafter)
	if err != nil {
		return fmt.Errorf("registry: %w", err)
	}
	if beside != "" {
		for _, dir := range []string{filepath.Join(beside, repo.Name), filepath.Join(filepath.Dir(beside), repo.Owner, repo.Name)} {
			if exists(dir, "config.json") {
				f.Draft, f.Why = Place{Dir: dir}, m.Why+"; it lies near the model, in "+dir
				return nil
			}
		}
	}
	if r.Hub == nil {
		f.Why = m.Why + "; there is no hub to look it up in"
		return nil
	}
	p, err := r.get(ctx, repo)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// Drafts only make it faster: say so and go on.
		f.Why = fmt.Sprintf("%s, but it is not at hand: %v", m.Why, err)
		r.Logger.Warn("decoding without a drafter", "model", name, "drafter", m.Drafter, "error", err)
		return nil
	}
	f.Draft, f.Why = p, m.Why
	return nil
}

// exists says whether there is an entry of any kind, a broken link included.
func exists(path ...string) bool {
	_, err := os.Lstat(filepath.Join(path...))
	return err == nil
}
