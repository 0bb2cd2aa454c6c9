package kernels

import (
	"log/slog"

	"github.com/godflash/godflash/mlx"
)

// Set makes the kernels of one model. They live as long as the scope they were
// made in, which is the model's.
type Set struct {
	owner *mlx.Scope
	log   *slog.Logger
	made  []*mlx.Kernel
}

// New prepares a Set in owner; nil on the CPU. It must be called inside
// Library.Do. Lines about kernels that fail go to log (nil: silence).
func New(owner *mlx.Scope, log *slog.Logger) *Set {
	if owner.Library().Device() == mlx.DeviceCPU {
		return nil
	}
	return &Set{owner: owner, log: log}
}

func (set *Set) kernel(spec mlx.KernelSpec) *mlx.Kernel {
	k := set.owner.NewKernel(spec, set.log)
	if k != nil {
		set.made = append(set.made, k)
	}
	return k
}

// call is a kernel's inputs and launch.
type call struct {
	in     []mlx.Array
	launch mlx.Launch
}

func (c call) run(s *mlx.Scope, k *mlx.Kernel) []mlx.Array { return k.Call(s, c.in, c.launch) }

// warps is the grid of n warps, four in a threadgroup.
func warps(n int) [3]int { return [3]int{(n + 3) / 4 * 128} }

// templateInt is the launch's template argument of that name.
func templateInt(l mlx.Launch, name string) int {
	for _, t := range l.Template {
		if t.Name == name {
			return t.Value.(int)
		}
	}
	return 0
}
