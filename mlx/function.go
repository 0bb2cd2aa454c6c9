package mlx

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/godflash/godflash/internal/mlxc"
)

// Func is a function of arrays that MLX can differentiate and compile. MLX calls
// it with stand-ins for its inputs, to see what it does with them. s is a scope
// for that one call: what the function makes there ends when it returns, only
// the results live on. Inputs belong to s.
//
// A function may use arrays of other scopes; for its derivatives they are
// constants. It must not keep what it is given, nor Eval it inside
// [Scope.Compile]. A panic in it, and the error of its scope, become the error of
// the operation that called it. It must not call runtime.Goexit, which
// testing's FailNow does: MLX's own frames lie below it and are left without
// their clean-up, which loses memory, though later calls work.
type Func func(s *Scope, in []Array) []Array

var (
	opVJP        = newOp("VJP", "mlx_vjp", "")
	opJVP        = newOp("JVP", "mlx_jvp", "")
	opGrad       = newOp("ValueAndGrad", "mlx_value_and_grad", "")
	opCheckpoint = newOp("Checkpoint", "mlx_checkpoint", "")
	opCustom     = newOp("Custom", "mlx_custom_function", "")
	opCustomVJP  = newOp("Rules.VJP", "mlx_custom_function", "")
	opCustomJVP  = newOp("Rules.JVP", "mlx_custom_function", "")
	opCompile    = newOp("Compile", "mlx_compile", "")
	opCompiled   = newOp("Compiled.Call", "mlx_closure_apply", "")
)

const closedByFunc = "the return of the function that made it"

// callback is f as MLX calls it. o is the operation that hands f over.
func (s *Scope) callback(o op, f func(t *Scope, in [3][]Array, argnums []int) []Array) mlxc.Callback {
	lib, stream, device := s.lib, s.stream, s.device
	return func(in [3][]mlxc.Handle, argnums []int32) (out []mlxc.Handle, ok bool) {
		c := lib.core
		t := &Scope{lib: lib, stream: stream, device: device, name: "function of " + ops[o].name, slots: c.takeSlots()}
		c.tracing++
		var err error
		defer func() {
			if v := recover(); v != nil {
				err = &PanicError{Value: v, Stack: debug.Stack()}
			}
			if err == nil {
				err = t.Err()
			}
			t.close(closedByFunc)
			c.tracing--
			ok = err == nil
			if !ok {
				mlxc.Free(out)
				out = nil
				if c.traceErr == nil {
					c.traceErr = err
				}
			}
		}()
		var arrays [3][]Array
		for i, list := range in {
			for _, h := range list {
				arrays[i] = append(arrays[i], t.put(o, h))
			}
		}
		numbers := make([]int, len(argnums))
		for i, n := range argnums {
			numbers[i] = int(n)
		}
		results := f(t, arrays, numbers)
		if len(results) == 0 && t.Err() == nil {
			err = errors.New("the function returned no arrays")
			return
		}
		for i, a := range results {
			if t.Err() != nil {
				break
			}
			h := a.use(t, o, i+1)
			if h == 0 {
				t.zeroInput(o, args1("result", i), results...)
				break
			}
			if h = mlxc.Ref(h); h <= mlxc.OffWorker {
				t.failed(o, h, args1("result", i), a)
				break
			}
			out = append(out, h)
		}
		return
	}
}

// closure makes MLX's object for f, 0 where that failed.
func (s *Scope) closure(o op, f Func) mlxc.Handle {
	return mlxc.Closure(mlxc.NewPayload(s.callback(o, func(t *Scope, in [3][]Array, _ []int) []Array { return f(t, in[0]) })))
}

// inputs is handles in memory of its own, for calls that come back to Go.
func (s *Scope) inputs(o op, arrays []Array) ([]mlxc.Handle, bool) {
	list, ok := s.handles(o, arrays)
	return slices.Clone(list), ok
}

// ready is begin for what takes functions.
func (s *Scope) ready(o op, f Func, in []Array) bool {
	if !s.begin(o) {
		return false
	}
	if !mlxc.OnWorker() {
		s.failed(o, mlxc.OffWorker, "")
		return false
	}
	if f == nil {
		s.refuse(o, "the function is nil", "", in...)
		return false
	}
	return true
}

// took makes arrays of results.
func (s *Scope) took(o op, list []mlxc.Handle) []Array {
	out := make([]Array, len(list))
	for i, h := range list {
		out[i] = s.put(o, h)
	}
	return out
}

// failedCall records the error of a call that may have come from a Go function.
func (s *Scope) failedCall(o op, args string, in []Array) {
	c := s.lib.core
	err := c.traceErr
	c.traceErr = nil
	if err == nil {
		s.failed(o, 0, args, in...)
		return
	}
	s.record(&OpError{Op: ops[o].name, Inputs: describe(in), Args: args, Msg: "in the function", Err: err})
}

// transform runs call on the closure of f.
func (s *Scope) transform(o op, f Func, in, with []Array, args string, call func(c mlxc.Handle, in, with []mlxc.Handle) (a, b []mlxc.Handle, status int)) (a, b []Array) {
	if !s.ready(o, f, in) {
		return nil, nil
	}
	all := slices.Concat(in, with)
	x, ok := s.inputs(o, all)
	if !ok {
		s.zeroInput(o, args, all...)
		return nil, nil
	}
	if len(in) == 0 {
		s.refuse(o, "no inputs given", args)
		return nil, nil
	}
	c := s.closure(o, f)
	if c <= mlxc.OffWorker {
		s.failed(o, c, args, all...)
		return nil, nil
	}
	defer mlxc.FreeClosure(c)
	ha, hb, status := call(c, x[:len(in)], x[len(in):])
	if status != mlxc.OK {
		s.failedCall(o, args, all) // first: the text is lost with the next call into C
		mlxc.Free(ha)
		mlxc.Free(hb)
		return nil, nil
	}
	return s.took(o, ha), s.took(o, hb)
}

// VJP gives the outputs of f at the primals, and for each primal the sum over the
// outputs of cotangent · d output / d primal: a vector-Jacobian product, which is
// how gradients run backwards. There must be one cotangent of each output's
// shape; grads have the shapes of the primals. (mlx_vjp)
func (s *Scope) VJP(f Func, primals, cotangents []Array) (outputs, grads []Array) {
	// MLX matches cotangents with outputs by their place and does not look at shapes.
	checked := func(t *Scope, in []Array) []Array {
		out := f(t, in)
		if msg := sameShapes(out, cotangents, "output", "cotangent"); msg != "" && t.Err() == nil {
			t.refuse(opVJP, msg, "")
		}
		return out
	}
	if f == nil {
		checked = nil
	}
	return s.transform(opVJP, checked, primals, cotangents, "", mlxc.VJP)
}

// JVP gives the outputs of f at the primals and, for each, the sum over the
// primals of d output / d primal · tangent: a Jacobian-vector product. There must
// be one tangent of each primal's shape. (mlx_jvp)
func (s *Scope) JVP(f Func, primals, tangents []Array) (outputs, outTangents []Array) {
	if s.ready(opJVP, f, primals) {
		for i, a := range append(slices.Clone(primals), tangents...) {
			if a.use(s, opJVP, i+1) == 0 {
				s.zeroInput(opJVP, "", slices.Concat(primals, tangents)...)
				return nil, nil
			}
		}
		if msg := sameShapes(primals, tangents, "primal", "tangent"); msg != "" {
			s.refuse(opJVP, msg, "", primals...)
			return nil, nil
		}
	}
	return s.transform(opJVP, f, primals, tangents, "", mlxc.JVP)
}

// sameShapes says how two lists differ, "" where they do not.
func sameShapes(a, b []Array, whatA, whatB string) string {
	if len(a) != len(b) {
		return fmt.Sprintf("%d %ss and %d %ss", len(a), whatA, len(b), whatB)
	}
	for i := range a {
		if a[i].Valid() && b[i].Valid() && !slices.Equal(a[i].Shape(), b[i].Shape()) {
			return fmt.Sprintf("%s %d has shape %v and its %s %v", whatA, i, a[i].Shape(), whatB, b[i].Shape())
		}
	}
	return ""
}

// ValueAndGrad gives the outputs of f and the gradients of the first one, which
// must be a scalar, by the inputs with the given numbers; none means input 0.
// Further outputs come along as they are. (mlx_value_and_grad)
func (s *Scope) ValueAndGrad(f Func, in []Array, argnums ...int) (values, grads []Array) {
	if len(argnums) == 0 {
		argnums = []int{0}
	}
	text := "argnums " + formatInts(argnums)
	// MLX takes each number once and answers in ascending order.
	sorted := slices.Compact(slices.Sorted(slices.Values(argnums)))
	if s.ready(opGrad, f, in) {
		if sorted[0] < 0 || sorted[len(sorted)-1] >= len(in) {
			s.refuse(opGrad, fmt.Sprintf("there are inputs 0 to %d", len(in)-1), text, in...)
			return nil, nil
		}
	}
	numbers := make([]int32, len(sorted))
	for i, n := range sorted {
		numbers[i] = int32(n)
	}
	values, g := s.transform(opGrad, f, in, nil, text, func(c mlxc.Handle, x, _ []mlxc.Handle) (a, b []mlxc.Handle, status int) {
		return mlxc.ValueAndGrad(c, numbers, x)
	})
	if values == nil {
		return nil, nil
	}
	seen := make([]bool, len(g))
	for _, n := range argnums {
		i, _ := slices.BinarySearch(sorted, n)
		a := g[i]
		if seen[i] {
			a = s.Ref(a)
		}
		seen[i] = true
		grads = append(grads, a)
	}
	return values, grads
}

// apply calls what wrap makes of the closure of f.
func (s *Scope) apply(o op, f Func, in []Array, wrap func(c mlxc.Handle) mlxc.Handle) []Array {
	out, _ := s.transform(o, f, in, nil, "", func(c mlxc.Handle, x, _ []mlxc.Handle) (a, b []mlxc.Handle, status int) {
		w := wrap(c)
		if w <= mlxc.OffWorker {
			return nil, nil, mlxc.Failed
		}
		defer mlxc.FreeClosure(w)
		a, status = mlxc.Apply(w, x)
		return a, nil, status
	})
	return out
}

// Checkpoint makes of f a function that keeps no intermediate results for its
// gradient: they are computed a second time there, which takes time and saves
// memory. (mlx_checkpoint)
func Checkpoint(f Func) Func {
	return func(s *Scope, in []Array) []Array { return s.apply(opCheckpoint, f, in, mlxc.Checkpoint) }
}

// Rules are derivatives of a function, for [Custom]. A rule that is nil is
// derived from the function.
type Rules struct {
	// VJP gives one gradient for each primal, of its shape. cotangents belong to the outputs.
	VJP func(s *Scope, primals, cotangents, outputs []Array) []Array
	// JVP gives one tangent for each output, of its shape. tangents belong to the primals argnums.
	JVP func(s *Scope, primals, tangents []Array, argnums []int) []Array
}

// Custom makes of f a function with derivatives of its own: for a custom kernel,
// or where the derived ones are inexact or dear. (mlx_custom_function)
func Custom(f Func, r Rules) Func {
	return func(s *Scope, in []Array) []Array {
		// MLX indexes into what the rules return without looking.
		var shapes [][]int
		forward := func(t *Scope, in []Array) []Array {
			out := f(t, in)
			shapes = shapes[:0]
			for _, a := range out {
				shapes = append(shapes, a.Shape())
			}
			return out
		}
		if f == nil {
			forward = nil
		}
		return s.apply(opCustom, forward, in, func(c mlxc.Handle) mlxc.Handle {
			var vjp, jvp mlxc.Payload
			if r.VJP != nil {
				vjp = mlxc.NewPayload(s.callback(opCustomVJP, func(t *Scope, in [3][]Array, _ []int) []Array {
					out := r.VJP(t, in[0], in[1], in[2])
					t.check(opCustomVJP, out, shapesOf(in[0]), "primal")
					return out
				}))
			}
			if r.JVP != nil {
				jvp = mlxc.NewPayload(s.callback(opCustomJVP, func(t *Scope, in [3][]Array, argnums []int) []Array {
					out := r.JVP(t, in[0], in[1], argnums)
					t.check(opCustomJVP, out, shapes, "output")
					return out
				}))
			}
			return mlxc.Custom(c, vjp, jvp)
		})
	}
}

func shapesOf(list []Array) [][]int {
	out := make([][]int, len(list))
	for i, a := range list {
		out[i] = a.Shape()
	}
	return out
}

// check refuses results of a rule that do not have the shapes of their counterparts.
func (s *Scope) check(o op, out []Array, shapes [][]int, what string) {
	if s.Err() != nil {
		return
	}
	if len(out) != len(shapes) {
		s.refuse(o, fmt.Sprintf("it returned %d arrays for %d %ss", len(out), len(shapes), what), "")
		return
	}
	for i, a := range out {
		if a.Valid() && !slices.Equal(a.Shape(), shapes[i]) {
			s.refuse(o, fmt.Sprintf("result %d has shape %v and its %s %v", i, a.Shape(), what, shapes[i]), "")
			return
		}
	}
}

// CompileOptions of [Scope.Compile].
type CompileOptions struct {
	// Shapeless: one graph serves all shapes. Otherwise f is traced again for each
	// new combination of shapes. Some operations cannot be shapeless; MLX says so.
	Shapeless bool
	// Unfused keeps every operation its own kernel, as outside of a compiled
	// function: the results then have the same bits, and nothing waits for MLX to
	// compile a fused kernel.
	Unfused bool
	// Relaunch is for functions that consist of custom kernels, and views of their
	// inputs and outputs. On CUDA, from the second call on, the inputs are evaluated
	// at the call and the kernels launched at once, which takes the host a fraction of
	// the time; other functions, and other devices, are not affected. All calls must
	// be for one combination of shapes and types. What the function uses from outside
	// must not change, and results are evaluated, or on their way, before the next call.
	// The memory that is kept for calls to come, RelaunchBytes, is up to eight times what
	// one needs, where so many callers hold results.
	Relaunch bool
}

// Compiled is a function whose graph MLX has recorded. It ends with the scope that made it.
type Compiled struct {
	owner *Scope
	f     Func
	opts  CompileOptions
	h     mlxc.Handle
	busy  int  // calls that run, for a function may call it again or end its scope
	stale bool // reset was asked for meanwhile

	again relaunches
}

// Compile makes a function that traces f once per combination of shapes and types
// and afterwards replays the graph, simplified and, on a GPU, with its elementwise
// parts fused into single kernels. On the CPU nothing is fused, for MLX would need
// a C++ compiler there at run time. f must have no effects but its results, and
// arrays it uses from outside are taken as they are at the first call. (mlx_compile)
func (s *Scope) Compile(f Func, o CompileOptions) *Compiled {
	c := &Compiled{owner: s, f: f, opts: o}
	if s.ready(opCompile, f, nil) {
		s.atEnd(c.reset)
	}
	return c
}

// setCompileMode is for closures that are traced from now on: the mode is MLX's,
// and one for the process.
func (c *core) setCompileMode(mode int) {
	if mode != c.compileMode && mlxc.CompileMode(mode) {
		c.compileMode = mode
	}
}

// reset drops MLX's side; a later Call makes it again.
func (c *Compiled) reset() {
	if c.busy > 0 {
		c.stale = true
		return
	}
	c.stale = false
	c.again.drop()
	if c.h != 0 {
		mlxc.FreeClosure(c.h)
		c.h = 0
	}
}

// Call runs the function; the results belong to s. (mlx_closure_apply)
func (c *Compiled) Call(s *Scope, in ...Array) []Array {
	if !s.ready(opCompiled, c.f, in) {
		return nil
	}
	if why := c.owner.closedBy.Load(); why != nil {
		panic(&UseError{Op: "Compiled.Call", Scope: c.owner.name, Ending: *why})
	}
	x, ok := s.inputs(opCompiled, in)
	if !ok {
		s.zeroInput(opCompiled, "", in...)
		return nil
	}
	if c.h == 0 {
		plain := c.owner.closure(opCompile, c.f)
		if plain <= mlxc.OffWorker {
			s.failed(opCompiled, plain, "", in...)
			return nil
		}
		c.h = mlxc.Compile(plain, c.opts.Shapeless)
		mlxc.FreeClosure(plain)
		if c.h <= mlxc.OffWorker {
			h := c.h
			c.h = 0
			s.failed(opCompiled, h, "", in...)
			return nil
		}
	}
	c.busy++
	defer func() {
		if c.busy--; c.stale {
			c.reset()
		}
	}()
	if c.opts.Relaunch {
		if out, ok := c.relaunch(s, x, in); ok {
			return out
		}
	}
	out, status := c.apply(s, x)
	if status != mlxc.OK {
		s.failedCall(opCompiled, "", in)
		return nil
	}
	return s.took(opCompiled, out)
}

// apply has MLX copy the recorded graph.
func (c *Compiled) apply(s *Scope, in []mlxc.Handle) ([]mlxc.Handle, int) {
	mode := s.lib.core.compileMode
	if c.opts.Unfused && s.lib.device == DeviceGPU {
		s.lib.core.setCompileMode(min(mode, mlxc.CompileNoFuse))
	}
	defer s.lib.core.setCompileMode(mode)
	return mlxc.Apply(c.h, in)
}
