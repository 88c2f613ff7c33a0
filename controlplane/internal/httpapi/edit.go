package httpapi

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// touched finds a Task that the caller may change, with the given right on tasks.
func (s *server) touched(ctx context.Context, known *call, id, verb string) (task.Task, error) {
	t, _, err := s.seen(ctx, known.identity, id)
	if err != nil {
		return task.Task{}, err
	}
	return t, s.gate.May(ctx, known.identity, tasks(verb, "", t.Namespace))
}

// HoldTask keeps a queued Task from running.
func (s *server) HoldTask(ctx context.Context, r HoldTaskRequestObject) (HoldTaskResponseObject, error) {
	ctx, known := plain(ctx)
	t, err := s.touched(ctx, known, r.ID, "patch")
	if err != nil {
		return nil, err
	}
	reason := ""
	if r.Body != nil {
		reason = r.Body.Reason
	}
	if err := s.holder.Hold(ctx, t.ID, known.identity.User, reason); err != nil {
		return nil, fmt.Errorf("hold task: %w", err)
	}
	now, err := s.afterwards(ctx, t.ID)
	return HoldTask200JSONResponse(now), err
}

// UnholdTask lets a held Task run.
func (s *server) UnholdTask(ctx context.Context, r UnholdTaskRequestObject) (UnholdTaskResponseObject, error) {
	ctx, known := plain(ctx)
	t, err := s.touched(ctx, known, r.ID, "patch")
	if err != nil {
		return nil, err
	}
	if err := s.holder.Unhold(ctx, t.ID, known.identity.User); err != nil {
		return nil, fmt.Errorf("unhold task: %w", err)
	}
	now, err := s.afterwards(ctx, t.ID)
	return UnholdTask200JSONResponse(now), err
}

// afterwards is a Task as it is once it was changed.
func (s *server) afterwards(ctx context.Context, id string) (api.Task, error) {
	t, view, err := s.finder.Find(ctx, id)
	if err != nil {
		return api.Task{}, fmt.Errorf("read the changed task: %w", err)
	}
	return wireTask(t, view), nil
}

// ChangeTask changes a queued Task. What is absent stays, null sets a field back; only the parsed body tells the two
// apart.
func (s *server) ChangeTask(ctx context.Context, r ChangeTaskRequestObject) (ChangeTaskResponseObject, error) {
	ctx, known := plain(ctx)
	t, err := s.touched(ctx, known, r.ID, "patch")
	if err != nil {
		return nil, err
	}
	var c Change
	body, _ := known.body.(map[string]any)
	if name, given := body["class"]; given {
		class := task.Normal
		if text, ok := name.(string); ok {
			class, _ = task.ParseClass(text) // one of the document's
		}
		c.Class = &class
	}
	if at, given := body["run_at"]; given {
		if at != nil && r.Body.RunAt.IsZero() {
			return nil, &kinds.InvalidError{Fields: []kinds.FieldError{{Pointer: "/run_at", Reason: "is no instant to wait for; null is now"}}}
		}
		c.Move, c.RunAt = true, r.Body.RunAt.Truncate(time.Microsecond)
	}
	if err := s.editor.Change(ctx, t.ID, known.identity.User, c); err != nil {
		return nil, fmt.Errorf("change task: %w", err)
	}
	now, err := s.afterwards(ctx, t.ID)
	return ChangeTask200JSONResponse(now), err
}

// DeleteTask deletes an ended Task.
func (s *server) DeleteTask(ctx context.Context, r DeleteTaskRequestObject) (DeleteTaskResponseObject, error) {
	ctx, known := plain(ctx)
	t, err := s.touched(ctx, known, r.ID, "delete")
	if err != nil {
		return nil, err
	}
	if err := s.editor.Delete(ctx, t.ID, known.identity.User); err != nil {
		return nil, fmt.Errorf("delete task: %w", err)
	}
	return DeleteTask204Response{}, nil
}

// RetryTask submits an ended Task again, by the rules and rights of today.
func (s *server) RetryTask(ctx context.Context, r RetryTaskRequestObject) (RetryTaskResponseObject, error) {
	ctx, known := plain(ctx)
	old, _, err := s.seen(ctx, known.identity, r.ID)
	if err != nil {
		return nil, err
	}
	if err := s.gate.May(ctx, known.identity, tasks("create", "retry", old.Namespace)); err != nil {
		return nil, err
	}
	in := intake{
		caller: known.identity, tasks: []api.SubmitTask{{Kind: old.Kind, Namespace: old.Namespace}}, at: func(int) string { return "" },
		key: given(r.Params.IdempotencyKey),
	}
	if in.key != "" {
		in.hash = fingerprint(retryRoute, old.ID)
	}
	if err := s.mayCreate(ctx, in); err != nil {
		return nil, err
	}
	if !old.State.Terminal() {
		return nil, &HinderedError{Task: old.ID, State: old.State, Reason: "not_ended"}
	}
	b, invalid := s.buildRetry(in, old)
	done, err := s.accept(ctx, in, b, invalid)
	if err != nil {
		return nil, err
	}
	made := done[0]
	now, err := s.afterwards(ctx, made.Task.ID)
	if err != nil {
		return nil, err
	}
	here, yes := "/v1/tasks/"+made.Task.ID, "true"
	headers := RetryTask200ResponseHeaders{Location: here}
	switch made.Result {
	case api.ResultRepeated:
		headers.IdempotentReplayed = &yes
	case api.ResultCoalesced:
		headers.SlipwayCoalesced = &yes
	case api.ResultCreated:
		return RetryTask201JSONResponse{Body: now, Headers: RetryTask201ResponseHeaders{Location: here}}, nil
	}
	return RetryTask200JSONResponse{Body: now, Headers: headers}, nil
}

const retryRoute = "POST /v1/tasks/{id}/retry"

// buildRetry lays what a Task was over its kind as that is today.
func (s *server) buildRetry(in intake, old task.Task) (b built, invalid error) {
	b = built{Submission: Submission{Caller: in.caller.User, Key: in.key, Hash: in.hash, Items: make([]Item, 1)}, free: make([]bool, 1)}
	refuse := func(pointer, reason string) error {
		return &kinds.InvalidError{Fields: []kinds.FieldError{{Pointer: pointer, Reason: reason}}}
	}
	if old.Children > 0 || old.Parent != "" {
		return b, refuse("", "is part of a composite task, which is submitted anew")
	}
	k, ok := s.kinds.Get(old.Kind)
	if !ok {
		return b, refuse("/kind", "is not known here")
	}
	want := kinds.Request{
		Namespace: old.Namespace, Name: old.Name, Params: old.Params, Labels: old.Labels, Queue: old.Queue,
		Class: old.Class.String(),
	}
	if old.Mode != task.Parallel {
		want.Lane, want.Mode = old.Lane, old.Mode
	}
	made, err := kinds.Build(k, want)
	if err != nil {
		return b, err
	}
	made.Task.CreatedBy, made.Task.RetryOf = in.caller.User, old.ID
	usual := made.Task.Spec // what the kind and the parameters give
	b.free[0] = made.Free || old.Spec.Image != usual.Image || old.Spec.ServiceAccount != usual.ServiceAccount ||
		!reflect.DeepEqual(old.Spec.Pod, usual.Pod)
	made.Task.Spec = old.Spec
	b.Items[0] = Item{Task: made.Task, OnConflict: made.OnConflict, Supersedes: made.Supersedes}
	return b, nil
}
