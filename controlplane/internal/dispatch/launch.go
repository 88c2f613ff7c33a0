package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"slipway.dev/slipway/controlplane/internal/failpoint"
	"slipway.dev/slipway/pkg/task"
)

// Bounds of one launch.
const (
	recordTries   = 3
	recordTime    = 5 * time.Second // what a record gets after the end was asked for
	firstBackoff  = time.Second
	longestPause  = 30 * time.Second
	quotaPause    = 5 * time.Second // the longest where a quota may get room at any time
	closedAtOnce  = 5               // closed Jobs deleted to make room
	reasonRefused = "refused"
)

// launch creates the Job of c, or hands it to the inline places, and records what came of it.
func (d *Dispatcher) launch(ctx context.Context, c Claim) {
	if c.Attempt.Executor == task.ExecutorInline {
		d.hand(ctx, c)
		return
	}
	if d.falls(c) && d.cfg.Inline.Take(c.Attempt) {
		return
	}
	ns := c.Attempt.Namespace
	pass, wait, why := d.gate.enter(ns, time.Now())
	if !pass {
		d.wait(ctx, c, why.reason, "launches are paused: "+why.note, wait)
		return
	}
	name, uid, err := d.create(ctx, c)
	if ctx.Err() != nil && err != nil {
		d.gate.leave(c, nil, time.Now())
		return // nothing is known; the Attempt is launched again
	}
	var refusal *task.Refusal
	errors.As(err, &refusal)
	d.gate.leave(c, refusal, time.Now())
	switch {
	case err == nil:
		d.forget(c.Attempt.ID)
		failpoint.Hit("launch-before-record")
		d.record(ctx, c, name, uid)
	case errors.Is(err, task.ErrTaken):
		d.finish(ctx, c, task.Verdict{
			Outcome: task.OutcomeLost, Reason: task.ReasonNameTaken, Message: err.Error(), Rule: reasonRefused, Spends: task.SpendsNothing,
		})
	case refusal != nil:
		d.refuse(ctx, c, *refusal)
	default:
		d.trouble.Warn(ctx, fmt.Sprintf("launch attempt %d", c.Attempt.ID), err)
		d.wait(ctx, c, task.WaitLaunch, err.Error(), d.backoff(c.Attempt.ID, task.Refusal{}))
	}
}

// create asks by dry run where that is due, and then for good. A quota that counts Jobs is met by letting go of Jobs that
// only stand for people to look at. Where an earlier launch has left a pod, its Job was created, whoever has deleted it
// since: it is not created twice.
func (d *Dispatcher) create(ctx context.Context, c Claim) (name, uid string, err error) {
	if c.again {
		if name, uid, err = d.cfg.Cluster.Left(ctx, c.Attempt); name != "" || err != nil {
			return name, uid, err
		}
	}
	err = d.checks.pass(ctx, c, func(ctx context.Context) error { return d.cfg.Cluster.DryRun(ctx, c.Task, c.Attempt) })
	if err != nil {
		return "", "", err
	}
	failpoint.Hit("launch-before-create")
	name, uid, err = d.cfg.Cluster.Launch(ctx, c.Task, c.Attempt)
	var refusal *task.Refusal
	if errors.As(err, &refusal) && refusal.JobCount && d.makeRoom(ctx, c.Attempt.Namespace) {
		return d.cfg.Cluster.Launch(ctx, c.Task, c.Attempt)
	}
	return name, uid, err
}

// makeRoom deletes the oldest closed Jobs of a namespace.
func (d *Dispatcher) makeRoom(ctx context.Context, namespace string) bool {
	made, err := d.cfg.Shelf.MakeRoom(ctx, namespace, closedAtOnce)
	if err != nil {
		d.trouble.Warn(ctx, "delete closed jobs", err)
	}
	return made > 0
}

// record stores that the Job exists. What cannot be stored is found by whoever launches the Attempt again: the Job is
// adopted then.
func (d *Dispatcher) record(ctx context.Context, c Claim, name, uid string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	var err error
	for range recordTries {
		err = d.cfg.Records.MarkLaunched(ctx, c.Attempt.ID, c.Attempt.Fence, name, uid)
		if err == nil {
			return
		}
		if errors.Is(err, task.ErrStale) || errors.Is(err, task.ErrNotFound) {
			d.cfg.Follow(c.Attempt.ID) // it has ended meanwhile: what was just created has to go
			return
		}
	}
	d.trouble.Warn(ctx, fmt.Sprintf("record the job of attempt %d", c.Attempt.ID), err)
}

func (d *Dispatcher) refuse(ctx context.Context, c Claim, r task.Refusal) {
	if v, final := r.Verdict(); final {
		d.finish(ctx, c, v)
		return
	}
	d.wait(ctx, c, waitFor(r), r.Message, d.backoff(c.Attempt.ID, r))
}

func waitFor(r task.Refusal) task.WaitReason {
	if r.Cause == task.RefusedQuota {
		return task.WaitQuota
	}
	return task.WaitLaunch
}

func (d *Dispatcher) wait(ctx context.Context, c Claim, why task.WaitReason, note string, again time.Duration) {
	err := d.cfg.Records.MarkWaiting(ctx, c.Attempt.ID, c.Attempt.Fence, why, note, again)
	if err != nil && !errors.Is(err, task.ErrStale) {
		d.trouble.Warn(ctx, fmt.Sprintf("record what attempt %d waits for", c.Attempt.ID), err)
	}
}

func (d *Dispatcher) finish(ctx context.Context, c Claim, v task.Verdict) {
	d.forget(c.Attempt.ID)
	err := d.cfg.Records.Finish(ctx, c.Attempt.ID, c.Attempt.Fence, v)
	if err != nil && !errors.Is(err, task.ErrStale) {
		d.trouble.Warn(ctx, fmt.Sprintf("finish attempt %d", c.Attempt.ID), err)
		return
	}
	d.cfg.Follow(c.Attempt.ID)
}

// backoff is how long an Attempt waits after its nth refusal in a row, at least as long as the server wishes.
func (d *Dispatcher) backoff(attempt int64, r task.Refusal) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.refused[attempt]
	d.refused[attempt] = n + 1
	return pause(n, r)
}

func (d *Dispatcher) forget(attempt int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.refused, attempt)
}

// pause is the first back-off, doubled n times, up to the longest, and at least what the server wishes.
func pause(n int, r task.Refusal) time.Duration {
	const most = 6 // beyond it the longest is reached
	longest := longestPause
	if r.Cause == task.RefusedQuota {
		longest = quotaPause
	}
	return max(min(firstBackoff<<min(n, most), longest), r.RetryAfter)
}
