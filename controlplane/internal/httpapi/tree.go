package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// localPrefix begins a name in `after` that is a Task of the same request.
const localPrefix = "ref:"

func childPointer(parent string, n int) string { return fmt.Sprintf("%s/children/%d", parent, n) }

// build lays every task and its children over their kinds; invalid names what is wrong with them.
func (s *server) build(in intake) (b built, invalid error) {
	w := building{kinds: s.kinds, caller: in.caller.User, refs: map[string]string{}}
	for i, t := range in.tasks {
		w.name(w.refs, t.Ref, in.at(i)+"/ref")
		for c, child := range t.Children {
			w.name(w.refs, child.Ref, childPointer(in.at(i), c)+"/ref")
		}
	}
	b.Submission = Submission{Caller: in.caller.User, Key: in.key, Hash: in.hash, DryRun: in.dryRun, Items: make([]Item, len(in.tasks))}
	for i, t := range in.tasks {
		w.found = in.found[i]
		item := w.tree(t, in.at(i))
		if in.key == "" && t.IdempotencyKey != "" {
			item.Key, item.Hash = t.IdempotencyKey, fingerprint(submitRoute, withoutKey(in.bodies[i]))
		}
		b.Items[i] = item
	}
	b.planned = w.planned
	return b, w.invalid()
}

// building makes Items of what was submitted, and collects what is wrong with it.
type building struct {
	kinds   *kinds.Registry
	caller  string
	refs    map[string]string // ids of the Tasks that carry a name in this request
	planned []want
	found   []string // what the Task that is being built selects
	wrong   []kinds.FieldError
}

func (w *building) add(pointer, reason string) {
	w.wrong = append(w.wrong, kinds.FieldError{Pointer: pointer, Reason: reason})
}

// addAll takes over what a rule of a kind says, at its place in the request.
func (w *building) addAll(at string, err error) {
	var bad *kinds.InvalidError
	if !errors.As(err, &bad) {
		w.add(at, "cannot be read")
		return
	}
	for _, f := range bad.Fields {
		w.add(at+f.Pointer, f.Reason)
	}
}

func (w *building) invalid() error {
	if len(w.wrong) == 0 {
		return nil
	}
	return &kinds.InvalidError{Fields: w.wrong[:min(len(w.wrong), maxFields)]}
}

// name gives a Task that others may name its id.
func (w *building) name(in map[string]string, ref, at string) {
	if ref == "" {
		return
	}
	if _, twice := in[ref]; twice {
		w.add(at, "is the name of another task of this request")
		return
	}
	in[ref] = uuid.Must(uuid.NewV7()).String()
}

// needs reads `after`: ids, and names of this request.
func (w *building) needs(after []string, refs map[string]string, at string) []string {
	ids := make([]string, 0, len(after))
	for i, one := range after {
		ref, local := strings.CutPrefix(one, localPrefix)
		if !local {
			ids = append(ids, one)
			continue
		}
		id, known := refs[ref]
		if !known {
			w.add(fmt.Sprintf("%s/after/%d", at, i), "names no task of this request")
			continue
		}
		ids = append(ids, id)
	}
	return ids
}

// tree builds one Task of a request with its children, given or planned.
func (w *building) tree(t api.SubmitTask, at string) Item {
	before := len(w.wrong)
	item, k := w.one(t, at)
	for c, child := range t.Children {
		at := childPointer(at, c)
		if len(child.Children) > 0 {
			w.add(at+"/children", "a child cannot have children")
		}
		if child.IdempotencyKey != "" {
			w.add(at+"/idempotency_key", "belongs to the parent")
		}
		made, of := w.one(child, at)
		if of.Composite() {
			w.add(at+"/kind", "runs nothing itself and cannot be a child")
		}
		item.Children = append(item.Children, made)
	}
	if len(w.wrong) > before {
		return item
	}
	switch {
	case k.Planner != nil && len(t.Children) > 0:
		w.add(at+"/children", "are planned by kind "+k.Name)
	case k.Planner != nil:
		w.plan(&item, k, at)
	case k.NeedsChildren && len(t.Children) == 0:
		w.add(at+"/children", "are missing: kind "+k.Name+" runs nothing itself")
	}
	return item
}

func (w *building) one(t api.SubmitTask, at string) (Item, kinds.Kind) {
	k, ok := w.kinds.Get(t.Kind)
	if !ok {
		w.add(at+"/kind", "is not known here")
		return Item{}, k
	}
	if t.RunIf != "" && len(t.After) == 0 {
		w.add(at+"/run_if", "needs after")
	}
	req, err := requestOf(t)
	if err != nil {
		w.addAll(at+"/spec", err)
		return Item{}, k
	}
	item := w.lay(k, req, at)
	item.Task.ID = w.refs[t.Ref]
	item.After, item.RunIf = w.needs(t.After, w.refs, at), string(t.RunIf)
	return item, k
}

// lay lays a request over its kind.
func (w *building) lay(k kinds.Kind, req kinds.Request, at string) Item {
	made, err := kinds.Build(k, req)
	if err != nil {
		w.addAll(at, err)
		return Item{}
	}
	made.Task.CreatedBy = w.caller
	return Item{
		Task: made.Task, OnConflict: made.OnConflict, Supersedes: made.Supersedes, RunAt: made.RunAt, Delay: made.Delay, Free: made.Free,
		Growth: made.Growth,
	}
}

// plan asks the kind for the children. What is wrong with them is shown at the parent: nobody wrote them down.
func (w *building) plan(parent *Item, k kinds.Kind, at string) {
	t := parent.Task
	all, err := k.Planner.Plan(kinds.Request{Namespace: t.Namespace, Name: t.Name, Params: t.Params, Labels: t.Labels, Lane: t.Lane, Queue: t.Queue, Found: w.found})
	switch {
	case err != nil:
		w.addAll(at, err)
		return
	case len(all) == 0 || len(all) > kinds.MaxChildren:
		w.add(at+"/params", fmt.Sprintf("plan %d children; 1 to %d can be", len(all), kinds.MaxChildren))
		return
	}
	refs := map[string]string{}
	for c, child := range all {
		w.name(refs, child.Ref, childPointer(at, c)+"/ref")
	}
	for c, child := range all {
		at := childPointer(at, c)
		of, ok := w.kinds.Get(child.Kind)
		if !ok || of.Composite() {
			w.add(at+"/kind", "cannot be a child")
			continue
		}
		made := w.lay(of, child.Request, at)
		made.Task.ID, made.RunIf = refs[child.Ref], child.RunIf
		for _, ref := range child.After {
			made.After = append(made.After, w.needs([]string{localPrefix + ref}, refs, at)...)
		}
		parent.Children = append(parent.Children, made)
		w.planned = append(w.planned, want{child.Namespace, child.Kind})
	}
}

func requestOf(t api.SubmitTask) (kinds.Request, error) {
	wishes, err := json.Marshal(t.Spec)
	if err != nil {
		return kinds.Request{}, fmt.Errorf("write a spec: %w", err)
	}
	var objects []task.Object
	for _, o := range t.Objects {
		objects = append(objects, task.Object{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name})
	}
	return kinds.Request{
		Namespace: t.Namespace, Objects: objects, Name: t.Name, Params: t.Params, Labels: t.Labels, Lane: t.Lane,
		Mode: task.Mode(t.Mode), OnConflict: task.OnConflict(t.OnConflict), Queue: t.Queue, Class: string(t.Class),
		Spec: wishes, RunAt: t.RunAt.Truncate(time.Microsecond), Delay: task.Seconds(t.Delay),
	}, nil
}

// strangers finds the Tasks of before that a request is to run after and that are not there, or not the caller's to
// see: invalid tells the two not apart.
func (s *server) strangers(ctx context.Context, in intake) (invalid, err error) {
	places := map[string][]string{} // id → pointers
	look := func(t api.SubmitTask, at string) {
		for i, one := range t.After {
			if !strings.HasPrefix(one, localPrefix) {
				places[one] = append(places[one], fmt.Sprintf("%s/after/%d", at, i))
			}
		}
	}
	for i, t := range in.tasks {
		look(t, in.at(i))
		for c, child := range t.Children {
			look(child, childPointer(in.at(i), c))
		}
	}
	if len(places) == 0 {
		return nil, nil
	}
	ids := make([]string, 0, len(places))
	for id := range places {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	found, err := s.picker.Load(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read the tasks to run after: %w", err)
	}
	sees := s.sees(ctx, in.caller)
	for _, t := range found {
		ok, err := sees(t.Namespace)
		if err != nil {
			return nil, err
		}
		if ok {
			delete(places, t.ID)
		}
	}
	var wrong []kinds.FieldError
	for _, id := range ids {
		for _, at := range places[id] {
			wrong = append(wrong, kinds.FieldError{Pointer: at, Reason: "no task " + id})
		}
	}
	if len(wrong) == 0 {
		return nil, nil
	}
	return &kinds.InvalidError{Fields: wrong[:min(len(wrong), maxFields)]}, nil
}

// sees tells in which namespaces a caller may get Tasks; it asks once for each.
func (s *server) sees(ctx context.Context, caller auth.Identity) func(namespace string) (bool, error) {
	known := map[string]bool{}
	return func(namespace string) (bool, error) {
		if yes, asked := known[namespace]; asked {
			return yes, nil
		}
		err := s.gate.May(ctx, caller, tasks("get", "", namespace))
		var forbidden *auth.ForbiddenError
		if err != nil && !errors.As(err, &forbidden) {
			return false, err
		}
		known[namespace] = err == nil
		return err == nil, nil
	}
}
