package dispatch

import (
	"log/slog"
	"sync"
	"time"

	"slipway.dev/slipway/pkg/task"
)

// enough is how many refusals in a row close a gate.
const enough = 3

// gate holds launches back where they are refused anyway: in one namespace, or everywhere while the cluster does not
// answer. A closed gate lets one launch pass after each back-off; if it succeeds the gate is open again.
type gate struct {
	log        *slog.Logger
	mu         sync.Mutex
	everywhere lock
	namespaces map[string]*lock
}

// lock is the state of one gate.
type lock struct {
	failures int
	since    time.Time // it is closed
	until    time.Time
	probing  bool
	last     reason
	refused  Claim // the last one that was
}

// reason is why a gate is closed.
type reason struct {
	reason task.WaitReason
	note   string
}

func newGate(log *slog.Logger) *gate { return &gate{log: log, namespaces: map[string]*lock{}} }

// room says how many launches a claim may bring; where it is none, how long that lasts.
func (g *gate) room(now time.Time) (limit int, wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	pass, wait := g.everywhere.may(now)
	switch {
	case !pass:
		return 0, wait
	case g.everywhere.failures >= enough:
		return 1, 0
	}
	return batchSize, 0
}

// enter asks for one launch; leave must follow where it may pass.
func (g *gate) enter(namespace string, now time.Time) (pass bool, wait time.Duration, why reason) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ns := g.namespaces[namespace]
	if ns == nil {
		ns = &lock{}
		g.namespaces[namespace] = ns
	}
	for _, l := range []*lock{&g.everywhere, ns} {
		if pass, wait := l.may(now); !pass {
			return false, wait, l.last
		}
	}
	g.everywhere.enter()
	ns.enter()
	return true, 0, reason{}
}

// leave reports what came of a launch that had entered; nil means that it passed, or that nothing was refused.
func (g *gate) leave(c Claim, r *task.Refusal, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	namespace := c.Attempt.Namespace
	ns := g.namespaces[namespace]
	all, one := g.everywhere.closed(), ns.closed()
	defer func() { // one line when launches begin to wait, and one when they go on
		g.tell("everywhere", all, &g.everywhere)
		g.tell("namespace "+namespace, one, g.namespaces[namespace])
	}()
	switch {
	case r == nil:
		g.everywhere.open()
		delete(g.namespaces, namespace)
	case r.Cause == task.RefusedUnavailable:
		g.everywhere.fail(c, r, now)
		ns.probed()
	case r.Cause == task.RefusedQuota, r.Cause == task.RefusedUnknown:
		g.everywhere.open() // it answers
		ns.fail(c, r, now)
	default: // refused for what it is: that says nothing about the next
		g.everywhere.open()
		ns.probed()
	}
}

func (g *gate) tell(where string, before bool, l *lock) {
	switch now := l.closed(); {
	case now && !before:
		g.log.Warn("launches are paused", "where", where, "reason", l.last.reason, "error", l.last.note)
	case before && !now:
		g.log.Info("launches go on", "where", where)
	}
}

func (l *lock) closed() bool { return l != nil && l.failures >= enough }

// may reports whether l lets a launch pass now; one that is being tried may take a moment.
func (l *lock) may(now time.Time) (pass bool, wait time.Duration) {
	switch {
	case l.failures < enough:
		return true, 0
	case l.probing:
		return false, firstBackoff
	case now.Before(l.until):
		return false, l.until.Sub(now)
	}
	return true, 0
}

func (l *lock) enter() {
	if l.failures >= enough {
		l.probing = true
	}
}

func (l *lock) probed() {
	if l != nil {
		l.probing = false
	}
}

func (l *lock) open() { *l = lock{} }

func (l *lock) fail(c Claim, r *task.Refusal, now time.Time) {
	if l == nil {
		return
	}
	if l.failures < enough || l.probing { // launches that were under way when it closed tell nothing new
		if l.failures++; l.failures == enough {
			l.since = now
		}
	}
	l.probing = false
	l.last, l.refused = reason{waitFor(*r), r.Message}, c
	if l.failures >= enough {
		l.until = now.Add(pause(l.failures-enough, *r))
	}
}
