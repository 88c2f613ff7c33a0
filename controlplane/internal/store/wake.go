package store

import (
	"context"
	"encoding/json"
	"sync"
)

// wakes say that something may be worth a look; they carry no facts, may be doubled, and polling finds what they
// miss. A committer never waits for them: what is not taken yet is kept once per key.
type wakes struct {
	queues   *wakeSet[string]
	attempts *wakeSet[int64]
	nudges   *wakeSet[struct{}]
	ended    *wakeSet[int64] // of this replica alone
	planned  *wakeSet[struct{}]
	outbox   *outbox
}

func newWakes() wakes {
	return wakes{
		queues: newWakeSet[string](), attempts: newWakeSet[int64](), nudges: newWakeSet[struct{}](), ended: newWakeSet[int64](), planned: newWakeSet[struct{}](),
		outbox: &outbox{signal: make(chan struct{}, 1)},
	}
}

// QueueWakes names queues in which something may be claimable. One consumer; delivered while Run runs.
func (s *Store) QueueWakes() <-chan string { return s.wakes.queues.out }

// AttemptWakes names Attempts that are worth a look: stopped, reported, ended. One consumer; delivered while Run runs.
func (s *Store) AttemptWakes() <-chan int64 { return s.wakes.attempts.out }

// NudgeWakes says that Settle may find something. One consumer; delivered while Run runs.
func (s *Store) NudgeWakes() <-chan struct{} { return s.wakes.nudges.out }

// Ended names, by their keys, Tasks that name objects and that this replica has ended without an Attempt. Unlike wakes
// nothing finds what is lost. One consumer; delivered while Run runs.
func (s *Store) Ended() <-chan int64 { return s.wakes.ended.out }

// ScheduleWakes says that a schedule was made, changed or is due sooner. One consumer; delivered while Run runs.
func (s *Store) ScheduleWakes() <-chan struct{} { return s.wakes.planned.out }

// effects are the wake-ups that a transaction causes; they are sent after its commit.
type effects struct {
	queues   []string
	ready    []readyLane // of those queues; told here alone
	attempts []int64
	nudged   bool
	ended    []int64 // keys of Tasks; told here alone
	planned  bool    // the firing of schedules has to look
}

// add takes over what another part of the same transaction causes.
func (e *effects) add(o effects) {
	e.queues, e.ready, e.attempts = append(e.queues, o.queues...), append(e.ready, o.ready...), append(e.attempts, o.attempts...)
	e.nudged, e.ended, e.planned = e.nudged || o.nudged, append(e.ended, o.ended...), e.planned || o.planned
}

// announce wakes this replica at once and the others with the next notification.
func (s *Store) announce(e effects) {
	s.ahead.hear(e)
	s.deliver(e)
	s.wakes.outbox.add(e)
}

func (s *Store) deliver(e effects) {
	for _, q := range e.queues {
		s.wakes.queues.add(q)
	}
	for _, a := range e.attempts {
		s.wakes.attempts.add(a)
		s.beats.wake(a)
	}
	for _, key := range e.ended {
		s.wakes.ended.add(key)
	}
	if e.nudged {
		s.wakes.nudges.add(struct{}{})
	}
	if e.planned {
		s.wakes.planned.add(struct{}{})
	}
}

// raise sets a signal; one that is set already stays so.
func raise(signal chan<- struct{}) {
	select {
	case signal <- struct{}{}:
	default:
	}
}

// wakeSet keeps keys, each once, until the consumer takes them.
type wakeSet[K comparable] struct {
	mu      sync.Mutex
	pending map[K]struct{}
	signal  chan struct{}
	out     chan K
}

func newWakeSet[K comparable]() *wakeSet[K] {
	return &wakeSet[K]{pending: map[K]struct{}{}, signal: make(chan struct{}, 1), out: make(chan K)}
}

func (w *wakeSet[K]) add(k K) {
	const most = 100_000 // polling finds what is dropped
	w.mu.Lock()
	if len(w.pending) < most {
		w.pending[k] = struct{}{}
	}
	w.mu.Unlock()
	raise(w.signal)
}

func (w *wakeSet[K]) take() (k K, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k = range w.pending {
		delete(w.pending, k)
		return k, true
	}
	return k, false
}

// pump hands pending keys to the consumer until ctx ends.
func (w *wakeSet[K]) pump(ctx context.Context) {
	for {
		k, ok := w.take()
		if !ok {
			select {
			case <-w.signal:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case w.out <- k:
		case <-ctx.Done():
			return
		}
	}
}

// outbox collects what the other replicas are told with the next notification.
type outbox struct {
	mu     sync.Mutex
	queues map[string]struct{}
	ids    map[int64]struct{}
	nudged bool
	plans  bool
	signal chan struct{}
}

func (o *outbox) add(e effects) {
	if len(e.queues) == 0 && len(e.attempts) == 0 && !e.nudged && !e.planned {
		return
	}
	o.mu.Lock()
	if o.queues == nil {
		o.queues, o.ids = map[string]struct{}{}, map[int64]struct{}{}
	}
	for _, q := range e.queues {
		o.queues[q] = struct{}{}
	}
	const most = 300 // a notification carries less than 8000 bytes; the others' polling finds the rest
	for _, a := range e.attempts {
		if len(o.ids) < most {
			o.ids[a] = struct{}{}
		}
	}
	o.nudged, o.plans = o.nudged || e.nudged, o.plans || e.planned
	o.mu.Unlock()
	raise(o.signal)
}

// notification is what one replica tells the others.
type notification struct {
	Replica  string   `json:"r"`
	Queues   []string `json:"q,omitempty"`
	Attempts []int64  `json:"a,omitempty"`
	Nudged   bool     `json:"n,omitempty"`
	Planned  bool     `json:"s,omitempty"`
}

// take empties the outbox; ok is false where nothing was in it.
func (o *outbox) take(replica string) (payload string, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queues) == 0 && len(o.ids) == 0 && !o.nudged && !o.plans {
		return "", false
	}
	n := notification{Replica: replica, Nudged: o.nudged, Planned: o.plans}
	const most = 40 // of at most 63 bytes each
	for q := range o.queues {
		if len(n.Queues) < most {
			n.Queues = append(n.Queues, q)
		}
	}
	for a := range o.ids {
		n.Attempts = append(n.Attempts, a)
	}
	o.queues, o.ids, o.nudged, o.plans = nil, nil, false, false
	raw, err := json.Marshal(n)
	if err != nil {
		return "", false
	}
	return string(raw), true
}
