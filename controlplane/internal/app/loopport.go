package app

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"slipway.dev/slipway/controlplane/internal/dispatch"
	"slipway.dev/slipway/controlplane/internal/reconcile"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

// books is the store as dispatch and reconcile want it.
type books struct {
	store  *store.Store
	counts *counts
	log    *slog.Logger
	tell   teller
}

// Queues names the queues.
func (b books) Queues(ctx context.Context) ([]string, error) {
	all, err := b.store.Queues(ctx)
	names := make([]string, len(all))
	for i, q := range all {
		names[i] = q.Name
	}
	return names, known(err)
}

// Claim takes what may run.
func (b books) Claim(ctx context.Context, queue string, limit int, here dispatch.Here) (dispatch.Batch, error) {
	r, err := b.store.ClaimFor(ctx, queue, limit, store.Inline(here))
	b.counts.claimed.WithLabelValues(queue).Add(float64(len(r.Claims)))
	return dispatch.Batch{Claims: claims(r.Claims), More: r.More, NextIn: r.NextIn}, known(err)
}

// Overdue lists claims that were not launched in time.
func (b books) Overdue(ctx context.Context, age time.Duration, limit int) ([]dispatch.Claim, error) {
	all, err := b.store.LeasedOverdue(ctx, age, limit)
	return claims(all), known(err)
}

func claims(all []store.Claimed) []dispatch.Claim {
	out := make([]dispatch.Claim, len(all))
	for i, c := range all {
		out[i] = dispatch.Claim{Task: c.Task, Attempt: c.Attempt}
	}
	return out
}

// MarkLaunched records a Job.
func (b books) MarkLaunched(ctx context.Context, attempt, fence int64, jobName, jobUID string) error {
	return known(b.store.MarkLaunched(ctx, attempt, fence, jobName, jobUID))
}

// MarkWaiting records why there is no Job yet.
func (b books) MarkWaiting(ctx context.Context, attempt, fence int64, why task.WaitReason, note string, again time.Duration) error {
	return known(b.store.MarkWaiting(ctx, attempt, fence, why, note, again))
}

func (b books) finish(ctx context.Context, attempt, fence int64, v task.Verdict, e store.Ending) error {
	r, err := b.store.Finish(ctx, attempt, fence, v, e)
	if err == nil {
		b.counts.finished.WithLabelValues(r.Task.Kind, string(v.Outcome), string(r.Move.State)).Inc()
		b.alarm(ctx, r)
		b.tell.Tell(r.Task, task.StepOf(r.Move.State), r.Task.Attempts)
	}
	return known(err)
}

// alarm tells of a Task that loses one Attempt after the other: something of the infrastructure is broken for it.
func (b books) alarm(ctx context.Context, r store.FinishResult) {
	if r.LostInARow < task.LostAlarm {
		return
	}
	b.counts.lostRows.WithLabelValues(r.Task.Kind).Inc()
	b.log.WarnContext(ctx, "a task loses one attempt after the other", "task", r.Task.ID, "kind", r.Task.Kind, "namespace", r.Task.Namespace,
		"in_a_row", r.LostInARow, "spent", r.Task.SpentLost, "budget", r.Task.Spec.Retry.Lost, "reason", string(r.Move.Reason), "message", r.Task.Message)
}

// launchBooks is books with the end of an Attempt as dispatch wants it.
type launchBooks struct{ books }

// Finish ends an Attempt.
func (b launchBooks) Finish(ctx context.Context, attempt, fence int64, v task.Verdict) error {
	return b.finish(ctx, attempt, fence, v, store.Ending{})
}

// truthBooks is books as reconcile wants it.
type truthBooks struct{ books }

// Finish ends an Attempt and keeps what was seen.
func (b truthBooks) Finish(ctx context.Context, attempt, fence int64, v task.Verdict, evidence json.RawMessage) error {
	return b.finish(ctx, attempt, fence, v, store.Ending{Evidence: evidence})
}

// OpenAttempt reads an Attempt.
func (b truthBooks) OpenAttempt(ctx context.Context, attempt int64) (task.Task, task.Attempt, time.Time, error) {
	t, a, now, err := b.store.OpenAttempt(ctx, attempt)
	return t, a, now, known(err)
}

// OpenAttempts lists Attempts that are not closed.
func (b truthBooks) OpenAttempts(ctx context.Context) ([]int64, error) {
	all, err := b.store.OpenAttempts(ctx)
	return all, known(err)
}

// Stop stores a stop reason.
func (b truthBooks) Stop(ctx context.Context, attempt, fence int64, why task.StopReason, note string) error {
	return known(b.store.Stop(ctx, attempt, fence, why, note))
}

// MarkClosed records that nothing is left in the cluster.
func (b truthBooks) MarkClosed(ctx context.Context, attempt int64) error {
	return known(b.store.MarkClosed(ctx, attempt))
}

// SeePod records a pod.
func (b truthBooks) SeePod(ctx context.Context, attempt int64, p task.KnownPod) error {
	return known(b.store.SeePod(ctx, attempt, p))
}

// Known tells what is known of Attempts that left a trace.
func (b truthBooks) Known(ctx context.Context, attempts []int64) (map[int64]reconcile.Standing, error) {
	all, err := b.store.KnownAttempts(ctx, attempts)
	out := make(map[int64]reconcile.Standing, len(all))
	for id, s := range all {
		out[id] = reconcile.Standing{Fence: s.Fence, Closed: s.Closed}
	}
	return out, known(err)
}

// Lineage names the database as it is now.
func (b truthBooks) Lineage(ctx context.Context) (string, error) {
	lineage, err := b.store.Lineage(ctx)
	return lineage, known(err)
}

// RaiseFence moves the fences past one that is known.
func (b truthBooks) RaiseFence(ctx context.Context, lineage string, above int64) (int64, error) {
	was, err := b.store.RaiseFence(ctx, lineage, above)
	return was, known(err)
}
