package grammar

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unicode/utf8"
)

// dfa is an automaton over the bytes of a string's inside, state 0 the first.
// Every state leads to a final one. No states mean that nothing fits.
type dfa struct {
	states []dstate
}

type dstate struct {
	edges []edge
	final bool
}

// Limits of automata. The states of one may be exponential in its pattern.
const (
	maxNFA      = 1 << 17
	maxDFA      = 1 << 14
	maxDFAWork  = 1 << 23
	maxRepeat   = 4096
	maxPatterns = 16
)

// nfa is an automaton with several states at once; it is built from its end to
// its start, as the network is.
type nfa struct {
	hops  [][]int32
	edges [][]edge
	err   error
}

func (a *nfa) add(edges []edge, hops ...int32) int32 {
	if len(a.edges) >= maxNFA {
		if a.err == nil {
			a.err = fmt.Errorf("it is too large")
		}
		return 0
	}
	a.edges, a.hops = append(a.edges, edges), append(a.hops, hops)
	return int32(len(a.edges) - 1)
}

// Ends of the ranges in which all characters have the same length and none must
// be escaped in a string.
var runeBounds = []rune{'"' - 1, '\\' - 1, 0x7f, 0x7ff, 0xd7ff, 0xffff, utf8.MaxRune}

// runes reads one character of the ordered ranges, as a JSON string holds it.
func (a *nfa) runes(set []runeRange, next int32) int32 {
	var hops []int32
	for _, r := range set {
		for r.lo <= r.hi {
			if r.lo >= 0xd800 && r.lo <= 0xdfff {
				r.lo = 0xe000
				continue
			}
			if s := escape(r.lo); len(s) > 1 && s[0] == '\\' {
				at := next
				for i := len(s) - 1; i >= 0; i-- {
					at = a.add([]edge{{s[i], s[i], at}})
				}
				hops = append(hops, at)
				r.lo++
				continue
			}
			i := slices.IndexFunc(runeBounds, func(end rune) bool { return end >= r.lo })
			hi := min(r.hi, runeBounds[i])
			hops = a.sequences(r.lo, hi, next, hops)
			r.lo = hi + 1
		}
	}
	if len(hops) == 1 {
		return hops[0]
	}
	return a.add(nil, hops...)
}

// sequences adds the UTF-8 forms of lo to hi, which have the same length: the
// range is cut until each of its bytes has a range of its own.
func (a *nfa) sequences(lo, hi rune, next int32, hops []int32) []int32 {
	size := utf8.RuneLen(lo)
	for k := 1; k < size; k++ {
		block := rune(1)<<(6*k) - 1
		switch {
		case lo&^block == hi&^block:
		case lo&block != 0:
			hops = a.sequences(lo, lo|block, next, hops)
			return a.sequences(lo|block+1, hi, next, hops)
		case hi&block != block:
			hops = a.sequences(lo, hi&^block-1, next, hops)
			return a.sequences(hi&^block, hi, next, hops)
		}
	}
	from, to := make([]byte, size), make([]byte, size)
	utf8.EncodeRune(from, lo)
	utf8.EncodeRune(to, hi)
	for i := size - 1; i >= 0; i-- {
		next = a.add([]edge{{from[i], to[i], next}})
	}
	return append(hops, next)
}

// determine makes the automaton that starts at start and accepts at node 0.
func (a *nfa) determine(start int32) (*dfa, error) {
	if a.err != nil {
		return nil, a.err
	}
	d := &dfa{}
	known := map[string]int32{}
	var sets [][]int32
	work := 0
	mark := make([]int, len(a.edges)) // the closure that a node was last put in
	closures := 0
	add := func(from []int32) int32 {
		closures++
		var set []int32
		stack := slices.Clone(from)
		for len(stack) > 0 {
			at := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if mark[at] == closures {
				continue
			}
			mark[at] = closures
			if at == 0 || len(a.edges[at]) > 0 {
				set = append(set, at)
			}
			stack = append(stack, a.hops[at]...)
			work++
		}
		slices.Sort(set)
		key := make([]byte, 0, 4*len(set))
		for _, at := range set {
			key = binary.LittleEndian.AppendUint32(key, uint32(at))
		}
		id, ok := known[string(key)]
		if !ok {
			id = int32(len(sets))
			known[string(key)] = id
			sets = append(sets, set)
			d.states = append(d.states, dstate{final: len(set) > 0 && set[0] == 0})
		}
		return id
	}
	add([]int32{start})
	for i := 0; i < len(sets); i++ {
		if len(sets) > maxDFA || work > maxDFAWork {
			return nil, fmt.Errorf("it is too complex: more than %d states", maxDFA)
		}
		var cuts [257]bool
		for _, at := range sets[i] {
			for _, e := range a.edges[at] {
				cuts[e.lo], cuts[int(e.hi)+1] = true, true
			}
		}
		lo := -1
		for c := 0; c <= 256; c++ {
			if !cuts[c] {
				continue
			}
			if lo >= 0 {
				var to []int32
				for _, at := range sets[i] {
					for _, e := range a.edges[at] {
						if int(e.lo) <= lo && lo <= int(e.hi) {
							to = append(to, e.to)
						}
					}
					work++
				}
				if len(to) > 0 {
					d.states[i].edges = addEdge(d.states[i].edges, edge{byte(lo), byte(c - 1), add(to)})
				}
			}
			lo = c
		}
	}
	return d.trim(), nil
}

// both is the automaton of what d and e accept.
func (d *dfa) both(e *dfa) (*dfa, error) {
	out := &dfa{}
	if len(d.states) == 0 || len(e.states) == 0 {
		return out, nil
	}
	known := map[[2]int32]int32{}
	var pairs [][2]int32
	add := func(p [2]int32) int32 {
		id, ok := known[p]
		if !ok {
			id = int32(len(pairs))
			known[p] = id
			pairs = append(pairs, p)
			out.states = append(out.states, dstate{final: d.states[p[0]].final && e.states[p[1]].final})
		}
		return id
	}
	add([2]int32{})
	for i := 0; i < len(pairs); i++ {
		if len(pairs) > 4*maxDFA {
			return nil, fmt.Errorf("together they are too complex: more than %d states", 4*maxDFA)
		}
		for _, x := range d.states[pairs[i][0]].edges {
			for _, y := range e.states[pairs[i][1]].edges {
				if lo, hi := max(x.lo, y.lo), min(x.hi, y.hi); lo <= hi {
					out.states[i].edges = append(out.states[i].edges, edge{lo, hi, add([2]int32{x.to, y.to})})
				}
			}
		}
	}
	return out.trim(), nil
}

// trim takes out the states that lead to no final one.
func (d *dfa) trim() *dfa {
	from := make([][]int32, len(d.states))
	live := make([]bool, len(d.states))
	var list []int32
	for i, s := range d.states {
		for _, e := range s.edges {
			from[e.to] = append(from[e.to], int32(i))
		}
		if s.final {
			live[i] = true
			list = append(list, int32(i))
		}
	}
	for len(list) > 0 {
		at := list[len(list)-1]
		list = list[:len(list)-1]
		for _, i := range from[at] {
			if !live[i] {
				live[i] = true
				list = append(list, i)
			}
		}
	}
	if len(d.states) == 0 || !live[0] {
		return &dfa{}
	}
	index := make([]int32, len(d.states))
	out := &dfa{}
	for i := range d.states {
		if live[i] {
			index[i] = int32(len(out.states))
			out.states = append(out.states, d.states[i])
		}
	}
	for i := range out.states {
		s := &out.states[i]
		kept := s.edges[:0:0]
		for _, e := range s.edges {
			if live[e.to] {
				kept = append(kept, edge{e.lo, e.hi, index[e.to]})
			}
		}
		s.edges = kept
	}
	return out
}
