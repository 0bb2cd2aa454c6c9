package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/godflash/godflash/internal/hub"
	"github.com/godflash/godflash/internal/kernels"
	"github.com/godflash/godflash/internal/weights"
	"github.com/godflash/godflash/mlx"
)

// examine runs the checks in the order in which they need each other.
func examine(ctx context.Context, o *options, r *report) {
	r.add("system", good, fmt.Sprintf("%s/%s, %d processors, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version()), "")
	lib := library(r)
	if lib != nil {
		defer lib.Close()
		memory(ctx, lib, r)
		arithmetic(ctx, lib, r)
		gpuKernels(ctx, lib, r)
	}
	client := cache(r)
	if client != nil {
		models(ctx, client, r)
	}
	switch {
	case o.model == "":
		r.add("text", note, "not compared: name a model with -model to see whether drafting leaves its text as it is", "")
	case lib != nil && ctx.Err() == nil:
		text(ctx, lib, client, o, r)
	}
}

func library(r *report) *mlx.Library {
	lib, err := mlx.Open(nil)
	if err == nil {
		r.add("library", good, fmt.Sprintf("MLX %s in %s", lib.Version(), lib.Path()), "")
		return lib
	}
	fix := "run this in a clone of godflash: go run ./native"
	switch {
	case errors.Is(err, mlx.ErrUnsupportedPlatform):
		fix = "use a Mac with Apple silicon, or Linux on x86-64 or arm64, and build with CGO_ENABLED=1"
	case errors.Is(err, mlx.ErrLibraryVersion):
		fix = "install the version that fits; in a clone of godflash: go run ./native -force"
	}
	r.add("library", problem, err.Error(), fix)
	return nil
}

func memory(ctx context.Context, lib *mlx.Library, r *report) {
	devices, err := lib.Devices(ctx)
	if err != nil {
		r.add("device", problem, err.Error(), "restart the machine's GPU driver, or the machine")
		return
	}
	var all []string
	gpu := false
	for _, d := range devices {
		gpu = gpu || d.Type == mlx.DeviceGPU
		text := fmt.Sprintf("%s %d", d.Type, d.Index)
		for _, key := range slices.Sorted(func(yield func(string) bool) {
			for k := range d.Info {
				if !yield(k) {
					return
				}
			}
		}) {
			if strings.Contains(key, "name") || key == "architecture" {
				text += fmt.Sprintf(", %v", d.Info[key])
			}
		}
		all = append(all, text)
	}
	r.add("device", good, fmt.Sprintf("runs on the %s (there are: %s)", backend(lib.Device()), strings.Join(all, "; ")), "")
	if !gpu && runtime.GOOS == "darwin" {
		r.add("device", problem, "MLX sees no GPU on this Mac", "run it outside virtual machines and containers, which have none")
	}
	limit, err := lib.MemoryLimit(ctx)
	if err != nil {
		r.add("memory", problem, err.Error(), "report this with the lines above")
		return
	}
	detail := fmt.Sprintf("MLX keeps below %s", gibibytes(limit))
	if limit == 0 {
		detail = "MLX sets no limit"
	}
	have, ok, err := weights.DeviceMemory(ctx, lib)
	switch {
	case err != nil:
		r.add("memory", problem, err.Error(), "report this with the lines above")
	case !ok:
		r.add("memory", note, "how much is free is not known; "+detail, "")
	default:
		r.add("memory", good, fmt.Sprintf("%s %s; %s", gibibytes(have.Bytes), have.Of, detail), "")
	}
}

// backend names a device by what MLX drives it with.
func backend(d mlx.DeviceType) string {
	switch {
	case d == mlx.DeviceCPU:
		return "CPU"
	case runtime.GOOS == "darwin":
		return "GPU, by Metal"
	}
	return "GPU, by CUDA"
}

// arithmetic multiplies matrices of small integers, whose product every order
// of addition gives exactly, and compares with Go.
func arithmetic(ctx context.Context, lib *mlx.Library, r *report) {
	const n = 96
	a, b := make([]float32, n*n), make([]float32, n*n)
	for i := range a {
		a[i], b[i] = float32(i*7%11-5), float32(i*5%13-6)
	}
	err := lib.Do(ctx, func(s *mlx.Scope) error {
		product := s.MatMul(mlx.FromSlice(s, a, n, n), mlx.FromSlice(s, b, n, n))
		got, err := mlx.ToSlice[float32](product)
		if err != nil {
			return err
		}
		for i := range n {
			for j := range n {
				var want float32
				for k := range n {
					want += a[i*n+k] * b[k*n+j]
				}
				if got[i*n+j] != want {
					return fmt.Errorf("element (%d, %d) of a product of integer matrices is %g on the %s and %g in Go", i, j, got[i*n+j], lib.Device(), want)
				}
			}
		}
		return nil
	})
	if err != nil {
		r.add("arithmetic", problem, err.Error(), "install the library again (in a clone of godflash: go run ./native -force); then report this")
		return
	}
	detail := fmt.Sprintf("a %d×%d matrix product is right", n, n)
	if lib.Device() == mlx.DeviceCPU {
		same, err := rowByRow(ctx, lib)
		switch {
		case err != nil:
			r.add("arithmetic", problem, err.Error(), "install the library again (in a clone of godflash: go run ./native -force); then report this")
			return
		case !same:
			r.add("arithmetic", problem, "rows of a matrix product depend on how many are multiplied at once: text with a drafter may differ from text without one",
				"use the library that go run ./native installs, in a clone of godflash; on Linux its product keeps rows apart")
			return
		}
		detail += ", and its rows do not depend on how many there are"
	}
	r.add("arithmetic", good, detail, "")
}

// rowByRow multiplies rows together and one by one. The bits are the same where
// drafting shall leave text as it is.
func rowByRow(ctx context.Context, lib *mlx.Library) (same bool, err error) {
	const rows, in, out = 16, 512, 640
	err = lib.Do(ctx, func(s *mlx.Scope) error {
		x := s.Normal(s.Key(1), 0, 1, mlx.Float32, rows, in)
		w := s.Normal(s.Key(2), 0, 1, mlx.Float32, in, out)
		single := make([]mlx.Array, rows)
		for i := range single {
			single[i] = s.MatMul(s.SliceAxis(x, 0, i, i+1), w)
		}
		var err error
		same, err = mlx.Item[bool](s.ArrayEqual(s.MatMul(x, w), s.Concat(0, single...)))
		return err
	})
	return same, err
}

// gpuKernels compares the library's own kernels with MLX's operations.
func gpuKernels(ctx context.Context, lib *mlx.Library, r *report) {
	if lib.Device() == mlx.DeviceCPU {
		r.add("kernels", note, "of godflash itself run on GPUs only", "")
		return
	}
	tested, err := kernels.SelfTest(ctx, lib)
	if err != nil {
		r.add("kernels", problem, err.Error(), "report this with the lines above")
		return
	}
	right, without, on := 0, 0, ""
	for _, k := range tested {
		switch {
		case k.Err != nil:
			r.add("kernels", problem, fmt.Sprintf("%s: %v", k.Name, k.Err), "report this; generation uses MLX's operations in its place, slower, where a kernel does not run at all")
		case k.Backend == "fallback":
			without++
		default:
			right++
			on = " (" + k.Backend + ")"
		}
	}
	r.add("kernels", good, fmt.Sprintf("%d of %d give what MLX's operations give%s, for %d MLX's serve on this device", right, len(tested), on, without), "")
}

func cache(r *report) *hub.Client {
	client, err := hub.New(hub.FromEnv())
	if err != nil {
		r.add("cache", problem, err.Error(), "correct the variables HF_HUB_CACHE, HF_HOME and HF_ENDPOINT")
		return nil
	}
	return client
}

func gibibytes(n int64) string {
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
