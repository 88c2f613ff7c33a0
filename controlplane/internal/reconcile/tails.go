package reconcile

import (
	"context"
	"time"

	"slipway.dev/slipway/pkg/task"
)

// Tails keeps the end of a log that no runner will send. It is best effort and never an outcome: where there is nothing to
// be had, nothing is kept.
type Tails interface {
	// Tail reads the end of the log of a's pod; with follow it returns when the container has ended.
	Tail(ctx context.Context, a task.Attempt, follow bool) ([]byte, error)
	// KeepLog stores a tail, unless there is one.
	KeepLog(ctx context.Context, attempt int64, tail []byte) error
}

const (
	tailTime      = 3 * time.Second // what a tail may take, and how long the close of an Attempt waits for one
	mostFollowed  = 64              // logs followed at a time; each is a connection to a kubelet
	followedAtAll = time.Hour
)

// following is a log that is read until its container has ended.
type following struct {
	ended chan struct{} // closed with the last byte; tail may be read then
	stop  context.CancelFunc
	tail  []byte
}

// follow begins to read the log of an Attempt that is being stopped, where no runner will send its end: the kubelet drops
// the log of a pod that is being deleted as soon as it has ended.
func (r *Reconciler) follow(ctx context.Context, v view) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tails[v.a.ID] != nil || len(r.tails) >= mostFollowed || !doomed(v) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, followedAtAll)
	f := &following{ended: make(chan struct{}), stop: cancel}
	r.tails[v.a.ID] = f
	r.followers.Go(func() {
		defer close(f.ended)
		defer cancel()
		f.tail, _ = r.cfg.Tails.Tail(ctx, v.a, true) // what was read before an error is kept
	})
}

// doomed reports whether the pod that does the work of v is being deleted or soon will be, and nothing of it was reported.
func doomed(v view) bool {
	if v.a.Report != nil || v.a.StartedAt.IsZero() {
		return false
	}
	overdue := haltedFor(v) > v.t.Spec.Grace.Duration() // it does not obey, and will be deleted
	for _, p := range v.s.Pods {
		if p.UID == v.a.PodUID && !p.Ended() && (p.Deleting || overdue) {
			return true
		}
	}
	return false
}

// keepTail stores the end of the log of a finished Attempt whose runner was killed before it could send it, or that has
// none. It comes before the pod is let go.
func (r *Reconciler) keepTail(ctx context.Context, a task.Attempt) {
	if a.Report != nil || a.StartedAt.IsZero() || !a.ClosedAt.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tailTime)
	defer cancel()
	tail := r.followed(ctx, a.ID)
	if len(tail) == 0 {
		tail, _ = r.cfg.Tails.Tail(ctx, a, false) // best effort
	}
	if len(tail) == 0 {
		return
	}
	if err := r.cfg.Tails.KeepLog(context.WithoutCancel(ctx), a.ID, tail); err != nil {
		r.trouble.Warn(ctx, "keep a log", err)
	}
}

// followed ends the reading of a log and gives what was read.
func (r *Reconciler) followed(ctx context.Context, attempt int64) []byte {
	r.mu.Lock()
	f := r.tails[attempt]
	delete(r.tails, attempt)
	r.mu.Unlock()
	if f == nil {
		return nil
	}
	select {
	case <-f.ended:
	case <-ctx.Done():
	}
	f.stop()
	<-f.ended
	return f.tail
}
