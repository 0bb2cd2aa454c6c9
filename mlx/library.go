package mlx

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/godflash/godflash/internal/mlxc"
)

// DeviceType says where operations run.
type DeviceType int

// The devices.
const (
	DeviceDefault DeviceType = iota // the GPU where the library has one, else the CPU
	DeviceCPU
	DeviceGPU
)

func (d DeviceType) String() string {
	switch d {
	case DeviceDefault:
		return "default"
	case DeviceCPU:
		return "cpu"
	case DeviceGPU:
		return "gpu"
	}
	return fmt.Sprintf("DeviceType(%d)", int(d))
}

// Options of Open. The zero value is the default everywhere.
type Options struct {
	// Path is the libmlxc file. "": see the package comment for the search order.
	Path string
	// Backend is the installed build that the search prefers, "cpu" or "cuda13".
	// "": cuda13 where it is installed and an NVIDIA driver is present, else cpu.
	Backend string
	// Device is where operations run.
	Device DeviceType
	// Logger hears about the library that was chosen and about doubts. nil: silence.
	Logger *slog.Logger
}

// Library is a reference to the MLX library of this process, with a device.
// It is safe for use by many goroutines.
type Library struct {
	core   *core
	device DeviceType
	cuda   bool
	stream mlxc.Handle // of the device, on the worker's thread
	files  mlxc.Handle // for reading files
	log    *slog.Logger
	closed atomic.Bool

	// Only the worker touches these, see Post and fromTable.
	box          *letterbox
	boxTried     bool
	numbers      mlxc.Handle
	numbersTried bool
}

// process is the one native library that a process can hold: its functions
// stay loaded, its worker lives while a Library is open.
var process struct {
	mu      sync.Mutex
	path    string // loaded library, "" before
	version string
	core    *core
}

// Open finds and loads the MLX library, starts the worker and chooses a device.
// nil options mean defaults. Further calls return further references to the
// same library, which ends with the last Close; to ask for another file than
// the loaded one is an error.
//
// Errors: [ErrLibraryNotFound] with every place looked at, [ErrLibraryVersion],
// [ErrUnsupportedPlatform], [ErrNoGPU].
func Open(opts *Options) (*Library, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Device < DeviceDefault || o.Device > DeviceGPU {
		return nil, fmt.Errorf("mlx: Options.Device: unknown %v", o.Device)
	}
	if !mlxc.Supported {
		return nil, unsupported()
	}
	if mlxc.OnWorker() {
		return nil, fmt.Errorf("%w: Open", ErrInsideDo)
	}
	process.mu.Lock()
	defer process.mu.Unlock()
	c := process.core
	if c == nil || !c.enter() {
		if c != nil {
			<-c.stopped
		}
		var err error
		if c, err = start(&o); err != nil {
			return nil, err
		}
		process.core = c
	} else if err := sameLibrary(&o, c.path); err != nil {
		c.leave()
		return nil, err
	}
	l := &Library{core: c, log: o.Logger}
	var err error
	if e := c.hop(context.Background(), func() { err = l.choose(&o) }); e != nil {
		err = e
	}
	if err != nil {
		c.leave()
		return nil, err
	}
	o.Logger.Debug("mlx opened", "path", c.path, "version", c.version, "device", l.device.String())
	return l, nil
}

// start loads the library where this is still to do, and starts a worker with one reference.
func start(o *Options) (*core, error) {
	c := newCore()
	c.refs = 1
	started := make(chan error, 1)
	go c.work(func() error {
		if process.path != "" {
			if err := sameLibrary(o, process.path); err != nil {
				return err
			}
			c.path, c.version = process.path, process.version
			mlxc.CompileMode(c.compileMode) // an earlier worker may have left another
			return nil
		}
		path, version, err := load(o)
		if err != nil {
			return err
		}
		process.path, process.version = path, version
		c.path, c.version = path, version
		return nil
	}, started)
	if err := <-started; err != nil {
		<-c.stopped
		return nil, err
	}
	return c, nil
}

// choose sets device and streams; it runs on the worker.
func (l *Library) choose(o *Options) error {
	gpu := mlxc.HasGPU()
	l.device = o.Device
	switch {
	case o.Device == DeviceDefault && gpu:
		l.device = DeviceGPU
	case o.Device == DeviceDefault:
		l.device = DeviceCPU
	case o.Device == DeviceGPU && !gpu:
		return fmt.Errorf("%w: %s has no usable GPU; use DeviceCPU, or install the build for it (%s)", ErrNoGPU, l.core.path, installCommand("-backend cuda13"))
	}
	l.cuda = gpu && mlxc.IsCUDA()
	onGPU := l.device == DeviceGPU
	if most := mlxc.CompileNoFuse; !onGPU && l.core.compileMode > most {
		if l.core.setCompileMode(most); l.core.compileMode != most {
			return fmt.Errorf("mlx: turn fused kernels off: %s", cleanMessage(mlxc.LastError()))
		}
	}
	l.stream = mlxc.Stream(onGPU)
	// Metal cannot read files, CUDA must.
	l.files = mlxc.Stream(onGPU && l.cuda)
	if l.stream <= mlxc.OffWorker || l.files <= mlxc.OffWorker {
		return fmt.Errorf("mlx: make the %v stream: %s", l.device, cleanMessage(mlxc.LastError()))
	}
	return nil
}

// Close closes the scopes made with this Library and gives the reference back;
// it waits for a Do that runs, and those that wait fail with [ErrClosed]. The
// last Close of the process ends the worker. Closing twice is no error.
// Inside Library.Do it fails with [ErrInsideDo].
func (l *Library) Close() error {
	if mlxc.OnWorker() {
		return fmt.Errorf("%w: Library.Close", ErrInsideDo)
	}
	c := l.core
	// Under the lock, so that NewScope adds no scope after the list below is made.
	c.mu.Lock()
	already := l.closed.Swap(true)
	c.mu.Unlock()
	if already {
		return nil
	}
	var err error
	_ = c.hop(context.Background(), func() {
		for _, s := range c.openScopes(l) {
			s.close(closedByLibrary)
		}
		err = c.drain()
		mlxc.FreeStream(l.stream)
		mlxc.FreeStream(l.files)
		l.stream, l.files = 0, 0
	})
	c.leave()
	return err
}

// Version is MLX's own version, such as "0.32.2". (mlx_version)
func (l *Library) Version() string { return l.core.version }

// Path is the file the library was loaded from.
func (l *Library) Path() string { return l.core.path }

// Device is DeviceCPU or DeviceGPU.
func (l *Library) Device() DeviceType { return l.device }

// LiveArrays is the number of arrays that all scopes of the process hold.
func (l *Library) LiveArrays() int64 { return l.core.live.Load() }

// Waiting is the number of calls that wait for their turn on the library's
// thread, of all goroutines of the process.
func (l *Library) Waiting() int { return int(l.core.waiting.Load()) }

// Memory is what MLX's allocator holds, in bytes, for the whole process.
type Memory struct {
	Active int64 // in use by arrays
	Peak   int64 // highest Active since the start or ResetPeak
	Cache  int64 // freed by arrays and kept for reuse
}

// Memory reads the allocator's figures. A GPU gives memory back when it is done
// with it: Synchronize before, where the figures must be exact. (mlx_get_active_memory, mlx_get_peak_memory, mlx_get_cache_memory)
func (l *Library) Memory(ctx context.Context) (Memory, error) {
	var m Memory
	err := l.memory(ctx, func() error {
		return errors.Join(memoryCall(mlxc.MemoryActive, 0, &m.Active), memoryCall(mlxc.MemoryPeak, 0, &m.Peak), memoryCall(mlxc.MemoryCache, 0, &m.Cache))
	})
	return m, err
}

// ResetPeak starts a new measurement of Memory.Peak. (mlx_reset_peak_memory)
func (l *Library) ResetPeak(ctx context.Context) error {
	return l.memory(ctx, func() error { return memoryCall(mlxc.MemoryResetPeak, 0, nil) })
}

// ClearCache gives memory kept for reuse back to the system. (mlx_clear_cache)
func (l *Library) ClearCache(ctx context.Context) error {
	return l.memory(ctx, func() error { return memoryCall(mlxc.MemoryClearCache, 0, nil) })
}

// SetCacheLimit bounds Memory.Cache and returns the limit before. (mlx_set_cache_limit)
func (l *Library) SetCacheLimit(ctx context.Context, bytes int64) (previous int64, err error) {
	return l.setLimit(ctx, mlxc.MemoryCacheLimit, bytes)
}

// MemoryLimit is what SetMemoryLimit set, or MLX's own choice. (mlx_get_memory_limit)
func (l *Library) MemoryLimit(ctx context.Context) (bytes int64, err error) {
	err = l.memory(ctx, func() error { return memoryCall(mlxc.MemoryGetLimit, 0, &bytes) })
	return bytes, err
}

// SetWiredLimit sets how much memory Metal keeps resident for MLX and returns the
// limit before; without Metal it does nothing. (mlx_set_wired_limit)
func (l *Library) SetWiredLimit(ctx context.Context, bytes int64) (previous int64, err error) {
	return l.setLimit(ctx, mlxc.MemoryWiredLimit, bytes)
}

// SetMemoryLimit sets the size above which MLX waits for memory to be freed
// before it allocates more, and returns the limit before. (mlx_set_memory_limit)
func (l *Library) SetMemoryLimit(ctx context.Context, bytes int64) (previous int64, err error) {
	return l.setLimit(ctx, mlxc.MemoryLimit, bytes)
}

func (l *Library) setLimit(ctx context.Context, what int, bytes int64) (previous int64, err error) {
	if bytes < 0 {
		return 0, fmt.Errorf("mlx: a memory limit of %d bytes is not possible", bytes)
	}
	err = l.memory(ctx, func() error { return memoryCall(what, bytes, &previous) })
	return previous, err
}

func (l *Library) memory(ctx context.Context, f func() error) error {
	return l.Do(ctx, func(*Scope) error { return f() })
}

func memoryCall(what int, arg int64, out *int64) error {
	v, status := mlxc.Memory(what, int(arg))
	if status != mlxc.OK {
		return fmt.Errorf("mlx: memory: %s", cleanMessage(mlxc.LastError()))
	}
	if out != nil {
		*out = int64(v)
	}
	return nil
}

func unsupported() error {
	need := "Linux on x86-64 or arm64, or macOS on Apple silicon"
	if runtime.GOOS == "linux" && (runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64") || runtime.GOOS == "darwin" && runtime.GOARCH == "arm64" {
		return fmt.Errorf("%w: this program was built without cgo; build it with CGO_ENABLED=1 and a C compiler", ErrUnsupportedPlatform)
	}
	return fmt.Errorf("%w: found %s/%s, needed is %s", ErrUnsupportedPlatform, runtime.GOOS, runtime.GOARCH, need)
}
