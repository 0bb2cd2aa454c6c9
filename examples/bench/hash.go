package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sort"
)

// blob is the name of a weight file in the hub's cache: its SHA-256.
var blob = regexp.MustCompile(`^[0-9a-f]{64}$`)

// hashFolder gives config.json and the weight files of a checkpoint with their
// SHA-256. The hub's cache names a blob by it, after the download was checked,
// so those are not read again.
func hashFolder(ctx context.Context, dir string) ([]file, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil {
		return nil, err
	}
	sort.Strings(names)
	var out []file
	for _, name := range append([]string{filepath.Join(dir, "config.json")}, names...) {
		f, err := hashFile(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("hash the model's files (-hash=false leaves it out): %w", err)
		}
		out = append(out, f)
	}
	return out, nil
}

func hashFile(ctx context.Context, name string) (file, error) {
	info, err := os.Stat(name)
	if err != nil {
		return file{}, err
	}
	out := file{Name: filepath.Base(name), Bytes: info.Size()}
	if to, err := os.Readlink(name); err == nil && blob.MatchString(filepath.Base(to)) && filepath.Base(filepath.Dir(to)) == "blobs" {
		out.SHA256 = filepath.Base(to)
		return out, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return out, err
	}
	defer f.Close()
	h := sha256.New()
	buffer := make([]byte, 1<<20)
	for {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		n, err := f.Read(buffer)
		h.Write(buffer[:n])
		if err == io.EOF {
			break
		}
		if err != nil {
			return out, err
		}
	}
	out.SHA256 = hex.EncodeToString(h.Sum(nil))
	return out, nil
}
