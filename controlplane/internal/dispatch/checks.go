package dispatch

import (
	"context"
	"sync"
	"time"
)

// checkedFor is how long a template that passed a dry run is not asked about again.
const checkedFor = time.Minute

// checks remembers which pod templates the API server has taken lately, per namespace. Several launches of the same
// template wait for one answer.
type checks struct {
	mu      sync.Mutex
	entries map[string]*check
}

type check struct {
	done  chan struct{}
	err   error
	until time.Time
}

func newChecks() *checks { return &checks{entries: map[string]*check{}} }

// pass calls ask unless the same template has passed within a minute.
func (all *checks) pass(ctx context.Context, c Claim, ask func(context.Context) error) error {
	key, mine, now := c.Task.PodKey(), false, time.Now()
	all.mu.Lock()
	entry := all.entries[key]
	if entry == nil || !entry.until.IsZero() && now.After(entry.until) {
		entry, mine = &check{done: make(chan struct{})}, true
		all.entries[key] = entry
	}
	all.mu.Unlock()
	if mine {
		all.answer(key, entry, ask(ctx))
	}
	select {
	case <-entry.done:
		return entry.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answer keeps a pass for a while and a refusal not at all.
func (all *checks) answer(key string, entry *check, err error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	now := time.Now()
	entry.err, entry.until = err, now.Add(checkedFor)
	if err != nil {
		delete(all.entries, key)
	}
	for other, e := range all.entries {
		if !e.until.IsZero() && now.After(e.until) {
			delete(all.entries, other)
		}
	}
	close(entry.done)
}
