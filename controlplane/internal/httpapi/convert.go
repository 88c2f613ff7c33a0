package httpapi

import (
	"encoding/json"
	"time"

	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// wireTask is the one converter from a Task to the wire.
func wireTask(t task.Task, v View) api.Task {
	out := api.Task{
		ID: t.ID, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name, Queue: t.Queue, Class: api.Class(t.Class.String()),
		Mode: api.Mode(t.Mode), State: api.State(t.State), Phase: api.Phase(phase(t, v)),
		Outcome: api.Outcome(t.Outcome), Reason: string(t.Reason), Message: t.Message,
		Params: t.Params, Result: t.Result, Labels: t.Labels, AttemptsMade: int32(t.Attempts), Absorbed: int32(t.Absorbed),
		Spent:     api.Spent{Attempts: int32(t.SpentRetry), Lost: int32(t.SpentLost)},
		CreatedBy: t.CreatedBy, CreatedAt: t.CreatedAt.UTC(), StartedAt: utc(t.StartedAt), EndedAt: utc(t.EndedAt),
		CancelAt: utc(t.CancelAt), CancelBy: t.CancelBy, Parent: t.Parent, RetryOf: t.RetryOf, Root: t.Root, Spec: wireSpec(t.Spec),
	}
	if t.Mode != task.Parallel {
		out.Lane = t.Lane
	}
	if t.State == task.Queued && t.RunAt.After(t.CreatedAt) {
		out.RunAt = utc(t.RunAt)
	}
	out.Waiting = wireWaiting(v)
	if v.Attempt != nil {
		a := wireAttempt(*v.Attempt)
		out.Attempt = &a
	}
	out.Progress = progress(v)
	out.Objects = wireObjects(t.Spec.Objects)
	if len(v.After) > 0 {
		out.After, out.RunIf = v.After, api.RunIf(v.RunIf)
	}
	if t.Children > 0 && v.Children != nil {
		out.Children, out.Progress = wireChildren(t, v.Children)
	}
	return out
}

func wireObjects(all []task.Object) []api.NamedObject {
	var out []api.NamedObject
	for _, o := range all {
		out = append(out, api.NamedObject{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name})
	}
	return out
}

func progress(v View) *api.Progress {
	raw := v.Progress
	if len(raw) == 0 && v.Attempt != nil {
		raw = v.Attempt.Progress
	}
	p := new(api.Progress)
	if len(raw) == 0 || json.Unmarshal(raw, p) != nil {
		return nil
	}
	return p
}

// phase is the store's word, or where it gave none what the Task alone shows.
func phase(t task.Task, v View) task.Phase {
	switch {
	case t.State.Terminal():
		return task.Phase(t.State)
	case v.Phase != "":
		return v.Phase
	case t.State == task.Running && !t.CancelAt.IsZero():
		return task.Canceling
	case t.State == task.Running:
		return task.Working
	case t.Attempts > 0:
		return task.Retrying
	}
	return firstPhase(t)
}

// firstPhase is that of a Task which was just stored.
func firstPhase(t task.Task) task.Phase {
	if t.Seq == 0 && t.RunAt.After(t.CreatedAt) {
		return task.Delayed
	}
	return task.Waiting
}

func wireAttempt(a task.Attempt) api.Attempt {
	out := api.Attempt{
		Number: int32(a.Number), Fence: a.Fence, State: api.AttemptState(a.State), Executor: string(a.Executor),
		Replica: a.Replica, Node: a.Node, Outcome: api.Outcome(a.Outcome), Reason: string(a.Reason), Message: a.Message,
		Rule: a.Rule, ClaimedAt: a.ClaimedAt.UTC(), LaunchedAt: utc(a.LaunchedAt), StartedAt: utc(a.StartedAt),
		HeartbeatAt: utc(a.Beat), FinishedAt: utc(a.FinishedAt),
	}
	if a.JobName != "" {
		out.Job = &api.ObjectRef{Name: a.JobName, UID: a.JobUID}
	}
	if a.PodName != "" || a.PodUID != "" {
		out.Pod = &api.ObjectRef{Name: a.PodName, UID: a.PodUID}
	}
	if a.ExitCode != nil {
		code := int32(*a.ExitCode)
		out.ExitCode = &code
	}
	if a.Late && a.Report != nil {
		out.LateReport = &api.LateReport{
			Outcome: api.Outcome(a.Report.Outcome), Reason: string(a.Report.Reason), Message: a.Report.Message, At: a.Report.At.UTC(),
		}
	}
	if a.Stop != task.StopNone {
		out.Stop = &api.Stop{Reason: string(a.Stop), Note: a.StopNote, At: a.StopAt.UTC()}
	}
	if a.Wait != "" && a.State != task.Finished {
		out.Waiting = &api.Waiting{Reason: string(a.Wait), Note: a.WaitNote}
	}
	return out
}

func wireSpec(s task.Spec) api.Spec {
	attempts, lost := int32(s.Retry.Attempts), int32(s.Retry.Lost)
	return api.Spec{
		Image: s.Image, ServiceAccount: s.ServiceAccount, Requests: s.Requests, Limits: s.Limits, NodeSelector: s.NodeSelector, Pod: wirePod(s.Pod),
		Idempotent: &s.Idempotent,
		Retry: api.Retry{
			Attempts: &attempts, Backoff: seconds(s.Retry.Backoff), Cap: seconds(s.Retry.Cap), Lost: &lost,
		},
		QueueDeadline: seconds(s.QueueDeadline), StartDeadline: seconds(s.StartDeadline), CapacityDeadline: seconds(s.Capacity),
		RunDeadline: seconds(s.RunDeadline), Weight: s.Weight, Grace: seconds(s.Grace), FenceAfter: seconds(s.FenceAfter),
	}
}

func wireWaiting(v View) *api.Waiting {
	if v.Wait == "" {
		return nil
	}
	return &api.Waiting{Reason: string(v.Wait), Note: v.WaitNote, Holder: v.Holder}
}

func seconds(s task.Seconds) *float64 {
	f := float64(s)
	return &f
}

// utc keeps the zero time zero.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}
