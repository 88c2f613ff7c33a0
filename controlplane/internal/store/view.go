package store

import (
	"context"
	"fmt"
	"time"

	"slipway.dev/slipway/pkg/task"
)

type viewRow struct {
	Now        time.Time
	Outside    *string
	HolderID   *string
	Stopping   bool // the holder's Attempt is being stopped
	HeadID     *string
	Needs      []byte
	Paused     *bool
	QueueNote  *string
	Rate       float64
	Cap, NsCap *int
	Live       int
	NsLive     int
	Frozen     *string
	HeldBy     *string
	KindOff    bool
	Tokens     *float64
	RefilledAt *time.Time
}

// Task reads a Task with its finer view.
func (s *Store) Task(ctx context.Context, id string) (task.Task, View, error) {
	if !validID(id) {
		return task.Task{}, View{}, ErrNotFound
	}
	found, err := s.tasksByID(ctx, []string{id})
	if err != nil {
		return task.Task{}, View{}, err
	}
	t, ok := found[id]
	if !ok {
		return task.Task{}, View{}, ErrNotFound
	}
	v := View{Phase: task.Phase(t.State), Parent: t.Parent, RunAt: t.RunAt}
	if t.Attempts > 0 {
		latest, err := s.attemptsOf(ctx, id, 1)
		if err != nil {
			return task.Task{}, View{}, err
		}
		if len(latest) > 0 {
			v.Attempt, v.Progress = &latest[0], latest[0].Progress
		}
	}
	if t.State.Terminal() {
		return t, v, nil
	}
	var row viewRow
	if err := query(s.db.WithContext(ctx), "read/view", args{"task": t.Key}, &row); err != nil {
		return task.Task{}, View{}, classify(ctx, fmt.Errorf("read what task %s waits for: %w", id, err))
	}
	v.After = rawList(row.Needs)
	if t.State == task.Running {
		runningView(t, &v)
		return t, v, nil
	}
	queuedView(t, row, &v)
	if v.Wait == task.WaitLane && row.Stopping {
		if v.WaitNote, err = s.stoppingNote(ctx, v.HolderID); err != nil {
			return task.Task{}, View{}, err
		}
	}
	return t, v, nil
}

// stoppingNote says what the end of a lane's holder waits for; empty where that has ended meanwhile.
func (s *Store) stoppingNote(ctx context.Context, holder string) (string, error) {
	found, err := s.tasksByID(ctx, []string{holder})
	if err != nil {
		return "", err
	}
	latest, err := s.attemptsOf(ctx, holder, 1)
	t, ok := found[holder]
	if err != nil || !ok || len(latest) == 0 {
		return "", err
	}
	return task.Stopping(t.Spec, latest[0]), nil
}

func runningView(t task.Task, v *View) {
	switch {
	case !t.CancelAt.IsZero():
		v.Phase = task.Canceling
		if v.Attempt != nil && v.Attempt.State != task.Finished {
			v.Wait, v.WaitNote = task.WaitStop, task.Stopping(t.Spec, *v.Attempt)
		}
	case t.Children > 0:
		v.Phase = task.Working
	case v.Attempt == nil:
		v.Phase = task.Launching
	case v.Attempt.Stop == task.StopEnded:
		v.Phase, v.Wait, v.WaitNote = task.Working, task.WaitStop, v.Attempt.StopNote
	case v.Attempt.Stop != task.StopNone:
		v.Phase, v.Wait, v.WaitNote = task.Canceling, task.WaitStop, task.Stopping(t.Spec, *v.Attempt)
	case v.Attempt.State == task.Started:
		v.Phase, v.Wait, v.WaitNote = task.Working, v.Attempt.Wait, v.Attempt.WaitNote
	default:
		v.Phase, v.Wait, v.WaitNote = task.Launching, v.Attempt.Wait, v.Attempt.WaitNote
	}
}

// queuedView names the first thing that keeps a queued Task from running.
func queuedView(t task.Task, row viewRow, v *View) {
	v.Phase = task.Waiting
	outside := value(row.Outside)
	switch {
	case t.Held:
		v.Wait, v.WaitNote = task.WaitHeld, value(row.HeldBy)
	case outside == outsideParent:
		v.Wait, v.HolderID = task.WaitDependency, t.Parent
	case outside == outsideDependency:
		v.Wait = task.WaitDependency
		if len(v.After) > 0 {
			v.HolderID = v.After[0]
		}
	case outside == outsideDelay:
		v.Phase = task.Delayed
	case row.HolderID != nil:
		v.Wait, v.HolderID = task.WaitLane, *row.HolderID
	case row.HeadID != nil && *row.HeadID != t.ID:
		v.Wait, v.HolderID = task.WaitLane, *row.HeadID
	case t.RunAt.After(row.Now):
		v.Phase = task.Retrying
		if t.Reason == task.ReasonQuota {
			v.Wait, v.WaitNote = task.WaitQuota, t.Message
		}
	case row.Frozen != nil:
		v.Wait, v.WaitNote = task.WaitFrozen, *row.Frozen
	case value(row.Paused):
		v.Wait, v.WaitNote = task.WaitPaused, value(row.QueueNote)
	case row.KindOff:
		v.Wait = task.WaitKindOff
	case row.Cap != nil && (row.Live >= *row.Cap || row.NsLive >= value(row.NsCap)):
		v.Wait = task.WaitCap
	case row.Rate > 0 && tokens(row) < 1:
		v.Wait = task.WaitRate
	default:
		v.Wait = task.WaitDispatch
	}
}

func tokens(row viewRow) float64 {
	if row.RefilledAt == nil {
		return 1
	}
	return value(row.Tokens) + row.Rate*row.Now.Sub(*row.RefilledAt).Seconds()
}
