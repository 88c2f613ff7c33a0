package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// The routes that stand in a fingerprint. An item of a batch asks for the same as a submit of its own.
const (
	submitRoute = "POST /v1/tasks"
	batchRoute  = "POST /v1/tasks:batch"
)

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
	done, err := s.submit(ctx, in)
	if err != nil {
		return nil, err
	}
	var warnings []api.Warning
	if in.dryRun {
		if warnings, err = s.tried(ctx, in, done); err != nil {
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
	there := wireTask(t, view)
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
	if in.key != "" {
		in.hash = fingerprint(batchRoute, known.body)
	}
	done, err := s.submit(ctx, in)
	if err != nil {
		return nil, err
	}
	if in.dryRun {
		return s.triedBatch(ctx, in, done)
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
func (s *server) triedBatch(ctx context.Context, in intake, done []Accepted) (SubmitBatchResponseObject, error) {
	warnings, err := s.tried(ctx, in, done)
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
}

// submit checks rights and rules and stores. A request that was accepted before is answered as then, even if it would
// be refused today: its kind may be gone.
func (s *server) submit(ctx context.Context, in intake) ([]Accepted, error) {
	if err := s.mayCreate(ctx, in); err != nil {
		return nil, err
	}
	sub, invalid := s.build(in)
	return s.accept(ctx, in, sub, invalid)
}

// accept stores what was built. What is invalid today may still be the repeat of an earlier request.
func (s *server) accept(ctx context.Context, in intake, sub built, invalid error) ([]Accepted, error) {
	if invalid == nil {
		if err := s.mayChooseFreely(ctx, in, sub); err != nil {
			return nil, err
		}
		done, err := s.submitter.Submit(ctx, sub.Submission)
		if err != nil {
			return nil, fmt.Errorf("store tasks: %w", in.locate(err))
		}
		return done, nil
	}
	if sub.keyed() {
		done, ok, err := s.submitter.Repeated(ctx, sub.Submission)
		if err != nil {
			return nil, fmt.Errorf("look for an earlier request: %w", err)
		}
		if ok {
			return done, nil
		}
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
			if c.Item < 0 || in.key != "" && c.Reason != ConflictLaneBusy {
				continue // it is about the header
			}
			at := in.at(c.Item) + "/idempotency_key"
			if c.Reason == ConflictLaneBusy {
				at = in.at(c.Item) + "/lane"
			}
			located.fields = append(located.fields, api.FieldError{Pointer: at, Reason: conflictTexts[c.Reason], Task: c.Task})
		}
		return located
	}
	return err
}

// built is a Submission, and which of its items need the right to create Jobs.
type built struct {
	Submission
	free []bool
}

func (b built) keyed() bool {
	for _, item := range b.Items {
		if item.Key != "" {
			return true
		}
	}
	return b.Key != ""
}

// build lays every task over its kind; invalid names what is wrong with them.
func (s *server) build(in intake) (b built, invalid error) {
	b.Submission = Submission{Caller: in.caller.User, Key: in.key, Hash: in.hash, DryRun: in.dryRun, Items: make([]Item, len(in.tasks))}
	b.free = make([]bool, len(in.tasks))
	var wrong []kinds.FieldError
	for i, t := range in.tasks {
		item := &b.Items[i]
		if in.key == "" && t.IdempotencyKey != "" {
			item.Key, item.Hash = t.IdempotencyKey, fingerprint(submitRoute, withoutKey(in.bodies[i]))
		}
		made, err := s.buildOne(t)
		var bad *kinds.InvalidError
		if errors.As(err, &bad) {
			for _, f := range bad.Fields {
				wrong = append(wrong, kinds.FieldError{Pointer: in.at(i) + f.Pointer, Reason: f.Reason})
			}
			continue
		}
		made.Task.CreatedBy = in.caller.User
		item.Task, item.OnConflict, item.Supersedes = made.Task, made.OnConflict, made.Supersedes
		item.RunAt, item.Delay = made.RunAt, made.Delay
		item.After, item.RunIf = t.After, string(t.RunIf)
		b.free[i] = made.Free
	}
	if len(wrong) > 0 {
		return b, &kinds.InvalidError{Fields: wrong[:min(len(wrong), maxFields)]}
	}
	return b, nil
}

func (s *server) buildOne(t api.SubmitTask) (kinds.Built, error) {
	k, ok := s.kinds.Get(t.Kind)
	if !ok {
		return kinds.Built{}, &kinds.InvalidError{Fields: []kinds.FieldError{{Pointer: "/kind", Reason: "is not known here"}}}
	}
	if t.RunIf != "" && len(t.After) == 0 {
		return kinds.Built{}, &kinds.InvalidError{Fields: []kinds.FieldError{{Pointer: "/run_if", Reason: "needs after"}}}
	}
	wishes, err := json.Marshal(t.Spec)
	if err != nil {
		return kinds.Built{}, fmt.Errorf("write a spec: %w", err)
	}
	var objects []task.Object
	for _, o := range t.Objects {
		objects = append(objects, task.Object{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name})
	}
	return kinds.Build(k, kinds.Request{
		Namespace: t.Namespace, Objects: objects, Name: t.Name, Params: t.Params, Labels: t.Labels, Lane: t.Lane,
		Mode: task.Mode(t.Mode), OnConflict: task.OnConflict(t.OnConflict), Queue: t.Queue, Class: string(t.Class),
		Spec: wishes, RunAt: t.RunAt.Truncate(time.Microsecond), Delay: task.Seconds(t.Delay),
	})
}

// mayCreate asks for the rights that need nothing but names: create Tasks in the namespace, and use the kind.
func (s *server) mayCreate(ctx context.Context, in intake) error {
	type pair struct{ namespace, kind string }
	asked := map[pair]bool{}
	for _, t := range in.tasks {
		p := pair{t.Namespace, t.Kind}
		if asked[p] {
			continue
		}
		asked[p] = true
		if err := s.gate.May(ctx, in.caller, tasks("create", "", t.Namespace)); err != nil {
			return err
		}
		use := auth.Access{Verb: "use", Group: auth.Group, Resource: "kinds", Name: t.Kind, Namespace: t.Namespace}
		if err := s.gate.May(ctx, in.caller, use); err != nil {
			return err
		}
	}
	return nil
}

// mayChooseFreely asks whether somebody who names what runs could create a Job of it himself. A pod reads any Secret of
// its namespace, so who names one must be able to create such a Job too, or to read that Secret without Slipway.
func (s *server) mayChooseFreely(ctx context.Context, in intake, b built) error {
	var forbidden *auth.ForbiddenError
	for i, t := range in.tasks {
		secrets := b.Items[i].Task.Spec.Pod.Secrets
		if !b.free[i] && len(secrets) == 0 {
			continue
		}
		create := auth.Access{Verb: "create", Group: "batch", Resource: "jobs", Namespace: t.Namespace}
		err := s.gate.May(ctx, in.caller, create)
		if err == nil {
			continue
		}
		if b.free[i] || !errors.As(err, &forbidden) {
			return err
		}
		for _, parameter := range slices.Sorted(maps.Keys(secrets)) {
			get := auth.Access{Verb: "get", Resource: "secrets", Name: secrets[parameter].Name, Namespace: t.Namespace}
			err := s.gate.May(ctx, in.caller, get)
			if errors.As(err, &forbidden) {
				return &auth.ForbiddenError{Access: get, Or: create}
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func tasks(verb, subresource, namespace string) auth.Access {
	return auth.Access{Verb: verb, Group: auth.Group, Resource: "tasks", Subresource: subresource, Namespace: namespace}
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
