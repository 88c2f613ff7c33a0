package app

import (
	"context"
	"time"

	"slipway.dev/slipway/controlplane/internal/httpapi"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

// standing is the store as the routes of queues, kinds, lanes and limits want it.
type standing struct{ store *store.Store }

// Queues lists the queues.
func (s standing) Queues(ctx context.Context) ([]httpapi.QueueView, error) {
	all, err := s.store.Queues(ctx)
	out := make([]httpapi.QueueView, len(all))
	for i, q := range all {
		out[i] = httpapi.QueueView(q)
	}
	return out, known(err)
}

// ChangeQueue changes a queue.
func (s standing) ChangeQueue(ctx context.Context, c httpapi.QueueChange) error {
	return known(s.store.ChangeQueue(from(ctx), c.Name, c.Verb, c.By, func(q *store.Queue) {
		now := httpapi.QueueView(*q)
		c.Do(&now)
		*q = store.Queue(now)
	}))
}

// KindSwitches reads where kinds run.
func (s standing) KindSwitches(ctx context.Context) (map[string]httpapi.Switched, error) {
	all, err := s.store.KindSwitches(ctx)
	out := make(map[string]httpapi.Switched, len(all))
	for _, k := range all {
		out[k.Kind] = httpapi.Switched{Executor: task.Executor(k.Executor), Percent: k.Percent, By: k.Actor, Reason: k.Reason, At: k.ChangedAt}
	}
	return out, known(err)
}

// SwitchKind sets where a kind runs.
func (s standing) SwitchKind(ctx context.Context, kind string, to httpapi.Switched) error {
	return known(s.store.SwitchKind(from(ctx), store.KindSwitch{
		Kind: kind, Executor: string(to.Executor), Percent: to.Percent, Actor: to.By, Reason: to.Reason,
	}))
}

// Lane reads a lane.
func (s standing) Lane(ctx context.Context, key string) (httpapi.LaneView, error) {
	l, err := s.store.Lane(ctx, key)
	out := httpapi.LaneView{
		Key: l.Key, Queue: l.Queue, Namespace: l.Namespace, Kind: l.Kind, Fence: l.Fence, Holder: l.Holder, Head: l.Head,
		Queued: l.Queued, Wait: l.Wait, WaitNote: l.WaitNote, WaitsFor: l.WaitsFor, Line: make([]httpapi.PlaceView, len(l.Line)),
	}
	for i, p := range l.Line {
		out.Line[i] = httpapi.PlaceView(p)
	}
	return out, known(err)
}

// CheckLanes compares lanes with their Tasks.
func (s standing) CheckLanes(ctx context.Context, after string, limit int) (httpapi.CheckView, error) {
	c, err := s.store.CheckLanes(ctx, after, limit)
	return httpapi.CheckView{Checked: c.Checked, Differences: differences(c.Differences), Next: c.Next}, known(err)
}

// RepairLane sets right what a lane shows.
func (s standing) RepairLane(ctx context.Context, key, by string) ([]httpapi.DifferenceView, error) {
	all, err := s.store.RepairLane(from(ctx), key, by)
	return differences(all), known(err)
}

func differences(all []store.LaneDifference) []httpapi.DifferenceView {
	out := make([]httpapi.DifferenceView, len(all))
	for i, d := range all {
		out[i] = httpapi.DifferenceView(d)
	}
	return out
}

// ForceRelease takes a lane from its holder.
func (s standing) ForceRelease(ctx context.Context, key, by, reason string) (httpapi.Released, error) {
	r, err := s.store.ForceRelease(from(ctx), key, by, reason)
	return httpapi.Released(r), edgeError(err)
}

// Freezes lists the freezes in force.
func (s standing) Freezes(ctx context.Context) ([]httpapi.FreezeView, error) {
	all, err := s.store.Freezes(ctx)
	out := make([]httpapi.FreezeView, len(all))
	for i, f := range all {
		out[i] = httpapi.FreezeView(f)
	}
	return out, known(err)
}

// Freeze lets nothing begin where it holds.
func (s standing) Freeze(ctx context.Context, f httpapi.FreezeView, d time.Duration) (httpapi.FreezeView, error) {
	made, err := s.store.Freeze(from(ctx), store.Freeze(f), d)
	return httpapi.FreezeView(made), known(err)
}

// Thaw ends a freeze before its time.
func (s standing) Thaw(ctx context.Context, id int64, by string) error {
	return known(s.store.Thaw(from(ctx), id, by))
}

// StorageLimits reads limits of storage.
func (s standing) StorageLimits(ctx context.Context, namespaces []string) (map[string]httpapi.StorageBound, error) {
	all, err := s.store.StorageLimits(ctx, namespaces)
	out := make(map[string]httpapi.StorageBound, len(all))
	for namespace, l := range all {
		out[namespace] = httpapi.StorageBound(l)
	}
	return out, known(err)
}

// Reservations lists what the open Tasks of a namespace have reserved.
func (s standing) Reservations(ctx context.Context, namespace string) ([]httpapi.ReservationView, error) {
	all, err := s.store.Reservations(ctx, namespace)
	out := make([]httpapi.ReservationView, len(all))
	for i, r := range all {
		out[i] = httpapi.ReservationView(r)
	}
	return out, known(err)
}

// SetStorageLimit sets the limit of storage of a namespace.
func (s standing) SetStorageLimit(ctx context.Context, namespace string, bytes *int64, by string) error {
	return known(s.store.SetStorageLimit(from(ctx), namespace, bytes, by))
}

// Limits reads the limits of a namespace.
func (s standing) Limits(ctx context.Context, namespace string) ([]httpapi.LimitView, error) {
	all, err := s.store.Limits(ctx, namespace)
	out := make([]httpapi.LimitView, len(all))
	for i, l := range all {
		out[i] = httpapi.LimitView(l)
	}
	return out, known(err)
}
