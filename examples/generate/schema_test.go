package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The text is held to the schema, with drafts and without; a schema that cannot
// be read or is not supported is wrong usage, which names the keyword.
func TestSchemaFlag(t *testing.T) {
	write := func(text string) string {
		file := filepath.Join(t.TempDir(), "schema.json")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		return file
	}
	ok := write(`{"type":"object","properties":{"n":{"type":"integer","maximum":99},"s":{"enum":["a","b"]}},"required":["n","s"]}`)
	out := runArgs(t, "-prompt", "Write F.", "-think=false", "-schema", ok, "-compare")
	require.Zero(t, out.status, out.stderr)
	var got struct {
		N int
		S string
	}
	require.NoError(t, json.Unmarshal([]byte(out.stdout), &got), out.stdout)
	require.Contains(t, []string{"a", "b"}, got.S)
	require.Contains(t, out.stderr, "ids are identical")

	out = runArgs(t, "-prompt", "Write F.", "-think=false", "-json-object", "-max-tokens", "3")
	require.Zero(t, out.status, out.stderr)
	require.Equal(t, byte('{'), out.stdout[0])

	for _, c := range []struct {
		status int
		say    string
		args   []string
	}{
		{2, "no such file", []string{"-schema", filepath.Join(t.TempDir(), "none.json")}},
		{2, "exclude each other", []string{"-schema", ok, "-json-object"}},
		{2, "bad schema", []string{"-schema", write(`{"type":`)}},
		{2, `at "#/items/not": the keyword not`, []string{"-schema", write(`{"items":{"not":{}}}`)}},
	} {
		out := runArgs(t, append(c.args, "-prompt", "x")...)
		require.Equal(t, c.status, out.status, out.stderr)
		require.Contains(t, out.stderr, c.say)
		require.Empty(t, out.stdout)
	}
}
