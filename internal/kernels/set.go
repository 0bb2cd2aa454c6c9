package kernels

import (
	"context"
	"log/slog"
	"math"

	"github.com/godflash/godflash/mlx"
)

// Set makes the kernels of one model. They live as long as the scope they were
// made in, which is the model's.
type Set struct {
	owner *mlx.Scope
	log   *slog.Logger

	q4, q4Wide               *mlx.Kernel               // products with weights in 4 bits
	chained                  bool                      // they can be parts of a chain
	dense                    map[denseKind]*mlx.Kernel // products in a chain with weights in bfloat16
	squares, addNorm, swiglu *mlx.Kernel
	mix                      *mixture
	group                    *grouped
	composed                 bool
	gpu                      mlx.GPU
	none                     mlx.Array // float32 [1], for inputs that a launch does not use
}

type composedKey struct{}

// WithComposed has the Sets made under ctx run on CPUs as well, every kernel by its
// operations: so that tests there see what is around the kernels.
func WithComposed(ctx context.Context) context.Context {
	return context.WithValue(ctx, composedKey{}, true)
}

// New prepares a Set in owner; nil on the CPU. It must be called inside
// Library.Do. Lines about kernels that fail go to log (nil: silence).
func New(ctx context.Context, owner *mlx.Scope, log *slog.Logger) *Set {
	composed := ctx.Value(composedKey{}) != nil
	if owner.Library().Device() == mlx.DeviceCPU && !composed {
		return nil
	}
	set := &Set{owner: owner, log: log, composed: composed, gpu: gpuOf(owner.Library())}
	set.q4, set.q4Wide = set.kernel(chainSpec(set.gpu, false)), set.kernel(chainSpec(set.gpu, true))
	set.chained = set.q4 != nil
	set.squares, set.addNorm, set.swiglu = set.kernel(squaresSpec()), set.kernel(addNormSpec()), set.kernel(swigluSpec())
	set.dense = set.denseKernels()
	set.mix, set.group = set.mixture(), set.groupKernels()
	set.none = owner.Zeros(mlx.Float32, 1)
	return set
}

// kernel is nil where there is no text for the device: then nothing need be
// arranged as a kernel wants it.
func (set *Set) kernel(spec mlx.KernelSpec) *mlx.Kernel {
	k := set.owner.NewKernel(spec, set.log)
	if k != nil && k.Backend() == "fallback" && !set.composed {
		return nil
	}
	return k
}

// tensorType says that matrix kernels take activations of a type.
func (set *Set) tensorType(dt mlx.Dtype) bool { return dt == mlx.BFloat16 || set.composed }

// call is a kernel's inputs and launch.
type call struct {
	in     []mlx.Array
	launch mlx.Launch
	writes []int // inputs that the kernel writes to, for tests
}

func (c call) run(s *mlx.Scope, k *mlx.Kernel) []mlx.Array { return k.Call(s, c.in, c.launch) }

// warps is the grid of n warps, four in a threadgroup.
func warps(n int) [3]int { return [3]int{(n + 3) / 4 * 128} }

// rowsOf is the number of rows of an array of a shape [..., width].
func rowsOf(shape []int) int {
	n := 1
	for _, d := range shape[:len(shape)-1] {
		n *= d
	}
	return n
}

func templateBool(l mlx.Launch, name string) bool {
	for _, t := range l.Template {
		if t.Name == name {
			return t.Value.(bool)
		}
	}
	return false
}

// templateFloat reads what floatBits wrote.
func templateFloat(l mlx.Launch, name string) float32 {
	return math.Float32frombits(uint32(templateInt(l, name)))
}

// templateInt is the launch's template argument of that name.
func templateInt(l mlx.Launch, name string) int {
	for _, t := range l.Template {
		if t.Name == name {
			return t.Value.(int)
		}
	}
	return 0
}
