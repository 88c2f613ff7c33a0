package httpapi

import (
	"context"
	"fmt"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// ListKinds lists the kinds with their defaults. Who may use which is asked at the submit.
func (s *server) ListKinds(ctx context.Context, _ ListKindsRequestObject) (ListKindsResponseObject, error) {
	ctx, _ = plain(ctx)
	switched, err := s.switches.KindSwitches(ctx)
	if err != nil {
		return nil, fmt.Errorf("list kind switches: %w", err)
	}
	out := api.KindList{Items: []api.Kind{}}
	for _, name := range s.kinds.Names() {
		if k, ok := s.kinds.Get(name); ok {
			out.Items = append(out.Items, wireKind(k, switched[name]))
		}
	}
	return ListKinds200JSONResponse(out), nil
}

// ChangeKind switches a kind.
func (s *server) ChangeKind(ctx context.Context, r ChangeKindRequestObject) (ChangeKindResponseObject, error) {
	ctx, known := plain(ctx)
	patch := auth.Access{Verb: "patch", Group: auth.Group, Resource: "kinds", Name: r.Kind}
	if err := s.gate.May(ctx, known.identity, patch); err != nil {
		return nil, err
	}
	k, ok := s.kinds.Get(r.Kind)
	if !ok {
		return nil, task.ErrNotFound
	}
	to := Switched{Executor: task.Executor(r.Body.Executor), Percent: int(r.Body.Percent), By: known.identity.User, Reason: r.Body.Reason}
	switch {
	case to.Executor == task.ExecutorInline && !k.InlineOK:
		return nil, &kinds.InvalidError{Fields: []kinds.FieldError{{Pointer: "/executor", Reason: "inline needs a handler of this kind in the control plane, and SLIPWAY_INLINE_KINDS to name it"}}}
	case to.Executor == task.ExecutorJob && k.Only != "":
		return nil, &kinds.InvalidError{Fields: []kinds.FieldError{{Pointer: "/executor", Reason: "job: this kind runs in the control plane's own process alone"}}}
	case to.Executor == "" && to.Percent != 0:
		return nil, &kinds.InvalidError{Fields: []kinds.FieldError{{Pointer: "/percent", Reason: "stands beside an executor; null takes the whole switch away"}}}
	}
	if err := s.switches.SwitchKind(ctx, k.Name, to); err != nil {
		return nil, fmt.Errorf("switch a kind: %w", err)
	}
	switched, err := s.switches.KindSwitches(ctx)
	if err != nil {
		return nil, fmt.Errorf("read a switched kind: %w", err)
	}
	return ChangeKind200JSONResponse(wireKind(k, switched[k.Name])), nil
}

const allLanes = 100 // percent

func wireKind(k kinds.Kind, by Switched) api.Kind {
	spec := k.Spec
	if spec.Retry.Attempts == 0 { // follows from whether it is idempotent
		spec.Retry.Attempts = 1
		if spec.Idempotent {
			spec.Retry.Attempts = task.DefaultRetry().Attempts
		}
	}
	out := api.Kind{
		Name: k.Name, Description: k.Description, Executor: string(k.Executor), Queue: k.Queue, Lane: k.Lane, Mode: api.Mode(k.Mode),
		OnConflict: api.OnConflict(k.OnConflict), Supersedes: k.Supersedes, Free: k.Free, AnyImage: k.AnyImage, Composite: k.Composite(), InlineOk: k.InlineOK, Params: k.Params, Secrets: k.Secrets,
		Spec: wireSpec(spec), Objects: wireObjects(spec.Objects),
	}
	if by.Executor != "" {
		if by.Percent == allLanes {
			out.Executor = string(by.Executor)
		}
		out.Switched = &api.KindSwitch{Executor: string(by.Executor), Percent: int32(by.Percent), By: by.By, Reason: by.Reason, At: by.At.UTC()}
	}
	return out
}
