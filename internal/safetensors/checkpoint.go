package safetensors

import (
	"encoding/json/v2"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/godflash/godflash/internal/problems"
)

const (
	singleName = "model.safetensors"
	indexName  = "model.safetensors.index.json"
)

// Checkpoint is a folder's weights: which files hold them, and every tensor.
type Checkpoint struct {
	Dir     string
	Files   []string // paths, sorted
	Tensors map[string]Tensor
	// IndexStale says that model.safetensors.index.json names files that are not
	// there or puts tensors into the wrong file, while each tensor that it lists
	// is in the files that are there. The checkpoint is complete; tell the user.
	IndexStale bool
}

// Open lists the checkpoint in dir and reads its headers:
//
//   - with model.safetensors.index.json, the files that it names;
//   - else model.safetensors alone;
//   - else every model*.safetensors, else every *.safetensors.
//
// Files may be symbolic links, as in the hub's cache. Errors wrap ErrNoWeights,
// ErrIncomplete, ErrDuplicate or ErrIndex, or are those of ReadHeader.
func Open(dir string) (*Checkpoint, error) {
	c, err := open(dir)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %s: %w", dir, err)
	}
	return c, nil
}

func open(dir string) (*Checkpoint, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, cause(err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if slices.Contains(names, indexName) {
		return openIndexed(dir, names)
	}
	files, err := weightFiles(names)
	if err != nil {
		return nil, err
	}
	return read(dir, files)
}

// weightFiles picks a folder's weight files by name alone.
func weightFiles(names []string) ([]string, error) {
	if slices.Contains(names, singleName) {
		return []string{singleName}, nil
	}
	var model, all, other []string
	for _, name := range names {
		switch ok, _ := filepath.Match("*.safetensors", name); {
		case ok && strings.HasPrefix(name, "."): // a download's leavings, not a weight file
		case ok && strings.HasPrefix(name, "model"):
			model = append(model, name)
			all = append(all, name)
		case ok:
			all = append(all, name)
		case strings.HasSuffix(name, ".bin"), strings.HasSuffix(name, ".gguf"), strings.HasSuffix(name, ".pth"),
			strings.HasSuffix(name, ".pt"), strings.HasSuffix(name, ".npz"):
			other = append(other, name)
		}
	}
	if len(model) > 0 {
		all = model
	}
	if len(all) == 0 {
		looked := fmt.Sprintf("looked for %s, %s and *.safetensors", singleName, indexName)
		if len(other) > 0 {
			return nil, fmt.Errorf("%w: %s; it has %s, which cannot be read: take the model's safetensors weights", ErrNoWeights, looked, firstTen(sorted(other)))
		}
		return nil, fmt.Errorf("%w: %s", ErrNoWeights, looked)
	}
	if err := checkShards(all); err != nil {
		return nil, err
	}
	return sorted(all), nil
}

var shardName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.safetensors$`)

// checkShards finds the gaps in files numbered like model-00001-of-00003.
func checkShards(names []string) error {
	var missing []string
	seen := map[string]bool{}
	for _, name := range names {
		m := shardName.FindStringSubmatch(name)
		if m == nil || seen[m[1]+m[3]] {
			continue
		}
		seen[m[1]+m[3]] = true
		count, _ := strconv.Atoi(m[3]) // five digits
		for i := 1; i <= count; i++ {
			if shard := fmt.Sprintf("%s-%05d-of-%s.safetensors", m[1], i, m[3]); !slices.Contains(names, shard) {
				missing = append(missing, shard)
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: %d files missing: %s; fetch the model again", ErrIncomplete, len(missing), firstTen(missing))
	}
	return nil
}

// read reads the headers of files, which are names inside dir.
func read(dir string, files []string) (*Checkpoint, error) {
	c := &Checkpoint{Dir: dir, Tensors: map[string]Tensor{}}
	var wrong problems.List
	for _, name := range files {
		path := filepath.Join(dir, name)
		h, err := readHeader(path)
		if err != nil {
			wrong.Add(fmt.Errorf("%s: %w", name, err))
			continue
		}
		c.Files = append(c.Files, path)
		for _, tensor := range slices.Sorted(maps.Keys(h.Tensors)) {
			if first, twice := c.Tensors[tensor]; twice {
				wrong.Addf(ErrDuplicate, "%s is in %s and in %s; remove the file that does not belong", tensor, filepath.Base(first.File), name)
				break // the others are as likely there
			}
			c.Tensors[tensor] = h.Tensors[tensor]
		}
	}
	if n := len(wrong); n > 10 {
		wrong = append(wrong[:10], fmt.Errorf("and %d files more", n-10))
	}
	if err := wrong.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

func openIndexed(dir string, names []string) (*Checkpoint, error) {
	weightMap, err := readIndex(filepath.Join(dir, indexName))
	if err != nil {
		return nil, err
	}
	var present, missing []string
	for _, file := range slices.Compact(slices.Sorted(maps.Values(weightMap))) {
		if !filepath.IsLocal(file) || strings.ContainsAny(file, "\\\x00") {
			return nil, fmt.Errorf("%w: %s names the file %q, which is not inside the folder", ErrIndex, indexName, file)
		}
		switch _, err := os.Stat(filepath.Join(dir, file)); {
		case err == nil:
			present = append(present, file)
		case errors.Is(err, fs.ErrNotExist):
			missing = append(missing, file)
		default:
			return nil, err
		}
	}
	stale := len(missing) > 0
	if stale {
		// The index may be left over from before the weights were converted.
		if files, err := weightFiles(names); err == nil {
			present = files
		}
	}
	c, err := read(dir, present)
	if err != nil {
		return nil, err
	}
	var absent []string
	for tensor, file := range weightMap {
		t, ok := c.Tensors[tensor]
		if !ok {
			absent = append(absent, tensor)
		} else if t.File != filepath.Join(dir, file) {
			stale = true
		}
	}
	if len(absent) > 0 {
		text := fmt.Sprintf("%d tensors of %s missing: %s", len(absent), indexName, firstTen(sorted(absent)))
		if len(missing) > 0 {
			text += fmt.Sprintf("; %d of its files missing: %s", len(missing), firstTen(missing))
		}
		return nil, fmt.Errorf("%w: %s; fetch the model again", ErrIncomplete, text)
	}
	c.IndexStale = stale
	return c, nil
}

// readIndex returns the index's weight_map, tensor to file.
func readIndex(path string) (map[string]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxHeader {
		return nil, fmt.Errorf("%w: %s is not a file of a plausible size", ErrIndex, indexName)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if what := recognise(text[:min(len(text), 512)]); what != "" {
		return nil, fmt.Errorf("%w: %s: %s", ErrIndex, indexName, what)
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrIndex, indexName, err)
	}
	if len(index.WeightMap) == 0 {
		return nil, fmt.Errorf("%w: %s has no weight_map", ErrIndex, indexName)
	}
	return index.WeightMap, nil
}

// Check compares the checkpoint's tensors with want, name to shape, and returns
// nil or one *MismatchError with everything that is missing, superfluous or of
// another shape. Take names that a model may ignore out of c.Tensors before.
func (c *Checkpoint) Check(want map[string][]int) error {
	e := &MismatchError{}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if t, ok := c.Tensors[name]; !ok {
			e.Missing = append(e.Missing, name)
		} else if !slices.Equal(t.Shape, want[name]) {
			e.Shapes = append(e.Shapes, ShapeError{name, t.Shape, want[name]})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tensors)) {
		if _, ok := want[name]; !ok {
			e.Superfluous = append(e.Superfluous, name)
		}
	}
	if len(e.Missing)+len(e.Superfluous)+len(e.Shapes) == 0 {
		return nil
	}
	return fmt.Errorf("safetensors: %s: %w", c.Dir, e)
}
