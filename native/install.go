package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/godflash/godflash/internal/dist"
)

const (
	lockName      = "install.lock"
	stagingPrefix = ".staging-"
	shimHeader    = "shim/format.h"
	steps         = 6
)

// spaceNeeded is what an installation writes at its peak, wheels included.
var spaceNeeded = map[string]uint64{
	dist.CPU:    120 << 20,
	dist.CUDA13: 4 << 30,
}

// installation is one run that installs something.
//
// Everything is made in a staging folder beside the target, so that the last
// step is one rename within a file system:
//
//	<root>/.staging-*/work   downloads, sources, objects, temporary files
//	<root>/.staging-*/tree   what becomes the target
type installation struct {
	*app
	*runner
	options
	root, target string
	staging      string
	work, tree   string
	shim         string // folder of the std::format header
	logPath      string
	started      time.Time
	step         int
	saying       sync.Mutex
}

func (a *app) install(ctx context.Context, o options) (err error) {
	in := &installation{app: a, options: o, started: time.Now()}
	if in.root, err = dist.Root(); err != nil {
		return err
	}
	if in.target, err = dist.Dir(o.backend); err != nil {
		return err
	}
	if done, err := in.installed(); done || err != nil {
		return err
	}
	unlock, err := in.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	// Another process may have finished the work while this one waited.
	if done, err := in.installed(); done || err != nil {
		return err
	}
	if err := in.prepare(); err != nil {
		return in.explain(err)
	}
	closeLog, err := in.openLog()
	if err != nil {
		return in.explain(err)
	}
	defer closeLog()
	defer os.RemoveAll(in.staging)
	if err := in.build(ctx); err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return in.explain(err)
	}
	in.say("installed MLX %s and mlx-c %s (%s) in %s after %s", dist.MLXVersion, dist.MLXCVersion, o.backend, in.target, in.elapsed())
	if _, found := in.driver(); found && o.backend == dist.CPU {
		in.say("an NVIDIA driver is present: the same command with -backend %s installs the GPU build", dist.CUDA13)
	}
	return nil
}

// installed says whether there is nothing to do, after telling the user so.
func (in *installation) installed() (bool, error) {
	m, err := dist.ReadManifest(in.target)
	if err == nil {
		err = m.CheckQuick(in.target, in.backend)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(err, dist.ErrDamaged):
		in.say("%v: installing again", err)
		return false, nil
	case err != nil:
		return false, in.explain(err)
	case in.force:
		return false, nil
	case m.Recipe != recipe():
		in.say("%s was made by another version of the installer: installing again", in.target)
		return false, nil
	}
	in.say("already installed in %s", in.target)
	return true, nil
}

// lock makes sure that one process at a time installs below the root. The
// system drops the lock when the process ends, however it ends.
func (in *installation) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(in.root, 0o755); err != nil {
		return nil, in.explain(err)
	}
	path := filepath.Join(in.root, lockName)
	lock := flock.New(path)
	got, err := lock.TryLock()
	if err != nil {
		return nil, in.explain(err)
	}
	if !got {
		in.say("another installation is running (it holds %s): waiting for it to end", path)
		if _, err := lock.TryLockContext(ctx, 100*time.Millisecond); err != nil {
			if ctx.Err() != nil {
				return nil, errInterrupted
			}
			return nil, in.explain(err)
		}
	}
	return func() { lock.Unlock() }, nil
}

// prepare removes what killed runs left and makes the staging folder. The lock
// is held, so nothing found there is in use.
func (in *installation) prepare() error {
	stale, err := filepath.Glob(filepath.Join(in.root, stagingPrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range stale {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	need := spaceNeeded[in.backend]
	if free, err := in.diskFree(in.root); err == nil && free < need {
		return fmt.Errorf("%w: %d MB are free", errNoSpace, free>>20)
	}
	if in.staging, err = os.MkdirTemp(in.root, stagingPrefix); err != nil {
		return err
	}
	in.work, in.tree = filepath.Join(in.staging, "work"), filepath.Join(in.staging, "tree")
	in.shim = filepath.Join(in.work, "shim")
	tmp := filepath.Join(in.work, "tmp")
	for _, dir := range []string{in.work, in.tree, in.shim, tmp} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			os.RemoveAll(in.staging)
			return err
		}
	}
	in.runner = &runner{env: commandEnv(tmp), mu: new(sync.Mutex)}
	return nil
}

func (in *installation) openLog() (closeLog func(), err error) {
	in.logPath = filepath.Join(in.root, "install-"+in.backend+".log")
	f, err := os.Create(in.logPath)
	if err != nil {
		os.RemoveAll(in.staging)
		return nil, err
	}
	in.log = f
	return func() { f.Close() }, nil
}

// build fills the tree and puts it in place.
func (in *installation) build(ctx context.Context) error {
	if err := in.unpackFile(shimHeader, in.shim); err != nil {
		return err
	}
	in.next("looking for pip, cargo and a C++ compiler")
	tools, err := in.findTools(ctx)
	if err != nil {
		return err
	}
	if in.backend == dist.CUDA13 {
		in.sayDriver()
	}
	in.next("downloading MLX %s (%s)", dist.MLXVersion, in.backend)
	wheels, err := in.download(ctx, tools)
	if err != nil {
		return err
	}
	in.next("downloading the sources of mlx-c %s", dist.MLXCVersion)
	src, err := in.fetchSources(ctx, tools)
	if err != nil {
		return err
	}
	in.next("unpacking")
	if err := in.unpackWheels(ctx, wheels); err != nil {
		return err
	}
	in.next("compiling mlx-c")
	if err := in.compile(ctx, tools, src); err != nil {
		return err
	}
	in.next("checking and putting in place")
	if err := in.checkLinks(ctx); err != nil {
		return err
	}
	return in.finish(ctx)
}

// finish writes the manifest and moves the tree to its place. What lay there
// is kept until the new one is in place.
func (in *installation) finish(ctx context.Context) error {
	// Only the build for NVIDIA reads these at run time, to compile kernels.
	if in.backend == dist.CPU {
		if err := os.RemoveAll(filepath.Join(in.tree, "mlx", "include")); err != nil {
			return err
		}
	}
	m, err := dist.NewManifest(in.tree, in.backend)
	if err == nil {
		m.Recipe = recipe()
	}
	if err != nil {
		return err
	}
	if err := m.Write(in.tree); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	old := filepath.Join(in.staging, "old")
	err = os.Rename(in.target, old)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	had := err == nil
	if err := os.Rename(in.tree, in.target); err != nil {
		if had {
			return errors.Join(err, os.Rename(old, in.target))
		}
		return err
	}
	return nil
}

// unpackFile writes one embedded file into a folder.
func (in *installation) unpackFile(name, dir string) error {
	data, err := fs.ReadFile(in.files, name)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, filepath.Base(name)), data, 0o644)
}

func (in *installation) sayDriver() {
	major, found := in.driver()
	switch {
	case !found:
		in.say("no NVIDIA driver is present here: the build needs driver %d or newer to run", minDriver)
	case major != 0 && major < minDriver:
		in.say("the NVIDIA driver here is version %d: the build needs %d or newer to run", major, minDriver)
	}
}

func (in *installation) next(format string, args ...any) {
	in.step++
	in.say("[%d/%d] %s (%s)", in.step, steps, fmt.Sprintf(format, args...), in.elapsed())
}

func (in *installation) elapsed() string {
	return fmt.Sprintf("%.1f s", time.Since(in.started).Seconds())
}

func (in *installation) say(format string, args ...any) {
	in.saying.Lock()
	defer in.saying.Unlock()
	if !in.quiet {
		io.WriteString(in.stdout, strings.TrimRight(fmt.Sprintf(format, args...), "\n")+"\n")
	}
}
