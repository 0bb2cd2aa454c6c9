package safetensors

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Errors that ReadHeader and Open wrap. The wrapping text always has the path.
var (
	// ErrTruncated says that the file ends before its header or its data does.
	ErrTruncated = errors.New("file is cut short")
	// ErrNotSafetensors says that the file holds something else.
	ErrNotSafetensors = errors.New("not a safetensors file")
	// ErrCorrupt says that the header contradicts itself, the file or the format.
	ErrCorrupt = errors.New("corrupt safetensors header")
	// ErrNoWeights says that a folder holds no safetensors file.
	ErrNoWeights = errors.New("no safetensors weights")
	// ErrIncomplete says that files or tensors that the folder's index or file
	// names promise are not there.
	ErrIncomplete = errors.New("checkpoint is incomplete")
	// ErrDuplicate says that two files of a checkpoint hold the same tensor.
	ErrDuplicate = errors.New("tensor is in two files")
	// ErrIndex says that model.safetensors.index.json cannot be used.
	ErrIndex = errors.New("bad safetensors index")
)

// A ShapeError is a tensor whose shape differs from the one that was wanted.
type ShapeError struct {
	Name      string
	Got, Want []int
}

// A MismatchError is the difference between the tensors that a model needs and
// those that a checkpoint has, each list sorted by name.
type MismatchError struct {
	Missing     []string
	Superfluous []string
	Shapes      []ShapeError
}

// Error names the first ten of each kind and counts the rest.
func (e *MismatchError) Error() string {
	var parts []string
	if len(e.Missing) > 0 {
		parts = append(parts, fmt.Sprintf("%d missing: %s", len(e.Missing), firstTen(e.Missing)))
	}
	if len(e.Superfluous) > 0 {
		parts = append(parts, fmt.Sprintf("%d not part of the model: %s", len(e.Superfluous), firstTen(e.Superfluous)))
	}
	if len(e.Shapes) > 0 {
		var shapes []string
		for _, s := range e.Shapes {
			shapes = append(shapes, fmt.Sprintf("%s is %v, want %v", s.Name, s.Got, s.Want))
		}
		parts = append(parts, fmt.Sprintf("%d of another shape: %s", len(shapes), firstTen(shapes)))
	}
	return "tensors do not fit the model: " + strings.Join(parts, "; ")
}

// firstTen joins up to ten names and counts the rest.
func firstTen(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}
