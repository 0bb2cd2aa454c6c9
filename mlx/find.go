package mlx

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/godflash/godflash/internal/dist"
	"github.com/godflash/godflash/internal/mlxc"
)

// LibraryEnv names the environment variable with the path of the library.
const LibraryEnv = "MLXC_LIBRARY"

// Place is one place where the library was looked for.
type Place struct {
	Path string
	From string // why this place: "Options.Path", "MLXC_LIBRARY", …
	Err  error
}

// LoadError lists every place looked at. It is an [ErrLibraryNotFound], or an
// [ErrLibraryVersion] when a library was found that does not fit.
type LoadError struct {
	Kind   error
	Places []Place
}

func (e *LoadError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v; needed is mlx-c %s on MLX %s or newer. Looked at:", e.Kind, dist.MLXCVersion, dist.MLXVersion)
	for _, p := range e.Places {
		fmt.Fprintf(&b, "\n  %s (%s): %v", p.Path, p.From, p.Err)
	}
	fmt.Fprintf(&b, "\nTo fix it: %s", installCommand(""))
	return b.String()
}

// Unwrap gives Kind.
func (e *LoadError) Unwrap() error { return e.Kind }

func installCommand(flags string) string {
	if runtime.GOOS == "darwin" {
		return "brew install mlx-c"
	}
	if flags != "" {
		return "go run github.com/godflash/godflash/native@latest " + flags
	}
	return "go run github.com/godflash/godflash/native@latest (in a clone: make native)"
}

type candidate struct {
	path, from string
	explicit   bool // the user named it: the search ends here
}

const installed = "installed, "

// load tries the candidates in order and gives the first that fits. A file that
// the user named must fit; others that do not are logged and passed over.
func load(o *Options) (path, version string, err error) {
	e := &LoadError{Kind: ErrLibraryNotFound}
	list, err := candidates(o)
	if err != nil {
		return "", "", err
	}
	for _, c := range list {
		version, err = try(c.path, o.Logger)
		if err == nil {
			if c.from == installed+dist.CPU && o.Backend == "" && nvidiaDriver() {
				o.Logger.Warn("mlx: an NVIDIA driver is present, but MLX's build for it is not installed; running on the CPU", "fix", installCommand("-backend cuda13"))
			}
			return c.path, version, nil
		}
		if errors.Is(err, errUnusable) {
			return "", "", err
		}
		e.Places = append(e.Places, Place{c.path, c.from, err})
		if errors.Is(err, ErrLibraryVersion) {
			e.Kind = ErrLibraryVersion
		}
		if !errors.Is(err, fs.ErrNotExist) {
			o.Logger.Warn("mlx: library passed over", "path", c.path, "from", c.from, "error", err)
		}
		if c.explicit {
			break
		}
	}
	return "", "", e
}

// candidates is the search order.
func candidates(o *Options) ([]candidate, error) {
	name := dist.LibraryName()
	if o.Path != "" {
		path, err := filepath.Abs(o.Path)
		if err != nil {
			return nil, fmt.Errorf("mlx: Options.Path: %w", err)
		}
		return []candidate{{path, "Options.Path", true}}, nil
	}
	if env := os.Getenv(LibraryEnv); env != "" {
		path, err := filepath.Abs(env)
		if err != nil {
			return nil, fmt.Errorf("mlx: %s: %w", LibraryEnv, err)
		}
		return []candidate{{path, LibraryEnv, true}}, nil
	}
	var list []candidate
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		dir := filepath.Dir(exe)
		list = append(list, candidate{path: filepath.Join(dir, name), from: "beside the program"})
		for _, sub := range []string{"Frameworks", "lib"} {
			list = append(list, candidate{path: filepath.Join(filepath.Dir(dir), sub, name), from: "../" + sub + " of the program"})
		}
	}
	backends, err := backendOrder(o.Backend)
	if err != nil {
		return nil, err
	}
	for _, b := range backends {
		path, err := dist.Library(b)
		if err != nil { // not installed: say where it would be
			dir, derr := dist.Dir(b)
			if derr != nil { // no HOME, as under cron: the list of places shall say so
				dir = "(" + derr.Error() + ")"
			}
			path = filepath.Join(dir, "mlx", "lib", name)
		}
		list = append(list, candidate{path: path, from: installed + b})
	}
	if runtime.GOOS == "darwin" {
		for _, p := range []string{os.Getenv("HOMEBREW_PREFIX"), "/opt/homebrew", "/usr/local"} {
			if p != "" {
				list = append(list, candidate{path: filepath.Join(p, "lib", name), from: "Homebrew"})
			}
		}
	}
	// The bare name makes the system's loader search.
	return append(list, candidate{path: name, from: "the system's loader"}), nil
}

func backendOrder(want string) ([]string, error) {
	switch want {
	case "":
		if nvidiaDriver() {
			return []string{dist.CUDA13, dist.CPU}, nil
		}
		return []string{dist.CPU}, nil
	case dist.CPU, dist.CUDA13:
		return []string{want}, nil
	}
	return nil, fmt.Errorf("mlx: Options.Backend %q is not known; there are %s", want, strings.Join(dist.Backends(), ", "))
}

func nvidiaDriver() bool {
	_, err := os.Stat("/proc/driver/nvidia/version")
	return err == nil
}

// errUnusable marks a library that got loaded and cannot be unloaded safely, so that no other may be tried.
var errUnusable = errors.New("mlx: the library was loaded and is not usable")

// try loads one file. It runs on the worker.
func try(path string, log *slog.Logger) (version string, err error) {
	if filepath.IsAbs(path) {
		if err := checkFile(path); err != nil {
			return "", err
		}
		prepareCUDA(path, log)
	}
	// The library finds libmlx beside itself, which must be beside the file, not beside a link to it.
	real := path
	if filepath.IsAbs(path) {
		if real, err = filepath.EvalSymlinks(path); err != nil {
			return "", err
		}
	}
	if err := mlxc.Load(real); err != nil {
		if errors.Is(err, mlxc.ErrSymbol) {
			name := strings.TrimPrefix(err.Error(), mlxc.ErrSymbol.Error()+": ")
			if name == "mlx_compile_cache_new" {
				return "", fmt.Errorf("%w: it lacks mlx_compile_cache_new, so it is mlx-c 0.6 or older, or no mlx-c", ErrLibraryVersion)
			}
			return "", fmt.Errorf("%w: it lacks %s", ErrLibraryVersion, name)
		}
		if !filepath.IsAbs(path) {
			return "", fmt.Errorf("%w (%w)", fs.ErrNotExist, err)
		}
		return "", err
	}
	if err := resolveOps(); err != nil {
		return "", errors.Join(errUnusable, err)
	}
	version, ok := mlxc.Version()
	if !ok {
		return "", errors.Join(errUnusable, fmt.Errorf("mlx: read the version of %s: %s", path, cleanMessage(mlxc.LastError())))
	}
	switch compareVersions(version, dist.MLXVersion) {
	case -1:
		return "", fmt.Errorf("%w: it runs on MLX %s", ErrLibraryVersion, version)
	case 1:
		log.Warn("mlx: MLX is newer than tested", "version", version, "tested", dist.MLXVersion, "path", path)
	}
	return version, nil
}

// prepareCUDA sets CUDA_HOME, where MLX looks for the headers its kernels are
// compiled with, unless the user did: to what the installer put beside the
// library, else to the toolkit's usual place.
func prepareCUDA(path string, log *slog.Logger) {
	if os.Getenv("CUDA_HOME") != "" || os.Getenv("CUDA_PATH") != "" || !nvidiaDriver() {
		return
	}
	installed := filepath.Join(filepath.Dir(path), "..", "..", "nvidia", "cu13")
	for _, home := range []string{installed, "/usr/local/cuda"} {
		if _, err := os.Stat(filepath.Join(home, "include")); err != nil {
			continue
		}
		if err := os.Setenv("CUDA_HOME", home); err == nil {
			log.Debug("mlx: CUDA_HOME set", "value", home, "library", path)
		}
		return
	}
}

// compareVersions compares the numbers of two dotted versions; a suffix such as
// .dev1 is ignored.
func compareVersions(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range 3 {
		m, n := part(x, i), part(y, i)
		if m != n {
			if m < n {
				return -1
			}
			return 1
		}
	}
	return 0
}

func part(v []string, i int) int {
	if i >= len(v) {
		return 0
	}
	digits := v[i]
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end]
	}
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}

// sameLibrary refuses options that ask for another file than the loaded one.
func sameLibrary(o *Options, loaded string) error {
	if o.Path == "" {
		return nil
	}
	if a, err := os.Stat(o.Path); err == nil {
		if b, err := os.Stat(loaded); err == nil && os.SameFile(a, b) {
			return nil
		}
	}
	return fmt.Errorf("mlx: Options.Path is %s, but this process has already loaded %s; a process can hold one library", o.Path, loaded)
}
