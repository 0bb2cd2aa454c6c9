package dflash

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
)

// identity is a fingerprint of a model's folder: its configuration, and the
// names, sizes and headers of its weight files.
func identity(dir string) (string, error) {
	sum := sha256.New()
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return "", err
	}
	fmt.Fprintln(sum, len(config))
	sum.Write(config)
	files, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if filepath.Ext(f.Name()) != ".safetensors" {
			continue
		}
		if err := hashHeader(sum, filepath.Join(dir, f.Name())); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// hashHeader adds a weight file's name, size and header, whose length is its
// first eight bytes.
func hashHeader(sum hash.Hash, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	var length [8]byte
	if _, err := io.ReadFull(f, length[:]); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	n := int64(binary.LittleEndian.Uint64(length[:]))
	if n < 0 || n > info.Size() {
		n = info.Size()
	}
	fmt.Fprintln(sum, filepath.Base(path), info.Size())
	_, err = io.Copy(sum, io.LimitReader(f, n))
	return err
}
