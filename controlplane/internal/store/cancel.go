package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorm.io/gorm"

	"slipway.dev/slipway/pkg/task"
)

// Cancel ends a queued Task at once and asks a running one to stop; its children follow, one lane at a time. It gives
// the Task as it is then. Asking again changes nothing; a Task in a terminal state gives an *EndedError.
func (s *Store) Cancel(ctx context.Context, id, by, note string) (task.Task, error) {
	if !validID(id) {
		return task.Task{}, ErrNotFound
	}
	var e effects
	var after task.Task
	run := func(tx *gorm.DB) error {
		e = effects{}
		where, err := findTask(tx, "id = ?", id)
		if err != nil {
			return err
		}
		if st := task.State(where.State); st.Terminal() {
			return &EndedError{ID: id, State: st}
		}
		was, err := cancelOne(tx, &e, where, cancelAsk{by: by, note: note})
		if err != nil {
			return err
		}
		if after, err = readTask(tx, where.Key); err != nil || was.CancelAt != nil {
			return err
		}
		return audit{
			actor: by, verb: "cancel", resource: "tasks", name: id, namespace: where.Namespace,
			before: facts{"state": was.State}, after: facts{"state": after.State, "note": clean(note, maxNote)},
		}.write(tx)
	}
	err := s.settled(ctx, run, func(ctx context.Context) (asked bool, err error) {
		after, asked, err = s.canceled(ctx, id)
		return asked, err
	})
	var ended *EndedError
	if errors.As(err, &ended) || errors.Is(err, ErrNotFound) {
		return task.Task{}, err
	}
	if err != nil {
		return task.Task{}, fmt.Errorf("cancel task %s: %w", id, err)
	}
	s.announce(e)
	return after, nil
}

// canceled says, after a commit that nobody answered, whether a Task is canceled or asked to stop.
func (s *Store) canceled(ctx context.Context, id string) (t task.Task, asked bool, err error) {
	found, err := s.tasksByID(ctx, []string{id})
	t, there := found[id]
	return t, there && (t.State == task.Canceled || !t.CancelAt.IsZero()), err
}

// cancelAsk is who cancels and why; why is empty for a plain cancel.
type cancelAsk struct {
	by, note string
	why      task.StopReason
}

type cancelRow struct {
	Key      int64
	ID       string
	State    string
	Children int
	CancelAt *time.Time
}

// cancelOne locks the lane of a Task and cancels it there, whatever state it is in by then. It gives what was there.
func cancelOne(tx *gorm.DB, e *effects, where whereRow, ask cancelAsk) (row cancelRow, err error) {
	lane, err := lockLaneOf(tx, where)
	if err != nil {
		return row, err
	}
	if err := query(tx, "cancel/read", args{"task": where.Key}, &row); err != nil {
		return row, err
	}
	return row, cancelLocked(tx, e, lane, row, ask)
}

func cancelLocked(tx *gorm.DB, e *effects, lane *laneRow, row cancelRow, ask cancelAsk) error {
	if ask.why == task.StopNone {
		ask.why = task.StopCancel
	}
	switch st := task.State(row.State); {
	case st.Terminal():
		return &EndedError{ID: row.ID, State: st}
	case st == task.Queued:
		reason := task.ReasonCanceled
		if ask.why == task.StopSuperseded {
			reason = task.ReasonSuperseded
		}
		how := ending{state: task.Canceled, outcome: task.OutcomeCanceled, reason: reason, message: ask.note, by: ask.by}
		return endQueuedOne(tx, e, lane, row.Key, how)
	case row.CancelAt == nil:
		return askStop(tx, e, stopAsk{task: row.Key, why: ask.why, by: ask.by, note: ask.note})
	}
	return nil
}
