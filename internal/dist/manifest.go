package dist

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Manifest describes one installation and every file in it.
type Manifest struct {
	MLXC    string `json:"mlx_c"`
	MLX     string `json:"mlx"`
	Backend string `json:"backend"`
	OS      string `json:"os"`   // as runtime.GOOS
	Arch    string `json:"arch"` // as runtime.GOARCH
	// Recipe is a hash of what the installer built from: pins, own sources and
	// flags. Another installer of the same versions has another one.
	Recipe string `json:"recipe"`
	Files  []File `json:"files"`
}

// File is one entry of a Manifest.
type File struct {
	Path   string `json:"path"` // relative to the installation's folder, with slashes
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // lower-case hexadecimal
}

// ErrDamaged reports an installation that does not match its manifest.
var ErrDamaged = errors.New("the installation is damaged")

// NewManifest hashes every regular file under dir, apart from the manifest
// itself, in lexical order. Anything but files and folders is an error.
func NewManifest(dir, backend string) (*Manifest, error) {
	m := &Manifest{MLXC: MLXCVersion, MLX: MLXVersion, Backend: backend, OS: runtime.GOOS, Arch: runtime.GOARCH}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if rel == ManifestName {
			return nil
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s is neither a file nor a folder", path)
		}
		size, sum, err := hashFile(path)
		if err != nil {
			return err
		}
		m.Files = append(m.Files, File{Path: filepath.ToSlash(rel), Size: size, SHA256: sum})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	return m, nil
}

// ReadManifest reads the manifest of the installation in dir. Where there is
// none the error is fs.ErrNotExist; one that cannot be used is ErrDamaged.
func ReadManifest(dir string) (*Manifest, error) {
	path := filepath.Join(dir, ManifestName)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
	}
	if len(m.Files) == 0 {
		return nil, fmt.Errorf("%w: %s lists no files", ErrDamaged, path)
	}
	for _, f := range m.Files {
		if !filepath.IsLocal(filepath.FromSlash(f.Path)) {
			return nil, fmt.Errorf("%w: %s names a file outside its folder: %q", ErrDamaged, path, f.Path)
		}
	}
	return &m, nil
}

// Write stores the manifest in dir.
func (m *Manifest) Write(dir string) error {
	data, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, ManifestName), append(data, '\n'), 0o644)
}

// CheckQuick compares versions, platform, presence and sizes, and reads no
// file's contents. backend is what dir is supposed to hold.
func (m *Manifest) CheckQuick(dir, backend string) error {
	if m.MLXC != MLXCVersion || m.MLX != MLXVersion || m.Backend != backend {
		return fmt.Errorf("%w: %s holds mlx-c %s, MLX %s for %s, wanted %s, %s for %s",
			ErrDamaged, dir, m.MLXC, m.MLX, m.Backend, MLXCVersion, MLXVersion, backend)
	}
	if m.OS != runtime.GOOS || m.Arch != runtime.GOARCH {
		return fmt.Errorf("%w: %s was installed for %s/%s, this program runs on %s/%s",
			ErrDamaged, dir, m.OS, m.Arch, runtime.GOOS, runtime.GOARCH)
	}
	for _, f := range m.Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Path))
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%w: %s is missing", ErrDamaged, path)
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			return fmt.Errorf("%w: %s is not a file", ErrDamaged, path)
		case info.Size() != f.Size:
			return fmt.Errorf("%w: %s has %d bytes, expected %d", ErrDamaged, path, info.Size(), f.Size)
		}
	}
	return nil
}

// Check does what CheckQuick does and also compares the SHA-256 of every file.
func (m *Manifest) Check(dir, backend string) error {
	if err := m.CheckQuick(dir, backend); err != nil {
		return err
	}
	for _, f := range m.Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Path))
		_, sum, err := hashFile(path)
		if err != nil {
			return err
		}
		if sum != f.SHA256 {
			return fmt.Errorf("%w: %s has SHA-256 %s, expected %s", ErrDamaged, path, sum, f.SHA256)
		}
	}
	return nil
}

func hashFile(path string) (size int64, sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	size, err = io.Copy(h, f)
	if err != nil {
		return 0, "", fmt.Errorf("read %s: %w", path, err)
	}
	return size, hex.EncodeToString(h.Sum(nil)), nil
}
