package mlx

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"

	"github.com/godflash/godflash/internal/dist"
)

// MLX reads through a CUDA kernel's whole text at every launch, to find what it
// compiled before, which for a kernel of some size takes longer than the rest of
// the launch. A long text therefore lies in a file, and what MLX sees includes it.
// The file's name is the hash of its content, so that MLX and its cache of
// compiled kernels still tell texts apart.

// shortText is the length from which a file is worth it.
const shortText = 256

// included is a kernel's source and header as MLX is to see them: in files in the
// folder "kernels" beside the installed libraries or, where that is not possible,
// as they are.
func included(source, header string, inputs []string) (string, string) {
	root, err := dist.Root()
	if err != nil {
		return source, header
	}
	dir := filepath.Join(root, "kernels")
	return mentions(source, inputs) + include(dir, source), include(dir, header)
}

// mentions is a comment with the names that MLX looks for in a source, to hand
// over shapes and strides.
func mentions(source string, inputs []string) string {
	var names []string
	for _, in := range inputs {
		for _, what := range []string{"_shape", "_strides", "_ndim"} {
			if strings.Contains(source, in+what) {
				names = append(names, in+what)
			}
		}
	}
	if names == nil {
		return ""
	}
	return "// " + strings.Join(names, " ") + "\n"
}

// include is a line that includes text from a file in dir, or text.
func include(dir, text string) string {
	if len(text) < shortText || strings.ContainsAny(dir, "\"\\%\n\r") {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	path := filepath.Join(dir, hex.EncodeToString(sum[:])+".cuh")
	if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, []byte(text)) {
		if err := writeWhole(path, text); err != nil {
			return text
		}
	}
	return "\n#include \"" + path + "\"\n"
}

// writeWhole puts a file in place at once: others may read it meanwhile.
func writeWhole(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
