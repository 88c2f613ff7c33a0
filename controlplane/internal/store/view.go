package store

import (
	"context"
	"fmt"
	"time"

	"slipway.dev/slipway/pkg/task"
)

type viewRow struct {
	Key        int64
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
	SwitchedBy *string
	Tokens     *float64
	RefilledAt *time.Time
}

// Task reads a Task with its finer view, and those of its children.
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
	all := []task.Task{t}
	if t.Children > 0 {
		children, err := s.Children(ctx, t)
		if err != nil {
			return task.Task{}, View{}, err
		}
		all = append(all, children...)
	}
	views, err := s.views(ctx, all, func(t task.Task) bool { return t.Attempts > 0 })
	if err == nil {
		err = s.needs(ctx, all, views)
	}
	if err == nil && views[0].stopping {
		views[0].WaitNote, err = s.stoppingNote(ctx, views[0].HolderID)
	}
	if err != nil {
		return task.Task{}, View{}, fmt.Errorf("read the view of task %s: %w", id, err)
	}
	v := views[0]
	for i, child := range all[1:] {
		v.Children = append(v.Children, Viewed{child, views[i+1]})
	}
	return t, v, nil
}

// views computes the finer views of Tasks: one statement for what all of them wait for, and one for the newest Attempts
// of those that want it.
func (s *Store) views(ctx context.Context, all []task.Task, attempted func(task.Task) bool) ([]View, error) {
	db := s.db.WithContext(ctx)
	var open []int64
	var tried []string
	for _, t := range all {
		if !t.State.Terminal() {
			open = append(open, t.Key)
		}
		if attempted(t) {
			tried = append(tried, t.ID)
		}
	}
	latest := map[string]task.Attempt{}
	if len(tried) > 0 {
		var rows []attemptRow
		if err := query(db, "attempt/latest", args{"ids": jsonOf(tried)}, &rows); err != nil {
			return nil, classify(ctx, err)
		}
		for _, r := range rows {
			a, err := r.attempt()
			if err != nil {
				return nil, err
			}
			latest[a.TaskID] = a
		}
	}
	waits := map[int64]viewRow{}
	if len(open) > 0 {
		var rows []viewRow
		if err := query(db, "read/views", args{"tasks": jsonOf(open)}, &rows); err != nil {
			return nil, classify(ctx, err)
		}
		for _, r := range rows {
			waits[r.Key] = r
		}
	}
	out := make([]View, len(all))
	for i, t := range all {
		v := &out[i]
		v.Phase, v.Parent, v.RunAt = task.Phase(t.State), t.Parent, t.RunAt
		if a, ok := latest[t.ID]; ok {
			v.Attempt, v.Progress = &a, a.Progress
		}
		row, ok := waits[t.Key]
		if !ok {
			continue
		}
		v.After = rawList(row.Needs)
		if t.State == task.Running {
			runningView(t, v)
			continue
		}
		queuedView(t, row, v)
		v.stopping = v.Wait == task.WaitLane && row.Stopping
	}
	return out, nil
}

// needs tells of each Task what it was to run after.
func (s *Store) needs(ctx context.Context, all []task.Task, views []View) error {
	at := map[int64]int{}
	keys := make([]int64, len(all))
	for i, t := range all {
		keys[i], at[t.Key] = t.Key, i
	}
	var rows []struct {
		Task      int64
		ID, RunIf string
	}
	if err := query(s.db.WithContext(ctx), "read/needs", args{"tasks": jsonOf(keys)}, &rows); err != nil {
		return classify(ctx, err)
	}
	for _, r := range rows {
		v := &views[at[r.Task]]
		v.Needs, v.RunIf = append(v.Needs, r.ID), RunIf(r.RunIf)
	}
	return nil
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
		v.Wait, v.WaitNote = task.WaitKindOff, value(row.SwitchedBy)
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
