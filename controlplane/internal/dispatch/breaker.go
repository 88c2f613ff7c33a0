package dispatch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"slipway.dev/slipway/pkg/task"
)

// Inline runs Attempts in this process.
type Inline interface {
	// Kinds lists what it can run, and Room how many more Attempts it has places for.
	Kinds() []string
	Room() int
	// Take runs an Attempt; false says that too many wait for a place already. One that it has is not taken twice.
	Take(a task.Attempt) bool
}

// Here says what of a claim may run in this process.
type Here struct {
	Kinds []string
	Room  int
	// Fallback names the namespaces that have taken no Job for a while: what may run inline does so there.
	Fallback []string
	// Only takes nothing that needs a Job: none can be launched anywhere.
	Only bool
}

// Breaker is where no Job could be launched for so long that what may run inline does so.
type Breaker struct {
	Everywhere bool
	Namespaces []string
	Why        string // of the last refusal
}

// Open reports whether anything runs inline for that reason.
func (b Breaker) Open() bool { return b.Everywhere || len(b.Namespaces) > 0 }

// tripped tells where launches have been paused for so long, other than by a quota: that is no trouble but a limit.
func (g *gate) tripped(now time.Time, after time.Duration) Breaker {
	g.mu.Lock()
	defer g.mu.Unlock()
	var b Breaker
	for _, ns := range slices.Sorted(maps.Keys(g.namespaces)) {
		if l := g.namespaces[ns]; l.tripped(now, after) {
			b.Namespaces, b.Why = append(b.Namespaces, ns), l.last.note
		}
	}
	if g.everywhere.tripped(now, after) {
		b.Everywhere, b.Why = true, g.everywhere.last.note
	}
	return b
}

func (l *lock) tripped(now time.Time, after time.Duration) bool {
	return l.closed() && l.last.reason == task.WaitLaunch && now.Sub(l.since) >= after
}

// probes gives a claim that was refused for each place that is closed and may be tried now.
func (g *gate) probes(now time.Time) []Claim {
	g.mu.Lock()
	defer g.mu.Unlock()
	locks := []*lock{&g.everywhere}
	for _, l := range g.namespaces {
		locks = append(locks, l)
	}
	var out []Claim
	for _, l := range locks {
		if pass, _ := l.may(now); pass && l.closed() && l.refused.Attempt.ID != 0 {
			out = append(out, l.refused)
		}
	}
	return out
}

// Paused tells whether launches are paused in a namespace, and why.
func (d *Dispatcher) Paused(namespace string) (why string, paused bool) {
	d.gate.mu.Lock()
	defer d.gate.mu.Unlock()
	for _, l := range []*lock{&d.gate.everywhere, d.gate.namespaces[namespace]} {
		if l.closed() {
			return l.last.note, true
		}
	}
	return "", false
}

// Breaker tells where no Job could be launched for InlineAfter.
func (d *Dispatcher) Breaker() Breaker {
	if d.cfg.Inline == nil || d.cfg.NoFallback || len(d.cfg.Inline.Kinds()) == 0 {
		return Breaker{}
	}
	return d.gate.tripped(time.Now(), d.cfg.InlineAfter)
}

// here says what may run in this process now.
func (d *Dispatcher) here(b Breaker) Here {
	if d.cfg.Inline == nil {
		return Here{}
	}
	h := Here{Kinds: d.cfg.Inline.Kinds(), Room: d.cfg.Inline.Room(), Fallback: b.Namespaces}
	h.Only = b.Everywhere && h.Room > 0
	return h
}

// breaker tells once where what may run inline begins to, and tries by dry run whether Jobs can be launched again: where
// everything runs inline, no launch would find out.
func (d *Dispatcher) breaker(ctx context.Context) {
	b := d.Breaker()
	if was := d.told.Swap(b.Open()); was != b.Open() {
		if b.Open() {
			d.cfg.Log.WarnContext(ctx, "no job can be launched: what may run inline does", "everywhere", b.Everywhere,
				"namespaces", b.Namespaces, "error", b.Why)
		} else {
			d.cfg.Log.InfoContext(ctx, "jobs can be launched again: what ran inline for that reason does not any more")
		}
	}
	if !b.Open() {
		return
	}
	for _, c := range d.gate.probes(time.Now()) {
		if pass, _, _ := d.gate.enter(c.Attempt.Namespace, time.Now()); pass {
			d.working.Go(func() { d.probe(ctx, c) })
		}
	}
}

func (d *Dispatcher) probe(ctx context.Context, c Claim) {
	err := d.cfg.Cluster.Rehearse(ctx, c.Task, c.Attempt)
	var refusal *task.Refusal
	if err != nil && !errors.As(err, &refusal) {
		refusal = &task.Refusal{Cause: task.RefusedUnavailable, Message: err.Error()}
	}
	d.gate.leave(c, refusal, time.Now())
}

// falls reports whether an Attempt that was to be a Job may run inline instead. Should a Job of it exist although nobody
// heard so, then whoever is the first to start has the Attempt, and the other touches nothing.
func (d *Dispatcher) falls(c Claim) bool {
	if !c.Task.Spec.Inline {
		return false
	}
	b := d.Breaker()
	return (b.Everywhere || slices.Contains(b.Namespaces, c.Attempt.Namespace)) && slices.Contains(d.cfg.Inline.Kinds(), c.Attempt.Kind)
}

// hand gives an Attempt to the inline places. Where none is free it waits, for any replica to take it.
func (d *Dispatcher) hand(ctx context.Context, c Claim) {
	if d.cfg.Inline == nil || !slices.Contains(d.cfg.Inline.Kinds(), c.Attempt.Kind) || d.cfg.Inline.Take(c.Attempt) {
		return
	}
	d.wait(ctx, c, task.WaitCap, "every inline place is taken", time.Second)
}
