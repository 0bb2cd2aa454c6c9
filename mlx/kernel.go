package mlx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/godflash/godflash/internal/mlxc"
)

// KernelSource is the text of a kernel for one kind of GPU. Source is the body of
// the kernel function; MLX writes the head from the names of inputs, outputs and
// template arguments. Header comes before the function. No source, no kernel.
// MLX reads through a CUDA text at every launch, so a long one is written to a
// file in the folder "kernels" of the user's cache (GODFLASH_CACHE), if possible,
// and included.
type KernelSource struct {
	Source string
	Header string
}

// KernelSpec is one computation in up to three forms: Metal, CUDA, and operations
// of this package. Where there is no kernel for the device, or it fails, the
// operations are used, so a spec without Fallback is not accepted.
type KernelSpec struct {
	Name    string   // of the kernel function: letters, digits, underscores
	Inputs  []string // names in the sources, in the order of Call
	Outputs []string
	Metal   KernelSource
	CUDA    KernelSource
	// SharedMemory is what a CUDA block may use, in bytes.
	SharedMemory int
	// AtomicOutputs makes Metal's outputs atomic.
	AtomicOutputs bool
	// Strided hands inputs over as they lie; the source then looks at their
	// strides. Otherwise MLX copies those that do not lie row by row.
	Strided bool
	// Overlaps says that the CUDA source executes griddepcontrol.wait, in every
	// thread, before it touches memory that other kernels write, and before it writes
	// at all: launches of it may begin while the one before still runs. The name of
	// its CUDA function then ends in "_overlaps", before what MLX adds.
	Overlaps bool
	// Fallback computes the same with operations. It gives one array per output,
	// of the launch's shapes and types.
	Fallback func(s *Scope, in []Array, l Launch) []Array
}

// Launch is how a kernel is called: what it makes and with how many threads.
type Launch struct {
	Outputs  []Output
	Grid     [3]int        // threads in all, also for CUDA; 0 = 1
	Group    [3]int        // threads of one threadgroup or block; 0 = 1
	Init     *float32      // what outputs hold before; nil = undefined
	Template []TemplateArg // for the sources and the fallback
}

// Output is the shape and type of a result.
type Output struct {
	Dtype Dtype
	Shape []int
}

// TemplateArg is a constant of the source: Value is an int, a bool or a [Dtype].
type TemplateArg struct {
	Name  string
	Value any
}

// Kernel is a KernelSpec in use. It ends with the scope that made it.
type Kernel struct {
	owner   *Scope
	spec    KernelSpec
	log     *slog.Logger
	backend string // "metal", "cuda", "" for the fallback
	h       mlxc.Handle
	proven  map[string]bool        // kinds of launches that have run
	plans   map[string]mlxc.Handle // MLX's description of a launch, by launch and kind of inputs
	key     []byte                 // of the running call
}

var (
	opKernel   = newOp("NewKernel", "mlx_fast_metal_kernel_new, mlx_fast_cuda_kernel_new", "")
	opLaunch   = newOp("Kernel.Call", "mlx_fast_metal_kernel_apply, mlx_fast_cuda_kernel_apply", "")
	opSelfTest = newOp("Kernel.SelfTest", "", "")
)

// NewKernel prepares a kernel; nil where the spec is impossible, which is the
// scope's error. Nothing is compiled yet: the first Call with a new set of types
// and template arguments does that, and runs the kernel, so that it takes long and
// waits. Where the compiler or the run fails, a line goes to log (nil: silence) and
// the fallback serves this kernel from then on.
// (mlx_fast_metal_kernel_new, mlx_fast_cuda_kernel_new)
func (s *Scope) NewKernel(spec KernelSpec, log *slog.Logger) *Kernel {
	if !s.begin(opKernel) {
		return nil
	}
	if !mlxc.OnWorker() {
		s.failed(opKernel, mlxc.OffWorker, "")
		return nil
	}
	if msg := spec.check(); msg != "" {
		s.refuse(opKernel, msg, "name "+strconv.Quote(spec.Name))
		return nil
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	k := &Kernel{owner: s, spec: spec, log: log, proven: map[string]bool{}, plans: map[string]mlxc.Handle{}}
	switch {
	case s.lib.device != DeviceGPU:
	case s.lib.cuda && spec.CUDA.Source != "":
		k.backend = "cuda"
	case !s.lib.cuda && spec.Metal.Source != "":
		k.backend = "metal"
	}
	s.atEnd(k.drop)
	return k
}

func (spec *KernelSpec) check() string {
	switch {
	case !isName(spec.Name):
		return "Name must be letters, digits and underscores"
	case strings.Contains(spec.Name, overlapping):
		return "Name must not contain " + overlapping + ", see Overlaps"
	case spec.Fallback == nil:
		return "a Fallback is needed, for other devices and where a kernel fails"
	case len(spec.Inputs) == 0 || len(spec.Outputs) == 0:
		return "at least one input and one output are needed"
	case spec.SharedMemory < 0 || !fits(spec.SharedMemory):
		return "SharedMemory is impossible"
	}
	seen := map[string]bool{}
	for _, name := range slices.Concat(spec.Inputs, spec.Outputs) {
		if !isName(name) || seen[name] {
			return fmt.Sprintf("%q is not a name, or comes twice", name)
		}
		seen[name] = true
	}
	for _, src := range []KernelSource{spec.Metal, spec.CUDA} {
		if strings.ContainsRune(src.Source+src.Header, 0) {
			return "a source holds a zero byte"
		}
	}
	return ""
}

// overlapping ends the CUDA function's name of a spec with Overlaps.
const overlapping = "_overlaps"

// function is the name of the kernel function. Who launches CUDA kernels again
// (native/kernels/launch.h) looks for the end.
func (spec *KernelSpec) function(cuda bool) string {
	if cuda && spec.Overlaps {
		return spec.Name + overlapping
	}
	return spec.Name
}

func isName(s string) bool {
	for i, r := range s {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}

// Backend is "metal", "cuda", or "fallback": where there is no kernel for the
// library's device, and after it failed.
func (k *Kernel) Backend() string {
	if k.backend == "" {
		return "fallback"
	}
	return k.backend
}

func (k *Kernel) drop() {
	k.forget()
	if k.h != 0 {
		mlxc.FreeKernel(k.backend == "cuda", k.h)
		k.h = 0
	}
}

// mostPlans bounds the memory of launches whose shapes never come back.
const mostPlans = 256

func (k *Kernel) forget() {
	for _, c := range k.plans {
		mlxc.FreeConfig(k.backend == "cuda", c)
	}
	clear(k.plans)
}

// disable makes the fallback serve from now on.
func (k *Kernel) disable(err error) {
	k.log.Warn("mlx: a kernel failed; its fallback is used from now on", "kernel", k.spec.Name, "backend", k.backend, "error", err)
	k.drop()
	k.backend = ""
}

// Call computes the outputs, which belong to s. MLX knows no derivative of
// kernels: give one with [Custom].
// (mlx_fast_metal_kernel_apply, mlx_fast_cuda_kernel_apply)
func (k *Kernel) Call(s *Scope, in []Array, l Launch) []Array {
	if !k.ready(s, opLaunch, in, &l) {
		return nil
	}
	if k.backend != "" && s.device == DeviceGPU {
		if out, err := k.prove(s, in, l); err == nil {
			return out
		} else if s.Err() == nil {
			k.disable(err)
		}
	}
	return k.fallback(s, in, l)
}

// ready checks what can be checked without knowing the sources.
func (k *Kernel) ready(s *Scope, o op, in []Array, l *Launch) bool {
	if !s.begin(o) {
		return false
	}
	if !mlxc.OnWorker() {
		s.failed(o, mlxc.OffWorker, "")
		return false
	}
	if k == nil {
		s.refuse(o, "the kernel is nil", "")
		return false
	}
	if why := k.owner.closedBy.Load(); why != nil {
		panic(&UseError{Op: ops[o].name, Scope: k.owner.name, Ending: *why})
	}
	for i, a := range in {
		if a.use(s, o, i+1) == 0 {
			s.zeroInput(o, k.spec.Name, in...)
			return false
		}
	}
	if msg := l.check(&k.spec, len(in)); msg != "" {
		s.refuse(o, msg, k.spec.Name, in...)
		return false
	}
	return true
}

func (l *Launch) check(spec *KernelSpec, inputs int) string {
	if inputs != len(spec.Inputs) || len(l.Outputs) != len(spec.Outputs) {
		return fmt.Sprintf("%d inputs and %d outputs given, the kernel has %d and %d", inputs, len(l.Outputs), len(spec.Inputs), len(spec.Outputs))
	}
	for i, o := range l.Outputs {
		_, fit := pack(o.Shape)
		if _, ok := product(o.Shape); !ok || !fit || !o.Dtype.valid() {
			return fmt.Sprintf("output %d: an impossible shape or type", i)
		}
	}
	for i := range 3 {
		for _, n := range []*int{&l.Grid[i], &l.Group[i]} {
			if *n == 0 {
				*n = 1
			}
			if *n < 0 || !fits(*n) {
				return "Grid and Group must be positive"
			}
		}
	}
	if n := l.Group[0] * l.Group[1] * l.Group[2]; n > 1024 {
		return fmt.Sprintf("a Group of %d threads; GPUs take 1024", n)
	}
	for _, t := range l.Template {
		ok := isName(t.Name)
		switch v := t.Value.(type) {
		case int:
			ok = ok && fits(v)
		case bool:
		case Dtype:
			ok = ok && v.valid()
		default:
			ok = false
		}
		if !ok {
			return fmt.Sprintf("template argument %q: an int, a bool or a Dtype is needed", t.Name)
		}
	}
	return ""
}

// prove launches and, for the first launch of its kind, waits for the result.
func (k *Kernel) prove(s *Scope, in []Array, l Launch) ([]Array, error) {
	k.key = appendLaunch(k.key[:0], in, &l)
	if plan, ok := k.plans[string(k.key)]; ok { // was made for a launch that ran
		return k.apply(s, in, plan)
	}
	plan, err := k.plan(l)
	if err != nil {
		return nil, err
	}
	kept := false
	defer func() {
		if !kept {
			mlxc.FreeConfig(k.backend == "cuda", plan)
		}
	}()
	keep := func() {
		if len(k.plans) == mostPlans {
			k.forget()
		}
		k.plans[string(k.key)], kept = plan, true
	}
	kind := kindOf(in, l)
	if k.proven[kind] {
		keep()
		return k.apply(s, in, plan)
	}
	// An attempt that fails must leave no error in s.
	t := s.steps()
	defer t.close(closedByClose)
	out, err := k.apply(t, t.samples(in), plan)
	if err == nil {
		err = t.Eval(out...)
	}
	if err != nil {
		return nil, err
	}
	k.proven[kind] = true
	keep()
	if s.lib.core.tracing > 0 {
		return k.apply(s, in, plan)
	}
	for i, a := range out {
		out[i] = s.Move(a)
	}
	return out, nil
}

// samples is in or, in a trace, where that has no values, zeros of its kind.
func (s *Scope) samples(in []Array) []Array {
	if s.lib.core.tracing == 0 {
		return in
	}
	out := make([]Array, len(in))
	for i, a := range in {
		out[i] = s.Zeros(a.Dtype(), a.Shape()...)
	}
	return out
}

// kindOf is the same for launches that use the same compiled kernel.
func kindOf(in []Array, l Launch) string {
	var b strings.Builder
	for _, a := range in {
		fmt.Fprintf(&b, "%v%d ", a.Dtype(), a.NDim())
	}
	for _, o := range l.Outputs {
		fmt.Fprintf(&b, "%v ", o.Dtype)
	}
	fmt.Fprint(&b, l.Group, l.Template, l.Init != nil)
	return b.String()
}

// appendLaunch writes what tells a launch from others of its kernel: all of it,
// and the types and numbers of dimensions of the inputs. It runs in every call.
func appendLaunch(b []byte, in []Array, l *Launch) []byte {
	number := func(n int) { b = binary.AppendVarint(b, int64(n)) }
	for _, a := range in {
		i := mlxc.Describe(a.handle(opLaunch, 1))
		number(i.Dtype<<4 | len(i.Shape))
	}
	for _, o := range l.Outputs {
		number(int(o.Dtype)<<4 | len(o.Shape))
		for _, d := range o.Shape {
			number(d)
		}
	}
	for i := range 3 {
		number(l.Grid[i])
		number(l.Group[i])
	}
	for _, t := range l.Template {
		number(len(t.Name))
		b = append(b, t.Name...)
		switch v := t.Value.(type) {
		case int:
			number(v<<2 | mlxc.ArgInt)
		case bool:
			number(truth(v)<<2 | mlxc.ArgBool)
		case Dtype:
			number(int(v)<<2 | mlxc.ArgDtype)
		}
	}
	if l.Init != nil {
		number(int(math.Float32bits(*l.Init)))
	}
	return b
}

func truth(v bool) int {
	if v {
		return 1
	}
	return 0
}

// plan is MLX's description of a launch.
func (k *Kernel) plan(l Launch) (mlxc.Handle, error) {
	cuda := k.backend == "cuda"
	if k.h == 0 {
		src := k.spec.Metal
		if cuda {
			src = k.spec.CUDA
		}
		source, header := withoutPercent(src.Source), percentMacros+withoutPercent(src.Header)
		if cuda {
			source, header = included(source, header, k.spec.Inputs)
		}
		h := mlxc.Kernel(cuda, k.spec.function(cuda), k.spec.Inputs, k.spec.Outputs, source, header,
			!k.spec.Strided, k.spec.AtomicOutputs, k.spec.SharedMemory)
		if h <= mlxc.OffWorker {
			return 0, errors.New(cleanMessage(mlxc.LastError()))
		}
		k.h = h
	}
	grid, _ := pack(l.Grid[:])
	group, _ := pack(l.Group[:])
	c := mlxc.KernelConfig(cuda, grid, group)
	if c <= mlxc.OffWorker {
		return 0, errors.New(cleanMessage(mlxc.LastError()))
	}
	ok := true
	for _, o := range l.Outputs {
		shape, _ := pack(o.Shape)
		ok = ok && mlxc.ConfigOutput(cuda, c, shape, int(o.Dtype))
	}
	if l.Init != nil {
		ok = ok && mlxc.ConfigInit(cuda, c, *l.Init)
	}
	for _, t := range l.Template {
		switch v := t.Value.(type) {
		case int:
			ok = ok && mlxc.ConfigArg(cuda, c, t.Name, mlxc.ArgInt, v)
		case bool:
			ok = ok && mlxc.ConfigArg(cuda, c, t.Name, mlxc.ArgBool, truth(v))
		case Dtype:
			ok = ok && mlxc.ConfigArg(cuda, c, t.Name, mlxc.ArgDtype, int(v))
		}
	}
	if !ok {
		err := errors.New(cleanMessage(mlxc.LastError()))
		mlxc.FreeConfig(cuda, c)
		return 0, err
	}
	return c, nil
}

func (k *Kernel) apply(s *Scope, in []Array, plan mlxc.Handle) ([]Array, error) {
	list, _ := s.handles(opLaunch, in)
	out, status := mlxc.KernelApply(k.backend == "cuda", k.h, list, plan, s.stream)
	if status != mlxc.OK {
		return nil, errors.New(cleanMessage(mlxc.LastError()))
	}
	return s.took(opLaunch, out), nil
}

// fallback calls the operations and checks what they made.
func (k *Kernel) fallback(s *Scope, in []Array, l Launch) []Array {
	out := k.spec.Fallback(s, in, l)
	if s.Err() != nil {
		return nil
	}
	if len(out) != len(l.Outputs) {
		s.refuse(opLaunch, fmt.Sprintf("the fallback made %d arrays for %d outputs", len(out), len(l.Outputs)), k.spec.Name, in...)
		return nil
	}
	for i, a := range out {
		if want := l.Outputs[i]; !a.Valid() || a.Dtype() != want.Dtype || !slices.Equal(a.Shape(), want.Shape) {
			s.refuse(opLaunch, fmt.Sprintf("the fallback's output %d is %v, not %v%v", i, a.describe(), want.Dtype, want.Shape), k.spec.Name, in...)
			return nil
		}
	}
	return out
}

// SelfTest computes with the kernel and with the fallback and compares: an element
// may differ by tolerance, times the fallback's value where that is above 1. Where
// no kernel is in use there is nothing to compare and the fallback is only run. The
// comparison is made in Float32. The error, which also becomes the scope's, says where they differ; the kernel is then
// disabled.
func (k *Kernel) SelfTest(s *Scope, in []Array, l Launch, tolerance float64) error {
	if !k.ready(s, opSelfTest, in, &l) {
		return s.Err()
	}
	want := k.fallback(s, in, l)
	got := k.Call(s, in, l)
	if err := s.Err(); err != nil {
		return err
	}
	defer s.Free(want...)
	defer s.Free(got...)
	for i := range want {
		if err := s.compare(got[i], want[i], tolerance); err != nil {
			if s.Err() == nil {
				s.record(&OpError{Op: "Kernel.SelfTest", Inputs: describe(in), Args: k.spec.Name, Msg: fmt.Sprintf("output %d", i), Err: err})
			}
			if k.backend != "" {
				k.disable(err)
			}
			return s.Err()
		}
	}
	return nil
}

func (s *Scope) compare(got, want Array, tolerance float64) error {
	a, b := s.AsType(got, Float32), s.AsType(want, Float32)
	defer s.Free(a, b)
	x, err := ToSlice[float32](a)
	if err != nil {
		return err
	}
	y, err := ToSlice[float32](b)
	if err != nil {
		return err
	}
	for i := range y {
		g, w := float64(x[i]), float64(y[i])
		if g == w || math.IsNaN(g) && math.IsNaN(w) {
			continue
		}
		if !(math.Abs(g-w) <= tolerance*max(1, math.Abs(w))) {
			return fmt.Errorf("element %d of %v is %v, the fallback has %v", i, want.Shape(), g, w)
		}
	}
	return nil
}
