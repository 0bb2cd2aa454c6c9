package main

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/godflash/godflash/internal/dist"
)

var (
	pinnedHash    = regexp.MustCompile(`--hash=sha256:([0-9a-f]{64})`)
	pinnedPackage = regexp.MustCompile(`(?m)^[a-z0-9-]+==`)
)

// machine is the wheels' word for an architecture.
func machine(goarch string) string {
	if goarch == "arm64" {
		return "aarch64"
	}
	return "x86_64"
}

// download fetches the pinned wheels and returns their paths.
//
// The platform is given in full, so that neither pip's age nor Python's version
// decides what is acceptable; checkLibc has made sure that it runs here.
func (in *installation) download(ctx context.Context, t *toolset) ([]string, error) {
	name := "requirements-" + in.backend + ".txt"
	if err := in.unpackFile("pins/"+name, in.work); err != nil {
		return nil, err
	}
	pins, err := os.ReadFile(filepath.Join(in.work, name))
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(in.work, "wheels")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	args := append(t.pip[1:len(t.pip):len(t.pip)], "download", "--no-deps", "--require-hashes", "--requirement", name, "--dest", dir,
		"--only-binary=:all:", "--python-version", "3.12", "--implementation", "py", "--abi", "none",
		"--no-cache-dir", "--disable-pip-version-check", "--no-input", "--progress-bar", "off")
	for _, tag := range []string{"manylinux_2_35", "manylinux_2_28", "manylinux_2_27", "manylinux_2_18", "manylinux_2_17", "manylinux2014"} {
		args = append(args, "--platform", tag+"_"+machine(in.goarch))
	}
	stop := in.reportSize(in.work)
	_, err = in.execute(ctx, in.work, t.pip[0], args...)
	stop()
	if err != nil {
		return nil, &fetchError{"MLX's wheels", err}
	}
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil {
		return nil, err
	}
	if want := len(pinnedPackage.FindAll(pins, -1)); len(wheels) != want {
		return nil, fmt.Errorf("download MLX's wheels: pip left %d files in place of %d", len(wheels), want)
	}
	for _, wheel := range wheels {
		if err := checkPinned(wheel, pins); err != nil {
			return nil, err
		}
	}
	return wheels, nil
}

// checkPinned checks a wheel's hash once more, not to depend on how pip is set up.
func checkPinned(wheel string, pins []byte) error {
	f, err := os.Open(wheel)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	sum := hex.EncodeToString(h.Sum(nil))
	for _, m := range pinnedHash.FindAllSubmatch(pins, -1) {
		if string(m[1]) == sum {
			return nil
		}
	}
	return fmt.Errorf("%s has SHA-256 %s, which is not a pinned one: the download is broken or was replaced on the way; run the same command again", filepath.Base(wheel), sum)
}

// reportSize prints now and then how much lies below dir, until stop is called.
func (in *installation) reportSize(dir string) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(10 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				var sum int64
				filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
					if err != nil {
						return nil
					}
					if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
						sum += info.Size()
					}
					return nil
				})
				in.say("      %d MB so far (%s)", sum>>20, in.elapsed())
			}
		}
	}()
	return func() { close(done); <-ended }
}

// unpackWheels unpacks every wheel and removes it, since they are large.
func (in *installation) unpackWheels(ctx context.Context, wheels []string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.NumCPU())
	for _, wheel := range wheels {
		g.Go(func() error {
			if err := in.unpackWheel(ctx, wheel); err != nil {
				return err
			}
			return os.Remove(wheel)
		})
	}
	return g.Wait()
}

// unpackWheel unpacks the libraries, the headers and the licence of a wheel
// into the tree.
func (in *installation) unpackWheel(ctx context.Context, wheel string) error {
	base := filepath.Base(wheel)
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", base, err)
	}
	defer z.Close()
	for _, f := range z.File {
		if ctx.Err() != nil {
			return errInterrupted
		}
		if !filepath.IsLocal(filepath.FromSlash(strings.TrimSuffix(f.Name, "/"))) || strings.Contains(f.Name, `\`) {
			return fmt.Errorf("unpack %s: refused: it names a file outside its folder: %q", base, f.Name)
		}
		if f.Mode().IsDir() {
			continue
		}
		if !f.Mode().IsRegular() {
			return fmt.Errorf("unpack %s: refused: %q is neither a file nor a folder", base, f.Name)
		}
		to := in.placeInTree(f.Name)
		if to == "" {
			continue
		}
		if err := unpackEntry(f, filepath.Join(in.tree, filepath.FromSlash(to))); err != nil {
			return fmt.Errorf("unpack %s: %w", base, err)
		}
	}
	return nil
}

// placeInTree says where in the tree an entry of a wheel goes, or "".
func (in *installation) placeInTree(name string) string {
	top, rest, _ := strings.Cut(name, "/")
	switch {
	case top == "mlx" && (strings.HasPrefix(rest, "lib/") || strings.HasPrefix(rest, "include/")):
		return path.Clean(name)
	case top == "nvidia" && in.backend == dist.CUDA13, strings.HasSuffix(top, ".libs"):
		return path.Clean(name)
	case strings.HasSuffix(top, ".dist-info"):
		base := path.Base(name)
		if rest != base && rest != "licenses/"+base || !strings.HasPrefix(strings.ToUpper(base), "LICEN") {
			return ""
		}
		project, _, _ := strings.Cut(top, "-")
		if strings.HasPrefix(project, "mlx_") {
			project = "mlx"
		}
		to := "LICENSE." + strings.ReplaceAll(project, "_", "-")
		if stem := strings.ToUpper(strings.TrimSuffix(base, path.Ext(base))); stem != "LICENSE" {
			to += "." + base
		}
		return to
	}
	return ""
}

func unpackEntry(f *zip.File, to string) (err error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if _, err := io.Copy(w, r); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return nil
}
