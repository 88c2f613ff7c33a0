package store

import (
	"sync"
	"time"
)

// wholeEvery is how often a claim looks at everything that is ready, whatever is remembered.
const wholeEvery = time.Second

// ahead remembers per queue where the ready lanes begin. An index keeps an entry of each lane that was ready once until no
// snapshot can see it, and such entries stand before those that are ready: under a long transaction each claim would walk
// through all of them. What is remembered can only cost order for wholeEvery: a claim that finds too little, hears of
// something that it cannot place, or comes after that time, looks at everything.
type ahead struct {
	mu     sync.Mutex
	queues map[string]*aheadOf
}

type aheadOf struct {
	whole time.Time            // of this process's clock: a wake-up, not a decision
	least map[string]time.Time // rank of the first ready lane by namespace; nil: look at everything
	heard map[string]time.Time // least ranks of lanes that became ready since
	turn  int                  // counts what makes the looks under way worthless

	lineage string // of the database that liveFrom is about
	// liveFrom: no live Attempt of the queue has a smaller id. Exact: claims of one queue follow each other, and so do the
	// ids that they draw.
	liveFrom int64
}

func (a *ahead) of(queue string) *aheadOf {
	q := a.queues[queue]
	if q == nil {
		if a.queues == nil {
			a.queues = map[string]*aheadOf{}
		}
		q = &aheadOf{}
		a.queues[queue] = q
	}
	return q
}

// begin says where a look begins in each namespace; nil: everywhere, from the first on.
func (a *ahead) begin(queue string, whole bool) (least map[string]time.Time, turn int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.of(queue)
	if !whole && q.least != nil && time.Since(q.whole) < wholeEvery {
		least = make(map[string]time.Time, len(q.least))
		for namespace, rank := range q.least {
			least[namespace] = rank
		}
		return least, q.turn
	}
	q.turn++
	q.whole, q.least, q.heard = time.Now(), nil, map[string]time.Time{}
	return nil, q.turn
}

// end keeps what a look has found, unless something has made it worthless.
func (a *ahead) end(queue string, turn int, found map[string]time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.of(queue)
	if q.turn != turn || found == nil {
		return
	}
	q.least = found
	for namespace, rank := range q.heard {
		lower(q.least, namespace, rank)
	}
}

// hear takes what a transaction of this replica made ready.
func (a *ahead) hear(e effects) {
	a.mu.Lock()
	defer a.mu.Unlock()
	placed := map[string]bool{}
	for _, r := range e.ready {
		placed[r.queue] = true
		q := a.queues[r.queue]
		if q == nil || r.rank.IsZero() {
			continue
		}
		if q.heard != nil {
			lower(q.heard, r.namespace, r.rank)
		}
		if q.least != nil {
			lower(q.least, r.namespace, r.rank)
		}
	}
	for _, name := range e.queues {
		if q := a.queues[name]; q != nil && !placed[name] {
			q.least, q.turn = nil, q.turn+1
		}
	}
}

func lower(ranks map[string]time.Time, namespace string, rank time.Time) {
	if was, there := ranks[namespace]; !there || rank.Before(was) {
		ranks[namespace] = rank
	}
}

// live gives liveFrom, and the lineage of the database that it is about.
func (a *ahead) live(queue string) (from int64, lineage string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.of(queue)
	return q.liveFrom, q.lineage
}

// raise keeps a later liveFrom, or the first one of another database.
func (a *ahead) raise(queue, lineage string, from int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.of(queue)
	if q.lineage != lineage {
		q.lineage, q.liveFrom = lineage, 0
	}
	q.liveFrom = max(q.liveFrom, from)
}

// readyLane is a lane that a transaction made ready; without a rank it is only known that none was.
type readyLane struct {
	queue, namespace string
	rank             time.Time
}
