package openai

import (
	"context"
	"net/http"
	"sync"
)

// queue bounds what is under way. A request holds a place from its arrival, and
// a slot while it generates.
//
// When a slot is free, it goes to the client whose last turn is the longest
// ago, and among one client's requests to the one that came first: a client
// with many requests does not keep the others waiting.
type queue struct {
	mu      sync.Mutex
	free    int // slots
	slots   int
	places  int // left
	waiting []*waiter
	clients map[string]*client
	turn    uint64
}

// client is one that has places.
type client struct {
	places int
	last   uint64 // its last turn, 0 for none yet
}

type waiter struct {
	client string
	ready  chan struct{}
}

func newQueue(slots, waiting int) *queue {
	return &queue{free: slots, slots: slots, places: slots + waiting, clients: map[string]*client{}}
}

func (q *queue) status() (running, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.slots - q.free, len(q.waiting)
}

// enter takes a place, or says that there is none.
func (q *queue) enter(name string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.places == 0 {
		return &apiError{status: http.StatusTooManyRequests, code: "queue_full", message: "Too many requests are waiting; try again soon.", retry: 2}
	}
	q.places--
	c := q.clients[name]
	if c == nil {
		c = &client{}
		q.clients[name] = c
	}
	c.places++
	return nil
}

func (q *queue) leave(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.places++
	c := q.clients[name]
	if c.places--; c.places == 0 {
		delete(q.clients, name)
	}
}

// wait takes a slot when it is this request's turn. Its holder has a place.
func (q *queue) wait(ctx context.Context, name string) (release func(), err error) {
	w := &waiter{client: name, ready: make(chan struct{})}
	q.mu.Lock()
	q.waiting = append(q.waiting, w)
	q.serve()
	q.mu.Unlock()
	select {
	case <-w.ready:
		return q.release, nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, other := range q.waiting {
		if other == w {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			return nil, ctx.Err()
		}
	}
	q.free++ // the slot came at the same moment
	q.serve()
	return nil, ctx.Err()
}

func (q *queue) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free++
	q.serve()
}

// serve gives free slots away. The lock is held.
func (q *queue) serve() {
	for q.free > 0 && len(q.waiting) > 0 {
		next := 0
		for i, w := range q.waiting {
			if q.clients[w.client].last < q.clients[q.waiting[next].client].last {
				next = i
			}
		}
		w := q.waiting[next]
		q.waiting = append(q.waiting[:next], q.waiting[next+1:]...)
		q.turn++
		q.clients[w.client].last = q.turn
		q.free--
		close(w.ready)
	}
}
