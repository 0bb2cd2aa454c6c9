package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/hub"
	"github.com/godflash/godflash/internal/registry"
	"github.com/godflash/godflash/internal/safetensors"
	"github.com/godflash/godflash/qwen"
)

// models lists what the cache has: each target with its drafter, each drafter,
// and what is of a kind that is not run.
func models(ctx context.Context, client *hub.Client, r *report) {
	all, err := client.List()
	if err != nil {
		r.add("cache", problem, err.Error(), "make the folder readable, or name another with HF_HUB_CACHE")
		return
	}
	r.add("cache", good, fmt.Sprintf("%d models in %s", len(all), client.Cache()), "")
	var others []string
	for _, s := range all {
		size := gibibytes(folderSize(s.Dir))
		if c, err := dflash.ReadDraftConfig(s.Dir); err == nil {
			if _, err := safetensors.Open(s.Dir); err != nil {
				r.add("drafter", problem, fmt.Sprintf("%s: %v", s.Repo, err), again(s.Repo))
				continue
			}
			r.add("drafter", good, fmt.Sprintf("%s, %s, %d layers, blocks of %d", s.Repo, size, c.NumHiddenLayers, c.BlockSize), "")
			continue
		}
		c, err := qwen.Check(ctx, nil, s.Dir, nil)
		switch {
		case c == nil:
			others = append(others, s.Repo.String())
			continue
		case errors.Is(err, qwen.ErrUnsupported):
			r.add("model", note, fmt.Sprintf("%s, %s, %s; not run: %v", s.Repo, size, c.ModelType, err), "")
			continue
		case err != nil:
			r.add("model", problem, fmt.Sprintf("%s: %v", s.Repo, err), again(s.Repo))
			continue
		}
		kind := c.ModelType
		if c.Quantization != "" {
			kind += ", " + c.Quantization
		}
		status, detail, fix := pair(client, s, c)
		r.add("model", status, fmt.Sprintf("%s, %s, %s; %s", s.Repo, size, kind, detail), fix)
	}
	if n := len(others); n > 0 {
		if n > 5 {
			others = append(others[:5], fmt.Sprintf("and %d more", n-5))
		}
		r.add("others", note, fmt.Sprintf("not run here, for reasons that -model NAME tells: %s", strings.Join(others, ", ")), "")
	}
}

// again is the command that fetches a damaged model once more.
func again(repo hub.Repo) string { return "hf download --force-download " + repo.ID() }

// pair says which drafter a cached model would get and whether the two fit.
func pair(client *hub.Client, s hub.Snapshot, c *qwen.Config) (status, detail, fix string) {
	m, ok := registry.Find(s.Repo.ID())
	switch {
	case !ok:
		return note, "no drafter is known for it", ""
	case m.Unsupported != "":
		return note, m.Why, ""
	}
	repo, err := hub.Parse(m.Drafter)
	if err != nil {
		return problem, err.Error(), "report this: the registry has a bad name"
	}
	d, err := client.Cached(repo)
	if err != nil {
		return note, "its drafter is not cached", "hf download " + m.Drafter
	}
	dc, err := dflash.ReadDraftConfig(d.Dir)
	if err == nil {
		err = dc.CheckPair(dflash.TargetInfo{
			Layers: c.NumHiddenLayers, HiddenSize: c.HiddenSize, VocabSize: c.VocabSize, ContextLength: c.MaxPositionEmbeddings,
		})
	}
	if err != nil {
		return problem, fmt.Sprintf("%s: %v", m.Drafter, err), "decode it without a drafter, or with another one"
	}
	return good, "drafts by " + m.Drafter, ""
}

// folderSize follows the links of a snapshot.
func folderSize(dir string) (sum int64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
	}
	return sum
}
