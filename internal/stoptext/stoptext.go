// Package stoptext finds the texts that end a generation in a text that comes
// in pieces (Aho and Corasick, 1975). Time is linear in the text, and nothing is
// held back longer than it may still become part of a stop text.
package stoptext

// A Set is some stop texts, ready to be looked for.
type Set struct {
	texts []string
	nodes []node // a trie; nodes[0] is the root
}

type node struct {
	child, sibling int32 // 0 for none
	fail           int32 // the node of the longest proper suffix
	ends           int32 // the longest text that ends here, or -1
	text, depth    int32 // the node is texts[text][:depth]
	letter         byte
}

// New makes a set of texts, none of them empty.
func New(texts []string) *Set {
	s := &Set{texts: texts, nodes: []node{{ends: -1}}}
	for i, text := range texts {
		at := int32(0)
		for depth := range len(text) {
			next := s.child(at, text[depth])
			if next == 0 {
				next = int32(len(s.nodes))
				s.nodes = append(s.nodes, node{sibling: s.nodes[at].child, ends: -1, text: int32(i), depth: int32(depth + 1), letter: text[depth]})
				s.nodes[at].child = next
			}
			at = next
		}
		if s.nodes[at].ends < 0 {
			s.nodes[at].ends = int32(i)
		}
	}
	// Breadth first, so that the shorter suffixes are linked already.
	queue := []int32{0}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for c := s.nodes[at].child; c != 0; c = s.nodes[c].sibling {
			if at != 0 {
				s.nodes[c].fail = s.next(s.nodes[at].fail, s.nodes[c].letter)
			}
			if s.nodes[c].ends < 0 {
				s.nodes[c].ends = s.nodes[s.nodes[c].fail].ends
			}
			queue = append(queue, c)
		}
	}
	return s
}

func (s *Set) child(at int32, letter byte) int32 {
	c := s.nodes[at].child
	for c != 0 && s.nodes[c].letter != letter {
		c = s.nodes[c].sibling
	}
	return c
}

// next is the longest suffix of the node's text and letter that begins a stop
// text.
func (s *Set) next(at int32, letter byte) int32 {
	for {
		if c := s.child(at, letter); c != 0 || at == 0 {
			return c
		}
		at = s.nodes[at].fail
	}
}

// A Matcher looks for a set's texts in one text. Its copy goes on by itself, so
// that a text can be tried. The zero value finds nothing.
type Matcher struct {
	set  *Set
	node int32
}

// Matcher begins a text. A nil set finds nothing.
func (s *Set) Matcher() Matcher { return Matcher{set: s} }

// Push takes the next piece and gives what is certain not to belong to a stop
// text. If one is complete it gives its index, and all that comes before it;
// else stop is -1. The first to be complete counts, of those that end at one
// place the longest. The text has then ended.
//
// Pieces of whole characters give pieces of whole characters where the stop
// texts are valid UTF-8.
func (m *Matcher) Push(piece string) (out string, stop int) {
	if m.set == nil {
		return piece, -1
	}
	held := m.held()
	for i := range len(piece) {
		m.node = m.set.next(m.node, piece[i])
		if end := m.set.nodes[m.node].ends; end >= 0 {
			m.node = 0
			return part(held, piece, len(held)+i+1-len(m.set.texts[end])), int(end)
		}
	}
	return part(held, piece, len(held)+len(piece)-len(m.held())), -1
}

// Flush ends the text and gives what was held back.
func (m *Matcher) Flush() string {
	held := m.held()
	m.node = 0
	return held
}

// held is what may still become a stop text. It needs no memory of its own: it
// is the beginning of one.
func (m *Matcher) held() string {
	if m.set == nil {
		return ""
	}
	n := m.set.nodes[m.node]
	return m.set.texts[n.text][:n.depth]
}

// part is the first n bytes of a and b together.
func part(a, b string, n int) string {
	if n <= len(a) {
		return a[:n]
	}
	return a + b[:n-len(a)]
}
