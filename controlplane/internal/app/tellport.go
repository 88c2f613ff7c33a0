package app

import (
	"context"
	"log/slog"

	"slipway.dev/slipway/controlplane/internal/kube"
	"slipway.dev/slipway/controlplane/internal/loop"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/controlplane/internal/tell"
	"slipway.dev/slipway/pkg/task"
)

// eventWriter is the cluster as tell wants it.
type eventWriter struct{ cluster wholeCluster }

// WriteEvent writes an Event.
func (w eventWriter) WriteEvent(ctx context.Context, n tell.Notice) error {
	return w.cluster.WriteEvent(ctx, kube.ObjectEvent(n))
}

// teller hears of steps.
type teller interface {
	Tell(t task.Task, step task.Step, attempt int)
}

// ends tells of Tasks that ended without an Attempt: canceled or failed while they waited, or by their children.
type ends struct {
	store *store.Store
	tell  *tell.Teller
	log   *slog.Logger
}

// Run tells until ctx is done.
func (e ends) Run(ctx context.Context) error {
	return loop.Together(ctx, e.tell.Run, func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case key := <-e.store.Ended():
				e.one(ctx, key)
			}
		}
	})
}

func (e ends) one(ctx context.Context, key int64) {
	t, err := e.store.TaskOf(ctx, key)
	switch {
	case err != nil:
		e.log.DebugContext(ctx, "read a task that has ended", "error", err)
	case t.State.Terminal():
		e.tell.Tell(t, task.StepOf(t.State), t.Attempts)
	}
}
