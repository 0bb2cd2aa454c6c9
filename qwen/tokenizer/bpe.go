package tokenizer

import (
	"slices"
	"sync"
	"sync/atomic"
)

// bpe is byte pair encoding over the byte-level alphabet. It does not change
// after load but for whole, whose entries are settled at first use.
type bpe struct {
	bytes  [256]int32       // id of each single byte
	pieces map[string]int32 // raw bytes → id, for tokens written in the alphabet
	merges map[pair]merge
	// longest is the length in bytes of the longest token.
	longest int
	// ignoreMerges: a piece found whole in the vocabulary is taken as it is.
	ignoreMerges bool
	// whole says by id whether merging a token's own bytes gives that token
	// back: wholeYes, wholeNo, or 0 while nobody has asked. Some vocabularies
	// hold tokens that their merges do not reach, and then merging wins.
	whole []atomic.Uint32

	mergers sync.Pool // of *merger
}

const (
	wholeYes = 1
	wholeNo  = 2
)

type pair struct{ left, right int32 }

type merge struct {
	rank uint32
	id   int32
}

// reaches says whether merging can end at an id.
func (b *bpe) reaches(id int32) bool {
	if slices.Contains(b.bytes[:], id) {
		return true
	}
	for _, m := range b.merges {
		if m.id == id {
			return true
		}
	}
	return false
}

// append appends the ids of one piece of the pre-tokenizer.
func (b *bpe) append(ids []int, piece string, m *merger) []int {
	if len(piece) <= b.longest {
		if id, ok := b.pieces[piece]; ok {
			switch {
			case b.ignoreMerges || b.whole[id].Load() == wholeYes:
				return append(ids, int(id))
			case b.whole[id].Load() == 0:
				before := len(ids)
				ids = m.append(ids, b, piece)
				if len(ids) == before+1 && ids[before] == int(id) {
					b.whole[id].Store(wholeYes)
				} else {
					b.whole[id].Store(wholeNo)
				}
				return ids
			}
		}
	}
	return m.append(ids, b, piece)
}

// A symbol is a token of a piece that is being merged; symbols are a linked list
// over a slice, and a symbol merged into its left neighbour has id -1.
type symbol struct {
	id         int32
	prev, next int32 // indices, -1 at the ends
}

// A candidate is a merge that was possible when it was queued. It is stale when
// one of its two symbols has changed since.
type candidate struct {
	key  uint64 // rank, then position: the order of merging
	pair pair
	id   int32 // the merged token
}

// A merger holds the working memory of merging one piece.
type merger struct {
	symbols []symbol
	queue   []candidate // binary heap, smallest key first
	pushes  int         // candidates queued for the latest piece
}

// append merges piece, lowest rank first and leftmost first within a rank, and
// appends the resulting ids. Every merge removes a symbol and queues at most two
// candidates, so at most 3·len(piece) candidates are ever queued.
func (m *merger) append(ids []int, b *bpe, piece string) []int {
	n := len(piece)
	if n == 1 {
		return append(ids, int(b.bytes[piece[0]]))
	}
	m.symbols, m.queue, m.pushes = m.symbols[:0], m.queue[:0], 0
	for i := range n {
		m.symbols = append(m.symbols, symbol{b.bytes[piece[i]], int32(i - 1), int32(i + 1)})
	}
	m.symbols[n-1].next = -1
	for i := range n - 1 {
		m.propose(b, int32(i))
	}
	for len(m.queue) > 0 {
		c := m.pop()
		at := int32(uint32(c.key))
		left := &m.symbols[at]
		if left.id != c.pair.left || left.next < 0 {
			continue
		}
		right := &m.symbols[left.next]
		if right.id != c.pair.right {
			continue
		}
		left.id = c.id
		right.id = -1
		left.next = right.next
		if left.next >= 0 {
			m.symbols[left.next].prev = at
			m.propose(b, at)
		}
		if left.prev >= 0 {
			m.propose(b, left.prev)
		}
	}
	for i := int32(0); i >= 0; i = m.symbols[i].next {
		ids = append(ids, int(m.symbols[i].id))
	}
	return ids
}

// propose queues the merge of the symbol at an index with its right neighbour.
func (m *merger) propose(b *bpe, at int32) {
	left := m.symbols[at]
	p := pair{left.id, m.symbols[left.next].id}
	rule, ok := b.merges[p]
	if !ok {
		return
	}
	m.pushes++
	m.queue = append(m.queue, candidate{uint64(rule.rank)<<32 | uint64(uint32(at)), p, rule.id})
	for i := len(m.queue) - 1; i > 0; {
		parent := (i - 1) / 2
		if m.queue[parent].key <= m.queue[i].key {
			break
		}
		m.queue[parent], m.queue[i] = m.queue[i], m.queue[parent]
		i = parent
	}
}

func (m *merger) pop() candidate {
	top := m.queue[0]
	last := len(m.queue) - 1
	m.queue[0] = m.queue[last]
	m.queue = m.queue[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && m.queue[child+1].key < m.queue[child].key {
			child++
		}
		if m.queue[i].key <= m.queue[child].key {
			break
		}
		m.queue[i], m.queue[child] = m.queue[child], m.queue[i]
		i = child
	}
	return top
}

// keptSymbols bounds the working memory that waits in the pool: one long piece
// must not pin its megabytes for ever.
const keptSymbols = 1 << 14

func (b *bpe) merger() *merger {
	if m, ok := b.mergers.Get().(*merger); ok {
		return m
	}
	return new(merger)
}

func (b *bpe) release(m *merger) {
	if cap(m.symbols) <= keptSymbols && cap(m.queue) <= keptSymbols {
		b.mergers.Put(m)
	}
}
