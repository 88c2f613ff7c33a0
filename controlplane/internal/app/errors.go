package app

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"slipway.dev/slipway/controlplane/internal/httpapi"
	"slipway.dev/slipway/controlplane/internal/store"
	"slipway.dev/slipway/pkg/task"
)

// known gives errors of the store the names that the other packages tell apart.
func known(err error) error {
	for _, same := range []struct{ theirs, ours error }{
		{store.ErrNotFound, task.ErrNotFound},
		{store.ErrOtherPod, task.ErrOtherPod},
		{store.ErrStale, task.ErrStale},
		{store.ErrUnavailable, task.ErrUnavailable},
	} {
		if errors.Is(err, same.theirs) && !errors.Is(err, same.ours) {
			return fmt.Errorf("%w: %w", same.ours, err)
		}
	}
	return err
}

// edgeError gives errors of the store the names of the edge.
func edgeError(err error) error {
	var (
		conflict *store.ConflictError
		full     *store.FullError
		ended    *store.EndedError
		hindered *store.HinderedError
		refused  store.FieldErrors
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &conflict):
		out := &httpapi.ConflictError{}
		for _, c := range conflict.All {
			out.Conflicts = append(out.Conflicts, httpapi.Conflict{Item: c.Item, Task: c.TaskID, Reason: string(c.Reason)})
		}
		return out
	case errors.As(err, &full):
		return &httpapi.FullError{Namespace: full.Namespace, Queue: full.Queue, RetryAfter: full.RetryAfter}
	case errors.As(err, &ended):
		return &httpapi.EndedError{ID: ended.ID, State: ended.State}
	case errors.As(err, &hindered):
		return &httpapi.HinderedError{Task: hindered.ID, State: hindered.State, Reason: string(hindered.Reason)}
	case errors.As(err, &refused):
		out := &httpapi.RefusedError{}
		for _, f := range refused {
			out.Items = append(out.Items, itemError(f))
		}
		return out
	}
	return known(err)
}

// itemError reads the item from a pointer like /items/3/queue.
func itemError(f store.FieldError) httpapi.ItemError {
	if rest, ok := strings.CutPrefix(f.Pointer, "/items/"); ok {
		number, field, _ := strings.Cut(rest, "/")
		if item, err := strconv.Atoi(number); err == nil {
			if field != "" {
				field = "/" + field
			}
			return httpapi.ItemError{Item: item, Pointer: field, Reason: f.Reason}
		}
	}
	return httpapi.ItemError{Pointer: f.Pointer, Reason: f.Reason}
}

// badPosition makes the store's refusal of a cursor the edge's.
func badPosition(err error) error {
	var refused store.FieldErrors
	if errors.As(err, &refused) {
		return httpapi.ErrBadPosition
	}
	return known(err)
}
