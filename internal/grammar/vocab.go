package grammar

import (
	"slices"
	"strings"
)

// Token is what one id of a vocabulary stands for.
type Token struct {
	Bytes string
	Kind  TokenKind
}

// TokenKind says how a token may be used.
type TokenKind uint8

const (
	// Control tokens and rows that stand for nothing are no text.
	Control TokenKind = iota
	// Ordinary tokens are pieces of text.
	Ordinary
	// Tag tokens spell a tag such as <tool_call>; inside JSON they do not occur.
	Tag
	// End tokens end the text.
	End
)

// Vocab is a vocabulary as a trie of its tokens' bytes. It is read-only.
type Vocab struct {
	tokens []Token
	words  int // of a mask

	// The trie in preorder, node 0 the root.
	byteOf []byte
	depth  []uint16
	after  []int32 // the first node that is not below this one
	first  []int32 // into ids: those that end here, up to the next node's
	ids    []int32

	tags, controls, ends []int32
	longest              int
}

// NewVocab makes a vocabulary of size ids.
func NewVocab(size int, token func(id int) Token) *Vocab {
	v := &Vocab{tokens: make([]Token, size), words: (size + 31) / 32}
	var order []int32
	for id := range v.tokens {
		t := token(id)
		if t.Bytes == "" && t.Kind != End || len(t.Bytes) >= 1<<16 {
			t.Kind = Control
		}
		v.tokens[id] = t
		switch t.Kind {
		case Ordinary:
			order = append(order, int32(id))
			v.longest = max(v.longest, len(t.Bytes))
		case Tag:
			v.tags = append(v.tags, int32(id))
			v.longest = max(v.longest, len(t.Bytes))
		case End:
			v.ends = append(v.ends, int32(id))
		default:
			v.controls = append(v.controls, int32(id))
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int { return strings.Compare(v.tokens[a].Bytes, v.tokens[b].Bytes) })
	v.grow(0, 0)
	path := []int32{0}
	last := ""
	for _, id := range order {
		text := v.tokens[id].Bytes
		common := 0
		for common < len(last) && common < len(text) && last[common] == text[common] {
			common++
		}
		for len(path) > common+1 {
			v.after[path[len(path)-1]] = int32(len(v.byteOf))
			path = path[:len(path)-1]
		}
		for i := common; i < len(text); i++ {
			path = append(path, int32(len(v.byteOf)))
			v.grow(text[i], i+1)
		}
		v.ids = append(v.ids, id)
		last = text
	}
	for _, at := range path {
		v.after[at] = int32(len(v.byteOf))
	}
	v.first = append(v.first, int32(len(v.ids)))
	return v
}

func (v *Vocab) grow(b byte, depth int) {
	v.byteOf = append(v.byteOf, b)
	v.depth = append(v.depth, uint16(depth))
	v.after = append(v.after, 0)
	v.first = append(v.first, int32(len(v.ids)))
}
