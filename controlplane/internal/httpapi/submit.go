package httpapi

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
)

// The routes that stand in a fingerprint. An item of a batch asks for the same as a submit of its own.
const (
	submitRoute = "POST /v1/tasks"
	batchRoute  = "POST /v1/tasks:batch"
)

// maxBatch bounds the Tasks of a batch, children included.
const maxBatch = 1000

// SubmitTask stores one Task.
func (s *server) SubmitTask(ctx context.Context, r SubmitTaskRequestObject) (SubmitTaskResponseObject, error) {
	ctx, known := plain(ctx)
	if r.Params.IdempotencyKey != nil && r.Body.IdempotencyKey != "" {
		return nil, badRequest("the idempotency key stands twice", field("/idempotency_key", "stands in the header too"))
	}
	in := intake{caller: known.identity, tasks: []api.SubmitTask{*r.Body}, bodies: []any{known.body}, at: func(int) string { return "" }}
	in.dryRun = given(r.Params.DryRun)
	in.key = given(r.Params.IdempotencyKey) + r.Body.IdempotencyKey
	if in.key != "" {
		in.hash = fingerprint(submitRoute, withoutKey(known.body))
	}
	sub, done, err := s.submit(ctx, in)
	if err != nil {
		return nil, err
	}
	var warnings []api.Warning
	if in.dryRun {
		if warnings, err = s.tried(ctx, in.podsOf(sub, done)); err != nil {
			return nil, err
		}
	}
	made := done[0]
	here, yes := "/v1/tasks/"+made.Task.ID, "true"
	if made.Result == api.ResultCreated && in.dryRun {
		made.Task.ID = noID
		would := wireTask(made.Task, View{Phase: firstPhase(made.Task)})
		would.Warnings = warnings
		return SubmitTask200JSONResponse{
			Body:    would,
			Headers: SubmitTask200ResponseHeaders{SlipwayDryRun: &yes},
		}, nil
	}
	known.task = made.Task.ID
	if made.Result == api.ResultCreated {
		return SubmitTask201JSONResponse{
			Body:    wireTask(made.Task, View{Phase: firstPhase(made.Task)}),
			Headers: SubmitTask201ResponseHeaders{Location: here},
		}, nil
	}
	t, view, err := s.finder.Find(ctx, made.Task.ID)
	if err != nil {
		return nil, fmt.Errorf("read the task of an earlier request: %w", err)
	}
	headers := SubmitTask200ResponseHeaders{Location: &here}
	if in.dryRun {
		headers.SlipwayDryRun = &yes
	}
	if made.Result == api.ResultRepeated {
		headers.IdempotentReplayed = &yes
	} else {
		headers.SlipwayCoalesced = &yes
	}
	there, err := s.shown(ctx, known.identity, t, view)
	if err != nil {
		return nil, err
	}
	there.Warnings = warnings
	return SubmitTask200JSONResponse{Body: there, Headers: headers}, nil
}

// noID is the id of a Task that was only tried.
const noID = "00000000-0000-0000-0000-000000000000"

// SubmitBatch stores many Tasks, or none.
func (s *server) SubmitBatch(ctx context.Context, r SubmitBatchRequestObject) (SubmitBatchResponseObject, error) {
	ctx, known := plain(ctx)
	in := intake{caller: known.identity, tasks: r.Body.Tasks, key: given(r.Params.IdempotencyKey), at: func(i int) string {
		return "/tasks/" + strconv.Itoa(i)
	}}
	if whole, ok := known.body.(map[string]any); ok {
		in.bodies, _ = whole["tasks"].([]any)
	}
	in.dryRun = given(r.Params.DryRun)
	if err := checkKeys(in); err != nil {
		return nil, err
	}
	if n := len(in.wants()); n > maxBatch {
		reason := fmt.Sprintf("holds %d tasks with their children, at most %d are allowed", n, maxBatch)
		return nil, &kinds.InvalidError{Fields: []kinds.FieldError{{Pointer: "/tasks", Reason: reason}}}
	}
	if in.key != "" {
		in.hash = fingerprint(batchRoute, known.body)
	}
	sub, done, err := s.submit(ctx, in)
	if err != nil {
		return nil, err
	}
	if in.dryRun {
		return s.triedBatch(ctx, in.podsOf(sub, done), done)
	}
	result, created, repeated := api.BatchResult{Items: make([]api.BatchItem, len(done))}, 0, 0
	for i, d := range done {
		result.Items[i] = api.BatchItem{ID: d.Task.ID, Result: d.Result}
		switch d.Result {
		case api.ResultCreated:
			created++
		case api.ResultRepeated:
			repeated++
		case api.ResultCoalesced:
		}
	}
	if created > 0 {
		return SubmitBatch201JSONResponse(result), nil
	}
	headers := SubmitBatch200ResponseHeaders{}
	if repeated == len(done) {
		yes := "true"
		headers.IdempotentReplayed = &yes
	}
	return SubmitBatch200JSONResponse{Body: result, Headers: headers}, nil
}

// triedBatch answers for a batch that was only tried. Ids of what is not there are left out of it.
func (s *server) triedBatch(ctx context.Context, pods []*triedPod, done []Accepted) (SubmitBatchResponseObject, error) {
	warnings, err := s.tried(ctx, pods)
	if err != nil {
		return nil, err
	}
	result, fresh := api.BatchResult{Items: make([]api.BatchItem, len(done)), Warnings: warnings}, map[string]bool{}
	for i, d := range done {
		fresh[d.Task.ID] = fresh[d.Task.ID] || d.Result == api.ResultCreated
		if fresh[d.Task.ID] {
			d.Task.ID = noID
		}
		result.Items[i] = api.BatchItem{ID: d.Task.ID, Result: d.Result}
	}
	yes := "true"
	return SubmitBatch200JSONResponse{Body: result, Headers: SubmitBatch200ResponseHeaders{SlipwayDryRun: &yes}}, nil
}

// checkKeys refuses keys in header and items at once, and one key for two items.
func checkKeys(in intake) error {
	first := map[string]int{}
	var wrong []kinds.FieldError
	for i, t := range in.tasks {
		if t.IdempotencyKey == "" {
			continue
		}
		at := in.at(i) + "/idempotency_key"
		if in.key != "" {
			return badRequest("idempotency keys stand in the header or in the items, not in both", field(at, "stands in the header too"))
		}
		if other, twice := first[t.IdempotencyKey]; twice {
			wrong = append(wrong, kinds.FieldError{Pointer: at, Reason: fmt.Sprintf("is that of item %d too", other)})
			continue
		}
		first[t.IdempotencyKey] = i
	}
	if len(wrong) > 0 {
		return &kinds.InvalidError{Fields: wrong}
	}
	return nil
}

// intake is a submit on its way in.
type intake struct {
	caller auth.Identity
	tasks  []api.SubmitTask
	bodies []any // the tasks as parsed
	key    string
	hash   []byte
	dryRun bool
	at     func(item int) string // JSON pointer of an item
	found  map[int][]string      // by item: what its kind selects
}

// submit checks rights and rules and stores. A request that was accepted before is answered as then, even if it would
// be refused today: its kind may be gone.
func (s *server) submit(ctx context.Context, in intake) (built, []Accepted, error) {
	if err := s.rights().mayCreate(ctx, in.caller, in.wants()); err != nil {
		return built{}, nil, err
	}
	found, away := s.selected(ctx, in.tasks, in.at)
	in.found = found
	sub, invalid := s.build(in)
	var refused *kinds.InvalidError
	switch n := len(in.wants()) + len(sub.planned); {
	case errors.As(away, &refused):
		invalid = refused
	case away != nil:
		done, ok, err := s.repeated(ctx, sub)
		if err == nil && !ok {
			err = away
		}
		return sub, done, err
	case invalid == nil && n > maxBatch:
		invalid = refuseField("/tasks", fmt.Sprintf("make %d tasks with the children that their kinds plan, at most %d are allowed", n, maxBatch))
	}
	done, err := s.accept(ctx, in, sub, invalid)
	return sub, done, err
}

// repeated answers what was accepted before under the same keys; ok is false where nothing was.
func (s *server) repeated(ctx context.Context, sub built) (done []Accepted, ok bool, err error) {
	if !sub.keyed() {
		return nil, false, nil
	}
	if done, ok, err = s.submitter.Repeated(ctx, sub.Submission); err != nil {
		return nil, false, fmt.Errorf("look for an earlier request: %w", err)
	}
	return done, ok, nil
}

// accept stores what was built. What is invalid today may still be the repeat of an earlier request.
func (s *server) accept(ctx context.Context, in intake, sub built, invalid error) ([]Accepted, error) {
	if invalid == nil {
		if err := s.rights().mayCreate(ctx, in.caller, sub.planned); err != nil {
			return nil, err
		}
		if err := s.rights().mayChooseFreely(ctx, in.caller, sub.Items); err != nil {
			return nil, err
		}
		var err error
		if invalid, err = s.strangers(ctx, in); err != nil {
			return nil, err
		}
		if invalid == nil {
			invalid = s.against(ctx, in, sub.Items)
		}
	}
	var away error // what stands against it cannot be read now
	if invalid == nil {
		invalid, away = s.measure(ctx, in, sub.Items)
	}
	if invalid == nil && away == nil {
		done, err := s.submitter.Submit(ctx, sub.Submission)
		if err != nil {
			return nil, fmt.Errorf("store tasks: %w", in.locate(err))
		}
		return done, nil
	}
	switch done, ok, err := s.repeated(ctx, sub); {
	case err != nil || ok:
		return done, err
	case away != nil:
		return nil, away
	}
	return nil, invalid
}

// locate turns indexes of items into pointers into the request.
func (in intake) locate(err error) error {
	var refused *RefusedError
	var conflict *ConflictError
	switch {
	case errors.As(err, &refused):
		var wrong []kinds.FieldError
		for _, e := range refused.Items {
			wrong = append(wrong, kinds.FieldError{Pointer: in.at(e.Item) + e.Pointer, Reason: e.Reason})
		}
		return &kinds.InvalidError{Fields: wrong}
	case errors.As(err, &conflict):
		located := &locatedError{error: err}
		for _, c := range conflict.Conflicts[:min(len(conflict.Conflicts), maxFields)] {
			ofLane := c.Reason == ConflictLaneBusy || c.Reason == ConflictEpoch
			if c.Item < 0 || in.key != "" && !ofLane {
				continue // it is about the header
			}
			at := in.at(c.Item) + "/idempotency_key"
			if ofLane {
				at = in.at(c.Item) + "/lane"
			}
			located.fields = append(located.fields, api.FieldError{Pointer: at, Reason: conflictTexts[c.Reason], Task: c.Task})
		}
		return located
	}
	return err
}

// built is a Submission, and the rights that its planned children take.
type built struct {
	Submission
	planned []want
}

func (b built) keyed() bool {
	for _, item := range b.Items {
		if item.Key != "" {
			return true
		}
	}
	return b.Key != ""
}

// wants names the Tasks of an intake, children included.
func (in intake) wants() []want {
	var all []want
	for _, t := range in.tasks {
		all = append(all, want{t.Namespace, t.Kind})
		for _, c := range t.Children {
			all = append(all, want{c.Namespace, c.Kind})
		}
	}
	return all
}

// withoutKey leaves the key out of a body: it says which request this is, not what it asks for.
func withoutKey(body any) any {
	all, ok := body.(map[string]any)
	if !ok {
		return body
	}
	if _, has := all["idempotency_key"]; !has {
		return body
	}
	rest := make(map[string]any, len(all))
	for name, v := range all {
		if name != "idempotency_key" {
			rest[name] = v
		}
	}
	return rest
}
