package httpapi

import (
	"context"
	"fmt"
	"time"

	"slipway.dev/slipway/controlplane/internal/auth"
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
	now, err := s.afterwards(ctx, known.identity, t.ID)
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
	now, err := s.afterwards(ctx, known.identity, t.ID)
	return UnholdTask200JSONResponse(now), err
}

// afterwards is a Task as it is once it was changed.
func (s *server) afterwards(ctx context.Context, caller auth.Identity, id string) (api.Task, error) {
	t, view, err := s.finder.Find(ctx, id)
	if err != nil {
		return api.Task{}, fmt.Errorf("read the changed task: %w", err)
	}
	return s.shown(ctx, caller, t, view)
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
	now, err := s.afterwards(ctx, known.identity, t.ID)
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
