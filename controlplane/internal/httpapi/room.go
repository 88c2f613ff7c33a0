package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"slipway.dev/slipway/controlplane/internal/auth"
	"slipway.dev/slipway/controlplane/internal/kinds"
	"slipway.dev/slipway/pkg/api"
	"slipway.dev/slipway/pkg/task"
)

// sizePointer is where a Task says how much storage it wants.
const sizePointer = "/params/size"

// ErrNoCluster says why a limit of storage holds nothing.
var ErrNoCluster = errors.New("this control plane has no cluster: nothing is held against the limit")

// Room reads, before a submit, what it takes to hold its Tasks against limits of storage. The store counts, under the
// lock of the limit.
type Room struct {
	Storage interface {
		StorageLimits(ctx context.Context, namespaces []string) (map[string]StorageBound, error)
	}
	Cluster interface {
		StorageUse(ctx context.Context, namespace string) (map[string]int64, error)
	}
}

func (s *server) room() Room { return Room{Storage: s.storage, Cluster: s.cluster} }

// Unmeasured are the namespaces whose claims cannot be read, with why: what wants storage there is refused.
type Unmeasured map[string]string

const unmeasurable = "cannot be held against the limit of storage of its namespace: the claims there cannot be read; enabling the namespace, " +
	"anew where it was enabled by an older version, gives that right"

// Measure completes Items that want storage where there is a limit. Nobody is asked about namespaces without one. An error
// is trouble, after which another try can help.
func (r Room) Measure(ctx context.Context, items []Item) (Unmeasured, error) {
	use, closed, err := r.read(ctx, growing(items))
	if err == nil {
		WithStorage(items, use)
	}
	return closed, err
}

// WithStorage completes Items by what was read.
func WithStorage(items []Item, use map[string]task.StorageUse) {
	for i := range items {
		if u, read := use[items[i].Task.Namespace]; read && items[i].Growth != nil {
			items[i].Storage = &u
		}
		WithStorage(items[i].Children, use)
	}
}

// growing names the namespaces of Items that want storage.
func growing(items []Item) []string {
	all := map[string]bool{}
	for _, item := range items {
		if item.Growth != nil {
			all[item.Task.Namespace] = true
		}
		for _, namespace := range growing(item.Children) {
			all[namespace] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// read reads the claims of namespaces that have a limit, after the limits, some at once and within tryTime.
func (r Room) read(ctx context.Context, namespaces []string) (map[string]task.StorageUse, Unmeasured, error) {
	if len(namespaces) == 0 {
		return nil, nil, nil
	}
	limits, err := r.Storage.StorageLimits(ctx, namespaces)
	if err != nil {
		return nil, nil, fmt.Errorf("read limits of storage: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	var (
		mu     sync.Mutex
		asking sync.WaitGroup
		errs   []error
		use    = make(map[string]task.StorageUse, len(limits))
		closed = Unmeasured{}
		slots  = make(chan struct{}, tryAtOnce)
	)
	for namespace, limit := range limits {
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			claims, err := r.Cluster.StorageUse(ctx, namespace)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				use[namespace] = task.StorageUse{At: limit.At, Claims: claims}
			case errors.Is(err, task.ErrUnavailable), ctx.Err() != nil:
				errs = append(errs, fmt.Errorf("read the claims of namespace %s: %w", namespace, err))
			default:
				closed[namespace] = unmeasurable
			}
		})
	}
	asking.Wait()
	return use, closed, errors.Join(errs...)
}

// Template is Measure for the Task that a fire of a schedule is: what was read, for WithStorage. A refusal is a
// *kinds.InvalidError.
func (r Room) Template(ctx context.Context, all *kinds.Registry, namespace string, template json.RawMessage, found []string) (map[string]task.StorageUse, error) {
	item, err := BuildTemplate(all, namespace, template, found)
	if err != nil {
		return nil, nil //nolint:nilerr // the fire says so
	}
	items := []Item{item}
	use, closed, err := r.read(ctx, growing(items))
	if err == nil {
		err = closed.refuse(items, func(int) string { return "" })
	}
	return use, err
}

// measure refuses what cannot be held against a limit; away is trouble.
func (s *server) measure(ctx context.Context, in intake, items []Item) (invalid, away error) {
	closed, away := s.room().Measure(ctx, items)
	if away != nil {
		return nil, away
	}
	return closed.refuse(items, in.at), nil
}

func (u Unmeasured) refuse(items []Item, at func(int) string) error {
	var wrong []kinds.FieldError
	look := func(item Item, at string) {
		if reason := u[item.Task.Namespace]; reason != "" && item.Growth != nil && len(wrong) < maxFields {
			wrong = append(wrong, kinds.FieldError{Pointer: at + sizePointer, Reason: reason})
		}
	}
	for i, item := range items {
		look(item, at(i))
		for c, child := range item.Children {
			look(child, childPointer(at(i), c))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return &kinds.InvalidError{Fields: wrong}
}

// SetLimits sets the limit of storage of a namespace.
func (s *server) SetLimits(ctx context.Context, r SetLimitsRequestObject) (SetLimitsResponseObject, error) {
	ctx, known := plain(ctx)
	if err := s.visible(ctx, known.identity, "limits", "", r.Namespace); err != nil {
		return nil, err
	}
	if err := s.gate.May(ctx, known.identity, auth.Access{Verb: "update", Group: auth.Group, Resource: "limits", Namespace: r.Namespace}); err != nil {
		return nil, err
	}
	var limit *int64
	if r.Body.Storage != "" { // else it was null: the document refuses an empty one
		bytes, err := kinds.Bytes(r.Body.Storage)
		if err != nil {
			return nil, refuseField("/storage", "is no quantity from 0 to 1Ei, as 500Gi")
		}
		limit = &bytes
	}
	if err := s.storage.SetStorageLimit(ctx, r.Namespace, limit, known.identity.User); err != nil {
		return nil, fmt.Errorf("set a limit of storage: %w", err)
	}
	out, err := s.limits(ctx, r.Namespace)
	return SetLimits200JSONResponse(out), err
}

// storageLimit is what a namespace may use of storage, and what it uses; nil where there is no limit. What cannot be read
// is left out, with a note.
func (s *server) storageLimit(ctx context.Context, namespace string) (*api.StorageLimit, error) {
	limits, err := s.storage.StorageLimits(ctx, []string{namespace})
	limit, limited := limits[namespace]
	if err != nil || !limited {
		return nil, err
	}
	all, err := s.storage.Reservations(ctx, namespace)
	if err != nil {
		return nil, err
	}
	const most = 100
	out := &api.StorageLimit{Limit: task.Quantity(limit.Bytes), Open: int32(len(all)), Tasks: []api.StorageReservation{}}
	growths := make([]task.Growth, len(all))
	for i, r := range all {
		growths[i] = task.Growth{Claim: r.Claim, Bytes: r.Bytes}
		if i < most {
			out.Tasks = append(out.Tasks, api.StorageReservation{Task: r.Task, Pvc: r.Claim, Size: task.Quantity(r.Bytes)})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	switch use, err := s.cluster.StorageUse(ctx, namespace); {
	case err == nil:
		count := task.CountStorage(limit.Bytes, use, growths, task.Growth{})
		out.InUse, out.Reserved = task.Quantity(count.InUse), task.Quantity(count.Reserved)
	case errors.Is(err, ErrNoCluster):
		out.Note = ErrNoCluster.Error()
	case errors.Is(err, task.ErrUnavailable), ctx.Err() != nil:
		out.Note = "what is in use cannot be read: the cluster cannot be reached at the moment"
	default:
		out.Note = "what is in use cannot be read, and no growth is taken: enabling the namespace, anew where it was enabled by an older version, gives that right"
	}
	return out, nil
}
