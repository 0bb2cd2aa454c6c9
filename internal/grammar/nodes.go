package grammar

import (
	"fmt"
	"math"
)

// node is a place in the network: what may be read there and where it leads.
type node struct {
	edges []edge // ordered, their ranges apart
	hops  []hop  // without reading
	// call runs the nodes from call on until a final one, then goes on at ret.
	call, ret int32 // call is none without one
	final     bool  // the rule may end here
	kind      nodeKind
	// Bounds of the rule's counter that its hops look at, for the classes of
	// State.
	min, max int32
}

// edge reads a byte from lo to hi.
type edge struct {
	lo, hi byte
	to     int32
}

// hop is open while the rule's counter lies from lo to hi.
type hop struct {
	to, lo, hi int32
	// step counts one more, up to the given number: beyond it nothing differs.
	step int32
}

// nodeKind says what tokens other than plain text mean at a node.
type nodeKind uint8

const (
	// inValue is inside JSON: no added token is meant there.
	inValue nodeKind = iota
	// atTag is where a tag such as <tool_call> may stand, also as one token.
	atTag
	// inText is free text: every token may come.
	inText
)

const (
	none      = int32(-1)
	unbounded = int32(math.MaxInt32)
)

// maxNodes bounds a network. A node takes some 100 bytes.
const maxNodes = 1 << 19

// builder makes a network from its end to its start: each method takes the node
// that follows and gives the one to enter.
type builder struct {
	nodes []node
	err   error

	end    int32 // final, with nothing after it
	spaces int32 // a rule, none before it is needed
}

func newBuilder() *builder {
	b := &builder{spaces: none}
	b.end = b.add(node{final: true})
	return b
}

func (b *builder) add(n node) int32 {
	if n.call == 0 {
		n.call = none // node 0 is the end, which nobody calls
	}
	if len(b.nodes) >= maxNodes {
		b.fail(fmt.Errorf("%w: it is too large: more than %d states", ErrUnsupported, maxNodes))
		return 0
	}
	b.nodes = append(b.nodes, n)
	return int32(len(b.nodes) - 1)
}

func (b *builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// literal reads s.
func (b *builder) literal(s string, next int32) int32 {
	for i := len(s) - 1; i >= 0; i-- {
		next = b.add(node{edges: []edge{{s[i], s[i], next}}})
	}
	return next
}

// either goes on at any of the nodes.
func (b *builder) either(to ...int32) int32 {
	n := node{}
	for _, t := range to {
		n.hops = append(n.hops, always(t))
	}
	return b.add(n)
}

func always(to int32) hop { return hop{to: to, hi: unbounded} }

// then runs a rule and goes on at next.
func (b *builder) then(rule, next int32) int32 {
	return b.add(node{call: rule, ret: next})
}

// nothing is a node that leads nowhere.
func (b *builder) nothing() int32 { return b.add(node{}) }

// maxIndent bounds the blanks after a line end.
const maxIndent = 40

// space reads what may stand between JSON's tokens: nothing, one blank, or a
// line end and some indentation. Models can go on with blanks for ever, so
// there is a bound.
func (b *builder) space(next int32) int32 {
	if b.spaces == none {
		at := b.end
		for range maxIndent {
			at = b.add(node{final: true, edges: []edge{{'\t', '\t', at}, {' ', ' ', at}}})
		}
		b.spaces = b.add(node{final: true, edges: []edge{{'\n', '\n', at}, {' ', ' ', b.end}}})
	}
	return b.then(b.spaces, next)
}

// words reads one of the texts and goes on at next.
func (b *builder) words(texts []string, next int32) int32 {
	root := &word{}
	for _, text := range texts {
		at := root
		for j := 0; j < len(text); j++ {
			if at.next[text[j]] == nil {
				if at.next == nil {
					at.next = map[byte]*word{}
				}
				at.next[text[j]] = &word{}
			}
			at = at.next[text[j]]
		}
		at.ends = true
	}
	return b.wordNode(root, next)
}

type word struct {
	next map[byte]*word
	ends bool // a text ends here
}

func (b *builder) wordNode(w *word, to int32) int32 {
	if len(w.next) == 0 {
		if !w.ends {
			return b.nothing()
		}
		return to
	}
	n := node{}
	if w.ends {
		n.hops = []hop{always(to)}
	}
	for c := range 256 {
		if next := w.next[byte(c)]; next != nil {
			n.edges = append(n.edges, edge{byte(c), byte(c), b.wordNode(next, to)})
		}
	}
	return b.add(n)
}

// dfa runs an automaton and goes on at next from each of its final states.
func (b *builder) dfa(d *dfa, next int32) int32 {
	if len(d.states) == 0 {
		return b.nothing()
	}
	first := int32(len(b.nodes))
	for _, s := range d.states {
		n := node{}
		for _, e := range s.edges {
			n.edges = append(n.edges, edge{e.lo, e.hi, first + e.to})
		}
		if s.final {
			n.hops = []hop{always(next)}
		}
		b.add(n)
	}
	return first
}

// until reads any text up to and including the first tag.
func (b *builder) until(tag string, kind nodeKind, ends bool, next int32) int32 {
	first := int32(len(b.nodes))
	for i := range len(tag) {
		n := node{kind: kind, final: ends}
		to := func(c byte) int32 {
			// The longest beginning of the tag that the text then ends with.
			read := tag[:i] + string([]byte{c})
			for k := min(len(tag), len(read)); k > 0; k-- {
				if read[len(read)-k:] == tag[:k] {
					if k == len(tag) {
						return next
					}
					return first + int32(k)
				}
			}
			return first
		}
		for c := range 256 {
			n.edges = addEdge(n.edges, edge{byte(c), byte(c), to(byte(c))})
		}
		b.add(n)
	}
	return first
}

// addEdge adds an edge after all others, and joins the two where it can.
func addEdge(edges []edge, e edge) []edge {
	if k := len(edges) - 1; k >= 0 && edges[k].to == e.to && edges[k].hi+1 == e.lo {
		edges[k].hi = e.hi
		return edges
	}
	return append(edges, e)
}

// tag reads a tag, spelled or as one token.
func (b *builder) tag(tag string, next int32) int32 {
	at := b.literal(tag, next)
	if b.err == nil {
		b.nodes[at].kind = atTag
	}
	return at
}

// trim takes out what leads to nodes from which no text can be completed, so
// that there are no dead ends, and says from which nodes something can.
func (b *builder) trim() []bool {
	live := make([]bool, len(b.nodes))
	needed := make([][]int32, len(b.nodes)) // by node: those that it may bring to life
	var list []int32
	for i := range b.nodes {
		n := &b.nodes[i]
		for _, e := range n.edges {
			needed[e.to] = append(needed[e.to], int32(i))
		}
		for _, h := range n.hops {
			needed[h.to] = append(needed[h.to], int32(i))
		}
		if n.call != none {
			needed[n.call] = append(needed[n.call], int32(i))
			needed[n.ret] = append(needed[n.ret], int32(i))
		}
		if n.final {
			list = append(list, int32(i))
			live[i] = true
		}
	}
	for len(list) > 0 {
		at := list[len(list)-1]
		list = list[:len(list)-1]
		for _, i := range needed[at] {
			n := &b.nodes[i]
			if live[i] || n.call != none && (!live[n.call] || !live[n.ret]) && !leads(n, at) {
				continue
			}
			live[i] = true
			list = append(list, i)
		}
	}
	for i := range b.nodes {
		n := &b.nodes[i]
		edges := n.edges[:0:0]
		for _, e := range n.edges {
			if live[e.to] {
				edges = append(edges, e)
			}
		}
		n.edges = edges // hops to nodes without edges lead nowhere by themselves
		if n.call != none && (!live[n.call] || !live[n.ret]) {
			n.call = none
		}
	}
	return live
}

// leads says whether a node reaches at without its call.
func leads(n *node, at int32) bool {
	for _, e := range n.edges {
		if e.to == at {
			return true
		}
	}
	for _, h := range n.hops {
		if h.to == at {
			return true
		}
	}
	return false
}
