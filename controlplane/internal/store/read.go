package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"slipway.dev/slipway/pkg/task"
)

func (s *Store) tasksByID(ctx context.Context, ids []string) (map[string]task.Task, error) {
	var rows []taskRow
	if err := query(s.db.WithContext(ctx), "read/tasks", args{"ids": jsonOf(ids)}, &rows); err != nil {
		return nil, classify(ctx, err)
	}
	found := make(map[string]task.Task, len(rows))
	for _, r := range rows {
		t, err := r.task()
		if err != nil {
			return nil, err
		}
		found[t.ID] = t
	}
	return found, nil
}

// OpenAttempt reads an Attempt with its Task and the database's time, whatever its state.
func (s *Store) OpenAttempt(ctx context.Context, attempt int64) (task.Task, task.Attempt, time.Time, error) {
	fail := func(err error) (task.Task, task.Attempt, time.Time, error) {
		return task.Task{}, task.Attempt{}, time.Time{}, classify(ctx, fmt.Errorf("read attempt %d: %w", attempt, err))
	}
	db := s.db.WithContext(ctx)
	a, err := readAttempt(db, attempt)
	if err != nil {
		return fail(err)
	}
	var rows []struct {
		Row taskRow `gorm:"embedded"`
		Now time.Time
	}
	if err := query(db, "read/task_of_attempt", args{"attempt": attempt}, &rows); err != nil {
		return fail(err)
	}
	if len(rows) == 0 {
		return fail(ErrNotFound)
	}
	t, err := rows[0].Row.task()
	if err != nil {
		return fail(err)
	}
	return t, a, rows[0].Now.UTC(), nil
}

func readAttempt(db *gorm.DB, attempt int64) (task.Attempt, error) {
	var rows []attemptRow
	if err := query(db, "attempt/read", args{"attempt": attempt}, &rows); err != nil {
		return task.Attempt{}, err
	}
	if len(rows) == 0 {
		return task.Attempt{}, ErrNotFound
	}
	return rows[0].attempt()
}

// TaskOf reads the Task of a key from Ended.
func (s *Store) TaskOf(ctx context.Context, key int64) (task.Task, error) {
	t, err := readTask(s.db.WithContext(ctx), key)
	if err != nil {
		return task.Task{}, classify(ctx, fmt.Errorf("read a task: %w", err))
	}
	return t, nil
}

// OpenAttempts names every Attempt that is not finished, or finished and not closed in the cluster.
func (s *Store) OpenAttempts(ctx context.Context) ([]int64, error) {
	var ids []int64
	err := s.db.WithContext(ctx).Model(&attemptRow{}).Where("closed_at IS NULL").Order("id").Pluck("id", &ids).Error
	if err != nil {
		return nil, classify(ctx, fmt.Errorf("list open attempts: %w", err))
	}
	return ids, nil
}

// LeasedOverdue gives Attempts that were claimed longer than age ago and are not launched, and whose next try is due.
func (s *Store) LeasedOverdue(ctx context.Context, age time.Duration, limit int) ([]Claimed, error) {
	var ids []int64
	a := args{"age": age.Seconds(), "limit": limit}
	if err := query(s.db.WithContext(ctx), "attempt/overdue", a, &ids); err != nil {
		return nil, classify(ctx, fmt.Errorf("list overdue launches: %w", err))
	}
	out := make([]Claimed, 0, len(ids))
	for _, id := range ids {
		t, a, _, err := s.OpenAttempt(ctx, id)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, Claimed{Task: t, Attempt: a})
	}
	return out, nil
}

// KnownAttempts says where Attempts stand; who is not in the answer does not exist. ErrUnavailable says that the database
// may have been restored since RaiseFence.
func (s *Store) KnownAttempts(ctx context.Context, ids []int64) (map[int64]AttemptStanding, error) {
	known := map[int64]AttemptStanding{}
	if len(ids) == 0 {
		return known, nil
	}
	var rows []struct {
		ID, Fence    int64
		Open, Closed bool
	}
	if err := query(s.db.WithContext(ctx), "attempt/known", args{"ids": jsonOf(ids)}, &rows); err != nil {
		return nil, classify(ctx, fmt.Errorf("look up attempts: %w", err))
	}
	for _, r := range rows {
		known[r.ID] = AttemptStanding{Open: r.Open, Closed: r.Closed, Fence: r.Fence}
	}
	return known, s.stillProven(ctx)
}

// Attempts lists the Attempts of a Task, the first one first.
func (s *Store) Attempts(ctx context.Context, id string) ([]task.Attempt, error) {
	const most = 1000
	newestFirst, err := s.attemptsOf(ctx, id, most)
	slices.Reverse(newestFirst)
	return newestFirst, err
}

func (s *Store) attemptsOf(ctx context.Context, id string, limit int) ([]task.Attempt, error) {
	if !validID(id) {
		return nil, ErrNotFound
	}
	var rows []attemptRow
	if err := query(s.db.WithContext(ctx), "attempt/of_task", args{"id": id, "limit": limit}, &rows); err != nil {
		return nil, classify(ctx, fmt.Errorf("list attempts of task %s: %w", id, err))
	}
	out := make([]task.Attempt, len(rows))
	for i, r := range rows {
		a, err := r.attempt()
		if err != nil {
			return nil, err
		}
		out[i] = a
	}
	return out, nil
}

// Children lists the children of a composite Task in the order in which they were given.
func (s *Store) Children(ctx context.Context, t task.Task) ([]task.Task, error) {
	var rows []taskRow
	if err := query(s.db.WithContext(ctx), "read/children", args{"parent": t.Key, "parent_id": t.ID}, &rows); err != nil {
		return nil, classify(ctx, fmt.Errorf("list children of task %s: %w", t.ID, err))
	}
	out := make([]task.Task, len(rows))
	for i, r := range rows {
		c, err := r.task()
		if err != nil {
			return nil, err
		}
		out[i] = c
	}
	return out, nil
}

// Events lists a Task's history after a position ("" from the start). Only what is settled is shown: an event of a
// transaction older than one that still runs waits, so that a reader who resumes at a position misses none.
func (s *Store) Events(ctx context.Context, id, after string, limit int) ([]task.Event, error) {
	xid, last, err := position(after)
	if err != nil {
		return nil, err
	}
	if !validID(id) {
		return nil, ErrNotFound
	}
	var rows []struct {
		Position, TaskID string
		Attempt          int
		Type, Actor      string
		At               time.Time
		Data             []byte
	}
	a := args{"id": id, "xid": strconv.FormatUint(xid, 10), "after": last, "limit": limit}
	if err := query(s.db.WithContext(ctx), "read/events", a, &rows); err != nil {
		return nil, classify(ctx, fmt.Errorf("list events of task %s: %w", id, err))
	}
	out := make([]task.Event, len(rows))
	for i, r := range rows {
		out[i] = task.Event{
			Position: r.Position, TaskID: r.TaskID, Attempt: r.Attempt, Type: r.Type, Actor: r.Actor, At: r.At.UTC(), Data: r.Data,
		}
	}
	return out, nil
}

func position(text string) (xid uint64, id int64, err error) {
	if text == "" {
		return 0, 0, nil
	}
	left, right, ok := strings.Cut(text, "-")
	if ok {
		if xid, err = strconv.ParseUint(left, 10, 64); err == nil {
			id, err = strconv.ParseInt(right, 10, 64)
		}
	}
	if !ok || err != nil {
		return 0, 0, FieldErrors{{"/after", "is not a position of the event stream"}}
	}
	return xid, id, nil
}

// rawList reads a JSON array of strings that a statement built.
func rawList(raw []byte) []string {
	var out []string
	if len(raw) > 0 && json.Unmarshal(raw, &out) != nil {
		return nil
	}
	return out
}
