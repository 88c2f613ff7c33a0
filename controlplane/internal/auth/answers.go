package auth

import (
	"context"
	"errors"
	"sync"
	"time"

	"slipway.dev/slipway/pkg/task"
)

// answers keeps what was asked for a short while, and asks once for callers that want the same at the same time. An
// error is told to those who wait for it and not kept. While nobody can be asked, or takes longer than patience, the
// answer before is given as an old one.
type answers[K comparable, V any] struct {
	keep   time.Duration
	outage time.Duration // how old an answer may be then

	mu    sync.Mutex
	known map[K]*answer[V]
}

type answer[V any] struct {
	ready chan struct{} // closed once value and err are set
	value V
	err   error
	asked time.Time
	until time.Time // zero while it is being asked
	// before is the last good answer, where it may still be given.
	before *answer[V]
}

// patience is how long an answer is waited for where there is an old one.
const patience = time.Second

func newAnswers[K comparable, V any](keep, outage time.Duration) *answers[K, V] {
	return &answers[K, V]{keep: keep, outage: outage, known: map[K]*answer[V]{}}
}

// get returns the answer kept for key, or asks; old tells that nobody has answered now. A caller that leaves does not take
// the answer from the others.
func (as *answers[K, V]) get(ctx context.Context, key K, ask func(context.Context) (V, error)) (value V, old bool, err error) {
	a, before, mine := as.find(key)
	if mine {
		go as.fill(context.WithoutCancel(ctx), key, a, ask)
	}
	var late <-chan time.Time
	if before != nil {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-a.ready:
		if before == nil || !errors.Is(a.err, task.ErrUnavailable) {
			return a.value, false, a.err
		}
	case <-late:
	case <-ctx.Done():
		return value, false, ctx.Err()
	}
	return before.value, true, nil
}

// fresh returns an answer that is no older than keep, for as long as asking takes.
func (as *answers[K, V]) fresh(ctx context.Context, key K, ask func(context.Context) (V, error)) (value V, err error) {
	a, _, mine := as.find(key)
	if mine {
		go as.fill(context.WithoutCancel(ctx), key, a, ask)
	}
	select {
	case <-a.ready:
		return a.value, a.err
	case <-ctx.Done():
		return value, ctx.Err()
	}
}

// find returns the answer for key and the one before it; mine tells the caller to fill it.
func (as *answers[K, V]) find(key K) (a, before *answer[V], mine bool) {
	as.mu.Lock()
	defer as.mu.Unlock()
	a = as.known[key]
	if a != nil && (a.until.IsZero() || time.Now().Before(a.until)) {
		return a, a.before, false
	}
	if a == nil && len(as.known) >= maxAnswers {
		as.forget()
	}
	next := &answer[V]{ready: make(chan struct{}), asked: time.Now()}
	if a != nil && next.asked.Sub(a.asked) < as.outage {
		next.before = a
	}
	as.known[key] = next
	return next, next.before, true
}

// forget makes room: what is over goes, and where that is not enough, everything that is not being asked.
func (as *answers[K, V]) forget() {
	now := time.Now()
	for key, a := range as.known {
		if !a.until.IsZero() && !now.Before(a.until) {
			delete(as.known, key)
		}
	}
	if len(as.known) < maxAnswers {
		return
	}
	for key, a := range as.known {
		if !a.until.IsZero() {
			delete(as.known, key)
		}
	}
}

func (as *answers[K, V]) fill(ctx context.Context, key K, a *answer[V], ask func(context.Context) (V, error)) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	value, err := ask(ctx)
	as.mu.Lock()
	defer as.mu.Unlock()
	a.value, a.err, a.until = value, err, a.asked.Add(as.keep) // the answer is as old as the question
	switch {
	case as.known[key] != a: // forgotten meanwhile
	case err != nil && a.before != nil && errors.Is(err, task.ErrUnavailable):
		as.known[key] = a.before
	case err != nil:
		delete(as.known, key)
	}
	a.before = nil
	close(a.ready)
}
