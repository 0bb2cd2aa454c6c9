package mlx

import (
	"fmt"
	"math"
	"strconv"

	"github.com/godflash/godflash/internal/mlxc"
)

// An op is an index into ops; an Array carries the op that made it.
type op uint16

type opInfo struct {
	name  string // method of Scope
	c     string // function of mlx-c
	class string // its signature in mlxc.h, "" for functions that only one shim calls
}

// ops grows during package initialisation only.
var ops = []opInfo{{name: "?"}}

// fns holds the addresses of the functions of ops. It is filled once, when the
// library is loaded, and only read afterwards.
var fns []mlxc.Handle

// kinds holds the numbers of the ops' signature classes, where [Scope.call] serves them.
var kinds []int

// newOp declares an operation: its method, mlx-c's function, and the function's
// signature class. To add an operation, write its line in mlxc.h and a method
// with the op declared beside it.
func newOp(name, c, class string) op {
	ops = append(ops, opInfo{name, c, class})
	return op(len(ops) - 1)
}

func (o op) fn() mlxc.Handle { return fns[o] }

// resolveOps finds the functions of all ops in the loaded library.
func resolveOps() error {
	table, numbers := make([]mlxc.Handle, len(ops)), make([]int, len(ops))
	for i, o := range ops {
		if o.class == "" {
			continue
		}
		fn, class := mlxc.Lookup(o.c)
		if class != o.class {
			return fmt.Errorf("mlx: %s: %s is declared %s here and %s in mlxc.h", o.name, o.c, o.class, class)
		}
		table[i], numbers[i] = fn, mlxc.Kind(class)
	}
	fns, kinds = table, numbers
	return nil
}

// formatInts writes [1,2]. It keeps v on the caller's stack.
func formatInts(v []int) string {
	b := make([]byte, 0, 32)
	b = append(b, '[')
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(x), 10)
	}
	return string(append(b, ']'))
}

// pack turns a list into the form that crosses into C; false when it is too
// long or holds a number beyond 32 bits.
func pack(v []int) (p mlxc.Ints, ok bool) {
	if len(v) > mlxc.MaxDims {
		return p, false
	}
	for i, x := range v {
		if !fits(x) {
			return p, false
		}
		p.V[i] = int32(x)
	}
	p.N = int32(len(v))
	return p, true
}

// grows says why an array with these lengths is impossible, "" when it is not: MLX lets lengths
// beyond 32 bits and sizes beyond 64 overflow.
func grows(shape ...int) string {
	for _, d := range shape {
		if !fits(d) {
			return "the result would be too large"
		}
	}
	if n, ok := product(shape); !ok || n > math.MaxInt/16 { // bytes of the largest type, twice
		return "the result would be too large"
	}
	return ""
}

// lengths is the shape of i as a list that may be changed.
func lengths(i mlxc.Info) []int {
	out := make([]int, len(i.Shape))
	for k, d := range i.Shape {
		out[k] = int(d)
	}
	return out
}

func fits(x int) bool { return x >= math.MinInt32 && x <= math.MaxInt32 }

const limitText = "at most 8 numbers of 32 bits are possible"

// The helpers below are one per signature class. They never allocate unless they fail.

func (s *Scope) unary(o op, a Array) Array {
	if !s.begin(o) {
		return Array{}
	}
	x := a.use(s, o, 1)
	if x == 0 {
		return s.zeroInput(o, "", a)
	}
	h := mlxc.CallUnary(o.fn(), x, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(o, h, "", a)
	}
	return s.put(o, h)
}

func (s *Scope) binary(o op, a, b Array) Array {
	if !s.begin(o) {
		return Array{}
	}
	x, y := a.use(s, o, 1), b.use(s, o, 2)
	if x == 0 || y == 0 {
		return s.zeroInput(o, "", a, b)
	}
	h := mlxc.CallBinary(o.fn(), x, y, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(o, h, "", a, b)
	}
	return s.put(o, h)
}

// withInt serves functions of one array and one number.
func (s *Scope) withInt(o op, a Array, i int, what string) Array {
	if !s.begin(o) {
		return Array{}
	}
	x := a.use(s, o, 1)
	if x == 0 {
		return s.zeroInput(o, args1(what, i), a)
	}
	if !fits(i) {
		return s.refuse(o, limitText, args1(what, i), a)
	}
	h := mlxc.CallInt(o.fn(), x, i, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(o, h, args1(what, i), a)
	}
	return s.put(o, h)
}

func (s *Scope) withInt2(o op, a Array, i, j int, whatI, whatJ string) Array {
	if !s.begin(o) {
		return Array{}
	}
	x := a.use(s, o, 1)
	if x == 0 {
		return s.zeroInput(o, args2(whatI, i, whatJ, j), a)
	}
	if !fits(i) || !fits(j) {
		return s.refuse(o, limitText, args2(whatI, i, whatJ, j), a)
	}
	h := mlxc.CallInt2(o.fn(), x, i, j, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(o, h, args2(whatI, i, whatJ, j), a)
	}
	return s.put(o, h)
}

// withInts serves functions of one array and a list.
func (s *Scope) withInts(o op, a Array, v []int, what string) Array {
	if !s.begin(o) {
		return Array{}
	}
	x := a.use(s, o, 1)
	if x == 0 {
		return s.zeroInput(o, what+" "+formatInts(v), a)
	}
	p, ok := pack(v)
	if !ok {
		return s.refuse(o, limitText, what+" "+formatInts(v), a)
	}
	h := mlxc.CallInts(o.fn(), x, p, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(o, h, what+" "+formatInts(v), a)
	}
	return s.put(o, h)
}

func (s *Scope) withDtype(o op, a Array, dt Dtype) Array {
	if !s.begin(o) {
		return Array{}
	}
	x := a.use(s, o, 1)
	switch {
	case x == 0:
		return s.zeroInput(o, dt.String(), a)
	case !dt.valid():
		return s.refuse(o, "unknown type", dt.String(), a)
	}
	h := mlxc.CallDtype(o.fn(), x, int(dt), s.lib.stream)
	if h <= mlxc.OffWorker {
		return s.failed(o, h, dt.String(), a)
	}
	return s.put(o, h)
}

func (s *Scope) withBool(o op, a Array, flag bool) Array {
	if !s.begin(o) {
		return Array{}
	}
	x := a.use(s, o, 1)
	if x == 0 {
		return s.zeroInput(o, "", a)
	}
	h := mlxc.CallBool(o.fn(), x, flag, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(o, h, "", a)
	}
	return s.put(o, h)
}

// reduce calls the form without axes where there are none, else the other.
func (s *Scope) reduce(all, some op, a Array, flag bool, axes []int) Array {
	if b, empty := s.fresh(some, a); empty {
		r := s.reduceFull(all, some, b, flag, axes)
		s.drop(b)
		return r
	}
	return s.reduceFull(all, some, a, flag, axes)
}

// fresh replaces an empty array: on CPUs MLX does not end when it reduces one that is a strided
// view. No element is lost.
func (s *Scope) fresh(o op, a Array) (Array, bool) {
	i, ok := a.peek(s, o, 1)
	if !ok || i.Size != 0 || !s.begin(o) {
		return a, false
	}
	b := s.Zeros(Dtype(i.Dtype), a.Shape()...)
	return b, b.Valid()
}

func (s *Scope) reduceFull(all, some op, a Array, flag bool, axes []int) Array {
	if len(axes) == 0 {
		return s.withBool(all, a, flag)
	}
	if !s.begin(some) {
		return Array{}
	}
	x := a.use(s, some, 1)
	if x == 0 {
		return s.zeroInput(some, "axes "+formatInts(axes), a)
	}
	p, ok := pack(axes)
	if !ok {
		return s.refuse(some, limitText, "axes "+formatInts(axes), a)
	}
	h := mlxc.CallIntsBool(some.fn(), x, p, flag, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(some, h, "axes "+formatInts(axes), a)
	}
	return s.put(some, h)
}

func (s *Scope) withIntBool(o op, a Array, i int, flag bool, what string) Array {
	if !s.begin(o) {
		return Array{}
	}
	x := a.use(s, o, 1)
	if x == 0 {
		return s.zeroInput(o, args1(what, i), a)
	}
	if !fits(i) {
		return s.refuse(o, limitText, args1(what, i), a)
	}
	h := mlxc.CallIntBool(o.fn(), x, i, flag, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(o, h, args1(what, i), a)
	}
	return s.put(o, h)
}

func (s *Scope) binaryInt(o op, a, b Array, i int, what string) Array {
	if !s.begin(o) {
		return Array{}
	}
	x, y := a.use(s, o, 1), b.use(s, o, 2)
	if x == 0 || y == 0 {
		return s.zeroInput(o, args1(what, i), a, b)
	}
	if !fits(i) {
		return s.refuse(o, limitText, args1(what, i), a, b)
	}
	h := mlxc.CallBinaryInt(o.fn(), x, y, i, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(o, h, args1(what, i), a, b)
	}
	return s.put(o, h)
}

// vectorInt serves Concat and Stack.
func (s *Scope) vectorInt(o op, axis int, arrays []Array) Array {
	if !s.begin(o) {
		return Array{}
	}
	list, ok := s.handles(o, arrays)
	if !ok {
		return s.zeroInput(o, args1("axis", axis), arrays...)
	}
	if len(list) == 0 {
		return s.refuse(o, "no arrays given", args1("axis", axis))
	}
	if !fits(axis) {
		return s.refuse(o, limitText, args1("axis", axis), arrays...)
	}
	h := mlxc.CallVectorInt(o.fn(), list, axis, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(o, h, args1("axis", axis), arrays...)
	}
	return s.put(o, h)
}

func args1(what string, i int) string { return what + " " + strconv.Itoa(i) }

func args2(whatI string, i int, whatJ string, j int) string {
	return args1(whatI, i) + ", " + args1(whatJ, j)
}
