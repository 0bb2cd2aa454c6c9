package tokenizer

// A matcher finds added tokens in a text: the leftmost, and of those that start
// at one place the longest. It never goes back over a match, so a text takes at
// most its length times the longest token's in steps.
type matcher struct {
	begins [256]bool        // bytes that some token begins with
	next   map[uint64]int32 // node<<8 | byte → node; node 0 is the root
	ids    []int32          // by node: the token that ends there, or -1
}

func (m *matcher) add(content string, id int32) {
	if m.next == nil {
		m.next = make(map[uint64]int32)
		m.ids = []int32{-1}
	}
	m.begins[content[0]] = true
	node := int32(0)
	for i := 0; i < len(content); i++ {
		key := uint64(node)<<8 | uint64(content[i])
		child, ok := m.next[key]
		if !ok {
			child = int32(len(m.ids))
			m.ids = append(m.ids, -1)
			m.next[key] = child
		}
		node = child
	}
	m.ids[node] = id
}

func (m *matcher) empty() bool { return len(m.ids) == 0 }

// find gives the first added token of s at or after from. Without one, start and
// end are len(s) and id is -1.
func (m *matcher) find(s string, from int) (start, end int, id int32) {
	for start = from; start < len(s); start++ {
		if !m.begins[s[start]] {
			continue
		}
		id = -1
		node := int32(0)
		for i := start; i < len(s); i++ {
			child, ok := m.next[uint64(node)<<8|uint64(s[i])]
			if !ok {
				break
			}
			node = child
			if m.ids[node] >= 0 {
				id, end = m.ids[node], i+1
			}
		}
		if id >= 0 {
			return start, end, id
		}
	}
	return len(s), len(s), -1
}
