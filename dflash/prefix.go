package dflash

import (
	"sync"

	"github.com/godflash/godflash/mlx"
)

// prefixCache keeps the state of texts that sessions of an engine have run, for
// other sessions whose text begins alike. It is a radix tree over token ids: an
// edge holds copies of the rows of its tokens, target's and drafter's, and,
// where a recurrent target may be taken up again, the states at its end. What
// two texts share is there once. Arrays are never written to.
//
// The tree lives on the library's thread. A nil cache finds and learns nothing.
type prefixCache struct {
	owner *mlx.Scope
	root  prefixNode
	clock uint64

	mu    sync.Mutex // guards stats, which any goroutine may read
	stats CacheStats
}

// CacheStats describe the engine's cache of prefixes.
type CacheStats struct {
	// Entries is the number of pieces of text, Tokens that of their tokens.
	Entries, Tokens int
	// Bytes is the memory of their arrays, at most Limit.
	Bytes, Limit int64
	// Hits counts generations that took up a text of another session or turn from
	// here, Misses those that looked and did not; going on from what the session
	// itself holds is neither.
	Hits, Misses int
	// Evicted counts entries that made room for newer ones.
	Evicted int
}

type prefixNode struct {
	parent   *prefixNode
	children []*prefixNode
	start    int // position of ids[0]
	ids      []int
	rows     []mlx.Array // TargetCache.Rows of the ids
	draft    []mlx.Array // DraftContext.rows of the ids, nil for none
	states   []mlx.Array // TargetCache.States after the ids, nil for none
	bytes    int64
	used     uint64
}

func (n *prefixNode) end() int { return n.start + len(n.ids) }

func newPrefixCache(lib *mlx.Library, limit int64) *prefixCache {
	return &prefixCache{owner: lib.NewScope("prefix cache"), stats: CacheStats{Limit: limit}}
}

func (c *prefixCache) close() error {
	if c == nil {
		return nil
	}
	return c.owner.Close()
}

func (c *prefixCache) snapshot() CacheStats {
	if c == nil {
		return CacheStats{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

func (c *prefixCache) count(f func(st *CacheStats)) {
	c.mu.Lock()
	f(&c.stats)
	c.mu.Unlock()
}

// walk follows ids down the tree: the nodes on the way and the number of ids
// that they share, which may end inside the last of them.
func (c *prefixCache) walk(ids []int) (path []*prefixNode, shared int) {
	node := &c.root
	for shared < len(ids) {
		next := node.child(ids[shared])
		if next == nil {
			break
		}
		path = append(path, next)
		k := common(next.ids, ids[shared:])
		shared += k
		if k < len(next.ids) {
			break
		}
		node = next
	}
	return path, shared
}

func (n *prefixNode) child(id int) *prefixNode {
	for _, c := range n.children {
		if c.ids[0] == id {
			return c
		}
	}
	return nil
}

// prefixHit is a text that the cache can give back.
type prefixHit struct {
	at   int
	path []*prefixNode // the last one perhaps in part
}

// find looks for the longest beginning of ids of more than least tokens.
func (c *prefixCache) find(d *Decoder, ids []int, drafting bool, least int) (prefixHit, bool) {
	if c == nil || len(ids) <= least {
		return prefixHit{}, false
	}
	c.clock++
	path, shared := c.walk(ids)
	if drafting {
		for i, n := range path {
			if n.draft == nil {
				path, shared = path[:i], min(shared, n.start)
				break
			}
		}
	}
	for ; len(path) > 0; path = path[:len(path)-1] {
		last := path[len(path)-1]
		at := min(shared, last.end())
		if at <= least {
			break
		}
		if d.info.Recurrent && (at < last.end() || last.states == nil) || drafting && !reachesDraft(d.context, path, at) {
			continue
		}
		for _, n := range path {
			n.used = c.clock
		}
		c.count(func(st *CacheStats) { st.Hits++ })
		return prefixHit{at, path}, true
	}
	c.count(func(st *CacheStats) { st.Misses++ })
	return prefixHit{}, false
}

// reachesDraft says whether the nodes hold the rows that the drafter needs from
// position at on.
func reachesDraft(context *DraftContext, path []*prefixNode, at int) bool {
	for i := range context.kv {
		missing := at - context.needs(i, at)
		for p := len(path) - 1; p >= 0 && missing > 0; p-- {
			n := path[p]
			have, end := heldRows(n.draft[2*i]), min(at, n.end())
			lost := len(n.ids) - have // rows at the node's beginning that a window dropped
			missing -= max(0, end-n.start-lost)
			if lost > 0 {
				break
			}
		}
		if missing > 0 {
			return false
		}
	}
	return true
}

func heldRows(keys mlx.Array) int {
	if !keys.Valid() {
		return 0
	}
	return keys.Dim(2)
}

// load makes d's sequence what find found, which is a beginning of ids.
func (c *prefixCache) load(s *mlx.Scope, d *Decoder, ids []int, hit prefixHit, drafting bool) error {
	d.empty()
	var parts, draft [][]mlx.Array
	for _, n := range hit.path {
		k := min(hit.at-n.start, len(n.ids))
		parts = append(parts, cutRows(s, n.rows, len(n.ids), 0, k))
		if drafting {
			draft = append(draft, cutRows(s, n.draft, len(n.ids), 0, k))
		}
	}
	states := hit.path[len(hit.path)-1].states
	if !d.info.Recurrent {
		states = nil
	}
	if err := d.cache.Restore(s, hit.at, parts, states); err != nil {
		return err
	}
	if drafting {
		if err := d.context.restore(s, hit.at, draft); err != nil {
			return err
		}
	}
	d.past.rows = append(d.past.rows, ids[:hit.at]...)
	d.addPoint()
	return s.Eval(d.state()...)
}

// cutRows gives the rows from to to of arrays that hold the last ones of n rows.
func cutRows(s *mlx.Scope, rows []mlx.Array, n, from, to int) []mlx.Array {
	if from == 0 && to == n {
		return rows
	}
	out := make([]mlx.Array, len(rows))
	for i, a := range rows {
		lost := n - heldRows(a)
		if low, high := max(0, from-lost), to-lost; high > low {
			out[i] = s.Contiguous(s.SliceAxis(a, 2, low, high))
		}
	}
	return out
}

// learn keeps the sequence of d as far as p, which is where it is or a position
// that it can go back to.
func (c *prefixCache) learn(s *mlx.Scope, d *Decoder, p point) error {
	if c == nil || p.at == 0 {
		return nil
	}
	c.clock++
	states := p.states
	if d.info.Recurrent && p.at == len(d.past.rows) {
		states = d.cache.States(s)
	}
	drafts := d.context != nil && d.context.Len() >= p.at && d.context.reaches(p.at)
	ids := d.past.rows[:p.at]
	path, shared := c.walk(ids)
	for _, n := range path {
		n.used = c.clock
	}
	if k := len(path); k > 0 && shared < path[k-1].end() && (shared < p.at || d.info.Recurrent) {
		top, err := c.split(s, path[k-1], shared)
		if err != nil {
			return err
		}
		path[k-1] = top
	}
	if drafts {
		for _, n := range path {
			if n.draft == nil && n.end() <= p.at {
				if err := c.give(s, n, &n.draft, d.context.rows(s, n.start, n.end())); err != nil {
					return err
				}
			}
		}
	}
	parent := &c.root
	if len(path) > 0 {
		parent = path[len(path)-1]
	}
	if shared == p.at {
		if d.info.Recurrent && parent.states == nil {
			return c.give(s, parent, &parent.states, refs(s, states))
		}
		return nil
	}
	return c.grow(s, d, parent, ids[shared:], states, drafts)
}

// grow adds the ids that follow parent.
func (c *prefixCache) grow(s *mlx.Scope, d *Decoder, parent *prefixNode, ids []int, states []mlx.Array, drafts bool) error {
	n := &prefixNode{parent: parent, start: parent.end(), ids: append([]int(nil), ids...), used: c.clock}
	n.rows = d.cache.Rows(s, n.start, n.end())
	if drafts {
		n.draft = d.context.rows(s, n.start, n.end())
	}
	if d.info.Recurrent {
		n.states = refs(s, states)
	}
	if err := s.Err(); err != nil {
		return err
	}
	n.bytes = int64(8*len(ids)) + sizeOf(n.rows) + sizeOf(n.draft) + sizeOf(n.states)
	if !c.makeRoom(n.bytes) {
		return nil
	}
	for _, list := range [][]mlx.Array{n.rows, n.draft, n.states} {
		if err := c.adopt(s, list); err != nil {
			return err
		}
	}
	parent.children = append(parent.children, n)
	c.count(func(st *CacheStats) {
		st.Entries++
		st.Tokens += len(ids)
		st.Bytes += n.bytes
	})
	return nil
}

// give adds arrays to a node where there is room.
func (c *prefixCache) give(s *mlx.Scope, n *prefixNode, to *[]mlx.Array, arrays []mlx.Array) error {
	if err := s.Err(); err != nil {
		return err
	}
	bytes := sizeOf(arrays)
	if !c.makeRoom(bytes) {
		return nil
	}
	if err := c.adopt(s, arrays); err != nil {
		return err
	}
	*to = arrays
	n.bytes += bytes
	c.count(func(st *CacheStats) { st.Bytes += bytes })
	return nil
}

// adopt computes arrays and takes them over.
func (c *prefixCache) adopt(s *mlx.Scope, arrays []mlx.Array) error {
	var valid []mlx.Array
	for _, a := range arrays {
		if a.Valid() {
			valid = append(valid, a)
		}
	}
	if len(valid) == 0 {
		return s.Err()
	}
	if err := s.Eval(valid...); err != nil {
		return err
	}
	for i := range arrays {
		arrays[i] = c.owner.Move(arrays[i])
	}
	return c.owner.Err()
}

// split cuts a node in two after position at and returns the first part.
func (c *prefixCache) split(s *mlx.Scope, n *prefixNode, at int) (*prefixNode, error) {
	k := at - n.start
	top := &prefixNode{parent: n.parent, start: n.start, ids: n.ids[:k:k], used: n.used}
	top.rows = cutRows(s, n.rows, len(n.ids), 0, k)
	rows := cutRows(s, n.rows, len(n.ids), k, len(n.ids))
	var draft []mlx.Array
	if n.draft != nil {
		top.draft, draft = cutRows(s, n.draft, len(n.ids), 0, k), cutRows(s, n.draft, len(n.ids), k, len(n.ids))
	}
	for _, list := range [][]mlx.Array{top.rows, rows, top.draft, draft} {
		if err := c.adopt(s, list); err != nil {
			return nil, err
		}
	}
	c.owner.Free(n.rows...)
	c.owner.Free(n.draft...)
	n.rows, n.draft, n.ids, n.start = rows, draft, n.ids[k:], at
	top.bytes = int64(8*k) + sizeOf(top.rows) + sizeOf(top.draft)
	n.bytes -= top.bytes
	for i, child := range n.parent.children {
		if child == n {
			n.parent.children[i] = top
		}
	}
	top.children, n.parent = []*prefixNode{n}, top
	c.count(func(st *CacheStats) { st.Entries++ })
	return top, nil
}

// makeRoom drops the leaves that were used longest ago until bytes more fit,
// but none that this turn of the clock uses.
func (c *prefixCache) makeRoom(bytes int64) bool {
	if bytes > c.stats.Limit {
		return false
	}
	for c.stats.Bytes+bytes > c.stats.Limit {
		oldest := c.root.oldestLeaf(c.clock)
		if oldest == nil {
			return false
		}
		c.drop(oldest)
	}
	return true
}

// oldestLeaf is the leaf below n that was used longest ago, before now.
func (n *prefixNode) oldestLeaf(now uint64) *prefixNode {
	var oldest *prefixNode
	for _, child := range n.children {
		leaf := child
		if len(child.children) > 0 {
			leaf = child.oldestLeaf(now)
		}
		if leaf != nil && leaf.used < now && (oldest == nil || leaf.used < oldest.used) {
			oldest = leaf
		}
	}
	return oldest
}

func (c *prefixCache) drop(n *prefixNode) {
	for i, child := range n.parent.children {
		if child == n {
			n.parent.children = append(n.parent.children[:i], n.parent.children[i+1:]...)
			break
		}
	}
	for _, list := range [][]mlx.Array{n.rows, n.draft, n.states} {
		c.owner.Free(list...)
	}
	c.count(func(st *CacheStats) {
		st.Entries--
		st.Tokens -= len(n.ids)
		st.Bytes -= n.bytes
		st.Evicted++
	})
}

func sizeOf(arrays []mlx.Array) int64 {
	var n int64
	for _, a := range arrays {
		if a.Valid() {
			n += int64(a.NBytes())
		}
	}
	return n
}
