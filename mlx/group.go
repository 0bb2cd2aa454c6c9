package mlx

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/godflash/godflash/internal/mlxc"
)

var (
	opGroup      = newOp("Group", "mlx_distributed_init", "")
	opGroupSplit = newOp("SplitGroup", "mlx_distributed_group_split", "")
	opAllSum     = newOp("AllSum", "mlx_distributed_all_sum", mlxc.OfGroup)
	opAllMax     = newOp("AllMax", "mlx_distributed_all_max", mlxc.OfGroup)
	opAllMin     = newOp("AllMin", "mlx_distributed_all_min", mlxc.OfGroup)
	opAllGather  = newOp("AllGather", "mlx_distributed_all_gather", mlxc.OfGroup)
	opSumScatter = newOp("SumScatter", "mlx_distributed_sum_scatter", mlxc.OfGroup)
	opSend       = newOp("Send", "mlx_distributed_send", mlxc.IntOfGroup)
	opRecvLike   = newOp("RecvLike", "mlx_distributed_recv_like", mlxc.IntOfGroup)
	opRecv       = newOp("Recv", "mlx_distributed_recv", "")
)

// GroupOptions of [Scope.Group].
type GroupOptions struct {
	// Backend is "mpi", "ring", "nccl" or "jaccl"; "": the first that is set up. NCCL
	// works on a GPU's stream, the others on the CPU's, whatever the scope's.
	Backend string
	Strict  bool // an error where no backend is set up, instead of a group of this process alone
}

// Group is a set of processes that compute together. How they find each other is
// up to MLX's backend, whose environment variables MLX's own documentation
// describes. It ends with the scope that made it.
type Group struct {
	owner      *Scope
	h          mlxc.Handle
	rank, size int
	backend    string      // "" for this process alone
	cpu        mlxc.Handle // the stream of its operations, 0 for the scope's
}

// backends are MLX's, in the order in which it tries them.
var backends = []string{"mpi", "ring", "nccl", "jaccl"}

// Group joins the group of all processes; the result is nil where that failed.
// (mlx_distributed_init)
func (s *Scope) Group(o GroupOptions) *Group {
	if !s.begin(opGroup) {
		return nil
	}
	args := "backend " + strconv.Quote(o.Backend)
	if strings.ContainsAny(o.Backend, "%\x00") { // MLX's error quotes it, and mlx-c takes errors as printf formats
		s.refuse(opGroup, "no backend has such a name", args)
		return nil
	}
	if o.Backend == "any" { // MLX's own name for it
		o.Backend = ""
	}
	if o.Backend == "" && s.lib.device == DeviceGPU {
		// MLX does not tell which one it took.
		for _, name := range backends {
			if mlxc.GroupAvailable(name) {
				if h := mlxc.Group(true, name); h > mlxc.OffWorker {
					return s.newGroup(opGroup, h, name, args)
				}
			}
		}
	}
	return s.newGroup(opGroup, mlxc.Group(o.Strict, o.Backend), o.Backend, args)
}

func (s *Scope) newGroup(o op, h mlxc.Handle, backend, args string) *Group {
	if h <= mlxc.OffWorker {
		s.failed(o, h, args)
		return nil
	}
	s.atEnd(func() { mlxc.FreeGroup(h) })
	g := &Group{owner: s, h: h, rank: mlxc.GroupRank(h), size: mlxc.GroupSize(h), backend: backend}
	if s.lib.device == DeviceGPU && backend != "nccl" {
		if g.cpu = mlxc.Stream(false); g.cpu <= mlxc.OffWorker {
			s.failed(o, g.cpu, args)
			return nil
		}
		s.atEnd(func() { mlxc.FreeStream(g.cpu) })
	}
	return g
}

// stream is where the group's operations run. Only NCCL's run on a GPU: in a GPU's
// stream MLX ends the process for the others.
func (g *Group) stream(s *Scope) mlxc.Handle {
	if g.cpu != 0 {
		return g.cpu
	}
	return s.stream
}

// GroupAvailable says whether the library has a backend of that name, any for "".
// (mlx_distributed_is_available)
func (s *Scope) GroupAvailable(backend string) bool {
	return s.begin(opGroup) && mlxc.OnWorker() && !strings.ContainsAny(backend, "%\x00") && mlxc.GroupAvailable(backend)
}

// Rank is the number of this process in the group, from 0. (mlx_distributed_group_rank)
func (g *Group) Rank() int { return g.rank }

// Size is the number of processes in the group. (mlx_distributed_group_size)
func (g *Group) Size() int { return g.size }

// SplitGroup makes groups of the processes that call it with the same color, ordered
// by key; s owns the result, nil where that failed. (mlx_distributed_group_split)
func (s *Scope) SplitGroup(g *Group, color, key int) *Group {
	if !s.begin(opGroupSplit) || !s.usable(opGroupSplit, g) {
		return nil
	}
	if !fits(color) || !fits(key) {
		s.refuse(opGroupSplit, limitText, args2("color", color, "key", key))
		return nil
	}
	return s.newGroup(opGroupSplit, mlxc.GroupSplit(g.h, color, key), g.backend, args2("color", color, "key", key))
}

// usable refuses a group that is nil and panics on one that has ended.
func (s *Scope) usable(o op, g *Group) bool {
	if !mlxc.OnWorker() {
		s.failed(o, mlxc.OffWorker, "")
		return false
	}
	if g == nil {
		s.refuse(o, "the group is nil", "")
		return false
	}
	if why := g.owner.closedBy.Load(); why != nil {
		panic(&UseError{Op: ops[o].name, Scope: g.owner.name, Ending: *why})
	}
	return true
}

func (s *Scope) collective(o op, a Array, g *Group) Array {
	if !s.begin(o) || !s.usable(o, g) {
		return Array{}
	}
	x := a.use(s, o, 1)
	if x == 0 {
		return s.zeroInput(o, "", a)
	}
	h := mlxc.CallGroup(o.fn(), x, g.h, g.stream(s))
	if h <= mlxc.OffWorker {
		return s.failed(o, h, "", a)
	}
	return s.put(o, h)
}

// AllSum is the sum of all processes' arrays, elementwise. (mlx_distributed_all_sum)
func (s *Scope) AllSum(a Array, g *Group) Array { return s.collective(opAllSum, a, g) }

// AllMax is the largest of all processes' values, elementwise. (mlx_distributed_all_max)
func (s *Scope) AllMax(a Array, g *Group) Array { return s.collective(opAllMax, a, g) }

// AllMin is the smallest of all processes' values, elementwise. (mlx_distributed_all_min)
func (s *Scope) AllMin(a Array, g *Group) Array { return s.collective(opAllMin, a, g) }

// AllGather joins all processes' arrays along the first axis, in the order of
// their ranks; a scalar counts as [1]. (mlx_distributed_all_gather)
func (s *Scope) AllGather(a Array, g *Group) Array { return s.collective(opAllGather, a, g) }

// SumScatter adds all processes' arrays and gives each its part of the first
// axis, whose length must be a multiple of the group's size. (mlx_distributed_sum_scatter)
func (s *Scope) SumScatter(a Array, g *Group) Array { return s.collective(opSumScatter, a, g) }

// peer refuses a process that is not another one of the group.
func (s *Scope) peer(o op, g *Group, rank int, what string, in ...Array) bool {
	if !s.begin(o) || !s.usable(o, g) {
		return false
	}
	if rank < 0 || rank >= g.size || rank == g.rank {
		s.refuse(o, fmt.Sprintf("this is process %d of %d; another one is needed", g.rank, g.size), args1(what, rank), in...)
		return false
	}
	return true
}

// Send sends the array to the process dst; evaluate the result, which equals a, to
// do so. (mlx_distributed_send)
func (s *Scope) Send(a Array, dst int, g *Group) Array { return s.withPeer(opSend, a, dst, "dst", g) }

// RecvLike receives an array of the shape and type of a from the process src. (mlx_distributed_recv_like)
func (s *Scope) RecvLike(a Array, src int, g *Group) Array {
	return s.withPeer(opRecvLike, a, src, "src", g)
}

func (s *Scope) withPeer(o op, a Array, rank int, what string, g *Group) Array {
	if !s.peer(o, g, rank, what, a) {
		return Array{}
	}
	x := a.use(s, o, 1)
	if x == 0 {
		return s.zeroInput(o, args1(what, rank), a)
	}
	h := mlxc.CallIntGroup(o.fn(), x, rank, g.h, g.stream(s))
	if h <= mlxc.OffWorker {
		return s.failed(o, h, args1(what, rank), a)
	}
	return s.put(o, h)
}

// Recv receives an array from the process src. (mlx_distributed_recv)
func (s *Scope) Recv(src int, g *Group, dt Dtype, shape ...int) Array {
	if !s.peer(opRecv, g, src, "src") {
		return Array{}
	}
	p, ok := pack(shape)
	if _, possible := product(shape); !ok || !possible || !dt.valid() {
		return s.refuse(opRecv, "impossible shape or type", dt.String()+formatInts(shape))
	}
	h := mlxc.Recv(p, int(dt), src, g.h, g.stream(s))
	if h <= mlxc.OffWorker {
		return s.failed(opRecv, h, args1("src", src))
	}
	return s.put(opRecv, h)
}
