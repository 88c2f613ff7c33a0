package httpapi

import (
	"context"
	"reflect"

	"github.com/google/uuid"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

const retryRoute = "POST /v1/tasks/{id}/retry"

// RetryTask submits an ended Task again, by the rules and rights of today.
func (s *server) RetryTask(ctx context.Context, r RetryTaskRequestObject) (RetryTaskResponseObject, error) {
	ctx, known := plain(ctx)
	old, view, err := s.seen(ctx, known.identity, r.ID)
	if err != nil {
		return nil, err
	}
	if err := s.gate.May(ctx, known.identity, tasks("create", "retry", old.Namespace)); err != nil {
		return nil, err
	}
	in := intake{caller: known.identity, at: func(int) string { return "" }, key: given(r.Params.IdempotencyKey)}
	again := repeat{old: old, children: leftOf(view.Children, given(r.Params.All))}
	if in.key != "" {
		in.hash = fingerprint(retryRoute, again.asked(given(r.Params.All)))
	}
	if err := s.rights().mayCreate(ctx, in.caller, again.wants()); err != nil {
		return nil, err
	}
	if !old.State.Terminal() {
		return nil, &HinderedError{Task: old.ID, State: old.State, Reason: "not_ended"}
	}
	b, invalid := s.buildRetry(in, again)
	done, err := s.accept(ctx, in, b, invalid)
	if err != nil {
		return nil, err
	}
	made := done[0]
	now, err := s.afterwards(ctx, known.identity, made.Task.ID)
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

// repeat is an ended Task that is to be submitted again, and which of its children are.
type repeat struct {
	old      task.Task
	children []placed
}

// placed is a child at its place among the children of then.
type placed struct {
	at string
	Listed
}

// leftOf picks the children that did not succeed, or all of them.
func leftOf(children []Listed, all bool) []placed {
	var left []placed
	for i, c := range children {
		if all || c.Task.State != task.Succeeded {
			left = append(left, placed{childPointer("", i), c})
		}
	}
	return left
}

// asked is what a key stands for.
func (r repeat) asked(all bool) any {
	if all {
		return []any{r.old.ID, "all"}
	}
	return r.old.ID
}

func (r repeat) wants() []want {
	all := []want{{r.old.Namespace, r.old.Kind}}
	for _, c := range r.children {
		all = append(all, want{c.Task.Namespace, c.Task.Kind})
	}
	return all
}

// buildRetry builds what a Task was; a composite one with the children that are to be repeated, which run after each
// other as they did.
func (s *server) buildRetry(in intake, r repeat) (b built, invalid error) {
	b.Submission = Submission{Caller: in.caller.User, Key: in.key, Hash: in.hash, Items: make([]Item, 1)}
	item, err := s.again(in.caller, r.old)
	if err != nil {
		return b, err
	}
	if r.old.Children > 0 && len(r.children) == 0 {
		return b, refuseField("", "has no child left to repeat; all repeats those that succeeded")
	}
	w := building{}
	renamed := map[string]string{}
	for _, c := range r.children {
		renamed[c.Task.ID] = uuid.Must(uuid.NewV7()).String()
	}
	for _, c := range r.children {
		old := c.Task
		old.Parent = ""
		made, err := s.again(in.caller, old)
		if err != nil {
			w.addAll(c.at, err)
			continue
		}
		made.Task.ID = renamed[old.ID]
		for _, id := range c.View.After {
			if next, ours := renamed[id]; ours {
				made.After, made.RunIf = append(made.After, next), c.View.RunIf
			}
		}
		item.Children = append(item.Children, made)
	}
	b.Items[0] = item
	return b, w.invalid()
}

func refuseField(pointer, reason string) error {
	return &kinds.InvalidError{Fields: []kinds.FieldError{{Pointer: pointer, Reason: reason}}}
}

// again lays what one Task was over its kind as that is today.
func (s *server) again(caller auth.Identity, old task.Task) (Item, error) {
	if old.Parent != "" {
		return Item{}, refuseField("", "is part of a composite task, which is retried as a whole")
	}
	k, ok := s.kinds.Get(old.Kind)
	if !ok {
		return Item{}, refuseField("/kind", "is not known here")
	}
	want := kinds.Request{
		Namespace: old.Namespace, Name: old.Name, Params: old.Params, Labels: old.Labels, Queue: old.Queue,
		Class: old.Class.String(),
	}
	if old.Mode != task.Parallel && k.Lane == "" { // else the template of today gives them, which may cut lanes in other parts
		want.Lane, want.Mode = old.Lane, old.Mode
	}
	made, err := kinds.Build(k, want)
	if err != nil {
		return Item{}, err
	}
	made.Task.CreatedBy, made.Task.RetryOf = caller.User, old.ID
	usual := made.Task.Spec // what the kind and the parameters give
	free := made.Free || old.Spec.Image != usual.Image || old.Spec.ServiceAccount != usual.ServiceAccount ||
		!reflect.DeepEqual(old.Spec.Pod, usual.Pod)
	made.Task.Spec = old.Spec
	return Item{Task: made.Task, OnConflict: made.OnConflict, Supersedes: made.Supersedes, Free: free, Growth: made.Growth}, nil
}
