package httpapi

import (
	"context"
	"errors"
	"maps"
	"slices"

	"slipway.dev/slipway/controlplane/internal/auth"
)

// want is a Task by what the rights to create it need.
type want struct{ namespace, kind string }

// rights asks whether somebody could do himself what he has Slipway do.
type rights struct{ gate Gate }

func (s *server) rights() rights { return rights{s.gate} }

// mayCreate asks for the rights that need nothing but names: create Tasks in the namespace, and use the kind.
func (s rights) mayCreate(ctx context.Context, caller auth.Identity, all []want) error {
	asked := map[want]bool{}
	for _, w := range all {
		if asked[w] {
			continue
		}
		asked[w] = true
		if err := s.gate.May(ctx, caller, tasks("create", "", w.namespace)); err != nil {
			return err
		}
		use := auth.Access{Verb: "use", Group: auth.Group, Resource: "kinds", Name: w.kind, Namespace: w.namespace}
		if err := s.gate.May(ctx, caller, use); err != nil {
			return err
		}
	}
	return nil
}

// mayChooseFreely asks whether somebody who names what runs could create a Job of it himself. A pod reads any Secret of
// its namespace, so who names one must be able to create such a Job too, or to read that Secret without Slipway.
func (s rights) mayChooseFreely(ctx context.Context, caller auth.Identity, items []Item) error {
	for _, item := range items {
		if err := s.mayChoose(ctx, caller, item); err != nil {
			return err
		}
		if err := s.mayChooseFreely(ctx, caller, item.Children); err != nil {
			return err
		}
	}
	return nil
}

func (s rights) mayChoose(ctx context.Context, caller auth.Identity, item Item) error {
	namespace, secrets := item.Task.Namespace, item.Task.Spec.Pod.Secrets
	if !item.Free && len(secrets) == 0 {
		return nil
	}
	create := auth.Access{Verb: "create", Group: "batch", Resource: "jobs", Namespace: namespace}
	err := s.gate.May(ctx, caller, create)
	var forbidden *auth.ForbiddenError
	if err == nil || item.Free || !errors.As(err, &forbidden) {
		return err
	}
	for _, parameter := range slices.Sorted(maps.Keys(secrets)) {
		get := auth.Access{Verb: "get", Resource: "secrets", Name: secrets[parameter].Name, Namespace: namespace}
		err := s.gate.May(ctx, caller, get)
		if errors.As(err, &forbidden) {
			return &auth.ForbiddenError{Access: get, Or: create}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func tasks(verb, subresource, namespace string) auth.Access {
	return auth.Access{Verb: verb, Group: auth.Group, Resource: "tasks", Subresource: subresource, Namespace: namespace}
}
