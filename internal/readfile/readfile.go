// Package readfile reads the small files of a model's folder.
package readfile

import (
	"errors"
	"fmt"
	"os"
)

// ErrNotRegular: a folder, a pipe or a device where a file is expected, or a
// file that is larger than such files are.
var ErrNotRegular = errors.New("not a regular file of the expected size")

// Regular reads a file of at most limit bytes. Anything else is refused before
// it is opened: opening a pipe would wait for its other end.
func Regular(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("%w: %s is no regular file of at most %d bytes", ErrNotRegular, path, limit)
	}
	return os.ReadFile(path)
}
