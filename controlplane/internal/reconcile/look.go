package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"slipway.dev/slipway/pkg/task"
)

// steps is how many decisions one look may take: look live, ask, stop, halt. What is left is for the next look.
const steps = 5

// look reads an Attempt, observes the cluster and does what task.Decide says. It returns when to look again by itself.
func (r *Reconciler) look(ctx context.Context, id int64) time.Duration {
	if !r.wanted(id) {
		return 0
	}
	t, a, now, err := r.cfg.Reader.OpenAttempt(ctx, id)
	switch {
	case errors.Is(err, task.ErrNotFound):
		r.forget(id) // what the cluster still has of it is for the sweep
		return 0
	case err != nil:
		r.trouble.Warn(ctx, fmt.Sprintf("read attempt %d", id), err)
		return r.after(id, troubleAgain)
	case a.State == task.Finished:
		return r.close(ctx, a)
	}
	again, err := r.decide(ctx, view{t: t, a: a, now: now})
	switch {
	case errors.Is(err, task.ErrStale): // it has ended meanwhile, or a report came in: look anew
		return r.after(id, staleAgain)
	case err != nil:
		r.trouble.Warn(ctx, fmt.Sprintf("look at attempt %d", id), err)
		return r.after(id, troubleAgain)
	}
	return r.after(id, again)
}

// after leaves the Attempts of others to them for a while longer, and remembers that a look is due.
func (r *Reconciler) after(id int64, again time.Duration) time.Duration {
	if again <= 0 {
		return 0
	}
	r.tell(id)
	if !r.isMine(id) {
		again += r.cfg.OthersWait
	}
	return again
}

// view is what is known of an Attempt during one look.
type view struct {
	t   task.Task
	a   task.Attempt
	s   task.Seen
	now time.Time
}

func (r *Reconciler) decide(ctx context.Context, v view) (again time.Duration, err error) {
	if v.a.Executor == task.ExecutorInline {
		v.s.Live = true // there is nothing of it to see
	} else if v.s, err = r.cfg.Sight.Observe(ctx, v.a, false); err != nil {
		return 0, err
	}
	for range steps {
		d := task.Decide(v.t, v.a, v.s, v.now)
		switch d.Action {
		case task.ActLook:
			if v.s, err = r.cfg.Sight.Observe(ctx, v.a, true); err != nil {
				return 0, err
			}
		case task.ActAsk:
			if err = r.ask(ctx, &v); err != nil {
				return 0, err
			}
		case task.ActStop:
			if err = r.cfg.Ender.Stop(ctx, v.a.ID, v.a.Fence, d.Stop, d.Why); err != nil {
				return 0, err
			}
			v.a.Stop, v.a.StopNote, v.a.StopAt = d.Stop, d.Why, v.now
		case task.ActHalt:
			if err = r.see(ctx, v); err != nil {
				return 0, err
			}
			r.follow(ctx, v)
			return d.Again, r.cfg.Hand.Halt(ctx, v.t, v.a, haltedFor(v))
		case task.ActFinish:
			return r.finish(ctx, v, d)
		case task.ActLaunch, task.ActWait: // dispatch launches what is overdue
			r.follow(ctx, v)
			return d.Again, r.wait(ctx, v, d)
		}
	}
	return troubleAgain, nil
}

// ask finds out by dry run whether the API server would take the pod. A refusal counts only if there is still no pod
// afterwards: the Attempt's own may have taken the last room of a quota.
func (r *Reconciler) ask(ctx context.Context, v *view) error {
	v.s.Asked, v.s.Refusal = true, nil
	if r.taken.lately(v.t.PodKey(), time.Now()) {
		return nil
	}
	err := r.cfg.Sight.DryRun(ctx, v.t, v.a)
	if err == nil {
		r.taken.note(v.t.PodKey(), time.Now())
		return nil
	}
	var refusal *task.Refusal
	if !errors.As(err, &refusal) {
		return err
	}
	if v.s, err = r.cfg.Sight.Observe(ctx, v.a, true); err != nil {
		return err
	}
	v.s.Asked, v.s.Refusal = true, refusal
	return nil
}

// haltedFor is how long the pods of an Attempt have been asked to stop.
func haltedFor(v view) time.Duration {
	switch {
	case v.a.Stop == task.StopEnded:
		return v.now.Sub(v.a.StopAt) - v.t.Spec.Grace.Duration()
	case !v.a.StopAt.IsZero():
		return v.now.Sub(v.a.StopAt)
	case v.a.Report != nil:
		return v.now.Sub(v.a.Report.At) - v.t.Spec.Grace.Duration()
	}
	return 0
}

// wait stores what is seen, and what the Attempt waits for where that is new.
func (r *Reconciler) wait(ctx context.Context, v view, d task.Decision) error {
	if err := r.see(ctx, v); err != nil {
		return err
	}
	note := d.Why
	if d.Wait == "" {
		note = ""
	}
	// Once it has started it waits for nothing but its own end.
	waits := v.a.State == task.Launched || v.a.State == task.Started && d.Wait == task.WaitStop
	if !waits || v.a.Stop != task.StopNone || d.Wait == v.a.Wait && note == v.a.WaitNote {
		return nil
	}
	err := r.cfg.Noter.MarkWaiting(ctx, v.a.ID, v.a.Fence, d.Wait, note, 0)
	if errors.Is(err, task.ErrStale) {
		return nil // it started or ended a moment ago, and waits for nothing any more
	}
	return err
}

// see stores each pod that is bound to a node, and its end: a pod once seen has to be accounted for. The one that won
// start is known by that.
func (r *Reconciler) see(ctx context.Context, v view) error {
	for _, p := range v.s.Pods {
		if p.Node == "" || p.UID == v.a.PodUID && !p.Ended() || known(v.a.Pods, p) {
			continue
		}
		err := r.cfg.Noter.SeePod(ctx, v.a.ID, task.KnownPod{UID: p.UID, Name: p.Name, Node: p.Node, Ended: p.Ended()})
		if err != nil {
			return err
		}
	}
	return nil
}

func known(pods []task.KnownPod, p task.SeenPod) bool {
	for _, k := range pods {
		if k.UID == p.UID {
			return k.Ended || !p.Ended()
		}
	}
	return false
}

// finish stores the verdict and closes the Attempt in the cluster.
func (r *Reconciler) finish(ctx context.Context, v view, d task.Decision) (time.Duration, error) {
	err := r.cfg.Ender.Finish(ctx, v.a.ID, v.a.Fence, d.Verdict, evidence(v, d))
	if err != nil {
		return 0, err
	}
	v.a.State = task.Finished
	return r.close(ctx, v.a), nil
}

// close lets go of a finished Attempt in the cluster, and says so in the database.
func (r *Reconciler) close(ctx context.Context, a task.Attempt) time.Duration {
	if !a.ClosedAt.IsZero() && !r.cfg.Remains.Shows(a.ID) {
		r.forget(a.ID)
		return 0
	}
	if a.Executor != task.ExecutorInline || a.JobName != "" { // it began as a Job that was not heard of in time
		r.keepTail(ctx, a)
		if err := r.cfg.Hand.Close(ctx, a); err != nil {
			r.trouble.Warn(ctx, fmt.Sprintf("close attempt %d", a.ID), err)
			return r.after(a.ID, troubleAgain)
		}
	}
	if a.ClosedAt.IsZero() {
		if err := r.cfg.Ender.MarkClosed(ctx, a.ID); err != nil {
			r.trouble.Warn(ctx, fmt.Sprintf("record the closing of attempt %d", a.ID), err)
			return r.after(a.ID, troubleAgain)
		}
	}
	r.forget(a.ID)
	return 0
}
