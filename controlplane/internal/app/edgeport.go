package app

import (
	"context"
	"errors"
	"fmt"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/controlplane/internal/httpapi"
	"slipway.dev/slipway/controlplane/internal/logs"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// edge is the store as httpapi wants it.
type edge struct {
	store  *store.Store
	counts *counts
	here   here // zero: nothing is launched here
}

// Submit stores Tasks.
func (e edge) Submit(ctx context.Context, s httpapi.Submission) ([]httpapi.Accepted, error) {
	stored, err := e.store.Enqueue(from(ctx), batchOf(s))
	if err != nil {
		return nil, edgeError(err)
	}
	done := accepted(stored)
	if s.DryRun {
		return done, nil
	}
	for _, d := range done {
		e.counts.submitted.WithLabelValues(d.Task.Kind, string(d.Result)).Inc()
	}
	return done, nil
}

// Repeated answers from the idempotency keys alone.
func (e edge) Repeated(ctx context.Context, s httpapi.Submission) ([]httpapi.Accepted, bool, error) {
	stored, err := e.store.Repeated(ctx, batchOf(s))
	if errors.Is(err, store.ErrNotFound) {
		return nil, false, nil
	}
	return accepted(stored), err == nil, edgeError(err)
}

func batchOf(s httpapi.Submission) store.Batch {
	return store.Batch{Caller: s.Caller, Key: s.Key, Hash: s.Hash, DryRun: s.DryRun, Items: itemsOf(s.Items)}
}

func itemsOf(items []httpapi.Item) []store.Item {
	out := make([]store.Item, len(items))
	for i, item := range items {
		out[i] = store.Item{
			Task: item.Task, OnConflict: item.OnConflict, Supersedes: item.Supersedes, Key: item.Key, Hash: item.Hash,
			After: item.After, RunIf: store.RunIf(item.RunIf), RunAt: item.RunAt, Delay: item.Delay, Once: item.Once,
			Children: itemsOf(item.Children), Growth: item.Growth, Storage: item.Storage,
		}
	}
	return out
}

func accepted(stored []store.Enqueued) []httpapi.Accepted {
	done := make([]httpapi.Accepted, len(stored))
	for i, d := range stored {
		done[i] = httpapi.Accepted{Task: d.Task, Result: api.BatchItemResult(d.Result)}
	}
	return done
}

// Find reads a Task.
func (e edge) Find(ctx context.Context, id string) (task.Task, httpapi.View, error) {
	t, v, err := e.store.Task(ctx, id)
	view := e.here.complete(t, viewOf(v))
	for _, c := range v.Children {
		view.Children = append(view.Children, httpapi.Listed{Task: c.Task, View: e.here.complete(c.Task, viewOf(c.View))})
	}
	return t, view, known(err)
}

func viewOf(v store.View) httpapi.View {
	return httpapi.View{
		Phase: v.Phase, Wait: v.Wait, WaitNote: v.WaitNote, Holder: v.HolderID, Attempt: v.Attempt, Progress: v.Progress,
		After: v.Needs, RunIf: string(v.RunIf),
	}
}

// Foresee estimates the start of a queued Task.
func (e edge) Foresee(ctx context.Context, t task.Task, v httpapi.View) (task.Forecast, error) {
	f, err := e.store.Foresee(ctx, t, store.View{Wait: v.Wait, Needs: v.After})
	return f, known(err)
}

// List lists Tasks.
func (e edge) List(ctx context.Context, f httpapi.Filter) (httpapi.Page, error) {
	page, err := e.store.Tasks(ctx, listFilter(f))
	if err != nil {
		return httpapi.Page{}, badPosition(err)
	}
	out := httpapi.Page{Items: make([]httpapi.Listed, len(page.Tasks)), Next: page.Next}
	for i, t := range page.Tasks {
		out.Items[i] = httpapi.Listed{Task: t, View: e.here.complete(t, viewOf(page.Views[i]))}
		out.Items[i].View.Attempt = nil // a list shows what it waits for, not the Attempt itself
	}
	return out, nil
}

func listFilter(f httpapi.Filter) store.ListFilter {
	filter := store.ListFilter{
		Kind: f.Kind, State: f.State, Reason: f.Reason, Lane: f.Lane, Queue: f.Queue, Labels: f.Labels, Cursor: f.Cursor, Limit: f.Limit,
		CreatedAfter: f.CreatedAfter, CreatedBefore: f.CreatedBefore, EndedAfter: f.EndedAfter, EndedBefore: f.EndedBefore,
	}
	if f.Namespace != "" {
		filter.Namespaces = []string{f.Namespace}
	}
	return filter
}

// Pick names Tasks for a change of many.
func (e edge) Pick(ctx context.Context, f httpapi.Filter, rule httpapi.PickRule, most int) ([]httpapi.Picked, error) {
	which := map[httpapi.PickRule]store.PickRule{httpapi.PickEnded: store.PickEnded, httpapi.PickOpen: store.PickOpen}[rule]
	all, err := e.store.Pick(ctx, listFilter(f), which, most)
	return pickedOf(all), known(err)
}

// Load reads Tasks.
func (e edge) Load(ctx context.Context, ids []string) ([]task.Task, error) {
	all, err := e.store.TasksByID(ctx, ids)
	return all, known(err)
}

// Pinned gives what was kept under a key.
func (e edge) Pinned(ctx context.Context, p httpapi.Pin) ([]httpapi.Picked, bool, error) {
	all, ok, err := e.store.Pinned(ctx, store.Pin(p))
	return pickedOf(all), ok, edgeError(err)
}

// Keep keeps under a key which Tasks are meant.
func (e edge) Keep(ctx context.Context, p httpapi.Pin, all []httpapi.Picked) ([]httpapi.Picked, error) {
	ids := make([]string, len(all))
	for i, t := range all {
		ids[i] = t.ID
	}
	kept, err := e.store.Keep(ctx, store.Pin(p), ids)
	return pickedOf(kept), edgeError(err)
}

func pickedOf(all []store.Picked) []httpapi.Picked {
	out := make([]httpapi.Picked, len(all))
	for i, t := range all {
		out[i] = httpapi.Picked(t)
	}
	return out
}

// Attempts lists the Attempts of a Task.
func (e edge) Attempts(ctx context.Context, taskID string) ([]task.Attempt, error) {
	all, err := e.store.Attempts(ctx, taskID)
	return all, known(err)
}

// Events lists the history of a Task.
func (e edge) Events(ctx context.Context, taskID, after string, limit int) ([]task.Event, error) {
	all, err := e.store.Events(ctx, taskID, after, limit)
	return all, badPosition(err)
}

// Cancel cancels a Task.
func (e edge) Cancel(ctx context.Context, id, by, note string) (task.Task, error) {
	t, err := e.store.Cancel(from(ctx), id, by, note)
	return t, edgeError(err)
}

// Hold keeps a queued Task from running.
func (e edge) Hold(ctx context.Context, id, by, reason string) error {
	return edgeError(e.store.Hold(from(ctx), id, by, reason))
}

// Unhold lets a held Task run.
func (e edge) Unhold(ctx context.Context, id, by string) error {
	return edgeError(e.store.Unhold(from(ctx), id, by))
}

// Change changes a queued Task.
func (e edge) Change(ctx context.Context, id, by string, c httpapi.Change) error {
	return edgeError(e.store.ChangeTask(from(ctx), id, store.TaskChange{Class: c.Class, Move: c.Move, RunAt: c.RunAt}, by))
}

// Delete deletes an ended Task.
func (e edge) Delete(ctx context.Context, id, by string) error {
	return edgeError(e.store.DeleteTask(from(ctx), id, by))
}

// Audit lists who changed what.
func (e edge) Audit(ctx context.Context, f httpapi.AuditFilter) (httpapi.ChangePage, error) {
	page, err := e.store.Audit(ctx, store.AuditFilter(f))
	if err != nil {
		return httpapi.ChangePage{}, badPosition(err)
	}
	out := httpapi.ChangePage{Items: make([]httpapi.Changed, len(page.Entries)), Next: page.Next}
	for i, c := range page.Entries {
		out.Items[i] = httpapi.Changed{
			At: c.At, Actor: c.Actor, Verb: c.Verb, Resource: c.Resource, Name: c.Name, Namespace: c.Namespace,
			Peer: c.Peer, Request: c.Request, Before: c.Before, After: c.After,
		}
	}
	return out, nil
}

// from hands on where a request came from, for the audit.
func from(ctx context.Context) context.Context {
	o := httpapi.OriginOf(ctx)
	return store.WithOrigin(ctx, store.Origin{Peer: o.Peer, Request: o.Request})
}

// LogTail reads the kept end of a log.
func (e edge) LogTail(ctx context.Context, attempt int64) ([]byte, error) {
	tail, err := e.store.LogTail(ctx, attempt)
	return tail, known(err)
}

// runners is the store as the runner protocol wants it.
type runners struct {
	store *store.Store
	tell  teller
}

// Start gives an Attempt to the first pod that asks. A pod of another namespace can carry any label, so the Attempt's
// namespace is compared before anything is stored.
func (r runners) Start(ctx context.Context, s httpapi.Start) (task.Task, task.Attempt, error) {
	_, a, _, err := r.store.OpenAttempt(ctx, s.Attempt)
	if err != nil {
		return task.Task{}, task.Attempt{}, known(err)
	}
	if a.Namespace != s.Pod.Namespace || a.Executor == task.ExecutorInline { // which no pod can stand for
		return task.Task{}, task.Attempt{}, httpapi.ErrWrongPod
	}
	t, a, err := r.store.Start(ctx, store.StartRequest{
		Attempt: s.Attempt, Fence: s.Fence, PodUID: s.Pod.PodUID, PodName: s.Pod.PodName, Node: s.Pod.Node,
	})
	if err == nil {
		r.tell.Tell(t, task.StepStarted, a.Number)
	}
	return t, a, known(err)
}

// Beat stores a heartbeat.
func (r runners) Beat(ctx context.Context, b httpapi.Beat) (httpapi.BeatAnswer, error) {
	hear, err := r.store.Beat(ctx, store.BeatRequest{Attempt: b.Attempt, Fence: b.Fence, PodUID: b.PodUID, Progress: b.Progress, Hold: b.Hold})
	return httpapi.BeatAnswer{Cancel: hear.Cancel, Left: hear.Left}, known(err)
}

// Report stores a runner's word about its end.
func (r runners) Report(ctx context.Context, w httpapi.Report) error {
	return known(r.store.Report(ctx, store.ReportRequest{
		Attempt: w.Attempt, Fence: w.Fence, PodUID: w.PodUID, Report: w.Report, Tail: w.Tail,
	}))
}

// journal is logs as httpapi wants it.
type journal struct{ reader *logs.Reader }

// Open opens a log.
func (j journal) Open(ctx context.Context, a task.Attempt, want httpapi.LogRequest) (httpapi.LogStream, error) {
	s, err := j.reader.Open(ctx, a, logs.Request{Follow: want.Follow, Tail: want.Tail})
	var missing *logs.MissingError
	if errors.As(err, &missing) {
		return httpapi.LogStream{}, &httpapi.MissingLogError{Reason: missing.Reason, Message: missing.Message}
	}
	if err != nil {
		return httpapi.LogStream{}, fmt.Errorf("open log: %w", err)
	}
	return httpapi.LogStream{Body: s.ReadCloser, Source: s.Source}, nil
}

// pods is the cluster as the runner protocol wants it.
type pods struct{ cluster cluster }

// Carries returns nil where the pod carries the labels of the Attempt.
func (p pods) Carries(ctx context.Context, pod auth.Identity, attempt, fence int64) error {
	has, err := p.cluster.PodOf(ctx, pod.Namespace, pod.PodName, pod.PodUID)
	if err != nil {
		return err
	}
	if has.Attempt != attempt || has.Fence != fence {
		return task.ErrNotFound
	}
	return nil
}
