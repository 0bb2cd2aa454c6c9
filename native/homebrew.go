package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/godflash/godflash/internal/dist"
)

// homebrew looks for mlx-c on macOS. Nothing is installed: Homebrew does that.
func (a *app) homebrew(ctx context.Context, o options) error {
	if o.backend != dist.CPU {
		return fmt.Errorf("backend %s is for Linux: on macOS Homebrew's mlx-c runs on the processor and on Metal", o.backend)
	}
	if o.check || o.force {
		return errors.New("-check and -force are for Linux: on macOS Homebrew installs mlx-c and knows its files; try `brew reinstall mlx-c`")
	}
	const advice = "install it with\n\n    brew install mlx-c"
	brew, err := exec.LookPath("brew")
	if err != nil {
		return errors.New("mlx-c is not found, and neither is Homebrew (https://brew.sh), which brings it; with Homebrew there, " + advice)
	}
	r := &runner{env: commandEnv("")}
	out, err := r.execute(ctx, "", brew, "--prefix", "mlx-c")
	if err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return errors.New("mlx-c is not known to Homebrew; run `brew update`, then " + advice)
	}
	prefix := strings.TrimSpace(string(out))
	lib := filepath.Join(prefix, "lib", "libmlxc.dylib")
	if _, err := os.Stat(lib); err != nil {
		return errors.New("mlx-c is not installed; " + advice)
	}
	out, err = r.execute(ctx, "", brew, "list", "--versions", "mlx-c")
	found, ok := version(out)
	if err != nil || !ok {
		return fmt.Errorf("%s is there, but `brew list --versions mlx-c` does not tell its version", lib)
	}
	want, _ := version([]byte(dist.MLXCVersion))
	if less(found, want) {
		return fmt.Errorf("the mlx-c of Homebrew is %d.%d, %d.%d or newer is needed; bring it up to date with\n\n    brew upgrade mlx-c", found[0], found[1], want[0], want[1])
	}
	switch {
	case o.abi:
		return a.compareABI(o, filepath.Join(prefix, "include"))
	case o.dir:
		fmt.Fprintln(a.stdout, lib)
	case !o.quiet:
		fmt.Fprintf(a.stdout, "found %s in %s; there is nothing to install\n", strings.TrimSpace(string(out)), prefix)
		if found != want {
			fmt.Fprintf(a.stdout, "godflash is tested with mlx-c %s\n", dist.MLXCVersion)
		}
	}
	return nil
}
