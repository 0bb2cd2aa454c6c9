package mlx

import "github.com/godflash/godflash/internal/mlxc"

// Operations with more arguments than the classes of op.go go through call: it
// takes the arrays in the order of the C parameters, of which the first must are
// mandatory, and the rest of the arguments in g. text describes these for errors.
func (s *Scope) call(o op, g *mlxc.Args, must int, text func() string, in ...Array) Array {
	if !s.begin(o) {
		return Array{}
	}
	for i, a := range in {
		g.H[i] = a.use(s, o, i+1)
		if g.H[i] == 0 && i < must {
			return s.zeroInput(o, say(text), in...)
		}
	}
	h := mlxc.Call(fns[o], kinds[o], g, s.stream)
	if h <= mlxc.OffWorker {
		return s.failed(o, h, say(text), in...)
	}
	return s.put(o, h)
}

// callMany is call for functions of several results, at most limit. It is nil on error.
func (s *Scope) callMany(o op, g *mlxc.Args, must, limit int, text func() string, in ...Array) []Array {
	if !s.begin(o) {
		return nil
	}
	for i, a := range in {
		g.H[i] = a.use(s, o, i+1)
		if g.H[i] == 0 && i < must {
			s.zeroInput(o, say(text), in...)
			return nil
		}
	}
	out := s.room(limit)
	n := mlxc.CallMany(fns[o], kinds[o], g, nil, out, s.stream)
	return s.results(o, out, n, text, in)
}

// callVector is callMany for functions whose arrays are one list.
func (s *Scope) callVector(o op, g *mlxc.Args, text func() string, in []Array) []Array {
	if !s.begin(o) {
		return nil
	}
	list, ok := s.handles(o, in)
	if !ok {
		s.zeroInput(o, say(text), in...)
		return nil
	}
	if len(list) == 0 {
		s.refuse(o, "no arrays given", say(text))
		return nil
	}
	out := make([]mlxc.Handle, len(list)) // the worker's list is in use
	n := mlxc.CallMany(fns[o], kinds[o], g, list, out, s.stream)
	return s.results(o, out, n, text, in)
}

func (s *Scope) results(o op, out []mlxc.Handle, n int, text func() string, in []Array) []Array {
	switch n {
	case mlxc.OffThread:
		s.failed(o, mlxc.OffWorker, say(text))
		return nil
	case mlxc.Failed:
		s.failed(o, 0, say(text), in...)
		return nil
	}
	parts := make([]Array, n)
	for i := range parts {
		parts[i] = s.put(o, out[i])
	}
	return parts
}

// indices puts the arrays of a vector parameter into g; false when the scope failed over them.
func (s *Scope) indices(o op, g *mlxc.Args, text func() string, list []Array) bool {
	if !s.begin(o) {
		return false
	}
	if len(list) > len(g.V) {
		s.refuse(o, limitText, say(text), list...)
		return false
	}
	for i, a := range list {
		if g.V[i] = a.use(s, o, i+1); g.V[i] == 0 {
			s.zeroInput(o, say(text), list...)
			return false
		}
	}
	g.N = int32(len(list))
	return true
}

func say(text func() string) string {
	if text == nil {
		return ""
	}
	return text()
}

// stop records an error found in the arguments; it is silent on a scope that
// failed before.
func (s *Scope) stop(o op, msg string, text func() string, in ...Array) Array {
	if !s.begin(o) {
		return Array{}
	}
	if !mlxc.OnWorker() {
		return s.failed(o, mlxc.OffWorker, say(text))
	}
	return s.refuse(o, msg, say(text), in...)
}

// peek is the array's shape and type without a copy, for checks before a call; false for the
// zero Array and outside Library.Do, which the call itself then reports.
func (a Array) peek(s *Scope, o op, input int) (mlxc.Info, bool) {
	h := a.use(s, o, input)
	if h == 0 {
		return mlxc.Info{}, false
	}
	i := mlxc.Describe(h)
	return i, i.Status == mlxc.OK
}
