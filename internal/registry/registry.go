// Package registry knows which drafter was trained for which model: the table
// in registry.json, and the rule by which a model's name finds its line.
//
// The rule: the organisation is dropped, for conversions carry another one;
// letter case does not count, for the hub ignores it and folders are renamed;
// of the bases that begin the name and end there, or before "-" or "_", the
// longest counts. So mlx-community/Qwen3.5-27B-4bit is a Qwen3.5-27B, and
// Qwen3-40B is no Qwen3-4B.
//
// A match can say that its drafter is not run: for its kind, for the model's
// family, or because the rest of the name says that the model was trained
// further (Base, Instruct-2507), to which no drafter of the base was fitted.
// It is for the user to name such a drafter all the same.
package registry

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// Match is the line of the table that a name found.
type Match struct {
	Base    string // as the table writes it, such as Qwen3.5-27B
	Drafter string // id on the hub
	Kind    string // of drafter, such as DFlash
	Note    string // what a user of the pair should know, often empty
	// Unsupported says why the drafter is not to be used unasked. Empty: it is.
	Unsupported string
	// Why is a sentence for people: which drafter, and for which reason.
	Why string
}

type entry struct {
	Base        string `json:"base"`
	Drafter     string `json:"drafter"`
	Kind        string `json:"kind"`
	Note        string `json:"note"`
	Unsupported string `json:"unsupported"`
}

type table struct {
	Retrained []string `json:"retrained"`
	Entries   []entry  `json:"entries"`
}

//go:embed registry.json
var data []byte

var load = sync.OnceValue(func() *table {
	t, err := parse(data)
	if err != nil {
		panic(fmt.Sprintf("registry.json, which is part of the program: %v", err))
	}
	return t
})

var idPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$`)

func parse(text []byte) (*table, error) {
	var t table
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, e := range t.Entries {
		key := strings.ToLower(e.Base)
		switch {
		case key == "" || e.Kind == "" || strings.Contains(e.Base, "/"):
			return nil, fmt.Errorf("entry %q lacks its kind, or its base has an organisation", e.Base)
		case seen[key]:
			return nil, fmt.Errorf("%s is there twice", e.Base)
		case !idPattern.MatchString(e.Drafter):
			return nil, fmt.Errorf("%s: %q is no owner/name", e.Base, e.Drafter)
		}
		seen[key] = true
	}
	if len(t.Entries) == 0 {
		return nil, errors.New("no entries")
	}
	return &t, nil
}

// Find looks up the drafter for a model: owner/name, with or without
// @revision, a bare name, or a folder's path.
func Find(model string) (Match, bool) { return load().find(model) }

func (t *table) find(model string) (Match, bool) {
	name := NameOf(model)
	var best *entry
	rest := ""
	for i := range t.Entries {
		e := &t.Entries[i]
		if r, ok := begins(name, e.Base); ok && (best == nil || len(e.Base) > len(best.Base)) {
			best, rest = e, r
		}
	}
	if best == nil {
		return Match{}, false
	}
	m := Match{Base: best.Base, Drafter: best.Drafter, Kind: best.Kind, Note: best.Note, Unsupported: best.Unsupported}
	if m.Unsupported == "" {
		for _, r := range t.Retrained {
			if _, ok := begins(rest, r); ok {
				m.Unsupported = fmt.Sprintf("%s was trained further than %s, which this drafter was made for", name, best.Base)
			}
		}
	}
	if m.Unsupported != "" {
		m.Why = fmt.Sprintf("%s is known for %s, but %s", m.Drafter, m.Base, m.Unsupported)
		return m, true
	}
	m.Why = fmt.Sprintf("%s was trained for %s", m.Drafter, m.Base)
	if m.Note != "" {
		m.Why += "; " + m.Note
	}
	return m, true
}

// begins says whether name is base, or base and more after "-" or "_", which
// is the rest.
func begins(name, base string) (rest string, ok bool) {
	if len(name) < len(base) || !strings.EqualFold(name[:len(base)], base) {
		return "", false
	}
	rest = name[len(base):]
	if rest == "" {
		return "", true
	}
	return rest[1:], rest[0] == '-' || rest[0] == '_'
}

var snapshotPattern = regexp.MustCompile(`(?:^|/)models--[^/]+?--([^/]+)/snapshots/[^/]+$`)

// NameOf is a model's name without its organisation and revision, from an id
// or a path; of a snapshot in the hub's cache it is the model's, and of a
// pair's folder target the pair's.
func NameOf(model string) string {
	model = strings.TrimRight(filepath.ToSlash(model), "/")
	if base, ok := strings.CutSuffix(model, "/target"); ok {
		model = base
	}
	if m := snapshotPattern.FindStringSubmatch(model); m != nil {
		return m[1]
	}
	// A revision follows the last name, and may have slashes itself.
	if at := strings.IndexByte(model, '@'); at > 0 && strings.Count(model[:at], "/") == 1 && !strings.HasPrefix(model, ".") && !strings.HasPrefix(model, "/") {
		model = model[:at]
	}
	return model[strings.LastIndexByte(model, '/')+1:]
}
