package app

import (
	"context"

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
		out[k.Kind] = httpapi.Switched{Executor: task.Executor(k.Executor), By: k.Actor, Reason: k.Reason, At: k.ChangedAt}
	}
	return out, known(err)
}

// SwitchKind sets where a kind runs.
func (s standing) SwitchKind(ctx context.Context, kind string, to httpapi.Switched) error {
	return known(s.store.SwitchKind(from(ctx), kind, to.Executor, to.By, to.Reason))
}

// Lane reads a lane.
func (s standing) Lane(ctx context.Context, key string) (httpapi.LaneView, error) {
	l, err := s.store.Lane(ctx, key)
	return httpapi.LaneView(l), known(err)
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
