package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// Bounds of a change of many Tasks.
const (
	maxMany   = 5000
	manyBatch = 100 // Tasks of one transaction
	maxSample = 20

	retryManyRoute  = "POST /v1/tasks:retry"
	cancelManyRoute = "POST /v1/tasks:cancel"
)

// many is a change of many Tasks on its way in.
type many struct {
	filter    Filter
	rule      PickRule
	right     string // subresource of tasks
	dryRun    bool
	expected  *int32
	selection string
	key       string
	hash      []byte
}

// picked are the Tasks that a change of many is about.
type picked struct {
	all    []Picked
	pinned bool // by an earlier request with the same key
}

func (p picked) ids() []string {
	ids := make([]string, len(p.all))
	for i, t := range p.all {
		ids[i] = t.ID
	}
	return ids
}

// selection names a set of Tasks in one word.
func selection(ids []string) string {
	h := sha256.New()
	for _, id := range ids {
		h.Write([]byte(id))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// ChangedError says that other Tasks match than the caller was shown.
type ChangedError struct{ Count int }

func (e *ChangedError) Error() string { return "other tasks match by now" }

func filterOf(f api.TaskFilter, usual task.State) Filter {
	out := Filter{
		Namespace: f.Namespace, Kind: f.Kind, Queue: f.Queue, Lane: f.Lane, Labels: f.Labels, State: task.State(f.State),
		Reason: task.Reason(f.Reason), CreatedAfter: f.CreatedAfter, CreatedBefore: f.CreatedBefore,
		EndedAfter: f.EndedAfter, EndedBefore: f.EndedBefore,
	}
	if out.State == "" {
		out.State = usual
	}
	return out
}

// checkMany refuses what can never be done.
func checkMany(m many) error {
	refuse := func(pointer, reason string) error {
		return &kinds.InvalidError{Fields: []kinds.FieldError{{Pointer: pointer, Reason: reason}}}
	}
	switch {
	case m.rule == PickEnded && !m.filter.State.Terminal():
		return refuse("/filter/state", "is not one in which a task has ended")
	case m.rule == PickOpen && m.filter.State.Terminal():
		return refuse("/filter/state", "is one in which a task has ended")
	case !m.dryRun && m.expected == nil:
		return refuse("/expected_count", "is missing; dry_run tells it")
	}
	return nil
}

// pick finds the Tasks and asks for the rights on each namespace that they touch. Nothing is stored but, under a key,
// which Tasks they are.
func (s *server) pick(ctx context.Context, known *call, m many) (p picked, err error) {
	if err := checkMany(m); err != nil {
		return p, err
	}
	if err := s.gate.May(ctx, known.identity, tasks("list", "", m.filter.Namespace)); err != nil {
		return p, err
	}
	if m.key != "" && !m.dryRun {
		p.all, p.pinned, err = s.picker.Pinned(ctx, Pin{Caller: known.identity.User, Key: m.key, Hash: m.hash})
		if err != nil {
			return p, fmt.Errorf("look for an earlier request: %w", err)
		}
	}
	if !p.pinned {
		if p.all, err = s.picker.Pick(ctx, m.filter, m.rule, maxMany+1); err != nil {
			return p, fmt.Errorf("find the tasks: %w", err)
		}
	}
	if len(p.all) > maxMany {
		reason := fmt.Sprintf("matches more than %d tasks; narrow it", maxMany)
		return p, &kinds.InvalidError{Fields: []kinds.FieldError{{Pointer: "/filter", Reason: reason}}}
	}
	asked := map[string]bool{}
	for _, t := range p.all {
		if asked[t.Namespace] {
			continue
		}
		asked[t.Namespace] = true
		if err := s.gate.May(ctx, known.identity, tasks("create", m.right, t.Namespace)); err != nil {
			return p, err
		}
	}
	return p, nil
}

// settle holds what was picked to what the caller was shown, and keeps it under the request's key.
func (s *server) settle(ctx context.Context, known *call, m many, p picked) (picked, error) {
	if m.dryRun || p.pinned {
		return p, nil
	}
	ids := p.ids()
	if int(*m.expected) != len(ids) || m.selection != "" && m.selection != selection(ids) {
		return p, &ChangedError{Count: len(ids)}
	}
	if m.key == "" || len(ids) == 0 {
		return p, nil
	}
	all, err := s.picker.Keep(ctx, Pin{Caller: known.identity.User, Key: m.key, Hash: m.hash}, p.all)
	if err != nil {
		return p, fmt.Errorf("keep which tasks are meant: %w", err)
	}
	return picked{all: all}, nil
}

func (p picked) result(items []api.ManyItem) api.ManyResult {
	ids := p.ids()
	if items == nil {
		items = []api.ManyItem{}
	}
	return api.ManyResult{Count: int32(len(ids)), Selection: selection(ids), Items: items}
}

// sample shows the first of what was picked.
func (s *server) sample(ctx context.Context, p picked) ([]api.Task, error) {
	ids := p.ids()
	first, err := s.picker.Load(ctx, ids[:min(len(ids), maxSample)])
	if err != nil {
		return nil, fmt.Errorf("read a sample: %w", err)
	}
	out := make([]api.Task, len(first))
	for i, t := range first {
		out[i] = wireTask(t, View{})
	}
	return out, nil
}

// RetryTasks submits many ended Tasks again.
func (s *server) RetryTasks(ctx context.Context, r RetryTasksRequestObject) (RetryTasksResponseObject, error) {
	ctx, known := plain(ctx)
	m := many{
		filter: filterOf(r.Body.Filter, task.Failed), rule: PickEnded, right: "retry", dryRun: r.Body.DryRun,
		expected: r.Body.ExpectedCount, selection: r.Body.Selection, key: given(r.Params.IdempotencyKey),
	}
	if m.key != "" {
		m.hash = fingerprint(retryManyRoute, known.body)
	}
	p, err := s.pick(ctx, known, m)
	if err != nil {
		return nil, err
	}
	work := retrying{server: s, caller: known.identity}
	if err := work.mayAll(ctx, p); err != nil {
		return nil, err
	}
	if p, err = s.settle(ctx, known, m, p); err != nil {
		return nil, err
	}
	if m.dryRun {
		out := p.result(work.refused)
		out.Sample, err = s.sample(ctx, p)
		return RetryTasks200JSONResponse(out), err
	}
	items, err := work.submit(ctx, p)
	return RetryTasks200JSONResponse(p.result(items)), err
}

// retrying submits many ended Tasks again.
type retrying struct {
	*server
	caller  auth.Identity
	refused []api.ManyItem // by the rules of today
}

// mayAll asks for everything that a submit of each Task needs, and finds those that the rules of today refuse.
func (w *retrying) mayAll(ctx context.Context, p picked) error {
	var all []want
	for _, t := range p.all {
		all = append(all, want{t.Namespace, t.Kind})
	}
	if err := w.rights().mayCreate(ctx, w.caller, all); err != nil {
		return err
	}
	for ids := range slices.Chunk(p.ids(), manyBatch) {
		b, refused, err := w.build(ctx, ids)
		if err != nil {
			return err
		}
		w.refused = append(w.refused, refused...)
		if err := w.rights().mayChooseFreely(ctx, w.caller, b.Items); err != nil {
			return err
		}
	}
	return nil
}

// build lays a few ended Tasks over their kinds; those that cannot be submitted today are refused one by one.
func (w *retrying) build(ctx context.Context, ids []string) (b built, refused []api.ManyItem, err error) {
	olds, err := w.picker.Load(ctx, ids)
	if err != nil {
		return b, nil, fmt.Errorf("read the tasks to retry: %w", err)
	}
	b.Submission = Submission{Caller: w.caller.User}
	for _, old := range olds {
		if old.Children > 0 {
			refused = append(refused, api.ManyItem{ID: old.ID, Result: api.ManyRefused, Reason: "is a composite task, which is retried by itself"})
			continue
		}
		one, err := w.again(w.caller, old)
		var invalid *kinds.InvalidError
		if errors.As(err, &invalid) {
			refused = append(refused, api.ManyItem{ID: old.ID, Result: api.ManyRefused, Reason: invalid.Error()})
			continue
		}
		if err != nil {
			return b, nil, err
		}
		one.Once = true
		b.Items = append(b.Items, one)
	}
	return b, refused, nil
}

// submit stores batch after batch. What stands in the way of one Task does not hold up the others; where too much is
// waiting already, the rest is refused.
func (w *retrying) submit(ctx context.Context, p picked) ([]api.ManyItem, error) {
	var out []api.ManyItem
	var full *FullError
	for ids := range slices.Chunk(p.ids(), manyBatch) {
		b, refused, err := w.build(ctx, ids)
		if err != nil {
			return nil, err
		}
		out = append(out, refused...)
		closed, err := w.room().Measure(ctx, b.Items)
		if err != nil {
			return nil, err
		}
		out = append(out, b.withoutUnmeasured(closed)...)
		for len(b.Items) > 0 && full == nil {
			done, err := w.submitter.Submit(ctx, b.Submission)
			var busy *ConflictError
			var ruled *RefusedError
			switch {
			case err == nil:
				for i, d := range done {
					out = append(out, api.ManyItem{ID: b.Items[i].Task.RetryOf, Result: api.ManyItemResult(d.Result), Task: d.Task.ID})
				}
				b.Items = nil
			case errors.As(err, &busy) && len(busy.Conflicts) > 0:
				out = append(out, b.without(busy)...)
			case errors.As(err, &ruled) && len(ruled.Items) > 0:
				out = append(out, b.withoutRuled(ruled)...)
			case !errors.As(err, &full):
				return nil, fmt.Errorf("store tasks: %w", err)
			}
		}
		for _, item := range b.Items { // full
			out = append(out, api.ManyItem{ID: item.Task.RetryOf, Result: api.ManyRefused, Reason: problemOf(full).Detail})
		}
	}
	return out, nil
}

// without takes the Tasks out whose lane is in use, and says so of each.
func (b *built) without(busy *ConflictError) (refused []api.ManyItem) {
	why := map[int]string{}
	for _, c := range busy.Conflicts {
		reason := conflictTexts[c.Reason]
		if c.Task != "" {
			reason += ": task " + c.Task
		}
		why[max(c.Item, 0)] = reason
	}
	return b.takeOut(why)
}

// withoutRuled takes the Tasks out that a rule of the store refuses, and says so of each.
func (b *built) withoutRuled(ruled *RefusedError) []api.ManyItem {
	why := map[int]string{}
	for _, e := range ruled.Items {
		why[max(e.Item, 0)] = e.Pointer + ": " + e.Reason
	}
	return b.takeOut(why)
}

// withoutUnmeasured takes the Tasks out whose namespaces have a limit that they cannot be held against.
func (b *built) withoutUnmeasured(closed Unmeasured) []api.ManyItem {
	why := map[int]string{}
	for i, item := range b.Items {
		if reason := closed[item.Task.Namespace]; reason != "" && item.Growth != nil {
			why[i] = sizePointer + ": " + reason
		}
	}
	return b.takeOut(why)
}

// takeOut takes items out by their number, each with the reason.
func (b *built) takeOut(why map[int]string) (refused []api.ManyItem) {
	var left []Item
	for i, item := range b.Items {
		reason, out := why[i]
		if !out {
			left = append(left, item)
			continue
		}
		refused = append(refused, api.ManyItem{ID: item.Task.RetryOf, Result: api.ManyRefused, Reason: reason})
	}
	b.Items = left
	return refused
}

// CancelTasks cancels many Tasks.
func (s *server) CancelTasks(ctx context.Context, r CancelTasksRequestObject) (CancelTasksResponseObject, error) {
	ctx, known := plain(ctx)
	m := many{
		filter: filterOf(r.Body.Filter, ""), rule: PickOpen, right: "cancel", dryRun: r.Body.DryRun,
		expected: r.Body.ExpectedCount, selection: r.Body.Selection, key: given(r.Params.IdempotencyKey),
	}
	if m.key != "" {
		m.hash = fingerprint(cancelManyRoute, known.body)
	}
	p, err := s.pick(ctx, known, m)
	if err == nil {
		p, err = s.settle(ctx, known, m, p)
	}
	if err != nil {
		return nil, err
	}
	if m.dryRun {
		out := p.result(nil)
		out.Sample, err = s.sample(ctx, p)
		return CancelTasks200JSONResponse(out), err
	}
	items := make([]api.ManyItem, 0, len(p.all))
	for _, t := range p.all {
		after, err := s.canceler.Cancel(ctx, t.ID, known.identity.User, r.Body.Note)
		item := api.ManyItem{ID: t.ID, Result: api.ManyCanceling}
		var ended *EndedError
		switch {
		case errors.Is(err, task.ErrNotFound), errors.As(err, &ended) && ended.State != task.Canceled:
			item.Result = api.ManyEnded
		case ended != nil, err == nil && after.State.Terminal():
			item.Result = api.ManyCanceled
		case err != nil:
			return nil, fmt.Errorf("cancel task: %w", err)
		}
		items = append(items, item)
	}
	return CancelTasks200JSONResponse(p.result(items)), nil
}
