package dflash_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
)

// object is a JSON object to edit.
type object = map[string]any

// variant is a copy of a pair whose configurations are edited; the weights are
// linked. generation is generation_config.json; setting it to nil is not
// possible, deleting its keys is.
func variant(t testing.TB, pair string, edit func(target, draft, generation object)) string {
	t.Helper()
	dir := t.TempDir()
	for _, part := range []string{"target", "draft"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, part), 0o755))
		from, err := filepath.Abs(filepath.Join(pairDir(pair), part))
		require.NoError(t, err)
		entries, err := os.ReadDir(from)
		require.NoError(t, err)
		for _, f := range entries {
			require.NoError(t, os.Symlink(filepath.Join(from, f.Name()), filepath.Join(dir, part, f.Name())))
		}
	}
	names := []string{"target/config.json", "draft/config.json", "target/generation_config.json"}
	objects := make([]object, len(names))
	for i, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &objects[i]))
	}
	edit(objects[0], objects[1], objects[2])
	for i, name := range names {
		data, err := json.Marshal(objects[i])
		require.NoError(t, err)
		path := filepath.Join(dir, name)
		require.NoError(t, os.Remove(path))
		require.NoError(t, os.WriteFile(path, data, 0o644))
	}
	return dir
}

// text is a target's text configuration, nested or not.
func text(target object) object {
	if t, ok := target["text_config"].(object); ok {
		return t
	}
	return target
}

// openDir is open for a folder.
func openDir(t testing.TB, dir string, o dflash.Options) *dflash.Engine {
	t.Helper()
	o.Library = lib
	e, err := dflash.Open(t.Context(), dir, &o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}
