package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/godflash/godflash/internal/dist"
	"github.com/godflash/godflash/native/kernels"
)

// compile builds mlx-c's library from its sources against the unpacked MLX and
// installs its headers. The result serves every build of this MLX version. What
// package kernels holds goes into it as well: libmlx finds our cblas_sgemm there
// before that of the reference BLAS and our functions of NVRTC before NVIDIA's,
// because the loader looks first in the library that was opened.
func (in *installation) compile(ctx context.Context, t *toolset, src string) error {
	sources, err := filepath.Glob(filepath.Join(src, "mlx", "c", "*.cpp"))
	if err != nil {
		return err
	}
	if len(sources) == 0 {
		return fmt.Errorf("no sources of mlx-c in %s", src)
	}
	objects := make([]string, len(sources))
	objectDir := filepath.Join(in.work, "objects")
	if err := os.Mkdir(objectDir, 0o755); err != nil {
		return err
	}
	flags := append(cxxFlags(in.shim), "-O2", "-fPIC", "-DNDEBUG",
		// Source positions in mlx-c's messages must not depend on the folder.
		"-ffile-prefix-map="+src+"=mlx-c",
		"-I", src, "-I", filepath.Join(in.tree, "mlx", "include"))

	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.NumCPU())
	var done atomic.Int64
	for i, source := range sources {
		objects[i] = filepath.Join(objectDir, filepath.Base(source)+".o")
		g.Go(func() error {
			args := append(flags[:len(flags):len(flags)], "-c", source, "-o", objects[i])
			if _, err := in.execute(gctx, in.work, t.cxx, args...); err != nil {
				return fmt.Errorf("compile %s: %w", filepath.Base(source), err)
			}
			if n := int(done.Add(1)); n%7 == 0 && n < len(sources) {
				in.say("      %d of %d files (%s)", n, len(sources), in.elapsed())
			}
			return nil
		})
	}
	var ours []string
	for _, source := range kernels.Sources() {
		compiler := source.Flags
		if source.CUDA {
			if in.backend != dist.CUDA13 {
				continue
			}
			compiler = slices.Concat(flags, source.Flags, []string{"-I", filepath.Join(in.tree, "nvidia", "cu13", "include")})
		}
		object := filepath.Join(objectDir, source.Name+".o")
		ours = append(ours, object)
		g.Go(func() error {
			for name, text := range source.Other {
				if err := os.WriteFile(filepath.Join(objectDir, name), text, 0o644); err != nil {
					return err
				}
			}
			path := filepath.Join(objectDir, source.Name)
			if err := os.WriteFile(path, source.Text, 0o644); err != nil {
				return err
			}
			if _, err := in.execute(gctx, in.work, t.cxx, append(compiler[:len(compiler):len(compiler)], "-c", path, "-o", object)...); err != nil {
				return fmt.Errorf("compile %s: %w", source.Name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	args := slices.Concat([]string{"-shared", "-o", in.libraryPath()}, objects, ours)
	args = append(args, "-L", filepath.Join(in.tree, "mlx", "lib"), "-lmlx", "-Wl,-rpath,$ORIGIN", "-Wl,-z,defs", "-Wl,-soname,"+dist.LibraryName())
	if _, err := in.execute(ctx, in.work, t.cxx, args...); err != nil {
		return fmt.Errorf("link %s: %w", dist.LibraryName(), err)
	}
	return in.installSources(src)
}

var (
	unresolved = regexp.MustCompile(`(?m)^.*(not found|undefined symbol|symbol lookup error).*$`)
	fromDriver = regexp.MustCompile(`libcuda\.so\.1 => not found|undefined symbol: (cu[A-Z]|nvml)`)
)

// checkLinks asks the system's loader, without running any of it, whether the
// new library and all that it needs fit together here. Without ldd the linker's
// own check has to do.
func (in *installation) checkLinks(ctx context.Context) error {
	ldd, err := exec.LookPath("ldd")
	if err != nil {
		return nil
	}
	clean := in.runner.with()
	clean.env = slices.DeleteFunc(clean.env, func(e string) bool {
		return strings.HasPrefix(e, "LD_LIBRARY_PATH=") || strings.HasPrefix(e, "LD_PRELOAD=")
	})
	out, err := clean.execute(ctx, in.work, ldd, "-r", in.libraryPath())
	if err != nil {
		return fmt.Errorf("check %s: %w", dist.LibraryName(), err)
	}
	var bad []string
	_, driver := in.driver()
	for _, line := range unresolved.FindAllString(string(out), -1) {
		// The driver brings this one; it may come later than the build.
		if in.backend == dist.CUDA13 && !driver && fromDriver.MatchString(line) {
			continue
		}
		bad = append(bad, strings.TrimSpace(line))
	}
	if len(bad) > 0 {
		return fmt.Errorf("check %s: the system's loader finds %d faults, first: %s; everything is in %s", dist.LibraryName(), len(bad), bad[0], in.logPath)
	}
	return nil
}
