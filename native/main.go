// Command native installs the two libraries that package mlx loads at run
// time: MLX, as its makers publish it for Linux, and mlx-c, compiled here from
// its published sources.
//
//	go run ./native                                          in a clone
//	go run github.com/godflash/godflash/native@latest        anywhere
//
// It needs pip, cargo (as a download tool only: no Rust is compiled) and a C++20
// compiler, takes about a minute and writes nothing outside one folder below the
// user's cache folder (GODFLASH_CACHE chooses another one) and cargo's own
// cache. Every file that is fetched is pinned by SHA-256 in this program. A run
// that breaks off leaves nothing behind that loads; a second run finds the work
// done; two runs at once wait for each other.
//
// On macOS Homebrew's mlx-c is used as it is, and this command only looks for it.
//
// The exit status is 0 when the libraries are installed, 1 on errors, 2 for
// wrong flags and 130 when interrupted.
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/godflash/godflash/internal/abicheck"
	"github.com/godflash/godflash/internal/dist"
)

//go:embed pins shim
var embedded embed.FS

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	a := &app{
		stdout:   os.Stdout,
		stderr:   os.Stderr,
		goos:     runtime.GOOS,
		goarch:   runtime.GOARCH,
		files:    embedded,
		diskFree: diskFree,
		driver:   nvidiaDriver,
		abi:      abicheck.Run,
	}
	status := a.run(ctx, os.Args[1:])
	stop()
	os.Exit(status)
}

// app is one run of the command. Its fields are what tests replace; external
// programs are replaced by a PATH of their own.
type app struct {
	stdout, stderr io.Writer
	goos, goarch   string
	files          fs.FS                            // pins and shim
	diskFree       func(dir string) (uint64, error) // bytes a user may write in dir
	driver         func() (major int, found bool)   // NVIDIA driver; major 0 where unknown
	abi            func(includeDir string) error    // compares declarations with headers
}

type options struct {
	backend                       string
	check, force, dir, abi, quiet bool
}

// instead lists the flags that were given of those that say what to do. One run
// does one of these things.
func (o options) instead() []string {
	var given []string
	for _, f := range []struct {
		name string
		set  bool
	}{{"-check", o.check}, {"-force", o.force}, {"-dir", o.dir}, {"-abi", o.abi}} {
		if f.set {
			given = append(given, f.name)
		}
	}
	return given
}

// errInterrupted ends a run that was told to stop; it has status 130.
var errInterrupted = errors.New("interrupted; nothing was installed")

func (a *app) run(ctx context.Context, args []string) int {
	var o options
	flags := flag.NewFlagSet("native", flag.ContinueOnError)
	flags.SetOutput(a.stderr)
	flags.StringVar(&o.backend, "backend", dist.CPU, "what to install: "+strings.Join(dist.Backends(), " or "))
	flags.BoolVar(&o.check, "check", false, "compare every installed file with its checksum, install nothing")
	flags.BoolVar(&o.force, "force", false, "install again even if it is installed")
	flags.BoolVar(&o.dir, "dir", false, "print the path of the installed library, install nothing")
	flags.BoolVar(&o.abi, "abi", false, "compare package mlx's declarations with the installed mlx-c's headers, install nothing")
	flags.BoolVar(&o.quiet, "q", false, "print errors only")
	flags.Usage = func() {
		fmt.Fprintf(a.stderr, "Installs MLX %s and mlx-c %s for package mlx.\nusage: native [flags]\n", dist.MLXVersion, dist.MLXCVersion)
		flags.PrintDefaults()
		fmt.Fprintf(a.stderr, "%s names the folder to install below (default: godflash in the user's cache folder).\n", dist.RootEnv)
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(a.stderr, "native: unexpected argument %q\n", flags.Arg(0))
		return 2
	}
	if given := o.instead(); len(given) > 1 {
		fmt.Fprintf(a.stderr, "native: %s exclude each other: give one of them\n", strings.Join(given, " and "))
		return 2
	}
	if _, err := dist.Dir(o.backend); errors.Is(err, dist.ErrUnknownBackend) {
		fmt.Fprintf(a.stderr, "native: %v\n", err)
		return 2
	}
	err := a.do(ctx, o)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errInterrupted), ctx.Err() != nil:
		fmt.Fprintf(a.stderr, "native: %v\n", errInterrupted)
		return 130
	default:
		fmt.Fprintf(a.stderr, "native: %v\n", err)
		return 1
	}
}

func (a *app) do(ctx context.Context, o options) error {
	if a.goos == "darwin" && a.goarch == "arm64" {
		return a.homebrew(ctx, o)
	}
	if a.goos != "linux" || a.goarch != "amd64" && a.goarch != "arm64" {
		return fmt.Errorf("MLX is not available for %s/%s: godflash runs models on Linux (amd64, arm64) and on macOS with Apple silicon (darwin/arm64)", a.goos, a.goarch)
	}
	switch {
	case o.dir:
		path, err := dist.Library(o.backend)
		if err != nil {
			return fmt.Errorf("%w; run this command without -dir to install it", err)
		}
		fmt.Fprintln(a.stdout, path)
		return nil
	case o.check:
		return a.check(o)
	case o.abi:
		include, err := dist.Include(o.backend)
		if err != nil {
			return fmt.Errorf("%w; run this command without -abi to install it", err)
		}
		return a.compareABI(o, include)
	}
	return a.install(ctx, o)
}

// compareABI compares package mlx's declarations with mlx-c's headers.
func (a *app) compareABI(o options, include string) error {
	if err := a.abi(include); err != nil {
		return err
	}
	if !o.quiet {
		fmt.Fprintf(a.stdout, "package mlx's declarations agree with the headers in %s\n", include)
	}
	return nil
}

// check compares every file of an installation with the manifest.
func (a *app) check(o options) error {
	dir, err := dist.Dir(o.backend)
	if err != nil {
		return err
	}
	m, err := dist.ReadManifest(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("nothing is installed in %s; run this command without -check to install it", dir)
	}
	if err == nil {
		err = m.Check(dir, o.backend)
	}
	if err != nil {
		return fmt.Errorf("%w; run this command with -force to install again", err)
	}
	if !o.quiet {
		fmt.Fprintf(a.stdout, "all %d files in %s are as installed\n", len(m.Files), dir)
	}
	return nil
}
