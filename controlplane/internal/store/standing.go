package store

import (
	"context"
	"fmt"

	"slipway.dev/slipway/pkg/task"
)

// Lane reads what stands in a lane, and why its head does not run.
func (s *Store) Lane(ctx context.Context, key string) (Lane, error) {
	var rows []struct {
		Key, Queue, Namespace, Kind string
		Fence                       int64
		HolderID, HeadID            *string
		Queued                      int
	}
	if err := query(s.db.WithContext(ctx), "queue/lane", args{"lane": key}, &rows); err != nil {
		return Lane{}, classify(ctx, fmt.Errorf("read a lane: %w", err))
	}
	if len(rows) == 0 {
		return Lane{}, ErrNotFound
	}
	r := rows[0]
	l := Lane{
		Key: r.Key, Queue: r.Queue, Namespace: r.Namespace, Kind: r.Kind, Fence: r.Fence,
		Holder: value(r.HolderID), Head: value(r.HeadID), Queued: r.Queued,
	}
	const most = 100
	if err := query(s.db.WithContext(ctx), "queue/line", args{"lane": key, "limit": most}, &l.Line); err != nil {
		return Lane{}, classify(ctx, fmt.Errorf("read the line of a lane: %w", err))
	}
	if l.Head == "" {
		return l, nil
	}
	t, view, err := s.Task(ctx, l.Head)
	if err != nil {
		return Lane{}, err
	}
	if t.State == task.Queued { // it may have moved on meanwhile
		l.Wait, l.WaitNote, l.WaitsFor = view.Wait, view.WaitNote, view.HolderID
	}
	return l, nil
}

// Limits says what a namespace may use of each queue, and what it uses. Queued is counted to just above max_queued.
func (s *Store) Limits(ctx context.Context, namespace string) ([]Limit, error) {
	var rows []struct {
		Name                  string
		Cap, NsCap, MaxQueued int
		Queued, Running       int
	}
	if err := query(s.db.WithContext(ctx), "queue/limits", args{"namespace": namespace}, &rows); err != nil {
		return nil, classify(ctx, fmt.Errorf("read the limits of namespace %s: %w", namespace, err))
	}
	out := make([]Limit, len(rows))
	for i, r := range rows {
		out[i] = Limit{Queue: r.Name, Cap: r.Cap, NamespaceCap: r.NsCap, MaxQueued: r.MaxQueued, Queued: r.Queued, Running: r.Running}
	}
	return out, nil
}
