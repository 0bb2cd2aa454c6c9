package grammar

import (
	"math/bits"
	"sync"
)

// Machine runs a form over a vocabulary. It may be used from any goroutine, and
// keeps what it has found out for the next text of the same form.
type Machine struct {
	net   *network
	vocab *Vocab
	start *State

	mu         sync.Mutex
	frames     map[frameKey]*frame
	frameCount uint32
	states     map[string]*State
	locals     map[place]*local
	weight     int // bytes kept, roughly
	walking    []*State
	scratch    []uint32
}

// mask is a state's tokens.
type mask struct {
	words []uint32 // nil for all
}

// local is what a place allows as far as its own rule goes.
type local struct {
	words []uint32 // or, where they are few,
	ids   []int32
	// leaving are the nodes of the trie whose text ends the rule; what is below
	// them depends on the stack.
	leaving []int32
}

// maxWeight bounds what a machine keeps. Beyond it all is forgotten, and found
// out again when it is needed.
const maxWeight = 32 << 20

// NewMachine runs a form over a vocabulary.
func NewMachine(f *Form, v *Vocab) *Machine {
	m := &Machine{net: f.net, vocab: v, walking: make([]*State, v.longest+1), scratch: make([]uint32, v.words)}
	m.forget()
	m.start = m.from(place{node: m.net.start})
	return m
}

func (m *Machine) forget() {
	m.frames, m.states, m.locals, m.weight = map[frameKey]*frame{}, map[string]*State{}, map[place]*local{}, 0
}

func (m *Machine) tidy() {
	if m.weight > maxWeight {
		m.forget()
	}
}

// Start is the state before the first token.
func (m *Machine) Start() *State { return m.start }

// Mask is the set of tokens that may come next, id i being bit i%32 of word
// i/32; nil if all may. It must not be changed.
func (m *Machine) Mask(s *State) []uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tidy()
	if s.mask == nil {
		s.mask = &mask{words: m.compute(s)}
		m.weight += 4 * len(s.mask.words)
	}
	return s.mask.words
}

func (m *Machine) compute(s *State) []uint32 {
	words := make([]uint32, m.vocab.words)
	for _, p := range s.places {
		l := m.local(p)
		for i, w := range l.words {
			words[i] |= w
		}
		for _, id := range l.ids {
			words[id/32] |= 1 << (id % 32)
		}
		if len(l.leaving) == 0 || p.stack == nil {
			continue
		}
		after := m.from(place{p.stack.ret, p.stack.count, p.stack.parent})
		if len(after.places) == 0 {
			continue
		}
		for _, at := range l.leaving {
			m.walk(at, after, words, nil)
		}
	}
	set := func(id int32) { words[id/32] |= 1 << (id % 32) }
	if tags := m.atTags(s); tags != nil {
		for _, id := range m.vocab.tags {
			if !m.read(tags, m.vocab.tokens[id].Bytes).dead() {
				set(id)
			}
		}
	}
	if s.free(m.net.nodes) {
		for _, id := range m.vocab.controls {
			set(id)
		}
	}
	if s.accept {
		for _, id := range m.vocab.ends {
			set(id)
		}
	}
	n := 0
	for _, w := range words {
		n += bits.OnesCount32(w)
	}
	if n == len(m.vocab.tokens) {
		return nil
	}
	return words
}

// local finds what a place allows, once for all places that no token can tell
// apart.
func (m *Machine) local(p place) *local {
	p = place{p.node, m.canonical(p), hole}
	if l, ok := m.locals[p]; ok {
		return l
	}
	l := &local{}
	clear(m.scratch)
	m.walk(0, m.from(p), m.scratch, &l.leaving)
	n := 0
	for _, w := range m.scratch {
		n += bits.OnesCount32(w)
	}
	if n > m.vocab.words {
		l.words = append([]uint32(nil), m.scratch...)
	} else {
		for i, w := range m.scratch {
			for ; w != 0; w &= w - 1 {
				l.ids = append(l.ids, int32(32*i+bits.TrailingZeros32(w)))
			}
		}
	}
	m.locals[p] = l
	m.weight += 100 + 4*(len(l.words)+len(l.ids)+len(l.leaving))
	return l
}

// canonical is the least counter that no token tells apart from the place's: a
// token counts at most as many steps as it has bytes.
func (m *Machine) canonical(p place) int32 {
	n, most := &m.net.nodes[p.node], int32(m.vocab.longest)+1
	switch {
	case n.max-most <= p.count: // the upper bound is near
		return p.count
	case p.count >= n.min:
		return n.min
	case p.count+most < n.min:
		return 0
	}
	return p.count
}

// walk sets the tokens below a node of the trie, in whose place s is, and
// collects where a rule is left.
func (m *Machine) walk(at int32, s *State, words []uint32, leaving *[]int32) {
	v := m.vocab
	m.walking[v.depth[at]] = s
	class := &m.net.class
	for i, end := at+1, v.after[at]; i < end; {
		from := m.walking[v.depth[i]-1]
		var t *State
		if from.next != nil {
			t = from.next[class[v.byteOf[i]]]
		}
		if t == nil {
			t = m.step(from, v.byteOf[i])
		}
		if t.dead() {
			i = v.after[i]
			continue
		}
		for _, id := range v.ids[v.first[i]:v.first[i+1]] {
			words[id/32] |= 1 << (id % 32)
		}
		if t.left && leaving != nil && v.after[i] > i+1 {
			*leaving = append(*leaving, i)
		}
		if len(t.places) == 0 {
			i = v.after[i]
			continue
		}
		m.walking[v.depth[i]] = t
		i++
	}
}

// atTags is the state with the places where tags may stand, nil without one.
func (m *Machine) atTags(s *State) *State {
	var at []place
	for _, p := range s.places {
		if m.net.nodes[p.node].kind != inValue {
			at = append(at, p)
		}
	}
	if at == nil {
		return nil
	}
	return m.from(at...)
}

func (m *Machine) read(s *State, text string) *State {
	for i := 0; i < len(text) && !s.dead(); i++ {
		s = m.step(s, text[i])
	}
	return s
}

// Advance is the state after a token, and false where the token may not come.
// After a token that ends the text, which may come where the state accepts, the
// state is the same.
func (m *Machine) Advance(s *State, id int) (*State, bool) {
	if id < 0 || id >= len(m.vocab.tokens) {
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tidy()
	switch t := m.vocab.tokens[id]; t.Kind {
	case End:
		return s, s.accept
	case Tag:
		if s = m.atTags(s); s == nil {
			return nil, false
		}
		s = m.read(s, t.Bytes)
	case Ordinary:
		s = m.read(s, t.Bytes)
	default:
		return s, s.free(m.net.nodes)
	}
	return s, !s.dead()
}

// Forced is the longest token along the way that the text must take from here,
// and false where there is a choice of bytes or the text may end.
func (m *Machine) Forced(s *State) (id int, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tidy()
	v := m.vocab
	for at := int32(0); ; {
		b, only := m.only(s)
		if !only {
			return id, ok
		}
		child := at + 1
		for child < v.after[at] && v.byteOf[child] != b {
			child = v.after[child]
		}
		if child >= v.after[at] {
			return id, ok
		}
		at, s = child, m.step(s, b)
		if v.first[at] < v.first[at+1] {
			id, ok = int(v.ids[v.first[at]]), true
		}
	}
}

// only is the one byte that may come next.
func (m *Machine) only(s *State) (b byte, ok bool) {
	if s.accept {
		return 0, false
	}
	for _, p := range s.places {
		for _, e := range m.net.nodes[p.node].edges {
			if e.lo != e.hi || ok && e.lo != b {
				return 0, false
			}
			b, ok = e.lo, true
		}
	}
	return b, ok
}
