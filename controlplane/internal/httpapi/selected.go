package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// Claims looks up what a selector matches.
type Claims interface {
	Claims(ctx context.Context, namespace, selector string) ([]string, error)
}

// selected looks up, for each Task of a submit, what its kind selects in the cluster, within tryTime.
func (s *server) selected(ctx context.Context, tasks []api.SubmitTask, at func(int) string) (map[int][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	var found map[int][]string
	once := claimsOnce{of: s.cluster, known: map[[2]string][]string{}}
	for i, t := range tasks {
		names, err := selectedBy(ctx, once, s.kinds, t)
		var invalid *kinds.InvalidError
		if errors.As(err, &invalid) {
			invalid.Fields[0].Pointer = at(i) + invalid.Fields[0].Pointer
		}
		if err != nil {
			return nil, err
		}
		if names != nil {
			if found == nil {
				found = map[int][]string{}
			}
			found[i] = names
		}
	}
	return found, nil
}

// claimsOnce asks for the same but once.
type claimsOnce struct {
	of    Claims
	known map[[2]string][]string
}

// Claims looks up what a selector matches.
func (o claimsOnce) Claims(ctx context.Context, namespace, selector string) ([]string, error) {
	key := [2]string{namespace, selector}
	names, asked := o.known[key]
	if asked {
		return names, nil
	}
	names, err := o.of.Claims(ctx, namespace, selector)
	if err == nil {
		o.known[key] = names
	}
	return names, err
}

func selectedBy(ctx context.Context, claims Claims, all *kinds.Registry, t api.SubmitTask) ([]string, error) {
	k, ok := all.Get(t.Kind)
	if !ok || k.Selector == nil {
		return nil, nil
	}
	if _, err := kinds.Build(k, kinds.Request{Namespace: t.Namespace, Params: t.Params}); err != nil {
		return nil, nil //nolint:nilerr // it is refused with all else that is wrong with it
	}
	names, err := claims.Claims(ctx, t.Namespace, k.Selector(t.Params))
	switch {
	case errors.Is(err, task.ErrUnavailable), err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("look up what a selector matches: %w", err)
	case err != nil:
		return nil, refuseField("/params/selector", "cannot be looked up: the control plane may not list the PersistentVolumeClaims of namespace "+
			t.Namespace+"; enabling it, anew where it was enabled by an older version, gives that right")
	}
	return names, nil
}

// Selected looks up what the Task that a fire of a schedule is selects in the cluster, for BuildTemplate. A refusal is a
// *kinds.InvalidError.
func Selected(ctx context.Context, claims Claims, all *kinds.Registry, namespace string, template json.RawMessage) ([]string, error) {
	var t api.SubmitTask
	if err := json.Unmarshal(template, &t); err != nil {
		return nil, nil //nolint:nilerr // BuildTemplate says so
	}
	t.Namespace = namespace
	return selectedBy(ctx, claims, all, t)
}
