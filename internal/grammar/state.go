package grammar

import (
	"encoding/binary"
	"slices"
)

// frame is a return address: where a rule's end leads, with the counter of the
// rule that called. Equal stacks are the same frame.
type frame struct {
	id     uint32
	ret    int32
	count  int32
	parent *frame
}

// place is a node with its rule's counter and its stack.
type place struct {
	node, count int32
	stack       *frame // nil at the bottom
}

// State is what the text so far allows. It does not change; two states of one
// Machine with the same places are the same, except after its memory was
// emptied.
type State struct {
	places []place // each with bytes to read, in order
	accept bool    // the text may end here
	left   bool    // a local state: the rule may end here
	next   []*State
	mask   *mask // nil until it is asked for
}

// Accepts says whether the text may end here.
func (s *State) Accepts() bool { return s.accept }

// free says whether the state is free text, where every token may come.
func (s *State) free(nodes []node) bool {
	for _, p := range s.places {
		if nodes[p.node].kind == inText {
			return true
		}
	}
	return false
}

// network is a compiled form: its nodes and the classes of bytes that no node
// tells apart.
type network struct {
	nodes  []node
	start  int32
	class  [256]uint8
	sample []byte // a byte of each class
}

func newNetwork(nodes []node, start int32) *network {
	g := &network{nodes: nodes, start: start}
	var cuts [257]bool
	cuts[0] = true
	for i := range nodes {
		for _, e := range nodes[i].edges {
			cuts[e.lo], cuts[int(e.hi)+1] = true, true
		}
	}
	for c := range 256 {
		if cuts[c] {
			g.sample = append(g.sample, byte(c))
		}
		g.class[c] = uint8(len(g.sample) - 1)
	}
	return g
}

// hole is the bottom of a local state's stack: what lies under a rule is not
// known there.
var hole = &frame{}

// closure collects the places that a set of them leads to without reading.
type closure struct {
	places       []place
	seen         map[place]struct{}
	accept, left bool
}

// maxPlaces bounds the ways in which one text can be read.
const maxPlaces = 1 << 13

func (m *Machine) reach(c *closure, p place) {
	if _, ok := c.seen[p]; ok || len(c.seen) > maxPlaces {
		return
	}
	c.seen[p] = struct{}{}
	n := &m.net.nodes[p.node]
	if len(n.edges) > 0 {
		c.places = append(c.places, p)
	}
	if n.final {
		switch p.stack {
		case nil:
			c.accept = true
		case hole:
			c.left = true
		default:
			m.reach(c, place{p.stack.ret, p.stack.count, p.stack.parent})
		}
	}
	for _, h := range n.hops {
		if p.count >= h.lo && p.count <= h.hi {
			to := place{h.to, p.count, p.stack}
			if h.step > p.count {
				to.count++
			}
			m.reach(c, to)
		}
	}
	if n.call != none {
		stack := p.stack
		if ret := &m.net.nodes[n.ret]; !ret.final || len(ret.edges)+len(ret.hops) > 0 || ret.call != none {
			stack = m.push(frame{ret: n.ret, count: p.count, parent: p.stack})
		}
		m.reach(c, place{n.call, 0, stack})
	}
}

type frameKey struct {
	ret, count int32
	parent     *frame
}

func (m *Machine) push(f frame) *frame {
	key := frameKey{f.ret, f.count, f.parent}
	if known, ok := m.frames[key]; ok {
		return known
	}
	m.frameCount++
	f.id = m.frameCount
	m.frames[key] = &f
	return &f
}

// intern gives the one state of a closure.
func (m *Machine) intern(c *closure) *State {
	slices.SortFunc(c.places, func(a, b place) int {
		if a.node != b.node {
			return int(a.node - b.node)
		}
		if a.count != b.count {
			return int(a.count - b.count)
		}
		return int(int64(a.stack.number()) - int64(b.stack.number()))
	})
	key := make([]byte, 1, 1+12*len(c.places))
	if c.accept {
		key[0] |= 1
	}
	if c.left {
		key[0] |= 2
	}
	for _, p := range c.places {
		key = binary.LittleEndian.AppendUint32(key, uint32(p.node))
		key = binary.LittleEndian.AppendUint32(key, uint32(p.count))
		key = binary.LittleEndian.AppendUint32(key, p.stack.number())
	}
	if s, ok := m.states[string(key)]; ok {
		return s
	}
	s := &State{places: c.places, accept: c.accept, left: c.left}
	m.states[string(key)] = s
	m.weight += 200 + 40*len(c.places) + len(key)
	return s
}

// number is 0 for the bottom, 1 for the hole.
func (f *frame) number() uint32 {
	switch f {
	case nil:
		return 0
	case hole:
		return 1
	}
	return f.id + 1
}

// from is the state of the places that p leads to.
func (m *Machine) from(ps ...place) *State {
	c := &closure{seen: map[place]struct{}{}}
	for _, p := range ps {
		m.reach(c, p)
	}
	return m.intern(c)
}

// step reads a byte. A state without places that does not accept and has not
// left its rule is dead.
func (m *Machine) step(s *State, b byte) *State {
	class := m.net.class[b]
	if s.next == nil {
		s.next = make([]*State, len(m.net.sample))
		m.weight += 8 * len(s.next)
	}
	if t := s.next[class]; t != nil {
		return t
	}
	c := &closure{seen: map[place]struct{}{}}
	sample := m.net.sample[class]
	for _, p := range s.places {
		for _, e := range m.net.nodes[p.node].edges {
			if sample < e.lo {
				break
			}
			if sample <= e.hi {
				m.reach(c, place{e.to, p.count, p.stack})
				break
			}
		}
	}
	t := m.intern(c)
	s.next[class] = t
	return t
}

func (s *State) dead() bool { return len(s.places) == 0 && !s.accept && !s.left }
