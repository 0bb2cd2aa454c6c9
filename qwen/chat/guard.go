package chat

import (
	"fmt"
	"runtime"

	"github.com/ardanlabs/jinja"
)

const (
	maxSteps  = 1 << 20  // loop passes of one rendering
	callSteps = 16       // what a macro call counts, as its check takes longer
	maxFrames = 4096     // frames of the Go stack; a macro call takes about 15
	maxRange  = 100_000  // items of one range, the limit of Jinja2's sandbox
	maxOutput = 64 << 20 // bytes of rendered text

	// Names that no template and no caller uses: see checkName.
	stepName = "__chat_step"
	callName = "__chat_call"
	voidName = "__chat_void"
)

// guard counts what one rendering does and ends it when that is too much. The
// engine itself has no such limit, and a macro that calls itself for ever would
// end the process: Go cannot recover from a stack that is full.
type guard struct {
	steps int
	err   error
}

func (g *guard) install(data map[string]jinja.Value) {
	data[stepName] = jinja.NewCallable(stepName, g.step)
	data[callName] = jinja.NewCallable(callName, g.call)
	data["range"] = jinja.NewCallable("range", g.makeRange)
	data["raise_exception"] = jinja.NewCallable("raise_exception", g.raise)
}

// stop keeps the first error, whatever the engine makes of it on the way.
func (g *guard) stop(err error) (jinja.Value, error) {
	if g.err == nil {
		g.err = err
	}
	return jinja.Undefined(), g.err
}

// step stands in the body of a loop.
func (g *guard) step([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
	return g.count(1)
}

// call stands in a body that can come to run inside itself.
func (g *guard) call([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
	var frame [1]uintptr
	if runtime.Callers(maxFrames, frame[:]) > 0 {
		return g.stop(fmt.Errorf("%w: macros or loops nest too deep", ErrLimit))
	}
	return g.count(callSteps)
}

func (g *guard) count(steps int) (jinja.Value, error) {
	g.steps += steps
	if g.steps > maxSteps {
		return g.stop(fmt.Errorf("%w: more than %d loop passes or %d macro calls", ErrLimit, maxSteps, maxSteps/callSteps))
	}
	return jinja.None(), nil
}

func (g *guard) raise(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	message := ""
	switch {
	case len(args) == 0:
	case args[0].IsString():
		message = args[0].AsString()
	default:
		message = args[0].String()
	}
	return g.stop(&TemplateError{Message: message})
}

// makeRange is Python's range as a list.
func (g *guard) makeRange(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) == 0 || len(args) > 3 {
		return jinja.Undefined(), fmt.Errorf("range takes one to three numbers, not %d", len(args))
	}
	bounds := [3]int64{0, 0, 1}
	for i, arg := range args {
		if !arg.IsInt() {
			return jinja.Undefined(), fmt.Errorf("range takes whole numbers, not %s", arg)
		}
		bounds[i] = arg.AsInt()
	}
	if len(args) == 1 {
		bounds = [3]int64{0, bounds[0], 1}
	}
	start, end, by := bounds[0], bounds[1], bounds[2]
	if by == 0 {
		return jinja.Undefined(), fmt.Errorf("range by steps of zero")
	}
	var items []jinja.Value
	for n := start; by > 0 && n < end || by < 0 && n > end; n += by {
		if len(items) == maxRange {
			return g.stop(fmt.Errorf("%w: a range of more than %d numbers", ErrLimit, maxRange))
		}
		items = append(items, jinja.NewInt(n))
		if next := n + by; (next > n) != (by > 0) {
			break // past the largest number
		}
	}
	return jinja.NewList(items), nil
}

// recovered makes a panic of the engine an error.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("the template engine failed: %v", r)
	}
}
