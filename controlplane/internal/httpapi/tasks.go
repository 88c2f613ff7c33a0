package httpapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// GetTask reads one Task.
func (s *server) GetTask(ctx context.Context, r GetTaskRequestObject) (GetTaskResponseObject, error) {
	ctx, known := plain(ctx)
	t, view, err := s.seen(ctx, known.identity, r.ID)
	if err != nil {
		return nil, err
	}
	out, err := s.shown(ctx, known.identity, t, view)
	if err == nil && t.State == task.Queued {
		out.Estimate = s.estimate(ctx, t, view)
	}
	return GetTask200JSONResponse(out), err
}

// estimate says when a queued Task may start. The Task is shown without one where that cannot be read.
func (s *server) estimate(ctx context.Context, t task.Task, v View) *api.Estimate {
	f, err := s.finder.Foresee(ctx, t, v)
	if err != nil {
		s.log.WarnContext(ctx, "estimate a start", "task", t.ID, "error", err)
		return nil
	}
	out := &api.Estimate{Unknown: f.Unknown, Ahead: int32(f.Ahead), Samples: int32(f.Samples)}
	if f.Unknown == "" {
		out.P50, out.P90 = whole(f.P50), whole(f.P90)
	}
	return out
}

// whole is a duration in seconds and milliseconds.
func whole(d time.Duration) *float64 {
	seconds := float64(d.Milliseconds()) / 1000
	return &seconds
}

// seen reads a Task that the caller may get. One that he may not is as good as absent.
func (s *server) seen(ctx context.Context, caller auth.Identity, id string) (task.Task, View, error) {
	t, view, err := s.finder.Find(ctx, id)
	if err != nil {
		return task.Task{}, View{}, fmt.Errorf("read task: %w", err)
	}
	err = s.gate.May(ctx, caller, tasks("get", "", t.Namespace))
	var forbidden *auth.ForbiddenError
	if errors.As(err, &forbidden) {
		err = task.ErrNotFound
	}
	if err != nil {
		return task.Task{}, View{}, err
	}
	return t, view, nil
}

// ListTasks lists Tasks, newest first.
func (s *server) ListTasks(ctx context.Context, r ListTasksRequestObject) (ListTasksResponseObject, error) {
	ctx, known := plain(ctx)
	p := r.Params
	filter := Filter{
		Namespace: given(p.Namespace), Kind: given(p.Kind), Queue: given(p.Queue), Lane: given(p.Lane),
		State: task.State(given(p.State)), Reason: task.Reason(given(p.Reason)), Cursor: given(p.Cursor),
		CreatedAfter: given(p.CreatedAfter), CreatedBefore: given(p.CreatedBefore),
		EndedAfter: given(p.EndedAfter), EndedBefore: given(p.EndedBefore), Limit: limit(p.Limit),
	}
	if err := s.gate.May(ctx, known.identity, tasks("list", "", filter.Namespace)); err != nil {
		return nil, err
	}
	for _, label := range given(p.Label) {
		key, value, _ := strings.Cut(label, "=")
		if old, twice := filter.Labels[key]; twice && old != value {
			return ListTasks200JSONResponse(api.TaskPage{Items: []api.Task{}}), nil // nothing carries both
		}
		if filter.Labels == nil {
			filter.Labels = map[string]string{}
		}
		filter.Labels[key] = value
	}
	page, err := s.finder.List(ctx, filter)
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	out := api.TaskPage{Items: make([]api.Task, len(page.Items)), Next: page.Next}
	for i, item := range page.Items {
		out.Items[i] = wireTask(item.Task, item.View)
	}
	return ListTasks200JSONResponse(out), nil
}

const defaultLimit = 50

func limit(asked *int32) int {
	if asked == nil {
		return defaultLimit
	}
	return int(*asked)
}

// given is what a parameter says, or nothing.
func given[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// CancelTask asks for a Task to stop.
func (s *server) CancelTask(ctx context.Context, r CancelTaskRequestObject) (CancelTaskResponseObject, error) {
	ctx, known := plain(ctx)
	t, _, err := s.seen(ctx, known.identity, r.ID)
	if err != nil {
		return nil, err
	}
	if err := s.gate.May(ctx, known.identity, tasks("create", "cancel", t.Namespace)); err != nil {
		return nil, err
	}
	note := ""
	if r.Body != nil {
		note = r.Body.Note
	}
	_, err = s.canceler.Cancel(ctx, t.ID, known.identity.User, note)
	var ended *EndedError
	if errors.As(err, &ended) && ended.State == task.Canceled {
		err = nil // asking again changes nothing
	}
	if err != nil {
		return nil, fmt.Errorf("cancel task: %w", err)
	}
	t, view, err := s.finder.Find(ctx, t.ID)
	if err != nil {
		return nil, fmt.Errorf("read the canceled task: %w", err)
	}
	out, err := s.shown(ctx, known.identity, t, view)
	if err != nil {
		return nil, err
	}
	if t.State.Terminal() {
		return CancelTask200JSONResponse(out), nil
	}
	return CancelTask202JSONResponse(out), nil
}

// ListAttempts lists the Attempts of a Task.
func (s *server) ListAttempts(ctx context.Context, r ListAttemptsRequestObject) (ListAttemptsResponseObject, error) {
	ctx, known := plain(ctx)
	t, _, err := s.seen(ctx, known.identity, r.ID)
	if err != nil {
		return nil, err
	}
	attempts, err := s.history.Attempts(ctx, t.ID)
	if err != nil {
		return nil, fmt.Errorf("list attempts: %w", err)
	}
	out := api.AttemptList{Items: make([]api.Attempt, len(attempts))}
	for i, a := range attempts {
		out.Items[i] = wireAttempt(a)
	}
	return ListAttempts200JSONResponse(out), nil
}

// ListEvents lists the history of a Task.
func (s *server) ListEvents(ctx context.Context, r ListEventsRequestObject) (ListEventsResponseObject, error) {
	ctx, known := plain(ctx)
	t, _, err := s.seen(ctx, known.identity, r.ID)
	if err != nil {
		return nil, err
	}
	events, err := s.history.Events(ctx, t.ID, given(r.Params.After), limit(r.Params.Limit))
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	out := api.EventPage{Items: make([]api.Event, len(events))}
	for i, e := range events {
		out.Items[i] = api.Event{
			Position: e.Position, Task: t.ID, Attempt: int32(e.Attempt), Type: e.Type, Actor: e.Actor, At: e.At.UTC(),
			Data: e.Data,
		}
		out.Next = e.Position
	}
	return ListEvents200JSONResponse(out), nil
}
