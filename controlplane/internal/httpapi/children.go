package httpapi

import (
	"context"
	"fmt"
	"slices"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// shown is a Task as one caller may read it: children in namespaces that he may not read are only counted.
func (s *server) shown(ctx context.Context, caller auth.Identity, t task.Task, v View) (api.Task, error) {
	out := wireTask(t, v)
	if out.Children == nil {
		return out, nil
	}
	sees := s.sees(ctx, caller)
	var trouble error
	out.Children.Items = slices.DeleteFunc(out.Children.Items, func(c api.Child) bool {
		ok, err := sees(c.Namespace)
		if err != nil {
			trouble = err
		}
		return !ok
	})
	return out, trouble
}

// wireChildren is what a composite Task shows of its children, and their progress together.
func wireChildren(t task.Task, all []Listed) (*api.Children, *api.Progress) {
	out := &api.Children{Count: int32(t.Children), Items: make([]api.Child, len(all))}
	whole := &api.Progress{}
	for i, c := range all {
		out.Items[i] = wireChild(c)
		*counterOf(out, c.Task.State)++
		weight := out.Items[i].Weight
		whole.Total += weight
		whole.Done += weight * part(c, out.Items[i].Progress)
	}
	whole.Message = fmt.Sprintf("succeeded %d of %d", out.Succeeded, out.Count)
	return out, whole
}

func counterOf(c *api.Children, s task.State) *int32 {
	switch s {
	case task.Queued:
		return &c.Queued
	case task.Running:
		return &c.Running
	case task.Succeeded:
		return &c.Succeeded
	case task.Failed:
		return &c.Failed
	case task.Canceled:
	}
	return &c.Canceled
}

// part is how much of a child is over. One that tells no total shows nothing until it has ended.
func part(c Listed, p *api.Progress) float64 {
	switch {
	case c.Task.State.Terminal():
		return 1
	case p == nil || p.Total <= 0:
		return 0
	}
	return min(max(p.Done/p.Total, 0), 1)
}

func wireChild(c Listed) api.Child {
	t, v := c.Task, c.View
	out := api.Child{
		ID: t.ID, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name, State: api.State(t.State), Phase: api.Phase(phase(t, v)),
		Waiting: wireWaiting(v), Reason: string(t.Reason), Message: t.Message, Progress: progress(v), Weight: 1,
		StartedAt: utc(t.StartedAt), EndedAt: utc(t.EndedAt),
	}
	if t.Mode != task.Parallel {
		out.Lane = t.Lane
	}
	if t.Spec.Weight > 0 {
		out.Weight = t.Spec.Weight
	}
	if len(v.After) > 0 {
		out.After, out.RunIf = v.After, api.RunIf(v.RunIf)
	}
	return out
}
