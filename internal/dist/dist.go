// Package dist says which release of MLX and mlx-c godflash works with and
// where the installer (directory native of this module) puts it, so that the
// installer and the loader of package mlx cannot disagree.
//
// An installation is one folder per pair of versions and backend:
//
//	<root>/mlxc-0.7.0-mlx-0.32.2-<backend>/
//	    mlx/lib/libmlx.so, libmlxc.so   the two libraries, side by side
//	    mlx_cpu.libs/  or  nvidia/      what libmlx.so loads, relative to itself
//	    mlx-c/                          mlx-c's headers, for -I (#include "mlx/c/mlx.h")
//	    LICENSE.*                       the licences of what is inside
//	    manifest.json                   size and SHA-256 of every file above
//
// The manifest is written last and the folder appears under its name by one
// rename, so a folder with a manifest is complete.
package dist

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// The pinned pair. mlx-c calls MLX's C++ interface, so only this pair fits.
const (
	MLXCVersion = "0.7.0"
	MLXVersion  = "0.32.2"
)

// The backends that can be installed.
const (
	CPU    = "cpu"    // Linux, any x86-64 or arm64 machine
	CUDA13 = "cuda13" // Linux with an NVIDIA driver 580 or newer
)

// RootEnv is the environment variable that replaces the root folder.
const RootEnv = "GODFLASH_CACHE"

// ManifestName is the file, in an installation's folder, that lists the others.
const ManifestName = "manifest.json"

// ErrUnknownBackend reports a backend name that is not one of Backends.
var ErrUnknownBackend = errors.New("unknown backend")

// Backends returns the names of the backends, the preferred one last.
func Backends() []string { return []string{CPU, CUDA13} }

// Root returns the folder that holds all installations: the value of
// GODFLASH_CACHE where it is set (made absolute), else "godflash" under the
// user's cache folder as os.UserCacheDir has it. The folder may not exist yet.
func Root() (string, error) {
	if dir := os.Getenv(RootEnv); dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", fmt.Errorf("make %s=%q absolute: %w", RootEnv, dir, err)
		}
		return abs, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache folder (set %s to choose one): %w", RootEnv, err)
	}
	return filepath.Join(dir, "godflash"), nil
}

// Dir returns the folder of the pinned pair for one backend, whether it is
// installed or not. The error is ErrUnknownBackend or one of Root.
func Dir(backend string) (string, error) {
	if !slices.Contains(Backends(), backend) {
		return "", fmt.Errorf("%w %q (known: %s)", ErrUnknownBackend, backend, strings.Join(Backends(), ", "))
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "mlxc-"+MLXCVersion+"-mlx-"+MLXVersion+"-"+backend), nil
}

// LibraryName is the file name of mlx-c's library on this platform.
func LibraryName() string {
	if runtime.GOOS == "darwin" {
		return "libmlxc.dylib"
	}
	return "libmlxc.so"
}

// Library returns the absolute path of the installed mlx-c library for a
// backend. Where there is none it returns "" and an error that is
// fs.ErrNotExist and names the folder looked at.
func Library(backend string) (string, error) {
	return installed(backend, filepath.Join("mlx", "lib", LibraryName()))
}

// Include returns the folder to give a C compiler as -I so that
// #include "mlx/c/mlx.h" finds the installed mlx-c's headers. Its errors are
// those of Library.
func Include(backend string) (string, error) {
	header, err := installed(backend, filepath.Join("mlx-c", "mlx", "c", "mlx.h"))
	if err != nil {
		return "", err
	}
	return filepath.Dir(filepath.Dir(filepath.Dir(header))), nil
}

func installed(backend, rel string) (string, error) {
	dir, err := Dir(backend)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, rel)
	for _, p := range []string{filepath.Join(dir, ManifestName), path} {
		info, err := os.Stat(p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("no %s build of MLX in %s: %w", backend, dir, fs.ErrNotExist)
		case err != nil:
			return "", fmt.Errorf("look for the %s build of MLX: %w", backend, err)
		case !info.Mode().IsRegular():
			return "", fmt.Errorf("no %s build of MLX in %s: %s is not a file: %w", backend, dir, p, fs.ErrNotExist)
		}
	}
	return path, nil
}
