package app

import (
	"context"
	"encoding/json"
	"time"

	"slipway.dev/slipway/controlplane/internal/dispatch"
	"slipway.dev/slipway/controlplane/internal/httpapi"
	"slipway.dev/slipway/controlplane/internal/inline"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/handler"
	"slipway.dev/slipway/pkg/task"
	"slipway.dev/slipway/runner/kinds/command"
)

// handlers are those that the control plane has inside, by kind.
var handlers = map[string]handler.Handler{"command.run": command.Run}

// inlineBooks is the store as the inline places want it. The holder stands where a pod's uid would.
type inlineBooks struct {
	store *store.Store
	tell  teller
}

// Start gives an Attempt to the first process that asks.
func (b inlineBooks) Start(ctx context.Context, h inline.Hold) (task.Task, task.Attempt, error) {
	t, a, err := b.store.Start(ctx, store.StartRequest{Attempt: h.Attempt, Fence: h.Fence, PodUID: h.Holder, Inline: true})
	if err == nil {
		b.tell.Tell(t, task.StepStarted, a.Number)
	}
	return t, a, known(err)
}

// Beat stores a heartbeat.
func (b inlineBooks) Beat(ctx context.Context, h inline.Hold, progress json.RawMessage, hold <-chan struct{}) (bool, time.Duration, error) {
	hear, err := b.store.Beat(ctx, store.BeatRequest{Attempt: h.Attempt, Fence: h.Fence, PodUID: h.Holder, Progress: progress, Hold: hold})
	return hear.Cancel, hear.Left, known(err)
}

// Report stores how a handler ended.
func (b inlineBooks) Report(ctx context.Context, h inline.Hold, r task.Report, tail []byte) error {
	return known(b.store.Report(ctx, store.ReportRequest{Attempt: h.Attempt, Fence: h.Fence, PodUID: h.Holder, Report: r, Tail: tail}))
}

// Outlived keeps that earlier processes run nothing any more.
func (b inlineBooks) Outlived(ctx context.Context, ours, but string) error {
	return known(b.store.Outlived(ctx, ours, but))
}

// until is a part that hears of the end as soon as the process does, whatever ends before it, and ends when all parts do.
func until(process context.Context, run func(context.Context) error) func(context.Context) error {
	return func(own context.Context) error {
		early, cancel := context.WithCancel(own)
		defer cancel()
		defer context.AfterFunc(process, cancel)()
		if err := run(early); err != nil {
			return err
		}
		<-own.Done()
		return nil
	}
}

// here is what keeps this replica from launching what is next in its line.
type here struct {
	dispatcher *dispatch.Dispatcher
	pool       *inline.Pool
}

// complete names it in the view of a Task that waits for nothing else.
func (h here) complete(t task.Task, v httpapi.View) httpapi.View {
	if h.dispatcher == nil || v.Wait != task.WaitDispatch {
		return v
	}
	why, paused := h.dispatcher.Paused(t.Namespace)
	full := t.Spec.Inline && h.pool.Room() == 0
	switch {
	case paused && full && h.dispatcher.Breaker().Open():
		v.Wait, v.WaitNote = task.WaitCap, "no Job can be launched, and every inline place is taken: "+why
	case paused:
		v.Wait, v.WaitNote = task.WaitLaunch, "launches are paused: "+why
	case full && t.Executor == task.ExecutorInline:
		v.Wait, v.WaitNote = task.WaitCap, "every inline place is taken"
	}
	return v
}
