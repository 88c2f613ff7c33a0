package store

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"gorm.io/gorm"

	"slipway.dev/slipway/pkg/task"
)

// beats collects heartbeats, which are stored together: one write a second for thousands of runners. A beat is
// answered only after the batch that holds it has committed.
type beats struct {
	mu      sync.Mutex
	waiting map[beatKey]*waitingBeat
	signal  chan struct{}
}

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
	return beats{waiting: map[beatKey]*waitingBeat{}, signal: make(chan struct{}, 1)}
}

// Beat stores a heartbeat and says whether to go on. It returns when the batch that holds it has committed, which
// takes up to Config.BeatEvery and needs Run.
func (s *Store) Beat(ctx context.Context, r BeatRequest) (BeatAnswer, error) {
	w := s.beats.join(beatKey{r.Attempt, r.Fence, r.PodUID}, cleanJSON(r.Progress, maxProgress))
	select {
	case <-w.done:
		return w.answer, w.err
	case <-ctx.Done():
		return BeatAnswer{}, ctx.Err()
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
	select {
	case b.signal <- struct{}{}:
	default:
	}
	return w
}

func (b *beats) take() map[beatKey]*waitingBeat {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := b.waiting
	b.waiting = map[beatKey]*waitingBeat{}
	return taken
}

// beatLoop stores what was collected, once per Config.BeatEvery.
func (s *Store) beatLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			s.beats.give(s.beats.take(), ctx.Err())
			return
		case <-s.beats.signal:
		}
		if !sleep(ctx, s.cfg.BeatEvery) {
			continue
		}
		if batch := s.beats.take(); len(batch) > 0 {
			s.storeBeats(ctx, batch)
		}
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
