package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/godflash/godflash/native/kernels"
)

// recipe identifies what this installer builds: it changes with every pin, own
// source and flag, so that an installation of an older installer is made anew.
func recipe() string {
	h := sha256.New()
	add := func(name string, data []byte) { fmt.Fprintf(h, "%s %d\n%s\n", name, len(data), data) }
	err := fs.WalkDir(embedded, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := embedded.ReadFile(path)
		add(path, data)
		return err
	})
	if err != nil {
		panic(err) // the files are part of the program
	}
	if runtime.GOOS == "linux" {
		for _, source := range kernels.Sources() {
			add(source.Name, source.Text)
			for _, name := range slices.Sorted(maps.Keys(source.Other)) {
				add(name, source.Other[name])
			}
			add("flags", []byte(strings.Join(source.Flags, " ")))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
