package auth

import (
	"context"
	"sync"
	"time"
)

// answers keeps what was asked for a short while, and asks once for callers that want the same at the same time. An
// error is told to those who wait for it and not kept.
type answers[K comparable, V any] struct {
	keep time.Duration

	mu    sync.Mutex
	known map[K]*answer[V]
}

type answer[V any] struct {
	ready chan struct{} // closed once value and err are set
	value V
	err   error
	until time.Time // zero while it is being asked
}

func newAnswers[K comparable, V any](keep time.Duration) *answers[K, V] {
	return &answers[K, V]{keep: keep, known: map[K]*answer[V]{}}
}

// get returns the answer kept for key, or asks. A caller that leaves does not take the answer from the others.
func (as *answers[K, V]) get(ctx context.Context, key K, ask func(context.Context) (V, error)) (V, error) {
	a, mine := as.find(key)
	if mine {
		go as.fill(context.WithoutCancel(ctx), key, a, ask)
	}
	select {
	case <-a.ready:
		return a.value, a.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// find returns the answer for key; mine tells the caller to fill it.
func (as *answers[K, V]) find(key K) (a *answer[V], mine bool) {
	as.mu.Lock()
	defer as.mu.Unlock()
	a = as.known[key]
	if a != nil && (a.until.IsZero() || time.Now().Before(a.until)) {
		return a, false
	}
	if a == nil && len(as.known) >= maxAnswers {
		as.forget()
	}
	a = &answer[V]{ready: make(chan struct{})}
	as.known[key] = a
	return a, true
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
	asked := time.Now() // counted from the question: the answer is as old as that
	a.value, a.err = ask(ctx)
	as.mu.Lock()
	a.until = asked.Add(as.keep)
	if a.err != nil && as.known[key] == a {
		delete(as.known, key)
	}
	as.mu.Unlock()
	close(a.ready)
}
