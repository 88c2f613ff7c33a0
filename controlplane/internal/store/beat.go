package store

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"gorm.io/gorm"

	"slipway.dev/slipway/pkg/task"
)

// beats collects heartbeats, which are stored together: one write a second for thousands of runners. A beat is
// answered only after the batch that holds it has committed. One that is held waits on, until it is woken with its Attempt.
type beats struct {
	mu      sync.Mutex
	waiting map[beatKey]*waitingBeat
	signal  chan struct{}
	hurry   chan struct{} // a batch is not to be collected for long: somebody was woken

	holds sync.Mutex
	held  map[int64]map[chan struct{}]struct{} // by Attempt
}

// hurried is how long a batch is collected that somebody was woken for: many Attempts are stopped together.
const hurried = 10 * time.Millisecond

type beatKey struct {
	attempt, fence int64
	podUID         string
}

type waitingBeat struct {
	progress json.RawMessage
	done     chan struct{}
	answer   BeatAnswer
	err      error
}

func newBeats() beats {
	return beats{
		waiting: map[beatKey]*waitingBeat{}, signal: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
		held: map[int64]map[chan struct{}]struct{}{},
	}
}

// Beat stores a heartbeat and says whether to go on. It returns when the batch that holds it has committed, which
// takes up to Config.BeatEvery and needs Run; where that does not ask to stop, it returns when a stop is stored, wherever
// that was, or when r.Hold or ctx is done, with the answer that it has.
func (s *Store) Beat(ctx context.Context, r BeatRequest) (BeatAnswer, error) {
	var woken <-chan struct{}
	if r.Hold != nil { // before the beat is stored: nothing is missed in between
		var release func()
		woken, release = s.beats.hold(r.Attempt)
		defer release()
	}
	key := beatKey{r.Attempt, r.Fence, r.PodUID}
	answer, again, err := s.stored(ctx, s.beats.join(key, cleanJSON(r.Progress, maxProgress)), woken)
	for err == nil && !answer.Cancel && r.Hold != nil {
		if !again {
			select {
			case <-r.Hold:
				return answer, nil
			case <-ctx.Done():
				return answer, nil
			case <-woken:
			}
		}
		w := s.beats.join(key, nil)
		raise(s.beats.hurry)
		var now BeatAnswer
		now, again, err = s.stored(ctx, w, woken)
		if err == nil {
			answer.Cancel = now.Cancel // what is left stays that of when the beat was stored
		} else if !errors.Is(err, ErrStale) {
			err = nil // the beat is stored; the next one hears what this one did not
		}
	}
	return answer, err
}

// stored returns with the batch of w. Where its Attempt is woken meanwhile, the batch is hurried, and again says that it
// may have been read too early.
func (s *Store) stored(ctx context.Context, w *waitingBeat, woken <-chan struct{}) (answer BeatAnswer, again bool, err error) {
	for {
		select {
		case <-w.done:
			return w.answer, again, w.err
		case <-ctx.Done():
			return BeatAnswer{}, again, ctx.Err()
		case <-woken:
			again = true
			raise(s.beats.hurry)
		}
	}
}

// hold hears, until it is released, that something of an Attempt is worth a look.
func (b *beats) hold(attempt int64) (woken <-chan struct{}, release func()) {
	c := make(chan struct{}, 1)
	b.holds.Lock()
	defer b.holds.Unlock()
	if b.held[attempt] == nil {
		b.held[attempt] = map[chan struct{}]struct{}{}
	}
	b.held[attempt][c] = struct{}{}
	return c, func() {
		b.holds.Lock()
		defer b.holds.Unlock()
		delete(b.held[attempt], c)
		if len(b.held[attempt]) == 0 {
			delete(b.held, attempt)
		}
	}
}

// wake tells who is held for an Attempt.
func (b *beats) wake(attempt int64) {
	b.holds.Lock()
	defer b.holds.Unlock()
	for c := range b.held[attempt] {
		raise(c)
	}
}

func (b *beats) join(k beatKey, progress json.RawMessage) *waitingBeat {
	b.mu.Lock()
	w := b.waiting[k]
	if w == nil {
		w = &waitingBeat{done: make(chan struct{})}
		b.waiting[k] = w
	}
	if progress != nil {
		w.progress = progress
	}
	b.mu.Unlock()
	raise(b.signal)
	return w
}

func (b *beats) take() map[beatKey]*waitingBeat {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := b.waiting
	b.waiting = map[beatKey]*waitingBeat{}
	return taken
}

// beatLoop stores what was collected, once per Config.BeatEvery, or sooner where somebody was woken.
func (s *Store) beatLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			s.beats.give(s.beats.take(), ctx.Err())
			return
		case <-s.beats.signal:
		}
		if !s.collect(ctx) {
			continue
		}
		if batch := s.beats.take(); len(batch) > 0 {
			s.storeBeats(ctx, batch)
		}
	}
}

// collect waits while a batch grows; false means that ctx is done.
func (s *Store) collect(ctx context.Context) bool {
	timer := time.NewTimer(s.cfg.BeatEvery)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-s.beats.hurry:
		return sleep(ctx, min(hurried, s.cfg.BeatEvery))
	}
}

// give ends the wait of every beat that has no answer yet.
func (b *beats) give(batch map[beatKey]*waitingBeat, err error) {
	for _, w := range batch {
		w.err = err
		close(w.done)
	}
}

func (s *Store) storeBeats(ctx context.Context, batch map[beatKey]*waitingBeat) {
	type beat struct {
		Attempt  int64           `json:"attempt"`
		Fence    int64           `json:"fence"`
		PodUID   string          `json:"pod_uid"`
		Progress json.RawMessage `json:"progress"`
	}
	rows := make([]beat, 0, len(batch))
	for k, w := range batch {
		rows = append(rows, beat{k.attempt, k.fence, k.podUID, w.progress})
	}
	var stored []struct {
		Attempt, Fence int64
		PodUID         string
		Cancel         bool
		LeftSeconds    float64
	}
	err := s.inTx(ctx, func(tx *gorm.DB) error {
		stored = nil
		err := query(tx, "attempt/beats", args{"beats": jsonOf(rows), "lease": float64(task.Lease)}, &stored)
		return err
	})
	if err != nil {
		s.beats.give(batch, err)
		return
	}
	for _, r := range stored {
		k := beatKey{r.Attempt, r.Fence, r.PodUID}
		w := batch[k]
		delete(batch, k)
		w.answer = BeatAnswer{Cancel: r.Cancel, Left: time.Duration(r.LeftSeconds * float64(time.Second))}
		close(w.done)
	}
	s.beats.give(batch, ErrStale)
}
