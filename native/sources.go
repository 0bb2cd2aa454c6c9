package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/godflash/godflash/internal/dist"
)

const (
	sourceCrate   = "mlx-sys" // the published package that carries mlx-c's sources
	sourceVersion = "0.7.0"
	sourceFolder  = "src/mlx-c" // inside of it
)

// fetchSources has cargo download the crate that carries mlx-c, and copies
// every file listed in the pins into the work folder, each checked against its
// hash. It returns the folder of the copies. Cargo builds nothing.
func (in *installation) fetchSources(ctx context.Context, t *toolset) (string, error) {
	dir := filepath.Join(in.work, "crate")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	for _, name := range []string{"pins/Cargo.toml", "pins/Cargo.lock"} {
		if err := in.unpackFile(name, dir); err != nil {
			return "", err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "lib.rs"), nil, 0o644); err != nil {
		return "", err
	}
	cargo := in.runner.with(t.cargoEnv...)
	if _, err := cargo.execute(ctx, dir, t.cargo, "fetch", "--locked"); err != nil {
		return "", &fetchError{"mlx-c's sources", err}
	}
	out, err := cargo.execute(ctx, dir, t.cargo, "metadata", "--locked", "--offline", "--format-version", "1")
	if err != nil {
		return "", fmt.Errorf("find mlx-c's sources: %w", err)
	}
	from, err := crateFolder(out)
	if err != nil {
		return "", fmt.Errorf("find mlx-c's sources: %w", err)
	}
	to := filepath.Join(in.work, "mlx-c")
	if err := in.copySources(filepath.Join(from, filepath.FromSlash(sourceFolder)), to); err != nil {
		return "", fmt.Errorf("find mlx-c's sources: %w", err)
	}
	return to, nil
}

// crateFolder finds where cargo unpacked the crate. Warnings may stand before
// the line of JSON.
func crateFolder(metadata []byte) (string, error) {
	var m struct {
		Packages []struct {
			Name         string `json:"name"`
			Version      string `json:"version"`
			ManifestPath string `json:"manifest_path"`
		} `json:"packages"`
	}
	for line := range bytes.Lines(metadata) {
		if !bytes.HasPrefix(line, []byte("{")) {
			continue
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return "", fmt.Errorf("read cargo's metadata: %w", err)
		}
		for _, p := range m.Packages {
			if p.Name == sourceCrate && p.Version == sourceVersion {
				return filepath.Dir(p.ManifestPath), nil
			}
		}
	}
	return "", fmt.Errorf("cargo's metadata does not name %s %s", sourceCrate, sourceVersion)
}

// copySources copies the pinned files from one folder to another.
func (in *installation) copySources(from, to string) error {
	pins, err := fs.ReadFile(in.files, "pins/mlx-c.sha256")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(pins)) {
		want, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			return fmt.Errorf("pins/mlx-c.sha256 has a bad line: %q", line)
		}
		path := filepath.Join(from, filepath.FromSlash(name))
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		if got := hex.EncodeToString(sum[:]); got != want {
			return fmt.Errorf("%s has SHA-256 %s, pinned is %s: it was changed on this machine; remove the folder %s and run the same command again", path, got, want, filepath.Dir(filepath.Dir(from)))
		}
		copied := filepath.Join(to, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(copied), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(copied, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// installSources puts mlx-c's public headers and its licence into the tree.
func (in *installation) installSources(src string) error {
	headers, err := filepath.Glob(filepath.Join(src, "mlx", "c", "*.h"))
	if err != nil {
		return err
	}
	to := filepath.Join(in.tree, "mlx-c", "mlx", "c")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, h := range headers {
		if err := copyFile(h, filepath.Join(to, filepath.Base(h))); err != nil {
			return err
		}
	}
	return copyFile(filepath.Join(src, "LICENSE"), filepath.Join(in.tree, "LICENSE.mlx-c"))
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// libraryPath is where mlx-c's library goes in the tree.
func (in *installation) libraryPath() string {
	return filepath.Join(in.tree, "mlx", "lib", dist.LibraryName())
}
