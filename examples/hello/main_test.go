package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/fixture"
)

func TestAnswer(t *testing.T) {
	var w strings.Builder
	require.NoError(t, answer(t.Context(), &w, filepath.Join(fixture.Testdata(t), "tiny-qwen3.5"), "Package path. Write this Go function:\nfunc Base(path string) string"))
	require.Contains(t, w.String(), "func Base(path string) string {")
	require.Regexp(t, `\n\d+\.\d tokens per cycle, \d+ tok/s\n$`, w.String())

	require.ErrorIs(t, answer(t.Context(), &w, t.TempDir(), "?"), os.ErrNotExist)
}

// The README shows this program's function, so that what it shows compiles.
func TestReadme(t *testing.T) {
	source, err := os.ReadFile("main.go")
	require.NoError(t, err)
	_, function, found := strings.Cut(string(source), "\nfunc answer(")
	require.True(t, found)
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(readme), "```go\nfunc answer("+function+"```\n")
}
