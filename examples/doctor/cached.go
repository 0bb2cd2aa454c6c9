package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/hub"
	"github.com/godflash/godflash/internal/registry"
	"github.com/godflash/godflash/qwen"
)

// models lists what the cache has: each target with its drafter, each drafter,
// and what is of a kind that is not run.
func models(client *hub.Client, r *report) {
	all, err := client.List()
	if err != nil {
		r.add("cache", problem, err.Error(), "make the folder readable, or name another with HF_HUB_CACHE")
		return
	}
	r.add("cache", good, fmt.Sprintf("%d models in %s", len(all), client.Cache()), "")
	others := 0
	for _, s := range all {
		size := gibibytes(folderSize(s.Dir))
		if c, err := dflash.ReadDraftConfig(s.Dir); err == nil {
			r.add("drafter", good, fmt.Sprintf("%s, %s, %d layers, blocks of %d", s.Repo, size, c.NumHiddenLayers, c.BlockSize), "")
			continue
		}
		c, err := qwen.ReadConfig(s.Dir)
		if err != nil {
			others++
			continue
		}
		status, detail, fix := pair(client, s, c)
		r.add("model", status, fmt.Sprintf("%s, %s, %s; %s", s.Repo, size, c.ModelType, detail), fix)
	}
	if others > 0 {
		r.add("others", note, fmt.Sprintf("%d cached models are of kinds that are not run; -model NAME says why", others), "")
	}
}

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
