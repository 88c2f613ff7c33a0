package httpapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

func freezes(verb, namespace string) auth.Access {
	return auth.Access{Verb: verb, Group: auth.Group, Resource: "freezes", Namespace: namespace}
}

// ListFreezes lists the freezes in force, or those that hold for one namespace.
func (s *server) ListFreezes(ctx context.Context, r ListFreezesRequestObject) (ListFreezesResponseObject, error) {
	ctx, known := plain(ctx)
	namespace := given(r.Params.Namespace)
	if err := s.gate.May(ctx, known.identity, freezes("list", namespace)); err != nil {
		return nil, err
	}
	all, err := s.freezer.Freezes(ctx)
	if err != nil {
		return nil, fmt.Errorf("list freezes: %w", err)
	}
	out := api.FreezeList{Items: []api.Freeze{}}
	for _, f := range all {
		if namespace == "" || f.Namespace == "" || f.Namespace == namespace {
			out.Items = append(out.Items, wireFreeze(f))
		}
	}
	return ListFreezes200JSONResponse(out), nil
}

// CreateFreeze lets nothing begin in some place for a while.
func (s *server) CreateFreeze(ctx context.Context, r CreateFreezeRequestObject) (CreateFreezeResponseObject, error) {
	ctx, known := plain(ctx)
	want := FreezeView{Namespace: r.Body.Namespace, Queue: r.Body.Queue, Actor: known.identity.User, Reason: r.Body.Reason}
	if err := s.gate.May(ctx, known.identity, freezes("create", want.Namespace)); err != nil {
		return nil, err
	}
	if want.Queue != "" {
		_, err := s.queue(ctx, want.Queue)
		if errors.Is(err, task.ErrNotFound) {
			err = &kinds.InvalidError{Fields: []kinds.FieldError{{Pointer: "/queue", Reason: "is no queue"}}}
		}
		if err != nil {
			return nil, err
		}
	}
	made, err := s.freezer.Freeze(ctx, want, time.Duration(r.Body.Seconds*float64(time.Second)))
	if err != nil {
		return nil, fmt.Errorf("freeze: %w", err)
	}
	return CreateFreeze201JSONResponse(wireFreeze(made)), nil
}

// EndFreeze ends a freeze before its time.
func (s *server) EndFreeze(ctx context.Context, r EndFreezeRequestObject) (EndFreezeResponseObject, error) {
	ctx, known := plain(ctx)
	all, err := s.freezer.Freezes(ctx) // there are few
	if err != nil {
		return nil, fmt.Errorf("read a freeze: %w", err)
	}
	for _, f := range all {
		if f.ID != r.ID {
			continue
		}
		if err := s.visible(ctx, known.identity, "freezes", "", f.Namespace); err != nil {
			return nil, err
		}
		if err := s.gate.May(ctx, known.identity, freezes("delete", f.Namespace)); err != nil {
			return nil, err
		}
		if err := s.freezer.Thaw(ctx, f.ID, known.identity.User); err != nil {
			return nil, fmt.Errorf("end a freeze: %w", err)
		}
		return EndFreeze204Response{}, nil
	}
	return nil, task.ErrNotFound
}

func wireFreeze(f FreezeView) api.Freeze {
	return api.Freeze{
		ID: f.ID, Namespace: f.Namespace, Queue: f.Queue, Actor: f.Actor, Reason: f.Reason,
		CreatedAt: f.CreatedAt.UTC(), ExpiresAt: f.ExpiresAt.UTC(),
	}
}
