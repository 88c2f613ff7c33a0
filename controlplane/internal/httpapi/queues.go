package httpapi

import (
	"context"
	"errors"
	"fmt"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// visible asks for the right to get something. Without it the thing is as good as absent.
func (s *server) visible(ctx context.Context, caller auth.Identity, resource, name, namespace string) error {
	err := s.gate.May(ctx, caller, auth.Access{Verb: "get", Group: auth.Group, Resource: resource, Name: name, Namespace: namespace})
	var forbidden *auth.ForbiddenError
	if errors.As(err, &forbidden) {
		return task.ErrNotFound
	}
	return err
}

// ListQueues lists the queues.
func (s *server) ListQueues(ctx context.Context, _ ListQueuesRequestObject) (ListQueuesResponseObject, error) {
	ctx, known := plain(ctx)
	if err := s.gate.May(ctx, known.identity, auth.Access{Verb: "list", Group: auth.Group, Resource: "queues"}); err != nil {
		return nil, err
	}
	all, err := s.queues.Queues(ctx)
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	out := api.QueueList{Items: make([]api.Queue, len(all))}
	for i, q := range all {
		out.Items[i] = wireQueue(q)
	}
	return ListQueues200JSONResponse(out), nil
}

// GetQueue reads one queue.
func (s *server) GetQueue(ctx context.Context, r GetQueueRequestObject) (GetQueueResponseObject, error) {
	ctx, known := plain(ctx)
	if err := s.visible(ctx, known.identity, "queues", r.Queue, ""); err != nil {
		return nil, err
	}
	q, err := s.queue(ctx, r.Queue)
	return GetQueue200JSONResponse(q), err
}

func (s *server) queue(ctx context.Context, name string) (api.Queue, error) {
	all, err := s.queues.Queues(ctx) // there are few
	if err != nil {
		return api.Queue{}, fmt.Errorf("read a queue: %w", err)
	}
	for _, q := range all {
		if q.Name == name {
			return wireQueue(q), nil
		}
	}
	return api.Queue{}, task.ErrNotFound
}

func wireQueue(q QueueView) api.Queue {
	out := api.Queue{
		Name: q.Name, Cap: int32(q.Cap), NsCap: int32(q.NamespaceCap), MaxQueued: int32(q.MaxQueued), Burst: q.Burst,
		Paused: q.Paused, Draining: q.Draining, Note: q.Note, Queued: int32(q.Queued), Running: int32(q.Running),
	}
	if q.Rate > 0 {
		out.Rate = &q.Rate
	}
	return out
}

// changeQueue changes a queue that the caller may see and change, and reads it again.
func (s *server) changeQueue(ctx context.Context, name, verb string, change func(*QueueView)) (api.Queue, error) {
	ctx, known := plain(ctx)
	if err := s.visible(ctx, known.identity, "queues", name, ""); err != nil {
		return api.Queue{}, err
	}
	patch := auth.Access{Verb: "patch", Group: auth.Group, Resource: "queues", Name: name}
	if err := s.gate.May(ctx, known.identity, patch); err != nil {
		return api.Queue{}, err
	}
	if err := s.queues.ChangeQueue(ctx, QueueChange{Name: name, Verb: verb, By: known.identity.User, Do: change}); err != nil {
		return api.Queue{}, fmt.Errorf("change a queue: %w", err)
	}
	return s.queue(ctx, name)
}

// Defaults of a queue, as the first migration has them.
const (
	defaultCap       = 50
	defaultNsCap     = 20
	defaultMaxQueued = 10_000
	defaultBurst     = 1
)

// ChangeQueue changes the limits of a queue: what is absent stays, null sets a field back.
func (s *server) ChangeQueue(ctx context.Context, r ChangeQueueRequestObject) (ChangeQueueResponseObject, error) {
	_, known := plain(ctx)
	body, _ := known.body.(map[string]any)
	q, err := s.changeQueue(ctx, r.Queue, "patch", func(q *QueueView) {
		setBack(body, "cap", &q.Cap, int(r.Body.Cap), defaultCap)
		setBack(body, "ns_cap", &q.NamespaceCap, int(r.Body.NsCap), defaultNsCap)
		setBack(body, "max_queued", &q.MaxQueued, int(r.Body.MaxQueued), defaultMaxQueued)
		setBack(body, "rate", &q.Rate, r.Body.Rate, 0)
		setBack(body, "burst", &q.Burst, r.Body.Burst, defaultBurst)
	})
	return ChangeQueue200JSONResponse(q), err
}

// setBack sets a field that a body names: to its value, or where that is null to the default.
func setBack[T any](body map[string]any, name string, to *T, value, usual T) {
	switch given, named := body[name]; {
	case !named:
	case given == nil:
		*to = usual
	default:
		*to = value
	}
}

// PauseQueue lets nothing of a queue begin.
func (s *server) PauseQueue(ctx context.Context, r PauseQueueRequestObject) (PauseQueueResponseObject, error) {
	q, err := s.changeQueue(ctx, r.Queue, "pause", func(q *QueueView) { q.Paused, q.Note = true, note(r.Body) })
	return PauseQueue200JSONResponse(q), err
}

// DrainQueue lets nothing of a queue begin, for a shutdown.
func (s *server) DrainQueue(ctx context.Context, r DrainQueueRequestObject) (DrainQueueResponseObject, error) {
	q, err := s.changeQueue(ctx, r.Queue, "drain", func(q *QueueView) { q.Draining, q.Note = true, note(r.Body) })
	return DrainQueue200JSONResponse(q), err
}

// ResumeQueue ends pause and drain.
func (s *server) ResumeQueue(ctx context.Context, r ResumeQueueRequestObject) (ResumeQueueResponseObject, error) {
	q, err := s.changeQueue(ctx, r.Queue, "resume", func(q *QueueView) { q.Paused, q.Draining, q.Note = false, false, note(r.Body) })
	return ResumeQueue200JSONResponse(q), err
}

func note(body *api.StopQueue) string {
	if body == nil {
		return ""
	}
	return body.Note
}

// GetLimits reads what a namespace may use, and what it uses.
func (s *server) GetLimits(ctx context.Context, r GetLimitsRequestObject) (GetLimitsResponseObject, error) {
	ctx, known := plain(ctx)
	if err := s.visible(ctx, known.identity, "limits", "", r.Namespace); err != nil {
		return nil, err
	}
	out, err := s.limits(ctx, r.Namespace)
	return GetLimits200JSONResponse(out), err
}

func (s *server) limits(ctx context.Context, namespace string) (api.LimitList, error) {
	all, err := s.standing.Limits(ctx, namespace)
	if err != nil {
		return api.LimitList{}, fmt.Errorf("read limits: %w", err)
	}
	out := api.LimitList{Namespace: namespace, Items: make([]api.QueueLimit, len(all))}
	for i, l := range all {
		out.Items[i] = api.QueueLimit{
			Queue: l.Queue, Cap: int32(l.Cap), NsCap: int32(l.NamespaceCap), MaxQueued: int32(l.MaxQueued),
			Queued: int32(l.Queued), Running: int32(l.Running),
		}
	}
	if out.Storage, err = s.storageLimit(ctx, namespace); err != nil {
		return api.LimitList{}, fmt.Errorf("read the limit of storage: %w", err)
	}
	return out, nil
}
