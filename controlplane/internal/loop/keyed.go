package loop

import (
	"context"
	"sync"
	"time"
)

// Keyed is a queue of keys with workers. A key that is queued is queued once. A key is never worked on twice at the same
// time: if it is added meanwhile, it is worked on once more afterwards. Make it with NewKeyed.
type Keyed[K comparable] struct {
	workers int
	do      func(context.Context, K) time.Duration

	mu     sync.Mutex
	ready  *sync.Cond
	queue  []K
	keys   map[K]*key
	closed bool
}

type key struct {
	queued, busy, dirty bool
	timer               *time.Timer // a delayed Add; at most one, the earliest
	due                 time.Time
}

// NewKeyed makes a queue whose keys are handled by do, with so many workers. What do returns is when the key is looked at
// again by itself; zero means never. It starts nothing: see Run.
func NewKeyed[K comparable](workers int, do func(context.Context, K) time.Duration) *Keyed[K] {
	q := &Keyed[K]{workers: workers, do: do, keys: map[K]*key{}}
	q.ready = sync.NewCond(&q.mu)
	return q
}

// Add queues k for now. It never blocks.
func (q *Keyed[K]) Add(k K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(k)
}

func (q *Keyed[K]) add(k K) {
	if q.closed {
		return
	}
	e := q.entry(k)
	switch {
	case e.busy:
		e.dirty = true
	case !e.queued:
		e.queued = true
		q.queue = append(q.queue, k)
		q.ready.Signal()
	}
}

// AddAfter queues k in d. Of several delays the earliest counts; work on k forgets them.
func (q *Keyed[K]) AddAfter(k K, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addAfter(k, d)
}

func (q *Keyed[K]) addAfter(k K, d time.Duration) {
	if d <= 0 {
		q.add(k)
		return
	}
	if q.closed {
		return
	}
	e, due := q.entry(k), time.Now().Add(d)
	if e.timer != nil {
		if !due.Before(e.due) {
			return
		}
		e.timer.Stop()
	}
	e.due = due
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if e.timer != timer { // replaced or forgotten since
			return
		}
		e.timer = nil
		q.add(k)
	})
	e.timer = timer
}

func (q *Keyed[K]) entry(k K) *key {
	e := q.keys[k]
	if e == nil {
		e = &key{}
		q.keys[k] = e
	}
	return e
}

// Len counts the keys that are queued, delayed or at work.
func (q *Keyed[K]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.keys)
}

// Run works until ctx is done and the last worker has returned. What is still queued then is dropped.
func (q *Keyed[K]) Run(ctx context.Context) error {
	var working sync.WaitGroup
	for range q.workers {
		working.Go(func() {
			for q.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	q.close()
	working.Wait()
	return nil
}

// next handles one key; it returns false when the queue is closed.
func (q *Keyed[K]) next(ctx context.Context) bool {
	k, e, ok := q.take()
	if !ok {
		return false
	}
	again := q.do(ctx, k)
	q.mu.Lock()
	defer q.mu.Unlock()
	e.busy = false
	switch {
	case e.dirty:
		e.dirty = false
		q.add(k)
	case again > 0:
		q.addAfter(k, again)
	case e.timer == nil:
		delete(q.keys, k)
	}
	return true
}

func (q *Keyed[K]) take() (K, *key, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.queue) == 0 && !q.closed {
		q.ready.Wait()
	}
	if q.closed {
		var none K
		return none, nil, false
	}
	k := q.queue[0]
	q.queue = q.queue[1:]
	e := q.keys[k]
	e.queued, e.busy = false, true
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
	return k, e, true
}

func (q *Keyed[K]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, e := range q.keys {
		if e.timer != nil {
			e.timer.Stop()
			e.timer = nil
		}
	}
	q.queue = nil
	q.ready.Broadcast()
}
